"""Aggregates kept as partials give what plain Spark gives, however rows are split into batches and merged."""

from __future__ import annotations

import datetime as dt
import math
import random
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.errors import ConfigurationError
from slackwater.late.aggregates import Decomposed, decompose
from slackwater.late.recipes import sketch_lg_k

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.spark

SCHEMA = StructType(
    [
        StructField("batch", IntegerType()),
        StructField("k", StringType()),
        StructField("a key", IntegerType(), nullable=False),
        StructField("i", IntegerType()),
        StructField("l", LongType()),
        StructField("x", DoubleType()),
        StructField("y", DoubleType()),
        StructField("f", FloatType()),
        StructField("d", DecimalType(12, 2)),
        StructField("wide", DecimalType(30, 18)),
        StructField("yes", BooleanType()),
        StructField("s", StringType()),
        StructField("t", TimestampType()),
        StructField("day", DateType()),
        StructField("st", StructType([StructField("a", IntegerType()), StructField("b", StringType())])),
        StructField("an.odd `name", IntegerType()),
    ]
)
KEYS = ["k", "a key"]

EXACT = {
    "star": "count(*)",
    "one": "count(1)",
    "column": "count(i)",
    "several": "count(i, x)",
    "filtered": "count(*) FILTER (WHERE i > 0)",
    "count_if": "count_if(i > 0)",
    "sum_int": "sum(i)",
    "sum_long": "sum(l)",
    "sum_filtered": "sum(l) FILTER (WHERE yes)",
    "sum_decimal": "sum(d)",
    "sum_wide": "sum(wide)",
    "sum_filtered_decimal": "sum(d) FILTER (WHERE yes)",
    "try_sum_int": "try_sum(i)",
    "try_sum_decimal": "try_sum(d)",
    "avg_decimal": "avg(d)",
    "avg_wide": "avg(wide)",
    "try_avg_decimal": "try_avg(d)",
    "sum_interval": "sum(t - timestamp'2026-01-01')",
    "avg_interval": "avg(t - timestamp'2026-01-01')",
    "min": "min(x)",
    "max": "max(x)",
    "min_string": "min(s)",
    "max_time": "max(t)",
    "min_day": "min(day)",
    "max_struct": "max(st)",
    "max_nested": "max(st.a)",
    "min_by": "min_by(st, l)",
    "max_by": "max_by(s, l) FILTER (WHERE i > 0)",
    "bool_and": "bool_and(yes)",
    "every": "every(i > -10)",
    "bool_or": "bool_or(yes)",
    "any": "any(i > 0)",
    "some": "some(yes) FILTER (WHERE i > 0)",
    "bit_and": "bit_and(l)",
    "bit_or": "bit_or(i)",
    "bit_xor": "bit_xor(l)",
    "list": "collect_list(i)",
    "list_struct": "collect_list(st)",
    "array_agg": "array_agg(s)",
    "set": "collect_set(i)",
    "set_string": "collect_set(s) FILTER (WHERE yes)",
    "count_distinct": "count(DISTINCT i)",
    "count_distinct_double": "count(DISTINCT x)",
    "count_distinct_two": "count(DISTINCT i, yes)",
    "count_distinct_filtered": "count(DISTINCT s) FILTER (WHERE yes)",
    "sum_distinct": "sum(DISTINCT i)",
    "sum_distinct_decimal": "sum(DISTINCT d)",
    "avg_distinct": "avg(DISTINCT i)",
    "avg_distinct_decimal": "avg(DISTINCT d)",
    "max_distinct": "max(DISTINCT i)",
    "bit_xor_distinct": "bit_xor(DISTINCT i)",
    "list_distinct": "collect_list(DISTINCT i)",
    "regr_count": "regr_count(x, y)",
    "between": "sum(i) FILTER (WHERE i BETWEEN -9 AND 9)",
    "nullif": "nullif(sum(nullif(i, 3)), 7)",
    "odd": "sum(`an.odd ``name`)",
    "outer": "CASE WHEN count(*) > 3 THEN concat(k, max(s)) ELSE cast(`a key` AS STRING) END",
    "inner": "sum(aggregate(array(i, 2), 0, (a, b) -> a + b)) + count(nvl(s, 'none'))",
    "key": "upper(k)",
}
NEAR = {
    "sum_double": "sum(x)",
    "sum_float": "sum(f)",
    "avg": "avg(i)",
    "mean": "mean(x)",
    "avg_float": "avg(f)",
    "try_avg": "try_avg(l)",
    "avg_filtered": "avg(x) FILTER (WHERE yes)",
    "ratio": "sum(i) / nullif(count(x), 0)",
    "stddev": "stddev(x)",
    "std": "std(i)",
    "stddev_pop": "stddev_pop(x)",
    "stddev_filtered": "stddev_pop(x) FILTER (WHERE i > 0)",
    "variance": "variance(i)",
    "var_pop": "var_pop(y)",
    "var_samp": "var_samp(d)",
    "var_shifted": "var_samp(y + 1000000)",
    "skewness": "skewness(x)",
    "kurtosis": "kurtosis(x)",
    "covar_pop": "covar_pop(x, y)",
    "covar_samp": "covar_samp(i, y)",
    "corr": "corr(i, l)",
    "regr_avgx": "regr_avgx(x, y)",
    "sum_distinct_double": "sum(DISTINCT y)",
}


def columns(texts: dict[str, str]) -> list[Any]:
    return [F.expr(text).alias(name) for name, text in texts.items()]


def rows(seed: int, batches: int, groups: Sequence[str | None]) -> list[tuple[Any, ...]]:
    """Groups of all sizes: constant values, nulls alone, some NaN, one row."""
    draw = random.Random(seed)
    start = dt.datetime(2026, 1, 1)  # noqa: DTZ001  # Spark takes it in the session's zone

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    found: list[tuple[Any, ...]] = []
    for group in groups:
        for number in range(1 if group == "single" else draw.randint(15, 40)):
            constant, nan = group == "constant", group == "nan" and draw.random() < 0.3
            values: tuple[Any, ...] = (
                maybe(draw.randint(-20, 20)),
                # Unique, for min_by and max_by: which of equal ones is taken is nobody's promise.
                draw.randint(-(2**40), 2**40) * 100 + number,
                maybe(0.1 if constant else math.nan if nan else draw.choice([0.0, -0.0, draw.gauss(3, 40)])),
                maybe(0.7 if constant else draw.gauss(-5, 0.1)),
                maybe(draw.gauss(0, 1)),
                maybe(Decimal(draw.randint(-(10**9), 10**9)).scaleb(-2)),
                maybe(Decimal(draw.randint(-(10**22), 10**22)).scaleb(-18)),
                maybe(draw.random() < 0.5),
                maybe(draw.choice(["", "z", "é", "a.b"])),
                maybe(start + dt.timedelta(milliseconds=draw.randint(0, 10**9))),
                maybe(start.date() + dt.timedelta(days=draw.randint(0, 99))),
                maybe((maybe(draw.randint(0, 3)), maybe("q"))),
                maybe(draw.randint(0, 9)),
            )
            if group == "nulls":
                values = (None,) * len(values)
            found.append((draw.randrange(batches), group, 1 + (number % 2 if group == "a" else 0), *values))
    return found


def executed(frame: Any, parts: Decomposed, keys: Sequence[str], folder: Path) -> Any:
    """What a stream would do: partials of each batch are stored, merged, merged again, finished."""
    by = [F.col(f"`{key}`") for key in keys]
    frame.groupBy("batch", *by).agg(*parts.partial).write.parquet(str(folder))
    stored = frame.sparkSession.read.parquet(str(folder))
    assert tuple(stored.columns) == ("batch", *keys, *parts.names)
    some = stored.groupBy((F.col("batch") % 3).alias("batch"), *by).agg(*parts.merge)
    return some.groupBy(*by).agg(*parts.merge).select(*by, *parts.finish)


def typed(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema]


def by_key(frame: Any, keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[key] for key in keys): row.asDict() for row in frame.collect()}


def agrees(found: Any, expected: Any) -> bool:
    if isinstance(found, list) and isinstance(expected, list):
        return sorted(map(repr, found)) == sorted(map(repr, expected))
    return repr(found) == repr(expected) or bool(found == expected)


def is_near(found: Any, expected: Any) -> bool:
    if found is None or expected is None or math.isnan(expected) or math.isnan(found):
        return repr(found) == repr(expected)
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9)


@pytest.fixture(scope="module")
def everything(session: Any) -> Decomposed:
    return decompose(session, SCHEMA, KEYS, columns(EXACT | NEAR))


@pytest.mark.parametrize("seed", [1, 2])
def test_merged_partials_are_what_plain_spark_gives(spark: Any, everything: Decomposed, tmp_path: Path, seed: int):
    groups = ["a", "b", "constant", "nulls", "nan", "single", None]
    frame = spark.createDataFrame(rows(seed, 7, groups), SCHEMA)
    plain = frame.groupBy(*KEYS).agg(*columns(EXACT | NEAR))
    result = executed(frame, everything, KEYS, tmp_path / "partials")
    assert typed(result.schema) == typed(plain.schema)
    expected, found = by_key(plain, KEYS), by_key(result, KEYS)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        different = {
            name: (found[key][name], value)
            for name, value in values.items()
            if not (is_near if name in NEAR else agrees)(found[key][name], value)
        }
        assert different == {}, key


def test_types_are_sparks_own_with_nullability(spark: Any):
    wanted = columns({"n": "count(x)", "c": "count_if(yes)", "m": "avg(d)", "u": "count(DISTINCT i)"})
    parts = decompose(spark, SCHEMA, KEYS, wanted)
    frame = spark.createDataFrame([], SCHEMA)
    result = frame.groupBy(*KEYS).agg(*parts.partial).groupBy(*KEYS).agg(*parts.merge).select(*KEYS, *parts.finish)
    assert result.schema == frame.groupBy(*KEYS).agg(*wanted).schema


def test_columns_without_a_name_are_named_as_spark_names_them(spark: Any, tmp_path: Path):
    frame = spark.createDataFrame(rows(4, 2, ["a"]), SCHEMA)
    wanted = [F.avg("x"), F.sum("i") / F.count("*"), F.count("*"), F.countDistinct("i", "s"), F.max(F.col("st.a") + 1)]
    result = executed(frame, decompose(spark, SCHEMA, ["k"], wanted), ["k"], tmp_path / "partials")
    assert typed(result.schema) == typed(frame.groupBy("k").agg(*wanted).schema)


def test_no_keys_and_no_rows(spark: Any):
    frame = spark.createDataFrame([], SCHEMA)
    wanted = columns({"n": "count(*)", "s": "sum(d)", "m": "stddev(x)", "l": "collect_list(i)", "u": "avg(DISTINCT i)"})
    parts = decompose(spark, SCHEMA, [], wanted)
    merged = frame.agg(*parts.partial).agg(*parts.merge).agg(*parts.merge)
    assert merged.select(*parts.finish).collect() == frame.agg(*wanted).collect()


def test_an_aggregate_that_is_used_twice_is_kept_once(spark: Any):
    twice = [F.sum("x").alias("a"), (F.sum("x") / F.count("y")).alias("b"), F.expr("sum(x + 0)").alias("c")]
    assert decompose(spark, SCHEMA, KEYS, twice).names == ("_0_value", "_1_count", "_2_value")


def test_partials_keep_away_from_keys_that_look_like_them(spark: Any):
    schema = StructType([StructField("_0_value", IntegerType()), StructField("x", DoubleType())])
    assert decompose(spark, schema, ["_0_value"], [F.sum("x")]).names == ("__0_value",)


def test_functions_of_the_user_stay_inside_and_outside(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    double = F.udf(lambda value: None if value is None else 2 * value, LongType())
    frame = spark.createDataFrame(rows(5, 3, ["a", "b"]), SCHEMA)
    wanted = [double(F.sum(double("i"))).alias("out")]
    result = executed(frame, decompose(spark, SCHEMA, ["k"], wanted), ["k"], tmp_path / "partials")
    assert by_key(result, ["k"]) == by_key(frame.groupBy("k").agg(*wanted), ["k"])


def test_an_overflow_of_one_batch_is_not_forgotten(spark: Any):
    top = Decimal(10**37).scaleb(0)
    schema = StructType([StructField("batch", IntegerType()), StructField("d", DecimalType(38, 0))])
    frame = spark.createDataFrame([(1, top)] * 11 + [(2, Decimal(5))], schema)
    wanted = columns({"sum": "try_sum(d)", "avg": "try_avg(d)", "long": "try_sum(cast(9223372036854775807 AS BIGINT))"})
    parts = decompose(spark, schema, [], wanted)
    merged = frame.groupBy("batch").agg(*parts.partial).agg(*parts.merge).agg(*parts.merge)
    assert merged.select(*parts.finish).collect() == frame.agg(*wanted).collect() == [(None, None, None)]


def test_integers_overflow_as_the_session_says(spark: Any):
    schema = StructType([StructField("batch", IntegerType()), StructField("l", LongType())])
    frame = spark.createDataFrame([(1, 2**63 - 1), (2, 2**63 - 1)], schema)
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for ansi in ("false", "true"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            parts = decompose(spark, schema, [], [F.sum("l").alias("s")])
            finished = frame.groupBy("batch").agg(*parts.partial).agg(*parts.merge).select(*parts.finish)
            if ansi == "false":
                assert finished.collect() == [(-2,)]
            else:
                with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
                    finished.collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_approximate_counts_are_as_near_as_was_asked(spark: Any):
    frame = spark.range(40_000).select((F.col("id") % 10).alias("batch"), F.expr("cast(id % 9000 AS DOUBLE) AS x"))
    wanted = [F.approx_count_distinct("x", 0.02).alias("near"), F.expr("approx_count_distinct(null)").alias("none")]
    parts = decompose(spark, frame.schema, [], wanted)
    result = frame.groupBy("batch").agg(*parts.partial).agg(*parts.merge).select(*parts.finish)
    assert result.schema == frame.agg(*wanted).schema
    near, none = result.first()
    assert abs(near / 9000 - 1) < 4 * 0.02
    assert none == 0


def test_sketches_are_no_larger_than_the_error_needs():
    assert [sketch_lg_k(error) for error in (0.39, 0.05, 0.01, 1e-6)] == [4, 9, 14, 21]


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("first(x)", "min_by / max_by with the event time"),
        ("last_value(x)", "min_by / max_by with the event time"),
        ("median(x)", "apply with a pandas function"),
        ("percentile(x, 0.5)", "apply with a pandas function"),
        ("percentile_approx(x, 0.5) + 1", "apply with a pandas function"),
        ("mode(i)", "apply with a pandas function"),
        ("stddev(DISTINCT x)", "stddev with DISTINCT"),
        ("histogram_numeric(x, 5)", "apply with a pandas function"),
        ("count_min_sketch(i, 0.5d, 0.5d, 1)", "docs/late.md"),
    ],
)
def test_what_does_not_merge_is_refused_with_a_way_out(spark: Any, text: str, way_out: str):
    with pytest.raises(ConfigurationError, match=way_out) as refused:
        decompose(spark, SCHEMA, KEYS, [F.count("*").alias("n"), F.expr(text).alias("out")])
    assert "cannot be kept as partial aggregates" in str(refused.value)


def test_pandas_aggregates_are_refused(spark: Any):
    @F.pandas_udf("double")  # type: ignore[untyped-decorator]
    def spread(values: pytest.importorskip("pandas").Series) -> float:  # type: ignore[valid-type]
        return float(values.max() - values.min())

    with pytest.raises(ConfigurationError, match="apply with a pandas function"):
        decompose(spark, SCHEMA, KEYS, [spread("x").alias("out")])


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ([], "no aggregates were given"),
        (["count(*)"], r"F\.expr"),
        ([F.lit], "a function"),
    ],
)
def test_what_is_no_aggregate_is_refused(spark: Any, wanted: list[Any], said: str):
    with pytest.raises(ConfigurationError, match=said):
        decompose(spark, SCHEMA, KEYS, wanted)


def test_names_that_results_need_are_refused(spark: Any):
    for name, said in [("K", "a key"), ("window", "every result"), ("Revision", "every result"), ("kind", "every")]:
        with pytest.raises(ConfigurationError, match=said):
            decompose(spark, SCHEMA, KEYS, [F.sum("x").alias(name)])
    with pytest.raises(ConfigurationError, match="several aggregates are named 's'"):
        decompose(spark, SCHEMA, KEYS, [F.sum("x").alias("s"), F.sum("y").alias("S")])


def test_columns_that_the_rows_do_not_have_are_refused(spark: Any):
    other = spark.range(3)
    for column in (F.sum(other.id), F.sum("nothing"), F.sum(F.sum("x"))):
        with pytest.raises(ConfigurationError, match=r"F\.col\('x'\)"):
            decompose(spark, SCHEMA, KEYS, [column])
    with pytest.raises(ConfigurationError, match=r"unknown key column 'kk'.*Did you mean 'k'"):
        decompose(spark, SCHEMA, ["kk"], [F.count("*")])


def test_columns_that_need_another_pass_are_refused(spark: Any):
    with pytest.raises(ConfigurationError, match="more than one aggregation"):
        decompose(spark, SCHEMA, KEYS, [F.sum("x").alias("total"), (F.col("total") + 1).alias("more")])
    with pytest.raises(ConfigurationError, match="no aggregate among"):
        decompose(spark, SCHEMA, KEYS, [F.upper("k").alias("name")])
