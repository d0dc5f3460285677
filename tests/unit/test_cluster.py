"""A cluster's plan, its state file and its processes, without Spark."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slackwater.cli import main
from slackwater.cluster import ClusterPlan, Standalone, daemons
from slackwater.cluster.model import ClusterState, Daemon, read_state, write_state
from slackwater.errors import ClusterError, ConfigurationError
from slackwater.translators.identity import ProcessId
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JAVA = """#!/bin/sh
case "$*" in
  *-version*) echo "    java.specification.version = 17" >&2;;
  *) echo starting; echo "{last}"; exit 3;;
esac
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def java_that_fails(home: Path, last: str) -> str:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(JAVA.replace("{last}", last))
    java.chmod(0o755)
    return str(home)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": 1000}, "from 1 to 64"),
        ({"cores": 0}, "cores=0"),
        ({"memory": "much"}, "512m or 1g"),
        ({"memory": "0g"}, "512m or 1g"),
        ({"port": 80}, "port=80"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ClusterPlan(**plan)  # type: ignore[arg-type]


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    daemon = Daemon(1, 2, 3, 4, "log")
    state = ClusterState(ClusterPlan(3, 2, "2g"), "java", "spark", "4.3.0", daemon, {0: daemon, 2: daemon})
    write_state(tmp_path / "state", state)
    assert read_state(tmp_path / "state") == state
    assert read_state(tmp_path / "none") is None


def test_a_state_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("{")
    with pytest.raises(ConfigurationError, match="Look for its processes"):
        read_state(tmp_path / "state")


def test_a_pid_that_another_process_has_now_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    proc = Proc()
    now = proc.process(sleeper.pid)
    assert now is not None
    before = ProcessId(now.pid, now.started_ticks - 1)
    assert not daemons.send(before, signal.SIGKILL, proc)
    assert daemons.end([before], proc, 1.0) == []
    assert sleeper.poll() is None
    assert daemons.send(now, signal.SIGTERM, proc)
    assert sleeper.wait(10) == -signal.SIGTERM


def test_a_process_that_does_not_end_when_asked_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = Proc().process(process.pid)
        assert identity is not None
        assert daemons.end([identity], Proc(), 0.2) == [identity]
        assert process.wait(10) == -signal.SIGKILL


def test_stop_leaves_a_process_alone_that_got_the_number_of_a_daemon(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    other = Daemon(sleeper.pid, 1, 7077, 8080, "log")
    write_state(tmp_path / "cluster.json", ClusterState(ClusterPlan(), "java", "spark", "4.3.0", other, {0: other}))
    cluster = Standalone(tmp_path)
    status = cluster.status()
    assert not status.running
    assert [worker.condition for worker in status.workers] == ["dead"]
    assert cluster.stop() == []
    assert sleeper.poll() is None
    assert cluster.status().url is None


@pytest.mark.parametrize(
    ("last", "said"), [("it went wrong", "it went wrong"), ("Address already in use", "Its port is taken")]
)
def test_a_master_that_ends_by_itself_is_told_with_the_end_of_its_log_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that_fails(tmp_path / "java", last))
    cluster = Standalone(tmp_path / "cluster")
    with pytest.raises(ClusterError, match=said) as raised:
        cluster.start()
    assert str(raised.value).startswith("the master ended while it started.")
    assert str(raised.value).endswith(f"starting\n{last}")
    assert cluster.status().url is None


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that_fails(tmp_path / "java", "not reached"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} of 127.0.0.1 cannot be had"):
            Standalone(tmp_path / "cluster", ClusterPlan(port=port)).start()


def test_where_no_cluster_is_that_is_what_the_commands_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["cluster", *arguments, "--dir", str(tmp_path)])
        assert not ended.value.code
        return capsys.readouterr().out

    assert said("status") == f"no cluster is running in {tmp_path}\n"
    assert json.loads(said("status", "--json"))["running"] is False
    assert said("stop") == f"no cluster is running in {tmp_path}\n"
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "revive", "--dir", str(tmp_path)])
    assert ended.value.code == 1
    assert "slackwater cluster start" in capsys.readouterr().err
