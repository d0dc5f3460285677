"""A real Flink cluster with a YSB job: its operators are found as threads of the system, and nice reaches them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from slackwater.bench.flink_cluster import FlinkCluster
from slackwater.bench.flink_distribution import FlinkNotFoundError, cached
from slackwater.bench.flink_ysb import java_sources, read_output, submit
from slackwater.middleware.drivers.flink import FlinkDriver
from slackwater.translators.nice import NiceTranslator
from slackwater.translators.processes import Proc
from slackwater.translators.restore import start
from slackwater.translators.schedule import PrioritySchedule
from slackwater.workloads.ysb import YsbOracle, specs
from tests.spark.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkCluster]:
    if cached() is None:
        pytest.skip("no Flink here; `python -m slackwater.bench.flink_distribution` fetches it")
    try:
        with FlinkCluster(java_sources=java_sources()) as running:
            yield running
    except FlinkNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(400)
def test_operators_of_a_real_job_are_threads_that_nice_reaches_and_results_are_right(
    cluster: FlinkCluster, tmp_path: Path
):
    (spec,) = specs(1, rate=500, window_s=2, delay_s=0.2, phases="aligned", seed=3)
    job = submit(cluster, spec)
    driver = FlinkDriver(cluster.url, timeout_s=30.0)

    def ready():
        """Every operator on a thread, measured, and rows flow."""
        found = [one for one in driver.read(time.time()) if one.key == f"flink/{job}"]
        whole = found and len(found[0].units) == len(found[0].operators) and len(found[0].operators) >= 8
        measured = whole and all({"rows-per-s", "busy-share"} <= op.values.keys() for op in found[0].operators)
        return found[0] if measured and found[0].operators[0].values["rows-per-s"] > 0 else None

    application = eventually(ready, timeout_s=120.0)
    assert application.name == spec.name
    names = [operator.name.partition("[")[0] for operator in application.operators]
    assert {"TemporalJoin", "LocalWindowAggregate", "GlobalWindowAggregate", "Sink: results"} <= set(names)

    proc = Proc()
    units = {unit.key: unit for unit in application.units}
    threads = [thread for unit in application.units for thread in unit.target.threads]
    assert len(threads) == len(set(threads))
    assert all(thread.pid == cluster.task_manager.pid for thread in threads)
    # The kernel knows how each name begins, and it was Java that told which thread it is.
    for operator in application.operators:
        (unit,) = operator.runs_on
        kernel_names = {proc.thread(thread).name for thread in units[unit].target.threads}  # type: ignore[union-attr]
        assert f"{operator.name} (1/1)#0"[:15] in kernel_names

    join = application.operators[names.index("TemporalJoin")].runs_on[0]
    others = [key for key in units if key != join]
    before = {thread: proc.thread(thread).nice for thread in threads}  # type: ignore[union-attr]
    journal = start(tmp_path / "journal")
    try:
        translator = NiceTranslator(journal, lambda key: units[key].target)
        if reasons := translator.check():
            pytest.skip(" ".join(reasons))
        translator.apply(PrioritySchedule({join: 1.0} | dict.fromkeys(others, 0.0)))
        for key, unit in units.items():
            wanted = 0 if key == join else 19
            assert [proc.thread(thread).nice for thread in unit.target.threads] == [wanted] * len(unit.target.threads)  # type: ignore[union-attr]
        translator.restore()
    finally:
        journal.close()
    assert {thread: proc.thread(thread).nice for thread in threads} == before  # type: ignore[union-attr]

    def printed():
        found = read_output(cluster.output.read_text("utf-8"), spec.name)
        return found if len({row.window_start_ms for row in found.rows}) > 2 else None

    output = eventually(printed, timeout_s=60.0)
    oracle = YsbOracle(spec, output.created_ms)
    windows = sorted({row.window_start_ms for row in output.rows})[:-1]
    for begin in windows:
        rows = sorted((row.campaign, row.count) for row in output.rows if row.window_start_ms == begin)
        assert rows == oracle.expected(begin)
