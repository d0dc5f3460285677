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
_KEPT = ("engine_", "jvm_gates", "jvm_listeners", "jvm_leaving_pools", "jvm_known_runs", "jvm_notes", "jvm_untold_ends")


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
    "py4j_objects_in_the_jvm": Slack(30),
    "py4j_objects_in_python": Slack(30),
    "python_descriptors": Slack(6),
    "jvm_descriptors": Slack(12),
    "jvm_heap_live_mb": Slack(8, 0.08),
    "jvm_metaspace_mb": Slack(8, 0.08),
    "python_traced_mb": Slack(1.0, 0.05),
    "python_rss_mb": Slack(12, 0.08),
    # Bounded by limits of their own (Spark's pools by 100 threads each), and filling up.
    "jvm_block_manager_threads": Slack(math.inf),
    "engine_history": Slack(math.inf),
    "engine_orders": Slack(math.inf),
    "context_listeners": Slack(1),
    "sparks_listener_buses": Slack(math.inf),
}


def _context_listeners(listeners: Any) -> Sample:
    """Apart from buses for streaming listeners: Spark 4.3 leaves one behind for every query with state that ran.

    Asked for as text: an object for each would be counted among py4j's.
    """
    buses = str(listeners.toString()).count(".StreamingQueryListenerBus@")
    return {"context_listeners": float(listeners.size() - buses), "sparks_listener_buses": float(buses)}


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
        system = self._jvm.java.lang.System
        for _ in range(2):  # what the first finalises goes with the second
            system.gc()
            system.runFinalization()
        sample: Sample = self._py4j_objects()  # before anything here asks the JVM for more
        jvm_names = self._jvm_threads()
        pooled = sum(count for name, count in jvm_names.items() if name.startswith("block-manager-"))
        sample |= {
            "python_threads": float(threading.active_count()),
            "python_threads_of_ours": float(sum(_ours(thread.name) for thread in threading.enumerate())),
            "jvm_threads": float(sum(jvm_names.values()) - pooled),
            "jvm_block_manager_threads": float(pooled),
            "jvm_stream_threads": float(sum(n for name, n in jvm_names.items() if name.startswith("stream execution"))),
            "jvm_threads_of_ours": float(sum(n for name, n in jvm_names.items() if _ours(name))),
            "pools": float(self._root_pool().schedulableQueue().size()),
            "streaming_listeners": float(len(self._spark._jsparkSession.streams().listListeners())),  # noqa: SLF001
            "queries_that_spark_knows": float(self._known_queries()),
            "python_descriptors": float(self._python.num_fds()),
            "jvm_descriptors": float(self._java.num_fds()),
            "jvm_heap_live_mb": self._heap_mb(),
            "jvm_metaspace_mb": self._metaspace_mb(),
            "python_traced_mb": tracemalloc.get_traced_memory()[0] / _MB,
            "python_rss_mb": self._python.memory_info().rss / _MB,
        }
        with suppress(Exception):  # another version of Spark
            bus = self._spark.sparkContext._jsc.sc().listenerBus()  # noqa: SLF001
            sample |= _context_listeners(bus.listeners())
        if self._handle is not None:
            sample |= {name: float(count) for name, count in self._handle.kept().items()}
        self.samples.append({name: round(value, 3) for name, value in sample.items()})
        return self.samples[-1]

    def _py4j_objects(self) -> Sample:
        from py4j.finalizer import ThreadSafeFinalizer  # noqa: PLC0415 - Spark brings it

        found = {"py4j_objects_in_python": float(len(ThreadSafeFinalizer.finalizers))}
        with suppress(Exception):  # another version of py4j
            server = self._spark.sparkContext._gateway.java_gateway_server  # noqa: SLF001
            found["py4j_objects_in_the_jvm"] = float(server.getGateway().getBindings().size())
        return found

    def _root_pool(self) -> Any:
        return self._spark.sparkContext._jsc.sc().taskScheduler().rootPool()  # noqa: SLF001

    def _known_queries(self) -> int:
        state = self._spark._jsparkSession.sharedState()  # noqa: SLF001
        return int(state.activeStreamingQueries().size())

    def _heap_mb(self) -> float:
        bean = self._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        return float(self._asked("MemoryMXBean", bean, "getHeapMemoryUsage").getUsed()) / _MB

    def _metaspace_mb(self) -> float:
        pools = self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        found = [pool for pool in pools if self._asked("MemoryPoolMXBean", pool, "getName") == "Metaspace"]
        return sum(float(self._asked("MemoryPoolMXBean", pool, "getUsage").getUsed()) for pool in found) / _MB

    def _asked(self, kind: str, bean: Any, name: str) -> Any:
        """By the bean's interface: py4j would ask its class, which the JDK keeps to itself."""
        gateway = self._spark.sparkContext._gateway  # noqa: SLF001
        classes, values = self._jvm.java.lang.Class, self._jvm.java.lang.Object
        method = classes.forName(f"java.lang.management.{kind}").getMethod(name, gateway.new_array(classes, 0))
        return method.invoke(bean, gateway.new_array(values, 0))

    def _jvm_threads(self) -> Counter[str]:
        threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return Counter(_VARIABLE.sub("#", str(thread.getName())) for thread in threads)

    def thread_names(self) -> dict[str, int]:
        """What threads the JVM has now, for whoever has to find one too many. Without folders of this machine."""
        found: Counter[str] = Counter()
        for name, count in self._jvm_threads().items():
            found[re.sub(r"(?<=\s)/\S*/", "", name)] += count
        return dict(sorted(found.items()))


def _ours(name: str) -> bool:
    return name.startswith(("slackwater", "late ", "late-io"))


def ours(count: str) -> bool:
    """Whether it counts what only Slackwater makes: threads, pools, and what the scheduler keeps."""
    return count.endswith("_of_ours") or count in ("pools", "streaming_listeners") or count.startswith(_KEPT)


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
