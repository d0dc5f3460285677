"""The engine: a driver's report in, commands out. Knows nothing of Spark, threads or clocks.

A policy suggests; the engine grants. It keeps lanes, turns (a data batch, then the sweep batch that emits), the
anti-starvation bound and the leases, whatever the policy says, and it survives any policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal

from slackwater.core.asking import Asking, Metrics
from slackwater.core.chains import Chains
from slackwater.core.history import Entry, History
from slackwater.core.lanes import AdaptiveLanes
from slackwater.core.model import Capacity, Choice, Commands, Grant, Memory, Snapshot, Stage
from slackwater.core.orders import Orders
from slackwater.core.query import QueryState
from slackwater.core.records import Ended, Ran, Records
from slackwater.core.turn import Turn
from slackwater.errors import ConfigurationError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.core.model import BatchReport, Policy, QueryView, Report
    from slackwater.core.words import Heard, Words

_SHORTEST_WAKE_S = 0.01
_LONGEST_WAKE_S = 0.5
_CLASS_STEP = 1e6
_URGENCY_LIMIT = 1e5
_SWEEP_FIRST = -2.5e5
_CLOCK_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine treats every policy.

    lanes: how many turns run at once; "auto" keeps the cores busy.
    max_wait_s: nobody waits longer for a turn once a lane is free.
    target_latency_s: for queries without windows that name none.
    hold_for_readers: a query without windows that names no latency waits until a window of its readers needs its rows,
    instead of the target latency; else it keeps to both.
    confidence: how sure the sweeping watermark's arrival must be before a turn is spent on it.
    lease_s / idle_lease_s: a turn that runs longer, or shows no running task for so long, stops counting as a
    lane: user code in it may be waiting for a query that needs one.
    """

    lanes: int | Literal["auto"] = "auto"
    max_wait_s: float = 30.0
    target_latency_s: float = 2.0
    hold_for_readers: bool = False
    confidence: float = 0.95
    lease_s: float = 30.0
    idle_lease_s: float = 2.0
    history: int = 2000

    def __post_init__(self) -> None:
        if self.lanes != "auto" and not (isinstance(self.lanes, int) and self.lanes >= 1):
            raise ConfigurationError(f"lanes={self.lanes!r}: a number from 1 up, or 'auto', is needed.")
        if not 0.5 <= self.confidence < 1:
            raise ConfigurationError(f"confidence={self.confidence!r}: a share from 0.5 up to below 1 is needed.")
        for name in ("max_wait_s", "target_latency_s", "lease_s", "idle_lease_s"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigurationError(f"{name}={value!r}: a positive number of seconds is needed.")


_OVERDUE, _AWAITED, _CHOSEN = range(3)
# A turn that is wanted: why, the class, the lesser first, the key. They compare in the order of granting.
_Want = tuple[int, int, float, str]
_KEY: Final = 3


class Engine:
    """Feed it reports in order of time; it answers with commands.

    `metrics` computes what a policy declares in `needs`; without it such a policy falls back like one that raises.
    """

    def __init__(
        self,
        policy: Policy,
        fallback: Policy,
        settings: EngineSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings()
        self.history = History(self.settings.history)
        self.records = Records()
        self.orders = Orders(self.history)
        self._asking = Asking(fallback, metrics, self.history)
        self._chains = Chains()
        self._queries: dict[str, QueryState] = {}
        self._lanes = AdaptiveLanes()
        self._capacity = Capacity(cores=0, lanes=1)
        self._sigmas = NormalDist().inv_cdf(self.settings.confidence)
        self._ahead_s: float | None = None  # of the wall clock before the steady one
        self._views: tuple[QueryView, ...] = ()
        self._ordered: tuple[QueryState, ...] = ()
        self._reasons: dict[str, str] = {}
        self._planned: set[str] = set()
        self._memory_now: Memory | None = None

    # ---- what others may ask ----------------------------------------------------------------------------------

    @property
    def views(self) -> tuple[QueryView, ...]:
        """The queries as the policy saw them last."""
        return self._views

    @property
    def capacity(self) -> Capacity:
        """As of the last report."""
        return self._capacity

    @property
    def memory(self) -> Memory | None:
        """As of the last report."""
        return self._memory_now

    def state(self, key: str) -> QueryState | None:
        return self._queries.get(key)

    def find(self, query: str) -> QueryState:
        """A query by its key, its id or its name."""
        states = tuple(self._queries.values())
        for state in states:
            if query in (state.facts.key, state.facts.query_id, state.facts.name):
                return state
        raise unknown_name("query", query, [state.facts.name for state in states])

    def reason(self, key: str) -> str:
        return self._reasons.get(key, "")

    def story(self, key: str | None = None, limit: int = 50) -> list[Entry]:
        return self.history.recent(key, limit)

    def kept(self) -> dict[str, int]:
        """How many entries it keeps of what, for whoever looks for leaks."""
        return {
            "queries": len(self._queries),
            "reasons": len(self._reasons),
            "planned": len(self._planned),
            "orders": len(self.orders),
            "readers": len(self._chains.readers),
            "history": len(self.history),
        }

    def switch(self, policy: Policy, now_wall_ts: float) -> None:
        """Another policy from the next step on; turns that run are finished, what was learnt stays."""
        self.history.add(now_wall_ts, "switched", "", f"from {self.policy.name} to {policy.name}")
        self.policy = policy
        self._asking.switched()

    def pause(self, query: str, now_wall_ts: float) -> None:
        self.orders.pause(self.find(query), self.policy, now_wall_ts)

    def resume(self, query: str, now_wall_ts: float) -> None:
        self.orders.resume(self.find(query), now_wall_ts)

    def set_class(self, query: str, priority_class: int, now_wall_ts: float) -> None:
        self.orders.set_class(self.find(query), priority_class, now_wall_ts)

    def hear(self, heard: tuple[Heard, ...]) -> None:
        """What the schedulers of neighbouring applications told last, from the next step on."""
        self._chains.hear(heard)

    def words(self) -> Words:
        """What they should be told: what its queries wait for upstream, and what they will bring downstream."""
        return self._chains.words()

    # ---- one step ---------------------------------------------------------------------------------------------

    def step(self, report: Report) -> Commands:
        self._heed_clock(report)
        self._observe(report)
        now = report.wall_ts
        self._chains.forward(now)
        grants: list[Grant] = []
        self._advance_turns(report, grants)
        lanes = self._lanes.lanes(report.cores) if self.settings.lanes == "auto" else self.settings.lanes
        self._capacity = Capacity(report.cores, lanes)
        free = self._free_lanes(lanes, report)
        snapshot = Snapshot(
            wall_ts=now,
            queries=self._views_at(now),
            lanes=lanes,
            lanes_free=len(free),
            cores=report.cores,
            memory=self._memory(report),
        )
        self._memory_now = snapshot.memory
        self._views = snapshot.queries
        choices = self._asking.choices(self.policy, snapshot)
        self.records.memory_rules(now, rules=any(choice.freeing for choice in choices.values()))
        self._reasons.update([(key, choice.reason) for key, choice in choices.items()])
        if self.policy.enforces:
            waiting = self._grant_turns(snapshot, choices, free, grants)
            self._lanes.observe(
                now,
                cores=report.cores,
                tasks=report.ordinary_tasks + sum([seen.running_tasks for seen in report.queries]),
                cpu_s=report.cpu_s,
                processors=report.processors,
                pressed=waiting > 0,
                elastic=report.elastic,
            )
        return Commands(
            grants=tuple(grants),
            urgencies=self._urgencies(choices),
            freeing=frozenset([key for key, choice in choices.items() if choice.freeing]),
            enforce=self.policy.enforces,
            wake_after_s=max(_SHORTEST_WAKE_S, self._next_wake(choices, now) - now),
        )

    def _heed_clock(self, report: Report) -> None:
        """When somebody sets the clock, nobody waits for the hour to come round again, nor is an hour overdue."""
        if report.steady_s is None:
            return
        ahead_s = report.wall_ts - report.steady_s
        stepped_s = ahead_s - self._ahead_s if self._ahead_s is not None else 0.0
        if self._ahead_s is not None and abs(stepped_s) < _CLOCK_STEP_S:
            return  # measured against the time of the last step, so that small ones add up to one
        self._ahead_s = ahead_s
        if stepped_s:
            self.history.add(report.wall_ts, "trouble", "", f"the clock was set by {stepped_s:+.1f} s")
            self._asking.step_clock(stepped_s)
            self._chains.hear(())
            for state in self._queries.values():
                state.step_clock(stepped_s)

    def _views_at(self, now: float) -> tuple[QueryView, ...]:
        readers = self._chains.readers
        if not readers:
            return tuple([state.view(now) for state in self._ordered])
        return tuple([state.view(now, readers.get(state.writes or "", ())) for state in self._ordered])

    def _memory(self, report: Report) -> Memory | None:
        """The heap as the last collection left it, and at least what the state stores hold."""
        if report.heap_max_bytes <= 0:
            return None
        state = sum([query.last_batch.state_bytes for query in self._ordered if query.last_batch is not None])
        return Memory(max(report.heap_live_bytes, state), report.heap_max_bytes)

    def _next_wake(self, choices: dict[str, Choice], now: float) -> float:
        """When to look again if nothing happens: as the policy says, or when somebody may start or has to."""
        found = now + _LONGEST_WAKE_S
        for choice in choices.values():
            wake = choice.wake_wall_ts
            if wake is not None and now < wake < found:
                found = wake
        longest_s = self._max_wait_s + _SHORTEST_WAKE_S
        for state in self._ordered:
            if state.turn is None:
                if now < state.eligible_from_wall_ts < found:
                    found = state.eligible_from_wall_ts
                if now < state.last_turn_wall_ts + longest_s < found:
                    found = state.last_turn_wall_ts + longest_s
        return found

    @property
    def _max_wait_s(self) -> float:
        own = getattr(self.policy, "max_wait_s", None)
        # A bound that is no number would hold for nobody.
        return float(own) if isinstance(own, int | float) and 0 < own < math.inf else self.settings.max_wait_s

    def _observe(self, report: Report) -> None:
        now, queries, chained_anew = report.wall_ts, self._queries, False
        for seen in report.queries:
            state = queries.get(seen.key)
            if state is None:
                if seen.facts is None:
                    continue
                state = QueryState(
                    seen.facts,
                    now,
                    self.settings.target_latency_s,
                    self._sigmas,
                    hold_for_readers=self.settings.hold_for_readers,
                )
                queries[seen.key], chained_anew = state, True
                self.orders.apply_to(state)
            if not seen.batches:
                state.observe(seen, now)
                continue
            chains = state.reads, state.writes
            for left in state.observe(seen, now):
                self.records.left.add(left)
            chained_anew = chained_anew or chains != (state.reads, state.writes)
            for batch in seen.batches:
                self.records.ran.add(_ran(state, batch))
                self.history.add(
                    now,
                    "observed",
                    seen.key,
                    f"batch {batch.batch_id}: {batch.rows} rows in {batch.duration_s:.2f} s",
                )

        errors = {seen.key: seen.error for seen in report.queries}
        for key in queries.keys() - {seen.key for seen in report.queries if seen.alive}:
            gone = queries.pop(key).facts
            self.records.ended.add(Ended(key, gone.name, gone.query_id, now, errors.get(key)))
            self._reasons.pop(key, None)
            self._planned.discard(key)
            chained_anew = True
        if chained_anew:
            self._ordered = tuple(queries[key] for key in sorted(queries))
            self._chains.link(self._ordered)

    def _advance_turns(self, report: Report, grants: list[Grant]) -> None:
        """A query back at its gate has finished a granted batch: sweep now if that emits, else its turn is over."""
        now = report.wall_ts
        for state in [state for state in self._queries.values() if state.turn is not None]:
            turn, seen = state.turn, state.report
            if state.lost_grant(now):
                state.drop_turn()
            if turn is None or seen is None or not seen.waiting or seen.wait_no <= turn.wait_no:
                continue
            if turn.stage is Stage.DATA and turn.sweep and state.sweep_pending and not report.gates_open:
                self._grant(state, Stage.SWEEP, now, "the watermark has passed a window: emit it", turn.lane, grants)
            elif turn.stage is Stage.DATA and turn.batches > 1 and state.has_more and not report.gates_open:
                more = Choice(state.facts.key, True, 0.0, "", sweep=turn.sweep, batches=turn.batches - 1)
                self._grant(state, Stage.DATA, now, "its turn goes on: more rows wait", turn.lane, grants, more)
            else:
                state.end_turn(now)

    def room_for(self, seconds: float, now: float) -> bool:
        """Will a lane stay free for so long? What no query's turn needs can serve other work meanwhile."""
        busy = sum(
            view.stage in (Stage.DATA, Stage.SWEEP) or view.sweep_pending or view.swm_wall_ts <= now + seconds
            for view in self.views
            if view.stage is not Stage.PAUSED
        )
        return busy < self._capacity.lanes

    def _free_lanes(self, lanes: int, report: Report) -> list[int]:
        """Lane numbers without a turn; one whose turn outlived its lease is free again.

        Without any core no task can run, and that none does says nothing about a turn.
        """
        now = report.wall_ts
        busy = set()
        for state in self._queries.values():
            turn = state.turn
            if turn is None:
                continue
            overdue = now - turn.granted_wall_ts > max(self.settings.lease_s, 5 * turn.expected_s)
            quiet_s = now - max(state.tasks_seen_wall_ts, turn.granted_wall_ts)
            idle = report.cores > 0 and quiet_s > self.settings.idle_lease_s
            if not (overdue or idle):
                busy.add(turn.lane)
        return [lane for lane in range(lanes) if lane not in busy][: max(0, lanes - len(busy))]

    def _grant_turns(self, snapshot: Snapshot, choices: dict[str, Choice], free: list[int], grants: list[Grant]) -> int:
        """Grant what the free lanes can take; returns how many turns wait on."""
        now = snapshot.wall_ts
        wanted = list(self._wanted(snapshot, choices))
        for want in sorted([want for want in wanted if want[_KEY] not in self._planned]):
            self._planned.add(want[_KEY])
            self.history.add(now, "planned", want[_KEY], f"a turn: {self._why(want, choices)}")
        waiting = len(wanted)
        heapify(wanted)
        while free and wanted:
            want = heappop(wanted)
            choice = choices.get(want[_KEY])
            # Whoever waited too long takes the first lane that is free, wherever the policy wants it.
            asked = choice.lane if choice is not None and want[0] != _OVERDUE else None
            lane = free[0] if asked is None else asked % snapshot.lanes
            if lane in free:
                free.remove(lane)
                waiting -= 1
                self._grant(self._queries[want[_KEY]], Stage.DATA, now, self._why(want, choices), lane, grants, choice)
        return waiting

    def _wanted(self, snapshot: Snapshot, choices: dict[str, Choice]) -> Iterator[_Want]:
        """Whoever waited too long, then whoever somebody awaits, then by class as the policy says."""
        now, longest_s = snapshot.wall_ts, self._max_wait_s
        for view in snapshot.queries:
            if not view.eligible:
                continue
            key, waited_s = view.key, now - view.last_turn_wall_ts
            if waited_s > longest_s:
                yield _OVERDUE, 0, -waited_s, key
            elif view.awaited:
                yield _AWAITED, 0, 0.0, key
            elif (choice := choices.get(key)) is not None and choice.start:
                yield _CHOSEN, view.priority_class, choice.urgency, key

    def _why(self, want: _Want, choices: dict[str, Choice]) -> str:
        kind, _, order, key = want
        if kind == _OVERDUE:
            return f"waited {-order:.0f} s, the longest allowed is {self._max_wait_s:.0f} s"
        return choices[key].reason if kind == _CHOSEN else "somebody awaits all its available data"

    def _grant(
        self,
        state: QueryState,
        stage: Stage,
        now: float,
        reason: str,
        lane: int,
        grants: list[Grant],
        choice: Choice | None = None,
    ) -> None:
        seen = state.report
        if seen is None:
            return
        key = state.facts.key
        rows = state.backlog_rows(now)
        expected = state.cost.sweep_s if stage is Stage.SWEEP else state.cost.batch_s(rows)
        due = stage is Stage.DATA and state.view(now).swm_sure_wall_ts <= now
        aim = state.next_window_end() if due else None
        sweep, batches = (choice.sweep, choice.batches) if choice is not None else (True, 1)
        waited_s = max(0.0, now - seen.since_wall_ts)
        state.begin_turn(Turn(stage, now, seen.wait_no, expected, sweep, aim, lane, batches, reason, waited_s))
        grants.append(Grant(key, seen.wait_no, stage, reason))
        self._reasons[key] = reason
        self._planned.discard(key)
        self.history.add(now, "requested", key, f"{stage}: {reason}")

    def _urgencies(self, choices: dict[str, Choice]) -> dict[str, float]:
        """For tasks of running batches: by class, sweeps first, then as the policy says."""
        out: dict[str, float] = {}
        for key, state in self._queries.items():
            choice, facts, turn = choices.get(key), state.facts, state.turn
            # A query that no gate holds runs when it likes: among the others' tasks it stands in the middle.
            urgency = choice.urgency if choice is not None and facts.gated else 0.0
            if not -_URGENCY_LIMIT < urgency < _URGENCY_LIMIT:
                urgency = math.copysign(_URGENCY_LIMIT, urgency)
            base = facts.options.priority_class * _CLASS_STEP
            if turn is not None and turn.stage is Stage.SWEEP:
                base += _SWEEP_FIRST
            out[key] = base + urgency
        return out


def _ran(state: QueryState, batch: BatchReport) -> Ran:
    turn, facts = state.turn, state.facts
    return Ran(
        key=facts.key,
        name=facts.name,
        stage=turn.stage if turn is not None else Stage.UNGATED,
        lane=turn.lane if turn is not None else None,
        reason=turn.reason if turn is not None else "nobody held it",
        batch_id=batch.batch_id,
        began_wall_ts=batch.ended_wall_ts - batch.duration_s,
        ended_wall_ts=batch.ended_wall_ts,
        rows=batch.rows,
        waited_s=turn.waited_s if turn is not None else 0.0,
    )
