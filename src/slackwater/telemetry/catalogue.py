"""Every metric there is: its name, what it means, its labels. Exposition, dashboard and docs are held against this.

Base units (seconds, bytes, rows), counters end in `_total`, what belongs to a query has the label `query`: its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter", "histogram", "info"]

# From a tenth of a second to ten minutes: what a window's result or a batch may take.
LATENCY_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
BATCH_BUCKETS_S: Final = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
WAIT_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """`unit` is the last part of the name, before `_total`, where it is one that OpenMetrics knows."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    unit: Literal["", "seconds", "bytes"] = ""
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name without the ending that its kind adds."""
        return self.name.removesuffix("_total").removesuffix("_info")


_QUERY: Final = ("query",)

METRICS: Final = (
    # The application and its scheduler
    Metric(
        "slackwater_application_info",
        "info",
        "The application, its Spark master, the version of Slackwater and the policy in charge.",
        ("application_id", "name", "master", "version", "policy"),
    ),
    Metric("slackwater_cores", "gauge", "Cores that tasks can have now."),
    Metric("slackwater_lanes", "gauge", "Turns that may run at once."),
    Metric("slackwater_lanes_busy", "gauge", "Turns that run now."),
    Metric("slackwater_decisions_total", "counter", "Decisions of the scheduler."),
    Metric(
        "slackwater_decision_p99_seconds",
        "gauge",
        "How long a decision takes, 99th percentile of the last 5000.",
        unit="seconds",
    ),
    Metric(
        "slackwater_last_decision_timestamp_seconds",
        "gauge",
        "Wall time of the last report that was decided on; it stands still when the scheduler does.",
        unit="seconds",
    ),
    Metric(
        "slackwater_scheduler_cpu_seconds_total",
        "counter",
        "Processor time of the scheduler, on the Python and on the JVM side.",
        unit="seconds",
    ),
    Metric(
        "slackwater_gates_open",
        "gauge",
        "1: the scheduler is not in charge, and queries follow their own triggers.",
    ),
    Metric("slackwater_gates_opened_total", "counter", "How often the watchdog opened the gates by itself."),
    Metric("slackwater_memory_used_bytes", "gauge", "Heap in use where state is kept, garbage included.", unit="bytes"),
    Metric("slackwater_memory_live_bytes", "gauge", "Heap that the last collection left.", unit="bytes"),
    Metric("slackwater_memory_max_bytes", "gauge", "Heap that there is.", unit="bytes"),
    Metric(
        "slackwater_memory_bound_bytes",
        "gauge",
        "From here on memory rules instead of slack; absent where the policy does not look.",
        unit="bytes",
    ),
    Metric("slackwater_memory_rules", "gauge", "1: memory rules now."),
    Metric("slackwater_memory_cycles_total", "counter", "How often memory began to rule."),
    Metric(
        "slackwater_telemetry_missed_records_total",
        "counter",
        "Batches and windows that came and went before they were counted; histograms lack them.",
    ),
    # Queries
    Metric(
        "slackwater_query_info",
        "info",
        "Spark's id of the query, which restarts keep, and of its present run.",
        ("query", "query_id", "run_id"),
    ),
    Metric("slackwater_query_up", "gauge", "1: it runs. 0: it has ended; it is shown for ten minutes more.", _QUERY),
    Metric("slackwater_query_failures_total", "counter", "Runs that ended in an error.", _QUERY),
    Metric("slackwater_query_paused", "gauge", "1: somebody paused it.", _QUERY),
    Metric("slackwater_query_class", "gauge", "Its class; a smaller one goes first.", _QUERY),
    Metric(
        "slackwater_query_latency_seconds",
        "histogram",
        "From a window's end to the end of the batch that emitted it.",
        _QUERY,
        "seconds",
        LATENCY_BUCKETS_S,
    ),
    Metric(
        "slackwater_query_batch_seconds",
        "histogram",
        "How long a micro-batch took.",
        _QUERY,
        "seconds",
        BATCH_BUCKETS_S,
    ),
    Metric(
        "slackwater_query_wait_seconds",
        "histogram",
        "How long it waited at its gate for a turn that it then got.",
        _QUERY,
        "seconds",
        WAIT_BUCKETS_S,
    ),
    Metric(
        "slackwater_query_turns_total",
        "counter",
        "Batches that ran, by what they were granted as: data, sweep, or ungated when nobody held it.",
        ("query", "stage"),
    ),
    Metric("slackwater_query_rows_total", "counter", "Rows that its batches took in.", _QUERY),
    Metric(
        "slackwater_query_dropped_rows_total",
        "counter",
        "Rows that Spark dropped as too late in this run; groups of them where it aggregates first.",
        _QUERY,
    ),
    Metric(
        "slackwater_query_slack_seconds",
        "gauge",
        "Time until its next sweeping watermark is expected, minus the cost of a turn; below 0: late.",
        _QUERY,
        "seconds",
    ),
    Metric(
        "slackwater_query_watermark_lag_seconds",
        "gauge",
        "How far its watermark is behind the wall clock.",
        _QUERY,
        "seconds",
    ),
    Metric("slackwater_query_backlog_rows", "gauge", "Rows that wait in its sources, as far as known.", _QUERY),
    Metric("slackwater_query_state_bytes", "gauge", "Memory of its state stores.", _QUERY, "bytes"),
    Metric("slackwater_query_state_rows", "gauge", "Rows in its state stores.", _QUERY),
    Metric(
        "slackwater_query_last_batch_timestamp_seconds",
        "gauge",
        "Wall time at which its last batch ended.",
        _QUERY,
        "seconds",
    ),
    # Late windows
    Metric("slackwater_late_open_windows", "gauge", "Windows whose watermark has not passed.", _QUERY),
    Metric("slackwater_late_past_windows", "gauge", "Windows that left and still take late rows.", _QUERY),
    Metric("slackwater_late_pending_rows", "gauge", "Late rows that no result has yet.", _QUERY),
    Metric(
        "slackwater_late_staleness_ratio",
        "gauge",
        "The greatest staleness of a result so far in this run, as a share (Aion's t·n/(T·N)).",
        _QUERY,
    ),
    Metric(
        "slackwater_late_revisions_total",
        "counter",
        "Results of windows, by kind: on_time, late, final, and repeated after a restart.",
        ("query", "kind"),
    ),
    Metric("slackwater_late_rows_total", "counter", "Rows that came after their window had left.", _QUERY),
    Metric("slackwater_late_dead_letters_total", "counter", "Rows that came even later, and are kept apart.", _QUERY),
    Metric("slackwater_late_purged_windows_total", "counter", "Windows that no more rows may come for.", _QUERY),
    Metric("slackwater_late_memory_bytes", "gauge", "Memory that windows hold.", _QUERY, "bytes"),
    # Alarms
    Metric(
        "slackwater_alarms_active",
        "gauge",
        "Alarms that are on, by kind; query is empty where one concerns the application.",
        ("kind", "query"),
    ),
)
