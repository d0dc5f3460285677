"""Say what in a session's settings costs a streaming user time, and what to do about it.

`session_facts` reads the session; `examine` judges those facts and touches nothing. Times quoted as gains
were measured with Spark 4.3.0 on 2 cores and a local disk; where nothing was measured the finding says so.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Severity = Literal["high", "medium", "low"]

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"
SCHEDULER_MODE = "spark.scheduler.mode"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
STATE_STORE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
BATCHES_RETAINED = "spark.sql.streaming.minBatchesToRetain"
PROGRESS_RETAINED = "spark.sql.streaming.numRecentProgressUpdates"
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
ADAPTIVE = "spark.sql.adaptive.enabled"
UI = "spark.ui.enabled"

SHUFFLE_PARTITIONS_DEFAULT = 200
PARTITIONS_PER_CORE_MAX = 4
RETAINED_MAX = 1000
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
S3_CHECKPOINT_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

# Spark 4.1 moved the class into a package of its own.
LOCAL_CHECKPOINT_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)


@dataclass(frozen=True)
class SessionFacts:
    """What a session is set to, as far as streaming cares.

    `checkpoint_schemes` holds the file systems that checkpoints go to: the session's default place, and
    those of the queries that run already. `checkpoint_manager` is None when Spark's default is in force,
    `local_checkpoint_manager` is the class that this Spark has for local disks.
    """

    spark_version: str
    master: str
    cores: int
    scheduler_mode: str
    shuffle_partitions: int
    shuffle_partitions_set: bool
    checkpoint_manager: str | None
    local_checkpoint_manager: str | None
    checkpoint_schemes: frozenset[str]
    adaptive: bool
    state_store_provider: str
    no_data_batches: bool
    batches_retained: int
    progress_retained: int
    watermark_policy: str
    ui: bool

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor, such as (4, 3)."""
        major, minor = re.findall(r"\d+", self.spark_version)[:2]
        return int(major), int(minor)

    @property
    def in_one_process(self) -> bool:
        """Whether the driver runs the tasks itself, so that the number of cores is known from the start."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def checkpoints_are_local(self) -> bool:
        return self.checkpoint_schemes == {"file"}


@dataclass(frozen=True)
class Finding:
    """One setting that could be better. `value` is what to set it to, where one value is right.

    `safe_to_apply` means: the user left Spark's default, the running session accepts the change, and no
    answer of a query can change by it.
    """

    setting: str
    found: str
    advice: str
    gain: str
    safe_to_apply: bool
    severity: Severity
    value: str | None = None


def session_facts(spark: SparkSession) -> SessionFacts:
    """Read the facts of a classic (not Connect) session."""
    java_session = spark._jsparkSession  # noqa: SLF001
    explicit = java_session.conf().getAll()
    context_conf = spark.sparkContext.getConf()
    return SessionFacts(
        spark_version=spark.version,
        master=spark.sparkContext.master,
        cores=spark.sparkContext.defaultParallelism,
        scheduler_mode=context_conf.get(SCHEDULER_MODE, "FIFO").upper(),
        shuffle_partitions=int(spark.conf.get(SHUFFLE_PARTITIONS)),
        shuffle_partitions_set=explicit.contains(SHUFFLE_PARTITIONS),
        checkpoint_manager=spark.conf.get(CHECKPOINT_MANAGER) if explicit.contains(CHECKPOINT_MANAGER) else None,
        local_checkpoint_manager=checkpoint_manager_class(spark),
        checkpoint_schemes=_checkpoint_schemes(spark),
        adaptive=spark.conf.get(ADAPTIVE) == "true",
        state_store_provider=spark.conf.get(STATE_STORE_PROVIDER),
        no_data_batches=spark.conf.get(NO_DATA_BATCHES) == "true",
        batches_retained=int(spark.conf.get(BATCHES_RETAINED)),
        progress_retained=int(spark.conf.get(PROGRESS_RETAINED)),
        watermark_policy=spark.conf.get(WATERMARK_POLICY).lower(),
        ui=context_conf.get(UI, "true").lower() == "true",
    )


def checkpoint_manager_class(spark: SparkSession) -> str | None:
    """The name under which this Spark has the checkpoint manager for local disks, None if it has none."""
    jvm: Any = spark._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in LOCAL_CHECKPOINT_MANAGERS:
        try:
            jvm.java.lang.Class.forName(name, False, loader)
        except Py4JJavaError:
            continue
        return name
    return None


def _checkpoint_schemes(spark: SparkSession) -> frozenset[str]:
    java_session: Any = spark._jsparkSession  # noqa: SLF001
    default_fs = java_session.sessionState().newHadoopConf().get("fs.defaultFS", "file:///")
    places = [spark.conf.get(CHECKPOINT_LOCATION, None) or default_fs]
    for query in spark.streams.active:
        try:
            places.append(query._jsq.streamingQuery().resolvedCheckpointRoot())  # noqa: SLF001
        except Py4JError as error:
            log.debug("checkpoint location of query %s not readable: %s", query.id, error)
    fallback = urlsplit(default_fs).scheme or "file"
    return frozenset(urlsplit(place).scheme or fallback for place in places)


def doctor(spark: SparkSession) -> list[Finding]:
    """What in this session's settings costs latency, costliest first."""
    return examine(session_facts(spark))


def examine(settings: SessionFacts) -> list[Finding]:
    """What could be better, the costliest first. An empty list means that nothing is known to be wrong."""
    checks: tuple[Callable[[SessionFacts], Finding | None], ...] = (
        _shuffle_partitions,
        _progress_retained,
        _no_data_batches,
        _watermark_policy,
        _checkpoint_manager,
        _scheduler_mode,
        _state_store,
        _batches_retained,
        _adaptive,
        _ui,
    )
    findings = [finding for check in checks if (finding := check(settings)) is not None]
    order: tuple[Severity, ...] = ("high", "medium", "low")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _shuffle_partitions(settings: SessionFacts) -> Finding | None:
    if settings.shuffle_partitions <= PARTITIONS_PER_CORE_MAX * settings.cores:
        return None
    target = min(max(settings.cores, 1), SHUFFLE_PARTITIONS_DEFAULT)
    left_at_default = not settings.shuffle_partitions_set and settings.shuffle_partitions == SHUFFLE_PARTITIONS_DEFAULT
    whose = "Spark's default" if left_at_default else "set by the user"
    where = (
        f"Set it to {target}, one per core"
        if settings.in_one_process
        else "Set it to the number of cores that the executors will have once all have joined"
    )
    return Finding(
        setting=SHUFFLE_PARTITIONS,
        found=f"{settings.shuffle_partitions} ({whose}) on {settings.cores} cores",
        advice=(
            f"{where}, before a stateful query starts for the first time: its checkpoint keeps the number "
            "for good. The batch jobs of the session follow it, too."
        ),
        gain="a small query on 2 cores, per batch: 3018 ms with 200 partitions, 274 ms with 2, 161 ms with 1",
        safe_to_apply=left_at_default and settings.in_one_process,
        severity="high",
        value=str(target) if settings.in_one_process else None,
    )


def _checkpoint_manager(settings: SessionFacts) -> Finding | None:
    if settings.checkpoint_manager is not None:
        return None
    if settings.checkpoints_are_local and settings.local_checkpoint_manager is not None:
        return Finding(
            setting=CHECKPOINT_MANAGER,
            found="Spark's default (FileContext), with checkpoints on a local disk",
            advice=(
                f"Set it to {settings.local_checkpoint_manager} before queries start. It holds for the whole "
                "session: leave it if some query keeps its checkpoint on a remote file system."
            ),
            gain="no `chmod` process per file; the write-ahead commit of a batch took 18 ms instead of 71 ms",
            safe_to_apply=True,
            severity="medium",
            value=settings.local_checkpoint_manager,
        )
    if "s3a" in settings.checkpoint_schemes:
        return Finding(
            setting=CHECKPOINT_MANAGER,
            found="Spark's default, with checkpoints on s3a",
            advice=f"With the spark-hadoop-cloud jar, try {S3_CHECKPOINT_MANAGER}: it needs no rename.",
            gain="one upload per file instead of upload, copy and delete; not measured here",
            safe_to_apply=False,
            severity="medium",
            value=S3_CHECKPOINT_MANAGER,
        )
    return None


def _scheduler_mode(settings: SessionFacts) -> Finding | None:
    if settings.scheduler_mode == "FAIR":
        return None
    return Finding(
        setting=SCHEDULER_MODE,
        found=settings.scheduler_mode,
        advice=(
            "Start the session with FAIR: a running context cannot change it. Without it queries get no "
            "pools of their own, and the tasks of an urgent batch wait behind those submitted earlier."
        ),
        gain="tasks of the most urgent query first; not measured on its own",
        safe_to_apply=False,
        severity="medium",
        value="FAIR",
    )


def _no_data_batches(settings: SessionFacts) -> Finding | None:
    if settings.no_data_batches:
        return None
    return Finding(
        setting=NO_DATA_BATCHES,
        found="false",
        advice=(
            "Leave it at true: the batch after the one that moved the watermark emits the window, and "
            "without new data Spark then does not run it."
        ),
        gain="a finished window comes out at once instead of when the next rows arrive",
        safe_to_apply=False,
        severity="high",
        value="true",
    )


def _state_store(settings: SessionFacts) -> Finding | None:
    if not settings.state_store_provider.endswith("HDFSBackedStateStoreProvider"):
        return None
    return Finding(
        setting=STATE_STORE_PROVIDER,
        found="in memory (HDFSBackedStateStoreProvider)",
        advice=(
            f"With long windows or many keys, set it to {ROCKSDB_PROVIDER}, which keeps state outside the "
            "Java heap. Only queries that start with a new checkpoint follow."
        ),
        gain="state no longer bounded by the heap; a batch with 2 partitions took 222 ms instead of 274 ms",
        safe_to_apply=False,
        severity="low",
        value=ROCKSDB_PROVIDER,
    )


def _progress_retained(settings: SessionFacts) -> Finding | None:
    # Spark drops entries while there are *at least* this many, so 1 keeps none.
    if settings.progress_retained < 2:
        return Finding(
            setting=PROGRESS_RETAINED,
            found=str(settings.progress_retained),
            advice="Set it to 2 or more: below, Spark keeps no progress and `lastProgress` stays empty.",
            gain="the scheduler can learn what batches cost",
            safe_to_apply=False,
            severity="high",
            value="2",
        )
    if settings.progress_retained > RETAINED_MAX:
        return Finding(
            setting=PROGRESS_RETAINED,
            found=str(settings.progress_retained),
            advice="Set it to 100, Spark's default: each query keeps as many reports on the driver's heap.",
            gain="driver memory, times the number of queries; not measured here",
            safe_to_apply=False,
            severity="low",
            value="100",
        )
    return None


def _batches_retained(settings: SessionFacts) -> Finding | None:
    if settings.batches_retained <= RETAINED_MAX:
        return None
    return Finding(
        setting=BATCHES_RETAINED,
        found=str(settings.batches_retained),
        advice="Set it to 100, Spark's default: the files of a batch stay for as many batches more.",
        gain="fewer files in each checkpoint to list and to delete; not measured here",
        safe_to_apply=False,
        severity="low",
        value="100",
    )


def _watermark_policy(settings: SessionFacts) -> Finding | None:
    if settings.watermark_policy != "max":
        return None
    return Finding(
        setting=WATERMARK_POLICY,
        found="max",
        advice=(
            "Prefer min unless it is meant: with max, rows of a query's slower input are dropped as late. "
            "A checkpoint keeps the policy that it started with."
        ),
        gain="complete results of queries with several inputs",
        safe_to_apply=False,
        severity="medium",
        value="min",
    )


def _adaptive(settings: SessionFacts) -> Finding | None:
    # Before 4.1 Spark turns it off in every streaming query by itself; since then only in stateful ones.
    if not settings.adaptive or settings.version < (4, 1):
        return None
    return Finding(
        setting=ADAPTIVE,
        found="true, which since Spark 4.1 holds for stateless streaming queries, too",
        advice="Nothing to do for windowed queries; for stateless ones with a join, try false.",
        gain="each shuffle or broadcast of a batch no longer is a job of its own; not measured here",
        safe_to_apply=False,
        severity="low",
    )


def _ui(settings: SessionFacts) -> Finding | None:
    if not settings.ui:
        return None
    return Finding(
        setting=UI,
        found="true",
        advice=(
            "Leave it on if you look at it. Otherwise start the session with false, or with a smaller "
            "spark.sql.ui.retainedExecutions: every batch leaves its plan and metrics on the driver's heap."
        ),
        gain="driver memory and some CPU per batch; not measured here",
        safe_to_apply=False,
        severity="low",
        value="false",
    )
