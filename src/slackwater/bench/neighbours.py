"""Processes that run beside a measured one: other applications, and the middleware. Ended with their `with` block."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
import psutil

from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from slackwater.bench.hosts_child import ChildSpec

_STARTING_S = 180.0
_ENDING_S = 15.0
_KEPT_LINES = 40


class _Process:
    """A child in a session of its own; its last lines are kept for when something is wrong."""

    def __init__(self, arguments: list[str], what: str, env: dict[str, str] | None = None) -> None:
        self._what = what
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        for stream, heard in ((self.process.stdout, self.heard), (self.process.stderr, self.lines.append)):
            threading.Thread(target=_drain, args=(stream, heard), daemon=True).start()

    def heard(self, line: str) -> None:
        self.lines.append(line)

    def check(self) -> None:
        if self.process.poll() is not None:
            told = "\n".join(self.lines)
            raise SlackwaterError(f"{self._what} ended with {self.process.returncode}. Its last words:\n{told}")

    def end(self) -> None:
        """Ask it to end, then make it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, number)
            else:
                break
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Neighbour(_Process):
    """Another Spark application; how much it has done is known at any time."""

    def __init__(self, spec: ChildSpec) -> None:
        self.url = ""
        self._told: list[tuple[float, int]] = []
        super().__init__([sys.executable, "-m", "slackwater.bench.hosts_child"], f"the application {spec.name!r}")
        assert self.process.stdin is not None  # noqa: S101 - a pipe was asked for
        self.process.stdin.write(msgspec.json.encode(spec).decode() + "\n")
        self.process.stdin.flush()

    def heard(self, line: str) -> None:
        try:
            said: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            super().heard(line)
            return
        if "ui" in said:
            self.url = said["ui"]
        elif "rows" in said:
            self._told.append((said["wall_ts"], said["rows"]))

    def await_work(self) -> None:
        """Until it has worked on its first rows."""
        give_up = time.monotonic() + _STARTING_S
        while not (self.url and any(rows for _, rows in self._told)):
            self.check()
            if time.monotonic() > give_up:
                raise SlackwaterError(f"{self._what} did nothing for {_STARTING_S:.0f} s.")
            time.sleep(0.2)

    def rows_per_s(self, from_wall_ts: float, to_wall_ts: float) -> float:
        """Its pace between two times, by what it had told just before them."""
        before = [(at, rows) for at, rows in self._told if at <= from_wall_ts]
        after = [(at, rows) for at, rows in self._told if at <= to_wall_ts]
        if not before or not after or after[-1][0] <= before[-1][0]:
            return 0.0
        return (after[-1][1] - before[-1][1]) / (after[-1][0] - before[-1][0])


class RunningMiddleware(_Process):
    """`slackwater middleware` as users start it."""

    def __init__(self, config: Path) -> None:
        self.rounds: deque[dict[str, Any]] = deque(maxlen=1000)
        self._began_s = time.monotonic()
        super().__init__([sys.executable, "-m", "slackwater", "middleware", str(config), "--json"], "the middleware")

    def heard(self, line: str) -> None:
        try:
            self.rounds.append(json.loads(line))
        except json.JSONDecodeError:
            super().heard(line)

    def cpu_share(self) -> float:
        """CPU time over wall time since it started, its start included."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system) / (time.monotonic() - self._began_s)

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def end(self) -> None:
        """As an operator does: SIGTERM, upon which it puts everything back."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        super().end()


def _drain(stream: Any, heard: Any) -> None:
    for line in stream:
        heard(line.rstrip("\n"))
