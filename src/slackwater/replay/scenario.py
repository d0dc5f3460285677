"""What is replayed: which policy, on how many lanes and cores, with which triggers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from slackwater.core.model import Knob
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.policies.registry import known_policies

if TYPE_CHECKING:
    from slackwater.recording.reading import Trace

TaskOrder = Literal["name", "arrival"]

_FIXED = re.compile(r"spark-(every|staggered)-(\d+(?:\.\d+)?)s")
_STAGGER = 0.06
AS_RECORDED = "as-recorded"


@dataclass(frozen=True)
class Scenario:
    """One way to run the recorded queries. None, or 1 for factors: as recorded.

    policy: one of Slackwater's, or "" for Spark's own way, by each query's trigger.
    interval_s: a trigger for all queries; 0: none, as soon as possible. staggered: ± 6 %, so that they don't fire
    together.
    task_order: of Spark's own way, who gets a free core: by the name of the query's pool, or who waits longest.
    without: queries that are not there. cost_times: what a batch costs against the recorded.
    """

    name: str
    policy: str = ""
    knob: Knob = "balanced"
    lanes: int | Literal["auto"] | None = None
    cores: int | None = None
    interval_s: float | None = None
    staggered: bool = False
    task_order: TaskOrder = "arrival"
    memory_bound: float = 0.75
    without: frozenset[str] = frozenset()
    cost_times: float = 1.0

    def but(self, **changes: object) -> Scenario:
        return replace(self, **changes)  # type: ignore[arg-type]

    def interval_of(self, own_s: float, place: int, count: int) -> float:
        """The trigger of query number `place` of `count`, which was recorded with its own."""
        if self.interval_s is None:
            return own_s
        spread = 2 * place / (count - 1) - 1 if self.staggered and count > 1 else 0.0
        return self.interval_s * (1 + _STAGGER * spread)


def scenario_of(name: str, trace: Trace) -> Scenario:
    """A scenario by name: as-recorded, spark-fair, spark-fifo, spark-every-5s, spark-staggered-5s, klink, klink:cost …

    spark-fair and spark-fifo are as soon as possible, whatever triggers the queries have; policies of Slackwater keep
    to the triggers as the least time between turns.
    """
    if name == AS_RECORDED:
        return recorded(trace)
    if name in ("spark-fair", "spark-fifo"):
        return Scenario(name, interval_s=0.0, task_order="name" if name == "spark-fair" else "arrival")
    if fixed := _FIXED.fullmatch(name):
        interval_s = float(fixed[2])
        if interval_s <= 0:
            raise ConfigurationError(f"the interval in {name!r} must be greater than 0.")
        return Scenario(name, interval_s=interval_s, staggered=fixed[1] == "staggered", task_order="name")
    policy, _, knob = name.partition(":")
    ours = [known for known in known_policies() if known != "observe"]
    if policy not in ours:
        spark = ["spark-fair", "spark-fifo", "spark-every-5s", "spark-staggered-5s", AS_RECORDED]
        raise unknown_name("policy", policy, [*spark, *ours])
    return Scenario(name, policy=policy, knob=_knob(knob or "balanced", name))


def recorded(trace: Trace) -> Scenario:
    """The policy that was in force at the end of the trace, with its settings."""
    last = trace.switched[-1] if trace.switched else trace.head
    if not last.enforces:
        fair = trace.head.session.get("scheduler_mode") == "FAIR"
        return Scenario(AS_RECORDED, task_order="name" if fair else "arrival")
    if last.policy not in known_policies():
        raise ConfigurationError(
            f"the trace was recorded under {last.policy!r}, a policy that is not installed here. Install its package, "
            "so that the replay can be checked against what was recorded."
        )
    lanes = trace.head.settings.get("lanes", "auto")
    bound = last.parameters.get("memory_bound", 0.75)
    return Scenario(
        AS_RECORDED,
        policy=last.policy,
        knob=_knob(str(last.parameters.get("knob", "balanced")), last.policy),
        lanes=lanes if isinstance(lanes, int) and not isinstance(lanes, bool) else "auto",
        memory_bound=bound if isinstance(bound, float) else 0.75,
    )


def recorded_name(trace: Trace) -> str:
    """What was recorded, in words."""
    found = recorded(trace)
    if found.policy:
        return found.policy if found.knob == "balanced" else f"{found.policy}:{found.knob}"
    mode = str(trace.head.session.get("scheduler_mode", "FIFO"))
    triggers = sorted({query.about.interval_s for query in trace.queries if query.about.interval_s > 0})
    if not triggers:
        return f"plain Spark ({mode}), as soon as possible"
    span = f"{triggers[0]:g} s" if len(triggers) == 1 else f"{triggers[0]:.3g} to {triggers[-1]:.3g} s"
    return f"plain Spark ({mode}), triggers of {span}"


def _knob(word: str, name: str) -> Knob:
    for known in get_args(Knob):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise unknown_name(f"knob in {name!r}", word, get_args(Knob))
