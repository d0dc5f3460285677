"""Tumbling and sliding windows in event time, in milliseconds; durations as Spark's users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from slackwater.errors import ConfigurationError

_SECOND, _HOUR = 1_000, 3_600_000
_UNITS = {
    "millisecond": 1,
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": _HOUR,
    "day": 24 * _HOUR,
    "week": 168 * _HOUR,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=$|[\s\d])")

Duration = str | float | timedelta


def duration_ms(given: Duration, what: str) -> int:
    """Of `10 minutes`, `1 minute 30 seconds`, a timedelta, or a number of seconds."""
    if isinstance(given, timedelta):
        return round(given.total_seconds() * 1000)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return round(given * 1000)
    text = str(given).strip().lower().removeprefix("interval ")
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        raise ConfigurationError(
            f"{what} of {given!r} is no duration. Write it as Spark does (`10 seconds`, `1 hour 30 minutes`; units: "
            f"{', '.join(_UNITS)}), or give seconds or a timedelta."
        )
    return round(sum(float(amount) * _UNITS[unit] for amount, unit in parts))


@dataclass(frozen=True, slots=True)
class Windows:
    """A window is known by its start: every slide begins one, and it lasts `size_ms`."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms < 1 or not 0 < self.slide_ms <= self.size_ms:
            raise ConfigurationError(
                f"windows of {self.size_ms} ms every {self.slide_ms} ms: a positive length and a slide that is "
                "positive and no longer than it are needed."
            )

    def end(self, start_ms: int) -> int:
        return start_ms + self.size_ms

    def swept(self, start_ms: int, watermark_ms: int) -> bool:
        """Has the watermark passed its end? As Spark: a row at the end belongs to the next window."""
        return self.end(start_ms) <= watermark_ms

    def first_start_after(self, time_ms: int) -> int:
        """The least start that is not below `time_ms`."""
        return -((self.offset_ms - time_ms) // self.slide_ms) * self.slide_ms + self.offset_ms
