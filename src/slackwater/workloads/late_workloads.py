"""Aion's four workloads by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.workloads.average import Average
from slackwater.workloads.bigrams import Bigrams
from slackwater.workloads.linear_road_60s import LinearRoad60s
from slackwater.workloads.stock_market import StockMarket

if TYPE_CHECKING:
    from slackwater.workloads.late_events import LateWorkload

LATE_WORKLOADS: dict[str, LateWorkload] = {
    workload.name: workload for workload in (Average(), Bigrams(), StockMarket(), LinearRoad60s())
}
