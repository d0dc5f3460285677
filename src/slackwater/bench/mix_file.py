"""The file that describes a mix: one table for each group of queries, and what is wrong with one said by name.

    [groups.clicks]
    workload = "ysb"
    queries = 3
    payload = "json"

What a group leaves out is its workload's usual setting.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import msgspec

from slackwater.bench.mix_model import PRIORITY, Group, Mix
from slackwater.config.toml_file import read_toml
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.workloads.base import Phases
from slackwater.workloads.registry import workload_entry

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.workloads.base import PayloadKind

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A group as its table says it; words are looked up later, to name the nearest one."""

    workload: str
    queries: int = 1
    rate: int | None = None
    window: float | None = None
    slide: float | None = None
    delay: float = 1.0
    phases: str = "spread"
    payload: str | None = None
    class_name: str = msgspec.field(default="normal", name="class")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    groups: dict[str, dict[str, Any]]
    name: str | None = None


def load_mix(path: Path) -> Mix:
    """The mix in a file, checked; it is called by the file's name unless it says another."""
    content = read_toml(path, "the mix")
    return parse_mix(content, str(path), path.stem)


def parse_mix(content: dict[str, Any], where: str, name: str) -> Mix:
    """The mix that a table describes; `where` stands in errors, `name` is what it is called by default."""
    file = _converted(content, _File, where)
    if not file.groups:
        raise ConfigurationError(f"{where}: there is no group; add one, such as [groups.clicks] with workload = 'ysb'.")
    groups = tuple(_group(key, table, f"{where}: group {key!r}") for key, table in file.groups.items())
    prefixes: dict[str, str] = {}
    for group in groups:
        other = prefixes.setdefault(group.query_prefix, group.name)
        if other != group.name:
            raise ConfigurationError(
                f"{where}: the groups {other!r} and {group.name!r} would both call their queries "
                f"{group.query_prefix}_0, …; rename one."
            )
    return Mix(file.name or name, groups)


def _group(name: str, table: dict[str, Any], where: str) -> Group:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: a name starts with a letter and has letters, digits, - and _ only.")
    entry = _converted(table, _Entry, where)
    if entry.phases not in get_args(Phases):
        raise _unknown(where, "phases", entry.phases, get_args(Phases))
    if entry.class_name not in PRIORITY:
        raise _unknown(where, "class", entry.class_name, PRIORITY)
    try:
        usual = workload_entry(entry.workload)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    window_s = usual.window_s if entry.window is None else entry.window
    slide_s = usual.slide_s if entry.slide is None else entry.slide
    return Group(
        name=name,
        workload=usual.name,
        queries=entry.queries,
        rate=usual.rate if entry.rate is None else entry.rate,
        window_s=window_s,
        slide_s=None if slide_s == window_s else slide_s,
        delay_s=entry.delay,
        phases=cast("Phases", entry.phases),
        payload=cast("PayloadKind", usual.payloads[0] if entry.payload is None else entry.payload),
        class_name=entry.class_name,
    )


def _unknown(where: str, kind: str, found: str, known: Any) -> ConfigurationError:
    return ConfigurationError(f"{where}: {unknown_name(kind, found, known)}")


def _converted(content: Any, kind: type[_Kind], where: str) -> _Kind:
    known = kind.__struct_encode_fields__
    for key in content if isinstance(content, dict) else ():
        if key not in known:
            raise _unknown(where, "key", key, known)
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{where}: {error}.") from error
