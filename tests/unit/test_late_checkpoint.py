"""What Spark's checkpoint says of the watermark, as Spark 4 writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slackwater.errors import ConfigurationError
from slackwater.late.checkpoint import next_watermark_ms

if TYPE_CHECKING:
    from pathlib import Path


def log(checkpoint: Path, name: str, **metadata: int) -> None:
    file = checkpoint / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"v1\n{json.dumps(metadata)}")


def test_the_next_batch_begins_with_what_is_planned_or_else_with_what_the_last_one_left(tmp_path):
    assert next_watermark_ms(tmp_path, -1) == 0
    log(tmp_path, "offsets/0", batchWatermarkMs=0)
    assert next_watermark_ms(tmp_path, -1) == 0
    log(tmp_path, "commits/0", nextBatchWatermarkMs=1_000)
    assert next_watermark_ms(tmp_path, 0) == 1_000
    log(tmp_path, "offsets/1", batchWatermarkMs=1_000)
    log(tmp_path, "commits/1", nextBatchWatermarkMs=2_000)
    log(tmp_path, "offsets/2", batchWatermarkMs=2_500)
    assert next_watermark_ms(tmp_path, 1) == 2_500


def test_a_commit_that_spark_did_not_write_is_named(tmp_path):
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1")
    with pytest.raises(ConfigurationError, match="commits/0"):
        next_watermark_ms(tmp_path, 0)
