"""The middleware's configuration file: which engines are read, what may be touched, by which policy, and how."""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from slackwater.config.toml_file import read_toml
from slackwater.errors import ConfigurationError
from slackwater.translators.normalise import NiceRange

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.middleware.model import Application, Operator

Mechanism = Literal["nice", "cgroup", "cgroup+nice"]
GroupBy = Literal["application", "query", "class"]
Scale = Literal["min-max", "logarithmic", "exact"]
Rule = Literal["max", "sum", "mean"]


class Matching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which operators are meant: patterns with * and ? for names; all that are given must fit."""

    application: str = "*"
    query: str = "*"
    engine: str = "*"

    def matches(self, application: Application, operator: Operator) -> bool:
        return (
            fnmatchcase(application.name, self.application)
            and fnmatchcase(operator.name, self.query)
            and fnmatchcase(application.engine, self.engine)
        )


class DriverEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to read. What else stands in the entry goes to the driver."""

    kind: str
    options: dict[str, Any] = {}


class ClassEntry(Matching, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The class of those that match; the first entry that fits decides. Smaller goes first; 0 where none fits."""

    priority_class: int


class PolicyEntry(Matching, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy over those that match, and how it takes effect.

    policy: a name, or `module:function`. inside: the policy that orders a group's members by nice (cgroup+nice).
    rule: what a unit that runs several operators gets of their priorities; a group likewise.
    """

    policy: str
    mechanism: Mechanism
    period_s: float | None = None
    parameters: dict[str, Any] = {}
    rule: Rule = "max"
    scale: Scale | None = None
    nice: tuple[int, int] = (0, 19)
    group_by: GroupBy = "application"
    quota_cores: float | None = None
    inside: str | None = None

    @property
    def span(self) -> NiceRange:
        return NiceRange(*self.nice)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    drivers: tuple[DriverEntry, ...] = msgspec.field(name="driver")
    policies: tuple[PolicyEntry, ...] = msgspec.field(name="policy")
    classes: tuple[ClassEntry, ...] = msgspec.field(default=(), name="class")
    period_s: float = 1.0
    journal: str | None = None
    cgroup_parent: str = "slackwater"


def load(path: Path) -> Config:
    """The configuration in a file, checked."""
    content = read_toml(path, "the configuration")
    return parse(content, str(path))


def parse(content: dict[str, Any], where: str) -> Config:
    _gather_options(content)
    try:
        config = msgspec.convert(content, Config)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{where}: {error}.{_hint(str(error))}") from error
    if not config.drivers:
        raise ConfigurationError(
            f"{where}: there is no [[driver]]; name an engine to read, such as kind = 'slackwater'."
        )
    if not config.policies:
        raise ConfigurationError(f"{where}: there is no [[policy]]; without one nothing would ever be done.")
    for period_s in (config.period_s, *(entry.period_s for entry in config.policies if entry.period_s is not None)):
        if not 0.05 <= period_s <= 3600:
            raise ConfigurationError(f"{where}: period_s = {period_s}: from 0.05 to 3600 seconds is sensible.")
    for entry in config.policies:
        _check(entry, where)
    return config


def _check(entry: PolicyEntry, where: str) -> None:
    whose = f"{where}: the policy {entry.policy!r}"
    entry.span  # noqa: B018 - raises what is wrong with it
    if entry.inside is not None and entry.mechanism != "cgroup+nice":
        raise ConfigurationError(
            f"{whose}: inside = {entry.inside!r} orders the members of groups: set mechanism = 'cgroup+nice'."
        )
    if entry.inside is None and entry.mechanism == "cgroup+nice":
        raise ConfigurationError(
            f"{whose}: mechanism = 'cgroup+nice' needs `inside`, the policy that orders the members."
        )
    if entry.quota_cores is not None and entry.mechanism == "nice":
        raise ConfigurationError(f"{whose}: a quota needs cgroups: mechanism = 'cgroup'.")
    if entry.quota_cores is not None and not 0.01 <= entry.quota_cores < 1e6:
        raise ConfigurationError(
            f"{whose}: quota_cores = {entry.quota_cores}: a number of cores from 0.01 on is needed."
        )


def _gather_options(content: dict[str, Any]) -> None:
    drivers = content.get("driver")
    if isinstance(drivers, list):
        content["driver"] = [
            {"kind": entry.get("kind"), "options": {key: value for key, value in entry.items() if key != "kind"}}
            if isinstance(entry, dict)
            else entry
            for entry in drivers
        ]


def _hint(message: str) -> str:
    """The nearest name to one that is not known."""
    found = re.search(r"unknown field `(\w+)`", message)
    if found is None:
        return ""
    names = {name for kind in (Config, PolicyEntry, ClassEntry) for name in kind.__struct_encode_fields__}
    near = get_close_matches(found[1], names, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known are: {', '.join(sorted(names))}."
