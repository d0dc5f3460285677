"""`aion-lateness` (Aion 3.4, predictive cleanup): does the predicted allowed lateness cover what it promises?

Streams whose lateness has a known distribution: the promise of 99 % at confidence 95 % holds if at least 95 % of the
predictions truly cover 99 %. Then streams that change: how many events does it take until the prediction is right
again, and stays right?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.late.lateness import LatenessHistory, LatenessSketch, events_needed
from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.sim.lateness_shapes import shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from slackwater.sim.lateness_shapes import Shape

NAME = "aion-lateness"
COVERAGE, CONFIDENCE = 0.99, 0.95
BLOCK_EVENTS = 500
# A prediction of twice what is needed is as good as recovered when events have become less late.
_ENOUGH = 2.0


@dataclass(frozen=True)
class Plan:
    trials: int = 10_000
    long_trials: int = 400
    shift_trials: int = 150
    batch: int = 50
    before: int = 8000
    after: int = 12_000


def run(seed: int = 0, plan: Plan | None = None) -> Experiment:
    plan = plan or Plan()
    known = shapes().values()
    steady = [
        _steady(seed, plan, shape, events, on_time)
        for shape in known
        for events, on_time in ((events_needed(COVERAGE, CONFIDENCE), 0.0), (2000, 0.0), (9500, 0.0), (9500, 0.8))
    ]
    shifts = [_shift(seed, plan, shape, words, factor, share) for shape in known for words, factor, share in _CHANGES]
    return Experiment(NAME, seed, [*steady, *shifts], list(_claims(steady, shifts)), _ASSUMPTIONS)


_CHANGES = (("4 × as late", 4.0, 1.0), ("3 % of events 10 × as late", 10.0, 0.03), ("a quarter as late", 0.25, 1.0))
# A plain shift within two or three blocks; one in the tail alone at the latest as the old events are forgotten.
_RECOVERED_WITHIN = {"4 × as late": 1000, "3 % of events 10 × as late": 10_000, "a quarter as late": 1500}
_ASSUMPTIONS = [
    "events are independent, and a lateness is known as its event comes: at a change, the new ones come at once",
    "the history: 20 blocks of 500 events; steady streams come a block at a time, changing ones in batches of 50",
    "recovered: covers 99 % of the new events; where they are less late, and is at most twice what is needed",
    "limits on recovery are not the paper's: they say what this scheme was seen to do in first short runs",
    "holds, after a change: the share of all predictions since the first right one that cover",
]


def _steady(seed: int, plan: Plan, shape: Shape, events: int, on_time: float) -> dict[str, Any]:
    """How often the prediction covers what it should, and how much larger than needed it is."""
    # The share that must be covered among the late ones, if this share of all is not late.
    needed = shape.quantile(max(0.0, (COVERAGE - on_time) / (1 - on_time)))
    held, sizes = 0, []
    for trial in range(plan.trials if events < BLOCK_EVENTS else plan.long_trials):
        rng = np.random.default_rng([seed, trial, events, *shape.name.encode()])
        drawn = shape.draw(rng, events) * (rng.random(events) >= on_time)
        history = LatenessHistory(BLOCK_EVENTS)
        for batch in _batches(drawn, BLOCK_EVENTS):
            history.add(batch)
        bound = history.allowed_lateness(COVERAGE, CONFIDENCE)
        sizes.append((bound or np.inf) / needed)
        held += bound is not None and on_time + (1 - on_time) * shape.covered(bound) >= COVERAGE
    return {
        "what": "steady",
        "shape": shape.name,
        "holds": round(held / len(sizes), 4),
        "over_needed": round(float(np.median(sizes)), 3),
        "recovered_p50": None,
        "recovered_p90": None,
        "on_time": on_time,
        "events": events,
        "trials": len(sizes),
    }


def _shift(seed: int, plan: Plan, shape: Shape, words: str, factor: float, share: float) -> dict[str, Any]:
    """Events until the prediction is right again after `share` of the events became `factor` times as late."""
    found, sizes, held = [], [], []
    needed = _needed(shape, factor, share)
    for trial in range(plan.shift_trials):
        rng = np.random.default_rng([seed, trial, int(100 * factor), *shape.name.encode()])
        history = LatenessHistory(BLOCK_EVENTS)
        # Where in a block the change comes is chance, too.
        for batch in _batches(shape.draw(rng, plan.before + int(rng.integers(BLOCK_EVENTS))), plan.batch):
            history.add(batch)
        drawn = shape.draw(rng, plan.after)
        drawn = np.where(rng.random(plan.after) < share, drawn * factor, drawn)
        bounds = []
        for batch in _batches(drawn, plan.batch):
            history.add(batch)
            bounds.append(history.allowed_lateness(COVERAGE, CONFIDENCE) or np.inf)
        covers = np.array(bounds) >= needed
        right = covers & (np.array(bounds) <= _ENOUGH * needed) if factor < 1 else covers
        first = int(right.argmax()) if right.any() else len(right)
        found.append((first + 1) * plan.batch)
        held.append(covers[first:].mean() if right.any() else 0.0)
        sizes.append(bounds[-1] / needed)
    return {
        "what": words,
        "shape": shape.name,
        "holds": round(float(np.mean(held)), 4),
        "over_needed": round(float(np.median(sizes)), 3),
        "recovered_p50": int(np.quantile(found, 0.5, method="higher")),
        # A prediction is right with probability 0.95, recovered or not: p95 would be chance.
        "recovered_p90": int(np.quantile(found, 0.9, method="higher")),
        "on_time": 0.0,
        "events": plan.after,
        "trials": len(found),
    }


def _needed(shape: Shape, factor: float, share: float) -> float:
    """The quantile of the mixture: `share` of the events `factor` times as late."""
    low, high = 0.0, float(shape.at[-1]) * max(1.0, factor)
    for _ in range(60):
        middle = (low + high) / 2
        if share * shape.covered(middle / factor) + (1 - share) * shape.covered(middle) < COVERAGE:
            low = middle
        else:
            high = middle
    return high


def _batches(drawn: NDArray[np.float64], size: int) -> Iterator[LatenessSketch]:
    for place in range(0, len(drawn), size):
        sketch = LatenessSketch()
        sketch.add_many(drawn[place : place + size])
        yield sketch


def _claims(steady: list[dict[str, Any]], shifts: list[dict[str, Any]]) -> Iterator[Claim]:
    for name in shapes():
        held = min(row["holds"] for row in steady if row["shape"] == name)
        yield claim(f"share of predictions that cover 99 %, {name}, worst row", held, "≥", CONFIDENCE)
    for words, *_ in _CHANGES:
        slowest = max(row["recovered_p90"] for row in shifts if row["what"] == words)
        yield claim(f"{words}: events until right again, p90, worst shape", slowest, "≤", _RECOVERED_WITHIN[words])
    after = min(row["holds"] for row in shifts)
    yield claim("share of predictions that cover 99 % from then on, worst row", after, "≥", CONFIDENCE)
