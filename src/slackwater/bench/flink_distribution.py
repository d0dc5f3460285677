"""A Flink to measure and to test with: the jars that the PyPI package apache-flink-libraries carries.

Fetched once, with pip, into the user's cache. Nothing of Flink's Python part is installed or needed.
`python -m slackwater.bench.flink_distribution` fetches it and prints where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = "2.3.0"
PACKAGE: Final = "apache-flink-libraries"
SHA256: Final = "38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151"
HOME_VARIABLE: Final = "SLACKWATER_FLINK_HOME"
FETCH_TIMEOUT_S: Final = 900.0

_INSIDE: Final = "pyflink/"


class FlinkNotFoundError(SlackwaterError, RuntimeError):
    """There is no Flink on this machine, and none could be fetched."""


def cached(environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder with Flink's `lib` and `opt` where it is here already; None where it would have to be fetched."""
    environ = os.environ if environ is None else environ
    if given := environ.get(HOME_VARIABLE):
        home = Path(given)
        if not list(home.glob("lib/flink-dist*.jar")) or not list(home.glob("opt/flink-python*.jar")):
            raise FlinkNotFoundError(
                f"{HOME_VARIABLE} is {given}, and lib/flink-dist*.jar or opt/flink-python*.jar is not there. Name the "
                "folder of a whole distribution of Flink, or unset it to have one fetched."
            )
        return home
    home = _place(environ)
    return home if home.is_dir() else None


def fetched(environ: Mapping[str, str] | None = None) -> Path:
    """The same, fetched where it is not here yet: 330 MB."""
    environ = os.environ if environ is None else environ
    here = cached(environ)
    if here is not None:
        return here
    home = _place(environ)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="flink-") as scratch:
            _unpack(_download(Path(scratch)), Path(scratch) / "flink")
            try:
                (Path(scratch) / "flink").rename(home)
            except OSError:
                # Another process was faster; what it has unpacked is the same.
                if not home.is_dir():
                    raise
    except OSError as error:
        raise FlinkNotFoundError(
            f"Flink could not be unpacked to {home}: {error}. Set XDG_CACHE_HOME to a directory with 1 GB of space."
        ) from error
    return home


def _place(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater" / f"flink-{VERSION}"


def _download(scratch: Path) -> Path:
    # The hash stands in a file because pip takes it from nowhere else.
    wanted = scratch / "flink.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", "utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", str(scratch), "-r", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        why = done.stderr.strip()[-500:]
    except subprocess.TimeoutExpired:
        why = f"pip took longer than {FETCH_TIMEOUT_S:.0f} s"
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise FlinkNotFoundError(
            f"{PACKAGE} {VERSION} could not be fetched: {why}. Run this again where the package index is in reach (its "
            f"cache can be copied), or unpack a distribution of Flink {VERSION} and set {HOME_VARIABLE} to its folder."
        )
    return wheels[0]


def _unpack(wheel: Path, home: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.removeprefix(_INSIDE)
            if inside.endswith(".jar") and inside.startswith(("lib/", "opt/flink-python")):
                target = home / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)


def main() -> int:
    try:
        print(fetched())
    except FlinkNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
