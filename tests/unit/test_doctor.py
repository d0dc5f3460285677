"""What the doctor says about settings; no session is needed for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackwater.drivers.spark.doctor import (
    ADAPTIVE,
    BATCHES_RETAINED,
    CHECKPOINT_MANAGER,
    LOCAL_CHECKPOINT_MANAGERS,
    NO_DATA_BATCHES,
    PROGRESS_RETAINED,
    ROCKSDB_PROVIDER,
    SCHEDULER_MODE,
    SHUFFLE_PARTITIONS,
    STATE_STORE_PROVIDER,
    UI,
    WATERMARK_POLICY,
    Finding,
    SessionFacts,
    examine,
)

HEALTHY = SessionFacts(
    spark_version="4.3.0",
    master="local[2]",
    cores=2,
    scheduler_mode="FAIR",
    shuffle_partitions=2,
    shuffle_partitions_set=True,
    checkpoint_manager=LOCAL_CHECKPOINT_MANAGERS[0],
    local_checkpoint_manager=LOCAL_CHECKPOINT_MANAGERS[0],
    checkpoint_schemes=frozenset({"file"}),
    adaptive=False,
    state_store_provider=ROCKSDB_PROVIDER,
    no_data_batches=True,
    batches_retained=100,
    progress_retained=100,
    watermark_policy="min",
    ui=False,
)
UNTOUCHED = replace(
    HEALTHY,
    scheduler_mode="FIFO",
    shuffle_partitions=200,
    shuffle_partitions_set=False,
    checkpoint_manager=None,
    adaptive=True,
    state_store_provider="org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ui=True,
)


def only(settings: SessionFacts) -> Finding:
    [finding] = examine(settings)
    return finding


def test_healthy_session_has_no_findings():
    assert examine(HEALTHY) == []


def test_untouched_session_gets_exactly_two_safe_changes():
    safe = {finding.setting: finding.value for finding in examine(UNTOUCHED) if finding.safe_to_apply}
    assert safe == {SHUFFLE_PARTITIONS: "2", CHECKPOINT_MANAGER: LOCAL_CHECKPOINT_MANAGERS[0]}


def test_costliest_finding_comes_first():
    findings = examine(UNTOUCHED)
    assert findings[0].setting == SHUFFLE_PARTITIONS
    assert [finding.severity for finding in findings] == ["high", "medium", "medium", "low", "low", "low"]


@pytest.mark.parametrize("partitions", [200, 64])
def test_partitions_that_the_user_set_are_advised_on_but_never_safe_to_change(partitions: int):
    finding = only(replace(HEALTHY, shuffle_partitions=partitions))
    assert (finding.setting, finding.safe_to_apply) == (SHUFFLE_PARTITIONS, False)
    assert "set by the user" in finding.found


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_partitions_are_not_changed_where_executors_may_still_join(master: str):
    finding = only(replace(HEALTHY, master=master, shuffle_partitions=200, shuffle_partitions_set=False))
    assert (finding.safe_to_apply, finding.value) == (False, None)


def test_default_partitions_are_right_on_a_machine_with_many_cores():
    assert examine(replace(HEALTHY, cores=64, shuffle_partitions=200, shuffle_partitions_set=False)) == []


def test_one_core_gets_one_partition():
    finding = examine(replace(UNTOUCHED, cores=1, master="local[1]"))[0]
    assert (finding.setting, finding.value) == (SHUFFLE_PARTITIONS, "1")


@pytest.mark.parametrize("schemes", [{"hdfs"}, {"file", "hdfs"}])
def test_checkpoint_manager_is_left_alone_where_any_checkpoint_is_remote(schemes: set[str]):
    assert examine(replace(HEALTHY, checkpoint_manager=None, checkpoint_schemes=frozenset(schemes))) == []


def test_checkpoint_manager_is_left_alone_where_this_spark_has_no_other():
    assert examine(replace(HEALTHY, checkpoint_manager=None, local_checkpoint_manager=None)) == []


def test_checkpoints_on_s3_get_advice_that_is_not_applied():
    finding = only(replace(HEALTHY, checkpoint_manager=None, checkpoint_schemes=frozenset({"s3a"})))
    assert (finding.setting, finding.safe_to_apply) == (CHECKPOINT_MANAGER, False)


@pytest.mark.parametrize(
    ("settings", "setting", "value"),
    [
        (replace(HEALTHY, scheduler_mode="FIFO"), SCHEDULER_MODE, "FAIR"),
        (replace(HEALTHY, no_data_batches=False), NO_DATA_BATCHES, "true"),
        (replace(HEALTHY, watermark_policy="max"), WATERMARK_POLICY, "min"),
        (replace(HEALTHY, batches_retained=5000), BATCHES_RETAINED, "100"),
        (replace(HEALTHY, progress_retained=5000), PROGRESS_RETAINED, "100"),
        (replace(HEALTHY, progress_retained=1), PROGRESS_RETAINED, "2"),
        (replace(HEALTHY, ui=True), UI, "false"),
        (
            replace(HEALTHY, state_store_provider=UNTOUCHED.state_store_provider),
            STATE_STORE_PROVIDER,
            ROCKSDB_PROVIDER,
        ),
    ],
)
def test_what_only_the_user_can_decide_is_named_and_never_applied(settings: SessionFacts, setting: str, value: str):
    finding = only(settings)
    assert (finding.setting, finding.value, finding.safe_to_apply) == (setting, value, False)


@pytest.mark.parametrize(("version", "told"), [("3.5.9", []), ("4.0.4", []), ("4.1.0", [ADAPTIVE])])
def test_adaptive_execution_matters_only_since_spark_lets_streams_use_it(version: str, told: list[str]):
    findings = examine(replace(HEALTHY, spark_version=version, adaptive=True))
    assert [finding.setting for finding in findings] == told


def test_version_of_a_preview_build_is_understood():
    assert replace(HEALTHY, spark_version="4.2.0-SNAPSHOT").version == (4, 2)
