"""NEXMark's queries as a Spark user writes them, on streams and on static DataFrames alike.

From the SQL of the public definition (`queries/q*.sql`): columns, windows and bounds are its own. All run in append
mode. What waits for a window to be over leaves when the watermark has passed it; q1 to q3 wait for nothing.

Only q4 differs between the two: Spark has no running mean over all that a stream has joined. See `Query.settle`, and
docs/workloads/nexmark.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention

from slackwater.errors import ConfigurationError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

OUTPUT_MODE = "append"
# The definition's (`ddl_gen.sql`).
WATERMARK = "4 seconds"
# Longer than any auction of the generator's from 56 events/s on; see `GeneratorSettings.longest_auction_ms`.
LONGEST_AUCTION = "1 minute"


@dataclass(frozen=True)
class Inputs:
    """The tables that a query reads, and the two bounds that streams need; static DataFrames heed neither."""

    persons: DataFrame
    auctions: DataFrame
    bids: DataFrame
    watermark: str = WATERMARK
    longest_auction: str = LONGEST_AUCTION


def _as_emitted(emitted: DataFrame) -> DataFrame:
    return emitted


@dataclass(frozen=True)
class Query:
    """`reads` names the inputs; `waits` says whether rows leave only when the watermark has passed their window.

    `settle` makes the definition's answer out of all rows that a stream has emitted, as a static DataFrame.
    """

    name: str
    about: str
    reads: tuple[str, ...]
    waits: bool
    define: Callable[[Inputs], DataFrame]
    settle: Callable[[DataFrame], DataFrame] = _as_emitted


def build(
    name: str,
    persons: DataFrame | None,
    auctions: DataFrame | None,
    bids: DataFrame | None,
    watermark: str = WATERMARK,
    *,
    longest_auction: str = LONGEST_AUCTION,
) -> DataFrame:
    """The query over these tables, whose columns are those of `schema.py`; what it does not read may be None.

    Streams must be started in append mode. `longest_auction` bounds what q4 keeps of a stream: an auction that is open
    for longer fails the query, rather than lose bids.
    """
    query = find(name)
    tables: dict[str, DataFrame] = {"persons": persons, "auctions": auctions, "bids": bids}
    missing = [table for table in query.reads if tables[table] is None]
    if missing:
        raise ConfigurationError(f"{name} reads {', '.join(query.reads)}; give {' and '.join(missing)} too.")
    return query.define(Inputs(**tables, watermark=watermark, longest_auction=longest_auction))


def find(name: str) -> Query:
    if name not in QUERIES:
        raise unknown_name("NEXMark query", name, QUERIES)
    return QUERIES[name]


def _q1(on: Inputs) -> DataFrame:
    euros = (F.lit(Decimal("0.908")) * F.col("price")).cast("decimal(23, 3)")
    return on.bids.select("auction", "bidder", euros.alias("price"), "dateTime", "extra")


def _q2(on: Inputs) -> DataFrame:
    return on.bids.where("auction % 123 = 0").select("auction", "price")


def _q3(on: Inputs) -> DataFrame:
    auctions = on.auctions.where("category = 10").select("id", "seller")
    persons = on.persons.where("state IN ('OR', 'ID', 'CA')").selectExpr("id AS person", "name", "city", "state")
    return auctions.join(persons, F.expr("seller = person")).select("name", "city", "state", "id")


def _q4(on: Inputs) -> DataFrame:
    auctions = on.auctions.withWatermark("dateTime", on.watermark).selectExpr(
        "id", "category", "dateTime AS opened", "expires"
    )
    bids = on.bids.withWatermark("dateTime", on.watermark).selectExpr("auction", "price", "dateTime AS offered")
    in_time = "id = auction AND offered BETWEEN opened AND expires"
    highest = F.max("price").alias("final")
    if not (auctions.isStreaming or bids.isStreaming):
        finals = auctions.join(bids, F.expr(in_time)).groupBy("id", "category").agg(highest)
        return finals.groupBy("category").agg(F.expr("sum(final) div count(final)").alias("final"))
    # With `opened` among the keys, an auction's highest bid leaves when no other bid on it can come any more. Spark
    # knows when that is from the bound on `offered` that is in terms of `opened` alone.
    bounded = f"offered <= opened + INTERVAL {on.longest_auction}"
    finals = (
        auctions.withColumn("expires", _no_longer_than(on.longest_auction))
        .join(bids, F.expr(f"{in_time} AND {bounded}"))
        .groupBy("id", "category", "opened")
        .agg(highest)
    )
    return (
        finals.groupBy(F.window("opened", "10 seconds"), "category")
        .agg(F.sum("final").alias("total"), F.count("final").alias("auctions"))
        .selectExpr("window.start AS starttime", "category", "total", "auctions")
    )


def _no_longer_than(longest: str) -> Column:
    """`expires`, or an error that fails the query."""
    return F.expr(
        f"""IF(expires <= opened + INTERVAL {longest}, expires, raise_error(concat(
            'auction ', id, ' is open from ', opened, ' to ', expires, ', longer than longest_auction, {longest}: ',
            'give a longer one')))"""
    )


def _q4_settled(emitted: DataFrame) -> DataFrame:
    return emitted.groupBy("category").agg(F.expr("sum(total) div sum(auctions)").alias("final"))


def _q5(on: Inputs) -> DataFrame:
    counts = (
        on.bids.withWatermark("dateTime", on.watermark)
        .groupBy("auction", F.window("dateTime", "10 seconds", "2 seconds"))
        .agg(F.count("*").alias("num"))
    )
    most = counts.groupBy("window").agg(F.max("num").alias("maxn"))
    return counts.join(most, "window").where("num >= maxn").select("auction", "num")


def _q7(on: Inputs) -> DataFrame:
    bids = on.bids.withWatermark("dateTime", on.watermark)
    # window_time is the last microsecond of a window; unlike window.end it carries the watermark on.
    highest = (
        bids.groupBy(F.window("dateTime", "10 seconds"))
        .agg(F.max("price").alias("maxprice"))
        .select("maxprice", F.window_time("window").alias("last"))
    )
    in_window = """price = maxprice AND dateTime BETWEEN last + INTERVAL 1 MICROSECOND - INTERVAL 10 SECONDS
                   AND last + INTERVAL 1 MICROSECOND"""
    return bids.join(highest, F.expr(in_window)).select("auction", "price", "bidder", "dateTime", "extra")


def _q8(on: Inputs) -> DataFrame:
    newcomers = (
        on.persons.withWatermark("dateTime", on.watermark)
        .groupBy("id", "name", F.window("dateTime", "10 seconds"))
        .agg(F.count("*").alias("times"))
        .select("id", "name", "window")
    )
    sellers = (
        on.auctions.withWatermark("dateTime", on.watermark)
        .groupBy("seller", F.window("dateTime", "10 seconds"))
        .agg(F.count("*").alias("times"))
        .selectExpr("seller AS id", "window")
    )
    return newcomers.join(sellers, ["id", "window"]).selectExpr("id", "name", "window.start AS starttime")


def _q11(on: Inputs) -> DataFrame:
    return (
        on.bids.withWatermark("dateTime", on.watermark)
        .groupBy("bidder", F.session_window("dateTime", "10 seconds"))
        .agg(F.count("*").alias("bid_count"))
        .selectExpr("bidder", "bid_count", "session_window.start AS starttime", "session_window.end AS endtime")
    )


QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Query("q1", "currency conversion", ("bids",), waits=False, define=_q1),
        Query("q2", "selection", ("bids",), waits=False, define=_q2),
        Query("q3", "local item suggestion", ("persons", "auctions"), waits=False, define=_q3),
        Query("q4", "average price for a category", ("auctions", "bids"), waits=True, define=_q4, settle=_q4_settled),
        Query("q5", "hot items", ("bids",), waits=True, define=_q5),
        Query("q7", "highest bid", ("bids",), waits=True, define=_q7),
        Query("q8", "monitor new users", ("persons", "auctions"), waits=True, define=_q8),
        Query("q11", "user sessions", ("bids",), waits=True, define=_q11),
    )
}
