"""What advice consists of: a change, and what it is predicted to bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "policy", "knob", "lanes", "triggers", "partitions", "state store", "watermark delay", "move a query", "cores"
]


@dataclass(frozen=True)
class Predicted:
    """A figure, and between which it is expected."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Suggestion:
    """A change and what it brings; figures are None where nothing was replayed. `worth`: even at the cautious end."""

    kind: Kind
    change: str
    worth: bool
    mean_s: Predicted | None = None
    p99_s: Predicted | None = None
    cpu_cores: float | None = None
    state_bytes: float | None = None
    late_rows: float | None = None
    windows_missing: int | None = None
    note: str = ""
