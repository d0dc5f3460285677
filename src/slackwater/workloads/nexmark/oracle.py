"""What each query must answer, in plain Python, from the SQL of the public definition (`queries/q*.sql`).

Nothing here is shared with the queries on Spark. Every answer is a sorted list of tuples, with repeats where the SQL
gives repeats, and times in milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from slackwater.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slackwater.workloads.nexmark.schema import Bid, Rows

Answer = list[tuple[Any, ...]]

_S = 1000


def expected(name: str, rows: Rows) -> Answer:
    """The answer of a query over all of these rows, once nothing more can come."""
    if name not in ORACLES:
        raise unknown_name("NEXMark query", name, ORACLES)
    return sorted(ORACLES[name](rows))


def _q1(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Every bid with its price in euros, at 0.908 for a dollar."""
    for bid in rows.bids:
        yield bid.auction, bid.bidder, Decimal(bid.price) * Decimal("0.908"), bid.event_ms, bid.extra


def _q2(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Bids on every 123rd auction."""
    for bid in rows.bids:
        if bid.auction % 123 == 0:
            yield bid.auction, bid.price


def _q3(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Who sells something of category 10 from Oregon, Idaho or California. Time plays no part."""
    for auction in rows.auctions:
        for person in rows.persons:
            if person.id == auction.seller and auction.category == 10 and person.state in {"OR", "ID", "CA"}:
                yield person.name, person.city, person.state, auction.id


def _q4(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """For each category, the mean of the highest bids on its auctions, cut to a whole number as SQL's BIGINT is.

    A bid counts from the auction's opening to its expiry, both included; an auction without one does not count.
    """
    offers: dict[int, list[Bid]] = defaultdict(list)
    for bid in rows.bids:
        offers[bid.auction].append(bid)
    finals: dict[int, list[int]] = defaultdict(list)
    for auction in rows.auctions:
        prices = [bid.price for bid in offers[auction.id] if auction.event_ms <= bid.event_ms <= auction.expires_ms]
        if prices:
            finals[auction.category].append(max(prices))
    for category, prices in finals.items():
        yield category, sum(prices) // len(prices)


def _q5(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """For each 10 s, every 2 s: the auctions with the most bids, and how many; several where they are even."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in rows.bids:
        newest_ms = bid.event_ms // (2 * _S) * (2 * _S)
        for start_ms in range(newest_ms, newest_ms - 10 * _S, -2 * _S):
            counts[start_ms][bid.auction] += 1
    for in_window in counts.values():
        most = max(in_window.values())
        for auction, count in in_window.items():
            if count == most:
                yield auction, count


def _q7(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """For each 10 s the bids of the highest price.

    The definition takes a bid at the very end of a window as in it when its price is the window's highest, though it
    is no part of that window when the highest price is looked for; so such a bid can come up for two windows.
    """
    highest: dict[int, int] = {}
    for bid in rows.bids:
        end_ms = (bid.event_ms // (10 * _S) + 1) * 10 * _S
        highest[end_ms] = max(bid.price, highest.get(end_ms, bid.price))
    for bid in rows.bids:
        for end_ms in _ends_near(bid.event_ms):
            if end_ms - 10 * _S <= bid.event_ms <= end_ms and highest.get(end_ms) == bid.price:
                yield bid.auction, bid.price, bid.bidder, bid.event_ms, bid.extra


def _ends_near(event_ms: int) -> tuple[int, int]:
    own_start_ms = event_ms // (10 * _S) * 10 * _S
    return own_start_ms, own_start_ms + 10 * _S


def _q8(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Who appeared and opened an auction within the same 10 s: once, however many auctions."""
    sellers = {(auction.seller, auction.event_ms // (10 * _S)) for auction in rows.auctions}
    newcomers = {(person.id, person.name, person.event_ms // (10 * _S)) for person in rows.persons}
    for person_id, name, window in newcomers:
        if (person_id, window) in sellers:
            yield person_id, name, window * 10 * _S


def _q11(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """How many bids a bidder made before pausing for more than 10 s; a session ends 10 s after its last bid.

    A bid exactly 10 s after the one before still belongs to its session: windows that touch are merged.
    """
    times: dict[int, list[int]] = defaultdict(list)
    for bid in rows.bids:
        times[bid.bidder].append(bid.event_ms)
    for bidder, unsorted_ms in times.items():
        for session in _sessions(sorted(unsorted_ms)):
            yield bidder, len(session), session[0], session[-1] + 10 * _S


def _sessions(times_ms: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for event_ms in times_ms:
        if found and event_ms <= found[-1][-1] + 10 * _S:
            found[-1].append(event_ms)
        else:
            found.append([event_ms])
    return found


ORACLES: dict[str, Callable[[Rows], Iterable[tuple[Any, ...]]]] = {
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q4": _q4,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
}
