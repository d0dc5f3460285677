"""`slackwater bench middleware-cost`: what the middleware itself takes of a host, with many entities to order.

Its applications are endpoints that tell a made-up status, and their JVMs are processes that rest with as many threads
as a JVM has: the middleware cannot tell them from real ones, and nothing else on the host is disturbed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.bench.neighbours import RunningMiddleware
from slackwater.endpoint.overview import Overview, QueryOverview
from slackwater.endpoint.server import Endpoint
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COST = "bench-middleware-cost"
THREADS_OF_A_JVM = 80
_MOST_SHARE = 0.01
_STARTING_S = 60.0
_RESTING = """
import sys, threading
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.stdin.read()
"""


def middleware_cost(
    entities: int, applications: int, seconds: float, period_s: float, seed: int, told: Callable[[str], None]
) -> Experiment:
    rows = []
    for mechanism in ("nice", "cgroup"):
        told(f"{mechanism}: {entities} queries of {applications} applications, a period of {period_s:g} s")
        rows.append(_run(mechanism, entities, applications, seconds, period_s, seed))
    claims = [
        claim(f"{row['mechanism']}: share of one core at a {period_s:g} s period", row["CPU share"], "≤", _MOST_SHARE)
        for row in rows
    ]
    return Experiment(COST, seed, rows, claims, assumptions=_ASSUMPTIONS)


_ASSUMPTIONS = [
    f"each application is one process with {THREADS_OF_A_JVM} threads, whose queues change every period",
    "CPU time of the middleware's process over wall time, after its first period",
]


def _run(
    mechanism: str, entities: int, applications: int, seconds: float, period_s: float, seed: int
) -> dict[str, Any]:
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="slackwater-cost-") as folder:
        for number in range(applications):
            jvm = subprocess.Popen([sys.executable, "-c", _RESTING, str(THREADS_OF_A_JVM)], stdin=subprocess.PIPE)
            running.callback(jvm.communicate)
            queries = entities // applications + (number < entities % applications)
            status = _Status(f"app-{number}", jvm.pid, queries, seed)
            running.callback(
                Endpoint(
                    application_id=f"app-{number}",
                    name=f"app-{number}",
                    reads={"/api/status": status},
                    folder=Path(folder) / "run",
                ).close
            )
        config = Path(folder) / "middleware.toml"
        config.write_text(
            f'period_s = {period_s}\njournal = "{folder}/journal"\ncgroup_parent = "slackwater-cost"\n'
            f'[[driver]]\nkind = "slackwater"\nfolder = "{folder}/run"\n'
            f'[[policy]]\npolicy = "qs"\nmechanism = "{mechanism}"\n'
        )
        middleware = running.enter_context(RunningMiddleware(config))
        _await(lambda: len(middleware.rounds) >= 3 and bool(middleware.rounds[-1]["applications"]), middleware)
        rounds, began_s, cpu_s = len(middleware.rounds), time.monotonic(), middleware.cpu_s()
        time.sleep(seconds)
        middleware.check()
        span_s = time.monotonic() - began_s
        seen = middleware.rounds[-1]
        return {
            "mechanism": mechanism,
            "entities": sum(len(application["operators"]) for application in seen["applications"]),
            "applications": len(seen["applications"]),
            "threads": applications * (THREADS_OF_A_JVM + 1),
            "periods": len(middleware.rounds) - rounds,
            "seconds": round(span_s, 1),
            "CPU share": round((middleware.cpu_s() - cpu_s) / span_s, 5),
        }


class _Status:
    """An application's status, with other queues at every question."""

    def __init__(self, name: str, pid: int, queries: int, seed: int) -> None:
        self._name = name
        self._pid = pid
        self._queries = queries
        self._lots = random.Random(f"{seed}/{name}")

    def __call__(self, _: Mapping[str, str]) -> Overview:
        return Overview(
            version="0",
            application_id=self._name,
            name=self._name,
            master="local[2]",
            ui_url=None,
            python_pid=self._pid,
            jvm_pid=self._pid,
            policy="klink",
            cores=2,
            lanes=2,
            wall_ts=time.time(),
            queries=tuple(self._query(number) for number in range(self._queries)),
        )

    def _query(self, number: int) -> QueryOverview:
        return QueryOverview(
            key=f"run-{number}",
            name=f"query-{number}",
            stage="waiting",
            reason="least slack",
            priority_class=0,
            batches=1,
            slack_s=self._lots.uniform(-1, 10),
            watermark_lag_s=2.0,
            last_latency_s=2.0,
            backlog_rows=self._lots.expovariate(1 / 10_000),
            head_age_s=self._lots.uniform(0, 5),
            rows_per_s=10_000.0,
            row_cost_s=1e-5,
            batch_cost_s=0.2,
            sweep_cost_s=0.2,
            selectivity=0.01,
            state_bytes=1_000_000,
        )


def _await(condition: Callable[[], bool], middleware: RunningMiddleware) -> None:
    give_up = time.monotonic() + _STARTING_S
    while not condition():
        middleware.check()
        if time.monotonic() > give_up:
            raise SlackwaterError(f"the middleware read nothing for {_STARTING_S:.0f} s: {list(middleware.lines)}")
        time.sleep(0.05)
