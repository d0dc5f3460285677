"""`make bench-page`: what the live page costs the application that serves it, with 200 queries and a few readers.

The handle, the engine and the endpoint are real; the queries only seem to run. Processor time is that of the endpoint's
own threads (its loop, and the one that makes frames), not of the scheduler, which would run as well without a page.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slackwater.core.engine import EngineSettings
from slackwater.errors import SlackwaterError
from slackwater.provenance import commit
from slackwater.sim.experiment import Experiment, claim
from slackwater.sim.live import Heap, live_application, platform
from slackwater.sim.show import show

QUERIES = 200
READERS = (0, 1, 4, 16)
SECONDS = 60.0
CPU_SHARE = 0.02
TICK_BYTES = 64 * 1024
_ENDPOINT_THREADS = ("slackwater-http", "asyncio_", "AnyIO")


class Reader(threading.Thread):
    """Takes the stream as a browser does, and counts."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._address = urlsplit(url).netloc
        self.sizes: dict[str, list[int]] = {"whole": [], "tick": []}

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address)
        connection.request("GET", "/api/events")
        kind, answer = "", connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                self.sizes[kind].append(len(line))


def cpu_s() -> float:
    """Of the threads that serve, while they live."""
    used = 0.0
    for thread in threading.enumerate():
        if thread.name.startswith(_ENDPOINT_THREADS) and thread.ident is not None:
            used += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return used


def measured(queries: int, readers: int, seconds: float) -> dict[str, Any]:
    """One application here, so many readers in another process, so that they cost this one nothing."""
    settings = EngineSettings(lanes=4)
    with live_application(platform(queries), settings=settings, heap=Heap(), cores=4) as handle:
        command = [sys.executable, __file__, "--read", str(handle.url), str(readers)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
            if others.stdout is None or others.stdout.readline() != b"reading\n":
                raise SlackwaterError("the readers ended before they read anything; see above.")
            before, began = cpu_s(), time.monotonic()
            time.sleep(seconds)
            used, took = cpu_s() - before, time.monotonic() - began
            said = json.loads(others.communicate()[0])
        decision_ms = handle.stats().decision_ms_p99
    return {
        "queries": queries,
        "readers": readers,
        "seconds": round(took, 1),
        "server_cpu_share": round(used / took, 5),
        **said,
        "decision_ms_p99": round(decision_ms, 2),
    }


def read(url: str, readers: int) -> None:
    """The other process: reads, says when it does, and at the end what came."""
    started = [Reader(url) for _ in range(readers)]
    for reader in started:
        reader.start()
    while any(len(reader.sizes["tick"]) < 2 for reader in started):
        time.sleep(0.05)
    print("reading", flush=True)
    sys.stdin.read()
    ticks = [size for reader in started for size in reader.sizes["tick"]]
    facts = {
        "ticks": len(ticks),
        "tick_bytes_mean": round(sum(ticks) / len(ticks)) if ticks else 0,
        "tick_bytes_max": max(ticks, default=0),
        "whole_bytes": max((size for reader in started for size in reader.sizes["whole"]), default=0),
    }
    print(json.dumps(facts))


def experiment(queries: int, readers: tuple[int, ...], seconds: float) -> Experiment:
    rows = [measured(queries, count, seconds) for count in readers]
    claims = []
    for row in rows:
        if row["readers"]:
            whose = f"{queries} queries, {row['readers']} readers"
            claims.append(claim(f"{whose}: share of a core to serve them", row["server_cpu_share"], "≤", CPU_SHARE))
            claims.append(claim(f"{whose}: bytes of the largest tick", row["tick_bytes_max"], "≤", TICK_BYTES))
    assumes = [
        "handle, engine and endpoint are real, queries are simulated in wall time; readers are in another process",
    ]
    return Experiment("page", 0, rows, claims, assumes, commit())


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], int(sys.argv[3]))
        return
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("out", type=Path, nargs="?")
    options.add_argument("--queries", type=int, default=QUERIES)
    options.add_argument("--seconds", type=float, default=SECONDS, help="for each number of readers")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SLACKWATER_RUNTIME_DIR"] = folder + "/run"
        show(experiment(given.queries, READERS, given.seconds), given.out)


if __name__ == "__main__":
    main()
