"""Spark's own master and worker as processes: how they are started, found and ended.

The pyspark package has their classes but no scripts to start them with, so they are started as Java would be by
Spark's launcher. Everything listens on loopback alone.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slackwater.cluster.model import Daemon
from slackwater.errors import ClusterError
from slackwater.translators.processes import Proc, runs_java_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slackwater.translators.identity import ProcessId

LOOPBACK: Final = "127.0.0.1"
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

_HEAP: Final = "256m"
_LOG_LINES: Final = 15
_LOG_BYTES: Final = 20_000
_POLL_S: Final = 0.05
_PORTS: Final = (20_000, 32_000)  # below what Linux gives to connections
_TRIALS: Final = 1000
# What Spark's launcher opens for every JVM that it starts; a daemon needs the part that its network code asks for.
_OPENED: Final = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")


def state_folder(name: str) -> Path:
    """Where what the command line starts keeps its state and logs, in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "slackwater" / name


def spark_home() -> Path:
    """Where the jars are: the installed pyspark, or SPARK_HOME where pyspark comes without, as under spark-submit."""
    import pyspark  # noqa: PLC0415 - loaded on use

    package = Path(pyspark.__file__).parent
    for home in (package, *(Path(named) for named in [os.environ.get("SPARK_HOME")] if named)):
        if (home / "jars").is_dir():
            return home
    raise ClusterError(
        f"the pyspark package at {package} has no folder `jars`, from which a cluster could be started. "
        "The package `pyspark-client` has none: install `pyspark`, or set SPARK_HOME to a Spark of the same version."
    )


def environment(home: Path, java_home: str, folder: Path) -> dict[str, str]:
    """Of daemons and, through the workers, of executors: none of the user's Spark settings, loopback, our folders."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": _scala_version(home),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def _scala_version(home: Path) -> str:
    """For the launcher in a worker, which otherwise looks for the folders of a build to tell it."""
    for jar in (home / "jars").glob("spark-core_*.jar"):
        return jar.name.removeprefix("spark-core_").partition("-")[0]
    raise ClusterError(f"there is no spark-core_*.jar in {home / 'jars'}: this pyspark is not whole; install it again.")


def start(
    main_class: str,
    arguments: Sequence[str],
    *,
    environ: Mapping[str, str],
    port: int,
    web_port: int,
    log: Path,
    detached: bool,
) -> tuple[Daemon, subprocess.Popen[bytes]]:
    """A daemon's process; that it runs does not mean yet that it serves.

    detached: it outlives this process and the terminal; otherwise it ends with this process's group.
    """
    command = [
        str(Path(environ["JAVA_HOME"]) / "bin" / "java"),
        f"-Xmx{_HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        # A port that is taken is an error to tell of, not a reason to take the next one.
        "-Dspark.port.maxRetries=0",
        "-Dspark.master.rest.enabled=false",
        "-cp",
        f"{environ['SPARK_CONF_DIR']}:{Path(environ['SPARK_HOME']) / 'jars'}/*",
        main_class,
        *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(web_port)),
        *arguments,
    ]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=environ["SPARK_CONF_DIR"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=detached,
        )
    identity = Proc().process(process.pid)
    if identity is None:
        process.wait()
        raise died(main_class, log)
    return Daemon(process.pid, identity.started_ticks, port, web_port, str(log)), process


def died(main_class: str, log: Path) -> ClusterError:
    """The error for a daemon that ended by itself, with the end of what it logged."""
    what = main_class.rpartition(".")[2].lower()
    try:
        lines = log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace").splitlines()
    except OSError as error:
        lines = [f"(its log cannot be read: {error})"]
    taken = next((line for line in lines if "Address already in use" in line or "BindException" in line), None)
    advice = "Its port is taken: name another one, or none. " if taken is not None else ""
    return ClusterError(
        f"the {what} ended while it started. {advice}The end of {log}:\n" + "\n".join(lines[-_LOG_LINES:])
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody has on loopback now, and that the system does not hand out before whoever asked has taken them.

    That takes a JVM seconds; in between, every connection that is opened gets a port of the system's own choice.
    """
    found: list[int] = []
    for port in random.sample(range(*_PORTS), _TRIALS):
        with socket.socket() as trial, suppress(OSError):
            trial.bind((LOOPBACK, port))
            found.append(port)
        if len(found) == count:
            return found
    raise ClusterError(f"no free port between {_PORTS[0]} and {_PORTS[1]} on {LOOPBACK}. End what has them.")


def require_free(port: int) -> None:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError as error:
            raise ClusterError(
                f"port {port} of {LOOPBACK} cannot be had: {error.strerror}. "
                "Leave --port out to get one that is free, or end what listens there."
            ) from error


def executors(folder: Path, proc: Proc) -> list[ProcessId]:
    """Executors that workers of this folder started, and their Python processes, also when the worker is gone."""
    work = f"{folder / 'work'}{os.sep}"
    is_executor = runs_java_class(EXECUTOR)

    def wanted(arguments: Sequence[str]) -> bool:
        return is_executor(arguments) or any(name in arguments for name in ("pyspark.daemon", "pyspark.worker"))

    return [process for process in proc.find(wanted) if folder_of(process, proc).startswith(work)]


def folder_of(process: ProcessId, proc: Proc) -> str:
    """Where it works: an executor in one of its own below its worker's; empty when it is gone."""
    try:
        return str((proc.root / str(process.pid) / "cwd").readlink())
    except OSError:
        return ""


def send(process: ProcessId, number: signal.Signals, proc: Proc) -> bool:
    """A signal to this very process; False when it is gone, whoever has its number now."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle stays with the process that had the number when it was opened: ask who that was, then signal it.
        if not proc.alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def end(processes: Iterable[ProcessId], proc: Proc, patience_s: float) -> list[ProcessId]:
    """Ask them to end, kill those that have not after a while, and return those that had to be killed."""
    asked = [process for process in processes if send(process, signal.SIGTERM, proc)]
    left = _gone_by(asked, proc, patience_s)
    killed = [process for process in left if send(process, signal.SIGKILL, proc)]
    _gone_by(killed, proc, patience_s)
    return killed


def _gone_by(processes: Sequence[ProcessId], proc: Proc, patience_s: float) -> list[ProcessId]:
    """Those that are still there when the time is up."""
    give_up = time.monotonic() + patience_s
    while True:
        left = [process for process in processes if proc.alive(process)]
        if not left or time.monotonic() > give_up:
            return left
        time.sleep(_POLL_S)
