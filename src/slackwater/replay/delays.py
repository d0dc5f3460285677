"""The watermark delay against late rows, from the lateness that a trace tells.

A row is late by how far its event time lies behind the largest that earlier batches had seen. A batch tells its least
event time, so what is known is how late its latest row was: the delay from which on none of its rows would be dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from slackwater.replay.suggestions import Predicted, Suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.recording.reading import TracedQuery
    from slackwater.replay.fidelity import Ready

_LEAST_BATCHES = 20
_SPARE = 1.25  # a delay is advised with a quarter to spare: a trace has not seen everything
_LEAST_GAIN_S = 0.5


def lateness_s(query: TracedQuery) -> list[float]:
    """For each batch with rows but the first, how late its latest row was; nothing where nobody tells.

    Only of a query with one watermarked input: with several, each has a frontier of its own, but one delay is kept.
    """
    if len(query.about.input_delays_s) != 1:
        return []
    found, frontier = [], -math.inf
    for batch in query.batches:
        if batch.rows <= 0 or not batch.inputs:
            continue
        seen = batch.inputs[0]
        if seen.min_event_ts is not None and frontier > -math.inf:
            found.append(max(0.0, frontier - seen.min_event_ts))
        if seen.max_event_ts is not None:
            frontier = max(frontier, seen.max_event_ts)
    return found


def delay_suggestions(ready: Ready, mean_s: float) -> Iterator[Suggestion]:
    """Queries whose delay is longer than any row needed, or shorter than some did."""
    for query in ready.trace.queries:
        late = lateness_s(query)
        dropped = sum(batch.dropped_rows for batch in query.batches)
        if len(late) < _LEAST_BATCHES:
            continue
        delay_s, needed_s = query.about.input_delays_s[0], max(late)
        mostly_s = float(np.quantile(late, 0.99))
        own = next((one for one in ready.recorded.queries if one.name == query.name), None)
        before_s = own.mean_s if own is not None and own.mean_s is not None else mean_s
        told = (
            f"it had a mean of {before_s:.2f} s; in {len(late)} batches the latest row was {needed_s:.1f} s behind, in "
            f"99 % of them at most {mostly_s:.1f} s"
        )
        if needed_s > delay_s or dropped:
            longer_s = math.ceil(10 * max(needed_s, delay_s) * _SPARE) / 10
            after_s = before_s + longer_s - delay_s
            yield Suggestion(
                kind="watermark delay",
                change=f"{query.name}: a watermark delay of {longer_s:g} s instead of {delay_s:g} s",
                worth=False,
                mean_s=Predicted(after_s, after_s, after_s),
                late_rows=0.0,
                note=f"{told}; {dropped} rows were dropped as too late. Each second of delay is a second of latency: "
                "late rows can also correct results afterwards (docs/late.md)",
            )
        elif delay_s - needed_s * _SPARE >= _LEAST_GAIN_S:
            shorter_s = math.ceil(10 * needed_s * _SPARE) / 10
            after_s = max(0.0, before_s - (delay_s - shorter_s))
            yield Suggestion(
                kind="watermark delay",
                change=f"{query.name}: a watermark delay of {shorter_s:g} s instead of {delay_s:g} s",
                worth=delay_s - shorter_s >= max(_LEAST_GAIN_S, 0.15 * before_s),
                mean_s=Predicted(after_s, after_s, after_s),
                late_rows=0.0,
                note=f"{told}, none was dropped; rows that come later than that would be",
            )
