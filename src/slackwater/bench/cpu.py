"""CPU time of a process tree, and the heap of its JVM."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from slackwater.bench.model import Heap

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

MB = 1024 * 1024
_PR_SET_CHILD_SUBREAPER = 36  # of Linux
# Remark and Cleanup pauses have sizes, too, but free next to nothing.
_GC_LINE = re.compile(r"\[(\d+)ms\].*Pause (?:Young|Full).* \d+M->(\d+)M\(\d+M\)")
_GC_OLD = re.compile(r"\[(\d+)ms\].*Pause (Young|Full)(.*) \d+M->(\d+)M\(\d+M\)")
_GC_PAUSE = re.compile(r"\[(\d+)ms\].*Pause .* (\d+(?:\.\d+)?)ms")


def tree_cpu_s(without: Collection[int] = ()) -> float:
    """CPU time of this process and all below it so far, those that ended included; `without` these pids."""
    me = psutil.Process()
    used_s = 0.0
    for process in [me, *me.children(recursive=True)]:
        if process.pid in without:
            continue
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # A child's time moves to its parent when it ends, so nothing is counted twice.
        used_s += times.user + times.system + times.children_user + times.children_system
    return used_s


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own below this process, so that its time stays in `tree_cpu_s`.

    Executors of a worker that is killed would belong to init, and take what they have used with them.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process could not become the parent of orphans (prctl)")


def gc_log_option(file: Path) -> str:
    """The JVM option that logs each collection, with the wall time, for `heap_summary`."""
    return f"-Xlog:gc:file={file}:timemillis"


class HeapSampler:
    """Samples the JVM's used heap every second while it runs; ends the process when its parent is gone."""

    def __init__(self, jvm: Any, period_s: float = 1.0) -> None:
        self._runtime = jvm.java.lang.Runtime.getRuntime()
        self._period_s = period_s
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._run, name="heap-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, from_ms: int, to_ms: int) -> list[float]:
        """Used heap in MB, sampled in [from_ms, to_ms)."""
        return [mb for at_ms, mb in self._samples if from_ms <= at_ms < to_ms]

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            if os.getppid() != self._parent:
                # An orphan's measurement helps nobody, and it would disturb the next one.
                os._exit(1)
            used = self._runtime.totalMemory() - self._runtime.freeMemory()
            self._samples.append((time.time() * 1000, used / MB))


def collections_mb(gc_log: str, from_ms: int, to_ms: int) -> list[float]:
    """What was left in the heap after each collection in [from_ms, to_ms), in MB."""
    found = _GC_LINE.findall(gc_log)
    return [float(after) for at_ms, after in found if from_ms <= int(at_ms) < to_ms]


def live_mb(gc_log: str, from_ms: int, to_ms: int) -> list[float]:
    """What really lived, in MB, each time the old generation had been cleared in [from_ms, to_ms).

    A young collection leaves the old generation's garbage where it is. G1 clears it in runs of mixed collections, of
    which the last tells, and in full ones.
    """
    found: list[float] = []
    in_run = False
    for at_ms, kind, how, after in _GC_OLD.findall(gc_log):
        clears = kind == "Full" or "(Mixed)" in how
        if clears and from_ms <= int(at_ms) < to_ms:
            found[len(found) - in_run :] = [float(after)]
            in_run = kind != "Full"
        else:
            in_run = False
    return found


def paused_pct(gc_log: str, from_ms: int, to_ms: int) -> float:
    """Share of [from_ms, to_ms) in which collections held everything up."""
    paused_ms = sum(float(pause) for at_ms, pause in _GC_PAUSE.findall(gc_log) if from_ms <= int(at_ms) < to_ms)
    return round(100 * paused_ms / max(1, to_ms - from_ms), 2)


def heap_summary(
    used_mb: Sequence[float], after_gc_mb: Sequence[float], live: Sequence[float] = (), paused: float | None = None
) -> Heap:
    return Heap(
        mean=round(float(np.mean(used_mb)), 1) if used_mb else None,
        p90=round(float(np.percentile(used_mb, 90)), 1) if used_mb else None,
        max=round(max(used_mb), 1) if used_mb else None,
        after_gc_mean=round(float(np.mean(after_gc_mb)), 1) if after_gc_mb else None,
        after_gc_max=max(after_gc_mb) if after_gc_mb else None,
        count=len(used_mb),
        live_mean=round(float(np.mean(live)), 1) if live else None,
        live_max=max(live) if live else None,
        paused_pct=paused,
    )
