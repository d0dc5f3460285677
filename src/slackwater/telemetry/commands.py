"""`slackwater grafana`: the dashboard that comes with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from slackwater.errors import ConfigurationError


def dashboard_text() -> str:
    return files("slackwater.telemetry").joinpath("grafana/slackwater.json").read_text("utf-8")


def grafana(out: Path | None = None) -> None:
    """Print the Grafana dashboard for the metrics of `/metrics`, or write it to a file for Grafana to import.

    Parameters
    ----------
    out
        File to write; printed when not given.
    """
    text = dashboard_text()
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the dashboard cannot be written to {out}: {error.strerror}. Name a file in a folder that is there."
        ) from error
