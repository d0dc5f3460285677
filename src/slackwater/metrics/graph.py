"""The metric provider (Lachesis 5.2, Algorithm 3).

A metric declares what it needs and how it follows from that. The provider takes what the driver offers, derives the
rest, and computes each metric once a period, for all queries at a time. A primitive that the driver lacks is a
configuration error that names the chain which asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.core.model import Snapshot
from slackwater.errors import ConfigurationError

Column = NDArray[np.float64]
Downstream = Sequence[tuple[int, ...]]
Offer = Callable[[Snapshot], Column]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by name: `compute` gets the columns that it needs, in order, and who reads from whom."""

    name: str
    about: str
    needs: tuple[str, ...]
    compute: Callable[[Sequence[Column], Downstream], Column]


class MetricProvider:
    """For one driver: `offered` are its primitives, `catalogue` what can be derived."""

    def __init__(self, catalogue: Iterable[Metric], offered: Mapping[str, Offer], driver: str) -> None:
        self._catalogue = {metric.name: metric for metric in catalogue}
        self._offered = dict(offered)
        self._driver = driver

    def check(self, wanted: Iterable[str], chain: tuple[str, ...] = ()) -> None:
        """Raise ConfigurationError if a metric cannot be had, before anything is scheduled."""
        for name in wanted:
            path = (*chain, name)
            if name in chain:
                raise ConfigurationError(f"metrics that need each other: {' → '.join(path)}.")
            if name in self._offered:
                continue
            if name not in self._catalogue:
                offered = ", ".join(sorted(self._offered))
                raise ConfigurationError(
                    f"metric {' → '.join(path)}: the driver {self._driver!r} does not offer {name!r}, and nothing "
                    f"derives it. Offered are: {offered}. Choose a policy that needs other metrics."
                )
            self.check(self._catalogue[name].needs, path)

    def __call__(self, snapshot: Snapshot, wanted: Iterable[str]) -> dict[str, list[float]]:
        """One period: the wanted metrics, a value for each query of the snapshot."""
        places = {query.key: index for index, query in enumerate(snapshot.queries)}
        downstream = [tuple(places[key] for key in query.downstream if key in places) for query in snapshot.queries]
        cache: dict[str, Column] = {}
        return {name: self._compute(name, snapshot, downstream, cache).tolist() for name in wanted}

    def _compute(self, name: str, snapshot: Snapshot, downstream: Downstream, cache: dict[str, Column]) -> Column:
        if name not in cache:
            offer = self._offered.get(name)
            if offer is not None:
                cache[name] = offer(snapshot)
            else:
                metric = self._catalogue[name]
                needed = [self._compute(need, snapshot, downstream, cache) for need in metric.needs]
                cache[name] = metric.compute(needed, downstream)
        return cache[name]
