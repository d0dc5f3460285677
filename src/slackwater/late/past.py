"""Windows that were executed on time and may still take late rows: which of them to execute again, and when they go.

Two clocks meet here. Staleness is felt by the reader of a result, so it is measured in wall time since the window was
executed. How long a window is kept follows the watermark, so that a query that catches up after a pause neither purges
windows whose rows it has not read yet, nor keeps them for ever. In a stream that keeps up the two run alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.late.staleness import StalenessTrigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slackwater.late.lateness import LatenessSketch
    from slackwater.late.staleness import Kind, LateCdf


@dataclass(slots=True)
class PastWindow:
    """`through`: the last batch whose rows an execution has taken in. `corrected`: before the final execution, too."""

    start_ms: int
    end_ms: int
    span_s: float
    on_time_events: int
    swept_s: float
    through: int
    trigger: StalenessTrigger
    corrected: bool = True
    last_s: float = 0.0
    late_events: int = 0
    pending: int = 0
    executions: int = 0
    expected: float = 0.0
    _waits: list[float] = field(default_factory=list)

    def over(self, watermark_ms: int) -> bool:
        return watermark_ms >= self.end_ms + self.span_s * 1000

    def arrived(self, events: int, now_s: float) -> None:
        self.late_events += events
        self.pending += events
        if not self._past_span(now_s):
            self.trigger.arrived(self._at(now_s), events)

    def due(self, now_s: float, watermark_ms: int, ahead_s: float = 0.0) -> Kind | None:
        """`ahead_s`: rows come in batches, the next one in so long, and it may bring more than the bound allows; so
        an execution that would be due by then is due now.
        """
        if not self.pending:
            return None
        if self.over(watermark_ms):
            return "final"
        if not self.corrected:
            return None
        if self._past_span(now_s):  # the watermark stands still: nothing is expected any more, all that came counts
            return "late" if now_s - self.last_s >= self.trigger.bound * self.span_s else None
        at_s = self._at(now_s)
        return "late" if self.trigger.next_s(at_s) <= at_s + ahead_s else None

    def next_s(self, now_s: float) -> float:
        """When the next execution will be due, as far as can be told now."""
        if not self.corrected:
            return self.swept_s + self.span_s
        if self._past_span(now_s):
            return max(now_s, self.last_s + self.trigger.bound * self.span_s)
        return self.swept_s + self.trigger.next_s(self._at(now_s))

    def executed(self, now_s: float, through: int) -> None:
        """An execution has fixed its input; what comes while it runs is new."""
        self._waits.append((now_s - self.last_s) * self.pending)
        self.last_s, self.through, self.pending = now_s, through, 0
        self.executions += 1
        if not self._past_span(now_s):
            self.trigger.executed(self._at(now_s))

    def not_executed(self, events: int, now_s: float) -> None:
        """It failed: its rows still wait."""
        self.executions -= 1
        self._waits.pop()
        self.late_events -= events
        self.arrived(events, now_s)

    def stalest(self) -> float:
        """The greatest staleness so far, against the late events that came or were expected, whichever are more."""
        in_all = max(self.expected, float(self.late_events))
        return max(self._waits, default=0.0) / (self.span_s * in_all) if in_all else 0.0

    def replan(self, sketch: LatenessSketch) -> None:
        cdf, expected = _outlook(sketch, self.span_s, self.on_time_events)
        self.trigger.replan(cdf, expected)
        self.expected = max(self.expected, expected)

    def _at(self, now_s: float) -> float:
        return max(0.0, now_s - self.swept_s)

    def _past_span(self, now_s: float) -> bool:
        return now_s - self.swept_s >= self.span_s


class PastWindows:
    """All of a query. The caller sees to it that one thread at a time is in here.

    bound: on the staleness of results; None: they are corrected once, when no more rows may come.
    """

    def __init__(self, bound: float | None) -> None:
        self.bound = bound
        self._windows: dict[int, PastWindow] = {}
        self.stalest = 0.0
        self.executions = 0

    def __contains__(self, start_ms: int) -> bool:
        return start_ms in self._windows

    def __iter__(self) -> Iterator[PastWindow]:
        return iter(self._windows.values())

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, start_ms: int) -> PastWindow | None:
        return self._windows.get(start_ms)

    def add(
        self,
        start_ms: int,
        end_ms: int,
        span_s: float,
        on_time_events: int,
        sketch: LatenessSketch,
        *,
        now_s: float,
        through: int,
    ) -> PastWindow:
        """A window was executed on time; it takes late rows for `span_s` after its end, by the watermark."""
        cdf, expected = _outlook(sketch, span_s, on_time_events)
        trigger = StalenessTrigger(1.0 if self.bound is None else self.bound, cdf, expected)
        corrected = self.bound is not None
        window = PastWindow(start_ms, end_ms, span_s, on_time_events, now_s, through, trigger, corrected)
        window.last_s, window.expected = now_s, expected
        self._windows[start_ms] = window
        return window

    def due(self, now_s: float, watermark_ms: int, ahead_s: float = 0.0) -> dict[Kind, list[PastWindow]]:
        found: dict[Kind, list[PastWindow]] = {}
        for window in self._windows.values():
            if (kind := window.due(now_s, watermark_ms, ahead_s)) is not None:
                found.setdefault(kind, []).append(window)
        return found

    def taking(self, watermark_ms: int) -> list[int]:
        """Starts of windows that take rows: their span is not over."""
        return [w.start_ms for w in self._windows.values() if not w.over(watermark_ms)]

    def kept(self, watermark_ms: int) -> list[int]:
        """Starts of windows that may not be purged yet: their span is not over, or rows wait to be executed."""
        return [w.start_ms for w in self._windows.values() if w.pending or not w.over(watermark_ms)]

    def purged_before(self, start_ms: int) -> list[PastWindow]:
        gone = [window for window in self._windows.values() if window.start_ms < start_ms]
        for window in gone:
            del self._windows[window.start_ms]
            self.stalest = max(self.stalest, window.stalest())
            self.executions += window.executions
        return gone

    def replan(self, sketch: LatenessSketch) -> None:
        for window in self._windows.values():
            window.replan(sketch)

    def wake_s(self, now_s: float) -> float:
        """When to look again, if nothing comes before."""
        return min((window.next_s(now_s) for window in self._windows.values() if window.pending), default=float("inf"))


def _outlook(sketch: LatenessSketch, span_s: float, on_time_events: int) -> tuple[LateCdf, float]:
    """The distribution of late events within the span, and how many a window with so many on time will have."""
    cdf = sketch.cdf(span_s)
    late = sketch.late_share - sketch.share_beyond(span_s)
    on_time = 1.0 - sketch.late_share
    return cdf, on_time_events * max(0.0, late) / on_time if on_time > 0 else 0.0


def pending_after(batches: Iterable[tuple[int, int]], through: int) -> int:
    """Rows of batches (pairs of id and rows) that no execution up to `through` has taken in."""
    return sum(rows for batch, rows in batches if batch > through)
