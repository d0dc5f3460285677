"""Late data: windows leave when their watermark passes, and are corrected when rows come later.

late.window(events, "event_time", "10 minutes", watermark="30 seconds", allowed_lateness="2 hours", staleness=0.05)
    .groupBy("campaign").agg(F.count("*").alias("views")).start(late.Latest(path), checkpoint)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.late.bounds import Predicted
    from slackwater.late.query import handle, window
    from slackwater.late.sinks import Append, Function, Latest, latest

__all__ = ["Append", "Function", "Latest", "Predicted", "handle", "latest", "window"]

_WHERE = {
    "Append": "sinks",
    "Function": "sinks",
    "Latest": "sinks",
    "latest": "sinks",
    "Predicted": "bounds",
    "handle": "query",
    "window": "query",
}


def __getattr__(name: str) -> Any:
    """Imported when asked for: the store's commands work without Spark, and the package without pyarrow."""
    if name in _WHERE:
        import importlib  # noqa: PLC0415

        return getattr(importlib.import_module(f"slackwater.late.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'slackwater.late' has no attribute {name!r}")
