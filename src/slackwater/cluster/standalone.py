"""Start, watch, disturb and stop a standalone cluster; its folder is all that is needed to find it again."""

from __future__ import annotations

import fcntl
import shutil
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from slackwater.cluster import daemons
from slackwater.cluster.master import read_page
from slackwater.cluster.model import (
    ApplicationStatus,
    ClusterPlan,
    ClusterState,
    ClusterStatus,
    Daemon,
    WorkerCondition,
    WorkerStatus,
    read_state,
    write_state,
)
from slackwater.drivers.spark.java import find_java
from slackwater.errors import ClusterError
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from slackwater.cluster.master import MasterPage
    from slackwater.translators.identity import ProcessId

_STATE: Final = "cluster.json"
_LOCK: Final = "lock"
_POLL_S: Final = 0.1
_START_S: Final = 120.0
_PATIENCE_S: Final = 10.0


def default_folder() -> Path:
    """Where the cluster of the command line keeps its state and logs."""
    return daemons.state_folder("cluster")


class Standalone:
    """A master and workers on loopback. As a context manager it starts the cluster and stops it at the end.

    detached: the daemons outlive this process, and another one stops them; otherwise they share its process group.
    """

    def __init__(self, folder: Path, plan: ClusterPlan | None = None, *, detached: bool = False) -> None:
        self.folder = folder.absolute()
        self.plan = plan or ClusterPlan()
        self._detached = detached
        self._proc = Proc()
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """What an application names as its master."""
        return _url(self._running_state())

    def start(self) -> ClusterStatus:
        """Start everything and wait until all workers are registered; on trouble nothing is left running."""
        if not (self._proc.root / "self" / "stat").exists():
            raise ClusterError("a cluster can be started where /proc tells who a process is: on Linux.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            known = read_state(self.folder / _STATE)
            if known is not None and any(self._proc.alive(daemon.process) for daemon in known.daemons):
                raise ClusterError(
                    f"a cluster is there already: {_url(known)}, its state in {self.folder}. "
                    f"Use it, stop it first (slackwater cluster stop), or name another folder with --dir."
                )
            home = daemons.spark_home()
            java_home = str(find_java().home)
            if self.plan.port:
                daemons.require_free(self.plan.port)
            self._end(daemons.executors(self.folder, self._proc))
            for name in ("conf", "logs", "work", "local"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
                (self.folder / name).mkdir()
            state = ClusterState(self.plan, java_home, str(home), _spark_version())
            try:
                state = self._start_master(state)
                for number in range(self.plan.workers):
                    state = self._start_worker(state, number)
                self._await_registered(state, set(state.workers))
            except BaseException:
                self._stop()
                raise
        return self.status()

    def stop(self) -> list[int]:
        """End workers, master and executors; returns the pids of those that had to be killed."""
        if not self.folder.is_dir():
            return []
        with self._locked():
            return self._stop()

    def status(self) -> ClusterStatus:
        """What runs, by the processes themselves and by the master's word."""
        self._reap()
        state = read_state(self.folder / _STATE)
        if state is None or state.master is None:
            return ClusterStatus(running=False, folder=str(self.folder))
        running = self._proc.alive(state.master.process)
        page = read_page(state.master.web_port) if running else None
        apps = [] if page is None else [ApplicationStatus(a.id, a.name, a.cores) for a in page.activeapps]
        return ClusterStatus(
            running=running,
            folder=str(self.folder),
            url=_url(state),
            web_url=f"http://{daemons.LOOPBACK}:{state.master.web_port}",
            spark=state.spark,
            java_home=state.java_home,
            master_pid=state.master.pid,
            workers=[self._worker(state, number, page) for number in sorted(state.workers)],
            applications=apps,
            executors=len(self.executors()),
        )

    def executors(self) -> list[ProcessId]:
        """The executors' JVMs, without their Python processes."""
        found = daemons.executors(self.folder, self._proc)
        return [process for process in found if daemons.EXECUTOR in self._proc.command_line(process)]

    def kill_executor(self, working_in: str | None = None) -> ProcessId | None:
        """SIGKILL, as a machine's trouble would, to the executor with this working folder, or to the youngest.

        None where there is none.
        """
        found = sorted(self.executors(), key=lambda process: process.started_ticks)
        for process in reversed(found):
            if working_in is not None and daemons.folder_of(process, self._proc) != working_in:
                continue
            if daemons.send(process, signal.SIGKILL, self._proc):
                return process
        return None

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker; its executors see that it is gone and end."""
        worker = self._running_state().workers.get(number)
        if worker is None or not daemons.send(worker.process, signal.SIGKILL, self._proc):
            raise ClusterError(
                f"worker {number} is not running, so it cannot be killed; see `slackwater cluster status`."
            )
        self._until(lambda: not self._proc.alive(worker.process), f"worker {number} to end")
        self._reap()

    def revive(self) -> list[int]:
        """Start workers that are dead again, with as many cores and as much memory; returns their numbers."""
        with self._locked():
            state = self._running_state()
            dead = [n for n, worker in state.workers.items() if not self._proc.alive(worker.process)]
            for number in dead:
                state = self._start_worker(state, number)
            self._await_registered(state, set(dead))
        return sorted(dead)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- starting ---------------------------------------------------------------------------------------------

    def _start_master(self, state: ClusterState) -> ClusterState:
        port, web_port = daemons.free_ports(2)
        master = self._launch(daemons.MASTER, [], state, self.plan.port or port, web_port, "master")
        state = replace(state, master=master)
        write_state(self.folder / _STATE, state)
        self._until(
            lambda: self._alive(master, daemons.MASTER) and read_page(master.web_port) is not None,
            f"the master to answer at port {master.web_port}; its log is {master.log}",
        )
        return state

    def _start_worker(self, state: ClusterState, number: int) -> ClusterState:
        port, web_port = daemons.free_ports(2)
        plan = state.plan
        arguments = ["--cores", str(plan.cores), "--memory", plan.memory]
        arguments += ["--work-dir", str(self.folder / "work" / f"worker-{number}"), _url(state)]
        worker = self._launch(daemons.WORKER, arguments, state, port, web_port, f"worker-{number}")
        state = replace(state, workers={**state.workers, number: worker})
        write_state(self.folder / _STATE, state)
        return state

    def _launch(
        self,
        main_class: str,
        arguments: list[str],
        state: ClusterState,
        port: int,
        web_port: int,
        name: str,
    ) -> Daemon:
        daemon, process = daemons.start(
            main_class,
            arguments,
            environ=daemons.environment(Path(state.spark_home), state.java_home, self.folder),
            port=port,
            web_port=web_port,
            log=self.folder / "logs" / f"{name}.log",
            detached=self._detached,
        )
        self._children.append(process)
        return daemon

    def _await_registered(self, state: ClusterState, numbers: set[int]) -> None:
        master = state.master
        assert master is not None  # noqa: S101 - it was started before its workers

        def all_there() -> bool:
            waited = [state.workers[number] for number in numbers]
            alive = [self._alive(worker, daemons.WORKER) for worker in waited]
            page = read_page(master.web_port) if self._alive(master, daemons.MASTER) and all(alive) else None
            return page is not None and all(page.alive(worker.port) is not None for worker in waited)

        self._until(all_there, f"{len(numbers)} workers to register; their logs are in {self.folder / 'logs'}")

    def _alive(self, daemon: Daemon, main_class: str) -> bool:
        """True, or the error that tells why it ended."""
        self._reap()
        if not self._proc.alive(daemon.process):
            raise daemons.died(main_class, Path(daemon.log))
        return True

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + _START_S
        while not condition():
            if time.monotonic() > give_up:
                raise ClusterError(f"waited {_START_S:.0f} s for {what}.")
            time.sleep(_POLL_S)

    # ---- looking and stopping -----------------------------------------------------------------------------------

    def _worker(self, state: ClusterState, number: int, page: MasterPage | None) -> WorkerStatus:
        daemon = state.workers[number]
        seen = None if page is None else page.alive(daemon.port)
        condition: WorkerCondition = "not registered" if seen is None else "alive"
        if not self._proc.alive(daemon.process):
            condition, seen = "dead", None
        return WorkerStatus(
            number=number,
            condition=condition,
            pid=daemon.pid,
            cores=state.plan.cores,
            cores_used=0 if seen is None else seen.coresused,
            memory=state.plan.memory,
            log=daemon.log,
        )

    def _stop(self) -> list[int]:
        state = read_state(self.folder / _STATE)
        killed = []
        if state is not None:
            # A worker that ends in order ends its executors; those of a killed one may be on their way out.
            killed += self._end([worker.process for worker in state.workers.values()])
            killed += self._end(daemons.executors(self.folder, self._proc))
            if state.master is not None:
                killed += self._end([state.master.process])
            (self.folder / _STATE).unlink()
        shutil.rmtree(self.folder / "local", ignore_errors=True)
        return [process.pid for process in killed]

    def _end(self, processes: list[ProcessId]) -> list[ProcessId]:
        killed = daemons.end(processes, self._proc, _PATIENCE_S)
        self._reap()
        return killed

    def _reap(self) -> None:
        """Collect what has ended: its processor time counts as this process's children's from then on."""
        self._children = [child for child in self._children if child.poll() is None]

    def _running_state(self) -> ClusterState:
        state = read_state(self.folder / _STATE)
        if state is None or state.master is None or not self._proc.alive(state.master.process):
            raise ClusterError(
                f"no cluster runs in {self.folder}. Start one: slackwater cluster start --dir {self.folder}"
            )
        return state

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time starts, revives or stops."""
        with (self.folder / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClusterError(
                    f"another process is starting or stopping the cluster in {self.folder}. Try again when it is done."
                ) from None
            yield


def _url(state: ClusterState) -> str:
    port = state.plan.port if state.master is None else state.master.port
    return f"spark://{daemons.LOOPBACK}:{port}"


def _spark_version() -> str:
    import pyspark  # noqa: PLC0415 - loaded on use

    return str(pyspark.__version__)
