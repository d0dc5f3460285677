"""One query as the engine knows it: learns from its batches, answers with a view for the policies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slackwater.core.cost import CostModel, RowCost
from slackwater.core.downstream import Downstream, Expects, Need
from slackwater.core.inputs import NEVER_EVENT_TS, Inputs
from slackwater.core.model import BatchReport, QueryFacts, QueryReport, QueryView, Stage
from slackwater.core.records import Left
from slackwater.core.swm import Arrival
from slackwater.core.turn import FIRST_RETRY_S, LONGEST_RETRY_S, Retry, Turn
from slackwater.core.upstream import Upstream
from slackwater.core.words import MOST_HOPS, Demand, Supply

if TYPE_CHECKING:
    from collections.abc import Iterator

_RATE_MEMORY_S = 20.0
_ROWS_MEMORY = 0.9
_MOST_LEFT = 100


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What follows from the last batch and the watermark to come, and from nothing else; kept until one changes.

    arrival is None where nothing is known yet. need is what those who read from a query without windows wait for.
    """

    end_event_ts: float | None
    pending: bool
    pending_end_event_ts: float | None = None
    arrival: Arrival | None = None
    need: Need | None = None


class QueryState:
    """Mutable, owned by the engine. Nothing outside keeps a reference."""

    def __init__(
        self,
        facts: QueryFacts,
        now_wall_ts: float,
        target_latency_s: float,
        sigmas: float,
        *,
        hold_for_readers: bool = False,
    ) -> None:
        self.facts = facts
        self.cost: CostModel | RowCost = RowCost() if facts.continuous else CostModel()
        self.turn: Turn | None = None
        self.report: QueryReport | None = None
        self.last_turn_wall_ts = now_wall_ts - 0.001  # a hair before, so that a first turn counts as later
        self.turns = 0
        self.last_batch: BatchReport | None = None
        self.rows_per_s = 0.0
        self.last_latency_s: float | None = None
        self.dropped_rows = 0
        self.paused_wall_ts: float | None = None
        self.rows_in = 0.0
        self.rows_out = 0.0
        self.batches_seen = 0
        self.tasks_seen_wall_ts = now_wall_ts
        self._target_latency_s = facts.options.target_latency_s or target_latency_s
        # A latency that the user asked for holds whatever the readers wait for.
        self._holds_for_readers = hold_for_readers and facts.options.target_latency_s is None
        self._sigmas = sigmas
        self._inputs = Inputs(facts)
        self._retry = Retry()
        self._outlook: _Outlook | None = None
        self._view: QueryView | None = None
        self._eligible_from_wall_ts = 0.0
        self._slide_s = min((window.slide_s for window in facts.windows), default=None)
        # How far the watermark of the operator that emits lags the query's: an interval join before it.
        self._behind_s = 0.0
        self._windows_a_row = sum(math.ceil(window.size_s / window.slide_s) for window in facts.windows)
        self._progress_wall_ts = now_wall_ts
        self._downstream = Downstream()
        self._upstream = Upstream()
        self._demands: tuple[Demand, ...] | None = None
        self._supplies: tuple[Supply, ...] | None = None

    # ---- learning ---------------------------------------------------------------------------------------------

    def observe(self, report: QueryReport, now_wall_ts: float) -> list[Left]:
        """Learn from a report; returns the windows that left since the last one."""
        before = self.report
        self.report = report
        if report.batches or before is None or before.next_watermark_event_ts != report.next_watermark_event_ts:
            self._forget()
        elif (before.waiting, before.wait_no, before.awaited) != (report.waiting, report.wait_no, report.awaited):
            self._view = None
        if report.running_tasks > 0 or report.waiting:
            self.tasks_seen_wall_ts = now_wall_ts
        return [left for batch in report.batches for left in self._observe_batch(_not_after(now_wall_ts, batch))]

    def step_clock(self, by_s: float) -> None:
        """The wall clock was set: what is remembered by it moves along, and lags against the old one are forgotten."""
        self.last_turn_wall_ts += by_s
        self.tasks_seen_wall_ts += by_s
        self._progress_wall_ts += by_s
        self._retry.step_clock(by_s)
        if self.paused_wall_ts is not None:
            self.paused_wall_ts += by_s
        if self.turn is not None:
            self.turn = replace(self.turn, granted_wall_ts=self.turn.granted_wall_ts + by_s)
        self._inputs.step_clock(by_s, running=self.turn is not None or self.report is None or not self.report.waiting)
        self._forget()

    def pause(self, now_wall_ts: float) -> None:
        """No turn from now on; one that runs is finished."""
        self.paused_wall_ts, self._view = now_wall_ts, None

    def resume(self) -> None:
        self.paused_wall_ts = self._view = None

    def reclass(self, priority_class: int) -> None:
        self.facts = replace(self.facts, options=replace(self.facts.options, priority_class=priority_class))
        self._view = None

    def _forget(self) -> None:
        """Something happened to it: what followed from the state before is computed anew when somebody asks."""
        self._outlook = self._view = None
        self._demands = self._supplies = None

    def _observe_batch(self, batch: BatchReport) -> list[Left]:
        previous = self.last_batch
        self.batches_seen += 1
        self.cost.observe(batch.rows, batch.duration_s)
        self.rows_in = _ROWS_MEMORY * self.rows_in + batch.rows
        self.rows_out = _ROWS_MEMORY * self.rows_out + batch.rows_out
        self._progress_wall_ts = batch.offsets_wall_ts
        if self.facts.continuous and batch.rows > 0:
            self.last_turn_wall_ts = batch.ended_wall_ts
        if previous is not None:
            span_s = batch.offsets_wall_ts - previous.offsets_wall_ts
            if span_s > 0:
                # By the span it covers: a sweep right behind its data batch says little about the rate.
                weight = 1 - math.exp(-span_s / _RATE_MEMORY_S) if self.rows_per_s else 1.0
                self.rows_per_s += weight * (batch.rows / span_s - self.rows_per_s)
        self._inputs.observe(batch, again=previous is None and batch.batch_id > 0)
        if batch.evicts_event_ts is not None and batch.watermark_event_ts > NEVER_EVENT_TS:
            self._behind_s = max(0.0, batch.watermark_event_ts - batch.evicts_event_ts)
        left = self._left(batch)
        if left:
            self.last_latency_s = left[0].latency_s
            self._inputs.end_epoch()
        self.dropped_rows += batch.dropped_rows
        self.last_batch = batch
        if batch.rows > 0:
            self._downstream.observe(batch)
        return left

    def _left(self, batch: BatchReport) -> list[Left]:
        """The windows whose ends this batch's watermark passed and the last one's had not, the first ones first."""
        before = self.last_batch.watermark_event_ts if self.last_batch else batch.watermark_event_ts
        if before <= NEVER_EVENT_TS:
            return []
        passed = batch.watermark_event_ts - self._behind_s
        left: list[Left] = []
        end = self.facts.next_window_end(before - self._behind_s)
        while end is not None and end <= passed and len(left) < _MOST_LEFT:
            left.append(Left(self.facts.key, self.facts.name, end, batch.ended_wall_ts))
            end = self.facts.next_window_end(end)
        return left

    def begin_turn(self, turn: Turn) -> None:
        self.turn, self._view = turn, None
        if turn.stage is Stage.DATA:
            self.turns += 1
            self.last_turn_wall_ts = turn.granted_wall_ts

    def lost_grant(self, now_wall_ts: float) -> bool:
        turn, seen = self.turn, self.report
        return turn is not None and seen is not None and turn.is_lost(seen, now_wall_ts)

    def drop_turn(self) -> None:
        self.turn = self._view = None

    def end_turn(self, now_wall_ts: float) -> None:
        """The granted batches are over: did they find what they were sent for?"""
        turn, self.turn = self.turn, None
        self._forget()
        if turn is None or self.report is None:
            return
        if self._fruitful(turn):
            self._retry.found()
        else:
            longest_s = LONGEST_RETRY_S if self.windowed else max(FIRST_RETRY_S, self._target_latency_s / 4)
            self._retry.found_nothing(now_wall_ts, longest_s)

    def _fruitful(self, turn: Turn) -> bool:
        batch = self.last_batch
        if batch is None or batch.ended_wall_ts < turn.granted_wall_ts:
            self._inputs.found_nothing()
            return False
        if turn.aim_event_ts is None:
            return batch.rows > 0 or turn.stage is Stage.SWEEP
        aim_event_ts = turn.aim_event_ts + self._behind_s
        reached = self.next_watermark_event_ts >= aim_event_ts
        if not reached:
            self._inputs.missed(batch, aim_event_ts)
        return reached

    # ---- chained queries --------------------------------------------------------------------------------------

    def hear_demands(self, demands: tuple[Demand, ...]) -> None:
        """What those who read from it wait for; none when they are gone or no longer heard."""
        if self._downstream.hear(demands):
            self._forget()

    def hear_supplies(self, supplies: tuple[Supply, ...], until_wall_ts: float) -> None:
        """What those who write where it reads told; none when they are gone or no longer heard."""
        if self._upstream.hear(supplies, until_wall_ts):
            self._forget()

    def demands(self) -> tuple[Demand, ...]:
        """What it tells those who write where it reads: its own windows, else what its readers wait for."""
        if self._demands is None:
            self._demands = tuple(self._new_demands())
        return self._demands

    def _new_demands(self) -> Iterator[Demand]:
        key, beyond = self.facts.key, self._downstream
        if self.last_batch is None:
            return
        if self.windowed:
            slide_s = self._slide_s or 0.0
            cost_s = self.cost.batch_s(self.rows_per_s * slide_s) + self.cost.sweep_s + beyond.cost_s
            following = self.next_watermark_event_ts
            if following <= NEVER_EVENT_TS:
                return
            for index, place in enumerate(self.reads):
                delay_s = self.facts.input_delays_s[index] if self._aligned else self.facts.delay_s
                sight = self._inputs.sight(index) if self._aligned else None
                after = following - self._behind_s
                yield Demand(place, self.facts.windows, delay_s + self._behind_s, after, cost_s, (key,), sight)
            return
        for demand in beyond.demands:
            if len(demand.path) >= MOST_HOPS or key in demand.path:
                continue
            cost_s = demand.cost_s + self.cost.batch_s(self.rows_per_s * demand.slide_s)
            path = (key, *demand.path)
            for index, place in enumerate(self.reads):
                sight = self._inputs.sight(index) if self._aligned else beyond.sight
                yield replace(demand, place=place, cost_s=cost_s, path=path, sight=sight)

    @property
    def _aligned(self) -> bool:
        """Each of its sources has a watermark of its own, so that its maxima can be told apart by place."""
        return 0 < len(self.reads) == len(self.facts.input_delays_s)

    def supplies(self) -> tuple[Supply, ...]:
        """What it tells those who read what it writes. A query with windows writes when they end, which they learn."""
        if self._supplies is None:
            self._supplies = ()
            if self.writes is not None and not self.windowed and self._downstream.demands and self.last_batch:
                need = self.outlook().need
                cost_s = self.cost.batch_s(self.rows_per_s * need.slide_s if need else 0.0)
                self._supplies = (self._downstream.supplies(self.writes, self.facts.key, cost_s, self._expects()),)
        return self._supplies

    def _expects(self) -> Expects:
        """Its own statistics where it has a watermark; else what its readers saw."""
        if len(self._inputs):
            return self._inputs.expects(self._sigmas)
        return Expects(self._downstream.arrival, self._downstream.lag_s(), self._sigmas)

    # ---- knowing ----------------------------------------------------------------------------------------------

    @property
    def windowed(self) -> bool:
        return bool(self.facts.windows) and self.facts.emits_at_sweep

    @property
    def reads(self) -> tuple[str, ...]:
        """The places that it reads from: as declared, else as its last batch told."""
        if self.facts.options.reads:
            return self.facts.options.reads
        return self.last_batch.reads if self.last_batch is not None else ()

    @property
    def writes(self) -> str | None:
        if self.facts.options.writes is not None:
            return self.facts.options.writes
        return self.last_batch.writes if self.last_batch is not None else None

    @property
    def next_watermark_event_ts(self) -> float:
        """The watermark that the next batch will apply."""
        known = self.report.next_watermark_event_ts if self.report else None
        return known if known is not None else NEVER_EVENT_TS

    @property
    def sweep_pending(self) -> bool:
        """The next batch's watermark passes a window that the last batch's did not: one more batch emits."""
        return self.outlook().pending

    def next_window_end(self) -> float | None:
        return self.outlook().end_event_ts

    def outlook(self) -> _Outlook:
        if self._outlook is None:
            self._outlook = self._look_ahead()
        return self._outlook

    def _look_ahead(self) -> _Outlook:
        following = self.next_watermark_event_ts
        end = self.facts.next_window_end(following - self._behind_s) if following > NEVER_EVENT_TS else None
        if self.last_batch is None:
            return _Outlook(end, pending=False)
        applied = self.last_batch.watermark_event_ts
        pending_end = self.facts.next_window_end(applied - self._behind_s)
        # Without state, results left in the very batch that brought the watermark.
        pending = following > applied and self.facts.emits_at_sweep and self.facts.stateful
        if pending and pending_end is not None:
            pending = pending_end <= following - self._behind_s
        need = None
        if end is not None:
            arrival: Arrival | None = self.swm_arrival(end) if not self._inputs.relearning else None
        elif self.windowed:
            arrival = None
        else:
            arrival = Arrival(self._progress_wall_ts + self._target_latency_s, 0.0)
            need = self._downstream.need(self._expects()) if self._downstream.demands else None
            if need is not None and (self._holds_for_readers or need.arrival.wall_ts <= arrival.wall_ts):
                arrival = need.arrival
        return _Outlook(end, pending, pending_end if pending else None, arrival, need)

    def swm_arrival(self, window_end_event_ts: float) -> Arrival:
        sweeps_at_event_ts = window_end_event_ts + self._behind_s
        found = self._inputs.arrival(sweeps_at_event_ts, self._told_arrival)
        return found or Arrival(sweeps_at_event_ts + self.facts.delay_s, 0.5)

    def _told_arrival(self, index: int, event_ts: float) -> Arrival | None:
        """As the writers of this input told, where they can be told apart."""
        if not self._upstream.supplies or not self._aligned:
            return None
        return self._upstream.arrival(self.reads[index], event_ts)

    def swm_interval(self, window_end_event_ts: float, confidence: float) -> tuple[float, float] | None:
        """From when to when the sweeping watermark becomes ingestible, by the input that decides; None: not known."""
        return self._inputs.interval(window_end_event_ts + self._behind_s, confidence)

    def backlog_rows(self, now_wall_ts: float) -> float:
        batch, passed_s = self.last_batch, now_wall_ts - self._progress_wall_ts
        grown = self.rows_per_s * passed_s if passed_s > 0 and not self.facts.continuous else 0.0
        return grown if batch is None else (batch.backlog_rows or 0) + grown

    @property
    def has_more(self) -> bool:
        """The last batch left rows behind that its source could have given."""
        batch = self.last_batch
        return batch is not None and (batch.limited or bool(batch.backlog_rows))

    def freeable_bytes(self, now_wall_ts: float) -> float:
        """State that a turn now would evict: as many of its open windows as the watermark could have passed by now."""
        if self.report is not None and self.report.freeable_bytes is not None:
            return self.report.freeable_bytes
        batch, slide_s = self.last_batch, self._slide_s
        if batch is None or slide_s is None or not self.windowed or not batch.state_bytes:
            return 0.0
        outlook = self.outlook()
        first = outlook.pending_end_event_ts or outlook.end_event_ts
        if first is None:
            return 0.0
        if outlook.pending_end_event_ts is not None:
            closing = math.floor((self.next_watermark_event_ts - self._behind_s - first) / slide_s) + 1
        elif outlook.arrival is not None and outlook.arrival.wall_ts <= now_wall_ts:
            closing = math.floor((now_wall_ts - outlook.arrival.wall_ts) / slide_s) + 1
        else:
            return 0.0
        open_windows = max(1.0, math.ceil((self._inputs.newest_event_ts - first) / slide_s) + self._windows_a_row)
        return batch.state_bytes * min(1.0, closing / open_windows)

    @property
    def eligible_from_wall_ts(self) -> float:
        """From when on it may have a turn; as its last view knew it."""
        return self._eligible_from_wall_ts

    def _spaced_wall_ts(self) -> float:
        """The user's own trigger interval is the least spacing between turns; fruitless turns back off."""
        spaced = self.last_turn_wall_ts + self.facts.min_interval_s if self.turns else 0.0
        awaited = self.report is not None and self.report.awaited
        return max(spaced, 0.0 if awaited or self.sweep_pending else self._retry.wall_ts)

    def view(self, now_wall_ts: float, downstream: tuple[str, ...] = ()) -> QueryView:
        """The query for a policy. Of a query to which nothing happened only that changes which time changes.

        A view is frozen for everybody but its owner: making a thousand anew each time would take most of a decision.
        """
        view = self._view
        if view is None or view.downstream != downstream:
            view = self._view = self._seen_at(now_wall_ts, downstream)
        else:
            eligible = self._eligible(now_wall_ts)
            if view.eligible is not eligible:
                object.__setattr__(view, "eligible", eligible)
            object.__setattr__(view, "backlog_rows", self.backlog_rows(now_wall_ts))
            freeable = self.freeable_bytes(now_wall_ts)
            if view.freeable_bytes != freeable:
                object.__setattr__(view, "freeable_bytes", freeable)
        return view

    def _eligible(self, now_wall_ts: float) -> bool:
        if self.turn is not None or now_wall_ts < self._eligible_from_wall_ts or self.report is None:
            return False
        if self.paused_wall_ts is not None:
            return False
        return self.report.waiting and self.facts.gated

    def _seen_at(self, now_wall_ts: float, downstream: tuple[str, ...]) -> QueryView:
        report, outlook = self.report, self.outlook()
        self._eligible_from_wall_ts = self._spaced_wall_ts()
        # Not after now: it may be the time of a clock that was set back since.
        since = min(report.since_wall_ts, now_wall_ts) if report is not None else now_wall_ts
        # Where nothing is known yet, it is due since it began to wait.
        arrival = outlook.arrival or Arrival(since, 0.0)
        sure = arrival.sure_wall_ts(self._sigmas)
        pending = outlook.pending and self.turn is None
        retry, need = self._retry.wall_ts, outlook.need
        end = outlook.end_event_ts if outlook.end_event_ts is not None or need is None else need.end_event_ts
        return QueryView(
            key=self.facts.key,
            name=self.facts.name,
            stage=self.stage,
            eligible=self._eligible(now_wall_ts),
            waiting_since_wall_ts=since,
            last_turn_wall_ts=self.last_turn_wall_ts,
            window_end_event_ts=end,
            swm_wall_ts=max(arrival.wall_ts, retry),
            swm_sigma_s=arrival.sigma_s,
            swm_sure_wall_ts=max(sure, retry),
            batch_cost_s=self.cost.fixed_s,
            row_cost_s=self.cost.row_s,
            sweep_cost_s=self.cost.sweep_s if self.windowed else 0.0,
            rows_per_s=0.0 if self._upstream.nothing_since(self._progress_wall_ts, self.reads) else self.rows_per_s,
            backlog_rows=self.backlog_rows(now_wall_ts),
            downstream_cost_s=self._downstream.cost_s,
            offsets_wall_ts=self._progress_wall_ts,
            batches=self.batches_seen,
            sweep_pending=pending,
            pending_end_event_ts=outlook.pending_end_event_ts if pending else None,
            selectivity=self.rows_out / self.rows_in if self.rows_in else 1.0,
            state_bytes=self.last_batch.state_bytes if self.last_batch else 0,
            freeable_bytes=self.freeable_bytes(now_wall_ts),
            downstream=downstream,
            slide_s=self._slide_s if need is None else need.slide_s,
            awaited=report is not None and report.awaited,
            priority_class=self.facts.options.priority_class,
            deadline_s=self.facts.options.deadline,
        )

    @property
    def stage(self) -> Stage:
        if not self.facts.gated:
            return Stage.UNGATED
        if self.turn is not None:
            return self.turn.stage
        return Stage.WAITING if self.paused_wall_ts is None else Stage.PAUSED

    @property
    def input_lags_s(self) -> tuple[float | None, ...]:
        """For each watermarked input, how far its largest event time was behind when it was last looked at."""
        return self._inputs.lags_s

    def watermark_lag_s(self, now_wall_ts: float) -> float:
        watermark = self.next_watermark_event_ts
        return now_wall_ts - watermark if watermark > NEVER_EVENT_TS else math.nan


def _not_after(now_wall_ts: float, batch: BatchReport) -> BatchReport:
    """A batch that ended after now ended before the clock was set back."""
    if batch.offsets_wall_ts <= now_wall_ts and batch.ended_wall_ts <= now_wall_ts:
        return batch
    return replace(
        batch,
        offsets_wall_ts=min(batch.offsets_wall_ts, now_wall_ts),
        ended_wall_ts=min(batch.ended_wall_ts, now_wall_ts),
    )
