"""Advice in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.replay.advice import SCARCE_SHARE, WORTH_CORES_SHARE, WORTH_S, WORTH_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.replay.advice import Advice, Figures
    from slackwater.replay.suggestions import Predicted, Suggestion


def in_words(advice: Advice) -> Iterator[str]:
    """One line each."""
    figures = advice.figures
    busy = f", {figures.cpu_cores:.2f} of {figures.cores} cores busy" if figures.cpu_cores is not None else ""
    missing = f", {figures.missing} of {figures.due} windows overdue at the end" if figures.missing else ""
    queries = "1 query" if figures.queries == 1 else f"{figures.queries} queries"
    yield (
        f"Recorded: {queries} under {advice.recorded}, {figures.seconds:.0f} s measured: latency mean "
        f"{figures.mean_s:.2f} s, median {figures.p50_s:.2f} s, 99th percentile {figures.p99_s:.2f} s{busy}{missing}."
    )
    yield (
        f"Check: replaying the same policy is off by {100 * advice.error_mean:.0f} % in the mean and "
        f"{100 * advice.error_p99:.0f} % in the 99th percentile; intervals are widened by as much, 5 % at least."
    )
    if advice.switch is None:
        yield (
            "Leave things alone: no policy would bring the mean or the 99th percentile down by "
            f"{100 * WORTH_SHARE:.0f} % and {WORTH_S:g} s at the cautious end of its interval"
            + (
                f", nor free {100 * WORTH_CORES_SHARE:.0f} % of the cores."
                if figures.cpu_cores is not None and figures.cpu_cores >= SCARCE_SHARE * figures.cores
                else ", and the cores are not scarce."
            )
        )
    else:
        yield f"Recommended: {advice.switch.change}: {brings(advice.switch, figures)}."
    for suggestion in advice.suggestions:
        if suggestion is not advice.switch:
            sign = "worth it" if suggestion.worth else "not worth it by itself"
            note = f" ({suggestion.note})" if suggestion.note else ""
            yield f"{suggestion.kind}: {suggestion.change}: {brings(suggestion, figures)}; {sign}{note}."


def brings(suggestion: Suggestion, figures: Figures) -> str:
    parts = []
    if suggestion.mean_s is not None:
        # A delay is one query's, and so is the mean that goes with it.
        against = "" if suggestion.kind == "watermark delay" else _against(suggestion.mean_s, figures.mean_s)
        parts.append(f"mean {_interval(suggestion.mean_s)}{against}")
    if suggestion.p99_s is not None:
        parts.append(f"99th percentile {_interval(suggestion.p99_s)}")
    if suggestion.cpu_cores is not None:
        before = f" instead of {figures.cpu_cores:.2f}" if figures.cpu_cores is not None else ""
        parts.append(f"{suggestion.cpu_cores:.2f} cores busy{before}")
    if suggestion.windows_missing:
        missing = suggestion.windows_missing
        parts.append(f"{missing} {'window' if missing == 1 else 'windows'} overdue at the end")
    return ", ".join(parts) or "nothing that a replay can tell"


def _interval(found: Predicted) -> str:
    if found.low == found.high:
        return f"{found.value:.2f} s"
    return f"{found.value:.2f} s ({found.low:.2f} to {found.high:.2f})"


def _against(found: Predicted, before_s: float) -> str:
    if before_s <= 0:
        return ""
    share = 100 * (found.value / before_s - 1)
    return f", {abs(share):.0f} % {'less' if share < 0 else 'more'}"
