"""`slackwater run` around scripts: what is theirs stays theirs, and trouble with attaching is not theirs."""

from __future__ import annotations

import atexit
import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.cli import main
from slackwater.drivers.spark import run_command, script
from slackwater.drivers.spark.run_command import Options, split
from slackwater.errors import AttachError

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = '''"""A script without Spark."""
import logging, sys, threading, beside
beside.greet()
print(__name__, __doc__, sys.argv[1:], len(logging.root.handlers), sys.modules["__main__"].__dict__ is globals())
class Kept: pass
def later():
    import pickle
    threading.main_thread().join()
    print("later", type(pickle.loads(pickle.dumps(Kept()))).__name__)
threading.Thread(target=later).start()
sys.exit(7)
'''


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("def greet():\n    print('beside')\n")
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "fails.py").write_text("def f():\n    raise ValueError('its own')\nf()\n")
    (tmp_path / "wrong.py").write_text("print('a'\n")
    return tmp_path


def ran(*arguments: str, entry: bool = False) -> subprocess.CompletedProcess[str]:
    start = [str(Path(script.__file__).parents[2] / "run_script.py")] if entry else ["-m", "slackwater", "run"]
    return subprocess.run(
        [sys.executable, *start, *arguments], capture_output=True, text=True, timeout=200, check=False
    )


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("entry", [False, True], ids=["slackwater-run", "entry-of-spark-submit"])
def test_a_script_without_spark_just_runs_as_python_would_run_it(scripts: Path, entry: bool) -> None:
    done = ran("--policy", "fcfs", str(scripts / "plain.py"), "--policy", "x", "--", "--help", entry=entry)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "beside",
        "__main__ A script without Spark. ['--policy', 'x', '--', '--help'] 0 True",
        "later Kept",
    ]
    assert done.returncode == 7


def test_an_exception_of_the_script_is_shown_as_python_shows_it(scripts: Path) -> None:
    done = ran(str(scripts / "fails.py"))
    plain = subprocess.run(
        [sys.executable, str(scripts / "fails.py")], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == plain.returncode == 1
    assert done.stderr == plain.stderr
    wrong = ran(str(scripts / "wrong.py"))
    assert wrong.returncode == 1
    assert "SyntaxError" in wrong.stderr
    assert "slackwater" not in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "klnk", "x.py"), "Did you mean 'klink'"),
        (("--knob", "fast", "x.py"), "fast"),
        (("--lanes", "0", "x.py"), "lanes=0"),
        (("--address", "nowhere", "x.py"), "host:port"),
        (("--pollicy", "x.py"), "--pollicy"),
        (("missing.py",), "no script at missing.py"),
        ((), "no script was given"),
    ],
)
def test_wrong_usage_is_told_before_the_script_runs(capsys, arguments, said):
    assert exit_code(*arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err + printed.out


def test_help_and_the_entry_for_spark_submit_are_printed(capsys):
    assert exit_code("--help") == 0
    assert "SCRIPT.py [ARGUMENTS" in capsys.readouterr().out
    assert exit_code("--entry") == 0
    entry = Path(capsys.readouterr().out.strip())
    assert entry.name == "run_script.py"
    assert entry.is_file()


WORDS = st.text(alphabet="abc-=.", max_size=6)


@given(st.lists(WORDS), st.text(alphabet="abc.", min_size=1).filter(lambda s: s != "-"), st.lists(WORDS))
def test_all_that_stands_behind_the_script_is_the_scripts_own(flags, name, own):
    ours = [f"--{flag}" for flag in flags if f"--{flag}" not in ("--", *run_command._VALUED)]
    assert split([*ours, "--policy", "--serve", name, *own]) == ([*ours, "--policy", "--serve"], [name, *own])
    assert split([*ours, "--", *own]) == (ours, own)


def test_options_that_take_a_value_are_known_as_such():
    taken = inspect.signature(run_command._read).parameters
    valued = {f"--{name}" for name, parameter in taken.items() if "bool" not in str(parameter.annotation)}
    assert valued == run_command._VALUED


def test_only_what_was_said_goes_to_attach():
    assert Options().settings() == {}
    assert Options(policy="fcfs", lanes=2, tune=True, serve=True).settings() == {
        "policy": "fcfs",
        "lanes": 2,
        "tune": True,
        "serve": True,
    }
    assert Options(address="0.0.0.0:1").settings() == {"serve": "0.0.0.0:1"}


# ---- attaching to what the script makes -----------------------------------------------------------------------------


class Handle:
    def __init__(self) -> None:
        self.url = None
        self.detached = 0

    def detach(self) -> None:
        self.detached += 1


def session(application_id: str) -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(applicationId=application_id))


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Handle]]:
    found: list[tuple[Any, Handle]] = []

    def attach(spark: Any, **settings: Any) -> Handle:
        if settings.get("fail"):
            raise settings["fail"]
        found.append((spark, Handle()))
        return found[-1][1]

    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(script, "attach", attach)
    monkeypatch.setattr(atexit, "register", registered.append)
    return found


def test_each_application_is_attached_to_once_and_an_ended_one_is_let_go(attached):
    sessions = script.Sessions({})
    first = session("app-1")
    for seen in (first, session("app-1"), session("app-2")):
        sessions._saw(seen)
    assert [spark._sc.applicationId for spark, _ in attached] == ["app-1", "app-2"]
    assert attached[0][0] is first
    assert [handle.detached for _, handle in attached] == [1, 0]


@pytest.mark.parametrize("error", [AttachError("the session is stopped"), RuntimeError("py4j trouble")])
def test_if_attaching_fails_the_script_runs_on_and_is_told_once(attached, error, caplog):
    sessions = script.Sessions({"fail": error})
    sessions._saw(session("app-1"))
    sessions._saw(session("app-1"))
    (told,) = caplog.records
    assert "runs on plain Spark" in told.getMessage()
    assert str(error) in told.getMessage()
    assert attached == []
