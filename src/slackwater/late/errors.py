"""What can be wrong with a store of windows."""

from __future__ import annotations

from slackwater.errors import ConfigurationError, SlackwaterError


class MissingPyarrowError(ConfigurationError):
    """The optional dependency of this layer is not installed."""


class StoreError(SlackwaterError, RuntimeError):
    """The store cannot do what was asked, or holds what it cannot read."""


class NewerFormatError(StoreError):
    """A later version of Slackwater wrote it; reading on would misunderstand it, so nothing is touched."""


class DamagedFileError(StoreError):
    """A file that is truncated, changed or not of this store."""


class PurgedWindowError(StoreError):
    """Rows or results for windows that are gone; the rows belong into the dead letters."""

    def __init__(self, windows: list[int]) -> None:
        self.windows = windows
        named = ", ".join(map(str, windows[:5])) + (", …" if len(windows) > 5 else "")
        super().__init__(
            f"windows that have been purged cannot take rows or emit: {named} ({len(windows)} in all). "
            "Give their rows to dead() instead."
        )


class LateExecutionError(SlackwaterError, RuntimeError):
    """Late results could not be brought out in several attempts; the query must not go on as if they had been."""

    def __init__(self, query: str, cause: Exception) -> None:
        super().__init__(
            f"late windows of {query} could not be executed: {cause}. Their rows are safe in the store. Mend the cause "
            "and start the query again from its checkpoint."
        )
