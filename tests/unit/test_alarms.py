"""Alarms over scripted overviews: raised once, for the right reason, and taken back when all is well again."""

from __future__ import annotations

import http.server
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.model import Stage
from slackwater.core.records import Ended, Ran
from slackwater.endpoint.overview import MemoryOverview, Overview, QueryOverview, SchedulerOverview
from slackwater.errors import ConfigurationError
from slackwater.supervision.alarms import Alarm, Book, Finding, Kind, Notice
from slackwater.supervision.channels import Outbox, Webhook
from slackwater.supervision.progress import holder
from slackwater.supervision.restarts import State, Supervised
from slackwater.supervision.seen import Seen
from slackwater.supervision.settings import Alarms
from slackwater.supervision.watch import AlarmWatch, all_rules

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = Alarms(clear_s=5, stopped_s=10, stalled_s=10, behind_s=3, behind_steps=3, step_s=2, scheduler_s=3, forget_s=100)


def query(name: str = "clicks", **more: Any) -> QueryOverview:
    given: dict[str, Any] = {
        "key": f"{name}-run",
        "name": name,
        "query_id": f"{name}-id",
        "stage": "waiting",
        "reason": "",
        "priority_class": 0,
        "batches": 1,
        "slack_s": None,
        "watermark_lag_s": None,
        "last_latency_s": None,
        "backlog_rows": 0.0,
        "head_age_s": 0.0,
        "rows_per_s": 0.0,
        "row_cost_s": 0.0,
        "batch_cost_s": 0.1,
        "sweep_cost_s": 0.1,
        "selectivity": 1.0,
        "state_bytes": 0,
    }
    return QueryOverview(**{**given, **more})


def ran(name: str, ended_wall_ts: float, rows: int = 10) -> Ran:
    return Ran(f"{name}-run", name, Stage.DATA, 0, "", 0, ended_wall_ts - 0.1, ended_wall_ts, rows, 0.0)


class World:
    """An application that a test scripts, second by second."""

    def __init__(self, settings: Alarms = QUICK) -> None:
        self.now = 1000.0
        self.queries: list[QueryOverview] = []
        self.memory: MemoryOverview | None = None
        self.gates_open = False
        self.silent_since: float | None = None
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.supervised: dict[str, Supervised] = {}
        self.settings = settings
        self.book = Book()
        self.rules = all_rules()
        self.notices: list[Notice] = []

    def look(self, ended: tuple[Ended, ...] = (), ran: tuple[Ran, ...] = ()) -> list[str]:
        """The kinds that are active after one more second."""
        self.now += 1
        scheduler = SchedulerOverview(
            gates_open=self.gates_open,
            gates_opened=0,
            decisions=1,
            decision_ms_p99=0.0,
            cpu_s=0.0,
            last_decision_wall_ts=self.now if self.silent_since is None else self.silent_since,
        )
        overview = Overview(
            version="0",
            application_id="app",
            name="app",
            master="local",
            ui_url=None,
            python_pid=1,
            jvm_pid=2,
            policy="klink",
            cores=2,
            lanes=2,
            wall_ts=self.now,
            memory=self.memory,
            scheduler=scheduler,
            queries=tuple(self.queries),
            told=self.told,
        )
        seen = Seen(overview, ended, ran, self.supervised)
        findings = [finding for rule in self.rules for finding in rule.findings(seen, self.settings)]
        self.notices += self.book.look(findings, self.now)
        return [alarm.kind for alarm in self.book.told().active]

    def what(self) -> str:
        (alarm,) = self.book.told().active
        return f"{alarm.query}: {alarm.what} {alarm.what_to_do}"

    def events(self) -> list[str]:
        return [notice.event for notice in self.notices]


def death(name: str = "clicks", run: str = "run", error: str | None = "boom\nat Foo.scala") -> Ended:
    return Ended(f"{name}-{run}", name, f"{name}-id", 1000.0, error)


# ---- dead ------------------------------------------------------------------------------------------------------------


def test_a_dead_query_is_an_alarm_at_the_next_look_until_it_has_run_well_for_a_while() -> None:
    world = World()
    assert world.look((death(),)) == [Kind.DEAD]
    assert "it died: boom" in world.what()
    assert "attach(supervise=True)" in world.what()
    world.queries = [query(key="clicks-run2", batches=0)]
    for _ in range(8):
        assert world.look() == [Kind.DEAD]
    world.queries = [query(key="clicks-run2", batches=1)]
    for _ in range(5):
        assert world.look() == [Kind.DEAD]
    assert world.look() == []
    assert world.events() == ["raised", "cleared"]


def test_one_that_dies_again_and_again_is_one_alarm() -> None:
    world = World()
    for number in range(6):
        world.queries = []
        world.look((death(run=f"run{number}"),))
        world.queries = [query(key=f"clicks-run{number + 1}")]
        world.look()
        world.look()
    assert world.events() == ["raised"]
    assert "6 times by now" in world.what()


def test_an_end_that_two_tell_of_is_one_death() -> None:
    world = World()
    world.look((death(), death()))
    assert "times by now" not in world.what()


def test_a_query_that_was_stopped_is_no_alarm_and_ends_one() -> None:
    world = World()
    assert world.look((death(error=None),)) == []
    world.look((death(),))
    assert world.look((death(run="run2", error=None),)) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.WAITING, "started again in 4 s"),
        (State.NOT_RESTARTABLE, "cannot be started again from here: no checkpoint"),
        (State.RUNNING, "It will be started again."),
        (State.GIVEN_UP, "given up after 3 restarts"),
    ],
)
def test_the_alarm_says_what_supervision_does_about_it(state: State, words: str) -> None:
    world = World()
    next_try = 1005.0 if state is State.WAITING else None
    why_not = "no checkpoint" if state is State.NOT_RESTARTABLE else None
    world.supervised = {"clicks-id": Supervised("clicks-id", "clicks", state, 3, next_try, "boom", why_not)}
    kinds = world.look((death(),))
    assert kinds == [Kind.DEAD, *([Kind.GIVEN_UP] if state is State.GIVEN_UP else [])]
    dead = next(alarm for alarm in world.book.told().active if alarm.kind == Kind.DEAD)
    assert words in dead.what_to_do


def test_a_dead_query_that_nobody_wants_back_is_forgotten() -> None:
    world = World()
    world.look((death(),))
    for _ in range(98):
        assert world.look() == [Kind.DEAD]
    assert world.look() == []


# ---- progress --------------------------------------------------------------------------------------------------------


def test_a_source_that_had_rows_and_gives_none_is_an_alarm_until_it_does_again() -> None:
    world = World()
    world.queries = [query(reads=("topic:clicks@kafka",))]
    world.look(ran=(ran("clicks", 1001.0),))
    for _ in range(10):
        assert world.look() == []
    assert world.look() == [Kind.STOPPED]
    assert "topic:clicks@kafka" in world.what()
    assert world.look(ran=(ran("clicks", 1013.0),)) == []


def test_a_source_that_never_gave_rows_or_pauses_as_usual_is_no_alarm() -> None:
    world = World()
    world.queries = [query(), query("quiet")]
    for second in range(200):
        batch = (ran("clicks", world.now + 1),) if second % 20 == 0 and second < 120 else ()
        if second == 20:
            world.book, world.notices = Book(), []  # the first pause of its kind was not usual yet
        kinds = world.look(ran=batch)
        if second > 20:
            assert kinds == ([] if second <= 180 else [Kind.STOPPED])


def test_a_paused_query_stops_for_a_reason() -> None:
    world = World()
    world.queries = [query(stage="paused", watermark_lag_s=1.0)]
    world.look(ran=(ran("clicks", 1001.0),))
    for second in range(100):
        world.queries = [query(stage="paused", watermark_lag_s=2.0 + second)]
        assert world.look() == []


def test_a_batch_that_does_not_end_is_told_as_that() -> None:
    world = World()
    world.queries = [query(stage="data batch")]
    world.look(ran=(ran("clicks", 1001.0),))
    for _ in range(11):
        world.look()
    assert "and one is running" in world.what()


def test_a_watermark_that_stands_while_rows_come_names_the_idle_input() -> None:
    world = World()
    for second in range(13):
        lags = (1.0, 5.0 + second)
        world.queries = [query(watermark_lag_s=5.0 + second, input_lags_s=lags, reads=("topic:a", "topic:b"))]
        kinds = world.look(ran=(ran("clicks", world.now + 1),))
    assert kinds == [Kind.STALLED]
    assert "topic:b is idle, 17 s behind" in world.what()
    world.queries = [query(watermark_lag_s=2.0)]
    assert world.look(ran=(ran("clicks", world.now + 1),)) == []


def test_a_watermark_that_stands_because_no_rows_come_is_not_told_twice() -> None:
    world = World()
    world.look(ran=())
    for second in range(30):
        world.queries = [query(watermark_lag_s=5.0 + second)]
        batch = (ran("clicks", world.now + 1),) if second == 0 else ()
        kinds = world.look(ran=batch)
    assert kinds == [Kind.STOPPED]


def test_the_input_that_holds_the_watermark_is_the_one_without_rows_or_furthest_behind() -> None:
    assert holder(query(input_lags_s=(3.0,))) == "no row had a newer event time"
    assert holder(query(input_lags_s=(3.0, None))) == "input 2 of 2 has had no rows"
    assert holder(query(input_lags_s=(9.0, 3.0), reads=("a", "b"))) == "a is idle, 9 s behind"


def test_a_lag_that_grows_from_step_to_step_is_falling_behind_until_it_no_longer_grows() -> None:
    world = World()
    kinds: list[str] = []
    for second in range(20):
        # The watermark moves by half a second each second: the lag grows, and progress is made.
        world.queries = [query(watermark_lag_s=2.0 + second / 2)]
        kinds = world.look(ran=(ran("clicks", world.now + 1),))
    assert kinds == [Kind.BEHIND]
    assert "it falls behind" in world.what()
    for _ in range(20):
        world.queries = [query(watermark_lag_s=12.0)]
        kinds = world.look(ran=(ran("clicks", world.now + 1),))
    assert kinds == []
    assert world.events() == ["raised", "cleared"]


@settings(deadline=None)
@given(slide=st.integers(2, 60))
def test_a_lag_that_only_swings_with_the_windows_is_not_falling_behind(slide: int) -> None:
    world = World()
    for second in range(6 * slide):
        world.queries = [query(watermark_lag_s=2.0 + second % slide)]
        assert Kind.BEHIND not in world.look(ran=(ran("clicks", world.now + 1),))


def test_a_backlog_that_grows_counts_where_there_is_no_watermark() -> None:
    world = World()
    kinds: list[str] = []
    for second in range(20):
        world.queries = [query(rows_per_s=10.0, backlog_rows=10.0 * second, batches=second)]
        kinds = world.look(ran=(ran("clicks", world.now + 1),))
    assert kinds == [Kind.BEHIND]


# ---- rows, memory, the scheduler -------------------------------------------------------------------------------------


def test_rows_that_are_dropped_are_one_alarm_until_none_has_been_for_a_while() -> None:
    world = World()
    for dropped in (0, 3, 7):
        world.queries = [query(dropped_rows=dropped)]
        world.look()
    assert "7 rows came too late and were dropped" in world.what()
    for _ in range(5):
        world.look()
    assert world.book.told().active == ()
    assert world.events() == ["raised", "cleared"]
    world.queries = [query(dropped_rows=8)]
    world.look()
    assert "1 rows came too late" in world.what()


def test_dead_letters_of_late_queries_count_as_dropped() -> None:
    world = World()
    world.told = {"late": [{"name": "revenue", "dead_rows": 4}, {"name": "broken", "dead_rows": None}]}
    assert world.look() == [Kind.DROPPED]
    assert "4 rows came too late and went to the dead letters" in world.what()


def memory(live: float, *, rules: bool = False) -> MemoryOverview:
    return MemoryOverview(used_bytes=live, live_bytes=live, max_bytes=1e9, bound_bytes=7.5e8, rules=rules, cycles=0)


def test_memory_is_an_alarm_from_its_bound_on_and_until_well_below() -> None:
    world = World()
    world.memory = memory(7e8)
    assert world.look() == []
    world.memory = memory(7.6e8)
    assert world.look() == [Kind.MEMORY]
    world.memory = memory(7.2e8)
    for _ in range(20):
        assert world.look() == [Kind.MEMORY]
    world.memory = memory(6e8)
    for _ in range(5):
        assert world.look() == [Kind.MEMORY]
    assert world.look() == []


def test_a_scheduler_that_is_silent_or_not_in_charge_is_an_alarm() -> None:
    world = World()
    world.gates_open = True
    for _ in range(3):
        assert world.look() == []
    assert world.look() == [Kind.SCHEDULER]
    world.gates_open = False
    for _ in range(3):
        assert world.look() == [Kind.SCHEDULER]
    assert world.look() == []
    world.silent_since = world.now
    for _ in range(3):
        assert world.look() == []
    assert world.look() == [Kind.SCHEDULER]
    assert "has not decided for 4 s" in world.what()


def test_alarms_about_a_query_that_is_gone_are_taken_back() -> None:
    world = World()
    world.queries = [query(dropped_rows=3)]
    world.look()
    world.look()
    world.queries = []
    assert world.look() == []


# ---- the book --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(verdicts=st.lists(st.sampled_from(["wrong", "right", "neither"]), max_size=60), hold=st.integers(0, 5))
def test_raised_and_cleared_alternate_and_a_clear_needs_its_time(verdicts: list[Any], hold: int) -> None:
    book, events = Book(), []
    for now, verdict in enumerate(verdicts):
        finding = Finding(kind=Kind.MEMORY, whose="", verdict=verdict, hold_s=hold, clear_s=3)
        for notice in book.look([finding], float(now)):
            events.append((notice.event, now))
            if notice.event == "raised":
                assert verdicts[now - hold : now + 1] == ["wrong"] * (hold + 1)
            else:
                assert verdicts[now - 3 : now + 1] == ["right"] * 4
    assert [event for event, _ in events] == ["raised", "cleared"] * (len(events) // 2) + ["raised"] * (len(events) % 2)


# ---- channels --------------------------------------------------------------------------------------------------------

NOTICE = Notice(
    event="raised",
    alarm=Alarm(kind="dead query", query="clicks", key="r", since_wall_ts=1.0, what="it died.", what_to_do="Start it."),
    application="shop",
)


class Hook:
    """A loopback web server that answers as told and keeps what it got."""

    def __init__(self, *answers: int) -> None:
        bodies: list[dict[str, Any]] = []
        pending = list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(pending.pop(0) if pending else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.bodies = bodies
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://user:secret@127.0.0.1:{self._server.server_port}/hook?token=secret"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_webhook_gets_the_alarm_as_json_and_is_asked_again_when_it_is_busy() -> None:
    with Hook(503) as hook:
        outbox = Outbox("webhook", Webhook(hook.url, first_pause_s=0.01))
        outbox.put(NOTICE)
        eventually(lambda: outbox.delivered == 1)
        outbox.close()
    assert len(hook.bodies) == 2
    body = hook.bodies[1]
    assert (body["event"], body["alarm"]["query"], body["application"]) == ("raised", "clicks", "shop")
    assert body["text"] == "dead query: clicks: it died. Start it."


@pytest.mark.parametrize(("answers", "asked"), [((500,) * 9, 4), ((404,), 1), ((302,), 1)])
def test_a_webhook_that_refuses_is_told_once_without_its_secrets(
    answers: tuple[int, ...], asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="slackwater")
    with Hook(*answers) as hook:
        outbox = Outbox("webhook", Webhook(hook.url, first_pause_s=0.01))
        outbox.put(NOTICE)
        eventually(lambda: outbox.undelivered == 1)
        outbox.close()
    assert len(hook.bodies) == asked
    ours = [record.getMessage() for record in caplog.records if record.name == "slackwater"]
    assert len(ours) == 1
    assert "http://127.0.0.1:" in ours[0]
    assert "secret" not in caplog.text


def test_the_address_of_a_webhook_is_in_no_log_however_much_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Hook() as hook:
        httpx2.post(hook.url.replace("secret", "open"), json={"somebody": "else"})
        assert "token=open" in caplog.text, "what others ask is logged as before"
        outbox = Outbox("webhook", Webhook(hook.url))
        outbox.put(NOTICE)
        eventually(lambda: outbox.delivered == 1)
        outbox.close()
        httpx2.post(hook.url.replace("secret", "after"), json={"somebody": "else"})
    assert "token=after" in caplog.text
    assert "secret" not in caplog.text


def test_nobody_at_the_address_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with Hook() as hook:
        url = hook.url
    outbox = Outbox("webhook", Webhook(url, first_pause_s=0.01))
    outbox.put(NOTICE)
    eventually(lambda: outbox.undelivered == 1)
    outbox.close()
    assert "secret" not in caplog.text


def test_a_function_that_hangs_holds_nobody_and_what_waits_is_bounded() -> None:
    go = threading.Event()

    def hang(_: Notice, stop: threading.Event) -> bool:
        return go.wait(30)

    outbox = Outbox("tell", hang)
    for _ in range(1000):
        outbox.put(NOTICE)
    assert outbox.undelivered >= 700
    go.set()
    outbox.close()
    assert outbox.delivered >= 1


def test_the_watch_tells_by_log_and_function_and_survives_a_look_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="slackwater")
    world, looks = World(), [0]
    got: list[Notice] = []

    def look() -> Seen | None:
        looks[0] += 1
        if looks[0] == 1:
            raise RuntimeError("not yet")
        if looks[0] == 2:
            return None
        world.look()  # only for its time
        overview = Overview(
            version="0",
            application_id="app-1",
            name="shop",
            master="local",
            ui_url=None,
            python_pid=1,
            jvm_pid=2,
            policy="klink",
            cores=1,
            lanes=1,
            wall_ts=world.now,
        )
        return Seen(overview, (death(),) if looks[0] == 3 else ())

    watch = AlarmWatch(Alarms(tell=got.append), look, every_s=0.01)
    try:
        eventually(lambda: got)
        told = watch.told()
        assert told.watched
        assert told.raised == {"dead query": 1}
        assert [alarm.query for alarm in told.active] == ["clicks"]
        watch.change(Alarms(log=False, forget_s=1))
        eventually(lambda: watch.told().recent)
    finally:
        watch.close()
    assert (got[0].application, got[0].application_id) == ("shop", "app-1")
    assert any(record.getMessage().startswith("dead query: clicks: it died: boom") for record in caplog.records)


@pytest.mark.parametrize(
    "wrong",
    [{"clear_s": 0}, {"behind_steps": 1}, {"dropped_rows": 0}, {"webhook": "ftp://x/secret"}, {"tell": 3}],
)
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as refused:
        Alarms(**wrong)
    assert "secret" not in str(refused.value)
