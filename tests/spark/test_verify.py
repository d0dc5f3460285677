"""`slackwater verify` on a real Spark: right queries are equal whatever happens to them, and wrong ones are caught."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater.cli import main
from slackwater.errors import ConfigurationError
from slackwater.verify.model import Settings, Trial
from slackwater.verify.run import verify
from slackwater.workloads.finite import Stage
from slackwater.workloads.finite_registry import FINITE, finite_workload

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.verify.model import Verdict

pytestmark = [
    pytest.mark.spark,
    # The scheduler's thread is made to die.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

SETTINGS = Settings(files=2, timeout_s=240)


def counts(frames: Any) -> Any:
    events = frames["events"].selectExpr("timestamp_millis(event_ms) AS ts", "k").withWatermark("ts", "1 second")
    counted = events.groupBy(F.window("ts", "10 seconds"), "k").count()
    return counted.selectExpr("window.start AS window_start", "k", "count")


def odd(frames: Any) -> Any:
    return frames["counts"].where("count % 2 = 1").select("window_start", "k")


COUNTS = Stage(
    "counts", ("events",), counts, "window_start TIMESTAMP, k STRING, count BIGINT", keys=("window_start", "k")
)
ODD = Stage("odd", ("counts",), odd, "window_start TIMESTAMP, k STRING")


@dataclass(frozen=True)
class Toy:
    """Counts by window and key, and a second query over what the first one wrote."""

    stages: tuple[Stage, ...] = (COUNTS, ODD)
    name: str = "toy"
    about: str = "counts by key"

    @property
    def tables(self) -> dict[str, str]:
        return {"events": "event_ms BIGINT, k STRING"}

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def generate(self, seed: int, size: int) -> Any:
        return {"events": [{"event_ms": 1000 * n, "k": "abc"[n * seed % 3]} for n in range(size)]}

    def closing(self, rows: Any) -> Any:
        return {"events": [{"event_ms": 10**9, "k": "z"}]}

    def expected(self, rows: Any) -> Any:
        found = Counter((row["event_ms"] // 10_000 * 10_000, row["k"]) for row in rows["events"])
        answers = {
            "counts": sorted((*key, count) for key, count in found.items()),
            "odd": sorted(key for key, count in found.items() if count % 2),
        }
        return {name: answers[name] for name in self.outputs}


def run(spark: Any, workload: Any, *trials: Trial, size: int = 60) -> Verdict:
    return verify(spark, workload, trials, seed=1, size=size, settings=SETTINGS)


def test_chained_queries_are_equal_on_plain_spark_and_through_restarts_and_the_schedulers_death(spark: Any) -> None:
    trials = (
        Trial(None, restarts=True, kill_scheduler=True),
        Trial("klink", restarts=True, kill_scheduler=True),
        Trial("round-robin", restarts=True),
    )
    verdict = run(spark, Toy(), *trials)
    assert [outcome.error for outcome in verdict.outcomes] == [None] * 3
    assert verdict.equal
    plain, klink, round_robin = verdict.outcomes
    for outcome in verdict.outcomes:
        assert outcome.outputs["counts"].expected_rows == outcome.outputs["counts"].found_rows == 18
        assert outcome.restarted_after is not None
        # Two files and the closing one; the chained query has had something to do as well.
        assert outcome.batches["counts"] >= 3
        assert outcome.batches["odd"] >= 1
    assert plain.killed_after is None
    assert klink.killed_after is not None
    assert (plain.decisions, round_robin.killed_after) == (0, None)
    assert round_robin.decisions > 0


def test_windows_that_take_late_rows_are_equal_though_they_were_restarted_and_lost_their_scheduler(spark: Any) -> None:
    verdict = run(spark, finite_workload("average"), Trial("klink", kill_scheduler=True, restarts=True), size=200)
    (outcome,) = verdict.outcomes
    assert outcome.error is None
    assert verdict.equal
    assert outcome.outputs["tumbling"].found_rows == 8


def test_a_wrong_query_is_caught_with_its_rows(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def too_few(frames: Any) -> Any:
        return counts(frames).where("NOT (k = 'a' AND count = 4)").replace({"b": "d"}, subset="k")

    def one_off(frames: Any) -> Any:
        return counts(frames).withColumn("count", F.expr("IF(k = 'c', count + 1, count)"))

    monkeypatch.setattr("slackwater.verify.session.small_session", lambda _: nullcontext(spark))
    monkeypatch.setitem(FINITE, "toy", Toy((replace(COUNTS, build=too_few),)))
    command = ["verify", "toy", "--policies", "", "--size", "60", "--files", "2"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", str(tmp_path / "verify.json")])
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert "1 of 1 runs differ from the oracle: toy (spark)" in told.err
    assert "counts: 18 rows expected, 16 found" in told.out
    assert "missing: 8" in told.out
    assert "surplus: 6" in told.out
    claims = json.loads((tmp_path / "verify.json").read_text())["claims"]
    assert [(claim["measured"], claim["holds"]) for claim in claims] == [(14, False)]

    (outcome,) = run(spark, Toy((replace(COUNTS, build=one_off),)), Trial("round-robin")).outcomes
    found = outcome.outputs["counts"]
    assert (found.missing, found.surplus) == ((), ())
    assert [(right[2] - left[2], left[1]) for left, right in found.different] == [(1, "c")] * 6

    monkeypatch.setitem(FINITE, "toy", Toy((COUNTS,)))
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code in (0, None)
    assert "1 of 1 runs are equal to the oracle" in capsys.readouterr().out


def test_a_query_that_fails_ends_its_trial_with_its_own_error_and_the_next_one_runs(spark: Any) -> None:
    broken = True

    def fails(frames: Any) -> Any:
        value = "CAST(raise_error('deliberate') AS BIGINT)" if broken else "count"
        return counts(frames).withColumn("count", F.expr(value))

    workload = Toy((replace(COUNTS, build=fails),))
    (outcome,) = run(spark, workload, Trial("klink")).outcomes
    assert not outcome.equal
    assert "deliberate" in str(outcome.error)
    broken = False
    assert run(spark, workload, Trial("klink")).equal


def test_columns_that_are_not_those_that_were_said_are_refused(spark: Any) -> None:
    workload = Toy((replace(COUNTS, columns="window_start TIMESTAMP, k STRING, count INT"),))
    with pytest.raises(ConfigurationError, match=r"gives .*count bigint; its columns are said to be .*count int"):
        run(spark, workload, Trial(None))
