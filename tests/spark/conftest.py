"""One Spark session for the whole run; every test leaves it as plain as it found it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

import slackwater
from slackwater.cluster.daemons import free_ports
from slackwater.drivers.spark.doctor import LOCAL_CHECKPOINT_MANAGERS
from slackwater.drivers.spark.java import ensure_java
from slackwater.errors import KafkaError
from slackwater.kafka import Broker, BrokerPlan
from slackwater.kafka.jars import broker_jars, cached, class_path, connector_jars
from tests.spark.support import Feed, eventually, our_listeners, our_pools, spark_version, task_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Spark 4.1 moved it.
FILE_MANAGER = LOCAL_CHECKPOINT_MANAGERS[0 if spark_version() >= (4, 1) else 1]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ensure_java()
    # Python workers must be able to import what they are sent; Spark would take whatever python3 is on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -Dderby.system.home={scratch}",
        "spark.log.level": "ERROR",
        **_kafka_source(),
    }
    builder = SparkSession.builder.master("local[2]").appName("slackwater-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


def _kafka_source() -> dict[str, str]:
    """Where the jars are in the cache; so the tests on topics need no session of their own."""
    try:
        wanted = connector_jars()
    except KafkaError:  # none are pinned for this version of Spark
        return {}
    here = cached(wanted)
    return {} if here is None else {"spark.jars": ",".join(map(str, class_path(wanted, here)))}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole run; it may be stopped and started again, and has the same address then."""
    if cached(connector_jars()) is None or cached(broker_jars()) is None:
        pytest.skip("no jars of Kafka here; `slackwater kafka jars` fetches them")
    (port,) = free_ports(1)
    with Broker(tmp_path_factory.mktemp("kafka"), BrokerPlan(port=port)) as running:
        yield running


@pytest.fixture
def spark(session: Any) -> Iterator[Any]:
    """The session; afterwards no query runs and nothing of Slackwater is left in it."""
    yield session
    for query in session.streams.active:
        query.stop()
    eventually(lambda: our_pools(session) == set())
    assert our_listeners(session) == 0
    assert task_order(session) == "FairSchedulingAlgorithm"


@pytest.fixture
def attach(spark: Any, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., slackwater.Handle]]:
    """`slackwater.attach` to the session; the test's end detaches."""
    handles = []

    def attach_to(target: Any = spark, *, policy: Any = "round-robin", **settings: Any) -> slackwater.Handle:
        handle = slackwater.attach(target, policy, **settings)
        handles.append(handle)
        return handle

    yield attach_to
    for query in spark.streams.active:
        query.stop()
    for handle in handles:
        handle.detach()
    assert [record for record in caplog.get_records("call") if "stumbled" in record.message] == []


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "feed")
