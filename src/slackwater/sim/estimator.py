"""`klink-estimator` (Klink 6.2.5, Fig. 9c): how often does a sweeping watermark arrive within the estimated range?

A query has a window every `period_s`. Each epoch brings events whose network delays are drawn from one distribution,
and then the watermark that sweeps the window, which suffers a delay of its own from the same distribution. Before it
arrives the estimator, which has seen the events' delays only, names a range; the arrival is inside or not. The width of
the range stands beside the share, since a wide enough range covers everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.core.epochs import EpochHistory
from slackwater.core.regression import LinearRegression
from slackwater.sim.delays import Delays, Uniform, Zipf
from slackwater.sim.experiment import Claim, Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.core.epochs import Delay

NAME = "klink-estimator"
TARGETS = {
    ("klink-95", "uniform"): 0.98,
    ("klink-95", "zipf"): 0.95,
    ("klink-90", "uniform"): 0.95,
    ("klink-90", "zipf"): 0.85,
}


@dataclass(frozen=True)
class Plan:
    queries: int = 20
    epochs: int = 600
    events_per_epoch: int = 200
    history: int = 400
    longest_delay_s: float = 1.0


@dataclass(frozen=True)
class _Guess:
    low_s: float
    high_s: float

    def covers(self, delay_s: float) -> bool:
        return self.low_s <= delay_s <= self.high_s


def run(seed: int = 0, plan: Plan | None = None) -> Experiment:
    plan = plan or Plan()
    rows = []
    kinds: tuple[Delays, ...] = (Uniform(plan.longest_delay_s), Zipf(longest_s=plan.longest_delay_s))
    for delays in kinds:
        for estimator, (share, width_s, count) in _shares(seed, plan, delays).items():
            rows.append(
                {
                    "estimator": estimator,
                    "delays": delays.name,
                    "inside": round(share, 4),
                    "range_s": round(width_s, 4),
                    "watermarks": count,
                }
            )
    return Experiment(NAME, seed, rows, list(_claims(rows)), assumptions=_ASSUMPTIONS)


_ASSUMPTIONS = [
    "a watermark's delay is drawn from the same distribution as its epoch's events, independently of them",
    "delays do not change over time; the range is two-sided: mean ± z·σ, leaning towards the longer tail",
    "LR fits the delays of past sweeping watermarks; its range (the paper names none) is ± the rms of its past errors",
    "the first tenth of the epochs is not counted: there is no history yet",
]


def _claims(rows: list[dict[str, object]]) -> Iterator[Claim]:
    inside = {(str(row["estimator"]), str(row["delays"])): float(str(row["inside"])) for row in rows}
    for (estimator, delays), target in TARGETS.items():
        yield claim(f"{estimator}, {delays} delays: share inside", inside[(estimator, delays)], "≥", target)
    for delays in ("uniform", "zipf"):
        behind = inside[("klink-90", delays)] - inside[("lr", delays)]
        yield claim(f"lr behind klink-90, {delays} delays: difference of shares", behind, "≥", 0.05)


def _shares(seed: int, plan: Plan, delays: Delays) -> dict[str, tuple[float, float, int]]:
    hits: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    for query in range(plan.queries):
        rng = np.random.default_rng([seed, query, len(delays.name)])
        history, regression = EpochHistory(plan.history), LinearRegression(plan.history)
        for epoch in range(plan.epochs):
            seen = delays.draw(rng, plan.events_per_epoch)
            swept = float(delays.draw(rng, 1)[0])
            if epoch >= plan.epochs // 10:
                for name, guess in _guesses(history.delay(), regression.delay()).items():
                    hits.setdefault(name, []).append(guess.covers(swept))
                    widths.setdefault(name, []).append(guess.high_s - guess.low_s)
            history.add_many(len(seen), (float(seen.sum()), float((seen**2).sum()), float((seen**3).sum())))
            history.end_epoch()
            regression.add(swept)
    return {name: (float(np.mean(hits[name])), float(np.mean(widths[name])), len(hits[name])) for name in hits}


def _guesses(klink: Delay, lr: Delay) -> dict[str, _Guess]:
    return {
        "klink-95": _Guess(*klink.range_s(0.95)),
        "klink-90": _Guess(*klink.range_s(0.90)),
        "lr": _Guess(lr.mean_s - lr.sigma_s, lr.mean_s + lr.sigma_s),
    }
