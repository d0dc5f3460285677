"""`slackwater kafka produce`: a workload's rows into topics, for as long as one likes."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

from cyclopts import Parameter

from slackwater.bench.model import Network  # noqa: TC001 - cyclopts reads the annotations
from slackwater.bench.producer import ProducerPlan, Producing, run
from slackwater.bench.showing import terminated_as_interrupted
from slackwater.errors import ConfigurationError
from slackwater.kafka.topics import create_topics
from slackwater.workloads.arrivals import Late, read_handovers
from slackwater.workloads.base import query_specs
from slackwater.workloads.registry import workload_entry


def produce(
    workload: str,
    *,
    servers: str,
    seconds: float = 60.0,
    rate: int | None = None,
    queries: int = 1,
    partitions: int = 1,
    network: Network = "uniform",
    network_longest: float = 0.5,
    late_share: float = 0.0,
    late_longest: float = 60.0,
    seed: int = 0,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Make topics for queries of a workload and fill them at a set rate.

    Parameters
    ----------
    workload
        ysb, nyt or linear-road.
    servers
        The broker, as `slackwater kafka start` prints it.
    seconds
        For how long; Ctrl-C ends it before.
    rate
        Rows per second of each query; the workload's usual one when not given.
    queries
        Number of queries, each with topics of its own.
    partitions
        Partitions of each topic.
    network
        The law of the rows' delays on their way to the broker: none, uniform or zipf.
    network_longest
        The longest of those delays, in seconds.
    late_share
        Share of rows that are late on top.
    late_longest
        By how many seconds at most.
    seed
        Of rows, delays and late rows.
    as_json
        Print facts as JSON.
    """
    entry = workload_entry(workload)
    if seconds <= 0:
        raise ConfigurationError(f"seconds must be greater than 0; got {seconds:g}.")
    rate = rate or entry.rate
    entry.check(entry.payloads[0], rate, entry.window_s, entry.slide_s)
    specs = query_specs(
        workload.replace("-", "_"),
        queries,
        rate=rate,
        window_s=entry.window_s,
        slide_s=entry.slide_s,
        delay_s=1.0,
        phases="spread",
        seed=seed,
    )
    begins: SimpleQueue[str | None] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="slackwater-producer-") as folder:
        log = Path(folder) / "producer.jsonl"
        late = Late(late_share, late_longest)
        plan = ProducerPlan(workload, servers, specs, str(log), network, network_longest, late, partitions)
        producing = Producing(plan)
        create_topics(servers, producing.topics, partitions)
        for topic in producing.topics:
            begins.put(topic)
        timer = threading.Timer(seconds, begins.put, [None])
        timer.daemon = True
        timer.start()
        with terminated_as_interrupted():
            try:
                run(producing, begins)
            except KeyboardInterrupt:
                producing.finish()
        behind_ms = max(int(read_handovers(log, topic).late_ms.max(initial=0)) for topic in producing.topics)
    if as_json:
        print(json.dumps({"rows": producing.rows, "topics": producing.topics, "behind_s": behind_ms / 1000}))
    else:
        print(f"{producing.rows} rows in {', '.join(producing.topics)}; at worst {behind_ms / 1000:.3f} s late")
