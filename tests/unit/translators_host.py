"""A host that does not exist: /proc and cgroup trees in a folder, with a kernel that behaves like the real one.

It can be stopped before any of its operations, as by a kill, to see whether what was done can be put back.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from slackwater.translators.identity import ProcessId, ThreadId
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from pathlib import Path

V1_FILES = {
    "cgroup.procs": "",
    "tasks": "",
    "cpu.shares": "1024\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.cfs_quota_us": "-1\n",
}
V2_FILES = {"cgroup.procs": "", "cgroup.controllers": "", "cgroup.subtree_control": ""}
V2_CPU = {"cpu.weight": "100\n", "cpu.max": "max 100000\n"}


class Killed(BaseException):
    """What a kill -9 looks like from inside: nothing after it happens."""


@dataclass
class FakeThread:
    pid: int
    started: int
    nice: int
    group: str
    name: str = "thread"


@dataclass
class FakeProcess:
    started: int
    parent: int
    command: tuple[str, ...] = ()


class FakeProc(Proc):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.ticks = 1000

    def now_ticks(self) -> int:
        return self.ticks


@dataclass
class Host:
    folder: Path
    version: Literal[1, 2]
    may_lower: int = -20
    foreign: frozenset[int] = frozenset()
    processes: dict[int, FakeProcess] = field(default_factory=dict)
    threads: dict[int, FakeThread] = field(default_factory=dict)
    operations: int = 0
    kill_at: int | None = None
    shown: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.proc_root, self.mount = self.folder / "proc", self.folder / "cgroup"
        (self.proc_root / "self").mkdir(parents=True)
        (self.proc_root / "sys/kernel/random").mkdir(parents=True)
        (self.proc_root / "sys/kernel/random/boot_id").write_text("boot-1\n")
        kind, options = ("cgroup", "rw,cpu,cpuacct") if self.version == 1 else ("cgroup2", "rw")
        (self.proc_root / "self/mountinfo").write_text(
            "22 1 0:20 / /proc rw - proc proc rw\n"
            f"30 22 0:26 / {self.mount} rw,nosuid shared:9 - {kind} {kind} {options}\n"
        )
        self.proc = FakeProc(self.proc_root)
        self._group_files(self.mount, cpu=False)
        if self.version == 2:
            (self.mount / "cgroup.controllers").write_text("cpuset cpu io memory\n")
            (self.mount / "cgroup.subtree_control").write_text("cpu memory\n")
        self.add(1, parent=0)

    # What tests do to it.

    def group(self, name: str) -> Path:
        folder = self.mount / name
        for part in [folder, *folder.parents][: len(name.split("/"))][::-1]:
            part.mkdir(exist_ok=True)
            self._group_files(part, cpu=True)
        return folder

    def add(
        self, pid: int, *, parent: int = 1, group: str = "", nice: int = 0, threads: int = 0, started: int | None = None
    ) -> ProcessId:
        born = self.proc.ticks if started is None else started
        self.processes[pid] = FakeProcess(born, parent, ("java", f"app-{pid}"))
        self.threads[pid] = FakeThread(pid, born, nice, group)
        for number in range(threads):
            self.threads[pid + 1 + number] = FakeThread(pid, born, nice, group)
        self.flush()
        return ProcessId(pid, born)

    def fork(self, parent: int, pid: int) -> ProcessId:
        main = self.threads[parent]
        return self.add(pid, parent=parent, group=main.group, nice=main.nice)

    def clone(self, creator: int, tid: int) -> ThreadId:
        """A new thread takes its creator's nice and group."""
        old = self.threads[creator]
        self.threads[tid] = FakeThread(old.pid, self.proc.ticks, old.nice, old.group)
        self.flush()
        return ThreadId(old.pid, tid, self.proc.ticks)

    def end(self, pid: int) -> None:
        del self.processes[pid]
        self.threads = {tid: thread for tid, thread in self.threads.items() if thread.pid != pid}
        self.flush()

    def state(self) -> tuple[dict[int, int], dict[int, str], set[str]]:
        """Nice and group of every thread, and the groups there are."""
        return (
            {tid: thread.nice for tid, thread in self.threads.items()},
            {tid: thread.group for tid, thread in self.threads.items()},
            {str(path.relative_to(self.mount)) for path in self.mount.rglob("*") if path.is_dir()},
        )

    # The kernel.

    def nice(self, tid: int) -> int:
        if tid not in self.threads:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return self.threads[tid].nice

    def set_nice(self, tid: int, nice: int) -> None:
        self._operation()
        if tid not in self.threads:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if self.threads[tid].pid in self.foreign:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if nice < self.threads[tid].nice and nice < self.may_lower:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.threads[tid].nice = nice
        self.flush()

    def may_lower_nice(self, to: int) -> bool:
        return to >= self.may_lower

    def write(self, file: Path, text: str) -> None:
        self._operation()
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if file.name in ("cgroup.procs", "tasks"):
            self._move(int(text), file.parent, whole=file.name == "cgroup.procs")
        elif file.name == "cgroup.subtree_control":
            file.write_text("cpu\n")
            for below in file.parent.iterdir():
                if below.is_dir():
                    self._group_files(below, cpu=True)
        else:
            file.write_text(text)

    def make_group(self, folder: Path) -> None:
        self._operation()
        folder.mkdir()
        handed_down = self.version == 1 or "cpu" in (folder.parent / "cgroup.subtree_control").read_text().split()
        self._group_files(folder, cpu=handed_down)

    def remove_group(self, folder: Path) -> None:
        self._operation()
        if not folder.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if (folder / "cgroup.procs").read_text() or any(path.is_dir() for path in folder.iterdir()):
            raise OSError(errno.EBUSY, "Device or resource busy")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        del self.shown[folder / "cgroup.procs"]

    def _operation(self) -> None:
        if self.operations == self.kill_at:
            raise Killed
        self.operations += 1

    def _move(self, number: int, folder: Path, *, whole: bool) -> None:
        if number not in self.threads:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if self.version == 2 and folder != self.mount and (folder / "cgroup.subtree_control").read_text():
            raise OSError(errno.EBUSY, "Device or resource busy")
        group = "" if folder == self.mount else str(folder.relative_to(self.mount))
        for tid, thread in self.threads.items():
            if tid == number or (whole and thread.pid == number):
                thread.group = group
        self.flush()

    def _group_files(self, folder: Path, *, cpu: bool) -> None:
        files = V1_FILES if self.version == 1 else V2_FILES | (V2_CPU if cpu else {})
        for name, content in files.items():
            if not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(content)
        self.shown[folder / "cgroup.procs"] = (folder / "cgroup.procs").read_text()
        if self.version == 2 and cpu:
            (folder / "cgroup.controllers").write_text("cpu\n")

    def flush(self) -> None:
        """Everything that /proc and the groups show, where it has changed."""
        for entry in self.proc_root.iterdir():
            if entry.name.isdigit() and int(entry.name) not in self.processes:
                shutil.rmtree(entry)
                self.shown = {path: text for path, text in self.shown.items() if not path.is_relative_to(entry)}
        for pid, process in self.processes.items():
            self._task(self.proc_root / str(pid), self.threads[pid], pid, process)
            self._show(self.proc_root / str(pid) / "cmdline", "\0".join(process.command) + "\0")
        for tid, thread in self.threads.items():
            self._task(self.proc_root / f"{thread.pid}/task/{tid}", thread, tid, self.processes[thread.pid])
        for listing in [path for path in self.shown if path.name == "cgroup.procs"]:
            group = "" if listing.parent == self.mount else str(listing.parent.relative_to(self.mount))
            here = sorted({thread.pid for thread in self.threads.values() if thread.group == group})
            self._show(listing, "".join(f"{pid}\n" for pid in here))

    def _task(self, folder: Path, thread: FakeThread, number: int, process: FakeProcess) -> None:
        hundredths = os.sysconf("SC_CLK_TCK")
        fields = ["S", process.parent, *[0] * 9, hundredths, hundredths, 0, 0, 20, thread.nice, 1, 0, thread.started, 0]
        self._show(folder / "stat", f"{number} ({thread.name}) {' '.join(map(str, fields))}\n")
        lines = "3:cpuset:/\n2:cpu,cpuacct:/{0}\n0::/\n" if self.version == 1 else "0::/{0}\n"
        self._show(folder / "cgroup", lines.format(thread.group))

    def _show(self, file: Path, text: str) -> None:
        if self.shown.get(file) != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            self.shown[file] = text
