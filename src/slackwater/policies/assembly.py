"""An engine for a policy: with the metrics that the policy needs, checked, and round-robin to fall back on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.engine import Engine
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.graph import MetricProvider
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin

if TYPE_CHECKING:
    from slackwater.core.engine import EngineSettings
    from slackwater.core.model import Policy


def engine_for(policy: str | Policy, settings: EngineSettings | None = None, **parameters: object) -> Engine:
    """`parameters` go to the policy if it takes them. Raises ConfigurationError for what cannot work."""
    chosen = create(policy, **parameters)
    metrics = MetricProvider(CATALOGUE, OFFERED, driver="spark")
    metrics.check(getattr(chosen, "needs", ()))
    return Engine(chosen, RoundRobin(), settings, metrics)
