"""Why a query failed, in a line."""

from __future__ import annotations

import pytest

from slackwater.drivers.spark.failures import in_a_line

PREAMBLE = (
    "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with "
    "exception: "
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            PREAMBLE + "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: Return Message: Traceback (most "
            'recent call last):\n  File "x.py", line 1, in f\n    raise ValueError("no")\nValueError: no\n\n\tat java.Foo\n',
            "ValueError: no",
        ),
        (
            "x Traceback (most recent call last):\n  File a\nKeyError: 1\n\nDuring handling of the above exception, "
            "another exception occurred:\n\nTraceback (most recent call last):\n  File b\nOSError: 2\n",
            "OSError: 2",
        ),
        (PREAMBLE + "Job aborted.\n=== Streaming Query ===\nIdentifier: x", "Job aborted."),
        ("boom", "boom"),
        ("x Traceback (most recent call last):\n  cut off", "x Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_the_line_is_the_one_that_tells(error: str, told: str) -> None:
    assert in_a_line(error) == told
