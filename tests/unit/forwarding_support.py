"""An application in little: a real scheduler loop, endpoint and forwarder over a scripted driver that keeps real time.

Run as a module it is one side of a chain in a process of its own, and says where it stands four times a second.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slackwater.core.engine import EngineSettings
from slackwater.core.model import Commands, QueryOptions, Window
from slackwater.endpoint.server import LOOPBACK, Endpoint
from slackwater.forwarding.forwarder import Forwarder
from slackwater.forwarding.settings import Forwarding, Peer
from slackwater.policies.assembly import engine_for
from slackwater.testing import START_WALL_TS, FakeClock, ScriptedDriver, SimulatedQuery

PLACE = "/lake/views"
ENRICH = SimulatedQuery("enrich", stateful=False, batch_cost_s=0.02, rows_per_s=100, options=QueryOptions(writes=PLACE))
COUNT = SimulatedQuery(
    "count", (Window(1.0, 1.0),), delay_s=0.2, batch_cost_s=0.02, rows_per_s=100, options=QueryOptions(reads=(PLACE,))
)


def quick(*peers: Peer, discover: bool = False) -> Forwarding:
    """Fast enough for a test, slow enough for a machine that is busy."""
    return Forwarding(peers=peers, discover=discover, period_s=0.1, timeout_s=1.0, stale_after_s=1.5)


def eventually(condition: Any, timeout_s: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (said := condition()):
        assert time.monotonic() < deadline, f"did not come true within {timeout_s} s; it last said {said!r}"
        time.sleep(0.02)
    return said


class Application:
    """Scheduler, endpoint and forwarder; `decisions` counts what the scheduler decided."""

    def __init__(
        self, query: SimulatedQuery, folder: Path, *peers: Peer, began: float, host: str = LOOPBACK, port: int = 0
    ) -> None:
        self.query = query
        self._began = began
        self.decisions = 0
        self.engine = engine_for("klink", EngineSettings(lanes=1), knob="balanced", memory_bound=0.75, period_s=None)
        self.driver = ScriptedDriver([query], clock=FakeClock(self.now()))
        self.forwarder = Forwarder(query.name, quick(*peers), lambda: None, folder=folder, clock=self.now)
        self.endpoint = Endpoint(
            application_id=query.name,
            name=query.name,
            reads={},
            changes=self.forwarder.routes(),
            host=host,
            port=port,
            folder=folder,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def now(self) -> float:
        """The driver's time, which goes like real time since `began`: the same for both sides."""
        return START_WALL_TS + time.time() - self._began

    def start(self) -> Application:
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self.forwarder.close()
        self.endpoint.close()

    def _run(self) -> None:
        commands = Commands(wake_after_s=0.01)
        while not self._stop.is_set():
            report = self.driver.exchange(commands)
            self._stop.wait(max(0.0, report.wall_ts - self.now()))
            self.engine.hear(self.forwarder.heard())
            commands = self.engine.step(report)
            self.forwarder.publish(self.engine.words())
            self.decisions += 1

    @property
    def heeds(self) -> bool:
        """Whether its neighbour's words place its turns now."""
        state = self.engine.state(self.query.name)
        if state is None:
            return False
        return state.outlook().need is not None if self.query is ENRICH else bool(state._upstream.supplies)

    def failures(self) -> int:
        return sum(courier.failures for courier in self.forwarder.couriers)

    def exchanges(self) -> int:
        return sum(courier.exchanges for courier in self.forwarder.couriers)


def token_file(folder: Path, name: str) -> str:
    return str(folder / f"{name}.token")


class Proxy:
    """A bad network on loopback: holds each piece for `delay_s`, and swallows every second request if `loses`."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self.loses = False
        self.requests = 0
        self._to = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End what is open: connections that are kept would miss what changes."""
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                server = socket.create_connection((LOOPBACK, self._to), timeout=5)
                self._open.append(server)
                for source, sink, asks in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._carry, args=(source, sink, asks), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                self.requests += asks
                if asks and self.loses and self.requests % 2:
                    continue  # nothing ever comes back
                time.sleep(self.delay_s)
                sink.sendall(piece)


def main() -> None:
    name, host, port, peer_url, folder_name, began = sys.argv[1:7]
    folder = Path(folder_name)
    query = ENRICH if name == "enrich" else COUNT
    peer = Peer(peer_url, token_file(folder, "count" if name == "enrich" else "enrich"))
    application = Application(query, folder, peer, began=float(began), host=host, port=int(port)).start()
    with suppress(BrokenPipeError):
        while True:
            print(json.dumps({"decisions": application.decisions, "heeds": application.heeds}), flush=True)
            time.sleep(0.25)


if __name__ == "__main__":
    main()
