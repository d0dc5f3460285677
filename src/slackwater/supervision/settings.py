"""What a user may say about restarts and alarms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.supervision.alarms import Notice

    Tell = Callable[[Notice], object]


@dataclass(frozen=True, slots=True)
class Supervision:
    """How queries that die with an error are started again from their checkpoints.

    base_s, factor, cap_s: the wait before the first restart, by how much each further one grows, and the longest.
    jitter: share by which a wait is made longer or shorter at random, so that queries that died together don't return
    together.
    limit, span_s: one that would be started more often than that within this span is given up.
    well_s: after running so long it counts as healthy, and its next wait is the first one again.
    """

    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 60.0
    jitter: float = 0.1
    limit: int = 10
    span_s: float = 600.0
    well_s: float = 120.0

    def __post_init__(self) -> None:
        _check_seconds(self, "Supervision", ("base_s", "cap_s", "span_s", "well_s"))
        if not (_is_number(self.factor) and 1 <= self.factor <= 100):
            raise ConfigurationError(f"Supervision(factor={self.factor!r}): a number from 1 to 100 is needed.")
        if not (_is_number(self.jitter) and 0 <= self.jitter < 1):
            raise ConfigurationError(f"Supervision(jitter={self.jitter!r}): a share from 0 up to below 1 is needed.")
        if not (isinstance(self.limit, int) and not isinstance(self.limit, bool) and self.limit >= 1):
            raise ConfigurationError(f"Supervision(limit={self.limit!r}): a number of restarts from 1 up is needed.")
        if self.cap_s < self.base_s:
            raise ConfigurationError(
                f"Supervision(base_s={self.base_s!r}, cap_s={self.cap_s!r}): the longest wait must not be shorter than "
                "the first."
            )


@dataclass(frozen=True, slots=True)
class Alarms:
    """When people are told, and how.

    log: as a warning of the logger "slackwater". webhook: an http or https address that gets each alarm as JSON.
    tell: a function that gets each `Notice`, on a thread of its own.
    clear_s: what was wrong must have been right for so long before an alarm is taken back.
    stopped_s: no row was read for so long (or for four times the longest usual pause between batches, if that is more).
    stalled_s: rows come, and the watermark has not moved for so long (or four times its longest usual pause).
    behind_s, behind_steps, step_s: the watermark's lag grew in each of so many steps in a row, by so much in all.
    dropped_rows: so many rows were dropped as late since the alarm was last off.
    scheduler_s: the scheduler has not decided, or has not been in charge, for so long.
    forget_s: a dead query that nobody starts again is no longer an alarm after that.
    """

    log: bool = True
    webhook: str | None = None
    tell: Tell | None = None
    clear_s: float = 30.0
    stopped_s: float = 120.0
    stalled_s: float = 120.0
    behind_s: float = 10.0
    behind_steps: int = 6
    step_s: float = 10.0
    dropped_rows: int = 1
    scheduler_s: float = 5.0
    forget_s: float = 3600.0

    def __post_init__(self) -> None:
        _check_seconds(
            self, "Alarms", ("clear_s", "stopped_s", "stalled_s", "behind_s", "step_s", "scheduler_s", "forget_s")
        )
        for name, least in (("behind_steps", 2), ("dropped_rows", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= least):
                raise ConfigurationError(f"Alarms({name}={value!r}): a whole number from {least} up is needed.")
        if self.webhook is not None and not is_web_address(self.webhook):
            raise ConfigurationError(
                "Alarms(webhook=…): an http or https address is needed, such as https://example.com/hook; "
                f"found is {type(self.webhook).__name__} that is none."
            )
        if self.tell is not None and not callable(self.tell):
            raise ConfigurationError(f"Alarms(tell={self.tell!r}): a function that takes a notice is needed.")


def is_web_address(found: object) -> bool:
    if not isinstance(found, str):
        return False
    try:
        parts = urlsplit(found)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def host_of(address: str) -> str:
    """What of a web address may be shown: what else it holds is often a secret."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "…"
    return f"{parts.scheme}://{parts.hostname}{port}/…" if parts.hostname else "…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_seconds(settings: object, kind: str, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(settings, name)
        if not (_is_number(value) and value > 0):
            raise ConfigurationError(f"{kind}({name}={value!r}): a positive number of seconds is needed.")
