"""NEXMark by its definition: answers worked out by hand, what the oracle may never break, and the generator."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.workloads.nexmark import (
    QUERIES,
    Auction,
    Bid,
    Generator,
    GeneratorSettings,
    Person,
    Rows,
    build,
    expected,
    run_query,
)
from slackwater.workloads.nexmark.oracle import ORACLES
from slackwater.workloads.nexmark.schema import AUCTION, BID, PERSON, Event
from tests.unit.nexmark_hand import CASES, auction, bid, person

GENERATED = Generator(GeneratorSettings(seed=3, events_per_s=500)).rows(range(5000))

times_ms = st.integers(0, 45_000)
few = st.integers(1, 4)
bids = st.lists(st.builds(lambda a, b, p, t: bid(a, t, bidder=b, price=p), few, few, few, times_ms), max_size=30)
persons = st.lists(st.builds(lambda i, t, s: person(i, t, state=s), few, times_ms, st.sampled_from(["OR", "WA"])))
auctions = st.lists(
    st.builds(
        lambda i, t, length, seller, category: auction(i, t, until_ms=t + length, seller=seller, category=9 + category),
        st.integers(1, 1000),
        times_ms,
        st.integers(1, 20_000),
        few,
        few,
    ),
    unique_by=lambda row: row.id,
)


# ---- the oracle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_oracle_answers_what_was_worked_out_by_hand(name):
    assert expected(name, CASES[name].rows) == CASES[name].answer


def test_every_query_has_an_oracle_and_rows_worked_out_by_hand():
    assert set(QUERIES) == set(ORACLES) == set(CASES)


def test_no_rows_give_no_answer():
    assert [name for name in ORACLES if expected(name, Rows()) != []] == []


@pytest.mark.parametrize("name", ORACLES)
@given(data=st.data())
@settings(max_examples=25)
def test_an_answer_does_not_depend_on_the_order_of_rows(name, data):
    rows = Rows(*(tuple(data.draw(rows)) for rows in (persons, auctions, bids)))
    shuffled = Rows(*(tuple(data.draw(st.permutations(part))) for part in (rows.persons, rows.auctions, rows.bids)))
    assert expected(name, shuffled) == expected(name, rows)


@given(bids)
def test_currency_conversion_keeps_every_bid_and_the_total(given_bids):
    answer = expected("q1", Rows(bids=tuple(given_bids)))
    assert sum((row[2] for row in answer), Decimal(0)) == Decimal("0.908") * sum(row.price for row in given_bids)
    assert len(answer) == len(given_bids)


@given(bids)
def test_a_hot_item_has_as_many_bids_as_it_is_in_windows_and_each_window_has_one(given_bids):
    answer = expected("q5", Rows(bids=tuple(given_bids)))
    windows = {row.event_ms // 2000 - back for row in given_bids for back in range(5)}
    assert len(answer) >= len(windows)
    # A bid is in five windows: what is counted in winners cannot be more than that.
    assert sum(count for _, count in answer) <= 5 * len(given_bids)


@given(bids)
def test_the_highest_of_all_bids_is_the_highest_of_its_window(given_bids):
    answer = expected("q7", Rows(bids=tuple(given_bids)))
    top = max((row.price for row in given_bids), default=0)
    found = {(row.auction, row.price, row.bidder, row.event_ms, row.extra) for row in given_bids if row.price == top}
    assert found <= set(answer)
    assert len({row[3] // 10_000 for row in answer}) == len({row.event_ms // 10_000 for row in given_bids})


@given(bids)
def test_sessions_hold_every_bid_once_and_lie_apart(given_bids):
    answer = expected("q11", Rows(bids=tuple(given_bids)))
    held = Counter[int]()
    for bidder, count, _, _ in answer:
        held[bidder] += count
    assert held == Counter(row.bidder for row in given_bids)
    spans = sorted((bidder, start, end) for bidder, _, start, end in answer)
    assert all(before[0] != after[0] or before[2] < after[1] for before, after in pairwise(spans))


@given(auctions, bids)
def test_a_mean_price_lies_between_the_prices_offered(given_auctions, given_bids):
    answer = expected("q4", Rows(auctions=tuple(given_auctions), bids=tuple(given_bids)))
    prices = [row.price for row in given_bids]
    assert all(min(prices) <= final <= max(prices) for _, final in answer)
    assert {category for category, _ in answer} <= {row.category for row in given_auctions}


@given(persons, auctions)
def test_new_sellers_are_persons_who_sell_and_come_up_once_a_window(given_persons, given_auctions):
    answer = expected("q8", Rows(tuple(given_persons), tuple(given_auctions)))
    assert len(set(answer)) == len(answer)
    assert {row[0] for row in answer} <= {row.id for row in given_persons} & {row.seller for row in given_auctions}


# ---- the generator -----------------------------------------------------------------------------------------------


def test_of_every_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids():
    kinds = [type(event) for event in Generator().events(range(200))]
    assert kinds == ([Person] + [Auction] * 3 + [Bid] * 46) * 4
    assert set(get_args(Event)) == {Person, Auction, Bid}


@given(seed=st.integers(0, 1 << 40), number=st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_an_event_is_a_function_of_seed_and_number(seed, number):
    made = GeneratorSettings(seed=seed, out_of_order_group=100)
    assert Generator(made).event(number) == Generator(made).event(number)
    assert list(Generator(made).events(range(number, number + 3)))[2] == Generator(made).event(number + 2)


def test_another_seed_makes_other_events_at_the_same_times():
    one, other = (list(Generator(GeneratorSettings(seed=seed)).events(range(100))) for seed in (1, 2))
    assert [event.event_ms for event in one] == [event.event_ms for event in other]
    assert all(a.extra != b.extra for a, b in zip(one, other, strict=True))


def test_ids_count_up_from_a_thousand():
    assert [row.id for row in GENERATED.persons] == list(range(1000, 1100))
    assert [row.id for row in GENERATED.auctions] == list(range(1000, 1300))


def test_event_times_follow_the_rate_and_never_go_back():
    found = [event.event_ms for event in Generator(GeneratorSettings(events_per_s=300)).events(range(1000))]
    assert found == sorted(found)
    assert found[300] - found[0] == found[900] - found[600] == 1000


@pytest.mark.parametrize("group", [3, 10, 50, 1000])
def test_out_of_order_events_are_the_same_events_and_late_by_a_group_at_most(group):
    in_order = GeneratorSettings(events_per_s=1000)
    shuffled = GeneratorSettings(events_per_s=1000, out_of_order_group=group)
    found = list(Generator(shuffled).events(range(2 * group)))
    assert sorted(found, key=repr) == sorted(Generator(in_order).events(range(2 * group)), key=repr)
    newest_ms = found[0].event_ms
    for event in found:
        newest_ms = max(newest_ms, event.event_ms)
        assert newest_ms - event.event_ms <= shuffled.latest_ms
    assert any(after.event_ms < before.event_ms for before, after in pairwise(found))


def test_hot_ones_get_their_share():
    """All but one of 2 bids go to the hot auction, all but one of 4 by the hot bidder, or for the hot seller."""
    hot = [
        (Counter((row.auction - 1000) % 100 == 0 for row in GENERATED.bids), 1 / 2),
        (Counter(row.bidder % 100 == 1 for row in GENERATED.bids), 3 / 4),
        (Counter(row.seller % 100 == 0 for row in GENERATED.auctions), 3 / 4),
    ]
    for counted, share in hot:
        # The others fall on a hot one now and then; four deviations of a count of this size are on either side.
        assert share - 0.1 < counted[True] / counted.total() < share + 0.12


def test_auctions_are_open_for_no_longer_than_said_and_half_of_it_in_the_mean():
    longest_ms = GeneratorSettings(events_per_s=500).longest_auction_ms
    lengths = [row.expires_ms - row.event_ms for row in GENERATED.auctions]
    assert min(lengths) >= 1
    assert max(lengths) <= longest_ms
    assert sum(lengths) / len(lengths) == pytest.approx(longest_ms / 2, rel=0.15)


def test_rows_have_the_mean_sizes_of_the_definition():
    """As the generator counts them: 8 bytes a number, a character a byte, the channel and its address not at all."""
    sizes = {
        200: [8 + sum(len(value) for value in row if isinstance(value, str)) for row in GENERATED.persons],
        500: [48 + sum(len(value) for value in row if isinstance(value, str)) for row in GENERATED.auctions],
        100: [32 + len(row.extra) for row in GENERATED.bids],
    }
    for mean, found in sizes.items():
        assert sum(found) / len(found) == pytest.approx(mean, rel=0.05)


def test_bids_name_auctions_and_persons_that_are_there_or_soon_will_be():
    assert all(1000 <= row.auction <= GENERATED.auctions[-1].id + 10 for row in GENERATED.bids)
    assert all(1000 <= row.bidder <= GENERATED.persons[-1].id + 10 for row in GENERATED.bids)
    assert all(100 <= row.price <= 100_000_000 for row in GENERATED.bids)


def test_a_channel_has_one_address():
    addresses: dict[str, set[str]] = {}
    for row in GENERATED.bids:
        addresses.setdefault(row.channel, set()).add(row.url)
    assert {len(found) for found in addresses.values()} == {1}
    assert {"Google", "Facebook", "Baidu", "Apple"} < set(addresses)


def test_every_query_finds_something_in_few_thousand_events():
    assert [name for name in ORACLES if not expected(name, GENERATED)] == []


@pytest.mark.parametrize(
    "wrong",
    [{"events_per_s": 0}, {"auctions": 0}, {"hot_auction_ratio": 0}, {"out_of_order_group": 1906}, {"bids": -1}],
)
def test_settings_that_make_no_stream_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        GeneratorSettings(**wrong)


# ---- tables ------------------------------------------------------------------------------------------------------


def test_rows_come_as_mappings_or_tuples():
    for table, row in ((PERSON, GENERATED.persons[0]), (AUCTION, GENERATED.auctions[0]), (BID, GENERATED.bids[0])):
        assert table.rows([table.record(row), tuple(row)]) == [row, row]
        assert len(table.columns) == len(row._fields)


def test_a_row_that_does_not_fit_its_table_is_refused():
    with pytest.raises(ConfigurationError, match="auction, bidder, price, channel, url, dateTime, extra"):
        BID.rows([{"auction": 1}])
    with pytest.raises(ConfigurationError, match="2 values"):
        BID.rows([(1, 2)])


def test_a_query_that_is_not_there_is_refused_with_those_that_are():
    for ask in (
        lambda: expected("q6", Rows()),
        lambda: build("q6", None, None, None),
        lambda: run_query(None, "q6"),
    ):
        with pytest.raises(ConfigurationError, match="q1, q11, q2, q3, q4, q5, q7, q8"):
            ask()


def test_a_query_says_which_table_it_lacks():
    with pytest.raises(ConfigurationError, match="give persons and auctions too"):
        build("q8", None, None, None)
