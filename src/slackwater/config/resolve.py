"""All sources together: each setting with its value and where that came from, and the objects that follow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from slackwater.config.schema import AUTO, ENABLED, QUERIES, QUERY, SECTIONS, Path, all_paths, fields_of, setting_at
from slackwater.config.sources import Found, Values, file_to_read, from_conf, from_environment, from_file, merged
from slackwater.core.model import QueryOptions
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.forwarding.settings import Forwarding, Peer
from slackwater.policies.registry import known_policies
from slackwater.supervision.settings import Alarms, Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slackwater.core.model import Knob, Policy

DEFAULT = "default"

_OBJECTS: dict[str, type] = {"forward": Forwarding, "supervise": Supervision, "alarms": Alarms}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """What attach() goes by, whoever said it. None: off."""

    policy: str | Policy
    knob: Knob
    memory_bound: float
    period_s: float | None
    lanes: int | Literal["auto"]
    tune: bool
    max_wait_s: float
    target_latency_s: float
    confidence: float
    watchdog_s: float
    serve: bool | int | str
    otel: bool
    forward: Forwarding | None
    supervise: Supervision | None
    alarms: Alarms | None
    queries: dict[str, QueryOptions]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every setting with its origin. file: the one that was read, if any."""

    values: Values
    file: FilePath | None

    def settings(self) -> Settings:
        top = {path[0]: found.value for path, found in self.values.items() if len(path) == 1}
        forward = self._section("forward", _forwarding)
        supervise = self._section("supervise", Supervision)
        if self.values["alarms", ENABLED].value == AUTO:
            served = top["serve"] is not False or forward is not None
            alarms = self._object("alarms", Alarms) if served or supervise is not None else None
        else:
            alarms = self._section("alarms", Alarms)
        return Settings(**top, forward=forward, supervise=supervise, alarms=alarms, queries=self._queries())

    def changed(self, newer: Resolved) -> list[Path]:
        """The settings that are others there. One that a query no longer has is its default again."""
        paths = {**self.values, **newer.values}
        return [path for path in paths if self.value(path) != newer.value(path)]

    def value(self, path: Path) -> Any:
        return self.values[path].value if path in self.values else setting_at(path).default

    def _section(self, section: str, make: Callable[..., T]) -> T | None:
        return self._object(section, make) if self.values[section, ENABLED].value else None

    def _object(self, section: str, make: Callable[..., T]) -> T:
        found = {path[1]: one for path, one in self.values.items() if path[0] == section and path[1] != ENABLED}
        return _made(make, found)

    def _queries(self) -> dict[str, QueryOptions]:
        tables: dict[str, dict[str, Found]] = {}
        for path, found in self.values.items():
            if path[0] == QUERIES:
                tables.setdefault(path[1], {})[path[2]] = found
        return {name: _made(QueryOptions, table) for name, table in tables.items()}


def _made(make: Callable[..., T], found: Mapping[str, Found]) -> T:
    try:
        return make(**{name: one.value for name, one in found.items()})
    except ConfigurationError as error:
        where = sorted({one.where for one in found.values() if one.where != DEFAULT})
        raise ConfigurationError(f"{error} It comes from: {'; '.join(where)}.") from None


def _forwarding(peers: tuple[Any, ...], **more: Any) -> Forwarding:
    return Forwarding(peers=tuple(peer if isinstance(peer, Peer) else Peer(**peer) for peer in peers), **more)


def resolve(
    arguments: Mapping[str, Any] | None = None,
    *,
    config: str | FilePath | None = None,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: FilePath | None = None,
) -> Resolved:
    """Arguments go before the environment, that before Spark's conf, that before the file, that before defaults."""
    environment = os.environ if environment is None else environment
    file = file_to_read(config, environment, folder or FilePath.cwd())
    values = merged(
        (
            {path: Found(setting_at(path).default, DEFAULT) for path in all_paths()},
            from_file(file) if file is not None else {},
            from_conf(conf or {}),
            from_environment(environment),
            from_arguments(arguments or {}),
        )
    )
    _check_policy(values[("policy",)])
    found = Resolved(values, file.absolute() if file is not None else None)
    found.settings()  # raises what does not fit together
    return found


def from_arguments(arguments: Mapping[str, Any]) -> Values:
    """What attach() was given; None is nothing. An object, as of Alarms, counts whole."""
    values: Values = {}
    for name, value in arguments.items():
        where = f"argument {name}"
        if value is None:
            continue
        if name == QUERIES:
            values.update(_of_queries(value, where))
        elif name in SECTIONS:
            values.update(_of_section(name, value, where))
        else:
            values[(name,)] = Found(value, where)
    return values


def _of_section(section: str, value: Any, where: str) -> Values:
    if isinstance(value, bool):
        return {(section, ENABLED): Found(value, where)}
    kind = _OBJECTS[section]
    if not isinstance(value, kind):
        raise ConfigurationError(f"{section}={value!r}: True, or slackwater.{kind.__name__}(…), is needed.")
    given: Values = {(section, name): Found(one, where) for name, one in fields_of(value).items()}
    return {(section, ENABLED): Found(True, where), **given}


def _of_queries(queries: Any, where: str) -> Values:
    values: Values = {}
    for name, options in queries.items():
        if not isinstance(options, QueryOptions):
            raise ConfigurationError(
                f"queries[{name!r}] is {options!r}: give slackwater.QueryOptions(target_latency_s=…, "
                "priority_class=…, deadline=…)."
            )
        for key in QUERY:
            values[QUERIES, name, key] = Found(getattr(options, key), f"{where}[{name!r}]")
    return values


def _check_policy(found: Found) -> None:
    if isinstance(found.value, str) and found.value not in (known := known_policies()):
        error = unknown_name("policy", found.value, known)
        raise ConfigurationError(f"{found.where}: {error}" if not found.where.startswith("argument") else str(error))
