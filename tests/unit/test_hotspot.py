"""Names of threads of a JVM: real dumps of two Javas, a real JVM, and what must never be sent a signal."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.drivers.spark.java import find_java
from slackwater.middleware import hotspot
from slackwater.middleware.hotspot import AttachRefusedError, ThreadNameReader, parse_threads, thread_dump
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.translators.identity import ProcessId

JAVA_17 = """\
2026-11-15 13:27:53
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6-Debian-1deb12u1 mixed mode, sharing):

"main" #1 prio=5 os_prio=0 cpu=2046.81ms elapsed=753.20s tid=0x00007fd9a80193a0 nid=0x243c waiting on condition  [0x00007fd9aef1e000]
   java.lang.Thread.State: WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)

"Legacy Source Thread - Source: numbered[1] (1/1)#0" #141 prio=5 os_prio=0 cpu=412.12ms elapsed=70.20s tid=0x00007fd904019b00 nid=0x3902 runnable  [0x00007fd9aef1e000]
   java.lang.Thread.State: RUNNABLE

"GC Thread#0" os_prio=0 cpu=113.61ms elapsed=753.22s tid=0x00007fd9a8054a40 nid=0x243d runnable
"""  # noqa: E501  # as the JVM prints it

JAVA_21 = """\
"main" #1 [4839] prio=5 os_prio=0 cpu=153.40ms elapsed=9.63s tid=0x00007fe0e402ad40 nid=4839 runnable  [0x00007fe0eb71e000]
   java.lang.Thread.State: RUNNABLE
"Finalizer" #10 [4865] daemon prio=8 os_prio=0 cpu=0.44ms elapsed=8.18s tid=0x00007fe0e4170c60 nid=4865 in Object.wait()  [0x00007fe0e85c5000]
"VM Thread" os_prio=0 cpu=4.36ms elapsed=9.49s tid=0x00007fe0e412e050 nid=4848 runnable
"""  # noqa: E501

SOURCE = "Legacy Source Thread - Source: numbered[1] (1/1)#0"


def test_numbers_are_hexadecimal_in_java_17():
    assert parse_threads(JAVA_17) == {0x243C: "main", 0x3902: SOURCE, 0x243D: "GC Thread#0"}


def test_numbers_are_decimal_in_java_21():
    assert parse_threads(JAVA_21) == {4839: "main", 4865: "Finalizer", 4848: "VM Thread"}


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=60), st.integers(1, 2**22))
def test_any_name_on_one_line_is_read_as_it_is(name: str, number: int):
    line = f'"{name}" #7 [{number}] daemon prio=5 os_prio=0 cpu=1.00ms elapsed=2.00s tid=0x01 nid={number} runnable'
    assert parse_threads(f"head\n{line}\n   at x\n") == {number: name}


@contextmanager
def gateway(*options: str) -> Iterator[ProcessId]:
    """A small JVM with threads of its own; it ends with its input."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    command = [find_java().home / "bin" / "java", "-Xmx64m", *options, "-cp", jar, "py4j.GatewayServer"]
    with subprocess.Popen(
        [*map(str, command), "--die-on-broken-pipe", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as jvm:
        assert jvm.stdout is not None
        assert jvm.stdout.readline().strip().isdigit()
        process = Proc().process(jvm.pid)
        assert process is not None
        yield process
        jvm.kill()


def test_threads_of_a_real_jvm_have_their_java_names_and_it_is_stopped_once(monkeypatch: pytest.MonkeyPatch):
    dumps = []

    def counted(process: ProcessId, proc: Proc, timeout_s: float) -> str:
        dumps.append(process)
        return thread_dump(process, proc, timeout_s)

    monkeypatch.setattr(hotspot, "thread_dump", counted)
    proc = Proc()
    with gateway() as process:
        reader = ThreadNameReader(proc, timeout_s=60)
        found = reader.read(process)
        assert found.whole, found.note
        there = {thread.id: thread for thread in proc.threads(process)}
        assert {"main", "Finalizer", "VM Thread"} <= set(found.names.values())
        # The kernel knows the beginning of each name.
        told = {name: there[thread].name for thread, name in found.names.items() if thread in there and name}
        assert told["Reference Handler"] == "Reference Handl"
        # The thread that answered is new, so there is a second dump at most; then it knows them all.
        reader.read(process)
        before = len(dumps)
        assert reader.read(process).names.keys() >= found.names.keys() & there.keys()
        assert len(dumps) == before
        assert not list(Path(f"/proc/{process.pid}/cwd").glob(f".attach_pid{process.pid}"))
    assert reader.read(process).names == {}


def test_what_a_jvm_told_before_holds_while_it_does_not_answer(monkeypatch: pytest.MonkeyPatch):
    def silent(process: ProcessId, proc: Proc, timeout_s: float) -> str:
        raise AttachRefusedError("it is busy.")

    with gateway() as process:
        reader = ThreadNameReader(timeout_s=60)
        told = reader.read(process).names
        monkeypatch.setattr(hotspot, "thread_dump", silent)
        reader._known[process].pop(next(thread for thread, name in told.items() if name == "main"))
        found = reader.read(process)
        assert found.whole
        assert "Reference Handler" in found.names.values()


def test_a_jvm_that_may_not_be_asked_tells_the_kernels_names_and_why():
    with gateway("-XX:+DisableAttachMechanism") as process:
        found = ThreadNameReader().read(process)
        assert not found.whole
        assert "DisableAttachMechanism" in found.note
        assert "Reference Handl" in found.names.values()


def test_what_is_no_jvm_is_never_sent_a_signal():
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        process = Proc().process(sleeper.pid)
        assert process is not None
        with pytest.raises(AttachRefusedError, match="no JVM"):
            thread_dump(process)
        assert sleeper.poll() is None
        sleeper.kill()


def test_a_process_that_is_gone_is_refused():
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        process = Proc().process(sleeper.pid)
        sleeper.kill()
    assert process is not None
    with pytest.raises(AttachRefusedError, match="gone"):
        thread_dump(process)
