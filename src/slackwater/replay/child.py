"""`python -m slackwater.replay.child TRACE POLICY`: one replay in a process of its own, at the lowest priority.

With `--advise` instead of a policy, advice. The scheduler's process must not wait for it, nor share an interpreter.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from slackwater.errors import SlackwaterError
from slackwater.recording.reading import read_trace
from slackwater.replay.advice import advise, figures_of, predicted
from slackwater.replay.fidelity import Ready, ready
from slackwater.replay.scenario import scenario_of
from slackwater.replay.words import in_words

ADVISE = "--advise"
_LEAST_PRIORITY = 19


def main(arguments: list[str]) -> int:
    path, asked = arguments
    os.nice(_LEAST_PRIORITY)
    try:
        trace = read_trace(Path(path))
        checked = ready(trace)
        said = _advice(checked) if asked == ADVISE else _gain(checked, asked)
    except SlackwaterError as error:
        said = {"trouble": str(error)}
    print(json.dumps(said))
    return 0


def _advice(checked: Ready) -> dict[str, Any]:
    advice = advise(checked, seeds=1)
    return {"lines": list(in_words(advice)), "switch": advice.switch and advice.switch.change}


def _gain(checked: Ready, policy: str) -> dict[str, Any]:
    found = checked.replay(scenario_of(policy, checked.trace))
    now = figures_of(checked)
    mean = predicted([found.mean_s], checked.error_mean)
    p99 = predicted([found.percentile_s(99)], checked.error_p99)
    return {
        "measured_s": now.seconds,
        "mean_s": now.mean_s,
        "p99_s": now.p99_s,
        "cpu_cores": now.cpu_cores,
        "predicted_mean_s": mean and mean.value,
        "predicted_mean_low_s": mean and mean.low,
        "predicted_mean_high_s": mean and mean.high,
        "predicted_p99_s": p99 and p99.value,
        "predicted_cpu_cores": found.cpu_cores,
        "error_mean": checked.error_mean,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
