"""Schedules and Lachesis' Algorithm 2: from logical operators to what runs them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.translators.schedule import Group, GroupingSchedule, PrioritySchedule, each_alone, to_physical

operators = st.sampled_from("abcdef")
threads = st.integers(1, 6)
priorities = st.dictionaries(operators, st.floats(-1e9, 1e9), max_size=6)
placements = st.dictionaries(operators, st.lists(threads, max_size=4), max_size=6)
rules = st.sampled_from(["max", "sum", "mean"])


@given(priorities, placements, rules)
def test_a_thread_has_a_priority_when_one_of_its_operators_has(logical, runs_on, rule):
    physical = to_physical(logical, runs_on, rule)
    assert set(physical) == {thread for operator in logical for thread in runs_on.get(operator, ())}


@given(priorities, placements)
def test_a_fused_thread_is_as_urgent_as_its_most_urgent_operator(logical, runs_on):
    for thread, priority in to_physical(logical, runs_on).items():
        assert priority == max(logical[operator] for operator in logical if thread in runs_on.get(operator, ()))


@given(priorities, placements)
def test_sum_and_mean_agree_with_their_names(logical, runs_on):
    sums, means = to_physical(logical, runs_on, "sum"), to_physical(logical, runs_on, "mean")
    for thread, mean in means.items():
        fused = [logical[operator] for operator in logical if thread in runs_on.get(operator, ())]
        assert sums[thread] == math.fsum(fused)
        assert min(fused) <= mean <= max(fused)


@given(st.floats(-1e9, 1e9), st.lists(threads, min_size=1), rules)
def test_an_operator_split_over_threads_gives_each_its_priority(priority, places, rule):
    assert to_physical({"a": priority}, {"a": places}, rule) == dict.fromkeys(places, priority)


@given(priorities, placements, rules, st.randoms())
def test_the_order_of_operators_does_not_matter(logical, runs_on, rule, random):
    shuffled = list(logical.items())
    random.shuffle(shuffled)
    assert to_physical(dict(shuffled), runs_on, rule) == to_physical(logical, runs_on, rule)


def test_negative_priorities_are_kept_where_the_printed_algorithm_would_compare_with_nothing():
    assert to_physical({"a": -3.0, "b": -1.0}, {"a": [1], "b": [1, 2]}) == {1: -1.0, 2: -1.0}


@given(st.dictionaries(st.text(max_size=5), st.floats(0, 1e9), max_size=6))
def test_each_alone_makes_as_many_groups_as_there_are_entities(found):
    groups = each_alone(PrioritySchedule(found)).groups
    assert {name: (group.priority, group.members) for name, group in groups.items()} == {
        entity: (priority, frozenset((entity,))) for entity, priority in found.items()
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_priorities_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ConfigurationError, match="priority of 'a'"):
        PrioritySchedule({"a": bad})
    with pytest.raises(ConfigurationError, match="group 'g'"):
        GroupingSchedule({"g": Group(bad, frozenset())})
    with pytest.raises(ConfigurationError, match="priority of 'a'"):
        to_physical({"a": bad}, {"a": [1]})


def test_groups_that_cannot_be_are_refused_with_what_to_do():
    with pytest.raises(ConfigurationError, match="from 0 on"):
        GroupingSchedule({"g": Group(-1, frozenset())})
    with pytest.raises(ConfigurationError, match=r"0\.01 or more"):
        GroupingSchedule({"g": Group(1, frozenset(), quota_cores=0)})
    with pytest.raises(ConfigurationError, match="'a' is in the groups 'g' and 'h'"):
        GroupingSchedule({"g": Group(1, frozenset("a")), "h": Group(1, frozenset("ab"))})
