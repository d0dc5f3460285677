"""`attach(serve=True)` on a real session: what others can read of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import slackwater
from slackwater.endpoint import discovery
from slackwater.endpoint.overview import Overview
from tests.spark.support import eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark


def test_a_served_application_tells_where_its_queries_stand(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    handle = attach(serve=True)
    start(rates(spark), name="plain")

    def told() -> Overview:
        return msgspec.json.decode(httpx2.get(f"{handle.url}/api/status").content, type=Overview)

    found = eventually(lambda: (found := told()) and found.queries and found.queries[0].batches >= 2 and found)
    assert found.application_id == spark.sparkContext.applicationId
    assert found.python_pid == os.getpid()
    assert found.jvm_pid == spark._jvm.java.lang.ProcessHandle.current().pid()
    assert found.cores == 2
    (query,) = found.queries
    assert query.name == "plain"
    assert query.rows_per_s > 0
    assert query.batch_cost_s > 0
    assert "<title>Slackwater</title>" in httpx2.get(f"{handle.url}/").text
    with httpx2.stream("GET", f"{handle.url}/api/events") as events:
        whole = next(line for line in events.iter_lines() if line.startswith("data: "))
    assert query.key in whole
    assert handle.token_file is not None
    assert handle.token_file.stat().st_mode & 0o077 == 0
    (announced,) = discovery.announced(tmp_path / "run")
    assert announced.url == handle.url
    handle.detach()
    assert discovery.announced(tmp_path / "run") == []


def test_a_served_application_gives_metrics_of_what_ran(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    handle = attach(serve=True)
    query = start(rates(spark), name="measured")

    def metrics() -> dict[tuple[str, str], float]:
        families = text_string_to_metric_families(httpx2.get(f"{handle.url}/metrics").text)
        samples = [sample for family in families for sample in family.samples if "le" not in sample.labels]
        return {(sample.name, sample.labels.get("query", "")): sample.value for sample in samples}

    def measured(name: str) -> float:
        return metrics().get((f"slackwater_query_{name}", "measured"), -1.0)

    eventually(lambda: measured("batch_seconds_count") >= 2)
    assert measured("up") == 1
    assert measured("rows_total") > 0
    assert metrics()["slackwater_decisions_total", ""] > 0
    query.stop()
    eventually(lambda: measured("up") == 0)


def test_an_address_that_is_none_is_refused_before_anything_is_attached(spark: Any) -> None:
    with pytest.raises(slackwater.ConfigurationError, match="'host:port' is needed"):
        slackwater.attach(spark, serve="nowhere")
    with slackwater.attach(spark) as handle:
        assert handle.url is None
