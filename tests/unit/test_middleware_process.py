"""`slackwater middleware` as a process: on real processes, through real endpoints, ended in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from slackwater.endpoint.overview import Overview, QueryOverview
from slackwater.endpoint.server import Endpoint
from slackwater.errors import UnreachableError
from slackwater.middleware.drivers.attached import AttachedDriver
from slackwater.middleware.drivers.spark_rest import SparkRestDriver
from slackwater.middleware.model import Application
from slackwater.middleware.run import Reader
from slackwater.middleware.sockets import listener
from slackwater.translators.kernel import Linux
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROC = Proc()
THREADS = """
import sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Makes processes with a few threads, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def make() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def query(name: str, backlog_rows: float, priority_class: int = 0) -> QueryOverview:
    return QueryOverview(
        key=f"run-{name}", name=name, stage="waiting", reason="", priority_class=priority_class, batches=3, slack_s=1.0,
        watermark_lag_s=1.0, last_latency_s=None, backlog_rows=backlog_rows, head_age_s=2.0, rows_per_s=10.0,
        row_cost_s=1e-5, batch_cost_s=0.2, sweep_cost_s=0.1, selectivity=0.5, state_bytes=1,
    )  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[str, int, QueryOverview], Endpoint]]:
    """Endpoints of applications that do not exist, whose JVM is a process of ours."""
    open_ones: list[Endpoint] = []

    def serve(name: str, jvm_pid: int, *queries: QueryOverview) -> Endpoint:
        told = Overview(
            version="1", application_id=f"app-{name}", name=name, master="local[2]", ui_url=None, python_pid=jvm_pid,
            jvm_pid=jvm_pid, policy="klink", cores=2, lanes=2, wall_ts=0.0, queries=queries,
        )  # fmt: skip
        endpoint = Endpoint(
            application_id=f"app-{name}", name=name, reads={"/api/status": lambda _: told}, folder=tmp_path / "run"
        )
        open_ones.append(endpoint)
        return endpoint

    yield serve
    for endpoint in open_ones:
        endpoint.close()


def nices(pid: int) -> set[int]:
    process = PROC.process(pid)
    return {thread.nice for thread in PROC.threads(process)} if process is not None else set()


def eventually(condition: Callable[[], object], timeout_s: float = 40.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.05)


class Started:
    def __init__(self, config: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slackwater", "middleware", str(config), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "middleware.toml"
    path.write_text(
        f"""
period_s = 0.2
journal = "{tmp_path}/journal"
[[driver]]
kind = "slackwater"
folder = "{tmp_path}/run"
[[class]]
application = "high"
priority_class = -1
[[policy]]
policy = "multi-class"
mechanism = "nice"
application = "[hl]*"
"""
    )
    return path


@pytest.fixture
def needs_nice() -> None:
    if not Linux().may_lower_nice(0):
        pytest.skip("needs the right to lower nice again (CAP_SYS_NICE or RLIMIT_NICE)")


@pytest.mark.usefixtures("needs_nice")
def test_every_thread_of_the_less_urgent_is_niced_and_put_back_at_the_end_and_after_a_kill(
    config: Path, child: Callable[[], subprocess.Popen[str]], served: Callable[..., Endpoint]
) -> None:
    high, low, other = child(), child(), child()
    for name, process in (("high", high), ("low", low), ("other", other)):
        served(name, process.pid, query("q", 5.0))
    before = nices(low.pid)
    first = Started(config)
    eventually(lambda: nices(low.pid) == {19})
    assert nices(high.pid) == before
    assert nices(other.pid) == before, "what the configuration does not name is not touched"
    code, out = first.end(signal.SIGTERM)
    assert code == 0, out
    assert "Everything is as it was before." in out
    assert nices(low.pid) == before
    killed = Started(config, "--json")
    eventually(lambda: nices(low.pid) == {19})
    killed.end(signal.SIGKILL)
    assert nices(low.pid) == {19}
    checked = subprocess.run(
        [sys.executable, "-m", "slackwater", "middleware", str(config), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert nices(low.pid) == before, "the next start puts back what a killed one left"


@pytest.mark.usefixtures("needs_nice")
def test_an_application_that_goes_silent_gets_back_what_it_had(
    tmp_path: Path, config: Path, child: Callable[[], subprocess.Popen[str]], served: Callable[..., Endpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from slackwater.middleware import run  # noqa: PLC0415
    from slackwater.middleware.assembly import assemble  # noqa: PLC0415
    from slackwater.middleware.config import load  # noqa: PLC0415
    from slackwater.translators.restore import start  # noqa: PLC0415

    monkeypatch.setattr(run, "SILENT_FOR_S", 0.5)
    high, low = child(), child()
    served("high", high.pid, query("q", 5.0))
    endpoint = served("low", low.pid, query("q", 5.0))
    before = nices(low.pid)
    journal = start(tmp_path / "journal")
    stop = threading.Event()
    with assemble(load(config), tmp_path, journal) as running:
        thread = threading.Thread(target=running.run, args=(stop,))
        thread.start()
        eventually(lambda: nices(low.pid) == {19})
        endpoint.close()
        eventually(lambda: nices(low.pid) == before)
        stop.set()
        thread.join()
    journal.close()


def test_a_dry_run_tells_what_would_be_set_and_touches_nothing(
    config: Path, child: Callable[[], subprocess.Popen[str]], served: Callable[..., Endpoint]
) -> None:
    high, low = child(), child()
    served("high", high.pid, query("q", 5.0))
    served("low", low.pid, query("q", 5.0))
    before = nices(low.pid)
    dry = subprocess.run(
        [sys.executable, "-m", "slackwater", "middleware", str(config), "--dry-run", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(dry.stdout)
    assert told["nice"] == {"spark/app-high/driver": 0, "spark/app-low/driver": 19}
    (unit,) = next(one for one in told["applications"] if one["name"] == "low")["units"]
    assert low.pid in unit["pids"]
    assert nices(low.pid) == before


def test_the_attached_driver_passes_over_endpoints_that_do_not_answer(
    tmp_path: Path, child: Callable[[], subprocess.Popen[str]], served: Callable[..., Endpoint]
) -> None:
    process = child()
    served("a", process.pid, query("q", 5.0))
    driver = AttachedDriver(urls=["http://127.0.0.1:1"], folder=str(tmp_path / "run"))
    (application,) = driver.read(0.0)
    assert application.name == "a"
    (operator,) = application.operators
    assert operator.values["queue-rows"] == 5.0
    assert operator.runs_on == ("spark/app-a/driver",)
    assert operator.values.keys() == AttachedDriver.offers
    driver.close()
    with pytest.raises(UnreachableError, match="does not answer"):
        AttachedDriver(urls=["http://127.0.0.1:1"]).read(0.0)


class Forgetful:
    """A driver that tells of two applications once, then of one, then fails."""

    name = "forgetful"
    offers: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.reads = 0

    def read(self, wall_ts: float) -> list[Application]:
        self.reads += 1
        if self.reads > 2:
            raise RuntimeError("no more")
        names = ("a", "b") if self.reads == 1 else ("a",)
        return [Application(name, name, "spark", (), ()) for name in names]

    def close(self) -> None: ...


def test_an_application_that_does_not_answer_keeps_what_it_had_for_a_while() -> None:
    driver = Forgetful()
    reader = Reader(driver, 0.01)
    reader.start()
    eventually(lambda: driver.reads > 5)
    reader.close()
    now = time.time()
    assert {application.name for application in reader.latest(now)} == {"a", "b"}
    assert reader.latest(now + 60) == ()


class FakeSpark(BaseHTTPRequestHandler):
    """Spark's REST interface, as recorded from Spark 4.3: executions in a list that forgets its oldest."""

    executions: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path == "/api/v1/applications":
            answer: Any = [{"id": "local-1", "name": "plain", "attempts": []}]
        elif parts.path == "/api/v1/applications/local-1/sql":
            first = int(asked["offset"])
            answer = self.executions[first : first + int(asked["length"])]
        elif parts.path == "/metrics/json/":
            answer = {"gauges": {"local-1.driver.spark.streaming.win.states-usedBytes": {"value": 77}}}
        else:
            self.send_error(404)
            return
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


def execution(number: int, batch: int, rows: int, second: float, status: str = "COMPLETED", run: str = "r1") -> Any:
    return {
        "id": number,
        "status": status,
        "description": f"win\nid = i\nrunId = {run}\nbatch = {batch}",
        "submissionTime": time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(second)) + f"{second % 60:06.3f}GMT",
        "duration": 500,
        "nodes": [
            {"nodeName": "MicroBatchScan", "metrics": [{"name": "number of output rows", "value": f"{rows:,}"}]},
            {"nodeName": "WriteToDataSourceV2", "metrics": [{"name": "number of output rows", "value": "10"}]},
        ],
    }


@pytest.fixture
def fake_spark() -> Iterator[str]:
    FakeSpark.executions = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeSpark)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_rates_and_costs_of_plain_spark_follow_from_its_sql_page(fake_spark: str) -> None:
    FakeSpark.executions = [execution(number, number, 2000, 1000.0 + 2 * number) for number in range(5)]
    driver = SparkRestDriver([fake_spark], every_s=0.0)
    (application,) = driver.read(1009.0)
    (operator,) = application.operators
    assert operator.name == "win"
    assert operator.values == {
        "head-age-s": 1.0, "rows-per-s": 1000.0, "rows-out-per-s": 5.0, "busy-share": 0.25, "state-bytes": 77.0,
    }  # fmt: skip
    assert [unit.role for unit in application.units] == ["driver"], "found by who listens at the port"
    driver.close()


def test_executions_are_read_on_while_spark_forgets_old_ones(fake_spark: str) -> None:
    driver = SparkRestDriver([fake_spark], every_s=0.0)
    everything = [execution(number, number, 100 + number, 1000.0 + number) for number in range(400)]
    for shown in (everything[:150], everything[100:260], everything[350:]):
        FakeSpark.executions = shown
        driver.read(1400.0)
        history = driver._pages[fake_spark]._known["local-1"]
        assert max(map(int, history.queries["r1"].batches)) == shown[-1]["id"]
    driver.close()


def test_a_batch_that_runs_is_looked_at_again_until_it_has_ended(fake_spark: str) -> None:
    driver = SparkRestDriver([fake_spark], every_s=0.0)
    FakeSpark.executions = [execution(0, 0, 10, 1000.0), execution(1, 1, 0, 1002.0, "RUNNING")]
    driver.read(1003.0)
    FakeSpark.executions = [execution(0, 0, 10, 1000.0), execution(1, 1, 400, 1002.0), execution(2, 2, 400, 1004.0)]
    (application,) = driver.read(1004.0)
    assert application.operators[0].values["rows-per-s"] == 200.0
    driver.close()


def test_a_query_that_is_silent_for_long_has_ended(fake_spark: str) -> None:
    driver = SparkRestDriver([fake_spark], every_s=0.0)
    FakeSpark.executions = [execution(number, number, 10, 1000.0 + number) for number in range(5)]
    assert len(driver.read(1010.0)[0].operators) == 1
    assert driver.read(1100.0)[0].operators == ()
    driver.close()


def test_the_listener_at_a_port_is_found(fake_spark: str) -> None:
    found = listener(PROC, int(fake_spark.rpartition(":")[2]))
    assert found is not None
    assert found.pid == os.getpid()
    assert listener(PROC, 1) is None


def test_a_driver_that_is_not_known_or_an_option_it_lacks_is_told(config: Path, tmp_path: Path) -> None:
    from slackwater.errors import ConfigurationError  # noqa: PLC0415
    from slackwater.middleware.assembly import assemble  # noqa: PLC0415
    from slackwater.middleware.config import load  # noqa: PLC0415

    good = config.read_text()
    for change, message in (
        (('kind = "slackwater"', 'kind = "slackwatr"'), "Did you mean 'slackwater'"),
        (("folder =", "foldr ="), "has no option 'foldr'; its options are: folder, urls"),
    ):
        config.write_text(good.replace(*change))
        with pytest.raises(ConfigurationError, match=message):
            assemble(load(config), tmp_path, None)
