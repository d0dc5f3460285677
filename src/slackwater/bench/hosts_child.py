"""An application that others share a host with: plain Spark, as fast as it can. `python -m … < spec.json`.

Tells on stdout, one JSON object a line: where its pages are, then every half second how many rows it has worked on.
Ends when its stdin does.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from slackwater.bench.session import bench_session, progress_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["saturating", "blocking"]
_TELL_EVERY_S = 0.5
_ROUNDS = 40
_BLOCKS_ONE_IN = 1000
_BLOCKS_MS = 200


@dataclass(frozen=True)
class ChildSpec:
    """kind: blocking ones also wait now and then, as for a remote system (Lachesis 6.4)."""

    name: str
    kind: Kind
    queries: int = 2
    rows_per_batch: int = 20_000
    cores: int = 2
    heap: str = "1g"


def work(spark: SparkSession, spec: ChildSpec) -> DataFrame:
    """Rows without end, each of which takes a while: every batch has as many as the last."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - a spec must be readable without Spark

    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", spec.rows_per_batch)
        .option("numPartitions", spec.cores)
        .load()
    )
    hashed = F.col("value").cast("string")
    for _ in range(_ROUNDS):
        hashed = F.sha2(hashed, 256)
    worked = rows.select(hashed.alias("hash"), "value")
    if spec.kind == "blocking":
        pause = F.expr(f"reflect('java.lang.Thread', 'sleep', cast(pmod(hash(value), {_BLOCKS_MS}) as bigint))")
        blocks = F.expr(f"pmod(hash(value, 7), {_BLOCKS_ONE_IN}) = 0")
        worked = worked.withColumn("paused", F.when(blocks, pause))
    return worked


def run(spec: ChildSpec) -> None:
    with tempfile.TemporaryDirectory(prefix="slackwater-host-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        spark = bench_session(
            scratch,
            scratch / "gc.log",
            cores=spec.cores,
            heap=spec.heap,
            partitions=2,
            collector="g1",
            more={"spark.app.name": spec.name, "spark.ui.enabled": "true", "spark.ui.port": "0"},
        )
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to the JVM
        streams = [
            work(spark, spec)
            .writeStream.format("noop")
            .queryName(f"{spec.name}-{number}")
            .option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
            .start()
            for number in range(spec.queries)
        ]
        _tell({"ui": spark.sparkContext.uiWebUrl})
        ended = threading.Event()
        threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
        seen: dict[str, int] = {}
        while not ended.wait(_TELL_EVERY_S):
            for stream in streams:
                for progress in progress_of(jvm, stream):
                    seen[f"{progress['runId']}/{progress['batchId']}"] = int(progress["numInputRows"])
            _tell({"wall_ts": time.time(), "rows": sum(seen.values())})
        for stream in streams:
            stream.stop()
        spark.stop()


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    run(msgspec.json.decode(sys.stdin.readline(), type=ChildSpec))


if __name__ == "__main__":
    main()
