"""A late query that dies where it is told to: `python -m slackwater.bench.kills_child SPEC.json`.

The driver's files kill their own process before, after or in the middle of an operation. Tasks write their parts with
plain files; a kill from outside hits those.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from slackwater.bench.kills_oracle import NO_WINDOW, Timing, Written
from slackwater.late.compaction import CompactionRule
from slackwater.late.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.late.index import WindowInfo

COLUMNS = "k string, n long, total long, ids long, top long"


@dataclass(frozen=True)
class Variant:
    name: str
    kind: str
    sliding: bool
    prestage: str = "predicted"
    latest: bool = False

    @property
    def timing(self) -> Timing:
        return Timing(slide=500) if self.sliding else Timing()


@dataclass(frozen=True)
class ChildSpec:
    """kill: a pattern of steps; the `count`-th that has it is the last. compare: with plain Spark, at the end."""

    folder: str
    variant: Variant
    kill: str | None = None
    count: int = 1
    compare: bool = False


class Done(msgspec.Struct):
    """All input is consumed and settled. Rows as (window start in ms, key, n, total, ids, top)."""

    latest: list[tuple[int, str, int, int, int, int]]
    spark: list[tuple[int, str, int, int, int, int]] | None
    status: dict[str, Any]


class Kills:
    """Ends this process at a step, and says in a file which it was."""

    def __init__(self, spec: ChildSpec) -> None:
        self._pattern = re.compile(spec.kill) if spec.kill else None
        self._left = spec.count
        self._file = Path(spec.folder) / "killed.txt"
        self._lock = threading.Lock()

    def step(self, what: str) -> None:
        if self._pattern is None or not self._pattern.search(what):
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._file.write_text(what)
                os.kill(os.getpid(), signal.SIGKILL)


class KillingFiles(Files):
    """A step is named by moment, operation and file, what was put in it, and, of a deletion, what the thread put last.

    put: is told of every file, with its content, before it is written; says what is in it.
    """

    def __init__(
        self, root: Path, kills: Kills, label: str, put: Callable[[str, bytes], str], *, temporary: str = "tmp"
    ) -> None:
        super().__init__(pafs.LocalFileSystem(), str(root), temporary=temporary)
        self._kills = kills
        self._label = label
        self._told = put
        self._in_thread = threading.local()

    def put(self, name: str, produce: Callable[[Any], None]) -> None:
        sink = pa.BufferOutputStream()
        produce(sink)
        content = sink.getvalue().to_pybytes()
        self._in_thread.target = f"{self._label}{name} {self._told(name, content)}".rstrip()
        try:
            super().put(name, lambda stream: stream.write(content) and None)
        finally:
            self._in_thread.last, self._in_thread.target = self._in_thread.target, None

    def write(self, name: str, produce: Callable[[Any], None]) -> None:
        def in_two(stream: Any) -> None:
            sink = pa.BufferOutputStream()
            produce(sink)
            content = sink.getvalue().to_pybytes()
            stream.write(content[: len(content) // 2])
            stream.flush()
            self._kills.step(f"in write {self._target(name)}")
            stream.write(content[len(content) // 2 :])

        with self._around(f"write {self._target(name)}"):
            super().write(name, in_two)

    def sync(self, name: str) -> None:
        with self._around(f"sync {self._target(name)}"):
            super().sync(name)

    def rename(self, name: str, to: str) -> None:
        with self._around(f"rename {self._target(to)}"):
            super().rename(name, to)

    def sync_folder(self, folder: str) -> None:
        with self._around(f"sync folder of {self._target(folder)}"):
            super().sync_folder(folder)

    def remove(self, name: str) -> None:
        with self._around(f"remove {self._label}{name} following {getattr(self._in_thread, 'last', None)}"):
            super().remove(name)

    def _target(self, name: str) -> str:
        return getattr(self._in_thread, "target", None) or f"{self._label}{name}"

    @contextmanager
    def _around(self, what: str) -> Iterator[None]:
        self._kills.step(f"before {what}")
        yield
        self._kills.step(f"after {what}")


class Eager(CompactionRule):
    """Merges whatever lies in two files."""

    def pays(self, window: WindowInfo, executions_expected: float) -> bool:
        del executions_expected
        return window.files > 1


def in_store(name: str, content: bytes) -> str:
    """What a segment of the journal records; a horizon counts when there were windows before it."""
    if not name.startswith("journal/segment_"):
        return ""
    records = json.loads(content.splitlines()[0])["records"]
    kinds = {record.get("kind", record["type"]) for record in records if record.get("windows") != 0}
    return " ".join(sorted(kinds))


class Sunk:
    """Writes down what the sink is given, before it has it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def __call__(self, name: str, content: bytes) -> str:
        del name
        rows = pq.read_table(pa.BufferReader(content)).to_pylist()
        first = rows[0]
        window = round(first["window"]["start"].timestamp() * 1000)
        lines = sorted(repr(sorted((key, str(value)) for key, value in row.items())) for row in rows)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        one = Written(window, first["revision"], first["kind"], f"{len(rows)} rows {digest}")
        with self._lock, self._file.open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")
        return str(first["kind"])


def summed(key: tuple[Any, ...], rows: Any) -> Any:
    """The pandas function: for groupBy(window, k)."""
    import pandas as pd  # noqa: PLC0415 - in a task

    values = {"k": key[1], "n": len(rows), "total": rows["v"].sum(), "ids": rows["id"].sum(), "top": rows["v"].max()}
    return pd.DataFrame({name: [value] for name, value in values.items()})


def session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from slackwater.drivers.spark.doctor import checkpoint_manager_class  # noqa: PLC0415
    from slackwater.drivers.spark.java import ensure_java  # noqa: PLC0415

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    config = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder / 'local'}",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "local" / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("slackwater-kills")
    for key, value in config.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", checkpoint_manager_class(spark) or "")
    return spark


def run(spec: ChildSpec) -> None:
    from slackwater import late  # noqa: PLC0415

    folder, variant, timing = Path(spec.folder), spec.variant, spec.variant.timing
    spark = session(folder)
    _note(folder, "spark")
    kills = Kills(spec)
    events = _events(spark.readStream.option("maxFilesPerTrigger", 1), folder)
    over = late.window(
        events,
        "ts",
        timing.size / 1000,
        timing.slide / 1000,
        watermark=timing.delay / 1000,
        allowed_lateness=timing.lateness / 1000,
        staleness=0.05,
    ).groupBy("k")
    query = over.apply(summed, COLUMNS) if variant.kind == "rows" else over.agg(*_aggregates())
    out = KillingFiles(folder / "out", kills, "out/", Sunk(folder / "written.jsonl"), temporary="_temporary")
    started = query.memory("64m", prestage=variant.prestage, compaction=Eager(), fold_after=8).start(
        late.Latest(out) if variant.latest else late.Append(out),
        folder / "checkpoint",
        store=KillingFiles(folder / "store", kills, "", in_store),
        name=variant.name,
    )
    _note(folder, "query")
    started.processAllAvailable()
    run_of = late.handle(started)
    if not run_of.settle(600):
        raise TimeoutError("late results are not out after 600 s")
    status = run_of.status()
    started.stop()
    run_of.await_end()
    latest = _rows(late.latest(spark.read.parquet(str(folder / "out"))))
    plain = _plain(spark, folder, spec) if spec.compare else None
    done = folder / "done.partial"
    done.write_bytes(msgspec.json.encode(Done(latest, plain, status)))
    done.rename(folder / "done.json")
    spark.stop()


def _events(reader: Any, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    events = reader.schema("id long, ts long, k string, v long").json(str(folder / "feed"))
    found: DataFrame = events.withColumn("ts", F.timestamp_millis("ts"))
    return found


def _aggregates() -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return [
        F.count("*").alias("n"),
        F.sum("v").alias("total"),
        F.sum("id").alias("ids"),
        F.max("v").alias("top"),
    ]


def _rows(results: DataFrame) -> list[Any]:
    return [
        tuple(r) for r in results.selectExpr("unix_millis(window.start)", "k", "n", "total", "ids", "top").collect()
    ]


def _plain(spark: SparkSession, folder: Path, spec: ChildSpec) -> list[Any]:
    """What plain Spark makes of all files in batch mode, without the dead letters."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    timing = spec.variant.timing
    events = _events(spark.read, folder).where("ts IS NOT NULL")
    lengths = (f"{ms} milliseconds" for ms in (timing.size, timing.slide))
    rows = events.withColumn("window", F.window("ts", *lengths))
    newest = events.agg(F.max(F.unix_millis("ts"))).first()
    assert newest is not None  # noqa: S101 - there are rows
    rows = rows.where(F.unix_millis(F.col("window.end")) <= newest[0] - timing.delay)
    if any((folder / "store" / "dead").iterdir()):
        dead = spark.read.parquet(str(folder / "store" / "dead")).where(F.col("_window") != NO_WINDOW)
        gone = dead.select(F.col("_window").alias("start"), F.col("id").alias("gone"))
        rows = rows.join(
            gone, (F.col("id") == F.col("gone")) & (F.unix_millis(F.col("window.start")) == F.col("start")), "anti"
        )
    return _rows(rows.groupBy("window", "k").agg(*_aggregates()))


def _note(folder: Path, event: str) -> None:
    with (folder / "notes.jsonl").open("ab") as file:
        file.write(msgspec.json.encode({"event": event, "wall_s": time.time()}) + b"\n")


if __name__ == "__main__":
    run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ChildSpec))
