"""An engine for a policy: with the metrics that the policy needs, checked, and round-robin to fall back on."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from slackwater.core.engine import Engine
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.graph import MetricProvider
from slackwater.policies.periodic import Periodic, at_its_period
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin

if TYPE_CHECKING:
    from slackwater.core.engine import EngineSettings
    from slackwater.core.model import Policy

_METRICS = MetricProvider(CATALOGUE, OFFERED, driver="spark")


def policy_for(policy: str | Policy, *, period_s: float | None = None, **parameters: object) -> Policy:
    """A policy that can work on Spark, asked once a period if one is given. `parameters` go to it if it takes them.

    Raises ConfigurationError for what cannot work.
    """
    chosen = create(policy, **parameters)
    _METRICS.check(getattr(chosen, "needs", ()))
    return at_its_period(chosen) if period_s is None else Periodic(chosen, period_s)


def engine_for(
    policy: str | Policy, settings: EngineSettings | None = None, *, period_s: float | None = None, **parameters: object
) -> Engine:
    """An engine with the policy that `policy_for` gives."""
    chosen = policy_for(policy, period_s=period_s, **parameters)
    return Engine(chosen, RoundRobin(), settings, MetricProvider(CATALOGUE, OFFERED, driver="spark"))


def parameters_of(policy: Policy) -> dict[str, str | float | int | bool | None]:
    """What a policy was made with, as far as it keeps it under the same name and it is plain."""
    chosen = policy.policy if isinstance(policy, Periodic) else policy
    found: dict[str, str | float | int | bool | None] = {}
    if isinstance(policy, Periodic):
        found["period_s"] = policy.period_s
    for name in inspect.signature(type(chosen)).parameters:
        value = getattr(chosen, name, None)
        if isinstance(value, str | float | int | bool):
            found[name] = value
    return found
