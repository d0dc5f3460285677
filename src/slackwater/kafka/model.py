"""What a broker on this machine is made of, and what its folder remembers of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.translators.identity import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

_HEAP = re.compile(r"([1-9]\d*)([mg])", re.IGNORECASE)


@dataclass(frozen=True)
class BrokerPlan:
    """port 0 is any that is free; heap is that of its JVM."""

    port: int = 0
    heap: str = "256m"

    def __post_init__(self) -> None:
        if self.port != 0 and not 1024 <= self.port <= 65535:
            raise ConfigurationError(f"port={self.port!r}: give 0 for any that is free, or one from 1024 to 65535.")
        if not _HEAP.fullmatch(self.heap):
            raise ConfigurationError(f"heap={self.heap!r}: give megabytes or gigabytes, as in 256m or 1g.")


@dataclass(frozen=True)
class BrokerState:
    """The state file: enough for another process to look after the broker."""

    plan: BrokerPlan
    kafka: str
    pid: int
    started_ticks: int
    port: int
    controller_port: int
    log: str

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True)
class BrokerStatus:
    """servers: what clients name as bootstrap servers."""

    running: bool
    folder: str
    servers: str | None = None
    kafka: str | None = None
    pid: int | None = None
    log: str | None = None


def read_state(file: Path) -> BrokerState | None:
    """None where no broker was started, or it was stopped."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=BrokerState)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(
            f"{file} should tell which process is the broker, and cannot be read: {error}. "
            "Look for it with `ps`, end it, and delete the file."
        ) from error


def write_state(file: Path, state: BrokerState) -> None:
    """In one step: a process without a note of it would be left behind."""
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    partial.replace(file)
