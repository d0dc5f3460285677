"""A Flink cluster on this machine: a JobManager and a TaskManager on loopback, small, and gone afterwards."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import py4j.java_gateway
import py4j.protocol

from slackwater.bench.flink_distribution import fetched
from slackwater.cluster.daemons import free_ports
from slackwater.drivers.spark.java import find_java
from slackwater.errors import SlackwaterError, UnreachableError
from slackwater.middleware.drivers.flink_rest import FlinkRest
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from slackwater.translators.identity import ProcessId

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0

# Flink's own variable for options of its JVMs.
_JAVA_OPTIONS: Final = "FLINK_ENV_JAVA_OPTS"
_JOB_MANAGER: Final = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER: Final = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# Flink ships py4j for its Python interface; here it serves to submit jobs, without that interface.
_GATEWAY: Final = "org.apache.flink.api.python.shaded.py4j.GatewayServer"
# As Flink's own start scripts have them.
_OPENED: Final = (
    *("lang", "lang.reflect", "net", "io", "nio", "text", "time"),
    *("util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"),
)

_LOGGING: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.main.ref = Main
appender.main.name = Main
appender.main.type = CONSOLE
appender.main.target = SYSTEM_ERR
appender.main.layout.type = PatternLayout
appender.main.layout.pattern = %d %p %c{1} %m%n
"""


class FlinkClusterError(SlackwaterError, RuntimeError):
    """The cluster did not start, or did not take a job."""


@dataclass(frozen=True)
class ClusterSettings:
    """slots: subtasks of each vertex that fit. heap_mb: what the TaskManager's tasks may use."""

    slots: int = 8
    heap_mb: int = 512
    network_mb: int = 96
    settings: tuple[tuple[str, str], ...] = ()


class FlinkCluster:
    """A context manager; inside, `url` is the REST interface and `jvm` a JVM that can submit jobs to it.

    java_sources: classes that jobs need, in the Java that Janino knows, by their full names.
    """

    def __init__(
        self, settings: ClusterSettings | None = None, *, java_sources: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings or ClusterSettings()
        self._sources = dict(java_sources or {})
        self._stack = ExitStack()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.folder = Path()
        self.url = ""
        self.jvm: Any = None
        self._gateway: Any = None

    def __enter__(self) -> Self:
        self._home = fetched()
        self._java = find_java().home / "bin" / "java"
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-flink-")))
            stack.callback(self._stop)
            self._configure()
            self._gateway = self._start_gateway()
            stack.callback(self._gateway.close)
            self.jvm = self._gateway.jvm
            self._compile()
            self._start("jobmanager", _JOB_MANAGER, "-Xmx256m")
            self._start(
                "taskmanager",
                _TASK_MANAGER,
                f"-Xmx{self._settings.heap_mb + 128}m",
                f"-XX:MaxDirectMemorySize={self._settings.network_mb + 128}m",
            )
            self._await_task_manager()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def task_manager(self) -> ProcessId:
        found = Proc().process(self._processes["taskmanager"].pid)
        if found is None:
            raise FlinkClusterError(f"the TaskManager has ended: {self._log('taskmanager')}")
        return found

    @property
    def output(self) -> Path:
        """What jobs print."""
        return self.folder / "taskmanager.out"

    def environment(self, job: str, settings: Mapping[str, str] | None = None) -> Any:
        """A StreamExecutionEnvironment whose `execute` submits a job of this name to the cluster."""
        configuration = self.jvm.org.apache.flink.configuration.Configuration()
        address, _, port = self.url.removeprefix("http://").partition(":")
        wanted = {
            "execution.target": "remote",
            "execution.attached": "false",
            "rest.address": address,
            "rest.port": port,
            "pipeline.name": job,
            "parallelism.default": "1",
            "table.local-time-zone": "UTC",
            **(settings or {}),
        }
        for key, value in wanted.items():
            configuration.setString(key, value)
        # Its factory method would start a cluster inside that JVM, whatever the configuration says.
        return self.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment(configuration)

    @contextmanager
    def submitting(self, job: str) -> Iterator[None]:
        """What Java throws inside is told as one error, with its innermost cause."""
        try:
            yield
        except py4j.protocol.Py4JJavaError as error:
            cause = error.java_exception
            while (inner := cause.getCause()) is not None:
                cause = inner
            raise FlinkClusterError(f"Flink did not take the job {job!r}: {cause.toString()}") from None

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """A Java array of a class of `jvm`."""
        made = self._gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    def _configure(self) -> None:
        (self.folder / "conf").mkdir()
        (self.folder / "classes").mkdir()
        (self.folder / "tmp").mkdir()
        rpc_port, rest_port = free_ports(2)
        self.url = f"http://127.0.0.1:{rest_port}"
        wanted = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": rpc_port,
            "jobmanager.bind-host": "127.0.0.1",
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.port": rest_port,
            "web.submit.enable": "false",
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.numberOfTaskSlots": self._settings.slots,
            "taskmanager.cpu.cores": float(os.cpu_count() or 1),
            "taskmanager.memory.task.heap.size": f"{self._settings.heap_mb}m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.managed.size": "64m",
            "taskmanager.memory.network.min": f"{self._settings.network_mb}m",
            "taskmanager.memory.network.max": f"{self._settings.network_mb}m",
            "taskmanager.memory.jvm-metaspace.size": "256m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
            # On a machine that is full, ten seconds are not enough to start.
            "pekko.startup-timeout": "60 s",
            "pekko.ask.timeout": "60 s",
            "metrics.fetcher.update-interval": "1000",
            "io.tmp.dirs": self.folder / "tmp",
            **dict(self._settings.settings),
        }
        lines = "".join(f"{key}: {value}\n" for key, value in wanted.items())
        (self.folder / "conf" / "config.yaml").write_text(lines, "utf-8")
        (self.folder / "conf" / "log4j.properties").write_text(_LOGGING, "utf-8")

    def _command(self, main_class: str, *options: str, more_jars: tuple[Path, ...] = ()) -> list[str]:
        jars = [*sorted(self._home.glob("lib/*.jar")), *more_jars, self.folder / "classes"]
        return [
            str(self._java),
            *options,
            *shlex.split(os.environ.get(_JAVA_OPTIONS, "")),
            *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dlog4j.configurationFile=file:{self.folder / 'conf' / 'log4j.properties'}",
            "-cp",
            ":".join(map(str, jars)),
            main_class,
        ]

    def _start(self, name: str, main_class: str, *options: str) -> None:
        command = [*self._command(main_class, *options), "--configDir", str(self.folder / "conf")]
        with (self.folder / f"{name}.out").open("w") as out, (self.folder / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, text=True, cwd=self.folder
            )

    def _start_gateway(self) -> Any:
        jars = (*self._home.glob("opt/flink-python*.jar"), *_janino())
        command = [*self._command(_GATEWAY, "-Xmx256m", more_jars=jars), "--enable-auth", "--die-on-broken-pipe", "0"]
        with (self.folder / "gateway.log").open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder
            )
        self._processes["gateway"] = process
        said = [process.stdout.readline().strip(), process.stdout.readline().strip()] if process.stdout else []
        if len(said) != 2 or not said[0].isdigit():
            raise FlinkClusterError(f"the JVM that submits jobs did not start: {self._log('gateway')}")
        # No memory management: objects that are collected after the JVM has ended would try to tell it.
        return py4j.java_gateway.JavaGateway(
            gateway_parameters=py4j.java_gateway.GatewayParameters(
                port=int(said[0]), auth_token=said[1], auto_convert=True, enable_memory_management=False
            )
        )

    def _compile(self) -> None:
        """Into the folder that is on the class path of all three JVMs, before two of them start."""
        for name, source in self._sources.items():
            compiler = self.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(source)
            for compiled, code in dict(compiler.getBytecodes()).items():
                file = self.folder / "classes" / f"{compiled.replace('.', '/')}.class"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(code)
            if not (self.folder / "classes" / f"{name.replace('.', '/')}.class").is_file():
                raise FlinkClusterError(f"the Java source for {name} defines another class.")

    def _await_task_manager(self) -> None:
        rest = FlinkRest(self.url)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while True:
                for name, process in self._processes.items():
                    if process.poll() is not None:
                        raise FlinkClusterError(
                            f"Flink's {name} ended with {process.returncode} while it started: {self._log(name)}"
                        )
                with suppress(UnreachableError):
                    if rest.task_managers():
                        return
                if time.monotonic() > deadline:
                    raise FlinkClusterError(
                        f"Flink did not start within {START_TIMEOUT_S:.0f} s: {self._log('taskmanager')}"
                    )
                time.sleep(0.2)
        finally:
            rest.close()

    def _log(self, name: str) -> str:
        """What a process says of its end: the innermost cause, or its last lines."""
        with suppress(OSError):
            lines = (self.folder / f"{name}.log").read_text("utf-8", "replace").strip().splitlines()
            causes = [line for line in lines if line.startswith("Caused by:")]
            return " | ".join(causes[-2:] or lines[-3:]) or "it wrote nothing"
        return "there is no log"

    def _stop(self) -> None:
        """TaskManager first: one that loses its JobManager waits for another."""
        for name in ("gateway", "taskmanager", "jobmanager"):
            process = self._processes.get(name)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def _janino() -> list[Path]:
    """The compiler that Spark ships."""
    import pyspark  # noqa: PLC0415 - large

    jars = Path(pyspark.__file__).parent / "jars"
    return [*jars.glob("janino-*.jar"), *jars.glob("commons-compiler-*.jar")]
