"""Why a query failed, in a line."""

from __future__ import annotations

import pytest

from slackwater.drivers.spark.failures import in_a_line

PREAMBLE = (
    "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with "
    "exception: "
)


FROM_PYTHON = """[FOREACH_BATCH_USER_FUNCTION_ERROR] Return Message: Traceback (most recent call last):
  File "x.py", line 1, in f
    raise ValueError("no")
ValueError: no

\tat java.base/java.lang.Thread.run(Thread.java:1)
"""
CHAINED = """Traceback (most recent call last):
  File "a.py"
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py"
OSError: 2
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PREAMBLE + FROM_PYTHON, "ValueError: no"),
        (CHAINED, "OSError: 2"),
        (PREAMBLE + "Job aborted.\n=== Streaming Query ===\nIdentifier: x", "Job aborted."),
        ("boom", "boom"),
        ("x Traceback (most recent call last):\n  cut off", "x Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_the_line_is_the_one_that_tells(error: str, told: str) -> None:
    assert in_a_line(error) == told
