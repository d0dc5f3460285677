"""Everything that changes the system: a handful of operations, so that a test can stop the world at each of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Kernel(Protocol):
    """What translators ask of the operating system; errors are OSError, as the system gives them."""

    def nice(self, tid: int) -> int:
        """A thread's; in a fiftieth of the time that /proc takes to tell it."""

    def set_nice(self, tid: int, nice: int) -> None: ...

    def may_lower_nice(self, to: int) -> bool:
        """Whether a thread that was made less urgent could be brought back to this nice."""

    def write(self, file: Path, text: str) -> None:
        """Into a file of a cgroup that is there; never makes one."""

    def make_group(self, folder: Path) -> None: ...

    def remove_group(self, folder: Path) -> None: ...


class Linux:
    """The real one."""

    def nice(self, tid: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, tid)

    def set_nice(self, tid: int, nice: int) -> None:
        # On Linux PRIO_PROCESS takes thread ids, and sets one thread only.
        os.setpriority(os.PRIO_PROCESS, tid, nice)

    def may_lower_nice(self, to: int) -> bool:
        # Tried, because capabilities do not tell: inside a user namespace the kernel ignores them here. Nice is a
        # thread's own, so a thread that ends right after leaves no trace.
        outcome: list[bool] = []

        def attempt() -> None:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, 19)
                os.setpriority(os.PRIO_PROCESS, 0, to)
            except OSError:
                outcome.append(False)
            else:
                outcome.append(True)

        trial = threading.Thread(target=attempt, name="nice-trial")
        trial.start()
        trial.join()
        return outcome == [True]

    def write(self, file: Path, text: str) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def make_group(self, folder: Path) -> None:
        folder.mkdir()

    def remove_group(self, folder: Path) -> None:
        folder.rmdir()
