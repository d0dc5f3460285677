"""A TOML file, or why it is none."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """what: what the file should be, as in "the configuration"; it stands in errors."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{what} {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}.") from error
