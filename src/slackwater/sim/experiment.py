"""What every experiment gives: rows, and claims with target, measured value and whether they hold."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

Relation = Literal["≥", "≤"]
_HOLDS = {"≥": operator.ge, "≤": operator.le}


@dataclass(frozen=True)
class Claim:
    """A claim that the experiment tests. A claim that does not hold is a finding, not a failure."""

    claim: str
    target: str
    measured: float
    holds: bool


def claim(text: str, measured: float, relation: Relation, target: float) -> Claim:
    return Claim(text, f"{relation} {target:g}", round(measured, 6), bool(_HOLDS[relation](measured, target)))


@dataclass(frozen=True)
class Experiment:
    """The result of one `slackwater sim NAME`; `assumptions` says what the model takes for granted."""

    experiment: str
    seed: int
    rows: list[dict[str, Any]]
    claims: list[Claim]
    assumptions: list[str] = field(default_factory=list)
    commit: str | None = None

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
