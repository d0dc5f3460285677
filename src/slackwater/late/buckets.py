"""What of the windows is in memory (Aion's m-buckets), and what goes when memory is short (Aion 3.2, 3.3).

Every row is durable before its batch commits, so memory is a cache: to destage is to let go. The unit is a batch's
frame: a window's m-bucket is the share it has in the frames of some batches, and a frame is freed when the last window
that holds on to it lets go. No Spark here: frames are handles, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Share:
    """A window's part of a frame."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BucketView:
    """An m-bucket as policies see it; `rows_per_s` is how fast the window grows."""

    window: int
    rows: int
    bytes: int
    rows_per_s: float
    idle_s: float
    swept: bool


@dataclass(frozen=True, slots=True)
class MemoryView:
    """`available`: the share of Spark's storage memory that is free."""

    used_bytes: int
    budget_bytes: int
    available: float = 1.0


class BucketPolicy(Protocol):
    """Says which windows let go of memory, and what share of their first rows each keeps."""

    def keep(self, buckets: Sequence[BucketView], memory: MemoryView) -> Mapping[int, float]: ...


@dataclass(frozen=True, slots=True)
class Standard:
    """A window stays in memory until it is executed on time, and then goes."""

    def keep(self, buckets: Sequence[BucketView], memory: MemoryView) -> Mapping[int, float]:
        del memory
        return {bucket.window: 0.0 for bucket in buckets if bucket.swept}


@dataclass(frozen=True, slots=True)
class Local:
    """Windows that were executed, or had no row for `tau_s`, keep a share `rho_min` to begin the next one with."""

    rho_min: float = 0.05
    tau_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.rho_min < 1 or self.tau_s <= 0:
            raise ConfigurationError(
                f"rho_min={self.rho_min!r}, tau_s={self.tau_s!r}: a share below 1 and a positive time are needed."
            )

    def keep(self, buckets: Sequence[BucketView], memory: MemoryView) -> Mapping[int, float]:
        del memory
        return {b.window: self.rho_min for b in buckets if b.swept or b.idle_s > self.tau_s}


@dataclass(frozen=True, slots=True)
class Scarce:
    """Another policy, and windows that must go beside when memory is scarce.

    Over the budget: the largest first, or those that grow the slowest (`by="rate"`), until it is kept. When less than
    `very_scarce` of Spark's storage memory is free: all.
    """

    inner: BucketPolicy = field(default_factory=Standard)
    by: str = "size"
    rho_min: float = 0.0
    very_scarce: float = 0.1

    def __post_init__(self) -> None:
        if self.by not in ("size", "rate"):
            raise ConfigurationError(f"windows let go of memory by {self.by!r}: `size` or `rate` is needed.")

    def keep(self, buckets: Sequence[BucketView], memory: MemoryView) -> Mapping[int, float]:
        found = dict(self.inner.keep(buckets, memory))
        if memory.available < self.very_scarce:
            return {bucket.window: min(found.get(bucket.window, 1.0), self.rho_min) for bucket in buckets}
        used = memory.used_bytes - sum(b.bytes * (1 - found[b.window]) for b in buckets if b.window in found)
        left = [bucket for bucket in buckets if bucket.window not in found]
        for bucket in sorted(left, key=lambda b: (-b.bytes if self.by == "size" else b.rows_per_s, b.window)):
            if used <= memory.budget_bytes:
                break
            found[bucket.window] = self.rho_min
            used -= bucket.bytes * (1 - self.rho_min)
        return found


def share_needed(blocking: bool, stage_s_per_row: float, process_s_per_row: float) -> float:
    """What share of a window must be in memory so that its function never waits for the disk (Aion 3.3).

    A blocking function needs all of its input first. Another one processes the rows in memory while the rest, 1 − m, is
    staged: (1 − m)·stage ≤ m·process.
    """
    if blocking or stage_s_per_row <= 0:
        return 1.0 if blocking else 0.0
    return stage_s_per_row / (stage_s_per_row + max(0.0, process_s_per_row))


@dataclass(slots=True)
class _Bucket:
    shares: dict[int, Share] = field(default_factory=dict)  # by batch
    born_s: float = 0.0
    last_row_s: float = 0.0
    rows_ever: int = 0

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.shares.values())

    @property
    def bytes(self) -> int:
        return sum(share.bytes for share in self.shares.values())


class Buckets:
    """All m-buckets of a query, under a bound for each window and one for all."""

    def __init__(self, budget_bytes: int, window_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.window_bytes = window_bytes
        self._frames: dict[int, Any] = {}
        self._buckets: dict[int, _Bucket] = {}

    @property
    def used_bytes(self) -> int:
        return sum(bucket.bytes for bucket in self._buckets.values())

    def room_for(self, batch_bytes: float) -> bool:
        """Is it worth caching the next batch?"""
        return self.used_bytes + batch_bytes <= self.budget_bytes

    def add(self, batch: int, frame: Any, shares: Mapping[int, Share], now_s: float) -> bool:
        """A batch's frame, with what each window that is to come has of it; False when none has room, nor wants it."""
        taken = False
        for window, share in shares.items():
            bucket = self._buckets.setdefault(window, _Bucket(born_s=now_s))
            bucket.last_row_s = now_s
            bucket.rows_ever += share.rows
            if bucket.bytes + share.bytes <= self.window_bytes and self.room_for(share.bytes):
                bucket.shares[batch] = share
                taken = True
        if taken:
            self._frames[batch] = frame
        return taken

    def frames(self, window: int) -> dict[int, Any]:
        """By batch, the frames that hold the window's rows of that batch."""
        bucket = self._buckets.get(window)
        return {} if bucket is None else {batch: self._frames[batch] for batch in bucket.shares}

    def views(self, swept: Sequence[int], now_s: float) -> list[BucketView]:
        gone = set(swept)
        return [
            BucketView(
                window,
                bucket.rows,
                bucket.bytes,
                bucket.rows_ever / max(1e-3, now_s - bucket.born_s),
                now_s - bucket.last_row_s,
                window in gone,
            )
            for window, bucket in sorted(self._buckets.items())
        ]

    def release(self, keep: Mapping[int, float]) -> list[Any]:
        """Cut the windows down to a share of their first rows each; returns the frames that nobody holds any more."""
        for window, share in keep.items():
            bucket = self._buckets.get(window)
            if bucket is None:
                continue
            left = share * bucket.rows_ever
            kept: dict[int, Share] = {}
            for batch, part in sorted(bucket.shares.items()):
                left -= part.rows
                if left < 0:
                    break
                kept[batch] = part
            bucket.shares = kept
            if share == 0:
                del self._buckets[window]
        held = {batch for bucket in self._buckets.values() for batch in bucket.shares}
        return [self._frames.pop(batch) for batch in sorted(self._frames.keys() - held)]

    def forget(self, window: int) -> list[Any]:
        return self.release({window: 0.0})

    def clear(self) -> list[Any]:
        return self.release(dict.fromkeys(list(self._buckets), 0.0))
