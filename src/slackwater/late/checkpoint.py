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


class _BatchMetadata(msgspec.Struct):
    batchWatermarkMs: int = 0  # noqa: N815 - Spark's name


class _CommitMetadata(msgspec.Struct):
    nextBatchWatermarkMs: int = 0  # noqa: N815 - Spark's name


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


def batch_watermark_ms(checkpoint: str | Path, batch_id: int) -> int:
    """The watermark that a batch begins with, from Spark's offset log; 0 when there is none."""
    files = files_at(checkpoint)
    try:
        lines = files.read(f"offsets/{batch_id}").decode().splitlines()
        return msgspec.json.decode(lines[1], type=_BatchMetadata).batchWatermarkMs
    except FileNotFoundError:
        return 0
    except (IndexError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"{files}/offsets/{batch_id} is not what Spark writes: {error}. Is it a checkpoint of this query?"
        ) from error


def next_watermark_ms(checkpoint: str | Path, committed: int) -> int:
    """The watermark that the batch after the last committed one begins with, whether or not Spark has planned it."""
    files = files_at(checkpoint)
    if committed < 0 or files.exists(f"offsets/{committed + 1}"):
        return batch_watermark_ms(checkpoint, committed + 1)
    try:
        lines = files.read(f"commits/{committed}").decode().splitlines()
        return msgspec.json.decode(lines[1], type=_CommitMetadata).nextBatchWatermarkMs
    except (IndexError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"{files}/commits/{committed} is not what Spark writes: {error}. Is it a checkpoint of this query?"
        ) from error


def is_committed(checkpoint: str | Path, batch_id: int) -> bool:
    return files_at(checkpoint).exists(f"commits/{batch_id}")
