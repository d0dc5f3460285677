"""`slackwater cluster …`: the commands that the command line mounts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from slackwater.cluster.model import ClusterStatus

cluster = App(name="cluster", help="A Spark standalone cluster on this machine, to try what a real one does.")


@cluster.command
def start(
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    port: int = 0,
    folder: Annotated[Path | None, Parameter(name="--dir")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Start a master and workers on loopback, and print the URL that sessions name as their master.

    Parameters
    ----------
    workers
        Number of workers.
    cores
        Cores of each worker.
    memory
        Memory that each worker has for executors.
    port
        Port of the master; any that is free when not given.
    folder
        Folder for state, logs and the executors' files; one in the user's state folder when not given.
    as_json
        Print facts as JSON.
    """
    from slackwater.cluster.model import ClusterPlan  # noqa: PLC0415 - loaded on use
    from slackwater.cluster.standalone import Standalone, default_folder  # noqa: PLC0415

    plan = ClusterPlan(workers, cores, memory, port)
    status = Standalone(folder or default_folder(), plan, detached=True).start()
    if as_json:
        _print_json(status)
    else:
        print(status.url)


@cluster.command
def stop(*, folder: Annotated[Path | None, Parameter(name="--dir")] = None) -> None:
    """End workers, master and all executors.

    Parameters
    ----------
    folder
        The folder that was given to `start`.
    """
    from slackwater.cluster.standalone import Standalone, default_folder  # noqa: PLC0415

    there = Standalone(folder or default_folder())
    before = there.status()
    killed = there.stop()
    if before.url is None:
        print(f"no cluster is running in {there.folder}")
    else:
        print(f"stopped {before.url}" + (f"; had to kill {', '.join(map(str, killed))}" if killed else ""))


@cluster.command
def status(
    *,
    folder: Annotated[Path | None, Parameter(name="--dir")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Say which workers are alive and which applications use them.

    Parameters
    ----------
    folder
        The folder that was given to `start`.
    as_json
        Print facts as JSON.
    """
    from slackwater.cluster.standalone import Standalone, default_folder  # noqa: PLC0415

    found = Standalone(folder or default_folder()).status()
    if as_json:
        _print_json(found)
    else:
        _print(found)


@cluster.command
def revive(*, folder: Annotated[Path | None, Parameter(name="--dir")] = None) -> None:
    """Start dead workers again.

    Parameters
    ----------
    folder
        The folder that was given to `start`.
    """
    from slackwater.cluster.standalone import Standalone, default_folder  # noqa: PLC0415

    back = Standalone(folder or default_folder(), detached=True).revive()
    print(f"started again: worker {', '.join(map(str, back))}" if back else "all workers are alive")


def _print_json(status: ClusterStatus) -> None:
    print(json.dumps({**asdict(status), "cores": status.cores}, indent=1))


def _print(status: ClusterStatus) -> None:
    if status.url is None:
        print(f"no cluster is running in {status.folder}")
        return
    state = "running" if status.running else "its master is DEAD: stop it, then start it again"
    print(f"{status.url}  {state}  (Spark {status.spark}, master's pid {status.master_pid}, page {status.web_url})")
    for worker in status.workers:
        condition = worker.condition if worker.condition == "alive" else worker.condition.upper()
        used = f"{worker.cores_used} of {worker.cores} cores used, {worker.memory}"
        trouble = "" if worker.condition == "alive" else f"; its log: {worker.log}"
        print(f"  worker {worker.number}  {condition:14} pid {worker.pid}  {used}{trouble}")
    if any(worker.condition == "dead" for worker in status.workers):
        print("  `slackwater cluster revive` starts dead workers again")
    for application in status.applications:
        print(f"  application {application.id}  {application.name!r} has {application.cores} cores")
    print(f"  {status.executors} executors")
