"""The documentation is true: its code runs as printed, its links lead somewhere, its site can be built."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tools.compat_table import BEGIN, END, table, write_table
from tools.pages import blocks, pages
from tools.site.build import BrokenLinksError, build
from tools.site.markdown import read

import slackwater
from slackwater.policies.registry import known_policies
from tests.doc_blocks import ROOT, needs_spark, run_blocks, runnable

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_SPARK = [page for page in pages(ROOT) if runnable(page) and not needs_spark(page)]


def test_every_python_block_is_run_or_says_why_not() -> None:
    everything = [block for page in pages(ROOT) for block in blocks(ROOT, page) if block.language == "python"]
    assert len(everything) > 20
    for block in everything:
        marks = [block.reason, block.given, block.file, block.replaces]
        assert block.mark == "" or any(marks), f"{block.page}:{block.line}: a mark that nobody knows: {block.mark}"
        if block.reason is not None:
            assert len(block.reason.split()) >= 5, f"{block.page}:{block.line}: say why it is not run"


@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=lambda page: page.stem)
def test_blocks_that_need_no_spark_run_as_printed(page: Path, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in runnable(page):
        if block.file:
            (tmp_path / block.file).write_text(block.code, "utf-8")
    run_blocks(runnable(page), {"slackwater": slackwater})
    if page.name == "write-a-policy.md":
        first, *_, last = capsys.readouterr().out.splitlines()
        assert int(first.split()[0]) > 20
        assert int(last.split()[0]) > 20


def test_the_quickstarts_policy_brings_every_window_out(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)
    saved = {block.file: block for block in blocks(ROOT, ROOT / "docs" / "quickstart.md") if block.file}
    (tmp_path / "my_policy.py").write_text(saved["my_policy.py"].code, "utf-8")
    run_blocks([saved["try_it.py"]], {})
    assert int(capsys.readouterr().out.split()[0]) > 90
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)


def test_every_policy_is_in_both_tables() -> None:
    page = (ROOT / "docs" / "policies.md").read_text("utf-8")
    first, formulas = page.split("## Formulas")
    assert [name for name in known_policies() if f"| `{name}` |" not in first] == []
    assert [name for name in known_policies() if f"`{name}`" not in formulas and name != "observe"] == []


def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path) -> None:
    built = build(ROOT, tmp_path / "site")
    assert built.pages > 25
    assert built.links > 100
    home = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'href="quickstart.html"' in home
    assert (tmp_path / "site" / "files" / "docs" / "images" / "two-batches.svg").exists()
    reference = (tmp_path / "site" / "reference.html").read_text("utf-8")
    assert 'id="attach"' in reference
    assert "Schedule every streaming query" in reference


def test_a_link_that_leads_nowhere_is_an_error(tmp_path) -> None:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    for source in (page.relative_to(ROOT) for page in pages(ROOT)):
        (root / source).parent.mkdir(parents=True, exist_ok=True)
        (root / source).write_text("# A page\n", "utf-8")
    (root / "CHANGELOG.md").write_text("# Changes\n", "utf-8")
    links = "# Late\n[a](nowhere.md) [b](kafka.md#missing) [c](kafka.md#a-page)\n"
    (root / "docs" / "late.md").write_text(links, "utf-8")
    with pytest.raises(BrokenLinksError) as broken:
        build(root, tmp_path / "site")
    assert [line.split(": ")[1] for line in broken.value.problems] == ["nowhere.md", "kafka.md#missing"]


def test_anchors_are_those_of_github() -> None:
    page = read("# What's `a_b`, really?\n## Twice\n## Twice\n")
    assert [heading.anchor for heading in page.headings] == ["whats-a_b-really", "twice", "twice-1"]


def test_the_table_of_versions_is_what_compat_wrote(tmp_path) -> None:
    row = {"passed": 5, "failed": [], "skipped": [], "notes": [], "error": None}
    rows = [
        row | {"line": "3.5", "java": 17, "spark": "3.5.9", "skipped": ["t: PySpark 3.5 has no such thing"]},
        row | {"line": "3.5", "java": 21, "spark": "3.5.9", "failed": ["t: broke"]},
        row | {"line": "4.3", "java": 17, "spark": "4.3.0"},
    ]
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    write_table(page, rows)
    lines = page.read_text("utf-8").splitlines()
    assert lines[4] == "| 4.3.0 | 5 tests pass | not run | nothing |"
    assert lines[5] == "| 3.5.9 | 5 tests pass | 5 tests pass, 1 fail | PySpark 3.5 has no such thing |"
    assert (lines[0], lines[-1]) == ("before", "after")


def test_the_readmes_table_is_that_of_the_committed_results() -> None:
    results = ROOT / "benchmarks" / "results" / "compat.json"
    if not results.exists():
        pytest.skip("make compat has not been run yet")
    assert table(json.loads(results.read_text("utf-8"))["rows"]) in (ROOT / "README.md").read_text("utf-8")
