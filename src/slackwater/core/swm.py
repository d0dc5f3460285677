"""When will the sweeping watermark be ingestible? (Klink 3.1, on the lag of the maximum.)

Spark's watermark is `max(event time) − delay`, so a window closes once an event at or past `end + delay` can be
read. Each data batch tells the lag of the maximum: the wall time at which it fixed its offsets minus the largest
event time it saw. The lag takes the place of the paper's event delays (`epochs.py`): E[w] = deadline + E[lag].

Sources that let rows arrive in clumps (a file a minute, a rate source's whole seconds, a producer's linger) get a
sharper answer: maxima that differ by multiples of one step say exactly which clump brings the deadline, and what
is left to learn is how long after its last event a clump can be read. That is bisected between a batch that found
the clump there and one that came too early. Whoever always looks late sees a step that is too long, and would go on
being late by it: where much could be gained, a long step is put to the test.

Where the source tells when each event was ingested, Klink's own statistics serve: E[w] = deadline + E[d].
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from slackwater.core.epochs import Delay, EpochHistory

_MIN_STEP_S = 0.2
# Looks further apart than so many steps tell nothing of the step, and an absurd event time must not cost more.
_MOST_PARTS = 300
_TOLERANCE_S = 0.003
_MOST_CHANCE = 0.01
_MIN_CLUMP_SAMPLES = 4
_MARGIN_S = 0.02
_CLOSE_S = 0.05
_FORGET = 0.99
_WORTH_A_TEST_S = 1.5
_TESTS = 2
# Clocks that differ by more than so much are not set alike: what is learnt is how far a clump is behind the difference.
_SKEWED_S = 120.0
_SKEW_STEP_S = 60.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """Expected wall time of an event time, and its standard deviation.

    Before `held_wall_ts` no turn is worth it, however sure the rest: whoever brings the event will tell.
    """

    wall_ts: float
    sigma_s: float
    held_wall_ts: float = -math.inf

    def sure_wall_ts(self, sigmas: float) -> float:
        return max(self.wall_ts + sigmas * self.sigma_s, self.held_wall_ts)


class SwmEstimator:
    """Learns one input stream's lag; answers when an event time can be read."""

    def __init__(self, history: int = 400) -> None:
        self._lags = EpochHistory(history)
        self._clumps = _Clumps()

    def observe(self, offsets_wall_ts: float, max_event_ts: float) -> None:
        """One data batch: its offsets were fixed at this wall time, and this was its largest event time."""
        self._lags.add(offsets_wall_ts - max_event_ts)
        self._clumps.observe(offsets_wall_ts, max_event_ts)

    def missed(self, offsets_wall_ts: float, event_ts: float) -> None:
        """A batch at this wall time did not find an event that was expected by then."""
        self._clumps.missed(offsets_wall_ts, event_ts)

    def found_nothing(self) -> None:
        """A turn came, and no row was there."""
        self._clumps.found_nothing()

    def end_epoch(self) -> None:
        self._lags.end_epoch()

    def lag(self) -> Delay:
        return self._lags.delay()

    def arrival(self, event_ts: float) -> Arrival:
        """When an event at this event time, or the first one past it, is expected to be readable."""
        clump = self._clumps.arrival(event_ts)
        if clump is not None:
            return clump
        lag = self.lag()
        return Arrival(event_ts + lag.mean_s, lag.sigma_s)

    def interval(self, event_ts: float, confidence: float) -> tuple[float, float]:
        """From when to when it becomes readable with this confidence (Eq. 7)."""
        bracket = self._clumps.bracket(event_ts)
        if bracket is not None:
            return bracket
        low_s, high_s = self.lag().range_s(confidence)
        return event_ts + low_s, event_ts + high_s


class DelayEstimator:
    """Learns one input stream's network delays, which the sweeping watermark suffers like any event (Eq. 5)."""

    def __init__(self, history: int = 400) -> None:
        self._delays = EpochHistory(history)

    def observe(self, offsets_wall_ts: float, max_event_ts: float) -> None:
        """One event whose delay is known from a batch alone."""
        self._delays.add(offsets_wall_ts - max_event_ts)

    def observe_delays(self, count: int, total_s: float, squares: float, cubes: float) -> None:
        """Many events: their number, and the sums of their delays, of the squares and of the cubes."""
        self._delays.add_many(count, (total_s, squares, cubes))

    def missed(self, offsets_wall_ts: float, event_ts: float) -> None:
        """Nothing to learn: the delays of events tell all that is known."""

    def found_nothing(self) -> None:
        """Nothing to learn."""

    def end_epoch(self) -> None:
        self._delays.end_epoch()

    def lag(self) -> Delay:
        return self._delays.delay()

    def arrival(self, event_ts: float) -> Arrival:
        """When the watermark of this event time is expected."""
        delay = self.lag()
        return Arrival(event_ts + delay.mean_s, delay.sigma_s)

    def interval(self, event_ts: float, confidence: float) -> tuple[float, float]:
        """From when to when it arrives with this confidence (Eq. 7)."""
        low_s, high_s = self.lag().range_s(confidence)
        return event_ts + low_s, event_ts + high_s


class _Clumps:
    """Arrivals in steps of one size, if the maxima seen so far say so."""

    def __init__(self) -> None:
        self._maxima: deque[float] = deque(maxlen=12)
        self._step_s: float | None = None
        # How long after its last event a clump can be read: longer than `early`, where a batch missed it, and no
        # longer than `seen`, where one found it.
        self._early_s = 0.0
        self._seen_s = math.inf
        self._skew_s: float | None = None
        self._tests_left = _TESTS

    def observe(self, offsets_wall_ts: float, max_event_ts: float) -> None:
        if self._maxima and max_event_ts <= self._maxima[-1]:
            return
        lag_s = offsets_wall_ts - max_event_ts
        if self._skew_s is None:
            self._skew_s = math.floor(lag_s / _SKEW_STEP_S) * _SKEW_STEP_S if abs(lag_s) > _SKEWED_S else 0.0
        self._maxima.append(max_event_ts)
        before_s, self._step_s = self._step_s, _common_step(self._maxima)
        if before_s is None or self._step_s is None or abs(before_s - self._step_s) > _TOLERANCE_S:
            self._tests_left = _TESTS
        if self._step_s is not None:
            self._seen_s = min(self._seen_s, max(0.0, lag_s - self._skew_s))
            self._early_s = min(self._early_s * _FORGET, self._seen_s)

    def missed(self, offsets_wall_ts: float, event_ts: float) -> None:
        clump = self._clump(event_ts)
        after_s = offsets_wall_ts - clump - (self._skew_s or 0.0) if clump is not None else -1.0
        if after_s >= 0:
            self._early_s = max(self._early_s, after_s + _MARGIN_S)
            if self._early_s >= self._seen_s:
                self._seen_s = 2 * self._early_s

    def found_nothing(self) -> None:
        self._tests_left -= 1

    def arrival(self, event_ts: float) -> Arrival | None:
        clump = self._clump(event_ts)
        if clump is None or not math.isfinite(self._seen_s):
            return None
        skew_s = self._skew_s or 0.0
        if clump - event_ts > _WORTH_A_TEST_S and self._tests_left > 0:
            return Arrival(event_ts + skew_s + self._seen_s, _MARGIN_S / 2)
        between_s = self._seen_s - self._early_s
        explore = between_s > max(_CLOSE_S, self._seen_s / 8)
        settle_s = self._early_s + between_s / 2 if explore else self._seen_s
        return Arrival(clump + skew_s + settle_s, max(_MARGIN_S / 2, between_s / 8))

    def bracket(self, event_ts: float) -> tuple[float, float] | None:
        """Between the last batch that came too early and the first that found it: certain, if the source is regular."""
        clump = self._clump(event_ts)
        if clump is None or not math.isfinite(self._seen_s):
            return None
        # A batch tells when it had fixed its offsets, which was a little before.
        settled = clump + (self._skew_s or 0.0)
        return settled + self._early_s - 2 * _MARGIN_S, settled + self._seen_s

    def _clump(self, event_ts: float) -> float | None:
        if self._step_s is None:
            return None
        last = self._maxima[-1]
        return last + math.ceil((event_ts - last) / self._step_s - 1e-6) * self._step_s


def _common_step(maxima: deque[float]) -> float | None:
    """The greatest step of which all differences are multiples, to a few milliseconds; None if there is none.

    None, too, where differences without any step would look as regular in more than one case of a hundred.
    """
    if len(maxima) < _MIN_CLUMP_SAMPLES:
        return None
    differences_s = [b - a for a, b in pairwise(maxima)]
    span_s, smallest_s = maxima[-1] - maxima[0], min(differences_s)
    for parts in range(1, math.floor(min(smallest_s / _MIN_STEP_S, _MOST_PARTS)) + 1):
        counts = [round(difference_s * parts / smallest_s) for difference_s in differences_s]
        step_s = span_s / sum(counts)
        if all(abs(d - n * step_s) <= _TOLERANCE_S for d, n in zip(differences_s, counts, strict=True)):
            by_chance = parts * (2 * _TOLERANCE_S / step_s) ** (len(differences_s) - 1)
            return step_s if by_chance < _MOST_CHANCE else None
    return None
