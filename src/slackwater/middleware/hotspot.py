"""Java's names for the threads of a running JVM, by their numbers in the system: no JDK tools are needed.

HotSpot answers a process that attaches to it, over a socket that it opens when it is asked to: a file with an agreed
name, then SIGQUIT. That signal ends what is no JVM, and prints threads where attaching is disabled; so it is sent only
to a process that is known to expect it. A thread dump stops the JVM for a moment: one is taken when threads are there
that have no name yet, and not otherwise.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slackwater.errors import SlackwaterError
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from slackwater.translators.identity import ProcessId, ThreadId
    from slackwater.translators.processes import Thread

TIMEOUT_S: Final = 5.0
RETRY_S: Final = 60.0
DUMP_BYTES_MAX: Final = 64 * 1024 * 1024
KERNEL_NAME_BYTES: Final = 15

# Protocol version, command, three arguments that are not given.
_REQUEST: Final = b"1\0threaddump\0\0\0\0"
_POLL_S: Final = 0.02
_DISABLED: Final = "-XX:+DisableAttachMechanism"
# The virtual machine's own threads, which come and go with the load and never run an operator.
_OWN_THREADS: Final = re.compile(r"(C[12] CompilerThre|GC Thread#|G1 |Shenandoah|XWorker|ZWorker|VM )")
# Hexadecimal before Java 21, decimal since.
_THREAD: Final = re.compile(r'^"(?P<name>.*)" (?:#\d+ )?(?:\[\d+\] )?.*?\bnid=(?P<nid>0x[0-9a-f]+|\d+)\b', re.MULTILINE)


class AttachRefusedError(SlackwaterError, RuntimeError):
    """A process does not tell its threads: no JVM, not ours to ask, or it does not answer."""


@dataclass(frozen=True, slots=True)
class ThreadNames:
    """Names by thread. whole: as Java has them; else the kernel's, cut off after 15 bytes, and `note` says why."""

    names: Mapping[ThreadId, str]
    whole: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    until_s: float


class ThreadNameReader:
    """Tells the names of threads of JVMs, asked every period; a JVM is stopped for it only when it has new threads."""

    def __init__(self, proc: Proc | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._proc = proc or Proc()
        self._timeout_s = timeout_s
        self._known: dict[ProcessId, dict[ThreadId, str]] = {}
        self._refused: dict[ProcessId, _Refusal] = {}

    def read(self, process: ProcessId) -> ThreadNames:
        """The threads of a process now; no names when it is gone.

        A JVM that refused is left alone for a while. What it told before still holds; the names are the kernel's where
        it never told any.
        """
        threads = self._proc.threads(process)
        known = self._known.get(process, {})
        refusal = self._refused.get(process)
        waits = refusal is not None and time.monotonic() < refusal.until_s
        if not waits and any(_wants_a_name(thread, known) for thread in threads):
            try:
                known, refusal = self._ask(process), None
            except AttachRefusedError as error:
                refusal = _Refusal(str(error), time.monotonic() + RETRY_S)
            self._remember(process, known, refusal)
        if refusal is not None and not known:
            return ThreadNames({thread.id: thread.name for thread in threads}, whole=False, note=refusal.why)
        return ThreadNames({thread.id: known[thread.id] for thread in threads if thread.id in known})

    def _remember(self, process: ProcessId, known: dict[ThreadId, str], refusal: _Refusal | None) -> None:
        self._known = {one: names for one, names in self._known.items() if self._proc.alive(one)} | {process: known}
        self._refused = {one: why for one, why in self._refused.items() if one != process and self._proc.alive(one)}
        if refusal is not None:
            self._refused[process] = refusal

    def _ask(self, process: ProcessId) -> dict[ThreadId, str]:
        dump = thread_dump(process, self._proc, self._timeout_s)
        # Listed after the dump: every thread of the dump that still lives is in it.
        threads = self._proc.threads(process)
        inside = _numbers_inside(self._proc, process, threads)
        named = parse_threads(dump)
        # Threads without a name, such as the main thread of the launcher, are known to have none.
        return {thread.id: named.get(inside[thread.id.tid], "") for thread in threads if thread.id.tid in inside}


def thread_dump(process: ProcessId, proc: Proc | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """What `jstack` prints. Raises AttachRefusedError, with what to do."""
    proc = proc or Proc()
    deadline = time.monotonic() + timeout_s
    _check(process, proc)
    inside = _pid_inside(proc, process.pid)
    place = proc.root / str(process.pid) / "root" / "tmp" / f".java_pid{inside}"
    if not _is_socket(place):
        _ask_to_listen(process, proc, inside, place, deadline)
    answer = _exchange(process, place, deadline)
    code, _, dump = answer.partition("\n")
    if code.strip() != "0":
        raise AttachRefusedError(
            f"the JVM {process.pid} refused a thread dump: {answer[:200]!r}. Is it HotSpot (OpenJDK)? Others speak "
            "another protocol."
        )
    return dump


def parse_threads(dump: str) -> dict[int, str]:
    """Names by the thread's number as the JVM sees it, from a dump of any HotSpot since Java 8."""
    return {int(found["nid"], 0): found["name"] for found in _THREAD.finditer(dump)}


def _wants_a_name(thread: Thread, known: Mapping[ThreadId, str]) -> bool:
    return thread.id not in known and not _OWN_THREADS.match(thread.name)


def _check(process: ProcessId, proc: Proc) -> None:
    """Refuse whatever SIGQUIT could harm, and what would not answer."""
    pid = process.pid
    try:
        maps = (proc.root / str(pid) / "maps").read_text("utf-8", "replace")
        status = (proc.root / str(pid) / "status").read_text("utf-8", "replace")
    except PermissionError as error:
        raise AttachRefusedError(
            f"process {pid} belongs to another user: {error.strerror}. Run as that user, or as root."
        ) from error
    except OSError as error:
        raise AttachRefusedError(f"process {pid} is gone: {error.strerror}.") from error
    if "/libjvm.so" not in maps:
        raise AttachRefusedError(f"process {pid} is no JVM: it has no libjvm.so. Name the process of the engine.")
    owner = int(_field(status, "Uid").split()[1])
    if os.geteuid() not in (0, owner):
        raise AttachRefusedError(
            f"the JVM {pid} belongs to user {owner}, this is user {os.geteuid()}, and a JVM answers its own user only. "
            "Run as that user, or as root."
        )
    if not int(_field(status, "SigCgt"), 16) & (1 << (signal.SIGQUIT - 1)):
        raise AttachRefusedError(
            f"the JVM {pid} does not take SIGQUIT: it is still starting, or was started with -Xrs. Start it without."
        )
    said = (*proc.command_line(process), *_options_from_environment(proc, pid))
    if any(_DISABLED in word for word in said):
        raise AttachRefusedError(
            f"the JVM {pid} was started with {_DISABLED}. Start it without, so that its threads can be told apart."
        )
    if not proc.alive(process):
        raise AttachRefusedError(f"process {pid} is gone.")


def _options_from_environment(proc: Proc, pid: int) -> list[str]:
    try:
        content = (proc.root / str(pid) / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    names = ("JAVA_TOOL_OPTIONS=", "JDK_JAVA_OPTIONS=", "_JAVA_OPTIONS=")
    return [word for word in content.split("\0") if word.startswith(names)]


def _ask_to_listen(process: ProcessId, proc: Proc, inside: int, place: Path, deadline: float) -> None:
    with _request_file(process, proc, inside):
        if not proc.alive(process):
            raise AttachRefusedError(f"process {process.pid} is gone.")
        os.kill(process.pid, signal.SIGQUIT)
        while not _is_socket(place):
            if time.monotonic() > deadline:
                raise AttachRefusedError(
                    f"the JVM {process.pid} did not open {place} in time: it may be stopped, or so busy that it takes "
                    "longer. Look whether it runs."
                )
            time.sleep(_POLL_S)


@contextmanager
def _request_file(process: ProcessId, proc: Proc, inside: int) -> Iterator[None]:
    """The file that tells SIGQUIT for attaching from SIGQUIT for a dump; where the JVM looks for it."""
    home = proc.root / str(process.pid)
    why = ""
    for folder in (home / "cwd", home / "root" / "tmp"):
        file = folder / f".attach_pid{inside}"
        try:
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            why = error.strerror or str(error)
            continue
        try:
            yield
        finally:
            with suppress(OSError):
                file.unlink()
        return
    raise AttachRefusedError(
        f"neither the working directory of the JVM {process.pid} nor its /tmp can be written to: {why}. One of them "
        "must be, for a file that asks the JVM to listen."
    )


def _exchange(process: ProcessId, place: Path, deadline: float) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        received = bytearray()
        try:
            connection.settimeout(max(deadline - time.monotonic(), _POLL_S))
            connection.connect(str(place))
            connection.sendall(_REQUEST)
            while True:
                connection.settimeout(max(deadline - time.monotonic(), _POLL_S))
                part = connection.recv(1 << 16)
                if not part:
                    break
                received += part
                if len(received) > DUMP_BYTES_MAX:
                    raise AttachRefusedError(
                        f"the thread dump of the JVM {process.pid} is larger than {DUMP_BYTES_MAX} bytes; no engine "
                        "has that many threads."
                    )
        except OSError as error:
            raise AttachRefusedError(
                f"the JVM {process.pid} did not answer at {place}: {error}. Run as its user, or as root; look whether "
                "it runs."
            ) from error
    return received.decode("utf-8", "replace")


def _is_socket(place: Path) -> bool:
    try:
        return stat.S_ISSOCK(place.stat().st_mode)
    except OSError:
        return False


def _pid_inside(proc: Proc, pid: int) -> int:
    """The number that a process has for itself: another one in a container."""
    try:
        return int(_field((proc.root / str(pid) / "status").read_text("utf-8", "replace"), "NSpid").split()[-1])
    except (OSError, IndexError):
        return pid


def _numbers_inside(proc: Proc, process: ProcessId, threads: list[Thread]) -> dict[int, int]:
    """By a thread's number here, the one that the JVM has for it."""
    if _pid_inside(proc, process.pid) == process.pid:
        return {thread.id.tid: thread.id.tid for thread in threads}
    found = {}
    for thread in threads:
        file = proc.root / str(process.pid) / "task" / str(thread.id.tid) / "status"
        with suppress(OSError, IndexError):
            found[thread.id.tid] = int(_field(file.read_text("utf-8", "replace"), "NSpid").split()[-1])
    return found


def _field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return found[1] if found else ""
