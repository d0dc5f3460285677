"""Start, find and stop one broker on loopback; its folder is all that is needed to find it again.

What topics hold stays in the folder: a broker that is started there again has it, as one that comes back would.
"""

from __future__ import annotations

import fcntl
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from slackwater.cluster import daemons
from slackwater.drivers.spark.java import find_java
from slackwater.errors import KafkaError
from slackwater.kafka import server
from slackwater.kafka.jars import broker_jars
from slackwater.kafka.model import BrokerPlan, BrokerState, BrokerStatus, read_state, write_state
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from types import TracebackType

_STATE: Final = "broker.json"
_LOCK: Final = "lock"
_LOG: Final = "broker.log"
_POLL_S: Final = 0.05
_START_S: Final = 180.0
_PATIENCE_S: Final = 20.0


def default_folder() -> Path:
    """Where the broker of the command line keeps its state, its log and its topics."""
    return daemons.state_folder("kafka")


class Broker:
    """A broker in KRaft mode, in a JVM of its own. As a context manager it is started and stopped at the end.

    detached: it outlives this process, and another one stops it; otherwise it ends when this process does.
    """

    def __init__(self, folder: Path, plan: BrokerPlan | None = None, *, detached: bool = False) -> None:
        self.folder = folder.absolute()
        self.plan = plan or BrokerPlan()
        self._detached = detached
        self._proc = Proc()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What clients name as bootstrap servers."""
        state = read_state(self.folder / _STATE)
        if state is None or not self._proc.alive(state.process):
            raise KafkaError(f"no broker runs in {self.folder}. Start one: slackwater kafka start --dir {self.folder}")
        return state.servers

    def start(self) -> BrokerStatus:
        """Start it and wait until it serves; on trouble nothing is left running."""
        if not (self._proc.root / "self" / "stat").exists():
            raise KafkaError("a broker can be started where /proc tells who a process is: on Linux.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            known = read_state(self.folder / _STATE)
            if known is not None and self._proc.alive(known.process):
                raise KafkaError(
                    f"a broker is there already: {known.servers}, its state in {self.folder}. "
                    f"Use it, stop it first (slackwater kafka stop), or name another folder with --dir."
                )
            java_home = find_java().home
            if self.plan.port:
                daemons.require_free(self.plan.port)
            port, controller_port = daemons.free_ports(2)
            port = self.plan.port or port
            server.prepare(self.folder, java_home, self.plan, port, controller_port)
            log = self.folder / _LOG
            self._child = server.start(self.folder, java_home, self.plan, log, detached=self._detached)
            identity = self._proc.process(self._child.pid)
            if identity is None:
                self._child.wait()
                raise server.died(log)
            kafka = next(jar.version for jar in broker_jars().jars if jar.artifact.startswith("kafka_"))
            state = BrokerState(self.plan, kafka, identity.pid, identity.started_ticks, port, controller_port, str(log))
            write_state(self.folder / _STATE, state)
            try:
                self._await_serving(state)
            except BaseException:
                self._stop()
                raise
        return self.status()

    def stop(self) -> bool:
        """End it in order; True where it had to be killed."""
        if not self.folder.is_dir():
            return False
        with self._locked():
            return self._stop()

    def status(self) -> BrokerStatus:
        state = read_state(self.folder / _STATE)
        if state is None:
            return BrokerStatus(running=False, folder=str(self.folder))
        return BrokerStatus(
            running=self._proc.alive(state.process),
            folder=str(self.folder),
            servers=state.servers,
            kafka=state.kafka,
            pid=state.pid,
            log=state.log,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_serving(self, state: BrokerState) -> None:
        give_up = time.monotonic() + _START_S
        while not (server.STARTED in server.read_log(Path(state.log)) and _answers(state.port)):
            if not self._proc.alive(state.process):
                raise server.died(Path(state.log))
            if time.monotonic() > give_up:
                raise KafkaError(f"the broker does not serve after {_START_S:.0f} s; its log is {state.log}.")
            time.sleep(_POLL_S)

    def _stop(self) -> bool:
        state = read_state(self.folder / _STATE)
        killed = []
        if state is not None:
            killed = daemons.end([state.process], self._proc, _PATIENCE_S)
            (self.folder / _STATE).unlink()
        if self._child is not None:
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child.wait()
            self._child = None
        return bool(killed)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time starts or stops."""
        with (self.folder / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KafkaError(
                    f"another process is starting or stopping the broker in {self.folder}. Try again when it is done."
                ) from None
            yield


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((server.LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False
