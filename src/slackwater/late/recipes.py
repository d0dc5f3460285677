"""How each Spark aggregate is kept as partials: what a batch leaves, how that merges, what the user sees.

A reader finds each aggregate in a line of `PLAIN` or `DISTINCT`, under the name of its class in Spark. The texts are
SQL with these placeholders: {0}, {1} the arguments; {tuple} all of them as one value, null if one is null; {f} the
FILTER clause; {self} the user's own aggregate, FILTER included; {type} the type of the partial in `merge`, of the
aggregate in `finish`; {sum_type} the type in which Spark sums for avg; {lg_k} the size of a sketch; every other name a
partial.

Nothing in a lambda may be a placeholder of an argument: the parser takes names there for variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Part:
    """A column of partials. `merge` gives the type that `partial` has, so that merging may be repeated."""

    partial: str
    merge: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """finish: the result; or, by the names of Spark's own buffers, what its formula for the result is applied to.

    normalised: arguments are compared or hashed, so that 0.0 and −0.0 must be one value, and all NaN another.
    """

    parts: Mapping[str, Part]
    finish: str | Mapping[str, str] = field(default_factory=dict)
    normalised: bool = False


def sketch_lg_k(relative_sd: float) -> int:
    """Base-2 logarithm of the registers that a HyperLogLog union needs: its relative error is 1.04 / √k."""
    return min(21, max(4, ceil(2 * log2(1.04 / relative_sd))))


def _of(finish: str | Mapping[str, str], *, normalised: bool = False, **parts: tuple[str, str]) -> Recipe:
    return Recipe({name: Part(*texts) for name, texts in parts.items()}, finish, normalised)


def _self(merge: str) -> Recipe:
    """An aggregate whose results merge into its result."""
    return _of("{value}", value=("{self}", merge))


def _fold(values: str, kind: str, step: str, cast: str = "CAST") -> str:
    """The values of an array brought together; null where there are none."""
    rest = f"slice({values}, 2, size({values}))"
    return f"aggregate({rest}, CAST(get({values}, 0) AS {kind}), (a, x) -> {cast}({step} AS {kind}))"


def _struct(fields: Mapping[str, str]) -> str:
    return "named_struct(" + ", ".join(f"'{name}', {text}" for name, text in fields.items()) + ")"


def _chan(fields: Mapping[str, tuple[str, str]]) -> Recipe:
    """Moments about the mean, merged pairwise (Chan et al.; Pébay for the higher ones), finished by Spark's formulas.

    fields: of each buffer of Spark, what a batch leaves and how a and b give a new one. Sums of squares would cancel
    where the mean is large.
    """
    start = _struct(dict.fromkeys(fields, "0D"))
    step = _struct({name: merge for name, (_, merge) in fields.items()})
    some = "collect_list({moments}) FILTER (WHERE {moments}.n > 0)"
    return _of(
        {name: f"{{moments}}.{name}" for name in fields},
        moments=(
            _struct({name: partial for name, (partial, _) in fields.items()}),
            f"aggregate({some}, {start}, (a, b) -> {step})",
        ),
    )


def _mean(values: str) -> str:
    """A mean that is exact where all values are equal, as Spark's own is: a sum divided by a count is not."""
    return f"coalesce(IF(var_pop({values}){{f}} = 0, min({values}){{f}}, avg({values}){{f}}), 0D)"


def _times_n(moment: str, count: str) -> str:
    return f"coalesce({moment} * {count}{{f}}, 0D)"


def _unless_constant(moment: str) -> str:
    return f"IF(var_pop({{0}}){{f}} = 0, 0D, {moment})"


_COUNT = ("count({0}){f}", "coalesce(sum({count}), 0L)")
# A partial that overflowed is null though there were values; the null must not be taken for a batch without values.
_CHECKED = "IF(bool_or({count} > 0 AND {sum} IS NULL), NULL, CAST(sum({sum}) AS {type}))"
_TRIED = "IF(bool_or({count} > 0 AND {sum} IS NULL), NULL, try_cast(try_sum({sum}) AS {type}))"
_MEAN = {"sum": "{sum}", "count": "{count}"}

_N = "(a.n + b.n)"
_D, _DX, _DY = "(b.avg - a.avg)", "(b.xAvg - a.xAvg)", "(b.yAvg - a.yAvg)"
_BOTH = f"a.n * b.n / {_N}"
_X, _Y = "IF({1} IS NULL, NULL, {0})", "IF({0} IS NULL, NULL, {1})"
_SPREAD = {
    "n": ("CAST(count({0}){f} AS DOUBLE)", "a.n + b.n"),
    "avg": (_mean("{0}"), f"a.avg + {_D} * (b.n / {_N})"),
    "m2": (_times_n("var_pop({0}){f}", "count({0})"), f"a.m2 + b.m2 + {_D} * {_D} * {_BOTH}"),
}
_M3 = f"a.m3 + b.m3 + {_D} * {_D} * {_D} * {_BOTH} * (a.n - b.n) / {_N} + 3 * {_D} * (a.n * b.m2 - b.n * a.m2) / {_N}"
_M4 = (
    f"a.m4 + b.m4 + {_D} * {_D} * {_D} * {_D} * {_BOTH} * (a.n * a.n - a.n * b.n + b.n * b.n) / {_N} / {_N}"
    f" + 6 * {_D} * {_D} * (a.n * a.n * b.m2 + b.n * b.n * a.m2) / {_N} / {_N}"
    f" + 4 * {_D} * (a.n * b.m3 - b.n * a.m3) / {_N}"
)
_SHAPE = _SPREAD | {
    "m3": (_times_n(_unless_constant("skewness({0}){f} * power(var_pop({0}){f}, 1.5D)"), "count({0})"), _M3),
    "m4": (_times_n(_unless_constant("(kurtosis({0}){f} + 3) * power(var_pop({0}){f}, 2D)"), "count({0})"), _M4),
}
_PAIRS = {
    "n": ("CAST(count({0}, {1}){f} AS DOUBLE)", "a.n + b.n"),
    "xAvg": (_mean(_X), f"a.xAvg + {_DX} * (b.n / {_N})"),
    "yAvg": (_mean(_Y), f"a.yAvg + {_DY} * (b.n / {_N})"),
    "ck": (_times_n("covar_pop({0}, {1}){f}", "count({0}, {1})"), f"a.ck + b.ck + {_DX} * {_DY} * {_BOTH}"),
    "xMk": (_times_n(f"var_pop({_X}){{f}}", "count({0}, {1})"), f"a.xMk + b.xMk + {_DX} * {_DX} * {_BOTH}"),
    "yMk": (_times_n(f"var_pop({_Y}){{f}}", "count({0}, {1})"), f"a.yMk + b.yMk + {_DY} * {_DY} * {_BOTH}"),
}
_HASH = "IF({0} IS NULL, NULL, xxhash64({0}))"

# Of sum and avg: ":exact" where an overflow may leave a null (decimals, intervals), ":try" for try_sum and try_avg.
# Of collect_list and collect_set: ":nulls" for RESPECT NULLS.
PLAIN: Mapping[str, Recipe] = {
    "Count": _of("coalesce({count}, 0L)", count=("{self}", "coalesce(sum({count}), 0L)")),
    "CountIf": _of("coalesce({count}, 0L)", count=("{self}", "coalesce(sum({count}), 0L)")),
    "Sum": _self("sum({value})"),
    "Sum:exact": _of("{sum}", sum=("{self}", _CHECKED), count=_COUNT),
    "Sum:try": _of("{sum}", sum=("{self}", _TRIED), count=_COUNT),
    "Average": _of(_MEAN, sum=("sum(CAST({0} AS DOUBLE)){f}", "sum({sum})"), count=_COUNT),
    "Average:exact": _of(_MEAN, sum=("sum({0}){f}", _CHECKED), count=_COUNT),
    "Average:try": _of(_MEAN, sum=("try_sum({0}){f}", _TRIED), count=_COUNT),
    "Product": _self(_fold("collect_list({value})", "DOUBLE", "a * x")),
    "Min": _self("min({value})"),
    "Max": _self("max({value})"),
    "MinBy": _of("{value}", value=("{self}", "min_by({value}, {by})"), by=("min({1}){f}", "min({by})")),
    "MaxBy": _of("{value}", value=("{self}", "max_by({value}, {by})"), by=("max({1}){f}", "max({by})")),
    "AnyValue": _self("any_value({value}, true)"),
    "BoolAnd": _self("bool_and({value})"),
    "BoolOr": _self("bool_or({value})"),
    "BitAndAgg": _self("bit_and({value})"),
    "BitOrAgg": _self("bit_or({value})"),
    "BitXorAgg": _self("bit_xor({value})"),
    "StddevPop": _chan(_SPREAD),
    "StddevSamp": _chan(_SPREAD),
    "VariancePop": _chan(_SPREAD),
    "VarianceSamp": _chan(_SPREAD),
    "Skewness": _chan(_SHAPE),
    "Kurtosis": _chan(_SHAPE),
    "CovPopulation": _chan(_PAIRS),
    "CovSample": _chan(_PAIRS),
    "Corr": _chan(_PAIRS),
    "CollectList": _of("coalesce(array_compact({list}), array())", list=("{self}", "flatten(collect_list({list}))")),
    "CollectList:nulls": _of("coalesce({list}, array())", list=("{self}", "flatten(collect_list({list}))")),
    "CollectSet": _of(
        "coalesce(array_compact({set}), array())", set=("{self}", "array_distinct(flatten(collect_list({set})))")
    ),
    "CollectSet:nulls": _of("coalesce({set}, array())", set=("{self}", "array_distinct(flatten(collect_list({set})))")),
    "HyperLogLogPlusPlus": _of(
        "coalesce(hll_sketch_estimate({sketch}), 0L)",
        sketch=(f"hll_sketch_agg({_HASH}, {{lg_k}}){{f}}", "hll_union_agg({sketch})"),
        normalised=True,
    ),
    "HllSketchAgg": _self("hll_union_agg({value}, true)"),
    "HllUnionAgg": _self("hll_union_agg({value}, true)"),
}


def _distinct(finish: str | Mapping[str, str]) -> Recipe:
    values = ("array_distinct(collect_set({tuple}){f})", "array_distinct(flatten(collect_list({values})))")
    return _of(finish, normalised=True, values=values)


_SIZE = "coalesce(CAST(size({values}) AS BIGINT), 0L)"

DISTINCT: Mapping[str, Recipe] = {
    "Count": _distinct(_SIZE),
    "Sum": _distinct(_fold("{values}", "{type}", "a + x")),
    "Sum:exact": _distinct(_fold("{values}", "{type}", "a + x")),
    "Sum:try": _distinct(_fold("{values}", "{type}", "try_add(a, x)", "try_cast")),
    "Average": _distinct({"sum": _fold("{values}", "{sum_type}", "a + x"), "count": _SIZE}),
    "Average:exact": _distinct({"sum": _fold("{values}", "{sum_type}", "a + x"), "count": _SIZE}),
    "Average:try": _distinct({"sum": _fold("{values}", "{sum_type}", "try_add(a, x)", "try_cast"), "count": _SIZE}),
    "Product": _distinct(_fold("{values}", "{type}", "a * x")),
    "BitXorAgg": _distinct(_fold("{values}", "{type}", "a ^ x")),
    "CollectList": _distinct("coalesce(array_compact({values}), array())"),
} | {
    name: PLAIN[name]  # DISTINCT changes nothing
    for name in (
        "Min", "Max", "AnyValue", "BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "CollectSet", "CollectSet:nulls",
        "HyperLogLogPlusPlus",
    )
}  # fmt: skip

_ROWS = "It needs every row: use apply with a pandas function, which keeps rows."
_ORDER = "The order of rows is not kept across batches: use min_by / max_by with the event time."

REFUSED: Mapping[str, str] = {
    "First": _ORDER,
    "Last": _ORDER,
    "Median": _ROWS,
    "Percentile": _ROWS,
    "PercentileCont": _ROWS,
    "PercentileDisc": _ROWS,
    "ApproximatePercentile": _ROWS,
    "Mode": _ROWS,
    "HistogramNumeric": _ROWS,
    "PythonUDAF": _ROWS,
    "ScalaUDAF": _ROWS,
    "ScalaAggregator": _ROWS,
    "ListAgg": "Use array_join over collect_list, which promises no order either.",
}
OTHERWISE = "Write it with aggregates that merge (docs/late.md lists them), or use apply with a pandas function."
