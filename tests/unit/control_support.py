"""For tests of control: an engine in virtual time behind a real endpoint on loopback."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slackwater.control.routes import reading, steering
from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Window
from slackwater.endpoint.overview import Overview, QueryOverview, SchedulerOverview
from slackwater.endpoint.server import Endpoint
from slackwater.errors import AttachError
from slackwater.policies.assembly import parameters_of, policy_for
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slackwater.core.model import QueryView
    from slackwater.endpoint.limits import Limits


def windowed(name: str, **changes: Any) -> SimulatedQuery:
    return SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05, **changes)


class Steered:
    """What a handle does with orders, at once; `silent` as a scheduler that hangs."""

    def __init__(self, policy: str = "klink", *names: str, **settings: Any) -> None:
        self.engine = Engine(create(policy), RoundRobin(), EngineSettings(**settings))
        self.driver = ScriptedDriver([windowed(name, batch_cost_s=1.0) for name in names])
        self.silent = self.gates_open = False

    def run(self, seconds: float) -> None:
        for _ in steps(self.engine, self.driver, seconds):
            pass

    def pause(self, query: str) -> None:
        self._heard()
        self.engine.pause(query, self.now)

    def resume(self, query: str) -> None:
        self._heard()
        self.engine.resume(query, self.now)

    def set_class(self, query: str, priority_class: int) -> None:
        self._heard()
        self.engine.set_class(query, priority_class, self.now)

    def switch(self, policy: str, *, knob: Any, memory_bound: float, period_s: float | None) -> None:
        chosen = policy_for(policy, knob=knob, memory_bound=memory_bound, period_s=period_s)
        self._heard()
        self.engine.switch(chosen, self.now)

    @property
    def now(self) -> float:
        return self.driver.clock.now()

    def overview(self) -> Overview:
        engine = self.engine
        return Overview(
            version="1",
            application_id="app-1",
            name="alerts",
            master="local",
            ui_url=None,
            python_pid=1,
            jvm_pid=1,
            policy=engine.policy.name,
            parameters=parameters_of(engine.policy),
            cores=2,
            lanes=engine.capacity.lanes,
            wall_ts=self.now,
            scheduler=SchedulerOverview(
                gates_open=self.gates_open,
                gates_opened=0,
                decisions=1,
                decision_ms_p99=1.0,
                cpu_s=0.1,
                last_decision_wall_ts=self.now,
            ),
            queries=tuple(self._query(view) for view in engine.views),
        )

    def _query(self, view: QueryView) -> QueryOverview:
        state = self.engine.state(view.key)
        assert state is not None
        end = view.window_end_event_ts
        low, high = (state.swm_interval(end, self.engine.settings.confidence) if end is not None else None) or (
            None,
            None,
        )
        return QueryOverview(
            key=view.key,
            name=view.name,
            query_id=state.facts.query_id,
            stage=str(state.stage),
            reason=self.engine.reason(view.key),
            priority_class=state.facts.options.priority_class,
            batches=view.batches,
            slack_s=view.swm_wall_ts - self.now - view.turn_cost_s,
            watermark_lag_s=state.watermark_lag_s(self.now),
            window_end_ts=end,
            swm_wall_ts=view.swm_wall_ts,
            swm_low_wall_ts=low,
            swm_high_wall_ts=high,
            last_latency_s=state.last_latency_s,
            waiting_since_wall_ts=view.waiting_since_wall_ts,
            last_turn_wall_ts=view.last_turn_wall_ts,
            backlog_rows=view.backlog_rows,
            head_age_s=0.0,
            rows_per_s=view.rows_per_s,
            row_cost_s=view.row_cost_s,
            batch_cost_s=view.batch_cost_s,
            sweep_cost_s=view.sweep_cost_s,
            selectivity=view.selectivity,
            state_bytes=view.state_bytes,
        )

    def _heard(self) -> None:
        if self.silent:
            raise AttachError("the scheduler did not answer within 3 s, so nothing was changed.")


@contextmanager
def served(
    steered: Steered,
    folder: Path,
    *,
    name: str = "alerts",
    application_id: str = "app-1",
    limits: Limits | None = None,
) -> Iterator[Endpoint]:
    endpoint = Endpoint(
        application_id=application_id,
        name=name,
        reads={"/api/status": lambda _: steered.overview(), **reading(steered.engine, steered.overview)},
        changes=steering(steered, steered.engine),
        folder=folder,
        limits=limits,
    )
    try:
        yield endpoint
    finally:
        endpoint.close()
