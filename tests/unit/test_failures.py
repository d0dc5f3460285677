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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "cannot reach jdbc:postgresql://etl:hunter2@db:5432/shop",
            "cannot reach jdbc:postgresql://etl:…@db:5432/shop",
        ),
        (
            "SQLException: jdbc:x://db/shop?user=etl&password=hunter2&ssl=true",
            "jdbc:x://db/shop?user=etl&password=…&ssl=",
        ),
        ('sasl.jaas.config: username="etl" password="hunter2 and more";', 'username="etl" password=…;'),
        ("{'fs.s3a.secret.key': 'hunter2', 'region': 'x'}", "{'fs.s3a.secret.key': …, 'region': 'x'}"),
        ("GET https://x.blob/y?sv=1&sig=hunter2&se=2: 403", "?sv=1&sig=…&se=2: 403"),
        ("hooks: https://example.com/?token=hunter2", "?token=…"),
    ],
)
def test_the_line_has_no_secrets(error: str, told: str) -> None:
    for whole in (error, PREAMBLE + error, f"Traceback (most recent call last):\n  f()\n{error}"):
        assert told in in_a_line(whole)
        assert "hunter2" not in in_a_line(whole)


@pytest.mark.parametrize(
    "error",
    [
        'FATAL: password authentication failed for user "etl"',
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'slect': unexpected token: slect",
        "Path does not exist: abfss://data@account.dfs.core.windows.net/in",
        "no broker at kafka://a:9092,b:9092",
        "AnalysisException: column `secret` cannot be resolved",
    ],
)
def test_a_line_without_secrets_stays_as_it_is(error: str) -> None:
    assert in_a_line(error) == error
