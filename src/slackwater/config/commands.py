"""`slackwater config show` and `slackwater config check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations
from typing import Annotated, Any

from cyclopts import App, Parameter

from slackwater.config.resolve import DEFAULT, Resolved, resolve
from slackwater.config.schema import setting_at
from slackwater.config.sources import CONF_PREFIX, from_file, shown
from slackwater.errors import ConfigurationError

config = App(name="config", help="The settings that attach() goes by, and where each comes from.")


@config.command(name="show")
def config_show(
    *,
    config: Path | None = None,
    conf: Annotated[tuple[str, ...], Parameter(name="--conf", negative=())] = (),
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Tell every setting, its value and where it came from, as an application started here would find them.

    Parameters
    ----------
    config
        The file; without it $SLACKWATER_CONFIG, else slackwater.toml in the working directory.
    conf
        A setting `spark.slackwater.KEY=VALUE`, as given to spark-submit; may be repeated.
    as_json
        Print facts as JSON.
    """
    found = resolve(config=config, conf=_conf(conf))
    if as_json:
        file = str(found.file) if found.file is not None else None
        print(json.dumps({"file": file, "settings": list(_rows(found))}, indent=1))
        return
    print(f"file: {found.file or 'none'}")
    rows = list(_rows(found))
    width = max(len(row["setting"]) for row in rows)
    values = max(len(row["shown"]) for row in rows)
    for row in rows:
        print(f"{row['setting']:{width}}  {row['shown']:{values}}  {row['where']}")


@config.command(name="check")
def config_check(file: Path) -> None:
    """Say what is wrong with a file, and exit 2; or that nothing is.

    Parameters
    ----------
    file
        The file, such as slackwater.toml.
    """
    values = from_file(file)
    resolve(config=file, environment={})
    print(f"{file}: {len(values)} settings, and nothing is wrong with them.", file=sys.stdout)


def _rows(found: Resolved) -> Any:
    for path, one in found.values.items():
        setting = setting_at(path)
        told = shown(setting, one.value)
        value = told if setting.secret and one.value is not None else one.value
        yield {
            "setting": ".".join(path),
            "value": value,
            "shown": told,
            "where": one.where,
            "is_default": one.where == DEFAULT,
            "about": setting.about,
            "while_running": setting.live,
        }


def _conf(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith(CONF_PREFIX):
            raise ConfigurationError(f"--conf {one!r}: give {CONF_PREFIX}KEY=VALUE, as spark-submit takes it.")
        found[key] = value
    return found
