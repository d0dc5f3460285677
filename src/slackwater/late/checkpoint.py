"""What Spark's checkpoint of a query says: which batch is committed last, and the id that the query keeps for life."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.late.files import files_at

if TYPE_CHECKING:
    from pathlib import Path


class _Metadata(msgspec.Struct):
    id: str


def last_committed(checkpoint: str | Path) -> int:
    """-1 when no batch is committed yet."""
    files = files_at(checkpoint)
    if not {"commits", "offsets", "metadata"} & files.names(""):
        raise ConfigurationError(
            f"{files} is not the checkpoint of a streaming query: there is no folder `commits` in it. "
            "Give the query's checkpointLocation."
        )
    return max((int(name) for name in files.names("commits") if name.isdigit()), default=-1)


def query_id(checkpoint: str | Path) -> str | None:
    """The id in the checkpoint's `metadata`, to be a store's `owner`; None before the query's first start."""
    try:
        return msgspec.json.decode(files_at(checkpoint).read("metadata"), type=_Metadata).id
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{checkpoint}/metadata is not what Spark writes: {error}. Is it a checkpoint?"
        ) from error
