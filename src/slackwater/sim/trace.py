"""A recorded run: every batch of every query, as `slackwater bench ysb … --trace FILE` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = 1


class TracedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query and its load; `interval_s` is the user's own trigger, None: as soon as possible, or as scheduled.

    `slide_s` is None for windows that tumble.
    """

    name: str
    phase_ms: int
    rate: float
    window_s: float
    delay_s: float
    interval_s: float | None = None
    slide_s: float | None = None


class TracedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A batch: when it started and how long it took in all, what it read, and Spark's own parts of its time."""

    query: str
    batch_id: int
    start_ms: int
    duration_ms: int
    rows: int
    watermark_ms: int | None = None
    event_max_ms: int | None = None
    parts_ms: dict[str, int] = {}


class RunTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every batch that ran at some time within the measured span, and the CPU time used by the processes so far.

    `cpu` are samples (wall ms, CPU seconds), about one a second. `lanes` is None for Spark's own policies.
    """

    policy: str
    seed: int
    cores: int
    lanes: int | None
    from_ms: int
    to_ms: int
    cpu_s: float
    queries: list[TracedQuery]
    batches: list[TracedBatch]
    cpu: list[tuple[int, float]] = []


class TraceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1] = FORMAT
    workload: str
    commit: str | None
    runs: list[RunTrace]


def read_trace(path: Path) -> TraceFile:
    """Raises ConfigurationError for whatever is not a trace with a run in it."""
    advice = "Record one with `slackwater bench ysb … --trace FILE`."
    try:
        found = msgspec.json.decode(path.read_bytes(), type=TraceFile)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}. {advice}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not a trace of format {FORMAT}: {error}. {advice}") from error
    if not found.runs:
        raise ConfigurationError(f"{path} holds no runs. {advice}")
    return found
