"""Jars are pinned, fetched once, checked, and never half there."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from slackwater.errors import ConfigurationError, KafkaError
from slackwater.kafka import BrokerPlan
from slackwater.kafka.fetching import NotFetchedError
from slackwater.kafka.jars import Jar, JarSet, broker_jars, cached, class_path, connector_jars, fetched, pinned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def jar(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


WANTED = JarSet("example", (jar("one", b"1"), jar("two", b"2")))


def bringing(**contents: bytes):
    def fetch(jars: Sequence[Jar], into: Path) -> None:
        for name, content in contents.items():
            (into / f"{name}-1.0.jar").write_bytes(content)

    return fetch


def test_every_pin_is_whole_and_no_set_has_one_artifact_twice():
    for jars in pinned().values():
        assert len({(one.group, one.artifact) for one in jars.jars}) == len(jars.jars)
        assert all(re.fullmatch("[0-9a-f]{64}", one.sha256) for one in jars.jars)
    assert any(one.artifact == "kafka_2.13" for one in broker_jars().jars)


def test_the_source_of_the_installed_spark_is_pinned_and_an_unknown_spark_is_told():
    assert any(one.artifact.startswith("spark-sql-kafka-0-10") for one in connector_jars().jars)
    with pytest.raises(KafkaError, match=r"Spark 2\.4\.8.*spark-sql-kafka-0-10"):
        connector_jars("2.4.8")


def test_jars_are_fetched_once_and_what_came_along_is_left_out(tmp_path: Path):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert cached(WANTED, environ) is None
    home = fetched(WANTED, environ, bringing(one=b"1", two=b"2", three=b"3"))
    assert sorted(file.name for file in home.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]
    assert fetched(WANTED, environ, bringing()) == home == cached(WANTED, environ)
    assert class_path(WANTED, home) == [home / "one-1.0.jar", home / "two-1.0.jar"]


@pytest.mark.parametrize(
    ("brought", "told"), [({"one": b"1"}, "two-1.0.jar did not come"), ({"one": b"1", "two": b"x"}, "not the jar")]
)
def test_what_is_missing_or_another_jar_is_refused_and_leaves_nothing(
    tmp_path: Path, brought: dict[str, bytes], told: str
):
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(KafkaError, match=told):
        fetched(WANTED, environ, bringing(**brought))
    assert cached(WANTED, environ) is None
    assert list((tmp_path / "slackwater").iterdir()) == []


def test_out_of_reach_says_what_happened_and_what_to_do(tmp_path: Path):
    def fail(jars: Sequence[Jar], into: Path) -> None:
        raise NotFetchedError("Maven says: unknown host.")

    with pytest.raises(KafkaError, match=r"unknown host.*slackwater kafka jars"):
        fetched(WANTED, {"XDG_CACHE_HOME": str(tmp_path)}, fail)


def test_other_pins_have_another_folder():
    assert WANTED.folder != JarSet("example", (jar("one", b"1"), jar("two", b"3"))).folder


def test_a_broker_is_refused_a_heap_and_a_port_that_it_cannot_have():
    with pytest.raises(ConfigurationError, match="1024"):
        BrokerPlan(port=80)
    with pytest.raises(ConfigurationError, match="256m"):
        BrokerPlan(heap="much")
