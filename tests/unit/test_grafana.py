"""The dashboard that comes with the package: it loads, nothing overlaps, and it asks for metrics that there are."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.cli import main
from slackwater.telemetry.catalogue import METRICS
from slackwater.telemetry.commands import dashboard_text

if TYPE_CHECKING:
    from pathlib import Path

# In the order of reading: what a name may not be found in comes first.
TOKENS = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<range>\[[^\]]*\])
      | (?P<selector>\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\})
      | (?P<labels>\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\))
      | (?P<number>\b\d[\w.]*)
      | (?P<variable>\$\w+|\$\{\w+\})
      | (?P<call>[A-Za-z_]\w*(?=\s*(?:(?:by|without)\s*)?\())
      | (?P<name>[A-Za-z_:][\w:]*)""",
    re.VERBOSE,
)
KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}
FUNCTIONS = {"histogram_quantile", "increase", "label_values", "max", "rate", "sum", "vector"}
LABELS = {label for metric in METRICS for label in metric.labels} | {"le", "job", "instance"}


def exposed() -> dict[str, set[str]]:
    """By the name of a series: its labels."""
    found: dict[str, set[str]] = {}
    for metric in METRICS:
        labels = {*metric.labels, "job", "instance"}
        if metric.kind == "histogram":
            found[f"{metric.name}_bucket"] = labels | {"le"}
            found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels
        else:
            found[metric.name] = labels
    return found


def metrics_of(expression: str) -> set[str]:
    """The names of series in a PromQL expression; an unknown function or label is an error."""
    found = set()
    for token in TOKENS.finditer(expression):
        kind, text = str(token.lastgroup), token.group()
        if kind == "name" and text not in KEYWORDS:
            found.add(text)
        elif kind == "call" and text not in KEYWORDS:
            assert text in FUNCTIONS, text
        elif kind == "labels":
            grouped = re.findall(r"\w+", text[text.index("(") :])
            assert set(grouped) <= LABELS, text
        elif kind == "selector":
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", text))) <= LABELS, text
    return found


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return dict(json.loads(dashboard_text()))


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_the_reader_of_expressions_finds_names_and_nothing_else() -> None:
    asked = (
        'histogram_quantile(0.9, sum by (le, query) (rate(a_bucket{query=~"$query",le!="x_y{"}[$__rate_interval]) '
        "* on (job, instance) group_left () b_info)) or vector(0) > bool c:d offset 5m"
    )
    assert metrics_of(asked) == {"a_bucket", "b_info", "c:d"}
    with pytest.raises(AssertionError, match="wrong"):
        metrics_of("sum by (wrong) (a)")
    with pytest.raises(AssertionError, match="quantil"):
        metrics_of("quantil(a)")


def test_every_expression_names_metrics_that_are_exposed(dashboard: dict[str, Any]) -> None:
    there = exposed()
    named = set()
    for expression in expressions(dashboard):
        found = metrics_of(expression)
        assert found, expression
        assert found <= there.keys(), expression
        named |= found
    for wanted in ("latency_seconds_bucket", "slack_seconds", "watermark_lag_seconds", "backlog_rows"):
        assert f"slackwater_query_{wanted}" in named
    for wanted in ("lanes", "memory_bound_bytes", "late_revisions_total", "alarms_active"):
        assert f"slackwater_{wanted}" in named


def test_counters_are_read_as_rates_and_only_counters(dashboard: dict[str, Any]) -> None:
    counted = {name for name in exposed() if name.endswith(("_total", "_bucket", "_sum", "_count"))}
    for expression in expressions(dashboard):
        rated = set(re.findall(r"\b(?:rate|increase)\((\w+)", expression))
        assert rated == metrics_of(expression) & counted, expression


def test_what_a_legend_names_is_a_label_that_is_left(dashboard: dict[str, Any]) -> None:
    there = exposed()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
                left = (
                    {name.strip() for name in grouped[0].split(",")}
                    if grouped
                    else set.union(*(there[name] for name in metrics_of(target["expr"])))
                )
                assert label in left, target["expr"]


def test_variables_ask_for_labels_that_metrics_have(dashboard: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert set(variables) == {"datasource", "application", "query"}
    assert variables["datasource"]["type"] == "datasource"
    for name in ("application", "query"):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["query"]["query"]).groups()  # type: ignore[union-attr]
        assert label in exposed()[metric]
        assert variables[name]["datasource"]["uid"] == "${datasource}"
    used = set(re.findall(r"\$(\w+)", " ".join(expressions(dashboard)))) - {"__rate_interval"}
    assert used == {"application", "query"}


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        assert place["h"] >= 1
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_it_has_what_grafana_asks_of_a_dashboard(dashboard: dict[str, Any]) -> None:
    assert dashboard["id"] is None
    assert dashboard["uid"] == "slackwater"
    assert 36 <= dashboard["schemaVersion"] <= 41
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_the_command_prints_it_or_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["grafana"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Slackwater"
    with pytest.raises(SystemExit) as ended:
        main(["grafana", str(tmp_path / "out.json")])
    assert ended.value.code == 0
    assert (tmp_path / "out.json").read_text("utf-8") == dashboard_text()
    with pytest.raises(SystemExit) as ended:
        main(["grafana", str(tmp_path / "missing" / "out.json")])
    assert ended.value.code == 2
    assert "Name a file" in capsys.readouterr().err
