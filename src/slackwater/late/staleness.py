"""When to execute a window again (Aion 3.4): as seldom as a bound on its result's staleness allows.

    st = t·n / (T·N)

t is the time and n the number of late events since the window's last execution; T is the span in which late events are
taken (the allowed lateness) and N the number of late events in all. Times are seconds since the window was executed on
time, which is execution 0 and not counted. A result is stale up to the instant of the next execution, and that one
takes in what arrives at this very instant; so events that come together do no harm if they are executed at once. The
last execution is the final one, when the window is purged at T; it is left out if nothing came since the one before.

The paper finds the times by gradient descent. They follow from one fact: a later execution makes everything after it
less stale, so the greedy placement is the best one, and bisection over the bound balances it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_BOUND = 1e-6
_BISECTIONS = 50

Kind = Literal["late", "final"]


@dataclass(frozen=True, slots=True)
class LateCdf:
    """Which share of the late events has come by when: steps at `at_s`, ascending, up to `share`, the last one 1."""

    at_s: tuple[float, ...]
    share: tuple[float, ...]
    span_s: float

    @classmethod
    def of(cls, late: Iterable[tuple[float, float]], span_s: float) -> LateCdf:
        """From pairs of time and weight. What comes on time or after the span is none of the window's late events."""
        if not 0 < span_s < math.inf:
            raise ConfigurationError(f"a lateness span of {span_s!r} s: a positive number is needed.")
        weights: dict[float, float] = {}
        for at_s, weight in sorted(late):
            if 0 < at_s <= span_s and weight > 0:
                weights[at_s] = weights.get(at_s, 0.0) + weight
        total = math.fsum(weights.values())
        shares = [min(1.0, weight / total) for weight in accumulate(weights.values())]
        return cls(tuple(weights), tuple([*shares[:-1], 1.0] if shares else ()), span_s)

    def by(self, at_s: float) -> float:
        """The share that has come by `at_s`, what comes at this instant included."""
        place = bisect_right(self.at_s, at_s)
        return self.share[place - 1] if place else 0.0

    def before(self, at_s: float) -> float:
        """The share that came earlier than `at_s`."""
        place = bisect_left(self.at_s, at_s)
        return self.share[place - 1] if place else 0.0


def staleness(cdf: LateCdf, times: Iterable[float]) -> float:
    """The greatest staleness at any time up to the end of the span, with executions at `times`."""
    executed = (0.0, *times)
    worst = [(b - a) * (cdf.before(b) - cdf.by(a)) for a, b in pairwise(executed)]
    last = executed[-1]
    return max(*worst, 0.0, (cdf.span_s - last) * (cdf.by(cdf.span_s) - cdf.by(last))) / cdf.span_s


def fewest(cdf: LateCdf, bound: float) -> tuple[float, ...]:
    """The fewest execution times that keep the staleness at or below `bound` everywhere: each as late as it allows.

    None does with fewer: (t − a)·(F(t) − F(a)) falls as a grows, so by induction no placement that keeps the bound
    has its i-th execution after this one's i-th; when it has covered every event, so has this one. And there are never
    more than ⌈1/√bound⌉, whatever the distribution: √(Δt·ΔF) ≥ √bound between executions, and they add up to at most 1
    (Cauchy and Schwarz).
    """
    _check_bound(bound)
    return _greedy(cdf, bound, math.inf)


def least(cdf: LateCdf, executions: int) -> tuple[float, tuple[float, ...]]:
    """The least possible greatest staleness with at most so many executions, and their times.

    The number that `fewest` needs falls as the bound grows, so bisection finds the least bound that is enough.
    """
    _check_executions(executions)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if len(_greedy(cdf, middle, executions)) <= executions:
            high = middle
        else:
            low = middle
    times = _greedy(cdf, high, executions)
    return staleness(cdf, times), times


def deltat(cdf: LateCdf, executions: int) -> tuple[float, ...]:
    """For comparison: executions at equal distances in time."""
    _check_executions(executions)
    return tuple(cdf.span_s * place / executions for place in range(1, executions + 1))


def deltaev(cdf: LateCdf, executions: int) -> tuple[float, ...]:
    """For comparison: an execution each time the same number of late events has come."""
    _check_executions(executions)
    if not cdf.at_s:
        return ()
    # The shares are sums of floats: a hair below j/k is j/k.
    places = (bisect_left(cdf.share, place / executions - 1e-12) for place in range(1, executions + 1))
    return tuple(dict.fromkeys(cdf.at_s[place] for place in places))


def _greedy(cdf: LateCdf, bound: float, most: float) -> tuple[float, ...]:
    """`fewest`, given up after one more than `most`."""
    times: list[float] = []
    last = 0.0
    while len(times) <= most and cdf.by(last) < cdf.by(cdf.span_s):
        last = _until(cdf, bound * cdf.span_s, since_s=last, now_s=last)
        times.append(last)
    return tuple(times)


def _until(
    cdf: LateCdf, area: float, since_s: float, now_s: float, pending: float = 0.0, expected: float = 1.0
) -> float:
    """Until when (t − since)·n stays within `area`: `pending` events have come until now, then come those of the CDF.

    Never before `now_s` and never after the span.
    """
    at_s, share = cdf.at_s, cdf.share
    first = bisect_right(at_s, now_s)
    seen = share[first - 1] if first else 0.0

    def stale_after(place: int) -> float:
        return (at_s[place] - since_s) * (pending + expected * (share[place] - seen))

    place = bisect_right(range(len(at_s)), area, lo=first, key=stale_after)
    waiting = pending + (expected * (share[place - 1] - seen) if place > first else 0.0)
    limit = at_s[place] if place < len(at_s) else cdf.span_s
    if waiting > 0:
        limit = min(limit, since_s + area / waiting)
    return max(now_s, min(limit, cdf.span_s))


class StalenessTrigger:
    """Says of one past window when it is to be executed again, from the late events that do come.

    Staleness is measured with the events that came, so the bound does not hang on the prediction: when they come
    earlier or are more than `expected`, an execution is due earlier. N is the greater of `expected` and what has come;
    when fewer come, it is taken back as the window goes on, to what came and what is still to come. So the bound holds
    against the greater of the number expected and the number that came in the end.

    An execution is due halfway between `bound` and the least staleness that the same number of executions could have:
    lower than asked for at no cost, and with room for the noise that would otherwise ask for one execution more. The
    prediction serves for that, and for telling ahead when an execution will be due (pre-staging).
    """

    def __init__(self, bound: float, cdf: LateCdf, expected: float) -> None:
        _check_bound(bound)
        self._bound = bound
        self._cdf = cdf
        self._expected = expected
        self._target = _target(cdf, bound)
        self._last_s = 0.0
        self._seen = 0
        self._pending = 0
        self._ended = False

    @property
    def bound(self) -> float:
        return self._bound

    @property
    def pending(self) -> int:
        """Late events that no execution has taken in: with none, a final execution would change nothing."""
        return self._pending

    @property
    def span_s(self) -> float:
        """When the window is purged."""
        return self._cdf.span_s

    def replan(self, cdf: LateCdf, expected: float) -> None:
        """Go on with another prediction. The span is promised when the window begins and stays."""
        if cdf.span_s != self._cdf.span_s:
            raise ValueError(f"this window's span is {self._cdf.span_s} s, the new distribution's {cdf.span_s} s")
        self._cdf, self._expected, self._target = cdf, expected, _target(cdf, self._bound)

    def arrived(self, at_s: float, count: int = 1) -> None:
        """Late events have come. Tell before asking for the same instant: what it brings may make an execution due."""
        if self._ended or at_s > self._cdf.span_s:
            raise ValueError(f"late events after {at_s} s: the window is purged; they are dead letters")
        self._seen += count
        self._pending += count

    def executed(self, at_s: float) -> None:
        """An execution has fixed its input: it takes in all that has come. What comes while it runs is new."""
        self._last_s, self._pending = at_s, 0
        self._ended = at_s >= self._cdf.span_s

    def staleness(self, now_s: float) -> float:
        """With the N that is expected now."""
        if not self._pending:
            return 0.0
        return (now_s - self._last_s) * self._pending / (self._cdf.span_s * self._in_all(now_s))

    def next_s(self, now_s: float) -> float:
        """When the next execution will be due if events come as predicted; now, if it is due. Ask again whenever
        events have come, and at the time that was told.
        """
        area = self._target * self._cdf.span_s * self._in_all(now_s)
        return _until(self._cdf, area, self._last_s, now_s, self._pending, self._expected)

    def due(self, now_s: float) -> Kind | None:
        """The execution that is due now: a late one, or the final one, once, at the end of the span."""
        if self._ended:
            return None
        if now_s >= self._cdf.span_s:
            return "final"
        return "late" if self._pending and self.next_s(now_s) <= now_s else None

    def _in_all(self, now_s: float) -> float:
        """N: what came and what is still to come, but no more than was expected unless more has come already."""
        to_come = self._expected * (1.0 - self._cdf.by(now_s))
        return min(self._seen + to_come, max(self._expected, float(self._seen)))


def _target(cdf: LateCdf, bound: float) -> float:
    balanced, _ = least(cdf, max(1, len(_greedy(cdf, bound, math.inf))))
    return (min(balanced, bound) + bound) / 2


def _check_bound(bound: float) -> None:
    if not LEAST_BOUND <= bound <= 1:
        raise ConfigurationError(f"a staleness bound of {bound!r}: a number from {LEAST_BOUND:g} to 1 is needed.")


def _check_executions(executions: int) -> None:
    if executions < 1:
        raise ConfigurationError(f"{executions} executions: at least one is needed, the final one.")
