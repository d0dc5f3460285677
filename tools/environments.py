"""Virtual environments for checks, made with uv where it is there (it caches), else with venv and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# What would let a process of the environment see packages, or a Python, of whoever runs the check.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


@dataclass(frozen=True)
class Environment:
    """A virtual environment in a folder of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def create(self, python: str = sys.executable) -> None:
        if self.python.exists():
            return
        if uv := shutil.which("uv"):
            subprocess.run([uv, "venv", "--quiet", "--no-config", "--python", python, str(self.folder)], check=True)
        else:
            subprocess.run([_interpreter(python), "-m", "venv", str(self.folder)], check=True)

    def install(self, *arguments: str) -> None:
        """Install requirements; the project's own settings of uv, which pin PySpark, do not count."""
        if uv := shutil.which("uv"):
            command = [uv, "pip", "install", "--quiet", "--no-config", "--python", str(self.python)]
        else:
            command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *arguments], check=True)

    def uninstall(self, package: str) -> None:
        if uv := shutil.which("uv"):
            command = [uv, "pip", "uninstall", "--quiet", "--no-config", "--python", str(self.python), package]
        else:
            command = [str(self.python), "-m", "pip", "uninstall", "--quiet", "--yes", package]
        subprocess.run(command, check=True)

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        variables: Mapping[str, str] | None = None,
        shown: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment; what it prints is kept, or shown as it comes."""
        environ = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        environ["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{environ.get('PATH', '')}"
        environ |= dict(variables or {})
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            env=environ,
            timeout=timeout_s,
            check=False,
            text=True,
            capture_output=not shown,
        )


def _interpreter(python: str) -> str:
    """A path as it is; a version like 3.11 by what is installed, since only uv can bring one."""
    if os.sep in python:
        return python
    if sys.version.startswith(f"{python}."):
        return sys.executable
    if found := shutil.which(f"python{python}"):
        return found
    raise SystemExit(f"No Python {python} was found. Install it, or install uv (pip install uv), which brings it.")
