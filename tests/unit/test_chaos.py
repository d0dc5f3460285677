"""The parts of the chaos suite, each by itself: what misbehaves does, and what grows is found."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from slackwater.chaos.bridge import FORGED_RUN, FaultyBridge, FaultyGate
from slackwater.chaos.clients import Clients
from slackwater.chaos.disk import FullDisk
from slackwater.chaos.leaks import Growth, Slack, growths
from slackwater.chaos.wayward import NONSENSE, Wayward, dawdling, hanging, nonsense
from slackwater.chaos.workload import Crowd
from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Commands, Window
from slackwater.endpoint.server import Endpoint
from slackwater.errors import ConfigurationError
from slackwater.late.store import WindowStore
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def queries() -> list[SimulatedQuery]:
    return [SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0, step_s=1.0) for name in "ab"]


# ---- what misbehaves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", sorted(NONSENSE))
def test_every_kind_of_nonsense_is_survived(how: str) -> None:
    policy = Wayward(RoundRobin())
    policy.go_astray(NONSENSE[how])
    trace = run(Engine(policy, RoundRobin(), EngineSettings(lanes=2)), ScriptedDriver(queries()), 25)
    assert {emission.query for emission in trace.emissions} == {"a", "b"}
    assert policy.astray_answers > 0


def test_a_policy_comes_back_from_where_it_went_astray() -> None:
    policy = Wayward(RoundRobin())
    reference = run(Engine(RoundRobin(), RoundRobin()), ScriptedDriver(queries()), 20)
    for astray in (dawdling(0.0), hanging(_set())):
        policy.go_astray(astray)
        assert run(Engine(policy, RoundRobin()), ScriptedDriver(queries()), 20).emissions == reference.emissions
    policy.go_astray(nonsense())
    policy.come_back()
    assert run(Engine(policy, RoundRobin()), ScriptedDriver(queries()), 20).emissions == reference.emissions


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class Jvm:
    """Stands for the JVM side; keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def exchange(self, commands: str, timeout_ms: int, decided: bool) -> str:
        self.sent.append(commands)
        return '{"queries": [{"run": "r1", "wait": 3}]}'


def test_forged_grants_never_name_the_wait_that_a_query_is_in() -> None:
    jvm = Jvm()
    gate = FaultyGate(jvm)
    gate.exchange('{"grants": [], "priorities": {}}', 0, True)
    gate.forging = True
    for _ in range(20):
        gate.exchange('{"grants": [], "priorities": {}}', 0, True)
    assert gate.forged == 20
    forged = [text for text in jvm.sent[1:] if FORGED_RUN in text]
    assert len(forged) == 10
    assert all('"run": "r1", "wait": 2' in text for text in forged)
    assert not any('"run": "r1", "wait": 3}' in text for text in forged)


def test_a_bridge_fails_and_garbles_as_long_as_it_is_told_to() -> None:
    class Bridge:
        notes = ("told",)

        def exchange(self, commands: Any, *, decided: bool) -> str:
            return "report"

    faulty = FaultyBridge(Bridge())
    commands = Commands(enforce=True, wake_after_s=0.0)
    assert faulty.exchange(commands) == "report"
    faulty.garbled = True
    assert faulty.exchange(commands) != "report"
    faulty.error = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        faulty.exchange(commands)
    assert faulty.notes == ("told",)
    assert faulty.calls == 3


# ---- a full disk ----------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_leaves_no_debris_and_loses_nothing(tmp_path: Path) -> None:
    flag = tmp_path / "full"
    files = FullDisk(tmp_path / "store", flag)
    schema = pa.schema([("v", pa.int64())])
    store = WindowStore(files, schema)
    store.open()
    store.begin(0)
    store.write(0, {0: pa.table({"v": [1, 2]}, schema)})
    store.commit(0)
    flag.touch()
    store.begin(1)
    with pytest.raises(OSError, match="No space left") as told:
        store.write(1, {0: pa.table({"v": [3]}, schema)})
    assert told.value.errno == errno.ENOSPC
    assert list((tmp_path / "store" / files.temporary).iterdir()) == []
    flag.unlink()
    store.begin(1)
    store.write(1, {0: pa.table({"v": [3]}, schema)})
    store.commit(1)
    assert store.read(0).column("v").to_pylist() == [1, 2, 3]
    store.close()


def test_an_endpoint_that_cannot_be_announced_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("slackwater.endpoint.discovery.announce", full)
    with pytest.raises(ConfigurationError, match="Make room there"):
        Endpoint(application_id="a", name="a", reads={}, folder=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []
    assert [thread for thread in threading.enumerate() if thread.name == "slackwater-http"] == []


# ---- clients --------------------------------------------------------------------------------------------------------


def test_clients_that_never_read_do_not_keep_an_endpoint_from_answering_others(tmp_path: Path) -> None:
    large = "x" * 100_000
    endpoint = Endpoint(
        application_id="a", name="a", reads={"/api/status": lambda _: {"large": large}}, folder=tmp_path / "run"
    )
    waited = threading.Event()
    try:
        with Clients(endpoint.url, count=40) as clients:
            for _ in range(600):
                if clients.answers[200] >= 20:
                    break
                waited.wait(0.05)
        assert clients.answers[200] >= 20
        assert {status for status in clients.answers if status >= 500} <= {503}
    finally:
        endpoint.close()


# ---- leaks ----------------------------------------------------------------------------------------------------------


def grown(step: float) -> Callable[[int], dict[str, float]]:
    return lambda number: {"pools": 1.0 + step * number, "jvm_heap_live_mb": 80.0 + number % 3}


def test_what_grows_is_found_and_what_breathes_is_not() -> None:
    steady = [grown(0.0)(number) for number in range(12)]
    assert [growth.allowed for growth in growths(steady)] == [True, True]
    growing = [grown(0.5)(number) for number in range(12)]
    assert {growth.name: growth.allowed for growth in growths(growing)} == {"pools": False, "jvm_heap_live_mb": True}


def test_slack_is_so_many_more_or_a_share() -> None:
    assert Growth("threads", 1, 3, Slack(2).beside(1)).allowed
    assert not Growth("threads", 1, 4, Slack(2).beside(1)).allowed
    assert Growth("heap", 100, 110, Slack(2, 0.1).beside(100)).allowed
    assert not Growth("gates", 0, 1, Slack().beside(0)).allowed


# ---- the workload ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 7])
def test_every_row_belongs_to_one_query_and_closing_rows_to_none(count: int) -> None:
    workload = Crowd(count)
    rows = workload.generate(1, 200)
    expected = workload.expected(rows)
    assert sum(row[2] for name in workload.plain for row in expected[name]) == 200
    assert sum(row[2] for row in expected["late"]) == 200
    assert {row["v"] % count for row in workload.closing(rows)["events"]} == set(range(count))
