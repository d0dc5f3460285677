"""For tests of policies: a clock that stands still, and a small stand-in for Spark in virtual time.

    engine = Engine(MyPolicy(), RoundRobin())
    driver = ScriptedDriver([SimulatedQuery("clicks", windows=(Window(10, 10),), delay_s=1)])
    trace = run(engine, driver, seconds=60)
    assert max(emission.latency_s for emission in trace.emissions) < 3

`ScriptedDriver` does what the engine expects of a driver, and its queries do what Spark's do: a batch fixes
its offsets at its start and takes all that has arrived; the watermark that its rows move is applied by the
next batch, which emits the windows it passes; a batch without rows runs only if the watermark moved. Batches that
run at once share the cores. Where queries name factors to draw their batches' lengths from, the seed fixes them: the
same queries, policy and seed give the same trace. A query reads one steady stream with one watermark, or any
`Stream` that is given to it.
"""

from __future__ import annotations

from slackwater.testing.clock import START_WALL_TS, FakeClock
from slackwater.testing.cores import NO_GARBAGE, Garbage, TaskOrder, cpu_speed
from slackwater.testing.driver import ScriptedDriver, run, steps
from slackwater.testing.query import SimulatedQuery, Stream
from slackwater.testing.trace import Emission, GrantSeen, Trace, TurnSeen

__all__ = [
    "NO_GARBAGE",
    "START_WALL_TS",
    "Emission",
    "FakeClock",
    "Garbage",
    "GrantSeen",
    "ScriptedDriver",
    "SimulatedQuery",
    "Stream",
    "TaskOrder",
    "Trace",
    "TurnSeen",
    "cpu_speed",
    "run",
    "steps",
]
