"""What stands between the scheduler and the JVM side, and can be made to hang, to fail, and to garble either way."""

from __future__ import annotations

import itertools
import json
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from slackwater.chaos.clock import ClockStep
    from slackwater.core.model import Commands, Report
    from slackwater.drivers.spark.handle import Handle

FORGED_RUN: Final = "00000000-0000-0000-0000-000000000000"
# What can be read as JSON, and is no command.
MALFORMED: Final = ('""', "[]", "null", "7", '{"grants": 7}', '{"grants": {"run": 1}}', '{"priorities": [1]}')
UNREADABLE: Final = '{"grants": [{"run": '


class FaultyBridge:
    """Takes the place of a handle's bridge; what is not asked of it goes on to that one."""

    def __init__(self, bridge: Any) -> None:
        self._bridge = bridge
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None
        self.garbled = False
        self.clock: ClockStep | None = None
        self.last: Report | None = None
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    def exchange(self, commands: Commands, *, decided: bool = True) -> Any:
        self.calls += 1
        self.go.wait()
        if self.error is not None:
            raise self.error
        report = self._bridge.exchange(commands, decided=decided)
        if self.clock is not None:
            report = self.clock.applied(report)
        self.last = report
        return object() if self.garbled else report


class FaultyGate:
    """Takes the place of the JVM object: forges what the scheduler sends while `forging`."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.forging = False
        self.forged = 0
        self._waits: dict[str, int] = {}
        self._malformed = itertools.cycle(MALFORMED)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gate, name)

    def exchange(self, commands: str, timeout_ms: int, decided: bool) -> Any:
        sent = commands
        if self.forging:
            self.forged += 1
            sent = self._forged(json.loads(commands)) if self.forged % 2 else next(self._malformed)
        answer = self.gate.exchange(sent, timeout_ms, decided)
        self._waits = {query["run"]: query["wait"] for query in json.loads(answer)["queries"]}
        return answer

    def _forged(self, commands: dict[str, Any]) -> str:
        """Turns that were never granted: of waits that are over or yet to come, of other runs, of no form at all."""
        grants: list[Any] = [None, 7, {}, {"run": FORGED_RUN, "wait": 1}, {"run": None, "wait": None}]
        for run, wait in self._waits.items():
            grants += [{"run": run, "wait": other} for other in (wait - 1, wait + 1, -1, 0, 1 << 62, str(wait) + "x")]
            grants += [{"run": run}, {"wait": wait}, {"run": run.upper() + "-", "wait": wait}]
        odd = {FORGED_RUN: "NaN", **dict.fromkeys(self._waits, "NaN")}
        return json.dumps({**commands, "grants": [*commands["grants"], *grants], "priorities": odd})


def put_between(handle: Handle) -> tuple[FaultyBridge, FaultyGate]:
    """The product has no door for this: it is put in where the handle keeps its bridge, while the scheduler runs."""
    bridge = handle._bridge  # noqa: SLF001
    gate = FaultyGate(bridge._gate)  # noqa: SLF001
    bridge._gate = gate  # noqa: SLF001
    faulty = FaultyBridge(bridge)
    handle._bridge = faulty  # type: ignore[assignment]  # noqa: SLF001
    return faulty, gate


def refuses_unreadable(gate: FaultyGate) -> bool:
    """Whether the JVM side takes a call that is no JSON for what it is; it has no answer that could be lost."""
    try:
        gate.gate.exchange(UNREADABLE, 0, False)
    except Exception:
        return True
    return False
