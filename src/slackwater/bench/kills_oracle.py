"""What must come out of a query that is killed: the feed by its seed, and the right results, in plain Python.

It shares no code with the query: windows are assigned, watermarks moved and rows added up here once more.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

NO_WINDOW: Final = -(2**62)
ORIGIN_MS: Final = 1_700_000_000_000
_WINDOWS_BACK: Final = 10
_KEYS: Final = "abcd"


@dataclass(frozen=True)
class Timing:
    """All in ms of event time. A batch moves it on by about as much as a batch lasts, so the two clocks run alike."""

    size: int = 1_000
    slide: int = 1_000
    delay: int = 200
    lateness: int = 4_000
    step: int = 400

    def starts(self, ts: int) -> list[int]:
        last = ts - ts % self.slide
        return [start for start in range(last, last - self.size, -self.slide) if start <= ts < start + self.size]


@dataclass(frozen=True)
class Event:
    id: int
    ts: int | None
    k: str
    v: int


@dataclass(frozen=True)
class Problem:
    """What is wrong: one of CATEGORIES, and a sentence."""

    category: str
    text: str


CATEGORIES: Final = {
    "results": "last results that differ from those of a batch over the same rows",
    "rows": "rows of a window lost, or counted twice",
    "dead": "dead letters that were not late enough, and rows that were too late and count",
    "revisions": "revisions with two contents, out of order, or twice",
    "store": "stores with damage, files in quarantine or temporary files left",
    "spark": "results that differ from plain Spark's in batch mode",
    "run": "runs that failed",
}


def make_feed(seed: int, files: int, rows: int, timing: Timing) -> list[list[Event]]:
    """Files of events that advance, some late by up to ten windows, some without a time; the last closes all windows.

    Every ninth window has late rows alone.
    """
    chance = random.Random(seed)
    feed: list[list[Event]] = []
    for file in range(files - 1):
        begin = ORIGIN_MS + file * timing.step
        events: list[Event] = []
        while len(events) < rows:
            kind = chance.random()
            ts: int | None = begin + chance.randrange(timing.step)
            if kind < 0.01:
                ts = None
            elif kind < 0.4:
                ts = max(ORIGIN_MS, begin - round(_WINDOWS_BACK * timing.size * chance.random() ** 2))
            if ts is not None and _too_early(ts, begin, timing):
                continue
            events.append(Event(file * 10_000 + len(events), ts, chance.choice(_KEYS), chance.randrange(1000)))
        feed.append(events)
    end = ORIGIN_MS + files * timing.step + (2 * _WINDOWS_BACK) * timing.size
    feed.append([Event(files * 10_000, end, "a", 1)])
    return feed


def _too_early(ts: int, begin: int, timing: Timing) -> bool:
    """A row that would be on time in a window that is to have late rows alone."""
    start = (ts - ORIGIN_MS) // timing.size
    return start % 9 == 5 and begin - timing.delay < ORIGIN_MS + (start + 2) * timing.size


@dataclass(frozen=True)
class DeadLetter:
    """As it lies in the store: a row by its id, or a partial aggregate that stands for some events of a key."""

    batch: int
    window: int
    k: str
    events: int = 1
    id: int | None = None


@dataclass(frozen=True)
class Row:
    """A row of a result."""

    start: int
    k: str
    n: int
    total: int
    ids: int
    top: int


@dataclass(frozen=True)
class Written:
    """A result as the sink was given it: a window's rows as a digest."""

    window: int
    revision: int
    kind: str
    digest: str


@dataclass
class Oracle:
    timing: Timing
    feed: list[list[Event]]
    problems: list[Problem] = field(default_factory=list)

    @cached_property
    def groups(self) -> dict[tuple[int, int, str], list[Event]]:
        """By batch, window and key; rows without a time are in the window NO_WINDOW."""
        found: dict[tuple[int, int, str], list[Event]] = defaultdict(list)
        for batch, events in enumerate(self.feed):
            for event in events:
                for start in [NO_WINDOW] if event.ts is None else self.timing.starts(event.ts):
                    found[batch, start, event.k].append(event)
        return found

    @cached_property
    def watermarks(self) -> list[int]:
        """That each batch begins with, and after them all."""
        found = [0]
        for events in self.feed:
            found.append(max([found[-1], *(event.ts - self.timing.delay for event in events if event.ts is not None)]))
        return found

    def check(self, category: str, holds: bool, text: str) -> None:
        if not holds:
            self.problems.append(Problem(category, text))

    def dead(self, letters: list[DeadLetter]) -> Counter[tuple[int, int]]:
        """Pairs of window and row that the store says are dead, after a look at whether they may be."""
        pairs: Counter[tuple[int, int]] = Counter()
        for letter in letters:
            group = self.groups.get((letter.batch, letter.window, letter.k), [])
            found = group if letter.id is None else [event for event in group if event.id == letter.id]
            self.check("rows", len(found) == letter.events, f"{letter}: the feed has {len(found)} such rows")
            pairs.update((letter.window, event.id) for event in found)
            if letter.window != NO_WINDOW:
                over = letter.window + self.timing.size + self.timing.lateness
                self.check("dead", over <= self.watermarks[letter.batch], f"{letter}: its window is open until {over}")
        for (batch, start, _), events in self.groups.items():
            if start != NO_WINDOW and start + self.timing.size + self.timing.lateness <= self.watermarks[batch]:
                taken = [event for event in events if (start, event.id) not in pairs]
                self.check("dead", not taken, f"batch {batch}, window {start}: {len(taken)} rows too late")
        for pair, count in pairs.items():
            self.check("rows", count == 1, f"{pair} is a dead letter {count} times")
        nulls = {event.id for (_, start, _), events in self.groups.items() if start == NO_WINDOW for event in events}
        kept = nulls - {id_ for window, id_ in pairs if window == NO_WINDOW}
        self.check("rows", not kept, f"rows {sorted(kept)} have no event time and are no dead letters")
        return pairs

    def expected(self, dead: Counter[tuple[int, int]]) -> set[Row]:
        """The batch result over the rows that are not dead letters, of windows that the last watermark has passed."""
        members: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for (_, start, key), events in self.groups.items():
            if start != NO_WINDOW and start + self.timing.size <= self.watermarks[-1]:
                members[start, key] += [event for event in events if (start, event.id) not in dead]
        return {
            Row(start, key, len(found), sum(e.v for e in found), sum(e.id for e in found), max(e.v for e in found))
            for (start, key), found in members.items()
            if found
        }

    def latest(self, rows: list[Row], dead: Counter[tuple[int, int]]) -> None:
        expected = Counter(self.expected(dead))
        found = Counter(rows)
        for row, _ in sorted((found - expected).items(), key=str):
            self.check("results", False, f"not expected: {row}")
        for row, _ in sorted((expected - found).items(), key=str):
            self.check("results", False, f"missing: {row}")

    def account(self, kind: str, held: int, purged: int, dead: int) -> None:
        """Every row of every window is held, was dropped with its window, or is a dead letter."""
        in_all = sum(len(events) if kind == "rows" else 1 for events in self.groups.values())
        self.check("rows", held + purged + dead == in_all, f"{held} held + {purged} purged + {dead} dead ≠ {in_all}")

    def revisions(self, written: list[Written]) -> None:
        """In the order in which they were given to the sink; those on disk are among them."""
        contents: dict[tuple[int, int], set[tuple[str, str]]] = defaultdict(set)
        newest: dict[int, int] = {}
        for one in written:
            contents[one.window, one.revision].add((one.kind, one.digest))
            before = newest.get(one.window, 0)
            self.check("revisions", one.revision >= before, f"{one} came after revision {before}")
            newest[one.window] = max(before, one.revision)
        order = {"on_time": 0, "late": 1, "final": 2}
        for (window, revision), found in sorted(contents.items()):
            self.check("revisions", len(found) == 1, f"window {window}, revision {revision}: {sorted(found)}")
            self.check("revisions", revision >= 1, f"window {window} has a revision {revision}")
            kinds = {kind for kind, _ in found}
            self.check("revisions", ("on_time" in kinds) <= (revision == 1), f"window {window}: on time as {revision}")
        for window in newest:
            kinds_in_order = [
                order[kind] for (w, _), found in sorted(contents.items()) if w == window for kind, _ in found
            ]
            self.check(
                "revisions", kinds_in_order == sorted(kinds_in_order), f"window {window}: kinds {kinds_in_order}"
            )
