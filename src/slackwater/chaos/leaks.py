"""What an application holds, counted when all queries are gone, and whether it grows with those that were there."""

from __future__ import annotations

import gc
import math
import re
import statistics
import threading
import tracemalloc
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from slackwater.drivers.spark.handle import Handle

Sample = dict[str, float]

_VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
_MB = float(1 << 20)


@dataclass(frozen=True)
class Slack:
    """How much more there may be at the end than at the beginning: `more`, or this share of what there was."""

    more: float = 0.0
    share: float = 0.0

    def beside(self, first: float) -> float:
        return max(self.more, self.share * first)


# Everything else that is counted may not grow at all.
SLACKS: Final[Mapping[str, Slack]] = {
    "python_threads": Slack(2),
    "jvm_threads": Slack(6),  # pools of Spark's and of the JVM's own breathe
    "jvm_other_threads": Slack(6),
    "py4j_objects_in_the_jvm": Slack(30),
    "py4j_objects_in_python": Slack(30),
    "python_descriptors": Slack(6),
    "jvm_descriptors": Slack(12),
    "jvm_heap_live_mb": Slack(8, 0.08),
    "jvm_metaspace_mb": Slack(8, 0.08),
    "python_traced_mb": Slack(1.0, 0.05),
    "python_rss_mb": Slack(12, 0.08),
    # Bounded by limits of their own, and filling up.
    "engine_history": Slack(math.inf),
    "engine_orders": Slack(math.inf),
    "context_listeners": Slack(1),
}


class Leaks:
    """Takes samples; a while of the first ones is warm-up, and does not count."""

    def __init__(self, spark: SparkSession, handle: Handle | None) -> None:
        self._spark = spark
        self._handle = handle
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public door
        self._python = psutil.Process()
        self._java = psutil.Process(int(self._jvm.java.lang.ProcessHandle.current().pid()))
        self.samples: list[Sample] = []
        self._began_here = not tracemalloc.is_tracing()
        if self._began_here:
            tracemalloc.start(1)

    def close(self) -> None:
        if self._began_here:
            tracemalloc.stop()

    def take(self) -> Sample:
        """With garbage collected on both sides; nothing should be running."""
        gc.collect()
        system, beans = self._jvm.java.lang.System, self._jvm.java.lang.management.ManagementFactory
        for _ in range(2):  # what the first finalises goes with the second
            system.gc()
            system.runFinalization()
        jvm_names = self._jvm_threads()
        sample: Sample = {
            "python_threads": float(threading.active_count()),
            "python_threads_of_ours": float(sum(_ours(thread.name) for thread in threading.enumerate())),
            "jvm_threads": float(sum(jvm_names.values())),
            "jvm_stream_threads": float(sum(n for name, n in jvm_names.items() if name.startswith("stream execution"))),
            "jvm_threads_of_ours": float(sum(n for name, n in jvm_names.items() if _ours(name))),
            "pools": float(self._root_pool().schedulableQueue().size()),
            "py4j_objects_in_python": float(_py4j_objects()),
            "streaming_listeners": float(len(self._spark._jsparkSession.streams().listListeners())),  # noqa: SLF001
            "queries_that_spark_knows": float(self._known_queries()),
            "python_descriptors": float(self._python.num_fds()),
            "jvm_descriptors": float(self._java.num_fds()),
            "jvm_heap_live_mb": beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / _MB,
            "jvm_metaspace_mb": self._metaspace_mb(beans),
            "python_traced_mb": tracemalloc.get_traced_memory()[0] / _MB,
            "python_rss_mb": self._python.memory_info().rss / _MB,
        }
        with suppress(Exception):  # another version of py4j
            server = self._spark.sparkContext._gateway.java_gateway_server  # noqa: SLF001
            sample["py4j_objects_in_the_jvm"] = float(server.getGateway().getBindings().size())
        with suppress(Exception):  # another version of Spark
            bus = self._spark.sparkContext._jsc.sc().listenerBus()  # noqa: SLF001
            sample["context_listeners"] = float(bus.listeners().size())
        if self._handle is not None:
            sample |= {name: float(count) for name, count in self._handle.kept().items()}
        self.samples.append({name: round(value, 3) for name, value in sample.items()})
        return self.samples[-1]

    def _root_pool(self) -> Any:
        return self._spark.sparkContext._jsc.sc().taskScheduler().rootPool()  # noqa: SLF001

    def _known_queries(self) -> int:
        state = self._spark._jsparkSession.sharedState()  # noqa: SLF001
        return int(state.activeStreamingQueries().size())

    def _metaspace_mb(self, beans: Any) -> float:
        pools = [pool for pool in beans.getMemoryPoolMXBeans() if pool.getName() == "Metaspace"]
        return float(sum(pool.getUsage().getUsed() for pool in pools)) / _MB

    def _jvm_threads(self) -> Counter[str]:
        threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return Counter(_VARIABLE.sub("#", str(thread.getName())) for thread in threads)

    def thread_names(self) -> dict[str, int]:
        """What threads the JVM has now, for whoever has to find one too many."""
        return dict(sorted(self._jvm_threads().items()))


def _ours(name: str) -> bool:
    return name.startswith(("slackwater", "late ", "late-io"))


def _py4j_objects() -> int:
    from py4j.finalizer import ThreadSafeFinalizer  # noqa: PLC0415 - Spark brings it

    return len(ThreadSafeFinalizer.finalizers)


@dataclass(frozen=True)
class Growth:
    """Of one count: its median in the first third and in the last, and by how much it may grow."""

    name: str
    first: float
    last: float
    slack: float

    @property
    def allowed(self) -> bool:
        return self.last - self.first <= self.slack


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """From the second sample on: the first queries of an application load classes, start threads and fill caches."""
    counted = samples[1:] if len(samples) > 3 else samples
    third = max(1, len(counted) // 3)
    found = []
    for name in counted[0] if counted else ():
        first = statistics.median(sample[name] for sample in counted[:third])
        last = statistics.median(sample[name] for sample in counted[-third:])
        found.append(Growth(name, first, last, SLACKS.get(name, Slack()).beside(first)))
    return found
