"""The troubles, each as a block: it strikes, queries take a file of input inside, and it is over."""

from __future__ import annotations

import random
import threading
import time
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.chaos.bridge import refuses_unreadable
from slackwater.chaos.clients import Clients
from slackwater.chaos.clock import ClockStep
from slackwater.chaos.wayward import dawdling, dying, hanging, nonsense, refusing
from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slackwater.chaos.scene import Scene
    from slackwater.core.model import Choice, Snapshot

HOUR_S = 3600.0
_FORGERIES = 30
_NONSENSE = 20


@dataclass(frozen=True)
class Trouble:
    """strikes: a block in which it lasts; it may raise when what it is for did not happen.

    silences: the scheduler cannot be heard, so that the watchdog must open the gates.
    spoils: queries that fail by it, of themselves, and are started again when it is over.
    skipped: why it cannot be tried here.
    """

    name: str
    strikes: Callable[[Scene], AbstractContextManager[None]]
    silences: bool = False
    spoils: tuple[str, ...] = ()
    skipped: str | None = None


@contextmanager
def killed(scene: Scene) -> Iterator[None]:
    """The scheduler's thread ends without a word. Nobody starts another: who attached attaches again."""
    scene.policy.go_astray(dying)
    thread = scene.handle._thread  # noqa: SLF001 - what is killed
    scene.until(lambda: not thread.is_alive(), lambda: "the scheduler's thread did not die")
    yield
    scene.handle.detach()
    scene.attach()


@contextmanager
def hung(scene: Scene) -> Iterator[None]:
    """A policy that does not return."""
    go = threading.Event()
    scene.policy.go_astray(hanging(go))
    scene.until(lambda: scene.policy.astray_answers > 0, lambda: "the policy was not asked")
    try:
        yield
    finally:
        scene.policy.come_back()
        go.set()


@contextmanager
def call_hangs(scene: Scene) -> Iterator[None]:
    """The scheduler's call to the JVM does not return."""
    calls = scene.bridge.calls
    scene.bridge.go.clear()
    scene.until(lambda: scene.bridge.calls > calls, lambda: "the scheduler made no call")
    try:
        yield
    finally:
        scene.bridge.go.set()


@contextmanager
def call_fails(scene: Scene) -> Iterator[None]:
    """The call fails at every tick."""
    scene.bridge.error = ConnectionError("no answer from the JVM")
    try:
        yield
    finally:
        scene.bridge.error = None


@contextmanager
def report_garbled(scene: Scene) -> Iterator[None]:
    """The engine raises at every tick: it cannot make anything of the reports."""
    scene.bridge.garbled = True
    try:
        yield
    finally:
        scene.bridge.garbled = False


@contextmanager
def talks_nonsense(scene: Scene) -> Iterator[None]:
    """A policy that answers every time with another kind of garbage, not-a-numbers and duplicates among it."""
    scene.policy.go_astray(nonsense())
    try:
        yield
        scene.until(lambda: scene.policy.astray_answers >= _NONSENSE, lambda: "the policy was not asked often enough")
    finally:
        scene.policy.come_back()


@contextmanager
def dawdles(scene: Scene) -> Iterator[None]:
    """A policy that takes a fifth of a second for every decision."""
    scene.policy.go_astray(dawdling(0.2))
    try:
        yield
    finally:
        scene.policy.come_back()


class Held:
    """Refuses everything, and its bound is so long that the engine helps nobody meanwhile."""

    name = "held"
    enforces = True
    max_wait_s = HOUR_S

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return refusing(snapshot)


@contextmanager
def grants_forged(scene: Scene) -> Iterator[None]:
    """Old and future waits, other runs, no form at all: none lets a query pass that the policy holds."""
    scene.handle.switch(Held())
    scene.until(lambda: _all_wait(scene), lambda: "the queries did not come to wait")
    before = sum(scene.pipeline.batches().values())
    scene.gate.forging = True
    until = scene.gate.forged + _FORGERIES

    def enough() -> bool:
        scene.bridge.wake()  # or a scheduler with nothing to do calls twice a second
        return scene.gate.forged >= until

    try:
        scene.until(enough, lambda: "the scheduler made no calls")
        if not refuses_unreadable(scene.gate):
            raise SlackwaterError("the JVM side took commands that are no JSON")
        passed = sum(scene.pipeline.batches().values()) - before
        if passed or not _all_wait(scene):
            raise SlackwaterError(f"{passed} batches ran by forged grants")
    finally:
        scene.gate.forging = False
    scene.handle.switch(scene.policy)
    yield


def _all_wait(scene: Scene) -> bool:
    last = scene.bridge.last
    return last is not None and bool(last.queries) and all(query.waiting for query in last.queries)


@contextmanager
def hammered(scene: Scene) -> Iterator[None]:
    """A hundred clients of the endpoint, some of whom never read or say nothing."""
    decisions = scene.handle.stats().decisions
    with Clients(str(scene.handle.url)) as clients:
        yield
        scene.until(lambda: clients.answers.total() >= 100, lambda: f"the endpoint answered {clients.answers}")
        scene.until(lambda: scene.handle.stats().decisions > decisions, lambda: "the scheduler did not decide")
    broken = {status: count for status, count in clients.answers.items() if status >= 500 and status != 503}
    if broken:
        raise SlackwaterError(f"the endpoint failed while it was hammered: {broken}")


@contextmanager
def disk_full(scene: Scene) -> Iterator[None]:
    """No space where windows wait: that query fails with its error, and loses nothing when it is started again."""
    scene.fill_disk(full=True)
    try:
        yield
        query = scene.pipeline.query(scene.late)
        scene.until(lambda: not query.isActive, lambda: "the query goes on though nothing can be kept")
        if "No space left" not in str(query.exception()):
            raise SlackwaterError(f"the query does not say that its disk is full: {query.exception()}")
    finally:
        scene.fill_disk(full=False)


def clock_set(by_s: float) -> Callable[[Scene], AbstractContextManager[None]]:
    """Somebody sets the driver's clock; then it stays like that, and later is set right again."""

    @contextmanager
    def strikes(scene: Scene) -> Iterator[None]:
        scene.bridge.clock = ClockStep(time.time(), by_s)
        yield
        scene.bridge.clock = None

    return strikes


@contextmanager
def one_fails(scene: Scene) -> Iterator[None]:
    """A query beside them fails in every batch, and somebody starts it again and again."""
    over = threading.Event()
    failures: list[str] = []

    def fail(_: Any, number: int) -> None:
        raise ValueError(f"deliberate, in batch {number}")

    def keep_starting() -> None:
        while not over.is_set():
            writer = scene.spark.readStream.format("rate").load().writeStream.foreachBatch(fail)
            query = writer.queryName("fragile").start()
            while query.isActive and not over.wait(0.05):
                pass
            query.stop()
            failures.append(str(query.exception()))

    thread = threading.Thread(target=keep_starting, name="chaos-fragile", daemon=True)
    thread.start()
    try:
        yield
        scene.until(lambda: len(failures) >= 2, lambda: "the query that fails did not")
    finally:
        over.set()
        thread.join(scene.timeout_s)
    if not all("deliberate" in failure for failure in failures[:-1]):
        raise SlackwaterError(f"the query failed for another reason than its own: {failures}")


def restarted_at_random(seed: int) -> Callable[[Scene], AbstractContextManager[None]]:
    """Queries are stopped in the middle of whatever they do, and started from their checkpoints."""

    @contextmanager
    def strikes(scene: Scene) -> Iterator[None]:
        rng = random.Random(f"restarts-{seed}")
        names = [stage.name for stage in scene.workload.stages]
        for name in [*rng.sample(names, len(names)), rng.choice(names)]:
            scene.pipeline.restart(name)
            time.sleep(rng.random() * 0.3)
        yield

    return strikes


@contextmanager
def config_broken(scene: Scene) -> Iterator[None]:
    """The file that settings come from is cut off in the middle while it is in use, then whole again."""
    file = scene.folder / "slackwater.toml"
    file.write_text("memory_bound = 0.7\n", "utf-8")
    scene.handle.detach()
    scene.attach(config=file)
    file.write_text("[memory_bou", "utf-8")
    yield
    file.write_text("memory_bound = 0.6\n", "utf-8")


def all_troubles(seed: int, late: str) -> tuple[Trouble, ...]:
    """In an order that lets every one of them begin with a scheduler that is in charge."""
    return (
        Trouble("a policy that talks nonsense", talks_nonsense),
        Trouble("a policy that hangs", hung, silences=True),
        Trouble("a call to the JVM that hangs", call_hangs, silences=True),
        Trouble("a call to the JVM that fails at every tick", call_fails, silences=True),
        Trouble("reports that nobody understands", report_garbled, silences=True),
        Trouble("a policy that takes long", dawdles),
        Trouble("stale and forged grants", grants_forged),
        Trouble("an endpoint that is hammered by 100 clients", hammered),
        Trouble("a clock that is set back by an hour", clock_set(-HOUR_S)),
        Trouble("a clock that is set forward by an hour", clock_set(HOUR_S)),
        Trouble("a query that fails in every batch", one_fails),
        Trouble("queries that are stopped and started at random", restarted_at_random(seed)),
        Trouble("a full disk where windows wait", disk_full, spoils=(late,)),
        Trouble("a configuration file that breaks", config_broken),
        Trouble("a scheduler that is killed", killed, silences=True),
    )
