"""Who a process or a thread is: its number alone does not say, because the kernel gives numbers out again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process for good: its pid and when it started, in the kernel's clock ticks since boot."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True, order=True)
class ThreadId:
    """A thread for good; `pid` is its process."""

    pid: int
    tid: int
    started_ticks: int


Task = ProcessId | ThreadId
