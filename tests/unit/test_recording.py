"""Traces: what is written comes back, what is damaged is said, and size and queue are bounded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.cli import main
from slackwater.core.model import Window
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.recording.frames import MAGIC, frame, records_in
from slackwater.recording.reading import read_trace
from slackwater.recording.recorder import Recorder, Recording
from slackwater.recording.records import Batch, End, Head, Host, Input, Query
from slackwater.testing import ScriptedDriver, SimulatedQuery, steps

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.recording.records import Record

HEAD = Head(100.0, "1", "app", "4.3.0", "local[2]", "klink", enforces=True, parameters={"knob": "cost"}, settings={})
times = st.floats(0, 2e9).map(lambda seconds: round(seconds, 3))
counts = st.integers(0, 2**53)
inputs = st.builds(Input, times, counts, st.none() | times, st.none() | times)
batches = st.builds(
    Batch,
    number=st.integers(0, 5),
    batch_id=counts,
    offsets_wall_ts=times,
    ended_wall_ts=times,
    duration_s=times,
    rows=counts,
    watermark_event_ts=times,
    inputs=st.lists(inputs, max_size=3).map(tuple),
    stage=st.text(max_size=20),
    state_bytes=counts,
    backlog_rows=st.none() | counts,
    limited=st.booleans(),
    parts_ms=st.dictionaries(st.text(max_size=10), counts, max_size=3),
)
hosts = st.builds(Host, times, st.integers(0, 64), st.integers(1, 64), st.none() | times)
frames_of_records = st.lists(st.lists(batches | hosts, min_size=1, max_size=5), min_size=1, max_size=5)


def _written(path: Path, groups: list[list[Record]]) -> list[int]:
    """Writes a trace; returns where each frame ends."""
    raw, ends = MAGIC, []
    for group in groups:
        raw += frame(group)
        ends.append(len(raw))
    path.write_bytes(raw)
    return ends


@given(groups=frames_of_records)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read_back(groups: list[list[Record]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    _written(path, groups)
    assert list(records_in(path)) == [record for group in groups for record in group]


@given(groups=frames_of_records, data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_trace_cut_anywhere_is_readable_up_to_its_last_whole_frame(
    groups: list[list[Record]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    ends = _written(path, groups)
    at = data.draw(st.integers(len(MAGIC), ends[-1]))
    path.write_bytes(path.read_bytes()[:at])
    whole = sum(end <= at for end in ends)
    assert list(records_in(path)) == [record for group in groups[:whole] for record in group]


@given(groups=frames_of_records, data=st.data())
@settings(max_examples=80, deadline=None)
def test_no_flipped_bit_goes_unnoticed(
    groups: list[list[Record]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    ends = _written(path, groups)
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    with pytest.raises(ConfigurationError):
        list(records_in(path))
    if at >= len(MAGIC):
        whole = sum(end <= at for end in ends)
        salvaged = list(records_in(path, salvage=True))
        assert salvaged == [record for group in groups[:whole] for record in group]


def test_files_that_are_no_traces_are_refused_with_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_trace(path)
    path.write_bytes(b'{"workload": "ysb"}')
    with pytest.raises(ConfigurationError, match="not a trace: it begins with"):
        read_trace(path)
    path.write_bytes(b"slackwater-trace 9\n")
    with pytest.raises(ConfigurationError, match="format 9, and this version reads formats 1 to 2"):
        read_trace(path)
    _written(path, [[Host(1.0, 2, 2)]])
    with pytest.raises(ConfigurationError, match="does not begin with a head"):
        read_trace(path)
    _written(path, [[HEAD, Batch(3, 0, 1.0, 2.0, 1.0, 5, 0.0)]])
    with pytest.raises(ConfigurationError, match="query 3, which it has not described"):
        read_trace(path)
    path.write_bytes(MAGIC)
    with pytest.raises(ConfigurationError, match="holds no records"):
        read_trace(path)


def test_traces_of_the_first_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    _written(path, [[HEAD, Host(1.0, 2, 2, 3.0, 2, ordinary_tasks=1)]])
    written = path.read_bytes()
    path.write_bytes(b"slackwater-trace 1\n" + written[len(MAGIC) :])
    (host,) = read_trace(path).hosts
    assert (host.cpu_s, host.ordinary_tasks, host.collecting_cpu_s, host.compiling_cpu_s) == (3.0, 1, None, None)


def _queries(count: int = 3) -> list[SimulatedQuery]:
    return [
        SimulatedQuery(f"q{place}", windows=(Window(10, 10, place),), delay_s=1, row_cost_s=1e-6, state_bytes=1000)
        for place in range(count)
    ]


def _recorded(path: Path, policy: str = "klink", seconds: float = 60.0) -> ScriptedDriver:
    """A run in virtual time, recorded."""
    engine = engine_for(policy)
    driver = ScriptedDriver(_queries())
    recorder = Recorder(Recording(path), "app-1", engine, application="test", clock=driver.clock.now)
    for report, commands in steps(engine, driver, seconds):
        recorder.saw(report, commands)
    recorder.close()
    return driver


def test_a_run_is_recorded_batch_by_batch_and_grant_by_grant(tmp_path: Path) -> None:
    path = tmp_path / "t"
    happened = _recorded(path).trace
    found = read_trace(path)
    assert found.ended
    assert found.lost is None
    assert [query.name for query in found.queries] == ["q0", "q1", "q2"]
    assert found.batches == len(happened.batches)
    assert sum(len(query.grants) for query in found.queries) == len(happened.grants)
    for query in found.queries:
        seen = happened.batches_of(query.name)
        assert [batch.rows for batch in query.batches] == [batch.rows for batch in seen]
        assert {batch.stage for batch in query.batches} == {"data batch", "sweep batch"}
        assert query.facts().windows == (Window(10, 10, int(query.name[1])),)
        assert query.learnt


def test_a_recording_that_reaches_its_size_says_so_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "t"
    engine = engine_for("klink")
    driver = ScriptedDriver(_queries())
    recorder = Recorder(Recording(path, most_bytes=100_000), "app-1", engine)
    recorder._most_bytes = 3_000  # smaller than anybody may ask for, to be quick
    for report, commands in steps(engine, driver, 120.0):
        recorder.saw(report, commands)
    recorder.close()
    assert "most that it may have" in (recorder.status().trouble or "")
    assert read_trace(path).cut is not None
    assert path.stat().st_size <= 3_000


def test_what_the_recorder_cannot_keep_up_with_is_counted_and_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    engine = engine_for("klink")
    driver = ScriptedDriver(_queries())
    recorder = Recorder(Recording(path), "app-1", engine)
    for report, commands in steps(engine, driver, 60.0):
        recorder.saw(report, commands)
        if any(query.batches for query in report.queries):
            break
    for _ in range(20_000):
        recorder.saw(report, commands)
    recorder.close()
    found = read_trace(path)
    lost = recorder.status().lost
    assert lost > 0
    assert found.lost is not None
    assert found.lost.batches + found.lost.grants == lost
    assert found.batches + found.lost.batches == 20_001 * sum(len(query.batches) for query in report.queries)


def test_a_recording_never_writes_over_a_file_and_finds_a_name_in_a_folder(tmp_path: Path) -> None:
    there = tmp_path / "t"
    there.write_text("mine")
    with pytest.raises(ConfigurationError, match="there already"):
        Recorder(Recording(there), "app-1", engine_for("klink"))
    assert there.read_text() == "mine"
    recorder = Recorder(Recording(tmp_path), "app-1", engine_for("klink"))
    recorder.close()
    assert recorder.path.parent == tmp_path
    assert recorder.path.name.startswith("app-1-")
    odd, file = Recording(tmp_path).open("../../app/1", 0.0)
    file.close()
    assert (odd.parent, odd.name) == (tmp_path, "_.._app_1-19700101T000000.trace")
    with pytest.raises(ConfigurationError, match="folder that exists"):
        Recorder(Recording(tmp_path / "no" / "t"), "app-1", engine_for("klink"))
    with pytest.raises(ConfigurationError, match="number of bytes"):
        Recording("t", most_bytes=5)


def test_trace_show_tells_what_each_query_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    _recorded(path)
    main_of(["trace", "show", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [query["name"] for query in found["queries"]] == ["q0", "q1", "q2"]
    assert all(query["rows"] > 0 and query["granted"] > 0 for query in found["queries"])
    main_of(["trace", "show", str(path)])
    assert "under klink" in capsys.readouterr().out


def test_a_query_described_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    query = Query(0, 1.0, "k", "n", "i", True, (), (), "min", False, False, 0.0)
    _written(path, [[HEAD, query, query, End(2.0)]])
    with pytest.raises(ConfigurationError, match="twice"):
        read_trace(path)


def main_of(arguments: list[str]) -> None:
    """The command line; ending well is no error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


_KILLED = """
import os, signal, sys, time
from pathlib import Path
from slackwater.policies.assembly import engine_for
from slackwater.recording.recorder import Recorder, Recording
from slackwater.testing import ScriptedDriver, steps
from tests.unit.test_recording import _queries

engine, driver = engine_for("klink"), ScriptedDriver(_queries())
recorder = Recorder(Recording(Path(sys.argv[1])), "app-1", engine)
for report, commands in steps(engine, driver, 30.0):
    recorder.saw(report, commands)
give_up = time.monotonic() + 60
while recorder.status().records < 20 and time.monotonic() < give_up:
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_a_trace_up_to_its_last_flush(tmp_path: Path) -> None:
    path = tmp_path / "t"
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False, timeout=100)
    assert ended.returncode == -signal.SIGKILL
    found = read_trace(path)
    assert not found.ended
    assert found.batches > 5
    assert [query.name for query in found.queries] == ["q0", "q1", "q2"]
