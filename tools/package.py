"""Build the wheel, the sdist and the zip for `--py-files` into dist/, and check that they work without the repository.

    python -m tools.package              # `make package`
    python -m tools.package --no-demo    # without the demo, which takes two minutes

The wheel is installed into an empty environment with its base dependencies alone. There every command that needs no
extra must work, those that need one must say which, and `slackwater demo --fast` must run. The zip is given to a real
spark-submit, in an environment that has PySpark, numpy and msgspec and nothing else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tools.environments import Environment, say

ROOT = Path(__file__).parents[1]
PACKAGE = "slackwater"
_COMMAND_S = 300.0
_DEMO_S = 1800.0


class PackageError(Exception):
    """What was built does not work."""


@dataclass(frozen=True)
class Built:
    """What `build` wrote."""

    wheel: Path
    sdist: Path
    zip: Path
    version: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Build wheel, sdist and zip, and check them.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for what is built; emptied first")
    parser.add_argument("--no-demo", action="store_true", help="leave out `slackwater demo --fast`")
    parser.add_argument("--build-only", action="store_true", help="leave out all checks that install something")
    chosen = parser.parse_args()
    try:
        built = build(ROOT, chosen.out)
        with tempfile.TemporaryDirectory(prefix="slackwater-package-") as scratch:
            check_files(built, Path(scratch))
            if not chosen.build_only:
                check_installed(built, Path(scratch), demo=not chosen.no_demo)
    except (PackageError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    say(f"good, in {chosen.out}: {built.wheel.name}, {built.sdist.name}, {built.zip.name}")
    return 0


# ---- building ----------------------------------------------------------------------------------------------------


def build(root: Path, out: Path) -> Built:
    if out.exists():
        shutil.rmtree(out)
    say("building wheel and sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out.absolute())]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    # A wheel is a zip with the package at its root and the entry points beside it: what --py-files takes, by its name.
    zipped = out / f"{PACKAGE}-{version}.zip"
    shutil.copy(wheel, zipped)
    return Built(wheel, sdist, zipped, version)


def package_files(root: Path) -> set[str]:
    """Every file of the package, as it is called in a wheel."""
    source = root / "src"
    found = (path for path in (source / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source).as_posix() for path in found}


def wheel_files(wheel: Path) -> set[str]:
    """What a wheel installs, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def check_files(built: Built, scratch: Path) -> None:
    say("the wheel has every file of the package, and the sdist makes the same wheel")
    _same(package_files(ROOT), wheel_files(built.wheel), "the wheel")
    unpacked = scratch / "sdist"
    with tarfile.open(built.sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch / "again")]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (again,) = (scratch / "again").glob("*.whl")
    _same(wheel_files(built.wheel), wheel_files(again), "the wheel made from the sdist")


def _same(expected: set[str], found: set[str], what: str) -> None:
    if expected != found:
        raise PackageError(
            f"{what} lacks {sorted(expected - found)} and has besides {sorted(found - expected)}. "
            "See [tool.hatch.build] in pyproject.toml."
        )


# ---- installed ---------------------------------------------------------------------------------------------------


def check_installed(built: Built, scratch: Path, *, demo: bool) -> None:
    environment = Environment(scratch / "environment")
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    say("installing the wheel with its base dependencies into an empty environment")
    environment.create()
    environment.install(str(built.wheel))

    def run(*command: str, timeout_s: float = _COMMAND_S) -> str:
        done = environment.run(command, cwd=elsewhere, timeout_s=timeout_s)
        if done.returncode != 0:
            raise PackageError(f"{' '.join(command)} ended with {done.returncode}: {_tail(done.stderr or done.stdout)}")
        return done.stdout

    say("python -m slackwater --version; slackwater policies")
    if run("python", "-m", PACKAGE, "--version").strip() != built.version:
        raise PackageError(f"python -m {PACKAGE} --version does not say {built.version}.")
    if "klink" not in run("slackwater", "policies"):
        raise PackageError("slackwater policies does not list klink: entry points are missing.")
    say("every module and command: without extras, or with the name of the one that it needs")
    checked = json.loads(run("python", str(ROOT / "tools" / "without_extras.py")).splitlines()[-1])
    if checked["wrong"]:
        raise PackageError("; ".join(checked["wrong"]))
    print(f"    {checked['modules']} modules; {', '.join(checked['commands'])} name their extra")
    java = _java(environment, built, elsewhere)
    if demo:
        say("slackwater demo --fast (about two minutes)")
        done = environment.run(("slackwater", "demo", "--fast"), cwd=elsewhere, timeout_s=_DEMO_S, shown=True)
        if done.returncode != 0:
            raise PackageError(f"slackwater demo --fast ended with {done.returncode}; see above.")
    check_zip(environment, built, elsewhere, java)


def _java(environment: Environment, built: Built, cwd: Path) -> str:
    """JAVA_HOME for spark-submit; the extra [java] is installed where the machine has none."""
    ask = ("python", "-c", "from slackwater.drivers.spark.java import find_java; print(find_java().home)")
    done = environment.run(ask, cwd=cwd, timeout_s=_COMMAND_S)
    if done.returncode != 0:
        say("no Java on this machine: installing slackwater[java]")
        environment.install(f"{built.wheel}[java]")
        done = environment.run(ask, cwd=cwd, timeout_s=_COMMAND_S)
    if done.returncode != 0:
        raise PackageError(f"no Java was found, with slackwater[java] either: {_tail(done.stderr)}")
    return done.stdout.strip()


def check_zip(environment: Environment, built: Built, cwd: Path, java_home: str) -> None:
    say(f"spark-submit --py-files {built.zip.name}, without the package and with numpy and msgspec alone")
    for package in (PACKAGE, "cyclopts", "httpx2", "psutil", "rich"):
        environment.uninstall(package)
    # python3 in spark-submit is the environment's: it is first on the path.
    submit = ("spark-submit", "--master", "local[2]", "--py-files", str(built.zip.absolute()))
    local = ("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1")
    script = str(ROOT / "tools" / "from_zip.py")
    done = environment.run(
        (*submit, *local, "--conf", "spark.ui.enabled=false", script),
        cwd=cwd,
        timeout_s=_COMMAND_S,
        variables={"JAVA_HOME": java_home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(environment.python)},
    )
    if done.returncode != 0:
        raise PackageError(f"the zip did not work under spark-submit: {_tail(done.stderr)}")
    said = json.loads(done.stdout.splitlines()[-1])
    if ".zip" not in said["file"] or not said["gated"] or said["version"] != built.version:
        raise PackageError(f"the zip was not what was attached, or did not gate: {said}")
    print(f"    attached {said['version']} from the zip, policy {said['policy']}, {said['batches']} batches gated")


def _tail(text: str) -> str:
    return text.strip()[-2000:]


if __name__ == "__main__":
    sys.exit(main())
