"""Does a late query lose nothing when it is killed? Kill it at chosen and at random moments, and check what came out.

Each trial is a query over a feed, in processes of their own, each killed and started again from the same checkpoint,
store and sink until one comes to the end. Then everything is compared with an oracle (`kills_oracle`).
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import psutil
import pyarrow.parquet as pq

from slackwater.bench.kills_child import ChildSpec, Done, Variant
from slackwater.bench.kills_oracle import CATEGORIES, DeadLetter, Event, Oracle, Problem, Row, Written, make_feed
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPERIMENT: Final = "bench-kills"
VARIANTS: Final = (
    Variant("function, tumbling", "rows", sliding=False),
    Variant("aggregates, tumbling", "aggregates", sliding=False),
    Variant("function, sliding", "rows", sliding=True, prestage="off"),
    Variant("aggregates, sliding, latest", "aggregates", sliding=True, prestage="off", latest=True),
)
_ROUNDS: Final = 2
_LONGEST_S: Final = 900.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True)
class Moment:
    """Where a kill strikes: at the `count`-th step that the pattern is found in; without one, at random.

    often: it comes many times in a run, so that some may be let pass.
    """

    where: str
    pattern: str | None = None
    count: int = 1
    often: bool = False


_SEGMENT = r"journal/segment_\d+\.json"
MOMENTS: Final = (
    Moment("late emission recorded, its result not written", rf"^after rename {_SEGMENT} late", often=True),
    Moment("compacted file half-written", r"^in write data/window_", often=True),
    Moment("horizon recorded, nothing deleted yet", rf"^after rename {_SEGMENT} horizon"),
    Moment("result on time written, batch not committed", r"^after rename out/\S+ on_time", often=True),
    Moment("snapshot of the journal half-written", r"^in write journal/snapshot"),
    Moment("final emission recorded, its result not written", rf"^after rename {_SEGMENT} final"),
    Moment("compacted, before an original is deleted", r"^before remove data/\S+ following data/window_"),
    Moment("purged, files deleted in part", r"^after remove data/\S+ following journal/\S+ horizon"),
    Moment("late result half-written", r"^in write out/\S+ late", often=True),
    Moment("emission on time recorded, its result not written", rf"^after rename {_SEGMENT} on_time", often=True),
    Moment("compacted file in place", r"^after rename data/window_", often=True),
    Moment("journal folded, old segments deleted in part", r"^after remove journal/segment_"),
    Moment("final result written", r"^after rename out/\S+ final"),
    Moment("emission half recorded", rf"^in write {_SEGMENT} late", often=True),
    Moment("horizon half-written", rf"^in write {_SEGMENT} horizon"),
    Moment("compacted, originals deleted in part", r"^after remove data/\S+ following data/window_"),
    Moment("snapshot of the journal in place", r"^after rename journal/snapshot"),
)
AT_RANDOM: Final = Moment("at random")


@dataclass(frozen=True)
class Kill:
    """recovered_s: from the start of the next process until a batch was committed, or all was done; spark_s of it until
    Spark was there.
    """

    variant: str
    where: str
    step: str
    batches_committed: int
    recovered_s: float
    spark_s: float


@dataclass
class Trial:
    """compacted_files_written: by the last process, which came to the end; everything else is of all of them."""

    variant: str
    files: int
    kills: int = 0
    starts: int = 0
    seconds: float = 0.0
    results: int = 0
    revisions: int = 0
    repeated_results: int = 0
    rows: int = 0
    dead_rows: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    purged_windows: int = 0
    compacted_files_written: int = 0


@dataclass(frozen=True)
class Killed(Experiment):
    """`rows` has a line for each kill."""

    trials: list[Trial] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class Watcher(Protocol):
    def planned(self, kills: int) -> None: ...

    def state(self, text: str) -> None: ...

    def killed(self, kill: Kill) -> None: ...

    def checked(self, trial: Trial, problems: list[Problem]) -> None: ...


def plan(kills: int, seed: int, variants: Sequence[Variant]) -> dict[str, list[Moment]]:
    """By variant. Two chosen moments, then one at random; each variant gets others."""
    chance = random.Random(seed)
    chosen = list(MOMENTS)
    while len(chosen) < kills:
        chosen += chance.sample(MOMENTS, len(MOMENTS))
    found: dict[str, list[Moment]] = {variant.name: [] for variant in variants}
    chosen.reverse()
    for number in range(kills):
        moment = AT_RANDOM if number % 3 == 2 else chosen.pop()
        if moment.often:
            moment = replace(moment, count=chance.randrange(1, 4))
        found[variants[number % len(variants)].name].append(moment)
    for moments in found.values():
        moments.sort(key=lambda moment: "snapshot" in moment.where or "folded" in moment.where)
    return found


def run(
    kills: int,
    seed: int,
    watcher: Watcher,
    *,
    variants: Sequence[Variant] = VARIANTS,
    files: int = 32,
    rows: int = 200,
    keep: Path | None = None,
) -> Killed:
    """keep: a folder for what the trials leave; without one it goes."""
    watcher.planned(kills)
    done: list[Kill] = []
    trials: list[Trial] = []
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="slackwater-kills-", ignore_cleanup_errors=True) as scratch:
        for number, variant in enumerate(variants):
            waiting = plan(kills, seed, variants)[variant.name]
            rounds = 0
            while waiting or not rounds:
                folder = (keep or Path(scratch)) / f"{number}-{rounds}"
                # A moment that did not come twice is not to be had; a kill at random takes its place.
                moments = waiting if rounds < _ROUNDS else [AT_RANDOM] * len(waiting)
                trial = _Trial(folder, variant, moments, random.Random(f"{seed} {number} {rounds}"), watcher)
                trial.prepare(make_feed(seed + 1000 * rounds, files, rows, variant.timing))
                found = trial.run()
                waiting = trial.waiting
                done += trial.done
                trials.append(trial.facts)
                problems += [Problem(one.category, f"{variant.name}: {one.text}") for one in found]
                watcher.checked(trial.facts, found)
                rounds += 1
    return _result(kills, seed, done, trials, problems)


def _result(kills: int, seed: int, done: list[Kill], trials: list[Trial], problems: list[Problem]) -> Killed:
    counts = Counter(problem.category for problem in problems)
    claims = [claim("kills", len(done), "≥", kills)]
    claims += [claim(text, counts[category], "≤", 0) for category, text in CATEGORIES.items()]
    recovered = sorted(kill.recovered_s for kill in done)
    totals = {
        "kills": len(done),
        "moments": len({kill.where for kill in done}),
        "trials": len(trials),
        "seconds": sum(trial.seconds for trial in trials),
        "results": sum(trial.results for trial in trials),
        "revisions": sum(trial.revisions for trial in trials),
        "rows": sum(trial.rows for trial in trials),
        "dead_rows": sum(trial.dead_rows for trial in trials),
        "recovered_s_median": recovered[len(recovered) // 2] if recovered else 0.0,
        "recovered_s_most": recovered[-1] if recovered else 0.0,
        "problems": len(problems),
    }
    return Killed(
        EXPERIMENT,
        seed,
        [asdict(kill) for kill in done],
        claims,
        assumptions=_ASSUMPTIONS,
        trials=trials,
        totals={name: round(value, 2) for name, value in totals.items()},
        problems=problems[:100],
    )


_ASSUMPTIONS = [
    "a kill is SIGKILL to the driver, and then to all that it started; what was written to files stays (no power cut)",
    "local[2], 512 MB heap, one file a batch; seconds to recover include the start of Python and of the JVM",
]


class _Trial:
    """One query, killed and started again until it comes to its end."""

    def __init__(
        self, folder: Path, variant: Variant, moments: list[Moment], chance: random.Random, watcher: Watcher
    ) -> None:
        self.folder = folder
        self.variant = variant
        self.waiting = list(moments)
        self.done: list[Kill] = []
        self.facts = Trial(variant.name, 0)
        self._chance = chance
        self._watcher = watcher
        self._oracle = Oracle(variant.timing, [])

    def prepare(self, feed: list[list[Event]]) -> None:
        inbox = self.folder / "feed"
        inbox.mkdir(parents=True)
        (self.folder / "local").mkdir()
        first_s = time.time() - 10_000
        for number, events in enumerate(feed):
            file = inbox / f"{number:05d}.json"
            file.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
            # Spark takes files in the order of their times.
            os.utime(file, (first_s + number, first_s + number))
        self._oracle.feed = feed
        self.facts.files = len(feed)

    def run(self) -> list[Problem]:
        began = time.monotonic()
        try:
            struck: tuple[str, str, int] | None = None
            while not (self.folder / "done.json").exists():
                struck = self._start(struck)
            self._check()
        except SlackwaterError as error:
            self._oracle.problems.append(Problem("run", str(error)))
            self.waiting = []
        self.facts.seconds = round(time.monotonic() - began, 1)
        self.facts.kills = len(self.done)
        return self._oracle.problems

    def _start(self, before: tuple[str, str, int] | None) -> tuple[str, str, int] | None:
        """One process; `before` says how the one before it was killed. Returns how this one was, or None at the end."""
        moment = self.waiting[0] if self.waiting else None
        compare = self.variant.kind == "rows" and not self.variant.sliding
        pattern = moment.pattern if moment else None
        spec = ChildSpec(str(self.folder), self.variant, pattern, moment.count if moment else 1, compare)
        spec_file, killed = self.folder / "spec.json", self.folder / "killed.txt"
        spec_file.write_bytes(msgspec.json.encode(spec))
        killed.unlink(missing_ok=True)
        (self.folder / "notes.jsonl").unlink(missing_ok=True)
        self._watcher.state(f"{self.variant.name}: until {moment.where if moment else 'the end'}")
        had, began_s, recovered_s = self._committed(), time.time(), 0.0
        random_at = had + self._chance.randrange(2, 10) if moment and not moment.pattern else None
        after_s = self._chance.random() * 0.6
        with (self.folder / "stderr.txt").open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-m", "slackwater.bench.kills_child", str(spec_file)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        self.facts.starts += 1
        struck = False
        try:
            while child.poll() is None:
                now = self._committed()
                if not recovered_s and now > had:
                    recovered_s = time.time() - began_s
                if random_at is not None and now >= random_at:
                    time.sleep(after_s)
                    struck = child.poll() is None
                    break
                if time.time() - began_s > _LONGEST_S:
                    raise SlackwaterError(f"not over after {_LONGEST_S:.0f} s. {self._story()}")
                time.sleep(_LOOK_S)
        finally:
            _kill_session(child.pid)
            child.wait()
        if before is not None:
            where, step, committed = before
            kill = Kill(
                self.variant.name,
                where,
                step,
                committed,
                round(recovered_s or time.time() - began_s, 2),
                round(self._spark_s(began_s), 2),
            )
            self.done.append(kill)
            self._watcher.killed(kill)
        if moment and (struck or killed.exists()):
            self.waiting.pop(0)
            step = killed.read_text() if killed.exists() else f"{after_s:.2f} s after batch {(random_at or 0) - 1}"
            return moment.where, re.sub(r"[0-9a-f]{32}", "…", step), self._committed()
        if child.returncode != 0:
            raise SlackwaterError(f"a start ended with {child.returncode}. {self._story()}")
        return None

    def _committed(self) -> int:
        """How many batches Spark has committed."""
        try:
            names = os.listdir(self.folder / "checkpoint" / "commits")  # noqa: PTH208 - called fifty times a second
        except FileNotFoundError:
            return 0
        return 1 + max((int(name) for name in names if name.isdigit()), default=-1)

    def _spark_s(self, began_s: float) -> float:
        notes = self.folder / "notes.jsonl"
        lines = notes.read_bytes().splitlines() if notes.exists() else []
        found = [note["wall_s"] - began_s for line in lines if (note := msgspec.json.decode(line))["event"] == "spark"]
        return float(found[0]) if found else 0.0

    def _story(self) -> str:
        return "Its last lines: " + (self.folder / "stderr.txt").read_text(errors="replace")[-3000:]

    def _check(self) -> None:
        oracle, store = self._oracle, self.folder / "store"
        oracle.feed = self._by_batch(oracle.feed)
        done = msgspec.json.decode((self.folder / "done.json").read_bytes(), type=Done)
        letters = _dead_letters(store)
        dead = oracle.dead(letters)
        rows = [Row(*row) for row in done.latest]
        oracle.latest(rows, dead)
        if done.spark is not None:
            plain, ours = Counter(done.spark), Counter(done.latest)
            for row in [*(plain - ours), *(ours - plain)]:
                oracle.check("spark", False, f"plain Spark {plain[row]} times, here {ours[row]} times: {row}")
        status = _late("status", store, self.folder / "checkpoint")
        oracle.account(self.variant.kind, status["rows"], status["purged_rows"], status["dead_rows"])
        oracle.check("rows", status["dead_rows"] == len(letters), f"{status['dead_rows']} dead, {len(letters)} found")
        written = [
            msgspec.json.decode(line, type=Written)
            for line in (self.folder / "written.jsonl").read_bytes().splitlines()
        ]
        oracle.revisions(written)
        self._check_files(status)
        self._sum_up(done, rows, written, letters, status)

    def _by_batch(self, feed: list[list[Event]]) -> list[list[Event]]:
        """By Spark's offset log: a file that was taken note of before a kill comes together with the next one."""
        found, begin = [], 0
        for batch in range(self._committed()):
            last = (self.folder / "checkpoint" / "offsets" / str(batch)).read_bytes().splitlines()[-1]
            end = msgspec.json.decode(last)["logOffset"] + 1
            found.append([event for events in feed[begin:end] for event in events])
            begin = end
        if begin != len(feed):
            raise SlackwaterError(f"{begin} of {len(feed)} files were consumed.")
        return found

    def _check_files(self, status: dict[str, Any]) -> None:
        store, check = self.folder / "store", self._oracle.check
        verified = _late("verify", store, self.folder / "checkpoint")
        check("store", not verified["problems"], f"verify: {verified['problems']}")
        check("store", not status["problems"], f"status: {status['problems']}")
        check("store", not status["quarantined_files"], f"{status['quarantined_files']} files in quarantine")
        for place in (store / "tmp", self.folder / "out" / "_temporary"):
            left = [file.name for file in place.iterdir()] if place.exists() else []
            check("store", not left, f"{place.parent.name}/{place.name} holds {left}")

    def _sum_up(
        self,
        done: Done,
        rows: list[Row],
        written: list[Written],
        letters: list[DeadLetter],
        status: dict[str, Any],
    ) -> None:
        facts = self.facts
        distinct = {(one.window, one.revision): one.kind for one in written}
        facts.results = len(rows)
        facts.revisions = len(distinct)
        facts.repeated_results = len(written) - len(distinct)
        facts.kinds = dict(Counter(distinct.values()))
        facts.rows = sum(len(events) for events in self._oracle.feed)
        facts.dead_rows = sum(letter.events for letter in letters)
        facts.purged_windows = status["purged_windows"]
        facts.compacted_files_written = done.status["compacted_windows"]


def _dead_letters(store: Path) -> list[DeadLetter]:
    """From the files themselves: their names tell the batch."""
    found: list[DeadLetter] = []
    for file in sorted((store / "dead").iterdir()):
        batch = int(file.name.split("_")[1])
        found += [
            DeadLetter(batch, row["_window"], row["k"], row.get("_events", 1), row.get("id"))
            for row in pq.read_table(file).to_pylist()
        ]
    return found


def _late(command: str, store: Path, checkpoint: Path) -> dict[str, Any]:
    """`slackwater late …`, as a user asks it."""
    call = [sys.executable, "-m", "slackwater", "late", command, str(store), "--checkpoint", str(checkpoint), "--json"]
    answer = subprocess.run(call, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(answer.stdout)
    except ValueError:
        raise SlackwaterError(f"slackwater late {command} says: {answer.stderr[-2000:]}") from None
    return found


def _kill_session(session: int) -> None:
    """The child and all that it started: the JVM and Python's workers stay in its session."""
    while members := _members(session):
        for process in members:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(members, timeout=5)


def _members(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue
    return found
