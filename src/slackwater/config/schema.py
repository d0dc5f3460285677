"""Every setting: its name, what it may be, its default, and whether it can change while an application is attached."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from slackwater.core.model import QueryOptions
from slackwater.forwarding.settings import Forwarding
from slackwater.supervision.settings import Alarms, Supervision, is_web_address

if TYPE_CHECKING:
    from collections.abc import Callable

QUERIES: Final = "queries"
ENABLED: Final = "enabled"
AUTO: Final = "auto"

Path = tuple[str, ...]
"""Of a setting: ("policy",), ("alarms", "stopped_s"), ("queries", NAME, "priority_class")."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be: a test, and the words for it."""

    fits: Callable[[Any], bool]
    needed: str
    listed: bool = False
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        return (self.optional and value is None) or self.fits(value)


@dataclass(frozen=True, slots=True)
class Setting:
    """live: a change of the file takes effect while attached. secret: only the host of it may be shown."""

    kind: Kind
    default: Any
    about: str
    live: bool = False
    secret: bool = False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def seconds(least: float = 0.0, most: float = math.inf, *, optional: bool = False) -> Kind:
    if most < math.inf:
        return Kind(
            lambda v: _is_number(v) and least <= v <= most,
            f"a number of seconds from {least:g} to {most:g}",
            False,
            optional,
        )
    return Kind(lambda v: _is_number(v) and v > 0, "a positive number of seconds", optional=optional)


def whole(least: int) -> Kind:
    return Kind(lambda v: _is_whole(v) and v >= least, f"a whole number from {least} up")


def one_of(*names: str) -> Kind:
    return Kind(lambda v: v in names and isinstance(v, str), "one of " + ", ".join(f'"{name}"' for name in names))


def _is_address(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    if _is_whole(value):
        return bool(0 <= value < 65536)
    port = value.rpartition(":")[2] if isinstance(value, str) else ""
    return port.isdigit() and int(port) < 65536


def _are_peers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(peer, dict)
        and peer.keys() == {"url", "token_file"}
        and all(isinstance(v, str) for v in peer.values())
        for peer in value
    )


_FLAG = Kind(lambda v: isinstance(v, bool), "true or false")
_TEXT = Kind(lambda v: isinstance(v, str) and bool(v), "a text", optional=True)
_PLACES = Kind(
    lambda v: isinstance(v, list | tuple) and all(isinstance(place, str) and place for place in v),
    "a list of places",
    listed=True,
)
_FACTOR = Kind(lambda v: _is_number(v) and 1 <= v <= 100, "a number from 1 to 100")
_JITTER = Kind(lambda v: _is_number(v) and 0 <= v < 1, "a share from 0 up to below 1")
_WEB_ADDRESS = Kind(is_web_address, "an http or https address", optional=True)
_FUNCTION = Kind(callable, "a function, which only attach(alarms=…) can give,", optional=True)
_SWITCH = Kind(lambda v: isinstance(v, bool) or v == AUTO, 'true, false or "auto"')

_FORWARDING, _SUPERVISION, _ALARMS, _QUERY = Forwarding(), Supervision(), Alarms(), QueryOptions()

TOP: Final[dict[str, Setting]] = {
    "policy": Setting(
        Kind(lambda v: isinstance(v, str) and bool(v), "the name of a policy"),
        "klink",
        "by which queries get turns",
        live=True,
    ),
    "knob": Setting(
        one_of("cost", "balanced", "latency"), "balanced", "fewest batches, or results as early as possible", live=True
    ),
    "memory_bound": Setting(
        Kind(lambda v: _is_number(v) and 0 < v < 1, "a share between 0 and 1"),
        0.75,
        "share of the heap from which on memory rules",
        live=True,
    ),
    "period_s": Setting(seconds(optional=True), None, "the policy is asked no more often than that", live=True),
    "lanes": Setting(
        Kind(lambda v: v == AUTO or (_is_whole(v) and v >= 1), 'a number from 1 up, or "auto"'),
        AUTO,
        "how many turns run at once",
    ),
    "tune": Setting(_FLAG, False, "apply those of doctor's findings that are safe"),
    "max_wait_s": Setting(seconds(), 30.0, "nobody waits longer for a turn once a lane is free"),
    "target_latency_s": Setting(seconds(), 2.0, "for queries without windows that name none"),
    "confidence": Setting(
        Kind(lambda v: _is_number(v) and 0.5 <= v < 1, "a share from 0.5 up to below 1"),
        0.95,
        "how sure a watermark's arrival must be",
    ),
    "watchdog_s": Setting(seconds(0.5, 60), 3.0, "silence of the scheduler after which the gates open"),
    "serve": Setting(Kind(_is_address, 'true, false, a port, or "host:port"'), False, "open an HTTP endpoint"),
    "otel": Setting(_FLAG, False, "make each batch a span, through OpenTelemetry"),
}

SECTIONS: Final[dict[str, dict[str, Setting]]] = {
    "forward": {
        ENABLED: Setting(_FLAG, False, "exchange words with the schedulers of chained applications"),
        "peers": Setting(Kind(_are_peers, "a list of tables with url and token_file"), (), "applications elsewhere"),
        "discover": Setting(_FLAG, _FORWARDING.discover, "find those of this user on this host"),
        "period_s": Setting(seconds(), _FORWARDING.period_s, "how often words are renewed"),
        "timeout_s": Setting(seconds(), _FORWARDING.timeout_s, "for connecting, sending and each read"),
        "stale_after_s": Setting(seconds(), _FORWARDING.stale_after_s, "older words no longer count"),
    },
    "supervise": {
        ENABLED: Setting(_FLAG, False, "start queries that die again, from their checkpoints"),
        "base_s": Setting(seconds(), _SUPERVISION.base_s, "wait before the first restart"),
        "factor": Setting(_FACTOR, _SUPERVISION.factor, "by which each further wait grows"),
        "cap_s": Setting(seconds(), _SUPERVISION.cap_s, "the longest wait"),
        "jitter": Setting(_JITTER, _SUPERVISION.jitter, "share by which waits differ at random"),
        "limit": Setting(whole(1), _SUPERVISION.limit, "restarts within the span before a query is given up"),
        "span_s": Setting(seconds(), _SUPERVISION.span_s, "the span of the limit"),
        "well_s": Setting(seconds(), _SUPERVISION.well_s, "after running so long the next wait is the first again"),
    },
    "alarms": {
        ENABLED: Setting(
            _SWITCH, AUTO, "look after alarms; auto: where the application serves or is supervised", live=True
        ),
        "log": Setting(_FLAG, _ALARMS.log, "tell by the logger slackwater", live=True),
        "webhook": Setting(_WEB_ADDRESS, None, "address that gets each alarm as JSON", live=True, secret=True),
        "tell": Setting(_FUNCTION, None, "function that gets each notice; given by attach(alarms=…) alone"),
        "clear_s": Setting(seconds(), _ALARMS.clear_s, "all must be well for so long to end an alarm", live=True),
        "stopped_s": Setting(seconds(), _ALARMS.stopped_s, "no row was read for so long", live=True),
        "stalled_s": Setting(seconds(), _ALARMS.stalled_s, "rows come and the watermark stands for so long", live=True),
        "behind_s": Setting(seconds(), _ALARMS.behind_s, "growth of the lag that counts as falling behind", live=True),
        "behind_steps": Setting(whole(2), _ALARMS.behind_steps, "in so many steps in a row", live=True),
        "step_s": Setting(seconds(), _ALARMS.step_s, "length of a step", live=True),
        "dropped_rows": Setting(whole(1), _ALARMS.dropped_rows, "rows dropped as late", live=True),
        "scheduler_s": Setting(seconds(), _ALARMS.scheduler_s, "the scheduler is not in charge for so long", live=True),
        "forget_s": Setting(seconds(), _ALARMS.forget_s, "a dead query is no alarm any more", live=True),
    },
}

QUERY: Final[dict[str, Setting]] = {
    "target_latency_s": Setting(
        seconds(optional=True), _QUERY.target_latency_s, "without windows: how old rows may grow", live=True
    ),
    "priority_class": Setting(
        Kind(lambda v: _is_whole(v) and -1000 <= v <= 1000, "a whole number from -1000 to 1000"),
        0,
        "smaller goes first",
        live=True,
    ),
    "deadline": Setting(
        seconds(optional=True), _QUERY.deadline, "seconds from a window's end to its result", live=True
    ),
    "reads": Setting(_PLACES, (), "places that it is chained to upstream", live=True),
    "writes": Setting(_TEXT, _QUERY.writes, "place that it is chained to downstream", live=True),
}


def setting_at(path: Path) -> Setting:
    """Of a path that is known."""
    if len(path) == 1:
        return TOP[path[0]]
    return QUERY[path[2]] if path[0] == QUERIES else SECTIONS[path[0]][path[1]]


def names_below(path: Path) -> list[str]:
    """What may stand there: at the top, in a section, in a query's table."""
    if not path:
        return [*TOP, *SECTIONS, QUERIES]
    return list(QUERY if path[0] == QUERIES else SECTIONS[path[0]])


def all_paths() -> list[Path]:
    """All but those of single queries."""
    return [(name,) for name in TOP] + [(section, name) for section, names in SECTIONS.items() for name in names]


def fields_of(settings: Any) -> dict[str, Any]:
    """A settings object as a table."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}
