"""A late query that is killed, on a real Spark: nothing is lost, nothing counts twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slackwater.bench import kills

if TYPE_CHECKING:
    from slackwater.bench.kills import Kill, Trial
    from slackwater.bench.kills_oracle import Problem


class Quiet:
    def __init__(self) -> None:
        self.kills: list[Kill] = []
        self.trials: list[Trial] = []

    def planned(self, kills: int) -> None: ...

    def state(self, text: str) -> None: ...

    def killed(self, kill: Kill) -> None:
        self.kills.append(kill)

    def checked(self, trial: Trial, problems: list[Problem]) -> None:
        self.trials.append(trial)


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_query_that_is_killed_three_times_gives_what_a_batch_gives() -> None:
    quiet = Quiet()
    found = kills.run(3, 1, quiet, variants=kills.VARIANTS[:1], files=16, rows=60)
    assert found.problems == []
    assert [claim.claim for claim in found.claims if not claim.holds] == []
    assert [kill.where for kill in quiet.kills] == [
        "late emission recorded, its result not written",
        "compacted file half-written",
        "at random",
    ]
    [trial] = quiet.trials
    assert trial.starts == 4
    assert trial.dead_rows > 0
    assert trial.kinds.keys() >= {"on_time", "late"}  # a final result, only where rows waited for it
