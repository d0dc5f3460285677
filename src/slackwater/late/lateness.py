"""How late events are, and how long a window must be kept for them (Aion 3.4, predictive cleanup).

An event's lateness is the time from its window's end to its arrival; at or below 0 it is not late. Everything that
arrives is counted, also what comes after the window was purged: else the bound could never find out that it is too
small.

`LatenessSketch` counts in buckets whose edges grow by a constant factor, so a quantile is right to 1 %, whatever the
scale, and two sketches merge by adding (as in DDSketch). `LatenessHistory` keeps the last of them and forgets the old
ones early when the new ones disagree.

The allowed lateness is an upper confidence bound of a quantile: the r-th smallest of n latenesses, r the least with
P(Binomial(n, coverage) < r) ≥ confidence. That is exact for any distribution and needs no more than the largest of 299
events for 99 % at confidence 95 %. The bound by Dvoretzky, Kiefer and Wolfowitz holds for all quantiles at once and
pays for it: it would need 14 979 events to say anything about this one. Both take events as independent.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.late.staleness import LateCdf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

RELATIVE_ERROR = 0.01
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)
# A millisecond to thirty years: below there is no lateness worth a bucket, above no clock that is right.
_LEAST_S, _MOST_S = 1e-3, 1e9


def events_needed(coverage: float, confidence: float) -> int:
    """So many events are needed before the largest of them is an upper bound: 299 for 0.99 at 0.95."""
    for name, value in (("coverage", coverage), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigurationError(f"a {name} of {value!r}: a number between 0 and 1 is needed.")
    return math.ceil(math.log(1 - confidence) / math.log(coverage))


@dataclass(slots=True)
class LatenessSketch:
    """How many events were not late, and how many late ones fell into each bucket: bucket i ends at γ^i seconds."""

    on_time: int = 0
    late: dict[int, int] = field(default_factory=dict)

    def add(self, lateness_s: float, count: int = 1) -> None:
        if lateness_s <= 0:
            self.on_time += count
        else:
            bucket = _bucket(lateness_s)
            self.late[bucket] = self.late.get(bucket, 0) + count

    def add_many(self, lateness_s: NDArray[np.float64]) -> None:
        is_late = lateness_s > 0
        self.on_time += int(lateness_s.size - is_late.sum())
        clipped = np.clip(lateness_s[is_late], _LEAST_S, _MOST_S)
        buckets, counts = np.unique(np.ceil(np.log(clipped) / _LOG_GAMMA).astype(int), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self.late[bucket] = self.late.get(bucket, 0) + count

    def merge(self, other: LatenessSketch) -> None:
        """Count what the other has counted, too: the same as if one had seen all events."""
        self.on_time += other.on_time
        for bucket, count in other.late.items():
            self.late[bucket] = self.late.get(bucket, 0) + count

    @property
    def late_count(self) -> int:
        return sum(self.late.values())

    @property
    def count(self) -> int:
        return self.on_time + self.late_count

    @property
    def late_share(self) -> float:
        """Of all events; a window with m events on time expects m·share/(1 − share) late ones."""
        return self.late_count / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The lateness that this share of all events does not exceed, to 1 %; 0 if they were on time."""
        if not self.count:
            raise ValueError("a sketch that has seen no event has no quantiles")
        bucket = self.bucket_of_rank(max(1, math.ceil(share * self.count)))
        return 0.0 if bucket is None else _middle_s(bucket)

    def share_beyond(self, lateness_s: float) -> float:
        """The share of all events that is later; of the bucket that it falls into, all: rather more than less."""
        if not self.count:
            return 0.0
        if lateness_s < 0:
            return 1.0
        from_bucket = _bucket(lateness_s) if lateness_s > 0 else -math.inf
        return sum(count for bucket, count in self.late.items() if bucket >= from_bucket) / self.count

    def allowed_lateness(
        self, coverage: float = 0.99, confidence: float = 0.95, *, late_only: bool = False
    ) -> float | None:
        """Upper confidence bound of the lateness that `coverage` of all events (or of the late ones) do not exceed.

        The upper edge of the bucket, so that rounding never makes it too small, and at most 2 % too large. None until
        `events_needed` were seen.
        """
        passed_over = 0 if late_only else self.on_time
        total = passed_over + self.late_count
        if total < events_needed(coverage, confidence):
            return None
        bucket = self.bucket_of_rank(total - _may_exceed(total, 1 - coverage, 1 - confidence), passed_over)
        return 0.0 if bucket is None else _upper_s(bucket)

    def cdf(self, span_s: float) -> LateCdf:
        """The late events within a span, for the staleness trigger."""
        return LateCdf.of(((_middle_s(bucket), float(count)) for bucket, count in self.late.items()), span_s)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> LatenessSketch:
        return msgspec.json.decode(text, type=cls)

    def bucket_of_rank(self, rank: int, on_time: int | None = None) -> int | None:
        """Where the rank-th smallest lateness is; None among those on time."""
        reached = self.on_time if on_time is None else on_time
        if rank <= reached:
            return None
        for bucket in sorted(self.late):
            reached += self.late[bucket]
            if rank <= reached:
                return bucket
        raise ValueError(f"rank {rank} of {reached} events")

    def beyond_bucket(self, bucket: int | None) -> int:
        """Events in later buckets; None is what was on time."""
        return sum(count for other, count in self.late.items() if bucket is None or other > bucket)


class LatenessHistory:
    """The lateness of the last `blocks` × `block_events` events, in blocks, so that it follows when it changes.

    Each full block is compared with what is older, alone and together with the newest 2, 4, 8, … blocks. Where the
    shares beyond the common median, 90 % or 99 % quantile differ more than chance would bring about once in 10 000
    times, what is older is forgotten. So the allowed lateness has followed a plain shift upwards after two blocks and
    one downwards after three (`slackwater sim aion-lateness`), and a slight one in the tail at the latest when the old
    blocks are all gone. A block must hold `events_needed`, or there is no answer right after a shift.

    What is very late is seen late: a stream that began a minute ago cannot have shown an event two minutes late, nor
    can a network that failed a minute ago. Choose blocks so that the history spans several times the allowed
    lateness, and keep a careful bound until it does: `block_s` is the least time that a block spans.
    """

    def __init__(self, block_events: int = 500, blocks: int = 20, block_s: float = 0.0) -> None:
        if block_events < 1 or blocks < 2:
            raise ConfigurationError(
                f"{blocks} blocks of {block_events} events: two blocks of at least one event each are needed."
            )
        self._block_events = block_events
        self._block_s = block_s
        self._began_s: float | None = None
        self._full: deque[LatenessSketch] = deque(maxlen=blocks - 1)
        self._filling = LatenessSketch()
        self._all = LatenessSketch()

    def add(self, seen: LatenessSketch, at_s: float = 0.0) -> None:
        """Events that came together, in a micro-batch, say. They are not divided between blocks."""
        self._all.merge(seen)
        self._filling.merge(seen)
        if self._began_s is None:
            self._began_s = at_s
        if self._filling.count >= self._block_events and at_s - self._began_s >= self._block_s:
            self._full.append(self._filling)
            self._filling, self._began_s = LatenessSketch(), at_s
            self._all = merged(self._full)
            self._forget()

    def sketch(self) -> LatenessSketch:
        """All that is remembered."""
        return merged((self._all,))

    def allowed_lateness(
        self, coverage: float = 0.99, confidence: float = 0.95, *, late_only: bool = False
    ) -> float | None:
        """As the sketch says it, over all that is remembered."""
        return self._all.allowed_lateness(coverage, confidence, late_only=late_only)

    def to_json(self) -> bytes:
        """The blocks, the one that is filling last."""
        return msgspec.json.encode([*self._full, self._filling])

    @classmethod
    def from_json(cls, text: bytes, block_events: int = 500, blocks: int = 20, block_s: float = 0.0) -> LatenessHistory:
        found = cls(block_events, blocks, block_s)
        *full, found._filling = msgspec.json.decode(text, type=list[LatenessSketch])
        found._full.extend(full)
        found._all = merged((*found._full, found._filling))
        return found

    def _forget(self) -> None:
        edges = [self._all.bucket_of_rank(math.ceil(share * self._all.count)) for share in _COMPARED_AT]
        newest, compare = LatenessSketch(), 1
        for count, block in enumerate(reversed(self._full), start=1):
            newest.merge(block)
            if count == compare < len(self._full):
                if _differs(newest, self._all, edges):
                    for _ in range(len(self._full) - count):
                        self._full.popleft()
                    self._all = newest
                    return
                compare *= 2


_CHANCE = 1e-4
_COMPARED_AT = (0.5, 0.9, 0.99)


def merged(sketches: Iterable[LatenessSketch]) -> LatenessSketch:
    found = LatenessSketch()
    for sketch in sketches:
        found.merge(sketch)
    return found


def _differs(part: LatenessSketch, whole: LatenessSketch, edges: list[int | None]) -> bool:
    """Is the part of another distribution than the rest? Of what is beyond an edge it should have its share.

    Binomial for what is hypergeometric, which has the longer tails: rather too careful.
    """
    share = part.count / whole.count
    for edge in edges:
        beyond, of_part = whole.beyond_bucket(edge), part.beyond_bucket(edge)
        fewer, more = _at_most(of_part, beyond, share), 1 - _at_most(of_part - 1, beyond, share)
        if min(fewer, more) < _CHANCE / 2:
            return True
    return False


def _bucket(lateness_s: float) -> int:
    return math.ceil(math.log(min(max(lateness_s, _LEAST_S), _MOST_S)) / _LOG_GAMMA)


def _upper_s(bucket: int) -> float:
    return _GAMMA**bucket


def _middle_s(bucket: int) -> float:
    """Within 1 % of everything in the bucket."""
    return 2 * _GAMMA**bucket / (_GAMMA + 1)


def _may_exceed(total: int, rate: float, doubt: float) -> int:
    """How many of `total` events may lie above the bound: the most j with P(Binomial(total, rate) ≤ j) ≤ doubt."""
    mean = total * rate
    # Ten standard deviations below the mean nothing is left that counts.
    least = max(0, math.floor(mean - 10 * math.sqrt(mean * (1 - rate))) - 1)
    reached, step, count = 0.0, math.exp(_log_chance(least, total, rate)), least
    while (reached := reached + step) <= doubt:
        step *= (total - count) / (count + 1) * rate / (1 - rate)
        count += 1
    return max(0, count - 1)


def _at_most(count: int, total: int, rate: float) -> float:
    """P(Binomial(total, rate) ≤ count), summed from the side that is the smaller."""
    if count < 0:
        return 0.0
    if count >= total:
        return 1.0
    if count > total * rate:
        return 1.0 - _at_most(total - count - 1, total, 1 - rate)
    step = reached = math.exp(_log_chance(count, total, rate))
    for place in range(count, 0, -1):
        step *= place / (total - place + 1) * (1 - rate) / rate
        reached += step
        if step < reached * 1e-15:
            break
    return reached


def _log_chance(count: int, total: int, rate: float) -> float:
    ways = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    return ways + count * math.log(rate) + (total - count) * math.log1p(-rate)
