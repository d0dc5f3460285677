"""Where settings are found: each source gives what it holds as values by path, with the words for where that was."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from slackwater.config.schema import ENABLED, QUERIES, QUERY, SECTIONS, Path, Setting, names_below, setting_at
from slackwater.config.toml_file import read_toml
from slackwater.errors import ConfigurationError
from slackwater.supervision.settings import host_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE_VARIABLE: Final = "SLACKWATER_CONFIG"
FILE_NAME: Final = "slackwater.toml"
ENVIRONMENT_PREFIX: Final = "SLACKWATER_"
CONF_PREFIX: Final = "spark.slackwater."
# Variables of other parts of the package: no settings of attach().
_OTHER_VARIABLES: Final = frozenset(
    {FILE_VARIABLE, "SLACKWATER_JAVA_DIRS", "SLACKWATER_RUNTIME_DIR", "SLACKWATER_FLINK_HOME"}
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value and where it stood, in words that a person can look it up by."""

    value: Any
    where: str


Values = dict[Path, Found]


def file_to_read(given: str | FilePath | None, environment: Mapping[str, str], folder: FilePath) -> FilePath | None:
    """The file that counts: the one given, else $SLACKWATER_CONFIG, else slackwater.toml in the folder, if there."""
    if given is not None:
        return FilePath(given)
    if environment.get(FILE_VARIABLE):
        return FilePath(environment[FILE_VARIABLE])
    usual = folder / FILE_NAME
    return usual if usual.is_file() else None


def from_file(path: FilePath) -> Values:
    content = read_toml(path, "the configuration")
    return checked(_of_tables(content, str(path)), lambda at: f"{path}: {'.'.join(at)}")


def from_environment(environment: Mapping[str, str]) -> Values:
    """`SLACKWATER_MAX_WAIT_S`, `SLACKWATER_ALARMS__STOPPED_S`, `SLACKWATER_QUERIES__clicks__PRIORITY_CLASS`."""
    found: dict[Path, tuple[Any, str]] = {}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _OTHER_VARIABLES:
            parts = variable.removeprefix(ENVIRONMENT_PREFIX).split("__")
            # A query's name keeps its letters, and may have underscores of its own.
            name, last = "__".join(parts[1:-1]), parts[-1].lower() if len(parts) > 1 else ""
            path = _path_of([part for part in (parts[0].lower(), name, last) if part])
            _check_known(path, f"the environment variable {variable}", _variable)
            found[path] = _of_text(environment[variable], path), variable
    return checked(found, lambda at: f"environment {_variable(at)}")


def from_conf(conf: Mapping[str, str]) -> Values:
    """`spark.slackwater.policy`, `spark.slackwater.alarms.stopped_s`, `spark.slackwater.queries.clicks.deadline`."""
    found: dict[Path, tuple[Any, str]] = {}
    for key in sorted(conf):
        if key.startswith(CONF_PREFIX):
            head, _, rest = key.removeprefix(CONF_PREFIX).partition(".")
            # A query's name may have dots of its own.
            name, _, last = rest.rpartition(".") if head == QUERIES else ("", "", rest)
            path = _path_of([part for part in (head, name, last) if part])
            _check_known(path, f"the Spark conf {key}", _conf_key)
            found[path] = _of_text(conf[key], path), key
    return checked(found, lambda at: f"Spark conf {_conf_key(at)}")


def _variable(path: Path) -> str:
    parts = [path[0].upper(), *path[1:-1], *[part.upper() for part in path[1:][-1:]]]
    if len(path) == 2 and path[1] == ENABLED:
        parts = parts[:1]
    return ENVIRONMENT_PREFIX + "__".join(parts)


def _conf_key(path: Path) -> str:
    return CONF_PREFIX + ".".join(path[:1] if len(path) == 2 and path[1] == ENABLED else path)


def _path_of(parts: list[str]) -> Path:
    """A section alone means whether it is on."""
    return (parts[0], ENABLED) if len(parts) == 1 and parts[0] in SECTIONS else tuple(parts)


def _of_tables(content: dict[str, Any], where: str) -> dict[Path, tuple[Any, str]]:
    found: dict[Path, tuple[Any, str]] = {}
    for path, value in _leaves(content):
        whole = _path_of(list(path))
        _check_known(whole, where, ".".join)
        found[whole] = value, where
    return found


def _leaves(content: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    for name, value in content.items():
        if name == QUERIES and isinstance(value, dict):
            for query, table in value.items():
                if isinstance(table, dict):
                    yield from (((name, query, key), one) for key, one in table.items())
                else:
                    yield (name, query), table
        elif isinstance(value, dict):
            yield from (((name, key), one) for key, one in value.items())
            if not value:
                yield (name,), True
        else:
            yield (name,), value


def _check_known(path: Path, where: str, spelt: Any) -> None:
    """Raise for the first part of the path that is not known, with the nearest that is."""
    head = path[0]
    if head in SECTIONS and len(path) == 2 and path[1] in SECTIONS[head]:
        return
    if head == QUERIES:
        if len(path) == 3 and path[2] in QUERY:
            return
        if len(path) < 3:
            raise ConfigurationError(
                f"{where}: {'.'.join(path)!r} is no setting; a query's own are {QUERIES}.NAME.KEY, with the keys "
                f"{', '.join(QUERY)}."
            )
        raise _unknown(path, path[:2], where, spelt)
    if head in SECTIONS:
        raise _unknown(path, path[:1], where, spelt)
    if len(path) > 1 or head not in names_below(()):
        raise _unknown(path, (), where, spelt)


def _unknown(path: Path, below: Path, where: str, spelt: Any) -> ConfigurationError:
    known = names_below(below)
    near = _nearest(path[len(below)], known)
    named = spelt(path)
    mentioned = (
        f"{where}: there is no setting {named!r}" if named not in where else f"{where}: there is no such setting"
    )
    if near is not None:
        return ConfigurationError(f"{mentioned}. Did you mean {spelt((*below, near))!r}?")
    return ConfigurationError(f"{mentioned}; known are: {', '.join(known)}.")


def _nearest(found: str, known: list[str]) -> str | None:
    begun = [name for name in known if len(found) >= 3 and name.startswith(found)]
    return next(iter(begun or get_close_matches(found, known, n=1)), None)


def _of_text(text: str, path: Path) -> Any:
    """As in TOML; quotes may be left out, and so may the brackets of a list. `none` is nothing, where that may be."""
    setting = setting_at(path)
    kind = setting.kind
    if kind.optional and text.strip().lower() in ("", "none"):
        return None
    if "\n" not in text:
        try:
            value = tomllib.loads(f"value = {text.strip().lower() if text.lower() in ('true', 'false') else text}")[
                "value"
            ]
            if kind.accepts(value):
                return value
        except tomllib.TOMLDecodeError:
            pass
    return [part.strip() for part in text.split(",") if part.strip()] if kind.listed else text


def checked(found: Mapping[Path, tuple[Any, str]], where: Any) -> Values:
    """Each value fits its setting; a section of which something is said is on unless that is said, too."""
    values: Values = {}
    for path, (value, _) in found.items():
        setting = setting_at(path)
        if not setting.kind.accepts(value):
            raise ConfigurationError(f"{where(path)} is {shown(setting, value)}: {setting.kind.needed} is needed.")
        values[path] = Found(tuple(value) if isinstance(value, list) else value, where(path))
    for section in SECTIONS:
        of_it = [path for path in values if path[0] == section]
        if of_it and (section, ENABLED) not in values:
            values[section, ENABLED] = Found(True, values[of_it[0]].where)
    return values


def shown(setting: Setting, value: Any) -> str:
    """As it may be printed."""
    if setting.secret and isinstance(value, str):
        return host_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(setting, one) for one in value) + "]"
    return str(value)


def merged(sources: Iterable[Values]) -> Values:
    """Later sources go before earlier ones, setting by setting."""
    found: Values = {}
    for source in sources:
        found.update(source)
    return found
