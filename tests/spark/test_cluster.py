"""A real cluster: a master and two workers on loopback, and applications that spark-submit starts on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from slackwater.cluster import ClusterPlan, Standalone
from slackwater.drivers.spark.java import find_java
from slackwater.errors import ClusterError
from tests import fast_java
from tests.spark.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster"), ClusterPlan(workers=2, cores=1, memory="768m")) as started:
        yield started


def submit(script: str, *arguments: str, master: str, scratch: Path, **conf: str) -> dict[str, Any]:
    """`spark-submit` in client mode, with the last line that the script printed."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.local.dir": str(scratch / "local"),
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        **conf,
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    environ = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [spark_submit, "--master", master, *options, ROOT / "tests" / "spark" / script, *arguments],
        cwd=scratch,
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def disturbed(cluster: Standalone, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an application saw while executors and workers were killed; executors cannot import this package."""
    scratch = tmp_path_factory.mktemp("disturbed")
    without = scratch / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text("import sys\nsys.modules['slackwater'] = None\n")
    return submit(
        "cluster_script.py",
        str(scratch),
        str(cluster.folder),
        master=cluster.url,
        scratch=scratch,
        **{
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": fast_java.SHORT_LIVED,
            "spark.executorEnv.PYTHONPATH": str(without),
        },
    )


def test_an_application_on_the_cluster_is_scheduled_under_spark_submit(
    cluster: Standalone, disturbed: dict[str, Any]
) -> None:
    assert disturbed["master"] == cluster.url
    assert disturbed["gated"]
    assert (disturbed["order"], disturbed["order_after_detach"]) == ("TaskOrder", "FairSchedulingAlgorithm")
    assert disturbed["gates_opened"] == 0


def test_an_executor_killed_in_a_task_and_a_worker_killed_in_mid_run_lose_nothing(disturbed: dict[str, Any]) -> None:
    assert disturbed["executor_killed"]
    for windows in disturbed["windows"]:
        assert windows.keys() == {"right"}
        assert windows["right"] >= 3
    assert disturbed["values_once"]


def test_lanes_shrink_with_a_lost_worker_and_grow_when_it_is_back(disturbed: dict[str, Any]) -> None:
    assert disturbed["cores"] == [2, 2, 1, 2]
    assert disturbed["lanes_with_one_core"] == 1
    assert disturbed["status_with_a_dead_worker"] == ["dead", "alive"]
    assert disturbed["revived"] == [0]


def test_the_bound_on_memory_is_a_share_of_the_executors_heaps(disturbed: dict[str, Any]) -> None:
    assert set(disturbed["memory_max_mb"]) == {512, 1024}


def test_late_rows_are_written_by_executors_that_do_not_have_this_package(disturbed: dict[str, Any]) -> None:
    on_time = [row for row in disturbed["late"] if row[-1] == "on_time"]
    corrected = [row for row in disturbed["late"] if row[-1] == "late"]
    assert on_time == [[0, "a", 1, 1, "on_time"], [0, "b", 1, 2, "on_time"], [10, "a", 1, 4, "on_time"]]
    assert [0, "a", 2, 7, "late"] in corrected


def test_a_local_application_is_scheduled_under_spark_submit(tmp_path: Path) -> None:
    said = submit("submit_script.py", master="local[2]", scratch=tmp_path, **{"spark.default.parallelism": "7"})
    assert said["master"] == "local[2]"
    assert said["gated"]
    assert said["scheduled"] == said["started"]
    assert said["cores"] == 2


def test_the_cluster_is_started_once_and_tells_who_uses_it(cluster: Standalone, disturbed: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="a cluster is there already: spark://127"):
        Standalone(cluster.folder).start()
    status = eventually(lambda: (s := cluster.status()).executors == 0 and s)
    assert status.running
    assert status.cores == 2
    assert status.applications == []
    assert [worker.condition for worker in status.workers] == ["alive", "alive"]
