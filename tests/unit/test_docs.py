"""The worked examples of docs/policies.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"


def test_the_worked_policies_run_on_the_scripted_driver_as_printed(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)  # noqa: S102 - our own page
    first, *_, last = capsys.readouterr().out.splitlines()
    assert int(first.split()[0]) > 20
    assert int(last.split()[0]) > 20


def test_every_policy_is_in_the_table():
    from slackwater.policies.registry import known_policies  # noqa: PLC0415

    table = PAGE.read_text("utf-8")
    assert [name for name in known_policies() if f"| `{name}` |" not in table] == []
