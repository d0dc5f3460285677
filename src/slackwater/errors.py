"""What a user can get wrong, said as: what happened, what was found, what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class SlackwaterError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigurationError(SlackwaterError, ValueError):
    """A setting, name or option that cannot be used."""


class MissingExtraError(ConfigurationError):
    """Something needs packages that only an extra of ours installs."""

    def __init__(self, purpose: str, packages: Sequence[str], extras: Sequence[str]) -> None:
        found = f"{' and '.join(packages)}, which {'is' if len(packages) == 1 else 'are'} not installed"
        super().__init__(f"{purpose} needs {found}. Install: pip install 'slackwater[{','.join(extras)}]'")


class AttachError(SlackwaterError, RuntimeError):
    """The session cannot be scheduled; it runs on as plain Spark."""


class JavaNotFoundError(SlackwaterError, RuntimeError):
    """No usable Java on this machine."""


class EnforcementError(SlackwaterError, RuntimeError):
    """The operating system does not let a priority take effect; what was changed can be put back."""


class ClusterError(SlackwaterError, RuntimeError):
    """The cluster on this machine could not be started, found or changed."""


class KafkaError(SlackwaterError, RuntimeError):
    """A broker, its jars or a topic could not be had."""


class UnreachableError(SlackwaterError, RuntimeError):
    """An application or an engine does not answer. What was known of it last stands until it does."""


class ControlError(SlackwaterError, RuntimeError):
    """No running application could be found, or it did not do what it was asked."""


def unknown_name(kind: str, found: str, known: Iterable[str]) -> ConfigurationError:
    """The error for a name that is not in a registry, with the nearest known one."""
    names = sorted(known)
    near = get_close_matches(found, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ConfigurationError(f"unknown {kind} {found!r}; known are: {', '.join(names)}.{hint}")
