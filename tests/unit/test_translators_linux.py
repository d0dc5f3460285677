"""The real kernel: nice and cgroups on real processes, their effect as CPU time, and what a kill -9 leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slackwater.errors import EnforcementError
from slackwater.translators.cgroups import CgroupTranslator, CpuGroups
from slackwater.translators.combined import CombinedTranslator
from slackwater.translators.hierarchy import Hierarchy, find_hierarchy
from slackwater.translators.journal import Journal
from slackwater.translators.kernel import Linux
from slackwater.translators.nice import NiceTranslator
from slackwater.translators.normalise import NiceRange
from slackwater.translators.processes import Proc, mentions
from slackwater.translators.restore import restore, start
from slackwater.translators.schedule import CombinedSchedule, Group, GroupingSchedule, PrioritySchedule, Target

PROC = Proc()
PARENT = f"slackwater-test-{os.getpid()}"
MEASURE_S = 2.0

# Busy on the core it is told, in the ordinary class even where the tests themselves run as idle.
BUSY = """
import os, sys
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent:
    sum(range(10000))
"""

# Threads and forks on command, one line each.
GROWING = """
import os, sys, threading, time
def rest():
    while True:
        time.sleep(60)
for number in range(3):
    threading.Thread(target=rest, name=f"rest-{number}", daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "thread":
        threading.Thread(target=rest, daemon=True).start()
    elif (parent := os.getpid()) and os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)
    print("done", flush=True)
"""

# Applies a combined schedule to processes that it is given, and waits to be killed.
ENFORCER = """
import sys, time
from pathlib import Path
from slackwater.translators.combined import CombinedTranslator
from slackwater.translators.processes import Proc
from slackwater.translators.restore import start
from slackwater.translators.schedule import CombinedSchedule, Group, GroupingSchedule, PrioritySchedule, Target

journal, parent, one, other = sys.argv[1:]
where = {name: Target(frozenset((Proc().process(int(pid)),))) for name, pid in (("one", one), ("other", other))}
groups = GroupingSchedule({"g": Group(1, frozenset(where))})
CombinedTranslator(start(Path(journal)), where.__getitem__, parent=parent).apply(
    CombinedSchedule(groups, PrioritySchedule({"one": 2, "other": 1}))
)
print("ready", flush=True)
time.sleep(600)
"""


def nice_reason():
    return None if Linux().may_lower_nice(0) else "needs the right to lower nice again (CAP_SYS_NICE or RLIMIT_NICE)"


def group_reason(tmp):
    journal = Journal.open(tmp / "probe.json")
    reasons = CpuGroups(journal, PROC, Linux(), PARENT).check()
    journal.close()
    return " ".join(reasons) or None


@pytest.fixture
def needs_nice():
    if reason := nice_reason():
        pytest.skip(reason)


@pytest.fixture
def needs_groups(tmp_path):
    if reason := group_reason(tmp_path):
        pytest.skip(reason)


class Children:
    def __init__(self):
        self.started = []

    def run(self, program, *arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child, PROC.process(child.pid)

    def stop(self):
        while self.started:
            child = self.started.pop()
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


def tell(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "done\n"


@pytest.fixture
def children():
    found = Children()
    yield found
    found.stop()


@pytest.fixture
def journal(tmp_path):
    found = start(tmp_path / "journal.json")
    yield found
    restore(found)
    found.close()


def where(**processes):
    targets = {name: Target(frozenset((process,))) for name, process in processes.items()}
    return targets.__getitem__


def nices(process):
    return [thread.nice for thread in PROC.threads(process)]


def cores_of(*processes):
    """Cores that each used over `MEASURE_S`."""
    began, before = time.monotonic(), [PROC.cpu_s(process) for process in processes]
    time.sleep(MEASURE_S)  # the measurement itself, not a wait for a condition
    passed_s = time.monotonic() - began
    return [(PROC.cpu_s(process) - early) / passed_s for process, early in zip(processes, before, strict=True)]


def shared_cores(children, prepare):
    """What two busy processes on one core get, after `prepare(a, b)`."""
    a, b = two_busy(children)
    prepare(a, b)
    return (a, b), cores_of(a, b)


def two_busy(children):
    core = max(os.sched_getaffinity(0))
    return [children.run(BUSY, core)[1] for _ in range(2)]


def two_groups(high, low, quota_cores=None):
    return GroupingSchedule({"high": Group(high, frozenset(("a",))), "low": Group(low, frozenset("b"), quota_cores)})


def test_a_process_is_seen_as_it_is(children):
    child, process = children.run(GROWING, "app-20261115-0042")
    tell(child, "fork")
    assert PROC.threads(process)[0].id.tid == process.pid
    assert len(PROC.threads(process)) == 4
    assert PROC.threads(process)[0].name.startswith("python")
    assert PROC.find(mentions("app-20261115-0042")) == sorted([process, *PROC.descendants(process)])
    (forked,) = PROC.descendants(process)
    assert list(PROC.ancestors(forked))[0:2] == [process, PROC.process(os.getpid())]
    assert PROC.alive(process)
    child.kill()
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is not None
    assert not PROC.alive(process), "an ended process that nobody collected yet is gone"
    assert PROC.threads(process) == []


def test_start_times_are_told_by_the_clock_we_read(children):
    before = PROC.now_ticks()
    _, process = children.run(GROWING)
    assert before - 1 <= process.started_ticks <= PROC.now_ticks()


def test_trying_whether_nice_can_be_lowered_leaves_no_trace():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    Linux().may_lower_nice(0)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_process_without_rights_is_told_so_and_changes_nothing(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give rights up")
    program = (
        "import os, resource; from slackwater.translators.kernel import Linux\n"
        "resource.setrlimit(resource.RLIMIT_NICE, (0, 0)); os.setuid(65534)\n"
        "print(Linux().may_lower_nice(0), Linux().may_lower_nice(19), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["False", "True"]


@pytest.mark.usefixtures("needs_nice")
def test_nice_is_set_on_every_thread_also_on_new_ones_and_restored(children, journal):
    (child, a), (_, b) = children.run(GROWING), children.run(GROWING)
    usual = nices(a)[0]
    translator = NiceTranslator(journal, where(a=a, b=b), span=NiceRange(usual, 19))
    assert translator.check() == []
    schedule = PrioritySchedule({"a": 0, "b": 1})
    translator.apply(schedule)
    assert nices(a) == [19] * 4
    assert nices(b) == [usual] * 4
    tell(child, "thread")
    assert nices(a) == [19] * 5, "threads inherit their creator's"
    translator.apply(schedule)
    tell(child, "thread")
    tell(child, "fork")
    (forked,) = PROC.descendants(a)
    assert nices(forked) == [19]
    translator.restore()
    assert nices(a) == [usual] * 6
    assert nices(b) == [usual] * 4
    assert nices(forked) == [usual]
    assert not journal.path.exists()


@pytest.mark.usefixtures("needs_nice")
@pytest.mark.parametrize("first", [True, False])
def test_nice_decides_who_gets_the_cpu(children, journal, first):
    def prepare(a, b):
        NiceTranslator(journal, where(a=a, b=b)).apply(PrioritySchedule({"a": first, "b": not first}))

    _, cores = shared_cores(children, prepare)
    favoured, other = cores if first else cores[::-1]
    print(f"nice 0 : 19 got {favoured:.3f} : {other:.3f} cores")
    assert favoured > 2 * other


@pytest.mark.usefixtures("needs_nice")
def test_restored_both_get_about_the_same(children, journal):
    def prepare(a, b):
        translator = NiceTranslator(journal, where(a=a, b=b))
        translator.apply(PrioritySchedule({"a": 1, "b": 0}))
        translator.restore()

    _, (one, two) = shared_cores(children, prepare)
    print(f"restored: {one:.3f} : {two:.3f} cores")
    assert max(one, two) < 2 * min(one, two)


@pytest.mark.usefixtures("needs_groups")
@pytest.mark.parametrize("first", [True, False])
def test_weights_decide_who_gets_the_cpu(children, journal, first):
    hierarchy = find_hierarchy(PROC)
    home = hierarchy.group_of(PROC, os.getpid())

    def prepare(a, b):
        translator = CgroupTranslator(journal, where(a=a, b=b), parent=PARENT)
        assert translator.check() == []
        translator.apply(two_groups(8, 1) if first else two_groups(1, 8))
        assert hierarchy.group_of(PROC, a.pid) == hierarchy.mount / PARENT / "group-high"

    pair, cores = shared_cores(children, prepare)
    favoured, other = cores if first else cores[::-1]
    print(f"weights 8 : 1 got {favoured:.3f} : {other:.3f} cores (version {hierarchy.version})")
    assert favoured > 2 * other
    restore(journal)
    assert [hierarchy.group_of(PROC, process.pid) for process in pair] == [home, home]
    assert not (hierarchy.mount / PARENT).exists()


@pytest.mark.usefixtures("needs_groups")
def test_a_quota_holds(children, journal):
    def prepare(a, b):
        CgroupTranslator(journal, where(a=a, b=b), parent=PARENT).apply(two_groups(1, 8, quota_cores=0.2))

    _, (_, held) = shared_cores(children, prepare)
    print(f"a quota of 0.2 cores held {held:.3f} cores")
    assert held < 0.4


@pytest.mark.usefixtures("needs_groups")
def test_forks_follow_into_the_group_and_go_home_with_their_parent(children, journal):
    child, a = children.run(GROWING)
    hierarchy = find_hierarchy(PROC)
    home = hierarchy.group_of(PROC, a.pid)
    translator = CgroupTranslator(journal, where(a=a), parent=PARENT)
    translator.apply(GroupingSchedule({"g": Group(1, frozenset("a"))}))
    tell(child, "fork")
    (forked,) = PROC.descendants(a)
    assert hierarchy.group_of(PROC, forked.pid) == hierarchy.mount / PARENT / "group-g"
    translator.restore()
    assert hierarchy.group_of(PROC, forked.pid) == home
    assert not (hierarchy.mount / PARENT).exists()


@pytest.mark.usefixtures("needs_groups", "needs_nice")
def test_inside_a_group_nice_decides(children, journal):
    groups = GroupingSchedule({"g": Group(1, frozenset("ab"))})

    def prepare(a, b):
        translator = CombinedTranslator(journal, where(a=a, b=b), parent=PARENT)
        translator.apply(CombinedSchedule(groups, PrioritySchedule({"a": 2, "b": 1})))

    pair, (favoured, other) = shared_cores(children, prepare)
    print(f"inside a group, nice 0 : 19 got {favoured:.3f} : {other:.3f} cores")
    assert favoured > 2 * other
    restore(journal)
    assert nices(pair[0]) == nices(pair[1])


@pytest.mark.usefixtures("needs_groups", "needs_nice")
def test_what_a_killed_process_left_is_put_back_by_the_next_start(children, tmp_path):
    (growing, one), (_, other) = children.run(GROWING), children.run(GROWING)
    hierarchy = find_hierarchy(PROC)
    usual, home = nices(one)[0], hierarchy.group_of(PROC, one.pid)
    path = tmp_path / "journal.json"
    enforcer, _ = children.run(ENFORCER, path, PARENT, one.pid, other.pid)
    group = hierarchy.mount / PARENT / "group-g"
    assert nices(other) == [19] * 4
    assert hierarchy.group_of(PROC, one.pid) == group
    with pytest.raises(EnforcementError, match="in use"):
        start(path)
    tell(growing, "thread")
    tell(growing, "fork")
    enforcer.kill()
    enforcer.wait()
    assert nices(other) == [19] * 4
    (forked,) = PROC.descendants(one)
    start(path).close()
    assert nices(other) == [usual] * 4
    assert nices(one) == [usual] * 5
    assert nices(forked) == [usual]
    for process in (one, other, forked):
        assert hierarchy.group_of(PROC, process.pid) == home
    assert not (hierarchy.mount / PARENT).exists()
    assert not path.exists()
    start(path).close()


def test_a_real_tree_of_version_2_without_the_controller_is_refused(tmp_path, journal):
    unified = [
        line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"
    ]
    if not unified:
        pytest.skip("no cgroup2 is mounted")
    if "cpu" in (Path(unified[0]) / "cgroup.controllers").read_text().split():
        pytest.skip("its cpu controller is there")
    groups = CpuGroups(journal, PROC, Linux(), PARENT)
    groups._hierarchy = Hierarchy(2, Path(unified[0]), "/")
    (reason,) = groups.check()
    assert "version 1 may have it" in reason
