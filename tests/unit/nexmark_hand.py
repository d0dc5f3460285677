"""Few rows whose answers a person can work out, for every NEXMark query; each answer says why."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from slackwater.workloads.nexmark import Auction, Bid, Person, Rows

if TYPE_CHECKING:
    from slackwater.workloads.nexmark.oracle import Answer

# A multiple of 10 s, before anything that the generator makes.
T = 1_400_000_000_000


def person(person_id: int, at_ms: int = 0, *, name: str = "Ann", city: str = "Bend", state: str = "OR") -> Person:
    return Person(person_id, name, "a@b.com", "0000 0000 0000 0000", city, state, T + at_ms, "p")


def auction(auction_id: int, at_ms: int = 0, *, until_ms: int = 60_000, seller: int = 1, category: int = 10) -> Auction:
    return Auction(auction_id, "cup", "a cup", 1, 2, T + at_ms, T + until_ms, seller, category, "a")


def bid(auction_id: int, at_ms: int = 0, *, bidder: int = 1, price: int = 100, extra: str = "b") -> Bid:
    return Bid(auction_id, bidder, price, "Google", "https://example.com", T + at_ms, extra)


@dataclass(frozen=True)
class Case:
    rows: Rows
    answer: Answer


def case(answer, *, persons=(), auctions=(), bids=()):
    return Case(Rows(tuple(persons), tuple(auctions), tuple(bids)), answer)


CASES: dict[str, Case] = {
    # 0.908 × 100 and 0.908 × 7, to the thousandth; every bid gives a row, equal ones too.
    "q1": case(
        [
            (5, 1, Decimal("90.800"), T, "b"),
            (5, 1, Decimal("90.800"), T, "b"),
            (6, 2, Decimal("6.356"), T + 1, "x"),
        ],
        bids=[bid(5), bid(5), bid(6, 1, bidder=2, price=7, extra="x")],
    ),
    # 123 and 246 are multiples of 123; 124 and 1 are not.
    "q2": case(
        [(123, 10), (123, 10), (246, 30)],
        bids=[
            bid(123, price=10),
            bid(124, price=20),
            bid(246, price=30),
            bid(123, 90_000, price=10),
            bid(1, price=50),
        ],
    ),
    # 50 and 51 are Ann's, one opened before she came and one a day after: time plays no part. 52 is of category 11,
    # 53 is sold from Washington, 54 by someone who never comes. 55 is sold from Idaho, 56 from California.
    "q3": case(
        [("Ann", "Bend", "OR", 50), ("Ann", "Bend", "OR", 51), ("Cid", "Boise", "ID", 55), ("Di", "Kent", "CA", 56)],
        persons=[
            person(1, 5_000),
            person(2, name="Bob", city="Kent", state="WA"),
            person(3, name="Cid", city="Boise", state="ID"),
            person(4, name="Di", city="Kent", state="CA"),
        ],
        auctions=[
            auction(50),
            auction(52, 10, category=11),
            auction(53, 20, seller=2),
            auction(54, 30, seller=99),
            auction(55, 40, seller=3),
            auction(56, 50, seller=4),
            auction(51, 86_400_000, until_ms=86_401_000),
        ],
    ),
    # Category 10: auction 60 goes for 300 (400 came 1 ms too early, 900 1 ms too late; 200 and 300 came at the very
    # opening and expiry), 61 for 401, so 701 / 2 = 350, cut. Category 11: 62 goes for 7; 63 has no bid and does not
    # count. Category 12: 64 has only a bid that is too late, so there is no row. 65 is on no auction.
    "q4": case(
        [(10, 350), (11, 7)],
        auctions=[
            auction(60, 1_000, until_ms=5_000),
            auction(61, 1_000, until_ms=31_000),
            auction(62, 2_000, until_ms=9_000, category=11),
            auction(63, 2_000, until_ms=9_000, category=11),
            auction(64, 2_000, until_ms=9_000, category=12),
        ],
        bids=[
            bid(60, 999, price=400),
            bid(60, 1_000, price=200),
            bid(62, 3_000, price=7),
            bid(65, 3_500, price=5_000),
            bid(60, 5_000, price=300),
            bid(60, 5_001, price=900),
            bid(64, 9_001, price=10),
            bid(61, 30_000, price=401),
        ],
    ),
    # Times 0 s: 70 twice; 3 s: 71 twice; 10 s: 71 once. Windows by where they begin:
    # −8, −6, −4, −2 end at 2, 4, 6, 8 s. [−8, 2): 70 twice. [−6, 4), [−4, 6), [−2, 8) and [0, 10): both twice, a tie;
    # the bid at 10 s is not in [0, 10). [2, 12): 71 three times. [4, 14), [6, 16), [8, 18), [10, 20): 71 once.
    "q5": case(
        [
            *[(70, 2)] * 5,
            *[(71, 1)] * 4,
            *[(71, 2)] * 4,
            (71, 3),
        ],
        bids=[bid(70), bid(70), bid(71, 3_000), bid(71, 3_000), bid(71, 10_000)],
    ),
    # [0, 10): 50 is the highest, from two bidders: both. The bid of 50 at 10 s is no part of that window, but the join
    # takes its end in: it comes up once for it. Its own window [10, 20) has 80 as the highest, so not for that one.
    # [20, 30) has 80 as the highest, at its very start, where [10, 20) ends: that bid comes up for both.
    "q7": case(
        [
            (80, 50, 1, T, "b"),
            (81, 50, 2, T + 9_999, "b"),
            (82, 50, 3, T + 10_000, "b"),
            (83, 80, 4, T + 15_000, "b"),
            (84, 80, 5, T + 20_000, "b"),
            (84, 80, 5, T + 20_000, "b"),
        ],
        bids=[
            bid(80, price=50),
            bid(85, 1, price=49),
            bid(81, 9_999, bidder=2, price=50),
            bid(82, 10_000, bidder=3, price=50),
            bid(83, 15_000, bidder=4, price=80),
            bid(84, 20_000, bidder=5, price=80),
            bid(86, 21_000, price=79),
        ],
    ),
    # 1 comes and sells twice within [0, 10): one row. 2 sells 1 ms before it comes, in the same window. 3 sells at
    # 10 s, in the next window. 4 never sells. 5 comes in both windows and sells in both.
    "q8": case(
        [(1, "Ann", T), (2, "Bob", T), (5, "Eve", T), (5, "Eve", T + 10_000)],
        persons=[
            person(1),
            person(5, 1, name="Eve"),
            person(2, 9_999, name="Bob"),
            person(3, 9_999, name="Cid"),
            person(4, 9_999, name="Di"),
            person(5, 10_000, name="Eve"),
        ],
        auctions=[
            auction(90, 10),
            auction(91, 20),
            auction(94, 30, seller=5),
            auction(92, 9_998, seller=2),
            auction(93, 10_000, seller=3),
            auction(95, 19_999, seller=5),
        ],
    ),
    # Bidder 1: 0 s and 10 s are exactly the gap apart, one session, which ends 10 s after its last bid; 20.001 s is
    # 1 ms more than the gap later, another. Bidder 2 bids within 1's session and has its own.
    "q11": case(
        [(1, 1, T + 20_001, T + 30_001), (1, 2, T, T + 20_000), (2, 3, T, T + 18_000)],
        bids=[
            bid(5, bidder=1),
            bid(6, bidder=2),
            bid(5, 4_000, bidder=2),
            bid(5, 8_000, bidder=2),
            bid(5, 10_000, bidder=1),
            bid(5, 20_001, bidder=1),
        ],
    ),
}
