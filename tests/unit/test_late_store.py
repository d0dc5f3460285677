"""The store of windows: what it keeps, what it hides, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import ConfigurationError
from slackwater.late.compaction import CompactionRule
from slackwater.late.errors import DamagedFileError, NewerFormatError, PurgedWindowError, StoreError
from slackwater.late.files import files_at
from slackwater.late.footer import write_batch
from slackwater.late.ledger import Emitted
from slackwater.late.naming import folder_for
from slackwater.late.store import WindowStore
from slackwater.late.writing import KEY
from tests.unit.late_model import SCHEMA, table, values


@pytest.fixture
def store(tmp_path):
    with WindowStore(tmp_path / "store", SCHEMA, event_time="event_time") as found:
        found.open(-1)
        yield found


def fill(store: WindowStore, *batches: dict[int, list[int]]) -> None:
    """Batches, each committed."""
    for rows in batches:
        batch_id = store.committed + 1
        store.begin(batch_id)
        store.write(batch_id, {window: table(*found) for window, found in rows.items()})
        store.commit(batch_id)


def reopened(store: WindowStore, committed: int | None = None, **options: Any) -> WindowStore:
    store.close()
    again = WindowStore(Path(store.files.root), **options)
    again.open(store.committed if committed is None else committed)
    return again


def test_a_batch_is_one_file_with_a_row_group_a_window_and_counts_when_it_is_committed(store, tmp_path):
    store.write(0, {0: table(1, 2), 10: table(13), 20: table()})
    assert store.windows() == []
    assert values(store.read(0, through=0)) == [1, 2]
    store.commit(0)
    assert values(store.read(0)) == [1, 2]
    [path] = (tmp_path / "store" / "data").iterdir()
    assert pq.read_metadata(path).num_row_groups == 2
    first, second = store.windows()
    assert (first.start_ms, first.rows, first.files, first.first_batch, first.last_batch) == (0, 2, 1, 0, 0)
    assert (second.event_ms_min, second.event_ms_max) == (13, 13)
    assert first.bytes == table(1, 2).nbytes
    assert 0 < first.disk_bytes < path.stat().st_size


def test_rows_come_in_order_of_batch_id_also_after_opening_again(store):
    fill(store, *({0: [number, number + 100], number + 1: [7]} for number in range(20)))
    expected = [value for number in range(20) for value in (number, number + 100)]
    assert values(store.read(0)) == expected
    with reopened(store) as again:
        assert values(again.read(0)) == expected
        assert again.schema == SCHEMA
        assert [info.start_ms for info in again.windows()] == list(range(21))


def test_batches_beyond_the_last_committed_one_do_not_count_and_are_replaced_when_they_run_again(store):
    fill(store, {0: [1]}, {0: [2]})
    store.write(2, {0: table(3), 10: table(4)})
    with reopened(store) as again:
        assert values(again.read(0)) == [1, 2]
        with pytest.raises(StoreError, match="begin"):
            again.commit(2)
        again.write(2, {0: table(3, 3)})
        again.commit(2)
        assert values(again.read(0)) == [1, 2, 3, 3]
        assert again.window(10) is None


def test_parts_that_an_earlier_attempt_left_go_when_the_batch_begins_again(store):
    for part in range(3):
        store.write(0, {0: table(part)}, part=part)
    store.dead(0, {5: table(1)})
    with reopened(store, -1) as again:
        again.begin(0)
        again.write(0, {0: table(0, 1)}, part=0)
        again.write(0, {0: table(2)}, part=1)
        again.commit(0)
        assert values(again.read(0)) == [0, 1, 2]
        assert again.dead_counts() == {}


def test_tasks_write_parts_that_the_driver_adopts(store):
    store.begin(0)
    elsewhere = files_at(store.files.root)
    parts = [
        write_batch(elsewhere, store.settings, store.schema, 0, [(0, table(part, part))], part=part) for part in (0, 1)
    ]
    store.adopt(parts)
    store.commit(0)
    assert values(store.read(0)) == [0, 0, 1, 1]


def test_a_committed_batch_is_not_written_again(store):
    fill(store, {0: [1]})
    with pytest.raises(StoreError, match="batches up to 0 are committed"):
        store.write(0, {0: table(2)})


def test_rows_of_other_columns_are_refused_and_those_in_another_order_are_not(store):
    store.write(0, {0: table(1).select(["value", "event_time"])})
    with pytest.raises(StoreError, match="do not fit"):
        store.write(1, {0: pa.table({"other": [1]})})


def test_a_compacted_window_has_one_file_and_originals_go_when_no_window_needs_them(store, tmp_path):
    data = tmp_path / "store" / "data"
    fill(store, {0: [1], 10: [2]}, {0: [3], 10: [4]}, {0: [5]})
    assert store.compact(0).files == 1
    assert values(store.read(0)) == [1, 3, 5]
    assert len(list(data.iterdir())) == 3
    assert store.compact(0) is None
    fill(store, {0: [6]})
    assert values(store.read(0)) == [1, 3, 5, 6]
    store.compact(10)
    store.compact(0)
    assert sorted(path.name for path in data.iterdir()) == [
        "window_0_through_000000000003.parquet",
        "window_10_through_000000000001.parquet",
    ]
    with reopened(store) as again:
        assert (values(again.read(0)), values(again.read(10))) == ([1, 3, 5, 6], [2, 4])
        info = again.window(0)
        assert info is not None
        assert (info.first_batch, info.last_batch) == (0, 3)


def test_a_batch_that_is_not_committed_is_never_compacted(store):
    fill(store, {0: [1]}, {0: [2]})
    store.write(2, {0: table(3)})
    store.compact(0)
    assert values(store.read(0)) == [1, 2]
    store.commit(2)
    assert values(store.read(0)) == [1, 2, 3]


def test_an_older_checkpoint_than_the_store_is_refused(store):
    fill(store, {0: [1]}, {0: [2]})
    store.compact(0)
    with pytest.raises(StoreError, match="checkpoint is older"):
        reopened(store, 0)


def test_compaction_up_to_a_batch_leaves_what_an_execution_over_it_reads(store):
    fill(store, {0: [1]}, {0: [2]}, {0: [3]})
    assert store.compact(0, through=1).files == 2
    assert values(store.read(0, through=1)) == [1, 2]
    assert values(store.read(0)) == [1, 2, 3]
    store.begin(3)
    store.write(3, {0: table(4)})
    store.compact(0, through=3)
    assert values(store.read(0, through=2)) == [1, 2, 3]  # never beyond what is committed


def test_who_reads_a_window_goes_on_while_it_is_compacted_and_purged(store, tmp_path):
    fill(store, {0: [1]}, {0: [2]}, {0: [3]})
    reading = store.rows(0)
    assert next(reading)["value"].to_pylist() == [1]
    store.compact(0)
    store.purge(0)
    assert [value for batch in reading for value in batch["value"].to_pylist()] == [2, 3]
    store.collect()
    assert not list((tmp_path / "store" / "data").iterdir())


def test_compaction_pays_after_about_four_executions_of_a_window_in_many_files(store):
    fill(store, *({0: [number]} for number in range(24)), {5: [1]})
    assert not store.worth_compacting(5, 1000)
    assert not store.worth_compacting(99, 1000)
    info = store.window(0)
    measured = type(info)(**{name: getattr(info, name) for name in info.__slots__} | {"bytes": 30_000_000})
    rule = CompactionRule()
    assert [executions for executions in range(1, 9) if rule.pays(measured, executions)] == [4, 5, 6, 7, 8]
    with pytest.raises(ConfigurationError, match="file_ms"):
        CompactionRule(file_ms=0)


def test_a_large_window_is_compacted_in_several_row_groups(store, monkeypatch):
    fill(store, *({0: [number]} for number in range(6)))
    monkeypatch.setattr("slackwater.late.compaction.tables.__defaults__", (32,))
    store.compact(0)
    assert len(store.sources(0)) == 3
    with reopened(store) as again:
        assert values(again.read(0)) == [0, 1, 2, 3, 4, 5]


def test_a_purged_window_is_gone_for_good_and_its_later_rows_are_dead_letters(store):
    fill(store, {0: [1, 2], 10: [3]})
    assert store.purge(0)
    assert store.purge(0)
    assert values(store.read(0)) == []
    with pytest.raises(PurgedWindowError, match="dead") as refused:
        store.write(1, {0: table(4), 10: table(5)})
    assert refused.value.windows == [0]
    assert store.dead(1, {0: table(4)}) == 1
    store.dead(1, {0: table(4, 5)})
    assert store.dead_counts() == {}
    store.commit(1)
    fill(store, {10: [6]})
    with reopened(store) as again:
        assert again.dead_counts() == {0: 2}
        assert [(window, batch["value"].to_pylist()) for window, batch in again.dead_rows()] == [(0, [4, 5])]
        assert [info.start_ms for info in again.windows()] == [10]
        assert (again.facts()["purged_windows"], again.facts()["purged_rows"]) == (1, 2)


def test_a_window_with_rows_that_are_not_committed_is_not_purged_yet(store):
    fill(store, {0: [1]})
    store.write(1, {0: table(2)})
    assert not store.purge(0)
    assert not store.purge_before(10)
    store.commit(1)
    assert store.purge(0)


def test_everything_before_a_horizon_goes_and_is_forgotten(store):
    fill(store, {0: [1], 10: [2, 3], 20: [4]})
    number = store.emit([10], "on_time", "a").number
    store.purge(0)
    assert store.purge_before(20)
    assert store.purge_before(10)
    with reopened(store) as again:
        assert again.is_purged(-7)
        assert [info.start_ms for info in again.windows()] == [20]
        assert (again.facts()["purged_windows"], again.facts()["purged_rows"]) == (2, 3)
        assert again.emissions(10) == []
        assert again.emit([20], "on_time", "b").number == number + 1


def test_revisions_count_up_are_the_same_for_the_same_execution_and_survive(store):
    assert store.revision(0) == 0
    assert store.emit([0, 10], "on_time", "a") == Emitted(1, {0: 1, 10: 1})
    assert store.emit([0], "late", "b") == Emitted(2, {0: 2})
    assert store.emit([0, 10], "on_time", "a") == Emitted(1, {0: 1, 10: 1})
    with reopened(store) as again:
        assert again.revision(0) == 2
        assert again.emit([0], "late", "b") == Emitted(2, {0: 2})
        assert again.emit([10, 0], "late", "b") == Emitted(2, {0: 2, 10: 2})
        assert again.emit([10], "late", "c") == Emitted(3, {10: 3})
        assert [(each.revision, each.kind) for each in again.emissions(0)] == [(1, "on_time"), (2, "late")]
        again.purge(0)
        with pytest.raises(PurgedWindowError):
            again.emit([0], "final", "d")


def test_the_journal_is_folded_and_stays_small(tmp_path):
    with WindowStore(tmp_path / "store", SCHEMA, fold_after=5) as store:
        store.open()
        for number in range(1, 43):
            store.emit([number % 3], "late", str(number))
            assert len(list((tmp_path / "store" / "journal").iterdir())) <= 2 * 5 + 2
        with reopened(store, fold_after=5) as again:
            assert [again.revision(window) for window in range(3)] == [14, 14, 14]
            newest = max((tmp_path / "store" / "journal").glob("snapshot_*"))
            newest.write_bytes(newest.read_bytes()[:-12])
            with reopened(again, fold_after=5) as third:
                assert [third.revision(window) for window in range(3)] == [14, 14, 14]
                assert len(list((tmp_path / "store" / "quarantine").iterdir())) == 1


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def damage_emptied(path: Path) -> None:
    path.write_bytes(b"")


def damage_footer(path: Path) -> None:
    content = bytearray(path.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)


def damage_foreign(path: Path) -> None:
    pq.write_table(table(1), path)


def damage_renamed(path: Path) -> None:
    path.rename(path.with_name("batch_000000000000_part_00007.parquet"))


def damage_unknown_name(path: Path) -> None:
    path.rename(path.with_name("notes.txt"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_truncated, "not a complete Parquet file"),
        (damage_emptied, "0 bytes"),
        (damage_footer, "footer"),
        (damage_foreign, "no store wrote"),
        (damage_renamed, "name does not fit"),
        (damage_unknown_name, "not a name that a store gives"),
    ],
)
def test_a_damaged_file_is_named_and_put_aside_and_other_windows_live_on(store, tmp_path, damage, said):
    fill(store, {0: [1], 10: [2]}, {0: [3]}, {0: [4]})
    damage(tmp_path / "store" / "data" / "batch_000000000001_part_00000.parquet")
    store.close()
    again = WindowStore(tmp_path / "store")
    opened = again.open(2)
    with again:
        [problem] = opened.problems
        assert said in problem.reason
        assert problem.moved_to is not None
        assert (tmp_path / "store" / problem.moved_to).exists()
        assert (values(again.read(0)), values(again.read(10))) == ([1, 4], [2])
        with reopened(again) as clean:
            assert clean.verify().problems == []


def test_verify_finds_pages_that_changed_and_reading_them_is_an_error(store, tmp_path):
    fill(store, {0: list(range(500))}, {10: [1]})
    path = tmp_path / "store" / "data" / "batch_000000000000_part_00000.parquet"
    content = bytearray(path.read_bytes())
    content[60:64] = bytes(byte ^ 0xFF for byte in content[60:64])
    path.write_bytes(content)
    [problem] = store.verify().problems
    assert "window 0" in problem
    assert path.name in problem
    with pytest.raises(DamagedFileError, match=path.name):
        store.read(0)
    assert values(store.read(10)) == [1]


def test_verify_notes_originals_beside_a_compacted_file_and_names_rows_that_it_hides(store, tmp_path):
    data = tmp_path / "store" / "data"
    fill(store, {0: [1], 10: [2]}, {0: [3], 10: [4]})
    store.compact(0)
    report = store.verify()
    assert (report.files, report.rows, report.problems) == (3, 6, [])
    assert "2 batches are still there" in report.notes[0]
    elsewhere = files_at(data.parent)
    write_batch(elsewhere, store.settings, SCHEMA, 1, [(0, table(3, 99)), (10, table(4))])
    with reopened(store) as again:
        [problem] = again.verify().problems
        assert "1 rows are hidden" in problem


def test_a_store_of_a_newer_format_is_refused_untouched(store, tmp_path):
    fill(store, {0: [1]})
    content = json.dumps({"format": 2, "store": {"id": store.settings.store}, "windows": "elsewhere"})
    with pq.ParquetWriter(tmp_path / "store/data/batch_000000000001_part_00000.parquet", SCHEMA) as writer:
        writer.add_key_value_metadata({KEY: content})
    with pytest.raises(NewerFormatError, match="format 2"):
        reopened(store, 1)
    assert not (tmp_path / "store" / "quarantine").exists()
    path = tmp_path / "store" / "store.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 3'))
    with pytest.raises(NewerFormatError, match="format 3"):
        reopened(store)


def test_a_store_is_not_mixed_with_another_query_other_columns_or_another_folder(store, tmp_path):
    root = tmp_path / "store"
    store.close()
    for options, said in (
        ({"schema": pa.schema([("other", pa.int64())])}, "other columns"),
        ({"schema": SCHEMA, "kind": "aggregates"}, "holds rows"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            WindowStore(root, **options).open()
    with WindowStore(tmp_path / "owned", SCHEMA, kind="aggregates", owner="query-1") as owned:
        owned.open()
        assert owned.about.kind == "aggregates"
    with pytest.raises(ConfigurationError, match="belongs to query query-1"):
        WindowStore(tmp_path / "owned", SCHEMA, owner="query-2").open()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("dear")
    with pytest.raises(ConfigurationError, match=r"thesis\.tex"):
        WindowStore(tmp_path / "home", SCHEMA).open()
    with pytest.raises(ConfigurationError, match="no column"):
        WindowStore(tmp_path / "new", SCHEMA, event_time="when").open()
    (root / "store.json").unlink()
    (root / "data" / "batch_000000000000_part_00000.parquet").touch()
    with pytest.raises(StoreError, match=r"store\.json is missing"):
        WindowStore(root, SCHEMA).open()


def test_one_process_writes_and_others_may_read(store, tmp_path):
    fill(store, {0: [1]})
    with pytest.raises(StoreError, match="in use"):
        WindowStore(tmp_path / "store", SCHEMA).open(0)
    reader = WindowStore(tmp_path / "store")
    reader.open(0, read_only=True)
    assert values(reader.read(0)) == [1]
    with pytest.raises(StoreError, match="reading only"):
        reader.compact(0)
    store.close()
    with pytest.raises(StoreError, match="not open"):
        store.read(0)


def test_batches_are_written_while_another_thread_compacts_reads_and_purges(store):
    stop, seen = threading.Event(), []

    def upkeep() -> None:
        while not stop.is_set():
            for info in store.windows():
                found = values(store.read(info.start_ms))
                seen.append(found == sorted(found))
                store.compact(info.start_ms)
            store.purge(1)

    worker = threading.Thread(target=upkeep)
    worker.start()
    try:
        for number in range(30):
            store.begin(number)
            rows = {0: table(number), 2: table(number, number)}
            store.write(number, rows)
            store.commit(number)
    finally:
        stop.set()
        worker.join()
    assert all(seen)
    assert values(store.read(0)) == list(range(30))
    assert len(values(store.read(2))) == 60


def test_a_uri_is_a_location_and_nonsense_is_not(tmp_path):
    with WindowStore(f"file://{tmp_path}/uri", SCHEMA) as store:
        store.open()
        store.write(0, {-10: table(1)})
        store.commit(0)
        store.write(1, {-10: table(2)})
        store.commit(1)
        store.compact(-10)
        assert values(store.read(-10)) == [1, 2]
    for wrong in ("", "nowhere://x"):
        with pytest.raises(ConfigurationError):
            WindowStore(wrong, SCHEMA)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "täglich 5 %", "x" * 300])
def test_names_of_queries_become_harmless_folders(name):
    folder = folder_for(name)
    assert "/" not in folder
    assert not folder.startswith(".")
    assert len(folder) < 80
    assert folder != folder_for(name + "'")


def test_without_pyarrow_slackwater_is_imported_and_the_store_says_what_to_install():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import slackwater, slackwater.cli\n"
        "slackwater.cli.main(['late', 'status', 'nowhere'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "pip install 'slackwater[late]'" in ended.stderr
