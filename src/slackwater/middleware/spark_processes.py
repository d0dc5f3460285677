"""The processes of a Spark application on this host: its driver, its executors, and the Python workers of both.

Spark's queries share the threads of these processes, so the whole application is what the operating system can prefer;
between queries of one application the scheduler inside decides.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from slackwater.middleware.model import Unit
from slackwater.translators.schedule import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.middleware.host import Host
    from slackwater.translators.identity import ProcessId

_EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
_SHELLS = frozenset({"bash", "sh", "dash"})


def units_of(host: Host, key: str, application_id: str, jvm: ProcessId | None) -> tuple[Unit, ...]:
    """The application's units: `jvm` is its driver, where that runs on this host; executors are found by its id."""
    units = []
    if jvm is not None and host.alive(jvm):
        processes = {jvm, *host.descendants(jvm)}
        python = _python_driver(host, jvm)
        if python is not None:
            processes.add(python)
        units.append(Unit(f"{key}/driver", "driver", Target(frozenset(processes))))
    for executor, arguments in host.commands(_EXECUTOR_CLASS):
        if _argument(arguments, "--app-id") == application_id:
            number = _argument(arguments, "--executor-id") or str(executor.pid)
            processes = {executor, *host.descendants(executor)}
            units.append(Unit(f"{key}/executor-{number}", "executor", Target(frozenset(processes))))
    return tuple(units)


def _python_driver(host: Host, jvm: ProcessId) -> ProcessId | None:
    """The Python program that started the JVM; one that the JVM started (spark-submit) is among its descendants.

    Between the two may stand the shell of Spark's start script, which waits. Anything else that started the JVM, such
    as a service manager, is not the application's.
    """
    for above in host.ancestors(jvm):
        arguments = host.command_line(above)
        program = arguments[0].rpartition("/")[2] if arguments else ""
        if program.startswith(("python", "pyspark")):
            return above
        if program not in _SHELLS:
            return None
    return None


def _argument(arguments: Sequence[str], name: str) -> str | None:
    for flag, value in pairwise(arguments):
        if flag == name:
            return value
    return None
