"""YSB over given rows: events as JSON text, some of which no query should trust.

An event that is no JSON, lacks a field that the query needs, or has a time that cannot be, is a reject: counted by
reason, and harmless to the others. One of them with a time far ahead would otherwise move the watermark past all that
is to come.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.workloads.base import QuerySpec
from slackwater.workloads.finite import Stage, window_starts_ms
from slackwater.workloads.ysb import ADS, ADS_PER_CAMPAIGN, EVENT_SCHEMA, count_views, enriched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

FIRST_MS = 1_600_000_000_000
SPAN_MS = 60_000
DELAY_S = 2.0
WINDOW_S = 10.0
PHASES_MS = (0, 3000, 7500)
# Events from before the benchmark, or from a time that nobody who wrote it will see.
EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_102_444_800_000
_CORRUPT = "_corrupt"


@dataclass(frozen=True)
class YsbFinite:
    """Three queries that differ in where their windows begin, and one that collects rejects."""

    name: str = "ysb"
    about: str = "YSB: views per campaign and window from JSON text, and what was no event"

    @property
    def tables(self) -> dict[str, str]:
        return {"events": "body STRING"}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            *(_views(f"views_{number}", phase_ms) for number, phase_ms in enumerate(PHASES_MS)),
            Stage("rejects", ("events",), _rejects, "reason STRING, body STRING", _counted, keys=("reason",)),
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def generate(self, seed: int, size: int) -> Rows:
        """Out of order by less than the watermark's delay; 1 in 25 is a reject, 1 in 50 of an unknown ad."""
        rng = random.Random(f"ysb-{seed}")
        return {"events": [{"body": _body(rng, FIRST_MS + number * SPAN_MS // size)} for number in range(size)]}

    def closing(self, rows: Rows) -> Rows:
        del rows
        return {"events": [{"body": json.dumps(_event(random.Random(0), FIRST_MS + 3_600_000, 0, "view"))}]}

    def expected(self, rows: Rows) -> Answers:
        events, rejects = [], Counter[str]()
        for row in rows["events"]:
            reason, event = _judged(row["body"])
            if reason is None:
                events.append(event)
            else:
                rejects[reason] += 1
        answers: dict[str, list[tuple[Any, ...]]] = {"rejects": sorted(rejects.items())}
        for number, phase_ms in enumerate(PHASES_MS):
            counts = Counter(
                (start_ms, event["ad_id"] // 10)
                for event in events
                if event["event_type"] == "view" and 0 <= event["ad_id"] < 1000
                for start_ms in window_starts_ms(event["event_time"], 10_000, phase_ms=phase_ms)
            )
            answers[f"views_{number}"] = sorted((*key, count) for key, count in counts.items())
        return answers


def _views(name: str, phase_ms: int) -> Stage:
    spec = QuerySpec(name, 0, WINDOW_S, DELAY_S, phase_ms, 0)

    def build(frames: Frames) -> DataFrame:
        good = checked(frames["events"]).where("reason IS NULL")
        events = good.selectExpr("event.ad_id", "event.event_type", "timestamp_millis(event.event_time) AS event_time")
        return count_views(enriched(events.sparkSession, events), spec).drop("batch_ts")

    columns = "window_start TIMESTAMP, campaign_id BIGINT, count BIGINT"
    return Stage(name, ("events",), build, columns, keys=("window_start", "campaign_id"))


def checked(raw: DataFrame) -> DataFrame:
    """(body, event, reason): reason is null where the event can be counted."""
    return raw.selectExpr(
        "body",
        f"""from_json(body, '{EVENT_SCHEMA}, {_CORRUPT} STRING', map('columnNameOfCorruptRecord', '{_CORRUPT}'))
            AS event""",
    ).selectExpr(
        "body",
        "event",
        f"""CASE WHEN event IS NULL OR event.{_CORRUPT} IS NOT NULL THEN 'malformed'
                 WHEN event.event_time IS NULL OR event.ad_id IS NULL OR event.event_type IS NULL THEN 'incomplete'
                 WHEN event.event_time NOT BETWEEN {EARLIEST_MS} AND {LATEST_MS} THEN 'impossible time'
            END AS reason""",
    )


def _rejects(frames: Frames) -> DataFrame:
    return checked(frames["events"]).where("reason IS NOT NULL").select("reason", "body")


def _counted(emitted: DataFrame) -> DataFrame:
    return emitted.groupBy("reason").count()


def _event(rng: random.Random, event_ms: int, ad: int, kind: str) -> dict[str, Any]:
    return {
        "user_id": rng.randrange(100),
        "page_id": rng.randrange(100),
        "ad_id": ad,
        "ad_type": rng.choice(("banner", "modal", "sponsored-search", "mail", "mobile")),
        "event_type": kind,
        "event_time": event_ms,
        "ip_address": f"10.0.{rng.randrange(256)}.{rng.randrange(256)}",
    }


def _body(rng: random.Random, arrival_ms: int) -> str:
    ad = ADS + rng.randrange(ADS_PER_CAMPAIGN) if rng.randrange(50) == 0 else rng.randrange(ADS)
    event_ms = arrival_ms - rng.randrange(round(1000 * DELAY_S))
    event = _event(rng, event_ms, ad, rng.choice(("view", "click", "purchase")))
    text = json.dumps(event)
    needed = rng.choice(("ad_id", "event_type"))
    impossible_ms = rng.choice((-1, 0, 10**13, 10**17, EARLIEST_MS - 1))
    faults = (
        text[: rng.randrange(1, 100)],
        rng.choice(("", "view", "<event/>", '"event"')),
        json.dumps(event | {"event_time": "soon"}),
        json.dumps(event | {"event_time": None}),
        json.dumps({field: value for field, value in event.items() if field != needed}),
        json.dumps(event | {"event_time": impossible_ms}),
    )
    fault = rng.randrange(25 * len(faults))
    return faults[fault] if fault < len(faults) else text


def _judged(body: str) -> tuple[str | None, dict[str, Any]]:
    try:
        event = json.loads(body)
    except ValueError:
        return "malformed", {}
    if not isinstance(event, dict) or not isinstance(event.get("event_time"), int | None):
        return "malformed", {}
    if any(event.get(field) is None for field in ("event_time", "ad_id", "event_type")):
        return "incomplete", {}
    # 2000-01-01 to 2100-01-01
    return ("impossible time", {}) if not 946_684_800_000 <= event["event_time"] <= 4_102_444_800_000 else (None, event)
