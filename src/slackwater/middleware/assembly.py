"""From a configuration to everything at work: drivers by name, policies checked against what the drivers offer."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from slackwater.errors import ConfigurationError, EnforcementError, unknown_name
from slackwater.middleware.enforcing import Enforcer
from slackwater.middleware.host import Host
from slackwater.middleware.planning import Binding, Metrics
from slackwater.middleware.priorities import host_policy
from slackwater.middleware.run import Middleware, Reader

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.middleware.config import Config, DriverEntry
    from slackwater.middleware.model import Driver
    from slackwater.translators.journal import Journal
    from slackwater.translators.normalise import NiceRange

GROUP = "slackwater.host_drivers"


def known_drivers() -> list[str]:
    return sorted(point.name for point in entry_points(group=GROUP))


def make_driver(entry: DriverEntry, host: Host) -> Driver:
    """A driver by its name in the registry, with the options of its entry."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    if entry.kind not in found:
        raise unknown_name("driver", entry.kind, found)
    try:
        kind = found[entry.kind].load()
    except Exception as error:
        raise ConfigurationError(f"the driver {entry.kind!r} cannot be loaded: {error}.") from error
    taken = inspect.signature(kind).parameters
    unknown = sorted(entry.options.keys() - (taken.keys() - {"host"}))
    if unknown:
        known = ", ".join(sorted(taken.keys() - {"host"}))
        raise ConfigurationError(f"the driver {entry.kind!r} has no option {unknown[0]!r}; its options are: {known}.")
    options: dict[str, Any] = dict(entry.options)
    if "host" in taken:
        options["host"] = host
    try:
        driver: Driver = kind(**options)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the driver {entry.kind!r} with {entry.options}: {error}.") from error
    return driver


def make_bindings(config: Config, folder: Path) -> list[Binding]:
    return [
        Binding(
            number,
            entry,
            host_policy(entry.policy, entry.parameters, folder),
            host_policy(entry.inside, {}, folder) if entry.inside is not None else None,
            entry.period_s or config.period_s,
        )
        for number, entry in enumerate(config.policies)
    ]


def assemble(config: Config, folder: Path, journal: Journal | None) -> Middleware:
    """Everything that the configuration asks for, before anything is read or touched; refused where it can't be had.

    Without a journal nothing will be enacted.
    """
    host = Host()
    drivers = [make_driver(entry, host) for entry in config.drivers]
    bindings = make_bindings(config, folder)
    metrics = Metrics({driver.name: driver.offers for driver in drivers})
    for binding in bindings:
        for driver in drivers:
            metrics.check(driver.name, binding.needs)
    enforcer = Enforcer(journal, host.proc, parent=config.cgroup_parent) if journal is not None else None
    if enforcer is not None:
        reasons = enforcer.check(span=widest(config), groups=any(e.mechanism != "nice" for e in config.policies))
        if reasons:
            raise EnforcementError(" ".join(reasons))
    readers = [Reader(driver, min(binding.period_s for binding in bindings)) for driver in drivers]
    return Middleware(readers=readers, bindings=bindings, classes=config.classes, metrics=metrics, enforcer=enforcer)


def widest(config: Config) -> NiceRange | None:
    """The most that is asked of nice; None where it is not used."""
    spans = [entry.span for entry in config.policies if entry.mechanism != "cgroup"]
    return min(spans, key=lambda span: span.best) if spans else None
