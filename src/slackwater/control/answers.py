"""What the routes of `control` take and answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from slackwater.core.history import Kind  # noqa: TC001 - msgspec reads annotations
from slackwater.core.model import Stage  # noqa: TC001
from slackwater.endpoint.overview import QueryOverview  # noqa: TC001


class QueryOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For pause and resume: a query by key, id or name."""

    query: str


class ClassOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: str
    priority_class: int = msgspec.field(name="class")


class PolicyOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not given takes the value that `attach` takes by itself."""

    policy: str
    knob: Literal["cost", "balanced", "latency"] = "balanced"
    memory_bound: float = 0.75
    period_s: float | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What was carried out. query: its key."""

    done: str
    query: str | None = None
    name: str | None = None


class PolicyAbout(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    about: str


class StoryLine(msgspec.Struct, frozen=True, kw_only=True):
    wall_ts: float
    kind: Kind
    what: str


class RanBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that ran; `core.records.Ran` says what each field means."""

    key: str
    name: str
    stage: Stage
    lane: int | None
    reason: str
    batch_id: int
    began_wall_ts: float
    ended_wall_ts: float
    rows: int
    waited_s: float


class LeftWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window of the query that left."""

    window_end_ts: float
    left_wall_ts: float
    latency_s: float


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One query: where it stands, why in words (paragraphs, one a line), and what happened last, the oldest first."""

    query: QueryOverview
    explanation: str
    story: tuple[StoryLine, ...] = ()
    ran: tuple[RanBatch, ...] = ()
    left: tuple[LeftWindow, ...] = ()
