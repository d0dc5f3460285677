"""Where the CPU controller of cgroups is: version 1, version 2, or a hybrid of both; and who is in which group."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slackwater.errors import EnforcementError

if TYPE_CHECKING:
    from slackwater.translators.processes import Proc

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted tree of groups. `root` is the group that is seen at the mount point, "/" outside containers."""

    version: Literal[1, 2]
    mount: Path
    root: str

    def group_of(self, proc: Proc, pid: int, tid: int | None = None) -> Path | None:
        """The folder of a process's or a thread's group; None when it is gone."""
        content = proc.groups(pid, tid)
        path = self._path_in(content) if content is not None else None
        return None if path is None else self._folder(path, pid)

    def _path_in(self, content: str) -> str | None:
        for line in content.splitlines():
            _, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(",") if self.version == 1 else not controllers:
                return path
        return None

    def _folder(self, path: str, pid: int) -> Path:
        # A group that was removed while a process lived on in it is named so.
        path = path.removesuffix(" (deleted)")
        root = self.root.rstrip("/")
        if (path != root and not path.startswith(f"{root}/")) or path.startswith("/.."):
            raise EnforcementError(
                f"process {pid} is in the cgroup {path}, which cannot be seen from here: {self.mount} begins at "
                f"{self.root}. Run Slackwater on the host, or in the host's cgroup namespace."
            )
        return self.mount / path[len(root) :].lstrip("/")


def find_hierarchy(proc: Proc) -> Hierarchy:
    """The tree that has the CPU controller. On hybrid hosts that is version 1's, if it is mounted there.

    Read from mountinfo rather than from mounts, because only that tells which part of the tree a container sees.
    """
    try:
        lines = (proc.root / "self" / "mountinfo").read_text("utf-8").splitlines()
    except OSError as error:
        raise EnforcementError(
            f"cgroups cannot be looked for: {error}. They need Linux with /proc; use the nice translator elsewhere."
        ) from error
    unified: Hierarchy | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split()[:3]
        root, mount = _plain(fields[3]), Path(_plain(fields[4]))
        if kind == "cgroup" and "cpu" in options.split(","):
            return Hierarchy(1, mount, root)
        if kind == "cgroup2" and unified is None:
            unified = Hierarchy(2, mount, root)
    if unified is None:
        raise EnforcementError(
            "no cgroup hierarchy with the cpu controller is mounted. Mount cgroup2 on /sys/fs/cgroup, let the "
            "container see it, or use the nice translator."
        )
    return unified


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
