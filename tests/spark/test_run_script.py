"""`slackwater run`: an unchanged script is scheduled under python and under spark-submit, and ends as it would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import slackwater.run_script as entry
from slackwater.drivers.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "run_target.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.mark.parametrize("under", ["python", "spark-submit"])
def test_a_script_that_knows_nothing_of_it_is_scheduled_and_served(under: str, tmp_path: Path) -> None:
    command: Sequence[str] = [sys.executable, "-m", "slackwater", "run"]
    if under == "spark-submit":
        submit = ["--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1"]
        command = [str(SUBMIT), *submit, str(Path(entry.__file__))]
    ensure_java()
    done = subprocess.run(
        [*command, "--serve", "--policy", "round-robin", str(SCRIPT), "--policy", "its own", "--", "-h"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SLACKWATER_RUNTIME_DIR": str(tmp_path / "run"),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 3, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said == {
        "arguments": ["--policy", "its own", "--", "-h"],
        "main": "__main__",
        "gated": True,
        "announced": ["a script"],
    }
    # spark-submit puts what Python says to stderr among what it says to stdout.
    assert "slackwater: http://127.0.0.1:" in done.stdout + done.stderr
    assert list((tmp_path / "run").iterdir()) == [], "the announcement and the token went with it"
