"""SYN: chains of filters, source → L filters → sink, whose costs and selectivities are set.

An operator hashes a row again and again (its cost, in rounds of MD5), then keeps it if the last digest is low enough
(its selectivity). The next one goes on from that digest. So the work cannot be skipped, also not for a row that is
dropped, and what comes out proves that it was done.

A chain becomes a pipeline of streaming queries that hand rows on through files, with `per_stage` operators in each.
A query's selectivity is drawn from [0.01, 1] and spread over its chain, each operator's within ± 10 % of the L-th root;
each of its operators costs B·2^z rounds ± 10 %, with one z of 0, 1, 2, 3, 4 for the query. In the blocking variant one
operator in ten, one at least, holds one row in a thousand for up to 200 ms.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from slackwater.errors import ConfigurationError
from slackwater.workloads import syn_oracle
from slackwater.workloads.finite import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

TABLES = {"tuples": "id BIGINT, event_ms BIGINT"}
COLUMNS = "id BIGINT, event_ms BIGINT, digest STRING, held_ms BIGINT"

PARTS = 1 << 32
BLOCKING_SHARE = 0.1
HELD_MS_MAX = 200

_FIRST_MS = 1_500_000_000_000


class Operator(NamedTuple):
    """A filter. It keeps a row whose last digest begins with a number below `keeps_below`, of 2^32.

    seed: what its digests begin with. rounds: of hashing, for each row. blocks: whether it holds a row now and then.
    """

    seed: str
    rounds: int
    keeps_below: int
    blocks: bool = False


@dataclass(frozen=True)
class Syn:
    """Chains by seed.

    selectivity: of a whole chain, and rounds: of one operator; drawn where not given. base_rounds is B. holds_in_1000:
    of 1000 rows, how many a blocking operator holds.
    """

    name: str = "syn"
    about: str = "SYN: a chain of five filters, each a query"
    chains: int = 1
    length: int = 5
    per_stage: int = 1
    base_rounds: int = 8
    selectivity: float | None = None
    rounds: int | None = None
    blocking: bool = False
    holds_in_1000: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for what in ("chains", "length", "per_stage", "base_rounds"):
            if getattr(self, what) < 1:
                raise ConfigurationError(f"{what} of {self.name} is {getattr(self, what)}; give 1 or more.")
        if self.selectivity is not None and not 0 < self.selectivity <= 1:
            raise ConfigurationError(f"a chain keeps more than 0 and at most 1 of its rows; got {self.selectivity}.")
        if self.rounds is not None and self.rounds < 1:
            raise ConfigurationError(f"an operator hashes a row at least once; got {self.rounds} rounds.")
        if not 0 <= self.holds_in_1000 <= 1000:
            raise ConfigurationError(f"of 1000 rows 0 to 1000 can be held; got {self.holds_in_1000}.")

    @cached_property
    def operators(self) -> tuple[tuple[Operator, ...], ...]:
        """Those of each chain, in their order."""
        rng = random.Random(f"syn-{self.seed}")
        drawn = [self._chain(rng, number) for number in range(self.chains)]
        if self.blocking:
            places = [(chain, place) for chain in range(self.chains) for place in range(self.length)]
            for chain, place in rng.sample(places, max(1, round(BLOCKING_SHARE * len(places)))):
                drawn[chain][place] = drawn[chain][place]._replace(blocks=True)
        return tuple(map(tuple, drawn))

    def _chain(self, rng: random.Random, number: int) -> list[Operator]:
        selectivity = rng.uniform(0.01, 1.0) if self.selectivity is None else self.selectivity
        rounds = self.base_rounds * 2 ** rng.randrange(5)
        found = []
        for place in range(self.length):
            keeps = selectivity ** (1 / self.length)
            if self.selectivity is None:
                keeps = min(1.0, keeps * rng.uniform(0.9, 1.1))
            cost = max(1, round(rounds * rng.uniform(0.9, 1.1))) if self.rounds is None else self.rounds
            found.append(Operator(f"{self.seed}.{number}.{place}", cost, round(keeps * PARTS)))
        return found

    @property
    def tables(self) -> Mapping[str, str]:
        return TABLES

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for number in range(self.chains) for stage in self._stages(number))

    def _stages(self, number: int) -> Iterator[Stage]:
        before = "tuples"
        for first in range(0, self.length, self.per_stage):
            operators = self.operators[number][first : first + self.per_stage]
            name = f"chain{number}_{first // self.per_stage}"
            build = partial(_build, before, operators, self.holds_in_1000)
            yield Stage(name, (before,), build, COLUMNS, keys=("id",))
            before = name

    @property
    def outputs(self) -> tuple[str, ...]:
        last = (self.length - 1) // self.per_stage
        return tuple(f"chain{number}_{last}" for number in range(self.chains))

    def generate(self, seed: int, size: int) -> Rows:
        """Rows of one source, which all chains read; 1000 a second."""
        first = random.Random(f"syn-rows-{seed}").randrange(1 << 40)
        return {"tuples": [{"id": first + place, "event_ms": _FIRST_MS + place} for place in range(size)]}

    def closing(self, rows: Rows) -> Rows:
        """Nothing waits for a watermark."""
        return dict.fromkeys(rows, ())

    def expected(self, rows: Rows) -> Answers:
        return {
            output: syn_oracle.survivors(rows["tuples"], chain, self.holds_in_1000)
            for output, chain in zip(self.outputs, self.operators, strict=True)
        }


def _build(before: str, operators: Sequence[Operator], holds_in_1000: float, frames: Frames) -> DataFrame:
    rows = frames[before]
    if "digest" not in rows.columns:
        rows = rows.selectExpr("id", "event_ms", "CAST(id AS STRING) AS digest", "0L AS held_ms")
    for operator in operators:
        rows = filtered(rows, operator)
        if operator.blocks:
            rows = held(rows, holds_in_1000)
    return rows


def filtered(rows: DataFrame, operator: Operator) -> DataFrame:
    """The operator's work, then its choice."""
    work = f"aggregate(sequence(1, {operator.rounds}), concat('{operator.seed}:', digest), (text, i) -> md5(text))"
    # Not deterministic to Spark's eyes: else it might ask the filter below the work too, and do the work twice.
    worked = rows.selectExpr("id", "event_ms", f"IF(spark_partition_id() >= 0, {work}, NULL) AS digest", "held_ms")
    return worked.where(f"CAST(conv(substr(digest, 1, 8), 16, 10) AS BIGINT) < {operator.keeps_below}")


def held(rows: DataFrame, in_1000: float) -> DataFrame:
    """The same rows; those that are held add up for how long. Not the digits that the filter reads choose them."""
    chosen = f"CAST(conv(substr(digest, 9, 8), 16, 10) AS BIGINT) < {round(in_1000 * PARTS / 1000)}"
    length = f"CAST(conv(substr(digest, 17, 8), 16, 10) AS BIGINT) * {HELD_MS_MAX + 1} div {PARTS}"
    return rows.selectExpr("*", f"IF({chosen}, {length}, 0L) AS pause_ms").mapInPandas(_hold, COLUMNS)


def _hold(pieces: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for rows in pieces:
        for pause_ms in rows["pause_ms"]:
            if pause_ms:
                time.sleep(pause_ms / 1000)
        yield rows.assign(held_ms=rows["held_ms"] + rows["pause_ms"]).drop(columns="pause_ms")


def blocking(**settings: Any) -> Syn:
    """Two queries of five filters each, one of which blocks now and then."""
    about = "SYN: a chain of ten filters in two queries, one of which blocks"
    return Syn(name="syn-blocking", about=about, length=10, per_stage=5, blocking=True, **settings)
