"""Translators on a host that does not exist: whatever happens in between, what was changed is put back."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError, EnforcementError
from slackwater.translators.cgroups import CgroupTranslator, folder_name
from slackwater.translators.combined import CombinedTranslator
from slackwater.translators.identity import ProcessId
from slackwater.translators.journal import Journal
from slackwater.translators.nice import NiceTranslator
from slackwater.translators.normalise import FULL, NiceRange, exact
from slackwater.translators.restore import restore, start
from slackwater.translators.schedule import CombinedSchedule, Group, GroupingSchedule, PrioritySchedule, Target
from tests.unit.translators_host import Host, Killed

A, B, C = 100, 200, 300
CORES = os.cpu_count() or 1


class Setting:
    """A host with three applications, and a map of what runs where that tests can change."""

    def __init__(self, folder, version, **options):
        self.host = Host(folder, version, **options)
        self.host.group("system.slice/a.service")
        self.host.group("b.slice")
        self.ids = {
            A: self.host.add(A, group="system.slice/a.service", threads=3, nice=2, started=10),
            B: self.host.add(B, group="b.slice", threads=1, started=20),
            C: self.host.add(C, group="b.slice", started=30),
        }
        self.where = {
            "a": Target(frozenset((self.ids[A],))),
            "b": Target(frozenset((self.ids[B],))),
            "c": Target(frozenset((self.ids[C],))),
        }
        self.path = folder / "run" / "journal.json"
        self.before = self.host.state()
        self.host.proc.ticks += 100

    def journal(self):
        return start(self.path, self.host.proc, self.host)

    def nice(self, journal, **options):
        return NiceTranslator(journal, self.where.__getitem__, proc=self.host.proc, kernel=self.host, **options)

    def groups(self, journal, **options):
        return CgroupTranslator(journal, self.where.__getitem__, proc=self.host.proc, kernel=self.host, **options)

    def combined(self, journal, **options):
        return CombinedTranslator(journal, self.where.__getitem__, proc=self.host.proc, kernel=self.host, **options)

    def nices(self):
        return self.host.state()[0]

    def places(self):
        return self.host.state()[1]

    def read(self, name):
        return (self.host.mount / name).read_text().strip()


def grouping(**groups):
    return GroupingSchedule(
        {name: Group(priority, frozenset(members), *quota) for name, (priority, members, *quota) in groups.items()}
    )


TWO = grouping(high=(8, "a"), low=(1, "bc", 0.5))


@pytest.fixture(params=[1, 2])
def setting(request, tmp_path):
    return Setting(tmp_path, request.param)


def test_nice_reaches_every_thread_and_nobody_else(setting):
    translator = setting.nice(setting.journal())
    assert translator.check() == []
    translator.apply(PrioritySchedule({"a": 10, "b": 5, "c": 0}))
    assert setting.nices() == {1: 0, 100: 0, 101: 0, 102: 0, 103: 0, 200: 10, 201: 10, 300: 19}
    translator.restore()
    assert setting.host.state() == setting.before
    assert not setting.path.exists()


def test_new_threads_are_set_and_go_back_to_what_they_would_have_had(setting):
    translator = setting.nice(setting.journal(), span=FULL)
    schedule = PrioritySchedule({"a": 1, "b": 0})
    translator.apply(schedule)
    setting.host.proc.ticks += 5
    setting.host.clone(A, 104)
    setting.host.clone(B, 202)
    own = setting.host.clone(B, 203)
    setting.host.threads[own.tid].nice = 7
    setting.host.flush()
    translator.apply(schedule)
    assert {tid: setting.nices()[tid] for tid in (104, 202, 203)} == {104: -20, 202: 19, 203: 19}
    setting.host.clone(A, 105)
    translator.restore()
    assert {tid: setting.nices()[tid] for tid in (104, 105, 202, 203)} == {104: 2, 105: 2, 202: 0, 203: 7}


def test_children_that_inherited_our_nice_go_back_with_their_parent(setting):
    journal = setting.journal()
    translator = setting.nice(journal)
    elder = setting.host.add(400, parent=A, nice=5, started=90)
    translator.apply(PrioritySchedule({"a": 0, "b": 1}))
    setting.host.proc.ticks += 5
    worker = setting.host.fork(A, 410)
    setting.host.fork(410, 420)
    setting.where["a"] = Target(frozenset((setting.ids[A], worker)))
    translator.apply(PrioritySchedule({"a": 0.5, "b": 1, "c": 0}))
    assert setting.nices()[410] == 10
    translator.restore()
    assert [setting.nices()[pid] for pid in (A, elder.pid, 410, 420)] == [2, 5, 2, 2]


def test_an_entity_that_leaves_the_schedule_gets_its_nice_back(setting):
    translator = setting.nice(setting.journal())
    translator.apply(PrioritySchedule({"a": 1, "b": 0}))
    translator.apply(PrioritySchedule({"c": 1, "b": 0}))
    assert setting.nices()[101] == 2
    assert setting.nices()[201] == 19
    translator.apply(PrioritySchedule({}))
    assert setting.host.state() == setting.before


def test_single_threads_leave_the_others_of_their_process_alone(setting):
    single = next(thread.id for thread in setting.host.proc.threads(setting.ids[A]) if thread.id.tid == 102)
    setting.where["t"] = Target(threads=frozenset((single,)))
    translator = setting.nice(setting.journal(), scale=exact)
    translator.apply(PrioritySchedule({"t": 15, "b": 1024}))
    assert [setting.nices()[tid] for tid in (100, 101, 102, 103)] == [2, 2, 19, 2]
    translator.restore()
    assert setting.host.state() == setting.before


def test_a_pid_that_was_given_to_another_is_not_touched(setting):
    journal = setting.journal()
    translator = setting.nice(journal)
    translator.apply(PrioritySchedule({"a": 1, "b": 0}))
    setting.host.end(B)
    stranger = setting.host.add(B, nice=3, started=setting.host.proc.ticks + 1)
    translator.apply(PrioritySchedule({"a": 1, "b": 0}))
    assert setting.nices()[stranger.pid] == 3
    restore(journal, setting.host.proc, setting.host)
    assert setting.nices()[stranger.pid] == 3


def test_without_the_right_to_lower_nice_nothing_is_changed_and_the_reason_says_what_is_missing(tmp_path):
    setting = Setting(tmp_path, 2, may_lower=20)
    translator = setting.nice(setting.journal())
    (reason,) = translator.check()
    assert "CAP_SYS_NICE" in reason
    assert "ulimit -e 20" in reason
    with pytest.raises(EnforcementError, match="CAP_SYS_NICE"):
        translator.apply(PrioritySchedule({"a": 1, "b": 0}))
    assert setting.host.state() == setting.before
    assert not setting.path.exists()


def test_what_could_not_be_brought_back_is_not_changed(tmp_path):
    setting = Setting(tmp_path, 2, may_lower=0)
    urgent = setting.host.add(500, nice=-5, started=5)
    setting.where["urgent"] = Target(frozenset((urgent,)))
    translator = setting.nice(setting.journal())
    assert translator.check() == []
    with pytest.raises(EnforcementError, match="lowered to -5"):
        translator.apply(PrioritySchedule({"urgent": 1, "b": 0}))
    assert setting.nices()[500] == -5
    assert setting.nices()[200] == 0


def test_a_process_of_another_user_is_refused_before_anything_changes(tmp_path):
    setting = Setting(tmp_path, 2, foreign=frozenset((B,)))
    with pytest.raises(EnforcementError, match=r"process 200 .* belongs to another user"):
        setting.nice(setting.journal()).apply(PrioritySchedule({"a": 0, "b": 1}))
    assert setting.host.state() == setting.before


def test_cautions_name_autogrouping_and_separate_groups(setting):
    translator = setting.nice(setting.journal())
    schedule = PrioritySchedule({"a": 1, "b": 0})
    (groups,) = translator.cautions(schedule)
    assert "in 2 cgroups" in groups
    (setting.host.proc_root / "sys/kernel/sched_autogroup_enabled").write_text("1\n")
    autogroup, _ = translator.cautions(schedule)
    assert "sysctl kernel.sched_autogroup_enabled=0" in autogroup


def test_groups_have_their_weights_quota_and_members(setting):
    translator = setting.groups(setting.journal())
    assert translator.check() == []
    translator.apply(TWO)
    assert setting.places() == {
        1: "",
        **dict.fromkeys((100, 101, 102, 103), "slackwater/group-high"),
        **dict.fromkeys((200, 201, 300), "slackwater/group-low"),
    }
    if setting.host.version == 1:
        assert setting.read("slackwater/cpu.shares") == str(1024 * 2 * CORES)
        assert setting.read("slackwater/group-high/cpu.shares") == "262144"
        assert setting.read("slackwater/group-low/cpu.shares") == "32768"
        assert setting.read("slackwater/group-low/cpu.cfs_quota_us") == "50000"
        assert setting.read("slackwater/group-high/cpu.cfs_quota_us") == "-1"
    else:
        assert setting.read("slackwater/cgroup.subtree_control") == "cpu"
        assert setting.read("slackwater/cpu.weight") == str(min(10_000, 100 * 2 * CORES))
        assert setting.read("slackwater/group-low/cpu.weight") == "1250"
        assert setting.read("slackwater/group-low/cpu.max") == "50000 100000"
        assert setting.read("slackwater/group-high/cpu.max") == "max 100000"
    translator.restore()
    assert setting.host.state() == setting.before
    assert not setting.path.exists()


def test_a_parent_that_was_there_before_keeps_its_weight(setting):
    setting.host.group("slackwater")
    file = "slackwater/cpu.shares" if setting.host.version == 1 else "slackwater/cpu.weight"
    before = setting.read(file)
    setting.groups(setting.journal()).apply(TWO)
    assert setting.read(file) == before


def test_a_quota_is_lifted_and_members_change_groups(setting):
    translator = setting.groups(setting.journal())
    translator.apply(TWO)
    translator.apply(grouping(high=(1, "ab"), low=(1, "c")))
    assert setting.places()[201] == "slackwater/group-high"
    quota = "cpu.cfs_quota_us" if setting.host.version == 1 else "cpu.max"
    assert setting.read(f"slackwater/group-low/{quota}") in ("-1", "max 100000")
    translator.apply(grouping(high=(1, "b")))
    assert setting.places()[101] == "system.slice/a.service"
    assert not (setting.host.mount / "slackwater/group-low").exists()
    translator.apply(grouping())
    assert setting.host.state() == setting.before


def test_children_born_in_a_group_go_where_their_parent_came_from(setting):
    journal = setting.journal()
    translator = setting.groups(journal)
    translator.apply(TWO)
    worker = setting.host.fork(A, 410)
    setting.where["a"] = Target(frozenset((setting.ids[A], worker)))
    translator.apply(TWO)
    setting.host.fork(410, 420)
    setting.host.fork(B, 430)
    setting.host.end(B)
    setting.host.processes[430].parent = 1
    setting.host.flush()
    translator.restore()
    places = setting.places()
    assert [places[pid] for pid in (410, 420, 430)] == ["system.slice/a.service", "system.slice/a.service", "b.slice"]
    assert setting.host.state()[2] == setting.before[2]


def test_a_former_group_that_is_gone_gives_way_to_the_one_above(tmp_path):
    setting = Setting(tmp_path, 1)
    translator = setting.groups(setting.journal())
    translator.apply(TWO)
    setting.host.remove_group(setting.host.mount / "system.slice/a.service")
    translator.restore()
    assert setting.places()[101] == "system.slice"


def test_threads_that_sat_in_other_groups_go_back_there(tmp_path):
    setting = Setting(tmp_path, 1)
    setting.host.threads[102].group = "b.slice"
    setting.host.flush()
    before = setting.host.state()
    translator = setting.groups(setting.journal())
    translator.apply(TWO)
    translator.apply(TWO)
    assert setting.places()[102] == "slackwater/group-high"
    translator.restore()
    assert setting.host.state() == before


def test_single_threads_have_groups_in_version_1_and_are_refused_in_version_2(setting):
    single = next(thread.id for thread in setting.host.proc.threads(setting.ids[A]) if thread.id.tid == 102)
    setting.where["t"] = Target(threads=frozenset((single,)))
    translator = setting.groups(setting.journal())
    schedule = grouping(main=(4, "a"), side=(1, "t"))
    if setting.host.version == 2:
        with pytest.raises(EnforcementError, match="single threads"):
            translator.apply(schedule)
    else:
        translator.apply(schedule)
        translator.apply(schedule)
        assert setting.places()[101] == "slackwater/group-main"
        assert setting.places()[102] == "slackwater/group-side"
        translator.restore()
    assert setting.host.state() == setting.before


def test_a_group_that_is_not_in_the_journal_is_left_alone(setting):
    setting.host.group("slackwater/group-high")
    translator = setting.groups(setting.journal())
    with pytest.raises(EnforcementError, match="not in this journal"):
        translator.apply(TWO)
    assert setting.places() == setting.before[1]
    translator.restore()
    assert (setting.host.mount / "slackwater/group-high").exists()


def test_a_parent_that_was_made_for_us_stays(setting):
    setting.host.group("slackwater")
    before = setting.host.state()
    translator = setting.groups(setting.journal())
    translator.apply(TWO)
    translator.restore()
    assert setting.host.state() == before


def test_version_2_without_the_controller_is_refused_with_what_to_do(tmp_path):
    setting = Setting(tmp_path, 2)
    translator = setting.groups(setting.journal())
    (setting.host.mount / "cgroup.subtree_control").write_text("memory\n")
    (reason,) = translator.check()
    assert "echo +cpu >" in reason
    (setting.host.mount / "cgroup.controllers").write_text("memory\n")
    (reason,) = translator.check()
    assert "not available" in reason
    with pytest.raises(EnforcementError, match="Delegate=cpu"):
        translator.apply(TWO)
    assert setting.host.state() == setting.before


def test_hosts_without_cgroups_or_with_another_view_are_refused(tmp_path):
    setting = Setting(tmp_path, 1)
    mountinfo = setting.host.proc_root / "self/mountinfo"
    with_groups = mountinfo.read_text()
    mountinfo.write_text(with_groups.replace(f" / {setting.host.mount}", f" /docker/abc {setting.host.mount}"))
    translator = setting.groups(setting.journal())
    with pytest.raises(EnforcementError, match="host's cgroup namespace"):
        translator.apply(TWO)
    mountinfo.write_text(with_groups.splitlines()[0])
    (reason,) = setting.groups(Journal.open(tmp_path / "other.json", setting.host.proc)).check()
    assert "is mounted" in reason
    mountinfo.unlink()
    (reason,) = setting.groups(Journal.open(tmp_path / "third.json", setting.host.proc)).check()
    assert "need Linux" in reason


def test_in_a_container_groups_are_looked_up_below_what_it_sees(tmp_path):
    setting = Setting(tmp_path, 1)
    mountinfo = setting.host.proc_root / "self/mountinfo"
    mountinfo.write_text(
        mountinfo.read_text().replace(f" / {setting.host.mount}", f" /pod\\040one {setting.host.mount}")
    )
    (setting.host.proc_root / f"{A}/cgroup").write_text("2:cpu,cpuacct:/pod one/b.slice\n")
    translator = setting.groups(setting.journal())
    assert translator._groups.hierarchy.group_of(setting.host.proc, A) == setting.host.mount / "b.slice"


def test_hybrid_hosts_use_version_1_where_it_has_the_controller(tmp_path):
    setting = Setting(tmp_path, 1)
    mountinfo = setting.host.proc_root / "self/mountinfo"
    mountinfo.write_text(f"29 22 0:25 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n" + mountinfo.read_text())
    assert setting.groups(setting.journal())._groups.hierarchy.version == 1


def test_a_process_wanted_by_two_groups_is_refused(setting):
    setting.where["b"] = setting.where["a"]
    with pytest.raises(EnforcementError, match="'a' of the group 'high' and 'b' of the group 'low'"):
        setting.groups(setting.journal()).apply(TWO)


def test_names_of_groups_become_folders_that_differ_and_never_the_kernels():
    names = ["tasks", "cpu.shares", "cpu/shares", "cpu shares", "../x", "", "ä"]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(folder.startswith("group-") and "/" not in folder and "." not in folder for folder in folders)


@pytest.mark.parametrize("parent", ["", "/", "..", "a/../.."])
def test_a_parent_outside_the_tree_is_refused(setting, parent):
    with pytest.raises(ConfigurationError, match="below the root"):
        setting.groups(setting.journal(), parent=parent)


def test_combined_orders_inside_each_group_over_the_whole_range(setting):
    setting.where["d"] = Target(frozenset((setting.host.add(600, started=60),)))
    before = setting.host.state()
    translator = setting.combined(setting.journal(), span=NiceRange(-5, 15))
    assert translator.check() == []
    groups = grouping(high=(8, "a"), low=(1, "bcd"))
    translator.apply(CombinedSchedule(groups, PrioritySchedule({"a": 3, "b": 2, "c": 1})))
    assert {pid: setting.nices()[pid] for pid in (A, B, C, 600)} == {A: 0, B: -5, C: 15, 600: 15}
    assert setting.places()[600] == "slackwater/group-low"
    translator.restore()
    translator.restore()
    assert setting.host.state() == before


steps = st.lists(st.sampled_from(["two", "one", "swap", "none", "thread", "fork", "end"]), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([1, 2]), plan=steps, kill_at=st.integers(0, 60), again_at=st.integers(0, 30))
def test_killed_anywhere_everything_is_put_back_even_when_the_restoring_is_killed_too(
    tmp_path_factory, version, plan, kill_at, again_at
):
    setting = Setting(tmp_path_factory.mktemp("host"), version)
    journal = setting.journal()
    translator = setting.combined(journal)
    order = PrioritySchedule({"a": 1, "b": 2, "c": 3})
    schedules = {
        "two": TWO,
        "one": grouping(all=(1, "abc")),
        "swap": grouping(high=(3, "c"), low=(1, "a", 1.5)),
        "none": grouping(),
    }
    setting.host.kill_at = kill_at
    numbers = iter(range(700, 800))
    expected = setting.before
    try:
        for step in plan:
            setting.host.proc.ticks += 3
            if step == "thread":
                setting.host.clone(A, tid := next(numbers))
                expected[0][tid], expected[1][tid] = expected[0][A], expected[1][A]
            elif step == "fork":
                worker = setting.host.fork(A, pid := next(numbers))
                expected[0][pid], expected[1][pid] = expected[0][A], expected[1][A]
                setting.where["a"] = Target(setting.where["a"].processes | {worker})
            elif step == "end":
                if C in setting.host.processes:
                    setting.host.end(C)
                    del expected[0][C], expected[1][C]
            else:
                translator.apply(CombinedSchedule(schedules[step], order))
    except Killed:
        pass
    journal.close()
    setting.host.kill_at = setting.host.operations + again_at
    try:
        setting.journal().close()
    except Killed:
        setting.host.kill_at = None
        setting.journal().close()
    assert setting.host.state() == expected
    assert not setting.path.exists()


def test_what_cannot_be_put_back_stays_in_the_journal_and_is_told(setting):
    journal = setting.journal()
    translator = setting.nice(journal)
    translator.apply(PrioritySchedule({"a": 1, "b": 0}))
    setting.host.may_lower = 20
    with pytest.raises(EnforcementError, match="thread 200 of process 200 back to 0"):
        translator.restore()
    journal.close()
    with pytest.raises(EnforcementError, match="an earlier run left changes"):
        setting.journal()
    setting.host.may_lower = -20
    setting.journal().close()
    assert setting.host.state() == setting.before


def test_a_journal_of_an_earlier_boot_is_empty(setting):
    journal = setting.journal()
    setting.nice(journal).apply(PrioritySchedule({"a": 1, "b": 0}))
    journal.close()
    (setting.host.proc_root / "sys/kernel/random/boot_id").write_text("boot-2\n")
    assert not Journal.open(setting.path, setting.host.proc).entries


def test_processes_are_found_by_command_line_and_gone_ones_are_left_out(setting):
    proc = setting.host.proc
    assert proc.find(lambda arguments: "app-200" in arguments) == [setting.ids[B]]
    assert proc.descendants(ProcessId(1, proc.process(1).started_ticks - 1)) == []
    setting.host.add(800, parent=A, started=5)
    younger = setting.host.add(810, parent=A, started=50)
    assert proc.descendants(setting.ids[A]) == [younger]
    setting.host.end(B)
    assert proc.threads(setting.ids[B]) == []
    assert proc.cpu_s(setting.ids[B]) == 0
    assert proc.parent(setting.ids[B]) is None
    assert proc.command_line(setting.ids[B]) == ()
