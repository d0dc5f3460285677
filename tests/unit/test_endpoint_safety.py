"""Nothing that comes over a socket can hold the endpoint, fill its log, learn its token or get past its limits."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Window
from slackwater.endpoint.limits import Bucket, Limits, Rate
from slackwater.endpoint.server import Endpoint, Refused
from slackwater.policies.round_robin import RoundRobin
from slackwater.sim.live import live_application, platform
from slackwater.testing import ScriptedDriver, SimulatedQuery, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_ANSWER_S = 60.0  # for a busy machine; what is asserted never depends on it

Serve = Any


class Held:
    """A change that waits for somebody, as one that waits for the scheduler does."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, _: bytes) -> Any:
        self.begun.set()
        assert self.go.wait(_ANSWER_S)
        return {"done": True}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Endpoint]]:
    served: list[Endpoint] = []

    async def page(_: Any) -> Any:
        from starlette.responses import HTMLResponse  # noqa: PLC0415

        return HTMLResponse("<h1>page</h1>", headers={"content-security-policy": "default-src 'self'"})

    async def endless(_: Any) -> Any:
        from starlette.responses import StreamingResponse  # noqa: PLC0415

        async def chunks() -> Any:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)

        return StreamingResponse(chunks())

    def start(limits: Limits | None = None, changes: dict[str, Any] | None = None, **reads: Any) -> Endpoint:
        endpoint = Endpoint(
            application_id=f"app-{len(served)}",
            name="alerts",
            reads={"/api/status": lambda _: {"queries": 2}, **reads},
            changes={"/api/change": lambda _: {"done": True}, **(changes or {})},
            own={"/": page, "/endless": endless},
            folder=tmp_path / "run",
            limits=limits,
        )
        served.append(endpoint)
        return endpoint

    yield start
    for endpoint in served:
        endpoint.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def connected(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=_ANSWER_S)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection."""
    got = b""
    try:
        while chunk := connection.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    return got


# ---- the bucket -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 100), max_size=200),
    st.floats(0.1, 100),
    st.integers(1, 50),
)
def test_a_bucket_never_lets_more_through_than_its_burst_and_its_rate(gaps_s, per_s, burst):
    now = [0.0]
    bucket = Bucket(Rate(per_s, burst), lambda: now[0])
    taken_at = []
    for gap_s in gaps_s:
        now[0] += gap_s
        if bucket.take() == 0:
            taken_at.append(now[0])
    for first in range(len(taken_at)):
        for last in range(first, len(taken_at)):
            assert last - first + 1 <= burst + per_s * (taken_at[last] - taken_at[first]) + 1e-6


@settings(deadline=None)
@given(st.floats(0.1, 100), st.integers(1, 20))
def test_whoever_waits_as_long_as_told_is_let_through(per_s, burst):
    now = [0.0]
    bucket = Bucket(Rate(per_s, burst), lambda: now[0])
    while (wait_s := bucket.take()) == 0:
        pass
    now[0] += wait_s + 1e-6
    assert bucket.take() == 0


# ---- limits over a real socket --------------------------------------------------------------------------------------


def test_too_many_reads_are_refused_with_when_to_come_again_and_the_page_is_still_served(serve):
    endpoint = serve(Limits(reads=Rate(0.001, 3)))
    with httpx2.Client(timeout=_ANSWER_S) as client:
        answers = [client.get(endpoint.url + "/api/status") for _ in range(5)]
        page = client.get(endpoint.url + "/")
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert "too many" in answers[-1].json()["error"]
    assert page.status_code == 200


def test_too_many_pages_are_refused_and_reads_are_still_served(serve):
    endpoint = serve(Limits(pages=Rate(0.001, 2)))
    with httpx2.Client(timeout=_ANSWER_S) as client:
        pages = [client.get(endpoint.url + path).status_code for path in ("/", "/", "/", "/nowhere")]
        read = client.get(endpoint.url + "/api/status").status_code
    assert pages == [200, 200, 429, 429]
    assert read == 200


def test_wrong_tokens_are_limited_and_never_lock_out_the_right_one(serve):
    endpoint = serve(Limits(wrong_tokens=Rate(0.001, 2)))
    url = endpoint.url + "/api/change"
    with httpx2.Client(timeout=_ANSWER_S) as client:
        wrong = [client.post(url, headers=bearer(f"guess-{n}")).status_code for n in range(4)]
        right = client.post(url, headers=bearer(endpoint.token)).status_code
    assert wrong == [401, 401, 429, 429]
    assert right == 200


def test_too_many_changes_are_refused_and_those_of_another_route_are_not(serve):
    endpoint = serve(Limits(changes=Rate(0.001, 2)), changes={"/api/other": lambda _: {"done": True}})
    with httpx2.Client(timeout=_ANSWER_S, headers=bearer(endpoint.token)) as client:
        changes = [client.post(endpoint.url + "/api/change").status_code for _ in range(3)]
        other = client.post(endpoint.url + "/api/other").status_code
    assert changes == [200, 200, 429]
    assert other == 200


def test_requests_of_other_sites_use_nothing_up(serve):
    endpoint = serve(Limits(reads=Rate(0.001, 1)))
    with httpx2.Client(timeout=_ANSWER_S) as client:
        for _ in range(3):
            assert client.get(endpoint.url + "/api/status", headers={"host": "evil.example"}).status_code == 403
        assert client.get(endpoint.url + "/api/status").status_code == 200


def test_a_change_that_waits_for_the_scheduler_holds_up_no_reader(serve):
    held = Held()
    endpoint = serve(changes={"/api/held": held})
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(httpx2.post, endpoint.url + "/api/held", headers=bearer(endpoint.token), timeout=_ANSWER_S)
        assert held.begun.wait(_ANSWER_S)
        assert httpx2.get(endpoint.url + "/api/status", timeout=_ANSWER_S).status_code == 200
        assert not waits.done()
        held.go.set()
        assert waits.result(_ANSWER_S).json() == {"done": True}


def test_a_route_can_say_when_to_come_again(serve):
    def silent(_: bytes) -> Any:
        raise Refused("the scheduler does not answer", 503, retry_after_s=2.5)

    endpoint = serve(changes={"/api/silent": silent})
    answer = httpx2.post(endpoint.url + "/api/silent", headers=bearer(endpoint.token), timeout=_ANSWER_S)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")


# ---- slow and odd senders -------------------------------------------------------------------------------------------


def test_a_connection_that_says_nothing_is_ended(serve):
    endpoint = serve(Limits(request_s=0.2))
    with closing(connected(endpoint)) as silent:
        assert all_of(silent) == b""
    assert httpx2.get(endpoint.url + "/api/status", timeout=_ANSWER_S).status_code == 200


def test_a_head_that_drips_in_is_ended_after_an_answer_as_well_as_before(serve):
    endpoint = serve(Limits(request_s=1.0))
    with closing(connected(endpoint)) as slow:
        slow.sendall(f"GET /api/status HTTP/1.1\r\nhost: 127.0.0.1:{endpoint.port}\r\n\r\n".encode())
        assert b"200 OK" in slow.recv(65536)
        ended = threading.Event()

        def drip() -> None:
            slow.sendall(b"GET /api/status HTTP/1.1\r\n")
            while not ended.wait(0.02):
                try:
                    slow.sendall(b"x: y\r\n")
                except OSError:
                    return

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        all_of(slow)  # returns because the server ends it, while the sender goes on
        ended.set()
        dripping.join(_ANSWER_S)


def test_a_body_that_drips_in_is_refused_and_the_connection_ended(serve):
    endpoint = serve(Limits(body_s=0.2, request_s=1.0))
    with closing(connected(endpoint)) as slow:
        slow.sendall(
            f"POST /api/change HTTP/1.1\r\nhost: 127.0.0.1:{endpoint.port}\r\n"
            f"authorization: Bearer {endpoint.token}\r\ncontent-length: 1000\r\n\r\nx".encode()
        )
        assert b"HTTP/1.1 408" in all_of(slow)


def test_a_reader_that_takes_nothing_is_cut_off(serve):
    endpoint = serve(Limits(taking_s=0.2))
    with closing(connected(endpoint)) as reader:
        reader.sendall(f"GET /endless HTTP/1.1\r\nhost: 127.0.0.1:{endpoint.port}\r\n\r\n".encode())
        deadline = time.monotonic() + _ANSWER_S
        while connections(endpoint):
            assert time.monotonic() < deadline, "the endless answer is still being sent to nobody"
            threading.Event().wait(0.02)
    assert httpx2.get(endpoint.url + "/api/status", timeout=_ANSWER_S).status_code == 200


def connections(endpoint: Endpoint) -> int:
    return len(endpoint._server.server_state.connections)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 20_000 + b"\r\n\r\n",
        b"\x00\xff\x00\xff\r\n\r\n",
        b"POST /api/change HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["long-path", "long-header", "no-http", "negative-length", "no-host"],
)
def test_odd_requests_are_refused_and_the_connection_ended(serve, request_):
    endpoint = serve(Limits(request_s=2.0))
    with closing(connected(endpoint)) as odd:
        odd.sendall(request_)
        got = all_of(odd)
    assert b" 200 " not in got
    assert b" 400 " in got or b" 403 " in got


def test_idle_connections_make_room_for_a_new_one(serve):
    endpoint = serve(Limits(connections=4))
    idle = [connected(endpoint) for _ in range(12)]
    try:
        assert httpx2.get(endpoint.url + "/api/status", timeout=_ANSWER_S).status_code == 200
        assert connections(endpoint) <= 5
    finally:
        for connection in idle:
            connection.close()


def test_where_all_connections_work_a_new_one_is_refused(serve):
    held = [Held(), Held()]
    endpoint = serve(Limits(connections=2), changes={"/api/a": held[0], "/api/b": held[1]})
    with ThreadPoolExecutor(2) as pool:
        waits = [
            pool.submit(httpx2.post, endpoint.url + path, headers=bearer(endpoint.token), timeout=_ANSWER_S)
            for path in ("/api/a", "/api/b")
        ]
        assert all(change.begun.wait(_ANSWER_S) for change in held)
        with closing(connected(endpoint)) as one_more:
            assert all_of(one_more).startswith(b"HTTP/1.1 503")
        for change in held:
            change.go.set()
        assert [waiting.result(_ANSWER_S).status_code for waiting in waits] == [200, 200]


# ---- what leaves ----------------------------------------------------------------------------------------------------


def test_every_answer_carries_the_security_headers_and_a_page_may_set_its_own_policy(serve):
    endpoint = serve(Limits(reads=Rate(0.001, 2)))
    with httpx2.Client(timeout=_ANSWER_S) as client:
        answers = {
            "read": client.get(endpoint.url + "/api/status"),
            "missing": client.get(endpoint.url + "/nowhere"),
            "method": client.delete(endpoint.url + "/api/status"),
            "forged": client.get(endpoint.url + "/api/status", headers={"host": "evil.example"}),
            "token": client.post(endpoint.url + "/api/change"),
            "body": client.post(endpoint.url + "/api/change", content=b"x" * 300_000, headers=bearer(endpoint.token)),
            "last": client.get(endpoint.url + "/api/status"),
            "limited": client.get(endpoint.url + "/api/status"),
        }
        page = client.get(endpoint.url + "/")
    assert [answer.status_code for answer in answers.values()] == [200, 404, 405, 403, 401, 413, 200, 429]
    for answer in answers.values():
        assert SECURITY_HEADERS.items() <= dict(answer.headers).items()
        assert "server" not in answer.headers
    assert page.headers["content-security-policy"] == "default-src 'self'"
    assert page.headers.get_list("content-security-policy") == ["default-src 'self'"]
    assert page.headers["x-frame-options"] == "DENY"


def test_the_token_is_in_nothing_that_can_be_read(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(folder))
    with live_application(platform(2)) as handle, httpx2.Client(timeout=_ANSWER_S) as client:
        assert handle.url is not None
        assert handle.token_file is not None
        token = handle.token_file.read_text("utf-8").strip()
        paths = ("/", "/api/status", "/api/alarms", "/api/policies", "/metrics", "/api/query?key=orders.per-minute")
        for path in paths:
            answer = client.get(handle.url + path)
            assert answer.status_code == 200
            assert token not in answer.text + str(answer.headers)
        with client.stream("GET", handle.url + "/api/events") as events:
            assert token not in next(line for line in events.iter_lines() if line.startswith("data: "))
        assert [path.name for path in folder.iterdir() if token in path.read_text("utf-8")] == [handle.token_file.name]
        # Anybody on the host can read the command lines of all processes; a process's own environment is its user's.
        assert token.encode() not in Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes()


def test_the_token_is_never_logged(serve, caplog):
    def broken(_: Any) -> Any:
        raise RuntimeError("trouble")

    with caplog.at_level(logging.DEBUG):
        endpoint = serve(changes={"/api/broken": broken})
        with httpx2.Client(timeout=_ANSWER_S) as client:
            for path in ("/api/change", "/api/broken", "/nowhere"):
                client.post(endpoint.url + path, headers=bearer(endpoint.token))
                client.post(endpoint.url + path, headers=bearer(endpoint.token + "x"))
                client.get(f"{endpoint.url}/api/status?token={endpoint.token}")
        with closing(connected(endpoint)) as odd:
            odd.sendall(f"GET / HTTP/1.1\r\nauthorization: Bearer {endpoint.token}\r\n\x00\r\n\r\n".encode())
            all_of(odd)
        endpoint.close()
    told = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("refused a change" in record.getMessage() for record in told)
    assert [record for record in told if endpoint.token in record.getMessage() + str(record.exc_text)] == []
    assert sum("refused a change" in record.getMessage() for record in told) == 1, "once a minute is enough"


def test_a_hundred_clients_that_hammer_are_answered_or_refused_while_the_engine_goes_on(serve):
    engine = Engine(RoundRobin(), RoundRobin(), EngineSettings(lanes=2))
    queries = [SimulatedQuery(f"q{n}", windows=(Window(10, 10),), delay_s=1.0) for n in range(40)]
    driver = ScriptedDriver(queries)

    def told(_: Any) -> Any:
        return [{"name": view.name, "stage": str(view.stage), "rows": view.backlog_rows} for view in engine.views]

    endpoint = serve(**{"/api/queries": told})
    clients, requests_each = 100, 3
    start = threading.Barrier(clients + 1)

    def hammer(_: int) -> list[int]:
        statuses = []
        start.wait(_ANSWER_S)
        for _ in range(requests_each):
            try:
                statuses.append(httpx2.get(endpoint.url + "/api/queries", timeout=_ANSWER_S).status_code)
            except httpx2.TransportError:  # turned away before its request was read
                statuses.append(503)
        return statuses

    with ThreadPoolExecutor(clients) as pool:
        hammering = [pool.submit(hammer, number) for number in range(clients)]
        start.wait(_ANSWER_S)
        run(engine, driver, seconds=60)
        statuses = [status for client in hammering for status in client.result(_ANSWER_S)]
    assert len(statuses) == clients * requests_each
    assert set(statuses) <= {200, 429, 503}
    assert statuses.count(200) >= 1
    assert all(state.batches >= 1 for state in engine.views)
    assert httpx2.get(endpoint.url + "/", timeout=_ANSWER_S).status_code == 200
