"""Replay and advice: a trace with known answers, the same bytes each time, and advice that fits the load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.cli import main
from slackwater.core.model import Report, TaskTime, Window
from slackwater.errors import ConfigurationError
from slackwater.recording.frames import MAGIC, frame
from slackwater.recording.reading import trace_of
from slackwater.recording.records import Batch, Head, Host, Input, Query, Record, Worked
from slackwater.replay.advice import advise, predicted
from slackwater.replay.child import ADVISE
from slackwater.replay.costs import costs_of
from slackwater.replay.delays import lateness_s
from slackwater.replay.fidelity import last_seconds, ready, span_of
from slackwater.replay.measure import Span, measured
from slackwater.replay.run import Outcome
from slackwater.replay.scenario import recorded, recorded_name, scenario_of
from slackwater.replay.shadow import Shadow
from slackwater.replay.streams import RecordedStream
from slackwater.replay.words import in_words
from slackwater.sim.trace import read_trace as read_bench_trace
from slackwater.testing import START_WALL_TS, Garbage, ScriptedDriver, SimulatedQuery, steps
from tests.unit.replay_support import from_bench, recorded_run, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def _queries(count: int, *, cost_s: float = 0.3, interval_s: float = 0.0, demand: float = 1.0) -> list[SimulatedQuery]:
    return [
        SimulatedQuery(
            f"q{place:02d}",
            windows=(Window(10, 10, 10 * place / count),),
            delay_s=1,
            rows_per_s=1000,
            step_s=1.0,
            step_phase_s=place / count,
            batch_cost_s=cost_s,
            row_cost_s=1e-6,
            empty_cost_s=cost_s / 2,
            cpu_demand=demand,
            interval_s=interval_s,
        )
        for place in range(count)
    ]


def _prepared(count: int, policy: str, seconds: float = 80.0, **told: float):
    return ready(recorded_run(_queries(count, **told), policy, seconds))


def test_costs_of_a_batch_come_back_from_a_trace() -> None:
    found = _prepared(3, "klink")
    for cost in found.costs.queries.values():
        assert cost.batch_s == pytest.approx(0.3, rel=0.1)
        assert cost.empty_s == pytest.approx(0.15, rel=0.1)
    assert found.costs.cores == 2


@pytest.mark.parametrize("policy", ["klink", "observe"])
def test_the_recorded_policy_replays_as_it_was_recorded(policy: str) -> None:
    found = _prepared(4, policy)
    assert found.error_mean < 0.1
    assert found.error_p99 < 0.2
    assert found.again.due == found.recorded.due > 20
    assert found.again.left == found.recorded.left


def test_another_policy_is_predicted_as_it_then_runs() -> None:
    told = _prepared(5, "observe", 60.0, cost_s=0.5).replay
    trace = recorded_run(_queries(5, cost_s=0.5), "klink", 60.0)
    truth = ready(trace).recorded
    scenario = scenario_of("klink", trace)
    predicted_s = told(scenario).mean_s
    assert predicted_s is not None
    assert truth.mean_s is not None
    assert predicted_s == pytest.approx(truth.mean_s, rel=0.2)


def test_queries_that_wait_for_others_tasks_are_known_to_cost_no_more_where_cpu_time_is_told() -> None:
    queries = [replace(query, task_share=0.6) for query in _queries(14, cost_s=0.2, demand=1.5)]
    records = records_of(queries, "observe", 90.0, mode="FAIR", task_order="name")
    by_length = costs_of(trace_of(records), START_WALL_TS + 30, START_WALL_TS + 80)
    told: list[Record] = []
    for record in records:
        if isinstance(record, Batch):
            # Of the 0.3 s that a batch computes, its thread and tasks do a third; the rest the JVM does around it.
            own_s = 0.1 * (1 if record.rows else 0.5) + 1e-6 * record.rows
            told.append(msgspec.structs.replace(record, driver_cpu_s=own_s / 2))
            told.append(Worked(record.number, record.batch_id, own_s / 2, own_s))
        else:
            told.append(record)
    by_cpu = costs_of(trace_of(told), START_WALL_TS + 30, START_WALL_TS + 80)
    lengths = sorted(cost.batch_s for cost in by_length.queries.values())
    costs = sorted(cost.batch_s for cost in by_cpu.queries.values())
    assert lengths[-1] > 1.5 * lengths[0], "those at the end of the line look expensive"
    assert costs[-1] < 1.2 * costs[0]
    assert costs[0] == pytest.approx(0.2, rel=0.25)


def test_what_compilers_and_collectors_take_is_not_taken_for_the_cost_of_batches() -> None:
    compiling, abreast, own_s = 0.5, 4, 1.0
    garbage = Garbage(always=0.1, each=0.08)
    machine: dict[str, Any] = {"compiling": lambda _: compiling, "garbage": garbage}
    queries = _queries(abreast, cost_s=1.0)
    records = records_of(queries, "observe", 90.0, **machine)
    live = ready(recorded_run(queries, "klink", 90.0, **machine)).recorded.mean_s
    assert live is not None

    def told(record: Record) -> Iterator[Record]:
        if isinstance(record, Host):
            passed = compiling * (record.wall_ts - START_WALL_TS)
            share = garbage.always + garbage.each * abreast
            collected = ((record.cpu_s or 0.0) - passed) * share / (1 + share)
            yield msgspec.structs.replace(record, compiling_cpu_s=passed, collecting_cpu_s=collected)
        elif isinstance(record, Batch):
            yield msgspec.structs.replace(record, driver_cpu_s=own_s / 2)
            yield Worked(record.number, record.batch_id, own_s / 2, own_s)
        else:
            yield record

    known = ready(trace_of([one for record in records for one in told(record)]))
    assert known.costs.besides.compiling_cores == pytest.approx(compiling, rel=0.01)
    assert known.costs.besides.garbage.always == pytest.approx(garbage.always, rel=0.1)
    assert known.costs.besides.garbage.each == pytest.approx(garbage.each, rel=0.1)
    assert known.costs.besides.compiling_at(START_WALL_TS + 50) == pytest.approx(compiling, rel=0.01)
    assert known.error_mean < 0.1
    scenario = scenario_of("klink", known.trace)
    predicted_s = known.replay(scenario).mean_s
    unknowing_s = ready(trace_of(records)).replay(scenario).mean_s
    assert predicted_s is not None
    assert unknowing_s is not None
    assert predicted_s == pytest.approx(live, rel=0.1)
    assert unknowing_s > 1.4 * live


def test_a_few_samples_of_compiling_are_not_taken_off_without_what_they_leave() -> None:
    records = records_of(_queries(2), "klink", 60.0)
    hosts = [record for record in records if isinstance(record, Host)]
    told = {
        id(host): msgspec.structs.replace(host, compiling_cpu_s=0.5 * (host.cpu_s or 0.0), collecting_cpu_s=0.0)
        for host in hosts[20:30]
    }
    some = costs_of(trace_of([told.get(id(one), one) for one in records]), START_WALL_TS, START_WALL_TS + 50)
    assert some == costs_of(trace_of(records), START_WALL_TS, START_WALL_TS + 50)


def test_the_same_trace_and_seed_give_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    path.write_bytes(MAGIC + frame(records_of(_queries(2), "klink", 60.0)))
    said = []
    for _ in range(2):
        _main(["replay", str(path), "--policies", "klink,spark-fair", "--seed", "3", "--json"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    found = json.loads(said[0])
    assert [one["policy"] for one in found["outcomes"]] == ["recorded", "as-recorded", "klink", "spark-fair"]
    assert all(query["latency_s"]["mean"] > 1 for query in found["outcomes"][2]["queries"])
    _main(["replay", str(path), "--policies", "edf", "--lanes", "1", "--knob", "cost", "--cores", "1"])
    assert "edf" in capsys.readouterr().out


def test_a_committed_recording_of_live_spark_replays_close_to_what_was_measured() -> None:
    trace = from_bench(read_bench_trace(RESULTS / "trace-ysb-16-klink.json").runs[0])
    found = ready(trace, from_s=12.0)
    assert found.recorded.due > 60
    assert found.error_mean < 0.15
    assert found.error_p99 < 0.3


def test_overloaded_plain_spark_is_advised_to_switch_and_a_light_load_to_stay() -> None:
    heavy = advise(_prepared(4, "observe", 45.0, cost_s=0.9), seeds=1)
    assert heavy.switch is not None
    assert "klink" in heavy.switch.change
    assert heavy.switch.mean_s is not None
    assert heavy.switch.mean_s.high < heavy.figures.mean_s
    kinds = {one.kind for one in heavy.suggestions}
    assert {"policy", "lanes", "triggers"} <= kinds
    lines = list(in_words(heavy))
    assert any(line.startswith("Recommended: attach(policy='klink'") for line in lines)
    assert any("near to full cores" in one.note for one in heavy.suggestions if one.kind == "move a query")

    light = advise(_prepared(1, "observe", 45.0, cost_s=0.1), seeds=1)
    assert light.switch is None
    assert not any("near to full cores" in one.note for one in light.suggestions if one.kind == "policy")
    assert any(line.startswith("Leave things alone") for line in in_words(light))


def test_queries_with_triggers_are_advised_with_and_without_them() -> None:
    found = advise(_prepared(2, "observe", 60.0, interval_s=5.0, cost_s=0.2), seeds=1)
    changes = [one.change for one in found.suggestions if one.kind == "policy"]
    assert any("no trigger" in change for change in changes)
    assert any("triggers as they are" in change for change in changes)
    assert "triggers of 5 s" in found.recorded
    assert found.switch is not None


def test_advice_is_printed_as_json_and_as_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    path.write_bytes(MAGIC + frame(records_of(_queries(1), "observe", 40.0)))
    _main(["advise", str(path), "--seeds", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["figures"]["queries"] == 1
    assert {one["kind"] for one in found["suggestions"]} >= {"policy"}
    _main(["advise", str(path), "--seeds", "1"])
    out = capsys.readouterr().out
    assert out.startswith("Recorded: 1 query under plain Spark")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policies", "klnk"), "klink"),
        (("--policies", "klink:fast"), "balanced"),
        (("--policies", ","), "no policy"),
        (("--lanes", "0"), "--lanes"),
        (("--cores", "0"), "--cores"),
        (("--triggers", "often"), "--triggers"),
        (("--from", "70"), "too little to measure"),
    ],
)
def test_wrong_usage_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "t"
    path.write_bytes(MAGIC + frame(records_of(_queries(1), "klink", 30.0)))
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(path), *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_trace_without_batches_is_refused() -> None:
    head = Head(100.0, "1", "app", "4.3.0", "local[2]", "observe", enforces=False, parameters={}, settings={})
    with pytest.raises(ConfigurationError, match="no batches"):
        ready(trace_of([head]))


def test_the_end_of_a_long_trace_is_enough() -> None:
    whole = recorded_run(_queries(2), "klink", 120.0)
    end = last_seconds(whole, 60.0)
    assert end.seconds == pytest.approx(60.0)
    assert all(batch.ended_wall_ts >= end.from_wall_ts for query in end.queries for batch in query.batches)
    assert ready(end).recorded.due > 0


def test_scenarios_are_read_from_names() -> None:
    trace = recorded_run(_queries(1, interval_s=2.0), "observe", 5.0, mode="FAIR")
    assert recorded(trace).task_order == "name"
    assert recorded_name(trace) == "plain Spark (FAIR), triggers of 2 s"
    assert scenario_of("spark-staggered-4s", trace).interval_of(9.0, 0, 3) == pytest.approx(4 * 0.94)
    assert scenario_of("spark-fair", trace).interval_of(9.0, 0, 3) == 0.0
    assert scenario_of("klink:cost", trace).knob == "cost"
    assert scenario_of("klink", trace).interval_of(9.0, 0, 3) == 9.0
    with pytest.raises(ConfigurationError, match="greater than 0"):
        scenario_of("spark-every-0s", trace)


counts = st.integers(0, 10_000)


@given(rows=st.lists(st.tuples(st.floats(0.1, 5.0), counts, st.floats(0, 3.0)), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_recorded_stream_offers_each_batch_what_it_took(rows: list[tuple[float, int, float]]) -> None:
    at, event, taken = 1000.0, 990.0, 0
    batches: list[Batch] = []
    for gap_s, count, moved_s in rows:
        at, event = at + gap_s, event + moved_s
        seen = Input(1.0, count, event if count else None)
        batches.append(Batch(0, len(batches), at, at + 0.1, 0.1, count, 0.0, (seen,)))
    about = Query(0, 1000.0, "k", "n", "i", True, ((10, 10, 0),), (1.0,), "min", True, True, 0.0)
    head = Head(1000.0, "1", "app", "4.3.0", "local[2]", "observe", enforces=False, parameters={}, settings={})
    (query,) = trace_of([head, about, *batches]).queries
    stream = RecordedStream(query, 1000.0)
    before = 0
    for batch in query.batches:
        taken += batch.rows
        readable = stream.rows_readable(batch.offsets_wall_ts - 1000.0)
        assert readable >= before
        before = readable
        if not stream.stepped:
            assert readable == taken
            if batch.rows:
                (largest,) = stream.maxima_s(batch.offsets_wall_ts - 1000.0, taken)
                assert largest is not None


@given(values=st.lists(st.floats(0.1, 100), min_size=1, max_size=5), error=st.floats(0, 2))
def test_an_interval_holds_what_it_is_made_from(values: list[float], error: float) -> None:
    found = predicted(values, error)
    assert found is not None
    assert found.low < min(values)
    assert found.high > max(values)
    assert found.low <= found.value <= found.high


def test_windows_that_did_not_leave_count_with_how_overdue_they_are() -> None:
    (query,) = recorded_run(_queries(1), "klink", 60.0).queries
    facts = query.facts()
    span = Span(START_WALL_TS + 20, START_WALL_TS + 50, START_WALL_TS + 60)
    whole = measured(facts, query.batches, span, 0.0)
    assert whole.left == whole.due == 3
    cut = measured(facts, [b for b in query.batches if b.ended_wall_ts < START_WALL_TS + 30], span, 0.0)
    assert cut.due == 3
    assert cut.left == 1
    assert max(cut.latencies_s) == pytest.approx(60 - 30, abs=1e-6)


def test_lateness_is_how_far_a_batch_reaches_behind_what_was_seen_before() -> None:
    about = Query(0, 0.0, "k", "n", "i", True, (), (1.0,), "min", False, True, 0.0)
    head = Head(0.0, "1", "app", "4.3.0", "local[2]", "observe", enforces=False, parameters={}, settings={})
    maxima = [(10.0, 9.0), (20.0, 8.0), (19.0, 19.0)]
    batches = [
        Batch(0, place, place, place + 0.5, 0.5, 5, 0.0, (Input(1.0, 5, largest, least),))
        for place, (largest, least) in enumerate(maxima)
    ]
    (query,) = trace_of([head, about, *batches]).queries
    assert lateness_s(query) == [2.0, 1.0]


def test_a_span_leaves_out_the_start_and_leaves_time_to_finish() -> None:
    trace = recorded_run(_queries(1), "klink", 100.0)
    span = span_of(trace)
    assert span.from_wall_ts == pytest.approx(trace.from_wall_ts + 20, abs=1)
    assert span.to_wall_ts == pytest.approx(trace.to_wall_ts - 10, abs=1)
    assert span.end_wall_ts == trace.to_wall_ts


def test_a_shadow_tells_what_another_policy_would_do_and_bring() -> None:
    from slackwater.policies.assembly import engine_for  # noqa: PLC0415

    asked: list[tuple[bytes, str]] = []

    def replay(trace: bytes, what: str, timeout_s: float) -> dict[str, object]:
        asked.append((trace, what))
        if what == ADVISE:
            return {"lines": ["Recorded: much.", "Recommended: this."], "switch": "this"}
        return {
            "measured_s": 60.0, "mean_s": 5.0, "p99_s": 9.0, "cpu_cores": 1.5, "predicted_mean_s": 2.0,
            "predicted_mean_low_s": 1.8, "predicted_mean_high_s": 2.2, "predicted_p99_s": 3.0,
            "predicted_cpu_cores": 1.0, "error_mean": 0.1,
        }  # fmt: skip

    engine = engine_for("observe")
    driver = ScriptedDriver(_queries(2), cores=2)
    shadow = Shadow("klink", engine, replay=replay, first_replay_s=1e9)
    for report, commands in steps(engine, driver, 60.0):
        shadow.saw(report, commands)
        shadow._write_down()
    shadow._choices = shadow._decide()
    shadow._look_back(shadow.trace())
    shadow._advise(shadow.trace())
    status, rows = shadow.status(), shadow.rows()
    shadow.close()
    assert {choice.name for choice in status.choices} == {"q00", "q01"}
    assert all(choice.reason for choice in status.choices)
    assert status.gain is not None
    assert status.gain.predicted_mean_s == 2.0
    assert status.advice is not None
    assert (status.advice.lines[0], status.advice.switch) == ("Recorded: much.", "this")
    assert [row["advice"] for row in rows if "advice" in row] == list(status.advice.lines)
    (raw, policy), (_, advise_asked) = asked
    assert (policy, advise_asked) == ("klink", ADVISE)
    assert raw.startswith(MAGIC)
    assert shadow.rows() == []


def test_what_a_shadow_keeps_can_be_replayed(tmp_path: Path) -> None:
    from slackwater.policies.assembly import engine_for  # noqa: PLC0415
    from slackwater.recording.reading import read_trace  # noqa: PLC0415

    engine = engine_for("observe")
    driver = ScriptedDriver(_queries(2), cores=2)
    shadow = Shadow("klink", engine, kept_s=60.0, first_replay_s=1e9)
    for report, commands in steps(engine, driver, 100.0):
        shadow.saw(_with_task_times(report), commands)
        shadow._write_down()
    shadow.close()
    (tmp_path / "t").write_bytes(shadow.trace())
    trace = read_trace(tmp_path / "t")
    assert 55 <= trace.seconds <= 61
    found = ready(trace)
    assert isinstance(found.replay(scenario_of("klink", trace)), Outcome)
    assert found.recorded.due > 0
    assert found.costs.by_cpu, "what tasks took is kept, too"


def _with_task_times(report: Report) -> Report:
    return replace(
        report,
        queries=tuple(
            replace(
                query,
                batches=tuple(replace(batch, driver_cpu_s=0.1) for batch in query.batches),
                worked=tuple(TaskTime(batch.batch_id, 0.1, 0.1) for batch in query.batches),
            )
            for query in report.queries
        ),
    )


def _main(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
