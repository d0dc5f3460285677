"""Metrics for collectors: every name, totals that are right whoever reads when, and queries that come and go."""

from __future__ import annotations

import builtins
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from slackwater.core.model import Stage
from slackwater.core.records import Ended, Left, Log, Ran, Records
from slackwater.endpoint.overview import MemoryOverview, Overview, QueryOverview, SchedulerOverview
from slackwater.endpoint.server import Endpoint
from slackwater.telemetry.catalogue import METRICS
from slackwater.telemetry.cursor import Cursor
from slackwater.telemetry.exposition import Exposition
from slackwater.telemetry.following import Follower
from slackwater.telemetry.routes import metrics_routes
from slackwater.telemetry.totals import Totals
from slackwater.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = {metric.name: metric.kind for metric in METRICS}
LATE: dict[str, str | float | int | bool | None] = {
    "name": "corrected",
    "open_windows": 2,
    "past_windows": 3,
    "pending_rows": 4,
    "stalest": 0.25,
    "memory_bytes": 1000,
    "late_rows": 9,
    "dead_rows": 5,
    "purged_windows": 1,
    "on_time_results": 7,
    "late_results": 6,
    "final_results": 1,
    "repeated_results": 0,
}


def query(key: str = "run-1", name: str = "alerts", **more: Any) -> QueryOverview:
    given: dict[str, Any] = {
        "key": key,
        "name": name,
        "query_id": f"id-of-{name}",
        "stage": "waiting",
        "reason": "",
        "priority_class": 0,
        "batches": 3,
        "slack_s": 1.5,
        "watermark_lag_s": 2.5,
        "last_latency_s": 1.0,
        "last_batch_wall_ts": 100.0,
        "backlog_rows": 12.0,
        "head_age_s": 0.0,
        "rows_per_s": 1.0,
        "row_cost_s": 0.0,
        "batch_cost_s": 0.1,
        "sweep_cost_s": 0.1,
        "selectivity": 1.0,
        "state_bytes": 2048,
        "state_rows": 20,
        "dropped_rows": 3,
    }
    return QueryOverview(**(given | more))


def overview(*queries: QueryOverview) -> Overview:
    return Overview(
        version="1",
        application_id="app-1",
        name="platform",
        master="local[2]",
        ui_url=None,
        python_pid=1,
        jvm_pid=2,
        policy="klink",
        cores=2,
        lanes=3,
        wall_ts=100.0,
        memory=MemoryOverview(
            used_bytes=300.0, live_bytes=200.0, max_bytes=1000.0, bound_bytes=750.0, rules=True, cycles=2
        ),
        scheduler=SchedulerOverview(
            gates_open=False, gates_opened=1, decisions=10, decision_ms_p99=4.0, cpu_s=0.5, last_decision_wall_ts=99.0
        ),
        queries=queries,
        told={"late": [LATE]},
    )


def ran(key: str = "run-1", name: str = "alerts", stage: Stage = Stage.DATA, took_s: float = 0.4, **more: Any) -> Ran:
    given: dict[str, Any] = {"lane": 0, "reason": "least slack", "batch_id": 1, "rows": 10, "waited_s": 0.7}
    return Ran(key, name, stage, began_wall_ts=0.0, ended_wall_ts=took_s, **(given | more))


def left(latency_s: float, key: str = "run-1", name: str = "alerts") -> Left:
    return Left(key, name, 0.0, latency_s)


class Collected:
    """What one scrape gave, parsed."""

    def __init__(self, text: bytes, parse: Callable[[str], Any] = plain_text) -> None:
        self.families = {family.name: family for family in parse(text.decode())}

    def value(self, name: str, **labels: str) -> float | None:
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1
        return float(found[0]) if found else None


class Scraped:
    """An exposition over records that a test adds to; every scrape is a fresh one."""

    def __init__(self, **more: Any) -> None:
        self.records, self.clock, self.ticks = Records(), FakeClock(), 0.0
        self.totals = Totals(self.records, self.clock.now, **more)
        self.now = overview(query())
        self.alarms: list[tuple[str, str]] = []
        self.exposition = Exposition(lambda: self.now, self.totals, lambda: self.alarms, self._tick)

    def _tick(self) -> float:
        self.ticks += 10.0
        return self.ticks

    def scrape(self) -> Collected:
        return Collected(self.exposition.render()[0])


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def full(scraped: Scraped) -> None:
    """Something for every metric."""
    scraped.records.ran.add(ran())
    scraped.records.ran.add(ran(stage=Stage.SWEEP))
    scraped.records.left.add(left(1.2))
    scraped.alarms = [("dead", "alerts"), ("memory", "")]


def test_every_metric_is_there_with_its_kind_and_what_it_means(scraped: Scraped) -> None:
    full(scraped)
    text = scraped.exposition.render()[0].decode()
    found = Collected(text.encode()).families
    for metric in METRICS:
        shown = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
        family = found[shown]
        assert family.documentation == metric.about
        assert family.type == ("gauge" if metric.kind == "info" else metric.kind)
        assert family.samples, metric.name
        labels = set(metric.labels) | ({"le"} if metric.kind == "histogram" else set())
        assert set(family.samples[0].labels) == labels
        assert f"# HELP {metric.name} " in text
    assert len(found) == len(METRICS)


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in METRICS:
        assert metric.name.startswith("slackwater_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert (metric.kind == "info") == metric.name.endswith("_info")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        for unit in ("seconds", "bytes"):
            assert (metric.unit == unit) == metric.family.endswith(f"_{unit}")
    assert len(KINDS) == len(METRICS)


def test_values_are_those_of_the_application(scraped: Scraped) -> None:
    full(scraped)
    scraped.now = overview(query(stage="data batch", priority_class=-1), query("run-2", "idle", stage="paused"))
    found = scraped.scrape()
    assert found.value("slackwater_query_slack_seconds", query="alerts") == 1.5
    assert found.value("slackwater_query_class", query="alerts") == -1
    assert found.value("slackwater_query_paused", query="idle") == 1
    assert found.value("slackwater_lanes_busy") == 1
    assert found.value("slackwater_decision_p99_seconds") == pytest.approx(0.004)
    assert found.value("slackwater_memory_bound_bytes") == 750
    assert found.value("slackwater_query_turns_total", query="alerts", stage="sweep") == 1
    assert found.value("slackwater_query_rows_total", query="alerts") == 20
    assert found.value("slackwater_query_wait_seconds_count", query="alerts") == 1, "a sweep does not wait for a turn"
    assert found.value("slackwater_query_info", query="alerts", query_id="id-of-alerts", run_id="run-1") == 1
    assert found.value("slackwater_late_revisions_total", query="corrected", kind="late") == 6
    assert found.value("slackwater_alarms_active", kind="dead", query="alerts") == 1


def test_a_value_lies_in_the_first_bucket_that_holds_it(scraped: Scraped) -> None:
    for latency_s in (-1.0, 0.05, 0.1, 0.11, 599.0, 600.0, 601.0):
        scraped.records.left.add(left(latency_s))
    found = scraped.scrape()
    name = "slackwater_query_latency_seconds"
    at = {le: found.value(f"{name}_bucket", query="alerts", le=le) for le in ("0.1", "0.25", "300.0", "600.0", "+Inf")}
    assert at == {"0.1": 3, "0.25": 4, "300.0": 4, "600.0": 6, "+Inf": 7}
    assert found.value(f"{name}_count", query="alerts") == 7
    assert found.value(f"{name}_sum", query="alerts") == pytest.approx(0.05 + 0.1 + 0.11 + 599 + 600 + 601)


def test_open_metrics_is_given_to_who_asks_for_it(scraped: Scraped) -> None:
    full(scraped)
    text, kind = scraped.exposition.render("application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    found = Collected(text, open_metrics)
    assert {family.name for family in found.families.values()} == {metric.family for metric in METRICS}
    assert found.families["slackwater_query_state_bytes"].unit == "bytes"
    assert scraped.exposition.render("*/*")[1].startswith("text/plain; version=0.0.4")
    assert scraped.exposition.render("text/plain; version=nonsense")[1].startswith("text/plain")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("left"), st.sampled_from("ab"), st.floats(-10, 10_000)),
        st.tuples(st.just("ran"), st.sampled_from("ab"), st.floats(0, 10_000)),
        st.tuples(st.just("scrape"), st.sampled_from("xyz"), st.none()),
        st.tuples(st.just("take"), st.just(""), st.none()),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=40)
@given(EVENTS)
def test_totals_equal_the_records_however_scrapes_come_between(events: list[tuple[str, str, float | None]]) -> None:
    scraped = Scraped()
    scraped.now = overview()
    windows: dict[str, list[float]] = {"a": [], "b": []}
    batches: dict[str, list[float]] = {"a": [], "b": []}
    before: dict[tuple[str, str], float] = {}
    for what, who, value in events:
        if what == "left" and value is not None:
            windows[who].append(value)
            scraped.records.left.add(left(value, f"run-{who}", who))
        elif what == "ran" and value is not None:
            batches[who].append(value)
            scraped.records.ran.add(ran(f"run-{who}", who, took_s=value))
        elif what == "take":
            scraped.totals.take()
        else:
            found = scraped.scrape()
            for name in "ab":
                count = found.value("slackwater_query_latency_seconds_count", query=name) or 0.0
                assert count == len(windows[name])
                assert count >= before.get((who, name), 0.0), "what one reader sees never shrinks"
                before[who, name] = count
    found = scraped.scrape()
    for name in "ab":
        for metric, values in (("latency", windows[name]), ("batch", batches[name])):
            if not windows[name] and not batches[name]:
                continue
            full_name = f"slackwater_query_{metric}_seconds"
            assert found.value(f"{full_name}_count", query=name) == len(values)
            for le in ("0.1", "5.0", "60.0", "600.0"):
                bucket = found.value(f"{full_name}_bucket", query=name, le=le)
                assert bucket == sum(value <= float(le) for value in values)


def test_collectors_in_many_threads_count_nothing_twice(scraped: Scraped) -> None:
    over = threading.Event()

    def collect() -> None:
        while not over.is_set():
            scraped.exposition.render()

    readers = [threading.Thread(target=collect) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(1000):
        scraped.records.left.add(left(1.0))
    over.set()
    for reader in readers:
        reader.join()
    assert scraped.scrape().value("slackwater_query_latency_seconds_count", query="alerts") == 1000
    assert scraped.totals.missed == 0


def test_what_was_dropped_before_it_was_counted_is_told() -> None:
    log: Log[int] = Log(3)
    cursor = Cursor(log)
    for number in range(5):
        log.add(number)
    assert cursor.take() == [2, 3, 4]
    assert cursor.missed == 2
    log.add(5)
    assert cursor.take() == [5]
    assert cursor.take() == []
    assert cursor.missed == 2


def test_a_query_that_ended_is_shown_for_a_while_and_then_forgotten() -> None:
    scraped = Scraped(kept_s=600.0)
    scraped.records.ran.add(ran())
    assert scraped.scrape().value("slackwater_query_up", query="alerts") == 1
    scraped.records.ended.add(Ended("run-1", "alerts", "id", scraped.clock.now(), "it broke"))
    scraped.now = overview()
    found = scraped.scrape()
    assert found.value("slackwater_query_up", query="alerts") == 0
    assert found.value("slackwater_query_failures_total", query="alerts") == 1
    assert found.value("slackwater_query_batch_seconds_count", query="alerts") == 1
    assert found.value("slackwater_query_slack_seconds", query="alerts") is None
    scraped.clock.advance(601)
    assert scraped.scrape().value("slackwater_query_up", query="alerts") is None


def test_a_run_that_follows_another_of_its_name_goes_on_counting(scraped: Scraped) -> None:
    scraped.records.ran.add(ran())
    scraped.totals.take()
    scraped.records.ended.add(Ended("run-1", "alerts", "id", scraped.clock.now(), None))
    scraped.records.ran.add(ran("run-2"))
    scraped.now = overview(query("run-2"))
    scraped.clock.advance(10_000)
    found = scraped.scrape()
    assert found.value("slackwater_query_batch_seconds_count", query="alerts") == 2
    assert found.value("slackwater_query_up", query="alerts") == 1


def test_two_runs_of_one_name_are_told_apart(scraped: Scraped) -> None:
    scraped.records.ran.add(ran("run-1"))
    scraped.records.ran.add(ran("other-session's"))
    scraped.now = overview(query("run-1"), query("other-session's"))
    found = scraped.scrape()
    assert found.value("slackwater_query_up", query="alerts") == 1
    assert found.value("slackwater_query_up", query="alerts [other-se]") == 1


def test_a_thousand_restarts_leave_nothing_behind() -> None:
    scraped = Scraped(most=50, most_past_runs=10)
    scraped.now = overview()
    for number in range(1200):
        name = "same" if number % 2 else f"other-{number}"
        scraped.records.ran.add(ran(f"run-{number}", name))
        scraped.records.ended.add(Ended(f"run-{number}", name, "id", scraped.clock.now(), None))
        scraped.clock.advance(1)
        scraped.totals.take()
    assert len(scraped.totals.queries()) <= 50
    assert len(scraped.totals._labels) <= 50 + 10
    assert len(scraped.totals._holders) == len(scraped.totals._queries)


def test_names_that_users_chose_do_no_harm(scraped: Scraped) -> None:
    name = 'x"} 1\nslackwater_cores{a="b'
    scraped.records.ran.add(ran("run-9", name))
    scraped.records.ran.add(ran("run-8", "y" * 10_000))
    scraped.now = overview(query("run-9", name))
    found = scraped.scrape()
    assert found.value("slackwater_query_up", query=name) == 1
    assert found.value("slackwater_cores") == 2
    assert found.value("slackwater_query_up", query="y" * 200) == 0


def test_many_readers_cost_no_more_than_one() -> None:
    scraped, asked = Scraped(), 0

    def told() -> Overview:
        nonlocal asked
        asked += 1
        return scraped.now

    clock = FakeClock()
    exposition = Exposition(told, scraped.totals, clock=clock.now)
    assert {exposition.render()[0] for _ in range(100)} == {exposition.render()[0]}
    assert asked == 1
    clock.advance(600)
    exposition.render()
    assert asked == 2


def test_alarms_that_cannot_be_told_spoil_nothing() -> None:
    def broken() -> list[tuple[str, str]]:
        raise RuntimeError("no alarms")

    scraped = Scraped()
    text = Exposition(lambda: scraped.now, scraped.totals, broken).render()[0]
    assert Collected(text).value("slackwater_cores") == 2


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Endpoint]]:
    opened = []

    def opening(own: dict[str, Any]) -> Endpoint:
        endpoint = Endpoint(application_id="a", name="a", reads={}, own=own, folder=tmp_path / "run")
        opened.append(endpoint)
        return endpoint

    yield opening
    for endpoint in opened:
        endpoint.close()


def test_the_endpoint_gives_metrics_in_both_forms(serve: Callable[..., Endpoint], scraped: Scraped) -> None:
    full(scraped)
    url = serve(metrics_routes(lambda: scraped.now, scraped.totals)).url + "/metrics"
    plain = httpx2.get(url)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert Collected(plain.content).value("slackwater_query_latency_seconds_count", query="alerts") == 1
    fancy = httpx2.get(url, headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert Collected(fancy.content, open_metrics).value("slackwater_query_latency_seconds_count", query="alerts") == 1
    assert httpx2.get(url, headers={"origin": "https://example.org"}).status_code == 403


def test_trouble_with_metrics_is_not_told_outside(serve: Callable[..., Endpoint], scraped: Scraped) -> None:
    def broken() -> Overview:
        raise RuntimeError("a secret of the application's")

    answer = httpx2.get(serve(metrics_routes(broken, scraped.totals)).url + "/metrics")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_without_prometheus_client_the_endpoint_says_what_to_install(
    serve: Callable[..., Endpoint], scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "slackwater.telemetry.exposition":
            raise ImportError("No module named 'prometheus_client'")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    routes = metrics_routes(lambda: scraped.now, scraped.totals)
    monkeypatch.undo()
    answer = httpx2.get(serve(routes).url + "/metrics")
    assert answer.status_code == 501
    assert "slackwater[dashboard]" in answer.text


def test_a_follower_takes_the_last_at_its_end_and_survives_its_consumer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        tried = 0

        def take(self) -> None:
            self.tried += 1
            raise RuntimeError("no disk")

    broken, totals = Broken(), Scraped().totals
    followers = [Follower("broken", broken, period_s=0.001), Follower("metrics", totals, period_s=3600)]
    deadline = threading.Event()
    while broken.tried < 3 and not deadline.wait(0.002):
        pass
    for follower in followers:
        follower.close()
        follower.close()
    assert [record.message for record in caplog.records] == [
        "broken is not told all that happens (RuntimeError: no disk); streams are not affected."
    ]


def test_the_page_on_metrics_lists_every_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    listed = [line for line in page.splitlines() if line.startswith("| `slackwater_")]
    wanted = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.about} |" for metric in METRICS
    ]
    assert listed == wanted
