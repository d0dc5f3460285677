"""`make bench-decisions`: how long a decision takes, for every policy, with 100 and with 1000 queries."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from slackwater.provenance import commit
from slackwater.sim.experiment import Experiment, claim
from slackwater.sim.show import show

TEST = "tests/unit/test_decision_time.py"
TARGETS_MS = {100: 2.0, 1000: 10.0}
ROUNDS = {100: 1000, 1000: 400}


def measured(queries: int, folder: Path) -> list[dict[str, Any]]:
    file = folder / f"{queries}.json"
    options = [f"--decision-queries={queries}", f"--decision-rounds={ROUNDS[queries]}", f"--benchmark-json={file}"]
    quiet = ["-q", "-p", "no:randomly", "--timeout=0", "--benchmark-only", "--benchmark-columns=median,max"]
    subprocess.run([sys.executable, "-m", "pytest", TEST, *quiet, *options], check=True)
    found = json.loads(file.read_text("utf-8"))["benchmarks"]
    return [
        {
            "policy": run["params"]["policy"],
            "queries": queries,
            "p50_ms": round(1000 * run["stats"]["median"], 3),
            "p99_ms": run["extra_info"]["p99_ms"],
            "p99_cpu_ms": run["extra_info"]["p99_cpu_ms"],
            "decisions": run["stats"]["rounds"],
        }
        for run in found
    ]


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for queries in TARGETS_MS for row in measured(queries, Path(folder))]
    claims = [
        claim(f"{row['policy']}, {row['queries']} queries: p99 of a decision, ms", row["p99_ms"], "≤", target)
        for row in rows
        for target in [TARGETS_MS[row["queries"]]]
    ]
    show(Experiment("decisions", 0, rows, claims, commit=commit()), out)


if __name__ == "__main__":
    main()
