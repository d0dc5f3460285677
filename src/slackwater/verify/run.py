"""One workload over the same rows, all ways: every answer is held against the oracle's."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from slackwater.drivers.spark.attach import attach
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.policies.registry import create
from slackwater.verify.compare import compare, places
from slackwater.verify.doomed import Doomed
from slackwater.verify.feed import Feed
from slackwater.verify.model import Outcome, Settings, Verdict
from slackwater.verify.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from slackwater.drivers.spark.handle import Handle
    from slackwater.verify.model import Differences, Trial
    from slackwater.workloads.finite import Answers, FiniteWorkload, Rows, Stage


def verify(
    spark: SparkSession,
    workload: FiniteWorkload,
    trials: Sequence[Trial],
    *,
    seed: int,
    size: int,
    settings: Settings | None = None,
    told: Callable[[Outcome], None] = lambda _: None,
) -> Verdict:
    """Run every trial over the rows of this seed; `told` hears of each as it ends.

    A query that fails or hangs ends its trial, and the others go on; a workload that contradicts itself raises.
    """
    rows = workload.generate(seed, size)
    closing = workload.closing(rows)
    if unknown := sorted((set(rows) | set(closing)) ^ set(workload.tables)):
        raise ConfigurationError(f"{workload.name} has rows or tables, and not the other, of: {', '.join(unknown)}.")
    expected = workload.expected(rows)
    if unknown := sorted(set(expected) ^ set(workload.outputs)):
        raise ConfigurationError(f"{workload.name} has an output or an answer, and not the other, of {unknown[0]!r}.")
    outcomes = []
    for trial in trials:
        outcome = run_trial(spark, workload, rows, closing, expected, trial, settings or Settings())
        told(outcome)
        outcomes.append(outcome)
    return Verdict(workload.name, seed, {table: len(rows[table]) for table in rows}, tuple(outcomes))


def run_trial(
    spark: SparkSession,
    workload: FiniteWorkload,
    rows: Rows,
    closing: Rows,
    expected: Answers,
    trial: Trial,
    settings: Settings,
) -> Outcome:
    """All queries at once, in new folders."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slackwater-verify-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        feed = Feed(folder / "feed", rows, closing, settings.files)
        pipeline = Pipeline(spark, workload, feed, folder)
        try:
            outcome = _ran(spark, pipeline, feed, trial, settings)
            outputs = {
                stage.name: _differences(pipeline, stage, expected)
                for stage in workload.stages
                if stage.name in workload.outputs
            }
        except ConfigurationError:
            raise
        except (SlackwaterError, PySparkException) as error:
            told = str(error).strip().splitlines()[0]
            return Outcome(trial, seconds=time.monotonic() - begun, batches=pipeline.batches(), error=told)
    return replace(outcome, outputs=outputs, seconds=time.monotonic() - begun)


def _ran(spark: SparkSession, pipeline: Pipeline, feed: Feed, trial: Trial, settings: Settings) -> Outcome:
    """Everything was taken and emitted; what happens in the middle does so before the second half of input is there."""
    deadline_ts = time.monotonic() + settings.timeout_s
    outcome = Outcome(trial)
    half = settings.files // 2
    with _scheduled(spark, trial, settings) as (handle, doomed):
        try:
            feed.arrive(half if trial.restarts or doomed is not None else None)
            pipeline.start()
            if doomed is not None:
                pipeline.await_batches(1, deadline_ts)
                doomed.die()
                outcome = replace(outcome, killed_after=sum(pipeline.batches().values()))
            if trial.restarts:
                pipeline.await_batches(half, deadline_ts)
                outcome = replace(outcome, restarted_after=sum(pipeline.batches().values()))
                pipeline.stop()
                pipeline.start()
            feed.arrive()
            if doomed is not None and not doomed.await_death(deadline_ts - time.monotonic()):
                raise SlackwaterError(
                    "the scheduler was to die and did not: it has made no decision since it was told."
                )
            pipeline.finish(deadline_ts)
        finally:
            pipeline.stop()
        decisions = handle.stats().decisions if handle is not None else 0
    return replace(outcome, batches=pipeline.batches(), decisions=decisions)


@contextmanager
def _scheduled(spark: SparkSession, trial: Trial, settings: Settings) -> Iterator[tuple[Handle | None, Doomed | None]]:
    if trial.policy is None:
        yield None, None
        return
    policy = create(trial.policy)
    doomed = Doomed(policy) if trial.kills else None
    with attach(spark, doomed or policy, watchdog_s=settings.watchdog_s) as handle:
        yield handle, doomed


def _differences(pipeline: Pipeline, stage: Stage, expected: Answers) -> Differences:
    columns, found = pipeline.answer(stage.name)
    return compare(expected[stage.name], found, places(stage.keys, columns))
