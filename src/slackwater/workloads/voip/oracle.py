"""The score of every established call in plain Python, with the figures of the definition written out.

Each number has five counters that decay step by step, from one of its calls to the next, as the definition says: what a
counter is after two steps differs from one long step in the last bits, so steps are the same as the query's.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Decaying:
    """A counter that loses 1 - β of itself each second."""

    beta: float
    level: float = 0.0
    at_s: int | None = None

    def decay(self, now_s: int) -> None:
        if self.at_s is not None:
            self.level *= self.beta ** (now_s - self.at_s)
        self.at_s = now_s

    def add(self, amount: float) -> None:
        self.level += amount * math.log(1 / self.beta)


@dataclass
class Number:
    """A telephone number's counters and the numbers that it called, the newest last."""

    ct24: Decaying = field(default_factory=lambda: Decaying(0.9917))
    ecr24: Decaying = field(default_factory=lambda: Decaying(0.9917))
    ecr: Decaying = field(default_factory=lambda: Decaying(0.9672))
    encr: Decaying = field(default_factory=lambda: Decaying(0.9672))
    rcr: Decaying = field(default_factory=lambda: Decaying(0.9672))
    callees: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def decay(self, now_s: int) -> None:
        for counter in (self.ct24, self.ecr24, self.ecr, self.encr, self.rcr):
            counter.decay(now_s)

    def calls(self, called: str, duration_s: int) -> None:
        self.ct24.add(duration_s)
        self.ecr24.add(1)
        self.ecr.add(1)
        if called not in self.callees:
            self.encr.add(1)
        self.callees[called] = None
        self.callees.move_to_end(called)
        if len(self.callees) > 64:
            self.callees.popitem(last=False)


def scores(calls: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """(call, caller, answer, FoFiR, URL, ACD, score) of every established call, sorted."""
    numbers: defaultdict[str, Number] = defaultdict(Number)
    durations_s: list[int] = []
    found = []
    for call in sorted(calls, key=lambda call: (call["answer_ms"], call["call_id"])):
        if not call["established"]:
            continue
        durations_s.append(call["duration_s"])
        now_s = call["answer_ms"] // 1000
        receiver = numbers[call["called"]]
        receiver.decay(now_s)
        receiver.rcr.add(1)
        caller = numbers[call["calling"]]
        caller.decay(now_s)
        caller.calls(call["called"], call["duration_s"])
        mean_s = sum(durations_s) / len(durations_s)
        fofir = 1.0 if caller.rcr.level == 0 else _share(caller.ecr.level / caller.rcr.level, 10)
        url = _share(caller.encr.level / caller.ecr.level, 1)
        acd = _share((caller.ct24.level / caller.ecr24.level) / mean_s, 10)
        score = 2 * fofir + 3 * url + 3 * acd
        found.append((call["call_id"], call["calling"], call["answer_ms"], fofir, url, acd, score))
    return sorted(found)


def _share(value: float, most: int) -> float:
    return min(max(value / most, 0.0), 1.0)
