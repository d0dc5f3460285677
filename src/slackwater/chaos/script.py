"""One scene, one trouble after the other; at the end every row is held against the oracle."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.chaos.scene import Scene
from slackwater.chaos.troubles import all_troubles
from slackwater.chaos.workload import LATE
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import Claim, claim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from slackwater.chaos.troubles import Trouble
    from slackwater.verify.model import Differences

log = logging.getLogger("slackwater")


@dataclass(frozen=True)
class Suffered:
    """A trouble that is over. batches: that ran while it lasted; problem: what did not hold."""

    trouble: str
    batches: int = 0
    gates_opened: int | None = None
    seconds: float = 0.0
    skipped: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Played:
    """All troubles, and what came out at the end; `problem` when it could not be asked."""

    suffered: tuple[Suffered, ...]
    outputs: dict[str, Differences]
    problem: str | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "trouble": one.trouble,
                "batches": one.batches,
                "gates_opened": one.gates_opened,
                "seconds": round(one.seconds, 1),
                "skipped": one.skipped,
                "problem": one.problem,
            }
            for one in self.suffered
        ] + [
            {"output": name, "equal": found.equal, "expected_rows": found.expected_rows}
            for name, found in self.outputs.items()
        ]

    @property
    def claims(self) -> list[Claim]:
        wrong = sum(len(d.missing) + len(d.surplus) + len(d.different) for d in self.outputs.values())
        rows = sum(d.expected_rows for d in self.outputs.values())
        return [
            claim(
                "troubles in which a query was stopped, did not go on, or was not scheduled again", self._failed, "≤", 0
            ),
            claim("rows that are not the oracle's", wrong if self.problem is None else max(1, wrong), "≤", 0),
            claim("rows that the oracle expects", rows, "≥", 1),
        ]

    @property
    def _failed(self) -> int:
        return sum(one.problem is not None for one in self.suffered)


def play(
    spark: SparkSession,
    folder: Path,
    *,
    queries: int = 3,
    seed: int = 1,
    troubles: Sequence[Trouble] | None = None,
    told: Callable[[Suffered], None] = lambda _: None,
    timeout_s: float = 120.0,
) -> Played:
    """A trouble that breaks something ends the play: what follows would suffer from it."""
    chosen = tuple(all_troubles(seed, LATE) if troubles is None else troubles)
    scene = Scene(spark, folder, queries=queries, files=max(2, len(chosen) + 1), seed=seed, timeout_s=timeout_s)
    suffered: list[Suffered] = []
    outputs: dict[str, Differences] = {}
    try:
        scene.begin()
        scene.take_a_file()
        for trouble in chosen:
            suffered.append(_suffer(scene, trouble))
            told(suffered[-1])
            if suffered[-1].problem is not None:
                return Played(tuple(suffered), {}, suffered[-1].problem)
        outputs = scene.finish()
    except SlackwaterError as error:
        return Played(tuple(suffered), outputs, str(error))
    finally:
        scene.close()
    return Played(tuple(suffered), outputs)


def _suffer(scene: Scene, trouble: Trouble) -> Suffered:
    if trouble.skipped is not None:
        return Suffered(trouble.name, skipped=trouble.skipped)
    began_s, batches, handle = time.monotonic(), 0, scene.handle
    opened = handle.stats().gates_opened
    try:
        with trouble.strikes(scene):
            batches = scene.take_a_file(but=trouble.spoils)
        for name in trouble.spoils:
            scene.pipeline.restart(name)
        scene.in_charge()
        again = scene.handle.stats().gates_opened - opened if scene.handle is handle else None
        problem = None
        if trouble.silences and again is not None and again < 1:
            problem = "the queries went on though no gate was opened"
    except SlackwaterError as error:
        again, problem = None, str(error)
    return Suffered(trouble.name, batches, again, time.monotonic() - began_s, problem=problem)
