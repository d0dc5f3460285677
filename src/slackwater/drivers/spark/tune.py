"""Apply the doctor's safe findings to a running session, and take them back.

A setting that the user made is never touched, and what this changed is restored only while nobody has
changed it since. Queries that run already are not affected: Spark copies the settings when a query starts,
and one that has a checkpoint keeps the number of partitions that is recorded there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.drivers.spark.doctor import examine, session_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Applied:
    """One setting that was changed. `old` is None when it was not set at all."""

    setting: str
    old: str | None
    new: str
    gain: str


def tune(spark: SparkSession) -> list[Applied]:
    """Apply what is safe, one log line each, and return it for `restore`."""
    applied = []
    for finding in examine(session_facts(spark)):
        if not finding.safe_to_apply or finding.value is None:
            continue
        change = Applied(finding.setting, _explicit(spark, finding.setting), finding.value, finding.gain)
        spark.conf.set(change.setting, change.new)
        log.info("set %s to %s (was: %s); %s", change.setting, change.new, finding.found, change.gain)
        applied.append(change)
    return applied


def restore(spark: SparkSession, applied: Iterable[Applied]) -> None:
    """Put back what `tune` changed, except where the value is no longer the one that it set."""
    for change in applied:
        found = _explicit(spark, change.setting)
        if found != change.new:
            log.info("left %s at %s: changed since it was tuned to %s", change.setting, found, change.new)
        elif change.old is None:
            spark.conf.unset(change.setting)
        else:
            spark.conf.set(change.setting, change.old)


def _explicit(spark: SparkSession, setting: str) -> str | None:
    """The value that was set in the session or its configuration, None where Spark's default is in force."""
    explicit = spark._jsparkSession.conf().getAll()  # noqa: SLF001
    return str(explicit.apply(setting)) if explicit.contains(setting) else None
