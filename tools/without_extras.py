"""Run in an environment without extras: what must work there, and what must name the extra that it needs.

The suite runs the same with imports of the extras' packages blocked (`--blocked`). The last line is JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

# Modules that cannot be imported without these; all others can.
NEEDING = {
    "late": (
        "slackwater.late.",
        "slackwater.bench.late_worker",
        "slackwater.bench.kills",
        "slackwater.chaos.disk",
        "slackwater.chaos.scene",
        "slackwater.chaos.script",
    ),
    "dashboard": ("slackwater.endpoint.protocol", "slackwater.telemetry.exposition"),
    "report": ("slackwater.bench.plots", "slackwater.bench.late_plots", "slackwater.sim.figures"),
}
# Commands that begin no work before they see that their extra is missing.
COMMANDS = (
    ("late", "late status store"),
    ("late", "bench kills --kills 1"),
    ("late", "bench late --past-windows 1"),
    ("late", "bench beside"),
    ("late", "verify average"),
    ("late", "verify syn"),
    ("report", "bench report result.json"),
    ("report", "sim klink-ysb --plot picture.png"),
    ("kafka", "kafka produce ysb --servers 127.0.0.1:9 --seconds 1"),
)


def main(*, blocked: bool = False) -> None:
    if blocked:
        from slackwater.extras import EXTRA_OF  # noqa: PLC0415 - only where slackwater is importable without

        for package in EXTRA_OF:
            sys.modules[package] = None  # type: ignore[assignment]  # Python's own way to forbid an import
    wrong: list[str] = []
    modules = _import_all(wrong)
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        commands = [line for extra, line in COMMANDS if _names_its_extra(extra, line, wrong)]
        _serving_names_its_extra(wrong)
    print(json.dumps({"modules": modules, "commands": commands, "wrong": wrong}))


def _import_all(wrong: list[str]) -> int:
    import slackwater  # noqa: PLC0415

    count = 0
    for module in pkgutil.walk_packages(slackwater.__path__, "slackwater."):
        if module.name.endswith("__main__"):
            continue
        count += 1
        try:
            importlib.import_module(module.name)
        except Exception as error:
            if not module.name.startswith(tuple(name for names in NEEDING.values() for name in names)):
                wrong.append(f"import {module.name}: {type(error).__name__}: {error}")
    return count


def _names_its_extra(extra: str, line: str, wrong: list[str]) -> bool:
    from slackwater.cli import main as cli  # noqa: PLC0415

    said = io.StringIO()
    code: object = None
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            cli(line.split())
        except SystemExit as ended:
            code = ended.code
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
    good = code in (1, 2) and f"slackwater[{extra}]" in said.getvalue()
    if not good:
        wrong.append(f"slackwater {line}: ended with {code} and said {said.getvalue().strip()[-300:]!r}")
    return good


def _serving_names_its_extra(wrong: list[str]) -> None:
    from slackwater.endpoint.server import Endpoint  # noqa: PLC0415

    try:
        Endpoint(application_id="a", name="a", reads={}, host="127.0.0.1", port=0, folder=Path.cwd())
    except Exception as error:
        if "slackwater[dashboard]" not in str(error):
            wrong.append(f"serving: {type(error).__name__}: {error}")
    else:
        wrong.append("serving needs no extra here")


if __name__ == "__main__":
    main(blocked="--blocked" in sys.argv)
