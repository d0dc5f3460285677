"""What is left of SYN's rows at the end of a chain, in plain Python."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slackwater.workloads.syn import Operator


def survivors(
    rows: Sequence[Mapping[str, Any]], chain: Sequence[Operator], holds_in_1000: float
) -> list[tuple[int, int, str, int]]:
    """(id, event time, last digest, milliseconds held) of the rows that every operator kept, sorted."""
    found = []
    for row in rows:
        text, held_ms = str(row["id"]), 0
        for operator in chain:
            text = f"{operator.seed}:{text}"
            for _ in range(operator.rounds):
                text = md5(text.encode(), usedforsecurity=False).hexdigest()
            first, second, third, _ = (int(text[start : start + 8], 16) for start in (0, 8, 16, 24))
            if first >= operator.keeps_below:
                break
            if operator.blocks and second < round(holds_in_1000 * 2**32 / 1000):
                held_ms += third * 201 >> 32
        else:
            found.append((row["id"], row["event_ms"], text, held_ms))
    return sorted(found)
