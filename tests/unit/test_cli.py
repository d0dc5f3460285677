"""The command line: what it prints, and exit codes 2 for wrong usage and 1 for failure."""

from __future__ import annotations

import json

import pytest

from slackwater import __version__
from slackwater.cli import main
from slackwater.policies.registry import known_policies


def _exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_policies_are_listed_with_a_line_each(capsys):
    assert _exit_code("policies") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == known_policies()
    assert all(len(line.split()) > 3 for line in lines)


def test_policies_are_listed_as_json(capsys):
    assert _exit_code("policies", "--json") == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == known_policies()


def test_the_version_is_printed(capsys):
    assert _exit_code("--version") == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "nonsense"),
        (("bench", "ysb", "--policies", "klnk"), "klink"),
        (("bench", "ysb", "--policies", "klink:fast"), "balanced"),
        (("bench", "ysb", "--queries", "0"), "queries"),
        (("bench", "ysb", "--sweep", "a,b", "--policies", "spark-tuned"), "sweep"),
        (("bench", "report"), "FILE"),
        (("bench", "report", "missing.json"), "missing.json"),
        (("verify", "nextmark"), "nexmark"),
        (("verify", "ysb", "--policies", "klnk"), "klink"),
        (("verify", "ysb", "--files", "1"), "2 or more"),
        (("verify", "ysb", "--size", "0"), "--size 0"),
        (("verify", "ysb", "--timeout", "0"), "timeout"),
        (("demo", "--queries", "1000"), "--queries 1000"),
        (("doctor", "--conf", "no-equals-sign"), "key=value"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_what_to_do(capsys, arguments, said):
    assert _exit_code(*arguments) == 2
    out = capsys.readouterr()
    assert said in out.err + out.out
