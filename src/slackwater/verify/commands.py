"""`slackwater verify WORKLOAD`: print what is equal and what is not, and write it as JSON."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from slackwater.errors import ConfigurationError, SlackwaterError, unknown_name
from slackwater.extras import require
from slackwater.policies.registry import known_policies
from slackwater.provenance import commit
from slackwater.verify.model import Settings, Trial, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.verify.model import Differences, Outcome, Row

ALL = "all"
SHOWN = 10


def verify(
    workload: str,
    *,
    policies: str = "klink,round-robin",
    size: int = 5000,
    seed: int = 1,
    restarts: Annotated[bool, Parameter(negative=())] = False,
    kill_scheduler: Annotated[bool, Parameter(negative=())] = False,
    files: int = 4,
    timeout: float = 600.0,
    json: Path | None = None,
) -> None:
    """Run the same rows through an oracle, plain Spark and Slackwater, and compare the answers row by row.

    Ends with 0 only if all are equal.

    Parameters
    ----------
    workload
        A workload by name, or `all`.
    policies
        Names of policies with commas between them, or `all`. Plain Spark is always there.
    size
        About so many rows.
    seed
        Of the rows.
    restarts
        Stop all queries in the middle, and start them again from their checkpoints.
    kill_scheduler
        Have the scheduler die in the middle; the queries must go on without.
    files
        So many files of each table, one in each micro-batch.
    timeout
        Seconds within which all queries must have done everything, each way.
    json
        Write the outcome to this file.
    """
    from slackwater.workloads.finite_registry import (  # noqa: PLC0415  # Spark is loaded on use
        FINITE,
        PANDAS_WORKLOADS,
        finite_workload,
    )

    chosen = list(FINITE.values()) if workload == ALL else [finite_workload(workload)]
    if size < 1:
        raise ConfigurationError(f"--size {size}: give 1 or more.")
    settings = Settings(files=files, timeout_s=timeout)
    trials = [Trial(policy, restarts, kill_scheduler) for policy in (None, *_policies(policies))]

    if any(one.name in PANDAS_WORKLOADS for one in chosen):
        require(f"slackwater verify {workload}", "pandas", "pyarrow")

    from slackwater.verify.run import verify as verify_one  # noqa: PLC0415
    from slackwater.verify.session import small_session  # noqa: PLC0415

    verdicts = []
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-verify-", ignore_cleanup_errors=True) as scratch,
        small_session(Path(scratch)) as spark,
    ):
        for one in chosen:
            print(f"{one.name}: {one.about}", flush=True)
            verdicts.append(verify_one(spark, one, trials, seed=seed, size=size, settings=settings, told=tell))
    if json is not None:
        write(verdicts, json)
    outcomes = [outcome for verdict in verdicts for outcome in verdict.outcomes]
    wrong = [f"{v.workload} ({o.trial.name})" for v in verdicts for o in v.outcomes if not o.equal]
    if wrong:
        raise SlackwaterError(f"{len(wrong)} of {len(outcomes)} runs differ from the oracle: {', '.join(wrong)}.")
    print(f"{len(outcomes)} of {len(outcomes)} runs are equal to the oracle")


def tell(outcome: Outcome) -> None:
    """A line for each way, and the first rows that are not as they should be."""
    for line in lines(outcome):
        print(line, flush=True)


def lines(outcome: Outcome) -> list[str]:
    head = f"  {outcome.trial.name:<14}"
    facts = [f"{sum(outcome.batches.values())} batches of {len(outcome.batches)} queries", f"{outcome.seconds:.0f} s"]
    if outcome.killed_after is not None:
        facts.append(f"scheduler killed after {outcome.killed_after} batches")
    if outcome.restarted_after is not None:
        facts.append(f"restarted after {outcome.restarted_after} batches")
    if outcome.error is not None:
        return [f"{head} FAILED   {'; '.join(facts)}", f"    {outcome.error}"]
    rows = sum(differences.expected_rows for differences in outcome.outputs.values())
    if outcome.equal:
        return [f"{head} equal    {rows} rows of {len(outcome.outputs)} outputs; {'; '.join(facts)}"]
    told = [f"{head} DIFFERS  {'; '.join(facts)}"]
    for name, differences in outcome.outputs.items():
        if not differences.equal:
            told += _differences(name, differences)
    return told


def _differences(name: str, found: Differences) -> list[str]:
    told = [f"    {name}: {found.expected_rows} rows expected, {found.found_rows} found"]
    for what, rows in (("missing", found.missing), ("surplus", found.surplus)):
        told += _some(what, [_row(row) for row in rows])
    return told + _some("different", [f"expected {_row(left)}, found {_row(right)}" for left, right in found.different])


def _some(what: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    more = [f"        … and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return [f"      {what}: {len(rows)}", *(f"        {row}" for row in rows[:SHOWN]), *more]


def _row(row: Row) -> str:
    return "(" + ", ".join(map(str, row)) + ")"


def write(verdicts: Sequence[Verdict], file: Path) -> None:
    """In the form of a benchmark's results: what each run gave, and for each whether every row was equal."""
    rows: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for verdict in verdicts:
        for outcome in verdict.outcomes:
            rows += _rows(verdict, outcome)
            wrong = sum(_wrong(differences) for differences in outcome.outputs.values())
            claims.append(
                {
                    "claim": f"{verdict.workload}, {outcome.trial.name}: rows that are not the oracle's",
                    "target": "= 0",
                    "measured": wrong if outcome.error is None else outcome.error,
                    "holds": outcome.equal,
                }
            )
    seed = verdicts[0].seed if verdicts else None
    result = {"experiment": "verify", "seed": seed, "commit": commit(), "rows": rows, "claims": claims}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def _rows(verdict: Verdict, outcome: Outcome) -> list[dict[str, Any]]:
    common = {
        "workload": verdict.workload,
        "input_rows": dict(verdict.rows),
        "way": outcome.trial.name,
        "seconds": round(outcome.seconds, 1),
        "batches": dict(outcome.batches),
        "decisions": outcome.decisions,
        "killed_after": outcome.killed_after,
        "restarted_after": outcome.restarted_after,
    }
    if outcome.error is not None:
        return [common | {"error": outcome.error}]
    return [
        common
        | {
            "output": name,
            "expected_rows": found.expected_rows,
            "found_rows": found.found_rows,
            "missing": len(found.missing),
            "surplus": len(found.surplus),
            "different": len(found.different),
            "first_missing": [_row(row) for row in found.missing[:SHOWN]],
            "first_surplus": [_row(row) for row in found.surplus[:SHOWN]],
            "first_different": [[_row(left), _row(right)] for left, right in found.different[:SHOWN]],
        }
        for name, found in outcome.outputs.items()
    ]


def _wrong(found: Differences) -> int:
    return len(found.missing) + len(found.surplus) + len(found.different)


def _policies(given: str) -> list[str]:
    known = known_policies()
    if given == ALL:
        return known
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown_name("policy", name, known)
    return list(dict.fromkeys(names))
