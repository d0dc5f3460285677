"""`slackwater chaos`: put queries through one trouble after the other, then start and stop many of them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.provenance import commit
from slackwater.sim.experiment import Experiment

if TYPE_CHECKING:
    from slackwater.chaos.churn import Churned
    from slackwater.chaos.script import Suffered
    from slackwater.sim.experiment import Claim

EXPERIMENT = "chaos"


def chaos(
    *,
    minutes: float = 10.0,
    queries: int = 50,
    starts: int = 1000,
    seed: int = 1,
    scripted: Annotated[bool, Parameter(negative="--no-scripted")] = True,
    troubled: int = 4,
    timeout: float = 120.0,
    plain: Annotated[bool, Parameter(negative=())] = False,
    json: Path | None = None,
) -> None:
    """Kill, hang and garble what can be, on a real Spark, and see that no query is harmed; then look for leaks.

    Ends with 1 if anything does not hold.

    Parameters
    ----------
    minutes
        Start and stop queries for at most so long.
    queries
        So many run at once at most.
    starts
        Start so many, if the time allows, and a fifth of that with Python functions among them; 0 leaves this part
        out.
    seed
        Of the rows, and of what happens at random.
    scripted
        Also go through the troubles one by one, with an oracle for every row.
    troubled
        So many queries do, and one more that takes late rows.
    timeout
        In each trouble every query must go on within so many seconds.
    plain
        Start and stop the queries without Slackwater: what Spark itself leaves behind.
    json
        Write the outcome to this file.
    """
    if not minutes > 0 or queries < 1 or starts < 0 or troubled < 1 or not timeout > 0:
        raise ConfigurationError(
            "--minutes and --timeout must be more than 0, --queries and --troubled 1 or more, --starts 0 or more."
        )

    from slackwater.chaos.churn import Churn, ChurnSettings  # noqa: PLC0415  # Spark is loaded on use
    from slackwater.chaos.script import play  # noqa: PLC0415
    from slackwater.verify.session import small_session  # noqa: PLC0415

    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    problems: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-chaos-", ignore_cleanup_errors=True) as scratch,
        small_session(Path(scratch), BOUNDED) as spark,
    ):
        if scripted:
            scene = Path(scratch) / "scene"
            played = play(spark, scene, queries=troubled, seed=seed, told=tell, timeout_s=timeout)
            rows += played.rows
            claims += played.claims
            if played.problem is not None:
                problems.append(played.problem)
        if starts:
            for functions in (False, True):
                count = max(2, starts // 5) if functions else starts
                settings = ChurnSettings(minutes, queries, count, rounds_of(count), seed, functions, plain)
                churned = Churn(spark, Path(scratch) / f"churn-{functions}", settings).run(tell_churned)
                rows += [{"round": number, "functions": functions, **one} for number, one in enumerate(churned.samples)]
                rows.append(summary(churned))
                claims += churned.claims
                problems += churned.lost[:5]
    if json is not None:
        Experiment(EXPERIMENT, seed, rows, claims, commit=commit()).write(json)
    broken = [one for one in claims if not one.holds]
    for one in claims:
        print(f"{'holds ' if one.holds else 'BROKEN'} {one.claim}: {one.measured:g} (target {one.target})")
    if broken:
        told = "; ".join([*problems, *(one.claim for one in broken)])
        raise SlackwaterError(f"{len(broken)} of {len(claims)} checks do not hold: {told}")


# What Spark keeps of the past for its page, and would grow for a while.
BOUNDED = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}


def rounds_of(starts: int) -> int:
    """So many that a third of them is several, each with enough starts to leave something behind."""
    return max(4, min(20, starts // 25))


def summary(churned: Churned) -> dict[str, Any]:
    return {
        "starts": churned.started,
        "most_at_once": churned.most_at_once,
        "failed_by_themselves": churned.failed_by_themselves,
        "lost": churned.lost,
        "gates_opened": churned.gates_opened,
        "seconds": round(churned.seconds, 1),
        "functions": churned.settings.functions,
        "plain": churned.settings.plain,
        "jvm_threads_by_name": churned.threads,
        "grew": {growth.name: [growth.first, growth.last] for growth in churned.growths if growth.last > growth.first},
    }


def tell(suffered: Suffered) -> None:
    end = suffered.problem or suffered.skipped or f"{suffered.batches} batches meanwhile"
    word = "BROKEN" if suffered.problem else "skipped" if suffered.skipped else "held"
    print(f"{word:8}{suffered.trouble}: {end} ({suffered.seconds:.0f} s)", file=sys.stderr, flush=True)


def tell_churned(churned: Churned) -> None:
    sample = churned.samples[-1]
    shown = ("jvm_threads", "pools", "py4j_objects_in_the_jvm", "jvm_heap_live_mb", "python_rss_mb", "jvm_gates")
    counts = ", ".join(f"{name} {sample[name]:g}" for name in shown if name in sample)
    print(f"{churned.started} starts in {churned.seconds:.0f} s: {counts}", file=sys.stderr, flush=True)
