"""VoipStream on Spark: a score for every established call, from counters of its caller that decay.

After Δ whole seconds a counter is c·β^Δ, and what is added to it counts ln(1/β) times, so that a steady rate of q a
second keeps it near q. β is .9917 for the slow counters and .9672 for the others:

- CT24 seconds talked and ECR24 calls made (slow); ECR calls made, ENCR calls to a number that is none of the last 64
  that the caller called, RCR calls received. Only established calls count, the one that is scored among them.
- ACD = (CT24 / ECR24) / the mean duration of all calls so far; FoFiR = ECR / RCR; URL = ENCR / ECR.
- Score = 2·FoFiR + 3·URL + 3·ACD, each of the three divided by its maximum (10, 1, 10) and at most 1. A caller that was
  never called has a FoFiR of 1.

The mean of all calls needs one state for all of them, the counters one for each number: two queries. Both are exact as
long as calls come in the order of their answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.workloads.finite import Stage
from slackwater.workloads.keyed import followed
from slackwater.workloads.voip import oracle
from slackwater.workloads.voip.calls import TABLES, calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

SLOW, FAST = 0.9917, 0.9672
CALLEES_KNOWN = 64
FOFIR_MAX, URL_MAX, ACD_MAX = 10.0, 1.0, 10.0

COMPARED = "call_id BIGINT, calling STRING, called STRING, answer_ms BIGINT, duration_s BIGINT, mean_duration_s DOUBLE"
SCORES = "call_id BIGINT, number STRING, answer_ms BIGINT, fofir DOUBLE, url DOUBLE, acd DOUBLE, score DOUBLE"
_ORDER = ("answer_ms", "call_id")


def compared(records: DataFrame) -> DataFrame:
    """Established calls, with the mean duration of all of them so far."""
    talked = records.where("established").selectExpr("*", "0 AS network")
    return followed(talked, ("network",), _ORDER, follow_mean, COMPARED)


def follow_mean(kept: list[int] | None, rows: Sequence[Any]) -> tuple[list[int], list[tuple[Any, ...]]]:
    count, total_s = kept or (0, 0)
    found = []
    for row in rows:
        count, total_s = count + 1, total_s + row.duration_s
        found.append((row.call_id, row.calling, row.called, row.answer_ms, row.duration_s, total_s / count))
    return [count, total_s], found


def scores(talked: DataFrame) -> DataFrame:
    """A score for each call; both ends of a call change the state of their number, only the caller is scored."""
    ends = "inline(array(struct(calling AS number, true AS outgoing), struct(called AS number, false AS outgoing)))"
    return followed(talked.selectExpr("*", ends), ("number",), (*_ORDER, "outgoing"), follow_number, SCORES)


def follow_number(kept: Any, rows: Sequence[Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    """Kept: the second of the last call, the five counters, and whom the number called, the newest last."""
    at_s, counters, callees = kept or (0, {"ct24": 0.0, "ecr24": 0.0, "ecr": 0.0, "encr": 0.0, "rcr": 0.0}, [])
    found = []
    for row in rows:
        passed_s, at_s = row.answer_ms // 1000 - at_s, row.answer_ms // 1000
        counters = {name: count * _beta(name) ** passed_s for name, count in counters.items()}
        if not row.outgoing:
            counters["rcr"] += math.log(1 / FAST)
            continue
        fresh = row.called not in callees
        callees = [*(callee for callee in callees if callee != row.called), row.called][-CALLEES_KNOWN:]
        for name, amount in (("ct24", row.duration_s), ("ecr24", 1), ("ecr", 1), ("encr", int(fresh))):
            counters[name] += amount * math.log(1 / _beta(name))
        found.append((row.call_id, row.number, row.answer_ms, *_score(counters, row.mean_duration_s)))
    return (at_s, counters, callees), found


def _beta(counter: str) -> float:
    return SLOW if counter.endswith("24") else FAST


def _score(counters: Mapping[str, float], mean_duration_s: float) -> tuple[float, float, float, float]:
    fofir = min(1.0, counters["ecr"] / counters["rcr"] / FOFIR_MAX) if counters["rcr"] else 1.0
    url = min(1.0, counters["encr"] / counters["ecr"] / URL_MAX)
    acd = min(1.0, counters["ct24"] / counters["ecr24"] / mean_duration_s / ACD_MAX)
    return fofir, url, acd, 2 * fofir + 3 * url + 3 * acd


def _compared(frames: Frames) -> DataFrame:
    return compared(frames["calls"])


def _scores(frames: Frames) -> DataFrame:
    return scores(frames["compared"])


@dataclass(frozen=True)
class Voip:
    """Every row of the answer is exact."""

    name: str = "voip"
    about: str = "VoipStream: decaying counters of each number, and a score for each call"
    outputs: tuple[str, ...] = ("scores",)

    @property
    def tables(self) -> Mapping[str, str]:
        return TABLES

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage("compared", ("calls",), _compared, COMPARED),
            Stage("scores", ("compared",), _scores, SCORES, keys=("call_id",)),
        )

    def generate(self, seed: int, size: int) -> Rows:
        return {"calls": calls(seed, size)}

    def closing(self, rows: Rows) -> Rows:
        """Nothing waits for a watermark."""
        return dict.fromkeys(rows, ())

    def expected(self, rows: Rows) -> Answers:
        return {"scores": oracle.scores(rows["calls"])}
