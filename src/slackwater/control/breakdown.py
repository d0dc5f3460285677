"""Where the time between a window's end and its result went."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from slackwater.core.model import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.core.records import Left, Ran

_SAME_S = 1e-6
_GRANTING_S = 0.5  # a batch's own clock may say that it began before it was granted


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of a window's latency, in their order; together they are all of it.

    unwanted_s: from its end until the policy wanted a turn for it: the stream's own lag and the watermark's delay, for
    the most part. turn_s: until that turn began. Where nobody knows when it was wanted, unwanted_s is None and turn_s
    has both. data_s: the batch that brought the watermark; None where the emitting batch brought it itself.
    between_s: between the two batches. emitting_s: the batch with which the window left.
    """

    unwanted_s: float | None
    turn_s: float
    data_s: float | None
    between_s: float
    emitting_s: float

    @property
    def total_s(self) -> float:
        return (self.unwanted_s or 0.0) + self.turn_s + (self.data_s or 0.0) + self.between_s + self.emitting_s


def breakdown(left: Left, ran: Sequence[Ran], wanted_wall_ts: Sequence[float]) -> Breakdown | None:
    """`ran` are the query's own batches, `wanted_wall_ts` the times at which turns for it were planned.

    None where the batch that emitted the window is no longer known, or the window left before it ended by this clock.
    """
    end, out = left.window_end_event_ts, left.left_wall_ts
    at = next((i for i in range(len(ran) - 1, -1, -1) if abs(ran[i].ended_wall_ts - out) <= _SAME_S), None)
    if at is None or out < end:
        return None
    emitting = ran[at]
    data = ran[at - 1] if at > 0 and emitting.stage is Stage.SWEEP and ran[at - 1].stage is Stage.DATA else None
    begun = data or emitting
    before = ran[at - (2 if data else 1)].ended_wall_ts if at >= (2 if data else 1) else float("-inf")
    wanted = max((ts for ts in wanted_wall_ts if before <= ts <= begun.began_wall_ts + _GRANTING_S), default=None)
    data_ended = data.ended_wall_ts if data is not None else emitting.began_wall_ts
    # Clocks of batches differ by milliseconds: each step begins where the last one ended, and none leaves the span.
    marks = [end]
    for ts in (end if wanted is None else wanted, begun.began_wall_ts, data_ended, emitting.began_wall_ts, out):
        marks.append(min(out, max(marks[-1], ts)))
    unwanted_s, turn_s, data_s, between_s, emitting_s = (b - a for a, b in pairwise(marks))
    return Breakdown(
        unwanted_s if wanted is not None else None,
        turn_s,
        data_s if data is not None else None,
        between_s,
        emitting_s,
    )
