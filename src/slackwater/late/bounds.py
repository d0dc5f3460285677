"""How long after its end a window takes rows: as long as was said, or as long as late rows come (Aion 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.late.lateness import LatenessHistory, LatenessSketch, events_needed
from slackwater.late.windows import Duration, duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

# What is very late is seen late: the history must span the bound so many times before it is believed.
_SPANS: Final = 3.0
_BLOCKS: Final = 20


@dataclass(frozen=True, slots=True)
class Predicted:
    """Learn the allowed lateness: it covers a share of all events, `coverage`, at a level of `confidence`.

    initially: the bound by which results are kept fresh until enough was seen. Nothing is purged before.
    """

    coverage: float = 0.99
    confidence: float = 0.95
    initially: Duration = "1 hour"

    def __post_init__(self) -> None:
        events_needed(self.coverage, self.confidence)


class _State(msgspec.Struct):
    since_ms: int
    history: msgspec.Raw


class Bound:
    """The allowed lateness of windows that are executed on time now, and the lateness of all that came."""

    def __init__(self, allowed: Duration | Predicted, window_ms: int) -> None:
        self.predicted = allowed if isinstance(allowed, Predicted) else None
        given = allowed.initially if isinstance(allowed, Predicted) else allowed
        self._given_s = duration_ms(given, "an allowed lateness") / 1000
        if self._given_s <= 0:
            raise ConfigurationError(
                f"an allowed lateness of {given!r}: a positive one is needed. Where late rows are not wanted, "
                "Spark's own groupBy(window(...)) drops them."
            )
        self._block_s = window_ms / 1000
        self._history = LatenessHistory(blocks=_BLOCKS, block_s=self._block_s)
        self._since_ms: int | None = None
        self._now_ms = 0

    def seen(self, events_by_lateness_s: Mapping[float, int], watermark_ms: int) -> None:
        """Events of a batch by their lateness against the watermark that it began with, dead letters too."""
        sketch = LatenessSketch()
        for lateness_s, events in events_by_lateness_s.items():
            sketch.add(lateness_s, events)
        self._since_ms = watermark_ms if self._since_ms is None else self._since_ms
        self._now_ms = max(self._now_ms, watermark_ms)
        self._history.add(sketch, watermark_ms / 1000)

    def sketch(self) -> LatenessSketch:
        return self._history.sketch()

    @property
    def span_s(self) -> float:
        """For windows executed on time from now on."""
        learnt = self._learnt_s()
        return self._given_s if learnt is None else learnt

    @property
    def purge_after_s(self) -> float | None:
        """For windows of which nothing is known; None: nothing may be purged, too little was seen."""
        return self._given_s if self.predicted is None else self._learnt_s()

    def _learnt_s(self) -> float | None:
        if self.predicted is None or self._since_ms is None:
            return None
        found = self._history.allowed_lateness(self.predicted.coverage, self.predicted.confidence)
        if found is None or (self._now_ms - self._since_ms) / 1000 < _SPANS * found:
            return None
        return max(found, 1e-3)

    def to_json(self) -> bytes:
        return msgspec.json.encode(_State(self._since_ms or 0, msgspec.Raw(self._history.to_json())))

    def restore(self, text: bytes) -> None:
        """Go on with what an earlier run had learnt. Raises msgspec.DecodeError for what is no such thing."""
        state = msgspec.json.decode(text, type=_State)
        self._history = LatenessHistory.from_json(bytes(state.history), blocks=_BLOCKS, block_s=self._block_s)
        self._since_ms = state.since_ms
