"""`slackwater late …` on real stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slackwater.cli import main
from slackwater.late.checkpoint import last_committed, query_id
from slackwater.late.store import WindowStore
from tests.unit.late_model import SCHEMA, table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path):
    with WindowStore(tmp_path / "store", SCHEMA, event_time="event_time") as store:
        store.open()
        for batch_id in range(6):
            store.begin(batch_id)
            store.write(batch_id, {0: table(batch_id), 10 + batch_id: table(1, 2)})
            store.commit(batch_id)
        store.purge(10)
        store.emit([0], "on_time", "a")
        store.begin(6)
        store.dead(6, {10: table(1, 2, 3)})
        store.write(6, {0: table(7)})
        store.commit(6)
    return tmp_path / "store"


@pytest.fixture
def checkpoint(tmp_path):
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    for name in ("0", "5", "6", ".6.crc", "7.tmp"):
        (commits / name).touch()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"1-2-3"}')
    return tmp_path / "checkpoint"


def late(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["late", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_status_tells_what_is_there_and_changes_nothing(root, checkpoint, capsys):
    before = contents(root)
    assert late("status", root, "--json", "--checkpoint", checkpoint) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["windows"], facts["rows"], facts["dead_rows"], facts["purged_rows"]) == (6, 17, 3, 2)
    assert (facts["committed_batch"], facts["emissions"], facts["problems"]) == (6, 1, [])
    assert late("status", root) == 0
    out = capsys.readouterr().out
    assert "batches up to 5 count" in out
    assert "uncommitted  batches 6" in out
    assert contents(root) == before


def test_windows_are_listed(root, capsys):
    assert late("windows", root, "--json") == 0
    first, *_ = listed = json.loads(capsys.readouterr().out)
    assert [info["start_ms"] for info in listed] == [0, 11, 12, 13, 14, 15]
    assert (first["rows"], first["files"], first["revision"]) == (6, 6, 1)
    assert late("windows", root) == 0
    assert "0–5" in capsys.readouterr().out


def test_compact_merges_what_pays_or_what_is_named(root, checkpoint, capsys):
    assert late("compact", root, "--executions", "0.5") == 0
    assert "0 windows compacted, 6 left" in capsys.readouterr().out
    assert late("compact", root, "--json", "--checkpoint", checkpoint) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(info["start_ms"], info["files_before"], info["files"]) for info in found["compacted"]] == [(0, 7, 1)]
    assert late("compact", root, "--window", "0", "--checkpoint", checkpoint) == 0
    assert "0 windows compacted" in capsys.readouterr().out
    assert late("verify", root, "--checkpoint", checkpoint) == 0


def test_compact_waits_for_nobody_while_the_store_is_in_use(root, capsys):
    with WindowStore(root) as store:
        store.open(6)
        assert late("compact", root) == 1
    assert "in use" in capsys.readouterr().err


def test_verify_ends_with_one_when_a_file_is_damaged_and_moves_nothing(root, capsys):
    assert late("verify", root) == 0
    path = root / "data" / "batch_000000000001_part_00000.parquet"
    path.write_bytes(path.read_bytes()[:100])
    before = contents(root)
    capsys.readouterr()
    assert late("verify", root, "--json") == 1
    said = capsys.readouterr()
    [problem] = json.loads(said.out)["problems"]
    assert path.name in problem
    assert "1 problems" in said.err
    assert late("verify", root) == 1
    assert contents(root) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "{tmp}/nothing"), "no store of windows"),
        (("windows", "nowhere://x"), "no location"),
        (("compact", "{root}", "--window", "999"), "late windows"),
        (("verify", "{root}", "--checkpoint", "{tmp}"), "checkpointLocation"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_what_to_do(root, tmp_path, capsys, arguments, said):
    assert late(*(argument.format(root=root, tmp=tmp_path) for argument in arguments)) == 2
    assert said in capsys.readouterr().err


def test_the_checkpoint_tells_the_last_commit_and_the_query(checkpoint, tmp_path):
    assert last_committed(checkpoint) == 6
    assert query_id(checkpoint) == "1-2-3"
    (checkpoint / "offsets").mkdir()
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    assert last_committed(checkpoint) == -1
    assert query_id(tmp_path) is None
