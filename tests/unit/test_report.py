from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from slackwater.bench.report import write_report
from slackwater.bench.results import TIMES
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def bench_run(policy: str, mean_s: float = 4.0, **more: Any) -> dict[str, Any]:
    latencies_s = [mean_s * factor for factor in (0.5, 0.8, 1.0, 1.2, 1.5)]
    quantiles = {"mean": mean_s, "p50": mean_s, "p90": 1.2 * mean_s, "p99": 1.5 * mean_s, "max": 1.5 * mean_s}
    return {
        "policy": policy,
        "seed": 1,
        "latency_s": {**quantiles, "count": 5},
        "propagation_s": {"mean": mean_s / 2},
        "windows": {"expected": 5, "emitted": 5, "wrong": 0},
        "cpu_cores": 1.5,
        "batches": 120,
        "heap_mb": {"mean": 700.0},
        "scheduler": None if policy.startswith("spark-") else {"decision_ms_p99": 1.2, "overhead_pct": 0.4},
        "steady": True,
        "latencies_s": latencies_s,
        "sweep_of": None,
        **more,
    }


def bench_file(path: Path, *runs: dict[str, Any], **more: Any) -> Path:
    result = {
        "workload": "ysb",
        "queries": 16,
        "rate": 10_000,
        "window_s": 10,
        "seconds": 60,
        "seed": 1,
        "commit": "abc1234",
        "spark": "4.3.0",
        "machine": {"cores": 2},
        "phases": "spread",
        "runs": list(runs),
        **more,
    }
    path.write_text(json.dumps(result), encoding="utf-8")
    return path


def page_of(tmp_path: Path, *files: Path) -> str:
    return write_report(list(files), tmp_path / "out").page.read_text(encoding="utf-8")


def headline_of(page: str) -> str:
    found = re.search(r'<p class="headline">(.*?)</p>', page)
    assert found
    return found[1]


def test_report_writes_page_and_each_picture_as_png_and_svg(tmp_path):
    few = bench_file(tmp_path / "8.json", bench_run("klink"), bench_run("spark-fair", 9), queries=8)
    many = bench_file(tmp_path / "16.json", bench_run("klink"), bench_run("spark-fair", 90))
    paths = write_report([many, few], tmp_path / "new" / "out")
    stems = ("summary", "latency-cdf", "cost", "batches")
    expected = {*stems, *(f"{stem}-8q" for stem in stems), "latency-by-queries"}
    assert {path.name for path in paths.pictures} == {f"{stem}.{kind}" for stem in expected for kind in ("png", "svg")}
    for path in paths.pictures:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314  our own file
    assert paths.summary.name == "summary.png"
    title = f"16 queries {TIMES} 10\N{NO-BREAK SPACE}000 events/s, 10 s windows, spread phases, 2 cores"
    assert title in paths.page.read_text(encoding="utf-8")


def test_headline_compares_klink_with_the_best_steady_baseline(tmp_path):
    page = page_of(
        tmp_path,
        bench_file(
            tmp_path / "a.json",
            bench_run("klink", 3, seed=1),
            bench_run("klink", 5, seed=2),
            bench_run("edf", 1),
            bench_run("spark-fair", 5, steady=False),
            bench_run("spark-staggered-3s", 6, sweep_of="spark-tuned"),
            bench_run("spark-tuned", 10),
            bench_run("spark-fifo", 30),
        ),
    )
    assert headline_of(page).startswith(
        f"klink: 2.5{TIMES} lower mean and 2.5{TIMES} lower p99 latency than spark-tuned"
    )
    assert "4.00 s against 10.0 s mean" in headline_of(page)


def test_headline_says_when_klink_is_later_or_put_out_wrong_windows(tmp_path):
    wrong = {"expected": 5, "emitted": 3, "wrong": 1}
    runs = bench_run("klink", 12, windows=wrong), bench_run("spark-tuned", 10)
    headline = headline_of(page_of(tmp_path, bench_file(tmp_path / "a.json", *runs)))
    assert f"1.20{TIMES} higher mean" in headline
    assert "klink put out 1 wrong windows" in headline
    assert "2 windows of klink were due and did not come out" in headline


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([bench_run("klink"), bench_run("spark-fair", steady=False)], "no Spark policy is marked steady"),
        ([bench_run("edf"), bench_run("spark-fair")], "no run of klink"),
    ],
)
def test_no_ratio_is_claimed_without_both_sides(tmp_path, runs, said):
    headline = headline_of(page_of(tmp_path, bench_file(tmp_path / "a.json", *runs)))
    assert said in headline
    assert "lower" not in headline


def test_hostile_names_are_escaped_and_drawn(tmp_path):
    hostile = '<script>alert("x")</script> $\\frac{$ \x07'
    page = page_of(
        tmp_path,
        bench_file(
            tmp_path / "a.json",
            bench_run(hostile),
            bench_run(f"spark-{hostile}", sweep_of=hostile),
            workload=hostile,
            commit=hostile,
            phases=hostile,
            machine={hostile: hostile},
            failures=[{"policy": hostile, "seed": 1, "error": hostile}],
        ),
    )
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    ET.parse(tmp_path / "out" / "summary.svg")  # noqa: S314  our own file


def test_page_needs_nothing_from_outside(tmp_path):
    page = page_of(tmp_path, bench_file(tmp_path / "a.json", bench_run("klink"), bench_run("spark-fair")))
    assert "http:" not in page
    assert "https:" not in page
    assert "prefers-color-scheme: dark" in page


def test_runs_with_the_least_of_keys_are_reported(tmp_path):
    bare = {"policy": "klink", "latency_s": {"mean": 2.0}}
    lost = {"policy": "spark-fair", "latency_s": {"mean": None, "p99": None, "count": 0}}
    path = tmp_path / "a.json"
    top = {"workload": "ysb", "queries": 2, "rate": 1, "window_s": 10, "seconds": 60, "runs": [bare, lost]}
    path.write_text(json.dumps(top))
    paths = write_report([path], tmp_path / "out")
    assert {picture.name for picture in paths.pictures} == {"summary.png", "summary.svg"}


def test_sweep_rows_have_their_own_table_with_the_chosen_one_marked(tmp_path):
    page = page_of(
        tmp_path,
        bench_file(
            tmp_path / "a.json",
            bench_run("klink"),
            bench_run("spark-tuned", 8, chosen="spark-staggered-4s"),
            bench_run("spark-staggered-3s", 9, sweep_of="spark-tuned"),
            bench_run("spark-staggered-4s", 8, sweep_of="spark-tuned"),
        ),
    )
    policies, sweep = page.split("<h3>Sweep of spark-tuned</h3>")
    assert "spark-staggered" not in policies
    assert "spark-staggered-4s <small>chosen</small>" in sweep
    assert "spark-staggered-3s <small>" not in sweep


def test_seeds_in_several_files_are_put_together(tmp_path):
    first = bench_file(tmp_path / "1.json", bench_run("klink", 3), bench_run("spark-fair", 8))
    second = bench_file(tmp_path / "2.json", bench_run("klink", 5, seed=2), seed=2)
    page = page_of(tmp_path, first, second, first)
    assert "<td>klink</td><td>2</td><td>4.00<small>3.00 to 5.00</small></td>" in page


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"experiment": "slack", "rows": [], "claims": []}', "claims, experiment, rows"),
        ("[1, 2]", "a JSON list"),
        ("latency 3 s", "not JSON"),
        ('{"workload":"ysb","queries":1,"rate":1,"window_s":1,"seconds":1,"runs":[]}', "no runs"),
        (
            '{"workload":"ysb","queries":1,"rate":1,"window_s":1,"seconds":1,"runs":[{"policy":3}]}',
            "Expected `str`, got `int`",
        ),
    ],
)
def test_foreign_file_is_refused_with_what_was_found_and_what_to_do(tmp_path, content, found):
    path = tmp_path / "foreign.json"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="slackwater bench WORKLOAD --json FILE") as refused:
        write_report([path], tmp_path / "out")
    assert found in str(refused.value)
    assert "foreign.json" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        write_report([tmp_path / "none.json"], tmp_path / "out")


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib") or name == "slackwater.bench.plots"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("slackwater.bench.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'slackwater\[report\]'"):
        write_report([bench_file(tmp_path / "a.json", bench_run("klink"))], tmp_path / "out")


def mix_part(name: str, slowdown: float, wrong: int = 0) -> dict[str, Any]:
    figures = {"count": 5, "mean": slowdown, "p50": slowdown, "p90": slowdown, "p99": 2 * slowdown, "max": 2 * slowdown}
    windows = {"expected": 5, "emitted": 5, "wrong": wrong}
    return {"name": name, "queries": 2, "slowdown": figures, "latency_s": figures, "windows": windows}


def test_a_mix_is_told_by_class_and_by_group_for_each_policy(tmp_path):
    runs = [
        bench_run(policy, per_class=[mix_part("high", value)], per_group=[mix_part("ads", value), mix_part("taxis", 7)])
        for policy, value in (("klink", 0.25), ("spark-fair", 3.5))
    ]
    groups = [{"name": name, "workload": "ysb", "queries": 2} for name in ("ads", "taxis")]
    mix = bench_file(tmp_path / "mix.json", *runs, workload="mix", mix={"name": "platform", "groups": groups})
    page = page_of(tmp_path, mix, bench_file(tmp_path / "ysb.json", bench_run("klink")))
    assert "mix platform: 16 queries in 2 groups" in page
    assert page.count("<h3>By class</h3>") == page.count("<h3>By group</h3>") == 1
    by_group = page.partition("<h3>By group</h3>")[2].partition("</table>")[0]
    assert re.findall(r"<tr[^>]*><td>(.*?)</td><td>(.*?)</td><td>2</td><td>(.*?)</td>", by_group) == [
        ("ads", "klink", "0.25"),
        ("ads", "spark-fair", "3.50"),
        ("taxis", "klink", "7.00"),
        ("taxis", "spark-fair", "7.00"),
    ]
