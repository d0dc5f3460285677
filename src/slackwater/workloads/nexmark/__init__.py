"""NEXMark: an auction house's persons, auctions and bids, and queries over them that other engines run too.

github.com/nexmark/nexmark is the public definition that is followed here; its q1, q2, q3, q4, q5, q7, q8 and q11.

- `schema`: the three tables.
- `generator`: seeded events.
- `queries`: the queries on Spark.
- `oracle`: their answers in plain Python.
- `run`: a query over given rows, in batch or as a stream.
"""

from __future__ import annotations

from slackwater.workloads.nexmark.generator import Generator, GeneratorSettings
from slackwater.workloads.nexmark.oracle import expected
from slackwater.workloads.nexmark.queries import OUTPUT_MODE, QUERIES, build
from slackwater.workloads.nexmark.run import run_query
from slackwater.workloads.nexmark.schema import Auction, Bid, Person, Rows

__all__ = [
    "OUTPUT_MODE",
    "QUERIES",
    "Auction",
    "Bid",
    "Generator",
    "GeneratorSettings",
    "Person",
    "Rows",
    "build",
    "expected",
    "run_query",
]
