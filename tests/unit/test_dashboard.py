"""The page's server side: frames that add up, a feed that nobody can slow down, files that are named one by one."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from contextlib import closing
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.model import Stage
from slackwater.core.records import Left, Ran, Records, Ruled
from slackwater.dashboard.feed import Feed
from slackwater.dashboard.frames import LONGEST_REASON, MOST_TURNS, Frame, Frames
from slackwater.dashboard.page import FILES, HEADERS, INDEX
from slackwater.dashboard.routes import Page
from slackwater.endpoint.overview import MemoryOverview, Overview, QueryOverview, SchedulerOverview
from slackwater.endpoint.server import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATIC = files("slackwater.dashboard") / "static"
NOW = 1_700_000_000.0


def query(key: str, **known: Any) -> QueryOverview:
    usual: dict[str, Any] = {
        "name": key,
        "stage": "waiting",
        "reason": "its window closes later",
        "priority_class": 0,
        "batches": 3,
        "slack_s": 1.0,
        "watermark_lag_s": 2.0,
        "last_latency_s": None,
        "backlog_rows": 10.0,
        "head_age_s": 0.0,
        "rows_per_s": 5.0,
        "row_cost_s": 0.0,
        "batch_cost_s": 0.1,
        "sweep_cost_s": 0.1,
        "selectivity": 1.0,
        "state_bytes": 100,
    }
    return QueryOverview(key=key, **{**usual, **known})


def overview(*queries: QueryOverview, wall_ts: float = NOW, **known: Any) -> Overview:
    usual: dict[str, Any] = {
        "version": "1",
        "application_id": "app-1",
        "name": "shop",
        "master": "local[2]",
        "ui_url": None,
        "python_pid": 1,
        "jvm_pid": 2,
        "policy": "klink",
        "cores": 2,
        "lanes": 2,
    }
    return Overview(queries=queries, wall_ts=wall_ts, **{**usual, **known})


def ran(key: str, batch_id: int, lane: int | None = 0) -> Ran:
    return Ran(key, key, Stage.DATA, lane, "least slack", batch_id, NOW + batch_id, NOW + batch_id + 0.25, 7, 0.5)


def read(event: bytes) -> tuple[str, dict[str, Any]]:
    kind, number, data = (line.split(b": ", 1)[1] for line in event.strip().split(b"\n"))
    assert int(number) > 0
    return kind.decode(), json.loads(data)


class Client:
    """What a page does with frames, in a few lines."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.ran: list[Any] = []
        self.left: list[Any] = []
        self.live: list[Any] = []

    def take(self, event: bytes) -> None:
        kind, content = read(event)
        if kind == "whole":
            self.rows, self.ran, self.left = {}, [], []
        self.rows |= {row[0]: row for row in content["rows"]}
        self.ran += content["ran"]
        self.left += content["left"]
        self.live = content["live"]


def test_a_tick_tells_only_what_changed() -> None:
    seen = [overview(query("a"), query("b"))]
    frames = Frames(lambda: seen[-1], Records())
    frames.next()
    runs = query("b", stage="data batch", lane=1, running_since_wall_ts=NOW + 0.25)
    seen.append(overview(query("a", slack_s=0.5), runs, wall_ts=NOW + 1))
    _, tick = read(frames.next().tick)
    assert tick["rows"] == [[1, "data batch", 0, 100, None, 3, 0, "its window closes later", 1, 0.25]]
    assert tick["live"][0] == [0.5, 1.0]
    assert tick["t"] == 1
    assert "queries" not in tick


def test_a_query_that_comes_or_goes_makes_everybody_read_the_whole_again() -> None:
    seen = [overview(query("a"))]
    frames = Frames(lambda: seen[-1], Records())
    first = frames.next()
    second = frames.next()
    assert second.after(first.number, first.facts) == second.tick
    seen.append(overview(query("a"), query("b")))
    third = frames.next()
    assert third.after(second.number, second.facts) == third.whole()
    assert read(third.whole())[1]["queries"] == [["a", "a", None], ["b", "b", None]]


def test_a_turn_of_a_query_that_has_gone_keeps_its_name() -> None:
    records = Records()
    records.ran.add(ran("gone", 1))
    records.left.add(Left("gone", "gone", NOW, NOW + 1.5))
    _, whole = read(Frames(lambda: overview(query("a")), records).next().whole())
    assert whole["ran"][0][0] == "gone"
    assert whole["left"] == [["gone", 1.5, 1.5]]


def test_memory_and_scheduler_are_told_where_they_are_known() -> None:
    records = Records()
    records.ruled.append(Ruled(NOW - 2, NOW - 1))
    records.ruled.append(Ruled(NOW))
    known = overview(
        memory=MemoryOverview(used_bytes=9, live_bytes=8, max_bytes=10, bound_bytes=7.5, rules=True, cycles=2),
        scheduler=SchedulerOverview(
            gates_open=False, gates_opened=1, decisions=5, decision_ms_p99=1.234, cpu_s=2.0, last_decision_wall_ts=NOW
        ),
        told={"late": [{"name": "a", "stalest": 0.1}]},
    )
    _, tick = read(Frames(lambda: known, records).next().tick)
    assert tick["memory"] == [9, 8, 10, 8, True, 2]
    assert tick["ruled"] == [[-2.0, -1.0], [0.0, None]]
    assert tick["scheduler"] == [False, 1, 5, 1.23, 2.0, 0.0, True]
    assert tick["late"] == [{"name": "a", "stalest": 0.1}]


def test_a_shadow_is_told_with_its_first_choices_and_its_advice_only_when_that_changes() -> None:
    rows: list[dict[str, Any]] = [
        {"policy": "klink", "trouble": None, "wall_ts": NOW - 3, "mean_s": 5.12345, "predicted_mean_s": None},
        *({"query": f"q{place}", "start": place != 1, "urgency": place, "reason": "why " * 100} for place in range(12)),
    ]
    frames = Frames(lambda: overview(query("a"), told={"shadow": rows}), Records())
    _, tick = read(frames.next().tick)
    assert tick["shadow"]["gain"] == {
        "policy": "klink", "trouble": None, "t": -3.0, "mean_s": 5.123, "predicted_mean_s": None
    }  # fmt: skip
    assert tick["shadow"]["wanted"] == 11
    assert [name for name, _ in tick["shadow"]["choices"]] == [f"q{place}" for place in (0, 2, 3, 4, 5, 6, 7, 8)]
    assert max(len(reason) for _, reason in tick["shadow"]["choices"]) == LONGEST_REASON
    assert "advice" not in tick
    rows.append({"advice": "Leave things alone."})
    assert read(frames.next().tick)[1]["advice"] == ["Leave things alone."]
    later = frames.next()
    assert "advice" not in read(later.tick)[1]
    assert read(later.whole())[1]["advice"] == ["Leave things alone."]
    assert read(Frames(lambda: overview(query("a")), Records()).next().tick)[1]["shadow"] is None


def test_numbers_that_are_none_do_not_break_a_frame() -> None:
    odd = query("a", slack_s=float("nan"), backlog_rows=float("inf"), watermark_lag_s=None)
    _, tick = read(Frames(lambda: overview(odd), Records()).next().tick)
    assert tick["live"] == [[None]] * 5


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcd")), st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=20
    )
)
def test_ticks_add_up_to_the_whole_whatever_is_skipped(steps: list[tuple[set[str], int, int, bool]]) -> None:
    """A client that follows, and one that misses frames, know the same as one that comes new."""
    records, now = Records(), [overview()]
    frames = Frames(lambda: now[-1], records)
    client, number, facts = Client(), None, None
    for keys, turns, batches, skipped in steps:
        for turn in range(turns):
            records.ran.add(ran("abcd"[turn], records.ran.added))
            records.left.add(Left("a", "a", NOW, NOW + turn))
        now.append(overview(*(query(key, batches=batches) for key in sorted(keys))))
        frame = frames.next()
        if skipped:
            continue
        client.take(frame.after(number, facts))
        number, facts = frame.number, frame.facts
        new = Client()
        new.take(frame.whole())
        assert client.rows == new.rows
        assert client.live == new.live
        assert client.ran[-MOST_TURNS:] == new.ran
        assert client.left == new.left


# ---- the feed


class Made:
    """Frames that are counted, and as small as can be, or with that much more in them."""

    def __init__(self, more: bytes = b"") -> None:
        self.made = 0
        self.more = more
        self.fails = False

    def next(self) -> Frame:
        self.made += 1
        if self.fails:
            raise RuntimeError("no news")
        number = self.made
        return Frame(number, 1, b"tick %d" % number + self.more, lambda: b"whole %d" % number + self.more)


class Reader:
    """The other end of a stream; it takes nothing while `taking` is not set."""

    def __init__(self, feed: Feed) -> None:
        self.got: list[bytes] = []
        self.status = 0
        self.taking = asyncio.Event()
        self.taking.set()
        self.gone = asyncio.Event()
        self.task = asyncio.ensure_future(feed.stream({}, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.taking.wait()
        if message["body"] and not message["body"].startswith(b"retry"):
            self.got.append(message["body"])


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for knows no event
            await asyncio.sleep(0.001)


def feed_of(made: Any, **known: Any) -> Feed:
    return Feed(made, period_s=0.005, **known)


def test_all_readers_get_the_same_bytes_made_once() -> None:
    async def main() -> None:
        made = Made()
        feed = feed_of(made)
        readers = [Reader(feed) for _ in range(5)]
        await until(lambda: all(len(reader.got) >= 6 for reader in readers))
        assert all(reader.got[0].startswith(b"whole") for reader in readers)
        for reader in readers:  # not only equal: the same object
            assert {id(body) for body in reader.got} & {id(body) for body in readers[0].got}
        feed.close()
        await until(lambda: all(reader.task.done() for reader in readers))

    asyncio.run(main())


def test_a_reader_that_takes_nothing_holds_up_nobody_and_then_gets_the_newest_whole() -> None:
    async def main() -> None:
        made = Made()
        feed = feed_of(made)
        quick, slow = Reader(feed), Reader(feed)
        await until(lambda: slow.got)
        slow.taking.clear()
        before, had = len(slow.got), len(quick.got)
        await until(lambda: len(quick.got) >= had + 20)
        assert len(slow.got) == before
        made_by_then = made.made
        slow.taking.set()
        # One frame was on its way to it, whatever number that had; the next is the newest, and whole.
        await until(lambda: len(slow.got) >= before + 2)
        assert slow.got[before + 1].startswith(b"whole")
        assert int(slow.got[before + 1].split()[1]) >= made_by_then
        feed.close()

    asyncio.run(main())


def test_nothing_is_made_while_nobody_reads() -> None:
    async def main() -> None:
        made = Made()
        feed = feed_of(made)
        reader = Reader(feed)
        await until(lambda: reader.got)
        reader.gone.set()
        await until(lambda: reader.task.done() and feed._ticking is not None and feed._ticking.done())
        assert feed.readers == 0
        before = made.made
        again = Reader(feed)
        await until(lambda: again.got)
        assert again.got[0] == b"whole %d" % (before + 1)
        feed.close()

    asyncio.run(main())


def test_more_readers_than_there_are_places_for_are_refused() -> None:
    async def main() -> None:
        feed = feed_of(Made(), most_readers=2)
        readers = [Reader(feed) for _ in range(3)]
        await until(lambda: all(reader.status for reader in readers))
        assert sorted(reader.status for reader in readers) == [200, 200, 503]
        readers[0].gone.set()
        await until(lambda: feed.readers == 1)
        another = Reader(feed)
        await until(lambda: another.got)
        assert another.status == 200
        feed.close()

    asyncio.run(main())


def test_frames_that_cannot_be_made_end_no_stream_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        made = Made()
        feed = feed_of(made)
        reader = Reader(feed)
        await until(lambda: reader.got)
        made.fails = True
        before = made.made
        await until(lambda: made.made > before + 3)
        had = len(reader.got)
        made.fails = False
        await until(lambda: len(reader.got) > had)
        feed.close()
        await until(reader.task.done)

    asyncio.run(main())
    assert [record.message for record in caplog.records] == ["the page gets no news: RuntimeError: no news"]


# ---- what is served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Endpoint]:
    page = Page(lambda: overview(query("a")), Records())
    endpoint = Endpoint(application_id="a", name="a", reads={}, own=page.routes(), folder=tmp_path / "run")
    yield endpoint
    page.close()
    endpoint.close()


def test_the_page_and_its_files_come_with_a_policy_that_runs_nothing_else(served: Endpoint) -> None:
    for name in FILES:
        answer = httpx2.get(served.url + ("/" if name == INDEX else f"/static/{name}"))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == FILES[name]
        for header, value in HEADERS.items():
            assert answer.headers[header] == value
        again = httpx2.get(answer.url, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
        assert again.content == b""


@pytest.mark.parametrize(
    "path", ["nothing.js", "../page.py", "..%2fpage.py", "%2e%2e/page.py", "vendor/README", "", "/etc/passwd"]
)
def test_files_that_are_not_named_are_not_served(served: Endpoint, path: str) -> None:
    assert httpx2.get(f"{served.url}/static/{path}").status_code == 404


def test_the_stream_of_events_begins_with_the_whole(served: Endpoint) -> None:
    with httpx2.stream("GET", served.url + "/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.iter_lines()
        assert next(lines).startswith("retry: ")
        found = dict(line.split(": ", 1) for _, line in zip(range(4), lines, strict=False) if line)
        assert found["event"] == "whole"
        assert json.loads(found["data"])["application"]["name"] == "shop"


def test_what_waits_for_a_reader_that_takes_nothing_does_not_grow(tmp_path: Path) -> None:
    frame_bytes = 300_000
    made = Made(b"x" * frame_bytes)
    feed = feed_of(made)

    async def events(_: Any) -> Any:
        return feed.stream

    endpoint = Endpoint(application_id="a", name="a", reads={}, own={"/api/events": events}, folder=tmp_path / "run")
    try:
        with closing(socket.socket()) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", endpoint.port))
            reader.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            deadline = time.monotonic() + 60
            most = 0
            while made.made < 200:
                assert time.monotonic() < deadline
                for connection in list(endpoint._server.server_state.connections):
                    most = max(most, connection.transport.get_write_buffer_size())
                time.sleep(0.002)
        assert 0 < most < 2 * frame_bytes
    finally:
        feed.close()
        endpoint.close()


def test_other_sites_pages_read_no_events(served: Endpoint) -> None:
    assert httpx2.get(served.url + "/api/events", headers={"origin": "https://example.org"}).status_code == 403


def shipped() -> dict[str, str]:
    """Our own files: not the vendor's."""
    return {name: (STATIC / name).read_text("utf-8") for name in FILES if not name.startswith("vendor/")}


def test_every_file_that_is_shipped_is_named_and_every_import_leads_to_one() -> None:
    there = {
        path.name if folder == "" else f"{folder}/{path.name}"
        for folder in ("", "vendor")
        for path in (STATIC / folder).iterdir()
        if path.is_file()
    }
    assert there - {"vendor/README"} == set(FILES)
    for name, text in shipped().items():
        for target in re.findall(r'from "\./([^"]+)"', text):
            assert str(PurePosixPath(name).parent / target) in FILES


def test_no_file_needs_what_the_policy_forbids_or_puts_in_text_as_markup() -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write"
    forbidden = markup + r"|\beval\(|new Function|javascript:|\sstyle=|\son[a-z]+=\""
    for name, text in shipped().items():
        assert re.findall(forbidden, text) == [], name
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text.replace("/^https?:", "")) == [], name
    assert not re.search(r"<script(?![^>]*\ssrc=)", shipped()[INDEX])
    assert "<style" not in shipped()[INDEX]
