"""What a user installs: the wheel has all of the package, and nothing needs an extra without naming it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from tools.package import ROOT, package_files, wheel_files

from slackwater import __version__
from slackwater.errors import MissingExtraError
from slackwater.extras import EXTRA_OF, explained, require
from slackwater.policies.registry import known_policies


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(built)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel_files(wheel) == package_files(ROOT)
    assert {Path(name).suffix for name in package_files(ROOT)} >= {".py", ".java", ".txt", ".typed"}


def test_the_wheel_is_named_by_its_version_and_declares_every_policy_and_extra(wheel: Path) -> None:
    assert wheel.name == f"slackwater-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        (declared,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
        (about,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert [name for name in known_policies() if f"\n{name} = slackwater.policies." not in declared] == []
    assert [extra for extra in EXTRA_OF.values() if f"Provides-Extra: {extra}\n" not in about] == []


@pytest.mark.timeout(660)
def test_without_extras_every_module_works_or_names_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.without_extras", "--blocked"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["wrong"] == []
    assert said["modules"] > 100
    assert len(said["commands"]) == 9


def test_a_missing_package_is_told_with_its_extra_and_others_are_not_ours_to_explain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("nothing")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"x needs matplotlib and pyarrow, .* 'slackwater\[late,report\]'"):
        require("x", "matplotlib", "pyarrow")
    missing = explained(ImportError("No module named 'uvicorn.config'", name="uvicorn.config"))
    assert missing is not None
    assert "slackwater[dashboard]" in str(missing)
    assert explained(ImportError("No module named 'numpy'", name="numpy")) is None


def test_attach_can_be_imported_with_numpy_and_msgspec_alone() -> None:
    """As from the zip under spark-submit, where nobody installs what the command line needs."""
    blocked = ("cyclopts", "httpx2", "psutil", "rich", *EXTRA_OF)
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); from slackwater import attach"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
