"""Any Spark aggregate as partials that merge, so that a micro-batch leaves one small row per window and key.

Spark analyses the user's columns; its trees, not their texts, are what is taken apart and put together again. So all
that Spark can write around an aggregate stays as it is: casts, literals, functions of the user.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention
from pyspark.sql.types import StructField, StructType

from slackwater.errors import ConfigurationError, unknown_name
from slackwater.late.recipes import DISTINCT, OTHERWISE, PLAIN, REFUSED, Recipe, sketch_lg_k

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

RESERVED = ("window", "revision", "kind")
EXACT_TYPES = ("DecimalType", "YearMonthIntervalType", "DayTimeIntervalType")


@dataclass(frozen=True)
class Decomposed:
    """Three aggregations that together are the user's.

    partial: over raw rows, `frame.groupBy(window, *keys).agg(*partial)`.
    merge: over rows of partials, the same columns again; associative, and may be repeated.
    finish: over merged rows, `merged.select(window, *keys, *finish)`: the columns that plain Spark gives.
    names: of the partial columns.
    """

    partial: tuple[Column, ...]
    merge: tuple[Column, ...]
    finish: tuple[Column, ...]
    names: tuple[str, ...]


def decompose(spark: SparkSession, schema: StructType, keys: Sequence[str], columns: Sequence[Column]) -> Decomposed:
    """Split aggregates over rows of `schema`, grouped by `keys`, into partials.

    Raises ConfigurationError for what cannot be kept as partials, saying what to do instead.
    """
    _check_arguments(schema, keys, columns)
    plain = _plain(spark, schema, keys, columns)
    wanted = _wanted(spark, plain, keys)
    _check_names([column.name for column in wanted], keys)
    trees = _Trees(spark)
    kept = _Kept(trees, _prefix(keys))
    with _explained():
        results = [trees.column(_finished(trees, kept, tree)) for tree in _outputs(plain, len(wanted))]
        if not kept.aggregates:
            named = ", ".join(repr(column.name) for column in wanted)
            raise ConfigurationError(
                f"no aggregate among the columns {named}. Give at least one, such as F.count('*')."
            )
        partial = kept.partial()
        left = _rows(spark, schema).groupBy(*_by_name(keys)).agg(*partial).select(*_by_name(kept.names)).schema
        merge = kept.merge({column.name: column.dataType.simpleString() for column in left})
        partials = _rows(spark, StructType([*(schema[key] for key in keys), *left]))
        _check_types(left, partials.groupBy(*_by_name(keys)).agg(*merge).select(*_by_name(kept.names)).schema)
        return Decomposed(partial, merge, _as_plain(partials, results, wanted), kept.names)


def _check_arguments(schema: StructType, keys: Sequence[str], columns: Sequence[Column]) -> None:
    if not columns:
        raise ConfigurationError("no aggregates were given. Give at least one, such as F.count('*').")
    for column in columns:
        if not isinstance(column, Column):
            raise ConfigurationError(
                f"an aggregate is a Spark column such as F.avg('x').alias('mean'); found {column!r}, "
                f"a {type(column).__name__}. Write SQL text as F.expr(…)."
            )
    for key in keys:
        if key not in schema.fieldNames():
            raise unknown_name("key column", key, schema.fieldNames())


def _check_names(names: Sequence[str], keys: Sequence[str]) -> None:
    """Names that differ in case alone are one name: to Spark by default, and to many sinks."""
    twice = [name for name, count in Counter(map(str.casefold, names)).items() if count > 1]
    if twice:
        raise ConfigurationError(f"several aggregates are named {twice[0]!r}. Name each with .alias(…).")
    taken = {name.casefold() for name in (*keys, *RESERVED)}
    for name in names:
        if name.casefold() in taken:
            of = "a column that every result has" if name.casefold() in RESERVED else "a key"
            raise ConfigurationError(f"an aggregate is named {name!r}, which is the name of {of}. Use .alias(…).")


def _plain(spark: SparkSession, schema: StructType, keys: Sequence[str], columns: Sequence[Column]) -> DataFrame:
    try:
        plain = _rows(spark, schema).groupBy(*_by_name(keys)).agg(*columns)
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark cannot resolve the aggregates over the columns {', '.join(schema.fieldNames())}: {_said(error)}. "
            "Write columns by name, F.col('x') or 'x', not bound to a frame as df.x is."
        ) from error
    if not hasattr(plain, "_jdf"):
        raise ConfigurationError(
            "aggregates of a Spark Connect session cannot be split: their trees are in the server. "
            "Run the query in the driver, with a classic session."
        )
    return plain


def _wanted(spark: SparkSession, plain: DataFrame, keys: Sequence[str]) -> list[StructField]:
    kept_keys = len(keys) if spark.conf.get("spark.sql.retainGroupColumns") == "true" else 0
    return list(plain.schema)[kept_keys:]


def _outputs(plain: DataFrame, count: int) -> list[Any]:
    """The trees of the user's columns, without their names."""
    plan = plain._jdf.queryExecution().analyzed()  # noqa: SLF001
    if _kind(plan) != "Aggregate":
        raise ConfigurationError(
            f"the columns are more than one aggregation: Spark plans a {_kind(plan)} over it. "
            "Let no column refer to another's alias, and apply window functions to the results."
        )
    named = _items(plan.aggregateExpressions())[-count:]
    return [_items(tree.children())[0] if _kind(tree) == "Alias" else tree for tree in named]


def _finished(trees: _Trees, kept: _Kept, output: Any) -> Any:
    def replace(node: Any) -> Any:
        if _kind(node) == "AggregateExpression":
            return kept.finished(node)
        return trees.by_name(node)

    return trees.rebuilt(output, replace)


def _as_plain(partials: DataFrame, results: Iterable[Column], wanted: Sequence[StructField]) -> tuple[Column, ...]:
    """Results with the names and types that plain Spark gives."""
    finish = [column.alias(want.name) for column, want in zip(results, wanted, strict=True)]
    found = partials.select(*finish).schema
    for index, (want, have) in enumerate(zip(wanted, found, strict=True)):
        if want.dataType.simpleString() != have.dataType.simpleString():
            finish[index] = finish[index].cast(want.dataType).alias(want.name)
    _check_types(wanted, partials.select(*finish).schema)
    return tuple(finish)


def _check_types(wanted: Iterable[StructField], found: Iterable[StructField]) -> None:
    for want, have in zip(wanted, found, strict=True):
        if (want.name, want.dataType.simpleString()) != (have.name, have.dataType.simpleString()):
            raise ConfigurationError(
                f"the aggregate {want.name!r} cannot be kept as partials: they give {have.dataType.simpleString()} "
                f"where Spark gives {want.dataType.simpleString()}. Use apply with a pandas function."
            )


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (AnalysisException, Py4JJavaError) as error:
        raise ConfigurationError(
            f"the aggregates cannot be kept as partials; Spark says: {_said(error)}. "
            "Use other aggregates, or apply with a pandas function, which keeps rows."
        ) from error


def _said(error: Exception) -> str:
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return str(message).strip().splitlines()[0].rstrip(".;")


def _rows(spark: SparkSession, schema: StructType) -> DataFrame:
    return spark.createDataFrame([], schema)


def _by_name(names: Iterable[str]) -> list[Column]:
    return [F.col(_quoted(name)) for name in names]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _prefix(keys: Sequence[str]) -> str:
    """What partial columns begin with and no key does."""
    prefix = "_"
    while any(key.startswith(f"{prefix}{digit}") for key in keys for digit in range(10)):
        prefix += "_"
    return prefix


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


class _Trees:
    """Catalyst's expressions, with what PySpark 3.5 and 4 have in common."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm  # noqa: SLF001
        self._parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        self._major = int(spark.version.split(".")[0])

    def column(self, tree: Any) -> Column:
        sql = self._jvm.org.apache.spark.sql
        return Column(sql.Column(tree) if self._major < 4 else sql.classic.ExpressionUtils.column(tree))

    def parsed(self, text: str, known: dict[str, Any]) -> Any:
        """The tree of a text in which some names stand for trees."""

        def replace(node: Any) -> Any:
            return known.get(node.name()) if _kind(node) == "UnresolvedAttribute" else None

        return self.rebuilt(self._parser.parseExpression(text), replace)

    def rebuilt(self, node: Any, replace: Callable[[Any], Any]) -> Any:
        """The tree with each node for which `replace` gives another replaced by it."""
        other = replace(node)
        if other is not None:
            return other
        if _kind(node) == "With":
            return self.rebuilt(self._inlined(node), replace)
        old = _items(node.children())
        new = [self.rebuilt(child, replace) for child in old]
        if all(before is after for before, after in zip(old, new, strict=True)):
            return node
        return node.withNewChildren(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(new))

    def _inlined(self, node: Any) -> Any:
        """BETWEEN and nullif share expressions by reference, which cannot be resolved anew (Spark 4)."""
        shared = {common.id().id(): common.child() for common in _items(node.defs())}

        def replace(inner: Any) -> Any:
            return shared.get(inner.id().id()) if _kind(inner) == "CommonExpressionRef" else None

        return self.rebuilt(node.child(), replace)

    def by_name(self, node: Any) -> Any:
        """A column of the template as one of any frame."""
        return self._parser.parseExpression(_quoted(node.name())) if _kind(node) == "AttributeReference" else None

    def unbound(self, tree: Any) -> Any:
        return self.rebuilt(tree, self.by_name)

    def normalised(self, tree: Any) -> Any:
        """As Spark groups: 0.0 and −0.0 are one value, all NaN another."""
        optimizer = self._jvm.org.apache.spark.sql.catalyst.optimizer
        return getattr(getattr(optimizer, "NormalizeFloatingNumbers$"), "MODULE$").normalize(tree)

    def replaces(self, function: Any) -> Any:
        """What Spark itself puts in an aggregate's place, or None."""
        kind = self._jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable")
        return function.replacement() if kind.isInstance(function) else None


@dataclass
class _Aggregate:
    """An aggregate of the user: its tree, how it is kept, and what the texts' placeholders stand for."""

    tree: Any
    function: Any
    recipe: Recipe
    arguments: tuple[str, ...]
    texts: dict[str, str]
    known: dict[str, Any]
    names: dict[str, str]

    def filled(self, text: str, **more: str) -> str:
        return text.format(*self.arguments, **(self.texts | more))


@dataclass
class _Kept:
    """The aggregates found so far; one that is used twice is kept once."""

    trees: _Trees
    prefix: str
    aggregates: list[_Aggregate] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for aggregate in self.aggregates for name in aggregate.names.values())

    def finished(self, tree: Any) -> Any:
        """The result of an aggregate as a tree over merged partials."""
        aggregate = self._find(tree)
        result_type = aggregate.function.dataType().sql()
        finish = aggregate.recipe.finish
        if isinstance(finish, str):
            return self.trees.parsed(aggregate.filled(finish, type=result_type), {})
        buffers = {
            name: self.trees.parsed(aggregate.filled(text, type=result_type), {}) for name, text in finish.items()
        }

        def replace(node: Any) -> Any:
            return buffers[node.name()] if _kind(node) == "AttributeReference" else None

        return self.trees.rebuilt(aggregate.function.evaluateExpression(), replace)

    def partial(self) -> tuple[Column, ...]:
        return tuple(
            self._column(aggregate, name, part.partial)
            for aggregate in self.aggregates
            for name, part in aggregate.recipe.parts.items()
        )

    def merge(self, types: dict[str, str]) -> tuple[Column, ...]:
        return tuple(
            self._column(aggregate, name, part.merge, type=types[aggregate.names[name]])
            for aggregate in self.aggregates
            for name, part in aggregate.recipe.parts.items()
        )

    def _column(self, aggregate: _Aggregate, name: str, text: str, **more: str) -> Column:
        tree = self.trees.parsed(aggregate.filled(text, **more), aggregate.known)
        return self.trees.column(tree).alias(aggregate.names[name])

    def _find(self, tree: Any) -> _Aggregate:
        for aggregate in self.aggregates:
            if aggregate.tree.semanticEquals(tree):
                return aggregate
        aggregate = self._new(tree)
        self.aggregates.append(aggregate)
        return aggregate

    def _new(self, tree: Any) -> _Aggregate:
        function, recipe = self._recipe(tree)
        arguments = _items(function.children())
        known = {
            f"__arg{index}": self.trees.unbound(self.trees.normalised(argument) if recipe.normalised else argument)
            for index, argument in enumerate(arguments)
        }
        names = {part: f"{self.prefix}{len(self.aggregates)}_{part}" for part in recipe.parts}
        texts = {
            "tuple": _tuple(tuple(known)),
            "self": "__self",
            "f": " FILTER (WHERE __filter)" if tree.filter().isDefined() else "",
        }
        texts |= _details(function) | {part: _quoted(name) for part, name in names.items()}
        replaced = {"__self": self.trees.unbound(tree)}
        if tree.filter().isDefined():
            replaced["__filter"] = self.trees.unbound(tree.filter().get())
        return _Aggregate(tree, function, recipe, tuple(known), texts, known | replaced, names)

    def _recipe(self, tree: Any) -> tuple[Any, Recipe]:
        """How an aggregate is kept, and the function that is kept: the user's, or what Spark puts in its place."""
        function, table = tree.aggregateFunction(), DISTINCT if tree.isDistinct() else PLAIN
        recipe = table.get(_variant(function))
        if recipe is None and _kind(function) not in REFUSED and not tree.isDistinct():
            replacement = self.trees.replaces(function)
            recipe = None if replacement is None else PLAIN.get(_variant(replacement))
            function = function if recipe is None else replacement
        if recipe is None:
            _refuse(tree, function)
        return function, recipe


def _variant(function: Any) -> str:
    """The name under which the tables know an aggregate."""
    kind = _kind(function)
    if kind in ("Sum", "Average"):
        exact = _kind(function.dataType()).rstrip("$") in EXACT_TYPES
        if str(function.prettyName()).startswith("try_") and (exact or kind == "Sum"):
            return f"{kind}:try"
        return f"{kind}:exact" if exact else kind
    if kind in ("CollectList", "CollectSet") and function.dataType().containsNull():
        return f"{kind}:nulls"
    return kind


def _details(function: Any) -> dict[str, str]:
    """Placeholders that one kind of aggregate has."""
    if _kind(function) == "HyperLogLogPlusPlus":
        return {"lg_k": str(sketch_lg_k(float(function.relativeSD())))}
    if _kind(function) == "Average":
        return {"sum_type": str(_items(function.aggBufferAttributes())[0].dataType().sql())}
    return {}


def _tuple(arguments: tuple[str, ...]) -> str:
    if len(arguments) < 2:
        return "".join(arguments)
    some = " AND ".join(f"{argument} IS NOT NULL" for argument in arguments)
    return f"CASE WHEN {some} THEN struct({', '.join(arguments)}) END"


def _refuse(tree: Any, function: Any) -> NoReturn:
    distinct = " with DISTINCT" if tree.isDistinct() and _variant(function) in PLAIN else ""
    raise ConfigurationError(
        f"{function.prettyName()}{distinct} cannot be kept as partial aggregates; found {tree.sql()}. "
        + REFUSED.get(_kind(function), OTHERWISE)
    )
