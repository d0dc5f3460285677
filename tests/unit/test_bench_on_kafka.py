"""What a benchmark over topics is refused before anything is started, and whose processor time counts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from slackwater.bench.cpu import tree_cpu_s
from slackwater.bench.harness import check
from slackwater.bench.model import BenchPlan, OnCluster, OnKafka, RunSpec
from slackwater.errors import ConfigurationError

RUN = RunSpec(
    workload="ysb",
    policy="",
    seed=0,
    queries=2,
    rate=100,
    window_s=2.0,
    delay_s=1.0,
    seconds=4.0,
    phases="spread",
    payload="json",
    kafka=OnKafka(),
)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (replace(RUN, kafka=OnKafka("uniform", 1.0)), "shorter than --delay"),
        (replace(RUN, kafka=OnKafka("uniform", -1.0)), "less than 0 s"),
        (replace(RUN, kafka=OnKafka("pareto")), "none, uniform, zipf"),  # type: ignore[arg-type]
        (replace(RUN, payload="columns"), "the payload of ysb is json"),
        (replace(RUN, cluster=OnCluster(2)), "not measured together"),
    ],
)
def test_what_cannot_be_measured_over_topics_is_told(run: RunSpec, told: str):
    with pytest.raises(ConfigurationError, match=told):
        check(BenchPlan(run, policies=("klink",), seeds=(0,)))


def test_processes_that_are_left_out_do_not_count():
    busy = (
        "import sys, time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(1, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{busy}\nsys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used_s = sum(psutil.Process(child.pid).cpu_times()[:2])
        counted_s = tree_cpu_s()
        assert tree_cpu_s(without={child.pid}) <= counted_s - used_s + 0.1
        child.communicate()
