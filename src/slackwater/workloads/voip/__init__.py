"""VoipStream: who of a telephone network's callers behaves like a telemarketer?

- `calls`: seeded call records.
- `query`: the scores on Spark, call by call.
- `oracle`: the same in plain Python.
- `windows`: scores in tumbling windows, for the benchmark.
"""

from __future__ import annotations

from slackwater.workloads.voip.query import Voip
from slackwater.workloads.voip.windows import VoipWindows

__all__ = ["Voip", "VoipWindows"]
