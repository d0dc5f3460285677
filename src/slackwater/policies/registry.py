"""Finding policies by name: ours and those that other packages declare as entry points."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from slackwater.errors import ConfigurationError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from slackwater.core.model import Policy

GROUP = "slackwater.policies"


def known_policies() -> list[str]:
    return sorted(_declared())


def create(policy: str | Policy, **parameters: object) -> Policy:
    """A policy by name with those parameters that it takes, or the object itself, checked."""
    if isinstance(policy, type):
        raise ConfigurationError(f"policy={policy.__name__}: this is a class; give an object, {policy.__name__}().")
    if not isinstance(policy, str):
        if not callable(getattr(policy, "decide", None)) or not isinstance(getattr(policy, "name", None), str):
            raise ConfigurationError(
                f"policy={policy!r}: a policy has a `name` and a method `decide(snapshot) -> list[Choice]`; "
                f"or give the name of one: {', '.join(known_policies())}."
            )
        if not hasattr(policy, "enforces"):
            policy.enforces = True
        return policy
    declared = _declared()
    if policy not in declared:
        raise unknown_name("policy", policy, declared)
    factory = declared[policy].load()
    taken = inspect.signature(factory).parameters
    return cast("Policy", factory(**{k: v for k, v in parameters.items() if k in taken}))


def describe(name: str) -> str:
    """One line about a policy."""
    doc = inspect.getdoc(_declared()[name].load()) or ""
    return doc.splitlines()[0] if doc else ""


def _declared() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise ConfigurationError(
                f"two packages declare the policy {point.name!r}: {other.value} and {point.value}. "
                "Uninstall one, or ask its authors to rename it."
            )
        found[point.name] = point
    return found
