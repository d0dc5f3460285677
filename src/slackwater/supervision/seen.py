"""What one look at the application found, for the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from slackwater.core.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slackwater.core.records import Ended, Ran
    from slackwater.endpoint.overview import Overview, QueryOverview
    from slackwater.supervision.alarms import Finding
    from slackwater.supervision.restarts import Supervised
    from slackwater.supervision.settings import Alarms


@dataclass(frozen=True, slots=True)
class Seen:
    """ended and ran are new since the last look; supervised is by query id."""

    overview: Overview
    ended: tuple[Ended, ...] = ()
    ran: tuple[Ran, ...] = ()
    supervised: Mapping[str, Supervised] = field(default_factory=dict)

    @property
    def now_wall_ts(self) -> float:
        return self.overview.wall_ts


class Rule(Protocol):
    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]: ...


def whose(query: QueryOverview) -> str:
    """What stays the same when a query is started again."""
    return query.query_id or query.key


def is_paused(query: QueryOverview) -> bool:
    return query.stage == Stage.PAUSED
