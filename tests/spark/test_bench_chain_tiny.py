"""`bench chain`, tiny, on two real Spark applications: what it counts, never how fast it is."""

from __future__ import annotations

import pytest

from slackwater.bench.chain import chain, check
from slackwater.bench.chain_model import ChainSpec
from slackwater.errors import ConfigurationError

SPEC = ChainSpec(
    contender="",
    seed=0,
    pipelines=1,
    rate=100,
    window_s=2.0,
    delay_s=1.0,
    seconds=4.0,
    warmup_s=1.0,
    heap="512m",
    drain_s=60.0,
    grace_s=120.0,
)


class Quiet:
    def __init__(self):
        self.errors = []

    def planned(self, runs): ...

    def state(self, spec, state): ...

    def finished(self, run): ...

    def failed(self, spec, error):
        self.errors.append(error)


@pytest.mark.spark
def test_a_tiny_chain_emits_every_window_with_the_counts_of_the_oracle():
    listener = Quiet()
    found = chain(SPEC, ("klink+forward",), (0,), listener)
    assert listener.errors == []
    (row,) = found.rows
    emitted, expected = row["windows"].split("/")
    assert emitted == expected
    assert int(expected) >= 1
    assert row["wrong"] == 0
    assert row["exchanges"] > 0
    assert row["enrich_batches"] > 0
    assert {claim.claim: claim.holds for claim in found.claims} == {
        "windows with a wrong result": True,
        "runs that failed": True,
    }


@pytest.mark.parametrize(
    ("change", "names", "seeds", "said"),
    [
        ({"pipelines": 0}, ("klink",), 1, "pipelines"),
        ({"seconds": 0.0}, ("klink",), 1, "seconds"),
        ({}, (), 1, "no contender"),
        ({}, ("klink", "klink"), 1, "twice"),
        ({}, ("klink",), 0, "seeds"),
        ({}, ("spark-fair+forward",), 1, "nobody who could forward"),
        ({}, ("no-such+forward",), 1, "no-such"),
    ],
)
def test_a_chain_that_cannot_be_run_is_refused_before_anything_starts(change, names, seeds, said):
    with pytest.raises(ConfigurationError, match=said):
        check(SPEC.but(**change), names, seeds)
