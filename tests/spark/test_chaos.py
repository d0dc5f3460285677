"""Whatever is killed, hung, garbled or full: no query is stopped, none waits for ever, no row is lost or doubled."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import slackwater
from slackwater.chaos.churn import Churn, ChurnSettings
from slackwater.chaos.leaks import Growth
from slackwater.cli import main
from slackwater.errors import AttachError, ConfigurationError
from tests.spark.support import batches, eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Choice, Handle, Snapshot

pytestmark = [
    pytest.mark.spark,
    # The scheduler's thread is made to die.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

LONGEST_S = 240.0
NOTHING_LEFT = (
    "jvm_gates",
    "jvm_leaving_pools",
    "jvm_untold_ends",
    "jvm_stream_threads",
    "queries_that_spark_knows",
    "engine_queries",
    "engine_reasons",
    "engine_planned",
    "engine_readers",
)


@pytest.fixture(autouse=True)
def announced_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.timeout(600)  # one play of fifteen acts
def test_queries_come_through_every_trouble_with_every_row(tmp_path: Path) -> None:
    file = tmp_path / "chaos.json"
    command = ["chaos", "--starts", "0", "--troubled", "2", "--timeout", f"{LONGEST_S:g}", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "slackwater", *command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    played = json.loads(file.read_text())
    troubles = [row for row in played["rows"] if "trouble" in row]
    assert [(row["trouble"], row["problem"]) for row in troubles if row["problem"] is not None] == []
    assert len(troubles) == 15
    assert all(row["batches"] >= 2 or row["skipped"] for row in troubles)
    assert {row["output"]: row["equal"] for row in played["rows"] if "output" in row} == {
        "counts_00": True,
        "counts_01": True,
        "late": True,
    }
    assert [claim["holds"] for claim in played["claims"]] == [True] * 3


def test_queries_that_come_and_go_leave_nothing_behind(spark: Any, tmp_path: Path) -> None:
    found = Churn(
        spark, tmp_path, ChurnSettings(minutes=4, queries=5, starts=12, rounds=3, seed=3, functions=True)
    ).run()
    assert found.started == 12
    assert found.lost == []
    assert found.most_at_once >= 2
    left = {growth.name: growth.last for growth in found.growths}
    assert {name: left[name] for name in NOTHING_LEFT} == dict.fromkeys(NOTHING_LEFT, 0)
    grew = {growth.name: growth.last - growth.first for growth in found.growths}
    assert grew["pools"] == grew["streaming_listeners"] == grew["jvm_threads_of_ours"] == 0
    # Twelve starts are too few to tell growth from what other tests leave to the collector; `make chaos` does.
    assert "py4j_objects_in_the_jvm" in grew


def test_the_command_tells_what_held_and_ends_with_1_when_something_did_not(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("slackwater.verify.session.small_session", lambda *_: nullcontext(spark))
    monkeypatch.setattr("slackwater.chaos.churn.growths", lambda _: [Growth("pools", 1, 9, slack=2)])
    file = tmp_path / "chaos.json"
    with pytest.raises(SystemExit) as ended:
        main(["chaos", "--starts", "2", "--queries", "2", "--no-scripted", "--json", str(file)])
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert "holds  queries that ended though nobody stopped them: 0" in told.out
    assert "BROKEN pools: more in the last third than in the first: 8" in told.out
    assert "2 of 6 checks do not hold" in told.err
    written = json.loads(file.read_text())
    assert written["experiment"] == "chaos"
    assert [claim["holds"] for claim in written["claims"]] == [True, True, False] * 2


# ---- a scheduler that is gone -----------------------------------------------------------------------------------


class Deadly:
    name = "deadly"
    enforces = True
    deadly = False

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        if self.deadly:
            raise SystemExit
        return [slackwater.Choice(query.key, query.eligible, 0.0, "") for query in snapshot.queries]


def one_that_ends(session: Any) -> None:
    query = start(rates(session))
    eventually(lambda: batches(query) >= 1)
    query.stop()


def test_a_dead_scheduler_keeps_no_query_that_has_ended_and_says_that_it_is_dead(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    policy = Deadly()
    handle = attach(policy=policy, watchdog_s=0.5)
    lasting = start(rates(spark), name="lasting")
    eventually(lambda: batches(lasting) >= 1)
    policy.deadly = True
    eventually(lambda: not handle._thread.is_alive())
    for _ in range(3):
        one_that_ends(spark)
    eventually(lambda: handle.kept()["jvm_gates"] == 1)
    kept = handle.kept()
    assert kept["jvm_untold_ends"] <= 3
    assert kept["jvm_leaving_pools"] <= 3
    with pytest.raises(AttachError, match="the scheduler has died"):
        handle.pause("lasting")


def test_what_ended_while_nobody_listened_is_told_when_somebody_does(
    spark: Any, attach: Callable[..., Handle], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = attach(watchdog_s=0.5)
    query = start(rates(spark), name="unheard")
    eventually(lambda: batches(query) >= 1)
    exchange = handle._bridge.exchange
    with monkeypatch.context() as deaf:
        deaf.setattr(handle._bridge, "exchange", lambda *_, **__: 1 / 0)
        query.stop()
        eventually(lambda: handle.kept()["jvm_gates"] == 0)
    assert handle._bridge.exchange == exchange
    eventually(lambda: "unheard" in {ended.name for ended in handle._engine.records.ended.since(0)})
    assert handle.kept()["engine_queries"] == 0
    caplog.clear()


def test_sessions_that_nobody_uses_any_more_are_not_kept(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach()
    for _ in range(3):
        one_that_ends(spark.newSession())

    def kept() -> bool:
        gc.collect()
        spark._jvm.java.lang.System.gc()
        return handle.kept()["jvm_listeners"] <= 2

    eventually(kept)


# ---- an endpoint that cannot be announced -------------------------------------------------------------------------


def test_an_endpoint_that_cannot_be_announced_leaves_the_session_as_it_was(
    spark: Any, attach: Callable[..., Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("slackwater.endpoint.access.write_token", full)
        with pytest.raises(ConfigurationError, match="No space left on device"):
            slackwater.attach(spark, serve=True)
    assert attach(serve=True).url is not None
