"""All that an explanation of one query rests on, gathered at one instant from the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.core.engine import Engine
    from slackwater.core.history import Entry
    from slackwater.core.model import Stage
    from slackwater.core.query import QueryState
    from slackwater.core.records import Left, Ran
    from slackwater.endpoint.overview import QueryOverview

_STORY = 400


@dataclass(frozen=True, slots=True)
class Running:
    """A turn under way. `waited_s`: how long its query had stood at the gate before."""

    key: str
    name: str
    stage: Stage
    lane: int
    reason: str
    granted_wall_ts: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """windowed: it waits for watermarks. eligible_from_wall_ts: no turn before, by its own trigger or after a vain one.

    wanted_since_wall_ts: since when the policy has wanted a turn that no lane was free for. pending_end_event_ts: the
    end of a window that one more batch would emit. ran is of all queries, left and story of this one; oldest first.
    """

    now_wall_ts: float
    query: QueryOverview
    policy: str
    enforces: bool
    gates_open: bool
    confidence: float
    lanes: int
    windowed: bool
    min_interval_s: float = 0.0
    eligible_from_wall_ts: float = 0.0
    paused_wall_ts: float | None = None
    awaited: bool = False
    wanted_since_wall_ts: float | None = None
    pending_end_event_ts: float | None = None
    turn: Running | None = None
    others: tuple[Running, ...] = ()
    ran: tuple[Ran, ...] = ()
    left: tuple[Left, ...] = ()
    story: tuple[Entry, ...] = ()


def account_of(engine: Engine, state: QueryState, query: QueryOverview, now_wall_ts: float, *, open_: bool) -> Account:
    """Of one query now. Reads only; the scheduler may be deciding meanwhile. open_: its gates are."""
    key = state.facts.key
    story = tuple(engine.story(key, _STORY))
    running = [_running(other) for view in engine.views if (other := engine.state(view.key)) is not None]
    turns = [turn for turn in running if turn is not None]
    view = next((view for view in engine.views if view.key == key), None)
    return Account(
        now_wall_ts=now_wall_ts,
        query=query,
        policy=engine.policy.name,
        enforces=engine.policy.enforces,
        gates_open=open_,
        confidence=engine.settings.confidence,
        lanes=engine.capacity.lanes,
        windowed=state.windowed,
        min_interval_s=state.facts.min_interval_s,
        eligible_from_wall_ts=state.eligible_from_wall_ts,
        paused_wall_ts=state.paused_wall_ts,
        awaited=view is not None and view.awaited,
        wanted_since_wall_ts=_wanted_since(story, key),
        pending_end_event_ts=view.pending_end_event_ts if view is not None else None,
        turn=next((turn for turn in turns if turn.key == key), None),
        others=tuple(turn for turn in turns if turn.key != key),
        ran=tuple(engine.records.ran.since(0)),
        left=tuple(left for left in engine.records.left.since(0) if left.key == key),
        story=story,
    )


def _running(state: QueryState) -> Running | None:
    turn, facts = state.turn, state.facts
    if turn is None:
        return None
    return Running(facts.key, facts.name, turn.stage, turn.lane, turn.reason, turn.granted_wall_ts, turn.waited_s)


def _wanted_since(story: tuple[Entry, ...], key: str) -> float | None:
    """When its next turn was planned, unless it was granted since."""
    for entry in reversed(story):
        if entry.key == key and entry.kind in ("planned", "requested"):
            return entry.wall_ts if entry.kind == "planned" else None
    return None
