"""A query's watermarked inputs: how far each has come, and when it will be as far as a window needs.

Spark takes a query's watermark from its inputs': under the min policy the last one decides, under max the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.downstream import Expects
from slackwater.core.swm import Arrival, DelayEstimator, SwmEstimator
from slackwater.core.words import Sight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.core.model import BatchReport, InputMaximum, QueryFacts

NEVER_EVENT_TS = 0.0


class Inputs:
    """In the order of Spark's plan.

    relearning: since the clock was set no batch has told a lag, so that nothing is known.
    looked_wall_ts: when a batch last took all that was there; 0: never.
    """

    def __init__(self, facts: QueryFacts) -> None:
        self.estimators: list[SwmEstimator | DelayEstimator] = [SwmEstimator() for _ in facts.input_delays_s]
        self.maxima_event_ts = [NEVER_EVENT_TS for _ in facts.input_delays_s]
        self.looked_wall_ts = 0.0
        self.relearning = False
        self._delays_s = facts.input_delays_s
        self._all_needed = facts.watermark_policy == "min"
        self._straddles_step = False  # the batch to be observed next began before the clock was set

    def __len__(self) -> int:
        return len(self.estimators)

    # ---- learning ---------------------------------------------------------------------------------------------

    def observe(self, batch: BatchReport, *, again: bool) -> None:
        """again: the batch may have run before, in a process that is gone."""
        # A batch that was admission-limited, re-run after a restart, or begun before the clock was set says nothing
        # about the stream's lag.
        telling = not batch.limited and not again and not self._straddles_step
        self._straddles_step = False
        for index, seen in enumerate(batch.inputs[: len(self.estimators)]):
            self._observe(index, seen, batch.offsets_wall_ts, telling=telling)
        if not batch.limited:
            self.looked_wall_ts = batch.offsets_wall_ts

    def _observe(self, index: int, seen: InputMaximum, offsets_wall_ts: float, *, telling: bool) -> None:
        """An input whose source tells ingestion times has Klink's own estimate from then on."""
        if seen.max_event_ts is not None:
            self.maxima_event_ts[index] = max(self.maxima_event_ts[index], seen.max_event_ts)
        known = self.estimators[index]
        if seen.delays is not None:
            if not isinstance(known, DelayEstimator):
                known = self.estimators[index] = DelayEstimator()
            known.observe_delays(*seen.delays)
        elif telling and seen.max_event_ts is not None:
            known.observe(offsets_wall_ts, seen.max_event_ts)
            self.relearning = False

    def end_epoch(self) -> None:
        """A window left."""
        for estimator in self.estimators:
            estimator.end_epoch()

    def found_nothing(self) -> None:
        """A turn came, and no row was there."""
        for estimator in self.estimators:
            estimator.found_nothing()

    def missed(self, batch: BatchReport, event_ts: float) -> None:
        """A batch that was to bring the watermark of this event time did not.

        Rows came, but not far enough: the estimate was early. No rows at all is a silent source.
        """
        for index, (delay_s, seen) in enumerate(zip(self._delays_s, batch.inputs, strict=False)):
            if seen.rows > 0 and self.maxima_event_ts[index] < event_ts + delay_s:
                self.estimators[index].missed(batch.offsets_wall_ts, event_ts + delay_s)

    def step_clock(self, by_s: float, *, running: bool) -> None:
        """The wall clock was set: lags against the old one are forgotten. running: a batch began before."""
        self.looked_wall_ts += by_s if self.looked_wall_ts > 0 else 0.0
        self.estimators = [SwmEstimator() if isinstance(known, SwmEstimator) else known for known in self.estimators]
        self._straddles_step = running
        self.relearning = True

    # ---- knowing ----------------------------------------------------------------------------------------------

    def arrival(self, event_ts: float, told: Callable[[int, float], Arrival | None]) -> Arrival | None:
        """When the watermark of this event time can be read; `told` knows better for some. None: without inputs."""
        arrivals = [
            told(index, event_ts + delay_s) or estimator.arrival(event_ts + delay_s)
            for index, (estimator, delay_s) in enumerate(zip(self.estimators, self._delays_s, strict=False))
        ]
        return self._deciding(arrivals) if arrivals else None

    def interval(self, event_ts: float, confidence: float) -> tuple[float, float] | None:
        """From when to when it can be read; None: not known."""
        found = [
            estimator.interval(event_ts + delay_s, confidence)
            for estimator, delay_s in zip(self.estimators, self._delays_s, strict=False)
        ]
        if not found:
            return None
        choose = max if self._all_needed else min
        return choose(low for low, _ in found), choose(high for _, high in found)

    def expects(self, sigmas: float) -> Expects:
        """By the statistics of what comes in, whatever its watermark's delay."""

        def arrival(event_ts: float) -> Arrival:
            return self._deciding(known.arrival(event_ts) for known in self.estimators)

        lag_s = max(known.lag().mean_s + 4 * known.lag().sigma_s for known in self.estimators)
        return Expects(arrival, lag_s, sigmas, min(self.maxima_event_ts))

    def sight(self, index: int) -> Sight | None:
        """What it had seen when it last took all that was there; a sweep that finds nothing new says so, too."""
        largest = self.maxima_event_ts[index]
        if self.looked_wall_ts <= 0 or largest <= NEVER_EVENT_TS:
            return None
        return Sight(self.looked_wall_ts, largest)

    @property
    def lags_s(self) -> tuple[float | None, ...]:
        """For each, how far its largest event time was behind when it was last looked at."""
        return tuple(
            self.looked_wall_ts - largest if largest > NEVER_EVENT_TS and self.looked_wall_ts > 0 else None
            for largest in self.maxima_event_ts
        )

    @property
    def newest_event_ts(self) -> float:
        return max(self.maxima_event_ts, default=NEVER_EVENT_TS)

    def _deciding(self, arrivals: Iterable[Arrival]) -> Arrival:
        choose = max if self._all_needed else min
        return choose(arrivals, key=lambda arrival: arrival.wall_ts)
