"""What a query's reports say that a user should know, and that no scheduler can mend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slackwater.core.model import Report

FAR_AHEAD_S: Final = 86_400.0
_LATEST_TS: Final = 253_402_300_799.0  # the end of the year 9999, where Python's dates end


class Oddities:
    """Looks at every report; each thing is told once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._told: set[str] = set()

    def notes(self, report: Report) -> list[str]:
        """A watermark more than a day ahead of the clock: one row with an absurd event time is enough."""
        found = []
        for query in report.queries:
            if query.facts is not None:
                self._names[query.key] = query.facts.name
            watermark = query.next_watermark_event_ts
            if watermark is None or watermark < report.wall_ts + FAR_AHEAD_S or query.key in self._told:
                continue
            self._told.add(query.key)
            when = datetime.fromtimestamp(min(watermark, _LATEST_TS), UTC).date()
            found.append(
                f"query {self._names.get(query.key, query.key)}: its watermark stands at {when}, moved there by a row "
                "with that event time. Spark has closed every window before it and drops all rows from now on as late. "
                "Stop the query, leave such rows out before withWatermark (slackwater.kafka.Screen), and start it with "
                "a new checkpoint: the watermark is in the old one. Other queries are not affected."
            )
        alive = {query.key for query in report.queries}
        self._names = {key: name for key, name in self._names.items() if key in alive}
        self._told &= alive
        return found
