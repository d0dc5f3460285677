"""Traces for tests of the replay: of runs in virtual time, and from what `slackwater bench … --trace` recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slackwater.policies.assembly import engine_for
from slackwater.recording.reading import Trace, trace_of
from slackwater.recording.records import Batch, End, Head, Host, Input, Query
from slackwater.recording.scribe import Scribe
from slackwater.testing import ScriptedDriver, SimulatedQuery, steps

if TYPE_CHECKING:
    from slackwater.recording.records import Record
    from slackwater.sim.trace import RunTrace


def records_of(
    queries: list[SimulatedQuery], policy: str, seconds: float, *, mode: str = "FIFO", **driver_settings: Any
) -> list[Record]:
    """Queries under a policy in virtual time, recorded as an attached application would be."""
    engine = engine_for(policy)
    driver = ScriptedDriver(queries, **{"poll_s": 0.05, **driver_settings})
    scribe = Scribe(engine)
    records: list[Record] = [
        scribe.head(
            driver.clock.now(),
            version="test",
            application="test",
            spark="4.3.0",
            master="local[2]",
            session={"scheduler_mode": mode},
        )
    ]
    for report, commands in steps(engine, driver, seconds):
        # As Spark's driver tells it: the processor time of its process.
        records += scribe.records([(replace(report, cpu_s=driver.cpu_s, processors=driver.cores), commands)])
    return [*records, End(driver.clock.now())]


def recorded_run(queries: list[SimulatedQuery], policy: str, seconds: float, **settings: Any) -> Trace:
    return trace_of(records_of(queries, policy, seconds, **settings))


def from_bench(run: RunTrace) -> Trace:
    """A run that the benchmark recorded: its measured span only."""
    numbers = {query.name: number for number, query in enumerate(run.queries)}
    begin = min([run.from_ms, *(batch.start_ms for batch in run.batches)]) / 1000
    spark = run.policy.startswith("spark-")
    records: list[Record] = [
        Head(
            wall_ts=begin,
            version="test",
            application="bench",
            spark="4.3.0",
            master=f"local[{run.cores}]",
            policy="observe" if spark else run.policy,
            enforces=not spark,
            parameters={},
            settings={"lanes": "auto"},
            session={"scheduler_mode": "FAIR"},
        )
    ]
    for query in run.queries:
        window = (query.window_s, query.slide_s or query.window_s, query.phase_ms / 1000)
        records.append(
            Query(
                number=numbers[query.name],
                wall_ts=begin,
                key=query.name,
                name=query.name,
                query_id=query.name,
                gated=True,
                windows=(window,),
                input_delays_s=(query.delay_s,),
                watermark_policy="min",
                emits_at_sweep=True,
                stateful=True,
                interval_s=query.interval_s or 0.0,
            )
        )
    for batch in run.batches:
        largest = None if batch.event_max_ms is None else batch.event_max_ms / 1000
        records.append(
            Batch(
                number=numbers[batch.query],
                batch_id=batch.batch_id,
                offsets_wall_ts=batch.start_ms / 1000,
                ended_wall_ts=(batch.start_ms + batch.duration_ms) / 1000,
                duration_s=batch.duration_ms / 1000,
                rows=batch.rows,
                watermark_event_ts=(batch.watermark_ms or 0) / 1000,
                inputs=(Input(1.0, batch.rows, largest),),
                stage="data batch" if batch.rows else "sweep batch",
                parts_ms=batch.parts_ms,
            )
        )
    records += [Host(wall_ms / 1000, run.cores, run.lanes or run.cores, cpu_s, run.cores) for wall_ms, cpu_s in run.cpu]
    return trace_of(records)
