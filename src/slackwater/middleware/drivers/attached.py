"""Applications that are attached and serve (`attach(serve=True)`): everything that their own scheduler knows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.endpoint import discovery
from slackwater.endpoint.asking import Asker
from slackwater.endpoint.overview import FORMAT, Overview
from slackwater.errors import UnreachableError
from slackwater.middleware.host import FRESH_S, Host
from slackwater.middleware.model import Application, Operator
from slackwater.middleware.spark_processes import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.endpoint.overview import QueryOverview

log = logging.getLogger("slackwater")


class AttachedDriver:
    """Asks the endpoints at `urls`, and those announced in `folder` (this user's own when nothing is given)."""

    name = "slackwater"
    offers = frozenset(
        {
            "queue-rows",
            "head-age-s",
            "rows-per-s",
            "row-cost-s",
            "batch-cost-s",
            "sweep-cost-s",
            "selectivity",
            "state-bytes",
        }
    )

    def __init__(self, urls: Sequence[str] = (), folder: str | None = None, host: Host | None = None) -> None:
        self._urls = tuple(urls)
        self._folder = Path(folder) if folder else (None if urls else discovery.default_folder())
        self._host = host or Host()
        self._askers: dict[str, Asker] = {}

    def read(self, wall_ts: float) -> list[Application]:  # noqa: ARG002 - endpoints tell their own time
        self._host.refresh(FRESH_S)
        announced = discovery.announced(self._folder) if self._folder is not None else []
        urls = [*dict.fromkeys([*self._urls, *(found.url for found in announced)])]
        for gone in self._askers.keys() - set(urls):
            self._askers.pop(gone).close()
        found, silent = [], []
        for url in urls:
            try:
                found.append(self._application(url))
            except UnreachableError as error:
                silent.append(error)
        if silent and not found:
            raise silent[0]
        return found

    def close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers.clear()

    def _application(self, url: str) -> Application:
        if url not in self._askers:
            self._askers[url] = Asker(url)
        told = self._askers[url].get("/api/status", Overview)
        if told.format != FORMAT:
            raise UnreachableError(
                f"{url} speaks format {told.format} of the status, this middleware {FORMAT}: "
                "use the same version of Slackwater for both."
            )
        key = f"spark/{told.application_id}"
        units = units_of(self._host, key, told.application_id, self._host.process(told.jvm_pid))
        return Application(
            key=key,
            name=told.name,
            engine="spark",
            operators=tuple(_operator(key, query, tuple(unit.key for unit in units)) for query in told.queries),
            units=units,
        )


def _operator(key: str, query: QueryOverview, units: tuple[str, ...]) -> Operator:
    return Operator(
        key=f"{key}/{query.key}",
        name=query.name,
        runs_on=units,
        downstream=tuple(f"{key}/{reader}" for reader in query.downstream),
        values={
            "queue-rows": query.backlog_rows,
            "head-age-s": query.head_age_s,
            "rows-per-s": query.rows_per_s,
            "row-cost-s": query.row_cost_s,
            "batch-cost-s": query.batch_cost_s,
            "sweep-cost-s": query.sweep_cost_s,
            "selectivity": query.selectivity,
            "state-bytes": float(query.state_bytes),
        },
        priority_class=query.priority_class,
    )
