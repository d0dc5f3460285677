"""The routes of an endpoint by which an application is steered and explained."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from slackwater.control.account import account_of
from slackwater.control.answers import (
    ClassOrder,
    Done,
    LeftWindow,
    PolicyAbout,
    PolicyOrder,
    QueryAnswer,
    QueryOrder,
    RanBatch,
    StoryLine,
)
from slackwater.control.explaining import explain
from slackwater.endpoint.limits import Bucket, Rate
from slackwater.endpoint.server import Refused
from slackwater.errors import AttachError, ConfigurationError
from slackwater.policies.registry import describe, known_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slackwater.core.engine import Engine
    from slackwater.core.model import Knob
    from slackwater.core.query import QueryState
    from slackwater.endpoint.overview import Overview
    from slackwater.endpoint.server import Change, Parameters, Read

# Each order wakes the scheduler: a script that goes through hundreds of queries is slowed down, not the scheduler.
ORDERS = Rate(per_s=10.0, burst=60)
_MOST_WAITING = 8
_MOST_TOLD = 100
_STORY = 50

T = TypeVar("T")


class Steered(Protocol):
    """What a handle can be told. Each waits for the scheduler, and raises AttachError when that does not answer."""

    def pause(self, query: str) -> None: ...

    def resume(self, query: str) -> None: ...

    def set_class(self, query: str, priority_class: int) -> None: ...

    def switch(self, policy: str, *, knob: Knob, memory_bound: float, period_s: float | None) -> None: ...


def reading(engine: Engine, overview: Callable[[], Overview]) -> Mapping[str, Read]:
    """What can be asked: one query with its explanation, and the policies there are."""

    def query(parameters: Parameters) -> QueryAnswer:
        return _answer(engine, overview(), _found(engine, parameters.get("key", "")))

    def policies(_: Parameters) -> list[PolicyAbout]:
        return [PolicyAbout(name=name, about=describe(name)) for name in known_policies()]

    # A name may have any character: a slash, and a line break, which no path can have.
    return {"/api/query/{key:path}": query, "/api/query": query, "/api/policies": policies}


def steering(
    handle: Steered, engine: Engine, rate: Rate = ORDERS, clock: Callable[[], float] = time.monotonic
) -> Mapping[str, Change]:
    """What can be ordered. Each is carried out, or refused with the reason, before it is answered."""
    gate = _Gate(rate, clock)

    def pause(body: bytes) -> Done:
        order = _decoded(body, QueryOrder)
        with gate.passed():
            found = _found(engine, order.query)
            _carried_out(lambda: handle.pause(found.facts.key))
        return _done("paused", found)

    def resume(body: bytes) -> Done:
        order = _decoded(body, QueryOrder)
        with gate.passed():
            found = _found(engine, order.query)
            _carried_out(lambda: handle.resume(found.facts.key))
        return _done("resumed", found)

    def set_class(body: bytes) -> Done:
        order = _decoded(body, ClassOrder)
        with gate.passed():
            found = _found(engine, order.query)
            _carried_out(lambda: handle.set_class(found.facts.key, order.priority_class))
        return _done(f"put into class {order.priority_class}", found)

    def policy(body: bytes) -> Done:
        order = _decoded(body, PolicyOrder)
        with gate.passed():
            _carried_out(
                lambda: handle.switch(
                    order.policy, knob=order.knob, memory_bound=order.memory_bound, period_s=order.period_s
                )
            )
        return Done(done=f"policy {order.policy}")

    return {"/api/pause": pause, "/api/resume": resume, "/api/class": set_class, "/api/policy": policy}


class _Gate:
    """Lets no more orders through than the scheduler should be woken for, nor more than may wait for it at once."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._bucket = Bucket(rate, clock)
        self._lock = threading.Lock()
        self._waiting = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Refused("other orders still wait for the scheduler; ask again", 503, retry_after_s=1.0)
            wait_s = self._bucket.take()
            if wait_s > 0:
                raise Refused("too many orders; ask again later", 429, retry_after_s=wait_s)
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(f"the request is not understood: {error}") from error


def _found(engine: Engine, query: str) -> QueryState:
    try:
        return engine.find(query)
    except ConfigurationError as error:
        raise Refused(str(error), 404) from error


def _carried_out(order: Callable[[], None]) -> None:
    try:
        order()
    except ConfigurationError as error:
        raise Refused(str(error)) from error
    except AttachError as error:
        raise Refused(str(error), 503, retry_after_s=1.0) from error


def _done(what: str, state: QueryState) -> Done:
    return Done(done=what, query=state.facts.key, name=state.facts.name)


def _answer(engine: Engine, told: Overview, state: QueryState) -> QueryAnswer:
    key = state.facts.key
    query = next((query for query in told.queries if query.key == key), None)
    if query is None:
        raise Refused(f"nothing is known of {state.facts.name!r} yet; ask again", 503, retry_after_s=1.0)
    gates_open = told.scheduler is not None and told.scheduler.gates_open
    known = account_of(engine, state, query, told.wall_ts, open_=gates_open)
    return QueryAnswer(
        query=query,
        explanation="\n".join(explain(known)),
        story=tuple(StoryLine(wall_ts=e.wall_ts, kind=e.kind, what=e.what) for e in known.story[-_STORY:]),
        ran=tuple(RanBatch(**asdict(ran)) for ran in [r for r in known.ran if r.key == key][-_MOST_TOLD:]),
        left=tuple(
            LeftWindow(window_end_ts=left.window_end_event_ts, left_wall_ts=left.left_wall_ts, latency_s=left.latency_s)
            for left in known.left[-_MOST_TOLD:]
        ),
    )
