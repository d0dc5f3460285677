"""The command line that looks at running applications and steers them: `slackwater status`, `explain`, `pause`, …"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.control.client import Client

_WIDTH = 110

Query = Annotated[str, Parameter(help="A query's name, id or run id.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which application, and how to print what it says.

    Parameters
    ----------
    url
        Where its endpoint answers, such as http://127.0.0.1:4050; else it is found by its announcement on this host.
    app
        Its name or id, where several run.
    token_file
        The file with its token, for what changes something; else the announced one.
    as_json
        Print JSON.
    """

    url: str | None = None
    app: str | None = None
    token_file: Path | None = None
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False


_HERE = Where()


def status(*, where: Where = _HERE) -> None:
    """Say where every query of a running application stands."""
    with _connected(where) as client:
        told, target = client.status(), client.target
    if where.as_json:
        _print_json(told)
        return
    _show(told)
    from slackwater.control.plain import plain  # noqa: PLC0415 - loaded on use

    token = f"; its token is in {target.token_file}" if target.token_file is not None else ""
    print(plain(f"\nPage: {target.url}/{token}"))


def explain(query: Query, *, where: Where = _HERE) -> None:
    """Say in words what a query waits for, since when, who ran instead and why, and when its next window closes."""
    with _connected(where) as client:
        told = client.query(query)
    if where.as_json:
        _print_json(told)
        return
    from slackwater.control.plain import plain  # noqa: PLC0415

    for number, paragraph in enumerate(told.explanation.split("\n")):
        print("\n" * bool(number) + textwrap.fill(plain(paragraph), _WIDTH))


def pause(query: Query, *, where: Where = _HERE) -> None:
    """Give a query no turn until it is resumed. A turn that runs is finished."""
    from slackwater.control.answers import QueryOrder  # noqa: PLC0415 - loaded on use

    _order(where, "/api/pause", QueryOrder(query=query))


def resume(query: Query, *, where: Where = _HERE) -> None:
    """Let a paused query have turns again."""
    from slackwater.control.answers import QueryOrder  # noqa: PLC0415

    _order(where, "/api/resume", QueryOrder(query=query))


policy = App(name="policy", help="Choose by what a running application schedules.")


@policy.command(name="set")
def policy_set(
    name: Annotated[str, Parameter(help="The policy's name.")],
    *,
    knob: Annotated[
        Literal["cost", "balanced", "latency"],
        Parameter(help="What counts more where the policy can choose: few batches, or low latency."),
    ] = "balanced",
    memory_bound: Annotated[float, Parameter(help="The share of the heap from which on memory rules.")] = 0.75,
    period: Annotated[float | None, Parameter(help="Ask the policy no more often than every so many seconds.")] = None,
    where: Where = _HERE,
) -> None:
    """Switch to another policy from the next decision on; `slackwater policies` lists them."""
    from slackwater.control.answers import PolicyOrder  # noqa: PLC0415

    _order(where, "/api/policy", PolicyOrder(policy=name, knob=knob, memory_bound=memory_bound, period_s=period))


classes = App(name="class", help="Put queries of a running application into classes.")


@classes.command(name="set")
def class_set(
    query: Query, number: Annotated[int, Parameter(help="The class; 0 is usual.")], *, where: Where = _HERE
) -> None:
    """Put a query into another class: those of a smaller one go before those of a greater one."""
    from slackwater.control.answers import ClassOrder  # noqa: PLC0415

    _order(where, "/api/class", ClassOrder(query=query, priority_class=number))


def top(
    *,
    every: Annotated[float, Parameter(help="Seconds between two looks.")] = 1.0,
    once: Annotated[
        bool, Parameter(help="Print the table once and end; so it is where the output is no terminal.", negative=())
    ] = False,
    where: Where = _HERE,
) -> None:
    """Watch the queries of a running application in the terminal; q leaves."""
    from rich.console import Console  # noqa: PLC0415

    if not 0.1 <= every <= 3600:
        raise ConfigurationError(f"--every {every:g}: from 0.1 to 3600 seconds is sensible.")
    console = Console()
    if once or where.as_json or not console.is_terminal:
        with _connected(where) as client:
            told = client.status()
        if where.as_json:
            _print_json(told)
            return
        from slackwater.control.tables import urgent_first  # noqa: PLC0415

        _show(told, urgent_first(told))
        return
    from slackwater.control.top import watch  # noqa: PLC0415

    watch(lambda: _connected(where), every, console)


COMMANDS = (status, explain, pause, resume, policy, classes, top)


def _connected(where: Where) -> Client:
    from slackwater.control.client import Client, find  # noqa: PLC0415

    return Client(find(where.url, where.app, where.token_file))


def _order(where: Where, path: str, order: Any) -> None:
    from slackwater.control.plain import plain  # noqa: PLC0415

    with _connected(where) as client:
        done = client.order(path, order)
    if where.as_json:
        _print_json(done)
    else:
        print(plain(f"{done.name}: {done.done}" if done.name is not None else done.done))


def _show(told: Any, queries: Any = None) -> None:
    from rich.console import Console  # noqa: PLC0415

    from slackwater.control.tables import shown  # noqa: PLC0415

    console = Console()
    # A file or a pipe has no width that anything would have to fit into.
    Console(width=None if console.is_terminal else 250, highlight=False).print(shown(told, queries))


def _print_json(told: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(told), indent=1).decode())
