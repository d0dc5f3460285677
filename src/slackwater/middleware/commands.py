"""`slackwater middleware CONFIG.toml`: schedule several applications on this host until told to stop."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from types import FrameType

    from slackwater.middleware.run import Round

log = logging.getLogger("slackwater")

_READING_S = 3.0


def middleware(
    config: Path,
    *,
    check: bool = False,
    dry_run: bool = False,
    seconds: float | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Schedule several applications on this host with nice and cgroups, as a configuration says.

    Everything that was changed is put back when it ends (Ctrl-C, SIGTERM), or at the next start after a crash.

    Parameters
    ----------
    config
        The configuration, TOML; see docs/middleware.md.
    check
        Say whether it could work here, and end.
    dry_run
        Read and decide once, print what would be set, touch nothing.
    seconds
        End after so long.
    as_json
        Print a JSON line each period: what was read, decided and set, and what it cost.
    """
    from slackwater.middleware.assembly import assemble  # noqa: PLC0415 - loaded on use
    from slackwater.middleware.config import load  # noqa: PLC0415
    from slackwater.translators.journal import default_path  # noqa: PLC0415
    from slackwater.translators.restore import start  # noqa: PLC0415

    wanted = load(config)
    folder = config.resolve().parent
    if dry_run:
        running = assemble(wanted, folder, None)
        with running:
            threading.Event().wait(_READING_S)
            _show(running.step(time.time()), as_json=as_json)
        return
    journal = start(Path(wanted.journal) if wanted.journal else default_path())
    try:
        running = assemble(wanted, folder, journal)
        if check:
            print("The configuration can be used here: names, metrics and rights are in order.")
            return
        stop = threading.Event()
        _stop_on_signals(stop)
        if seconds is not None:
            threading.Timer(seconds, stop.set).start()
        print(
            f"Scheduling by {config} every {running.tick_s:g} s. Ctrl-C ends it and puts everything back.",
            file=sys.stderr,
        )
        with running:
            running.run(stop, _Changes(as_json=as_json))
        print("Everything is as it was before.", file=sys.stderr)
    finally:
        journal.close()


def _stop_on_signals(stop: threading.Event) -> None:
    def asked(number: int, _: FrameType | None) -> None:
        log.info("ending: %s", signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)


class _Changes:
    """Prints rounds: all as JSON lines, or for people those in which something changed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: Any = None

    def __call__(self, done: Round) -> None:
        if self._as_json or done.enactment != self._last:
            self._last = done.enactment
            _show(done, as_json=self._as_json)


def _show(done: Round, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_plain(done)), flush=True)
        return
    when = time.strftime("%H:%M:%S", time.localtime(done.wall_ts))
    for reading in done.readings:
        for application in reading.applications:
            for unit in application.units:
                nice = done.enactment.nices.get(unit.key)
                group = next((name for name, g in done.enactment.groups.items() if unit.key in g.members), None)
                words = [f"nice {nice}"] if nice is not None else []
                words += [f"group {group}, priority {done.enactment.groups[group].priority:.4g}"] if group else []
                print(f"{when}  {application.name:24} {unit.role:12} {', '.join(words) or 'not touched'}", flush=True)


def _plain(done: Round) -> dict[str, Any]:
    return {
        "wall_ts": done.wall_ts,
        "cpu_s": done.cpu_s,
        "applications": [
            {
                "key": application.key,
                "name": application.name,
                "engine": application.engine,
                "driver": reading.driver,
                "operators": [
                    {
                        "key": operator.key,
                        "name": operator.name,
                        "class": operator.priority_class,
                        "values": dict(operator.values),
                    }
                    for operator in application.operators
                ],
                "units": [
                    {
                        "key": unit.key,
                        "role": unit.role,
                        "pids": sorted(p.pid for p in unit.target.processes),
                        "tids": sorted(t.tid for t in unit.target.threads),
                    }
                    for unit in application.units
                ],
            }
            for reading in done.readings
            for application in reading.applications
        ],
        "nice": dict(done.enactment.nices),
        "groups": {
            name: {"priority": group.priority, "quota_cores": group.quota_cores, "members": sorted(group.members)}
            for name, group in done.enactment.groups.items()
        },
    }
