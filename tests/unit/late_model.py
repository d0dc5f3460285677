"""A caller that follows the store's protocol as Spark would have it, and the model that the store is compared with."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slackwater.late.errors import PurgedWindowError
from slackwater.late.store import WindowStore
from tests.unit.late_faults import Crash, Faults, FaultyFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = pa.schema([("event_time", pa.timestamp("ms")), ("value", pa.int64())])


def table(*values: int) -> Any:
    return pa.table({"event_time": pa.array(values, pa.timestamp("ms")), "value": pa.array(values)}, SCHEMA)


def values(found: Any) -> list[int]:
    return list(found["value"].to_pylist())


@dataclass
class Model:
    """What must be seen: rows of windows, windows that are gone, dead rows, results by execution."""

    rows: dict[int, list[int]] = field(default_factory=dict)
    purged: set[int] = field(default_factory=set)
    before: int | None = None
    dead: Counter[int] = field(default_factory=Counter)
    emitted: dict[tuple[int, str], int] = field(default_factory=dict)
    committed: int = -1

    def gone(self, window: int) -> bool:
        return window in self.purged or (self.before is not None and window < self.before)


@dataclass(frozen=True)
class Batch:
    """Rows by window; `parts` says in how many files, of the attempts one after the other."""

    rows: dict[int, list[int]]
    parts: tuple[int, ...] = (1,)

    def model(self, model: Model) -> None:
        model.committed += 1
        for window, found in self.rows.items():
            if not found:
                continue
            if model.gone(window):
                model.dead[window] += len(found)
            else:
                model.rows.setdefault(window, []).extend(found)

    def run(self, store: WindowStore, spark: Spark) -> None:
        batch_id = spark.committed + 1
        parts = self.parts[min(spark.attempt, len(self.parts) - 1)]
        store.begin(batch_id)
        dead = {window: table(*found) for window, found in self.rows.items() if store.is_purged(window)}
        alive = {window: found for window, found in self.rows.items() if window not in dead}
        if parts == 1:
            store.write(batch_id, {window: table(*found) for window, found in alive.items()})
        else:
            for part in range(parts):
                share = {w: table(*found[_share(found, part, parts)]) for w, found in alive.items()}
                store.write(batch_id, share, part=part)
        store.dead(batch_id, dead)
        store.files.faults.step("before Spark commits")  # type: ignore[attr-defined]
        spark.committed = batch_id
        store.files.faults.step("after Spark commits")  # type: ignore[attr-defined]
        store.commit(batch_id)


def _share(found: list[int], part: int, parts: int) -> slice:
    return slice(len(found) * part // parts, len(found) * (part + 1) // parts)


@dataclass(frozen=True)
class Compact:
    window: int

    def model(self, model: Model) -> None:
        pass

    def run(self, store: WindowStore, spark: Spark) -> None:
        store.compact(self.window)


@dataclass(frozen=True)
class PurgeOne:
    window: int

    def model(self, model: Model) -> None:
        model.purged.add(self.window)
        model.rows.pop(self.window, None)

    def run(self, store: WindowStore, spark: Spark) -> None:
        assert store.purge(self.window)


@dataclass(frozen=True)
class PurgeBefore:
    start: int

    def model(self, model: Model) -> None:
        model.before = self.start if model.before is None else max(model.before, self.start)
        model.rows = {window: found for window, found in model.rows.items() if not model.gone(window)}
        model.emitted = {key: number for key, number in model.emitted.items() if key[0] >= model.before}

    def run(self, store: WindowStore, spark: Spark) -> None:
        assert store.purge_before(self.start)


@dataclass(frozen=True)
class Emit:
    window: int
    execution: str

    def model(self, model: Model) -> None:
        if not model.gone(self.window):
            key = (self.window, self.execution)
            mine = [number for (window, _), number in model.emitted.items() if window == self.window]
            model.emitted.setdefault(key, 1 + max(mine, default=0))

    def run(self, store: WindowStore, spark: Spark) -> None:
        try:
            store.emit([self.window], "late", self.execution)
        except PurgedWindowError:
            assert store.is_purged(self.window)


Action = Batch | Compact | PurgeOne | PurgeBefore | Emit


@dataclass
class Spark:
    """Its commit log survives every crash; `attempt` counts the runs of the present action."""

    committed: int = -1
    attempt: int = 0


def opened(root: Path, committed: int, faults: Faults | None = None, *, rename: bool | None = None) -> WindowStore:
    store = WindowStore(FaultyFiles(root, faults, rename=rename), SCHEMA, event_time="event_time", fold_after=3)
    try:
        store.open(committed)
    except BaseException:
        store.close()
        raise
    return store


def stopped(root: Path, spark: Spark, work: Callable[[WindowStore], None], faults: Faults, **how: Any) -> bool:
    """Open, work, and be stopped, in the middle (then it says so) or right after it.

    power: None, a kill; True, a power cut that takes all that is not synced; a chance, some of it.
    """
    power, rename = how.get("power"), how.get("rename")
    store = WindowStore(FaultyFiles(root, faults, rename=rename), SCHEMA, event_time="event_time", fold_after=3)
    try:
        store.open(spark.committed)
        work(store)
    except Crash:
        return True
    finally:
        if power is not None:
            store.files.cut_power(power if power is not True else None)  # type: ignore[attr-defined]
        store.close()
    return False


def check(store: WindowStore, *allowed: Model) -> None:
    """The store shows one of these states, whole."""
    rows = {info.start_ms: values(store.read(info.start_ms)) for info in store.windows()}
    counts = {info.start_ms: info.rows for info in store.windows()}
    assert counts == {window: len(found) for window, found in rows.items()}
    emitted = {
        (window, emission.execution): emission.revision
        for window, found in store._journal.ledger.emissions.items()
        for emission in found.values()
    }
    seen = (rows, store.dead_counts(), emitted)
    assert seen in [(model.rows, dict(sorted(model.dead.items())), model.emitted) for model in allowed]
    if len(allowed) == 1:
        assert all(store.is_purged(window) for window in allowed[0].purged)
        assert store.verify().problems == []


def after(model: Model, action: Action) -> Model:
    changed = copy.deepcopy(model)
    action.model(changed)
    return changed


def chance_of(seed: int) -> random.Random:
    import random  # noqa: PLC0415

    return random.Random(seed)
