"""Sessions of one context, policies that only watch, tuning, and contexts that need a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.errors import ConfigurationError
from tests.spark.support import (
    PATIENCE,
    OnRequest,
    batches,
    eventually,
    is_gated,
    our_listeners,
    our_pools,
    rates,
    start,
    stays,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater import Handle

pytestmark = pytest.mark.spark

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_queries_of_another_session_are_scheduled_and_later_ones_from_their_first_batch(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    policy = OnRequest()
    handle = attach(policy=policy, max_wait_s=600)
    other = spark.newSession()
    first = start(rates(other), name="first")
    try:
        eventually(lambda: "first" in policy.seen and is_gated(first))
        later = start(rates(other), name="later")
        eventually(lambda: "later" in policy.seen)
        seen = batches(first)
        stays(lambda: batches(later) == 0 and batches(first) == seen, 0.7)

        policy.everything = True
        eventually(lambda: batches(later) >= 1 and batches(first) > seen)
    finally:
        for query in other.streams.active:
            query.stop()
    handle.detach()
    assert our_listeners(other) == 0


def test_a_policy_can_be_switched_while_queries_run_and_back_to_watching_only(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    handle = attach(policy="round-robin")
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 1)
    handle.switch("klink", knob="latency")
    eventually(lambda: handle.policy == "klink")
    seen = batches(query)
    eventually(lambda: batches(query) > seen)
    handle.switch("observe")
    eventually(lambda: handle.policy == "observe")
    seen = batches(query)
    eventually(lambda: batches(query) > seen + 2)
    handle.switch("fcfs", period_s=0.2)
    eventually(lambda: handle.policy == "fcfs")
    seen = batches(query)
    eventually(lambda: batches(query) > seen)
    with pytest.raises(ConfigurationError, match="fcsf"):
        handle.switch("fcsf")
    assert handle.policy == "fcfs"


def test_observe_changes_nothing_and_records_batches(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach(policy="observe", max_wait_s=600)
    queries = [start(rates(spark)), start(rates(spark), every="1 second")]
    eventually(lambda: all(batches(query) >= 2 for query in queries))
    assert our_pools(spark) == set()
    eventually(lambda: all(status.batches >= 2 for status in handle.status()) and len(handle.status()) == 2)
    assert {entry.kind for entry in handle.story()} == {"observed"}


def test_tuning_sets_what_the_user_left_at_its_default_and_puts_it_back(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    partitions = "spark.sql.shuffle.partitions"
    before = spark.conf.get(partitions)
    plain = spark.newSession()
    plain.conf.unset(FILE_MANAGER)
    handle = attach(plain, tune=True)
    tuned = plain.conf.get(FILE_MANAGER, None)
    handle.detach()

    assert tuned is not None
    assert tuned.endswith("FileSystemBasedCheckpointFileManager")
    assert plain.conf.get(partitions) == before


# ---- contexts of their own ---------------------------------------------------------------------------------------


def in_its_own_process(module: str, scratch: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", module, str(scratch)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def fifo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return in_its_own_process("tests.spark.fifo_script", tmp_path_factory.mktemp("fifo"))


def test_in_fifo_mode_queries_are_scheduled_and_fair_mode_is_advised_once(fifo: dict[str, Any]) -> None:
    assert fifo["mode"] == "FIFO"
    assert fifo["gated"]
    assert min(fifo["batches"]) >= 2
    assert fifo["ordinary"] == 10
    assert len([line for line in fifo["advice"] if "spark.scheduler.mode=FAIR" in line]) == 1
    assert fifo["order_while_attached"] == "TaskOrder"
    assert fifo["order_after_detach"] == "FIFOSchedulingAlgorithm"


def test_a_stopped_session_is_refused(fifo: dict[str, Any]) -> None:
    assert fifo["attach_to_stopped"] == "this Spark session is stopped. Create a new one, then attach to it."


def test_a_session_that_stops_while_attached_ends_the_scheduler_and_the_next_one_can_be_attached_to(
    fifo: dict[str, Any],
) -> None:
    assert not fifo["scheduler_alive_after_stop"]
    assert not fifo["watchdog_alive_after_stop"]
    assert fifo["batches_in_the_next_session"] >= 1
    assert [line for line in fifo["log"] if "stumbled" in line] == []
