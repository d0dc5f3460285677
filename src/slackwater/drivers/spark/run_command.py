"""`slackwater run SCRIPT.py [args…]`: any PySpark script, attached, under `python` or `spark-submit`.

Whatever stands behind the script's name is the script's own, as with `python`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENTRY = Path(__file__).parents[2] / "run_script.py"
_VALUED = frozenset({"--policy", "--knob", "--lanes", "--address"})


@dataclass(frozen=True)
class Options:
    """What is None is left to `attach`."""

    policy: str | None = None
    knob: str | None = None
    lanes: int | None = None
    tune: bool = False
    serve: bool = False
    address: str | None = None
    entry: bool = False

    def settings(self) -> dict[str, Any]:
        """For `attach`: only what was said."""
        found = {"policy": self.policy, "knob": self.knob, "lanes": self.lanes}
        return (
            {name: value for name, value in found.items() if value is not None}
            | ({"tune": True} if self.tune else {})
            | ({"serve": self.address or True} if self.serve or self.address else {})
        )


_reader = App(
    name="slackwater run",
    usage="Usage: slackwater run [OPTIONS] SCRIPT.py [ARGUMENTS OF THE SCRIPT…]",
    help="Run a PySpark script as it is, with its streaming queries scheduled. "
    'Under spark-submit: spark-submit [ITS OPTIONS] "$(slackwater run --entry)" [OPTIONS] SCRIPT.py [ARGUMENTS…]',
    version_flags=[],
)


@_reader.default
def _read(
    *,
    policy: Annotated[str | None, Parameter(help="The policy; klink when not given.")] = None,
    knob: Annotated[
        Literal["cost", "balanced", "latency"] | None,
        Parameter(help="What counts more where the policy can choose: few batches, or low latency."),
    ] = None,
    lanes: Annotated[int | None, Parameter(help="How many turns run at once; found out when not given.")] = None,
    tune: Annotated[bool, Parameter(help="Apply the doctor's safe findings to the session.", negative=())] = False,
    serve: Annotated[
        bool, Parameter(help="Open the page and the endpoint, at a free port on loopback.", negative=())
    ] = False,
    address: Annotated[str | None, Parameter(help="HOST:PORT to open them at.")] = None,
    entry: Annotated[
        bool, Parameter(help="Print the path of the file that spark-submit is to run, and end.", negative=())
    ] = False,
) -> Options:
    return Options(policy, knob, lanes, tune, serve, address, entry)


run = App(name="run", help="Run a PySpark script as it is, attached.", help_flags=[], version_flags=[])
run.end_of_options_delimiter = ""


@run.default
def run_command(*tokens: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
    """`tokens`: options of ours, the script, and all that is the script's."""
    ours, rest = split(tokens)
    chosen = _reader(ours, result_action="return_value")
    if not isinstance(chosen, Options):  # help was asked for
        return
    if chosen.entry:
        print(_ENTRY)
        return
    if not rest:
        raise ConfigurationError("no script was given: slackwater run [OPTIONS] SCRIPT.py [ARGUMENTS…]")
    from slackwater.drivers.spark.script import run_script  # noqa: PLC0415 - Spark is loaded on use

    settings = chosen.settings()
    _check(settings)
    run_script(Path(rest[0]), rest[1:], settings)


def split(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours, and the script with what is its own."""
    at = 0
    while at < len(tokens) and tokens[at].startswith("-"):
        if tokens[at] == "--":
            return list(tokens[:at]), list(tokens[at + 1 :])
        at += 2 if tokens[at] in _VALUED else 1
    return list(tokens[:at]), list(tokens[at:])


def _check(settings: dict[str, Any]) -> None:
    """What cannot work is told before the script does anything."""
    from slackwater.core.engine import EngineSettings  # noqa: PLC0415
    from slackwater.drivers.spark.attach import check_address  # noqa: PLC0415
    from slackwater.policies.assembly import policy_for  # noqa: PLC0415

    EngineSettings(lanes=settings.get("lanes", "auto"))
    policy_for(settings.get("policy", "klink"), knob=settings.get("knob", "balanced"))
    check_address(settings.get("serve", False))
