"""What a cluster on this machine is made of, and what its folder remembers of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.translators.identity import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

WorkerCondition = Literal["alive", "dead", "not registered"]

MOST_WORKERS = 64
_MEMORY = re.compile(r"([1-9]\d*)([mg])", re.IGNORECASE)


@dataclass(frozen=True)
class ClusterPlan:
    """So many workers, each with so many cores and so much memory for executors; port 0 is any that is free."""

    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    port: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MOST_WORKERS:
            raise ConfigurationError(f"workers={self.workers!r}: from 1 to {MOST_WORKERS} can be started.")
        if self.cores < 1:
            raise ConfigurationError(f"cores={self.cores!r}: a worker needs at least 1.")
        if not _MEMORY.fullmatch(self.memory):
            raise ConfigurationError(f"memory={self.memory!r}: give megabytes or gigabytes, as in 512m or 1g.")
        if self.port != 0 and not 1024 <= self.port <= 65535:
            raise ConfigurationError(f"port={self.port!r}: give 0 for any that is free, or one from 1024 to 65535.")


@dataclass(frozen=True)
class Daemon:
    """A master or worker that was started: which process it is for good, where it listens, where it logs."""

    pid: int
    started_ticks: int
    port: int
    web_port: int
    log: str

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)


@dataclass(frozen=True)
class ClusterState:
    """The state file: enough for another process to look after the cluster."""

    plan: ClusterPlan
    java_home: str
    spark_home: str
    spark: str
    master: Daemon | None = None
    workers: dict[int, Daemon] = field(default_factory=dict)  # by number, from 0

    @property
    def daemons(self) -> list[Daemon]:
        """Workers first: a master that goes before its workers leaves them looking for it."""
        return [*self.workers.values(), *([self.master] if self.master is not None else [])]


@dataclass(frozen=True)
class WorkerStatus:
    """`dead`: its process is gone. `not registered`: it runs, and the master does not count on it."""

    number: int
    condition: WorkerCondition
    pid: int
    cores: int
    cores_used: int
    memory: str
    log: str


@dataclass(frozen=True)
class ApplicationStatus:
    id: str
    name: str
    cores: int


@dataclass(frozen=True)
class ClusterStatus:
    """`running`: the master is there. Executors are counted as processes, whoever they belong to."""

    running: bool
    folder: str
    url: str | None = None
    web_url: str | None = None
    spark: str | None = None
    java_home: str | None = None
    master_pid: int | None = None
    workers: list[WorkerStatus] = field(default_factory=list)
    applications: list[ApplicationStatus] = field(default_factory=list)
    executors: int = 0

    @property
    def cores(self) -> int:
        return sum(worker.cores for worker in self.workers if worker.condition == "alive")


def read_state(file: Path) -> ClusterState | None:
    """None where no cluster was started, or it was stopped."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(
            f"{file} should tell which processes make up the cluster, and cannot be read: {error}. "
            "Look for its processes with `ps`, end them, and delete the file."
        ) from error


def write_state(file: Path, state: ClusterState) -> None:
    """In one step: a process without a note of it would be left behind."""
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    partial.replace(file)
