"""`slackwater kafka …`: the commands that the command line mounts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from slackwater.kafka.model import BrokerStatus

kafka = App(name="kafka", help="A Kafka broker on this machine, and the jars with which Spark reads its topics.")


@kafka.command
def start(
    *,
    port: int = 0,
    heap: str = "256m",
    folder: Annotated[Path | None, Parameter(name="--dir")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Start a broker on loopback, and print what clients name as bootstrap servers.

    Parameters
    ----------
    port
        Port of the broker; any that is free when not given.
    heap
        Heap of its JVM.
    folder
        Folder for its state, its log and its topics; one in the user's state folder when not given.
    as_json
        Print facts as JSON.
    """
    from slackwater.kafka.broker import Broker, default_folder  # noqa: PLC0415 - loaded on use
    from slackwater.kafka.model import BrokerPlan  # noqa: PLC0415

    status = Broker(folder or default_folder(), BrokerPlan(port, heap), detached=True).start()
    if as_json:
        _print_json(status)
    else:
        print(status.servers)


@kafka.command
def stop(
    *,
    folder: Annotated[Path | None, Parameter(name="--dir")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """End the broker in order; its topics stay in its folder.

    Parameters
    ----------
    folder
        The folder that was given to `start`.
    as_json
        Print facts as JSON.
    """
    from slackwater.kafka.broker import Broker, default_folder  # noqa: PLC0415

    there = Broker(folder or default_folder())
    before = there.status()
    killed = there.stop()
    if as_json:
        print(json.dumps({"stopped": before.servers if before.running else None, "killed": killed}))
    elif before.servers is None:
        print(f"no broker is running in {there.folder}")
    else:
        print(f"stopped {before.servers}" + ("; it had to be killed" if killed else ""))


@kafka.command
def status(
    *,
    folder: Annotated[Path | None, Parameter(name="--dir")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Say whether the broker runs, and where.

    Parameters
    ----------
    folder
        The folder that was given to `start`.
    as_json
        Print facts as JSON.
    """
    from slackwater.kafka.broker import Broker, default_folder  # noqa: PLC0415

    found = Broker(folder or default_folder()).status()
    if as_json:
        _print_json(found)
    elif found.servers is None:
        print(f"no broker is running in {found.folder}")
    else:
        state = "running" if found.running else "DEAD: stop it, then start it again"
        print(f"{found.servers}  {state}  (Kafka {found.kafka}, pid {found.pid}, log {found.log})")


@kafka.command
def jars(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> None:
    """Fetch the jars of broker and Spark's source where they are not here yet, and print Spark's setting for them.

    Parameters
    ----------
    as_json
        Print facts as JSON.
    """
    from slackwater.kafka.jars import broker_jars, fetched, spark_settings  # noqa: PLC0415

    settings = spark_settings()
    if as_json:
        print(json.dumps({"broker": str(fetched(broker_jars())), "spark": settings}))
    else:
        fetched(broker_jars())
        for name, value in settings.items():
            print(f"{name}={value}")


def _print_json(status: BrokerStatus) -> None:
    print(json.dumps(asdict(status), indent=1))
