"""How often did a sweeping watermark become ingestible within the range that the scheduler had named before?

The scheduler is asked once a second while it runs; what counts for a window is the last range that it named before the
watermark was there. When that was, the generator's arrival rule says, not anything that the scheduler saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.bench.model import Accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slackwater.drivers.spark.handle import Expectation
    from slackwater.workloads.base import Oracle

CONFIDENCES = (0.95, 0.90)
_Window = tuple[str, int]


class Ranges:
    """What the scheduler expected, with the time at which it said so."""

    def __init__(self, confidence: float) -> None:
        self.confidence = confidence
        self._said: dict[_Window, list[tuple[int, Expectation]]] = {}

    def add(self, now_ms: int, expectations: Iterable[Expectation]) -> None:
        for expected in expectations:
            window = (expected.name, round(1000 * expected.window_end_event_ts))
            self._said.setdefault(window, []).append((now_ms, expected))

    def accuracy(self, oracles: Mapping[str, tuple[Oracle, int]], from_ms: int, to_ms: int) -> Accuracy:
        """Over the windows whose watermark became ingestible in [from_ms, to_ms); by name, an oracle and the delay.

        Queries without an oracle are left out.
        """
        inside, widths_s = 0, []
        for (name, end_ms), said in self._said.items():
            if name not in oracles:
                continue
            oracle, delay_ms = oracles[name]
            there_ms = oracle.ingestible_ms(end_ms + delay_ms)
            before = [expected for now_ms, expected in said if now_ms <= there_ms]
            if from_ms <= there_ms < to_ms and before:
                last = before[-1]
                inside += 1000 * last.from_wall_ts <= there_ms <= 1000 * last.to_wall_ts
                widths_s.append(last.to_wall_ts - last.from_wall_ts)
        count = len(widths_s)
        return Accuracy(
            confidence=self.confidence,
            count=count,
            inside=round(inside / count, 4) if count else None,
            range_s=round(sum(widths_s) / count, 4) if count else None,
        )
