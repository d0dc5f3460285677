"""What the middleware decides: from operators of any engine to nice and groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.middleware.assembly import make_bindings
from slackwater.middleware.config import parse
from slackwater.middleware.model import Application, Operator, Unit
from slackwater.middleware.planning import Metrics, Reading, classified, together
from slackwater.middleware.priorities import Row, host_policy
from slackwater.translators.schedule import Target

if TYPE_CHECKING:
    from slackwater.middleware.planning import Binding

ALL = frozenset({"queue-rows", "head-age-s", "rows-per-s", "row-cost-s", "batch-cost-s", "sweep-cost-s", "selectivity"})


def spark(name: str, queues: dict[str, float | None]) -> Application:
    """A Spark application: queries that all run on its one unit."""
    key = f"spark/{name}"
    operators = tuple(
        Operator(f"{key}/{query}", query, (f"{key}/driver",), values={} if rows is None else {"queue-rows": rows})
        for query, rows in queues.items()
    )
    return Application(key, name, "spark", operators, (Unit(f"{key}/driver", "driver", Target()),))


def flink(name: str, queues: dict[str, float], subtasks: int = 1) -> Application:
    """A Flink job: operators with units of their own."""
    key = f"flink/{name}"
    operators = []
    units = []
    for vertex, rows in queues.items():
        runs_on = tuple(f"{key}/{vertex}/{number}" for number in range(subtasks))
        operators.append(Operator(f"{key}/{vertex}", vertex, runs_on, values={"queue-rows": rows, "rows-per-s": 1.0}))
        units += [Unit(unit, "subtask", Target()) for unit in runs_on]
    return Application(key, name, "flink", tuple(operators), tuple(units))


def asked(policies: list[dict[str, Any]], *applications: Application, wall_ts: float = 100.0, **config: Any) -> Any:
    """What would be enacted."""
    return together(binding.word for binding in bound(policies, *applications, wall_ts=wall_ts, **config))


def bound(
    policies: list[dict[str, Any]], *applications: Application, wall_ts: float = 100.0, **config: Any
) -> list[Binding]:
    loaded = parse({"driver": [{"kind": "any"}], "policy": policies, **config}, "test")
    bindings = make_bindings(loaded, Path())
    readings = [Reading("any", classified(applications, loaded.classes))]
    metrics = Metrics({"any": ALL})
    for binding in bindings:
        binding.ask(readings, metrics, wall_ts)
    return bindings


QS_NICE = {"policy": "qs", "mechanism": "nice"}


def test_the_application_with_the_longest_queue_gets_the_best_nice() -> None:
    enactment, doubts = asked([QS_NICE], spark("a", {"q": 1000.0}), spark("b", {"q": 10.0}))
    assert enactment.nices == {"spark/a/driver": 0, "spark/b/driver": 19}
    assert doubts == []


def test_a_unit_that_runs_several_operators_takes_the_greatest_or_their_sum() -> None:
    several, one = spark("a", {"q1": 60.0, "q2": 60.0}), spark("b", {"q": 100.0})
    assert asked([QS_NICE], several, one)[0].nices == {"spark/a/driver": 2, "spark/b/driver": 0}
    assert asked([QS_NICE | {"rule": "sum"}], several, one)[0].nices == {"spark/a/driver": 0, "spark/b/driver": 1}


def test_every_unit_of_a_split_operator_gets_its_priority() -> None:
    enactment, _ = asked([QS_NICE], flink("job", {"map": 100.0, "sink": 10.0}, subtasks=2))
    assert enactment.nices == {
        "flink/job/map/0": 0, "flink/job/map/1": 0, "flink/job/sink/0": 10, "flink/job/sink/1": 10,
    }  # fmt: skip


def test_one_policy_orders_two_engines_by_what_each_offers() -> None:
    fcfs = {"policy": "fcfs", "mechanism": "nice"}
    old = Operator("spark/a/q", "q", ("spark/a/driver",), values={"head-age-s": 50.0})
    application = Application("spark/a", "a", "spark", (old,), (Unit("spark/a/driver", "driver", Target()),))
    bindings = bound([fcfs])
    metrics = Metrics({"attached": frozenset({"head-age-s"}), "flink": frozenset({"queue-rows", "rows-per-s"})})
    # Flink tells no ages: they follow from queue and rate.
    readings = [Reading("attached", (application,)), Reading("flink", (flink("job", {"map": 10.0}),))]
    bindings[0].ask(readings, metrics, 100.0)
    assert bindings[0].word.priorities == {"spark/a/q": 50.0, "flink/job/map": 10.0}


def test_a_metric_that_an_engine_cannot_give_is_told_with_the_chain_that_asked() -> None:
    metrics = Metrics({"plain": frozenset({"rows-per-s"})})
    with pytest.raises(ConfigurationError, match="path-rate → path-selectivity → selectivity → rows-out-per-s"):
        metrics.check("plain", ["path-rate"])


def test_only_what_the_configuration_names_is_touched() -> None:
    enactment, _ = asked([QS_NICE | {"application": "a*", "query": "q?"}],
                         spark("a1", {"q1": 5.0}), spark("a2", {"other": 5.0}), spark("b", {"q1": 5.0}))  # fmt: skip
    assert enactment.nices.keys() == {"spark/a1/driver"}


def test_classes_of_the_configuration_decide_by_place_and_not_by_number() -> None:
    classes = [{"application": "high", "priority_class": -1}, {"priority_class": 1000}]
    multi = {"policy": "multi-class", "mechanism": "nice"}
    config: dict[str, Any] = {"class": classes}
    enactment, _ = asked([multi], spark("high", {"q": None}), spark("low", {"q": None}), **config)
    assert enactment.nices == {"spark/high/driver": 0, "spark/low/driver": 19}


def test_groups_by_application_share_by_the_policys_ratio() -> None:
    enactment, _ = asked([{"policy": "qs", "mechanism": "cgroup", "quota_cores": 1.5}],
                         spark("a", {"q": 300.0}), spark("b", {"q": 100.0}))  # fmt: skip
    assert {group.members: group.priority for group in enactment.groups.values()} == {
        frozenset({"spark/a/driver"}): 300.0,
        frozenset({"spark/b/driver"}): 100.0,
    }
    assert {group.quota_cores for group in enactment.groups.values()} == {1.5}


def test_groups_that_share_a_process_become_one() -> None:
    by_query = {"policy": "qs", "mechanism": "cgroup", "group_by": "query"}
    enactment, _ = asked(
        [by_query], spark("a", {"q1": 1.0, "q2": 5.0, "q3": 2.0}), flink("job", {"map": 1.0, "sink": 2.0})
    )
    assert sorted(sorted(group.members) for group in enactment.groups.values()) == [
        ["flink/job/map/0"], ["flink/job/sink/0"], ["spark/a/driver"],
    ]  # fmt: skip
    assert max(group.priority for group in enactment.groups.values()) == 5.0


def test_members_of_a_group_are_ordered_by_nice_each_group_by_itself() -> None:
    entry = {"policy": "even", "mechanism": "cgroup+nice", "inside": "qs"}
    enactment, _ = asked([entry], flink("x", {"map": 100.0, "sink": 1.0}), flink("y", {"map": 3.0, "sink": 3.0}))
    assert len(enactment.groups) == 2
    assert enactment.nices == {"flink/x/map/0": 0, "flink/x/sink/0": 19, "flink/y/map/0": 0, "flink/y/sink/0": 0}


def test_one_of_which_nothing_is_known_is_taken_as_the_others_are() -> None:
    enactment, _ = asked([QS_NICE], spark("a", {"q": 100.0}), spark("b", {"q": 1.0}), spark("new", {"q": None}))
    assert enactment.nices["spark/a/driver"] < enactment.nices["spark/new/driver"] < enactment.nices["spark/b/driver"]


def test_where_two_policies_want_the_same_unit_the_first_has_it_and_it_is_told() -> None:
    enactment, doubts = asked([QS_NICE, {"policy": "random", "mechanism": "nice"}], spark("a", {"q": 9.0}))
    assert enactment.nices == {"spark/a/driver": 0}
    assert "two policies set the nice of spark/a/driver" in doubts[0]


def test_each_policy_keeps_its_own_period() -> None:
    fast, slow = bound([QS_NICE | {"period_s": 0.5}, {"policy": "random", "mechanism": "nice"}], period_s=2.0)
    assert (fast.due(100.4), fast.due(100.5), slow.due(101.9), slow.due(102.0)) == (False, True, False, True)
    assert slow.due(50.0), "after the clock went back"


def test_a_function_of_the_users_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "urgency_of_ours.py").write_text(
        "def oldest(row):\n    return row['head-age-s']\noldest.needs = 'head-age-s'\n"
    )
    policy = host_policy("urgency_of_ours:oldest", {}, tmp_path)
    assert policy.needs == ("head-age-s",)
    assert policy.priorities([Row(Operator("k", "n", ()), {"head-age-s": 3.0}, 0.0)]) == [3.0]
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        host_policy("urgency_of_ours:newest", {}, tmp_path)


def test_a_function_that_returns_nonsense_is_named() -> None:
    policy = host_policy("builtins:repr", {}, Path())
    with pytest.raises(ValueError, match="builtins:repr gave operator 'n' the priority"):
        policy.priorities([Row(Operator("k", "n", ()), {}, 0.0)])


@given(
    queues=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.floats(0, 1e12) | st.none(), min_size=1, max_size=6
    ),
    mechanism=st.sampled_from(["nice", "cgroup"]),
    policy=st.sampled_from(["qs", "random", "even", "multi-class"]),
)
def test_whatever_is_read_every_unit_gets_a_place_and_the_order_is_kept(
    queues: dict[str, float | None], mechanism: str, policy: str
) -> None:
    applications = [spark(name, {"q": rows}) for name, rows in queues.items()]
    entry = {"policy": policy, "mechanism": mechanism}
    enactment, _ = asked([entry], *applications)
    again, _ = asked([entry], *reversed(applications))
    assert again.nices == enactment.nices, "the order of reading decides nothing"
    if mechanism == "nice":
        assert enactment.nices.keys() == {f"spark/{name}/driver" for name in queues}
        assert all(0 <= nice <= 19 for nice in enactment.nices.values())
        if policy == "qs":
            known = {name: rows for name, rows in queues.items() if rows is not None}
            for a, rows_a in known.items():
                for b, rows_b in known.items():
                    if rows_a > rows_b:
                        assert enactment.nices[f"spark/{a}/driver"] <= enactment.nices[f"spark/{b}/driver"]
    else:
        assert {unit for group in enactment.groups.values() for unit in group.members} == {
            f"spark/{name}/driver" for name in queues
        }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"polcy": []}, "Did you mean"),
        ({"driver": []}, "there is no"),
        ({"policy": []}, "there is no"),
        ({"period_s": 0.0}, "from 0.05 to 3600"),
        ({"policy": [{"policy": "qs", "mechanism": "magic"}]}, "magic"),
        ({"policy": [{"policy": "qs", "mechanism": "nice", "nice": [5, 1]}]}, "best ≤ worst"),
        ({"policy": [{"policy": "qs", "mechanism": "nice", "quota_cores": 1}]}, "a quota needs cgroups"),
        ({"policy": [{"policy": "qs", "mechanism": "cgroup", "inside": "qs"}]}, "cgroup\\+nice"),
        ({"policy": [{"policy": "qs", "mechanism": "cgroup+nice"}]}, "needs `inside`"),
        ({"policy": [{"policy": "qs", "mechanism": "nice", "mechanisn": "x"}]}, "Did you mean 'mechanism'"),
        ({"policy": [{"policy": "fcsf", "mechanism": "nice"}]}, "Did you mean 'fcfs'"),
        ({"policy": [{"policy": "multi-class", "mechanism": "nice", "parameters": {"ratio": 0}}]}, "above 1"),
        ({"policy": [{"policy": "qs", "mechanism": "nice", "parameters": {"x": 0}}]}, "parameters"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    content = {"driver": [{"kind": "slackwater"}], "policy": [QS_NICE]} | change
    with pytest.raises(ConfigurationError, match=message):
        make_bindings(parse(content, "test"), Path())
