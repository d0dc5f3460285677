"""Settings from file, environment, conf and arguments: which counts, what is wrong, what changes while running."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slackwater
from slackwater.cli import main
from slackwater.config.resolve import resolve
from slackwater.config.watch import Change, FileWatch
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater.config.resolve import Resolved


def written(folder: Path, text: str) -> Path:
    file = folder / "slackwater.toml"
    file.write_text(text)
    return file


def of(folder: Path, text: str = "", **more: Any) -> Resolved:
    return resolve(more.pop("arguments", {}), config=written(folder, text), **{"environment": {}, **more})


# ---- precedence ------------------------------------------------------------------------------------------------------

SOURCES = ("argument", "environment", "Spark conf", "slackwater.toml", "default")


@settings(deadline=None)
@given(present=st.sets(st.sampled_from(SOURCES[:-1])))
@pytest.mark.parametrize(("key", "default"), [("max_wait_s", 30.0), ("target_latency_s", 2.0)])
def test_the_first_source_that_says_something_counts(
    tmp_path_factory: pytest.TempPathFactory, present: set[str], key: str, default: float
) -> None:
    values = {source: float(number) for number, source in enumerate(SOURCES, 1)}
    folder = tmp_path_factory.mktemp("precedence", numbered=True)
    found = resolve(
        {key: values["argument"] if "argument" in present else None},
        config=written(folder, f"{key} = {values['slackwater.toml']}" if "slackwater.toml" in present else ""),
        environment={f"SLACKWATER_{key.upper()}": str(values["environment"])} if "environment" in present else {},
        conf={f"spark.slackwater.{key}": str(values["Spark conf"])} if "Spark conf" in present else {},
    )
    first = next(source for source in SOURCES if source in {*present, "default"})
    assert getattr(found.settings(), key) == (values[first] if first != "default" else default)
    assert first in found.values[(key,)].where


def test_sources_are_merged_setting_by_setting_also_within_a_section(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "[supervise]\nbase_s = 2.0\ncap_s = 9.0\n[queries.clicks]\npriority_class = 3\ndeadline = 4.0",
        environment={"SLACKWATER_SUPERVISE__CAP_S": "7", "SLACKWATER_QUERIES__clicks__PRIORITY_CLASS": "-1"},
        conf={"spark.slackwater.supervise.limit": "2"},
    ).settings()
    assert found.supervise == slackwater.Supervision(base_s=2.0, cap_s=7, limit=2)
    assert found.queries == {"clicks": slackwater.QueryOptions(priority_class=-1, deadline=4.0)}


def test_what_an_object_says_counts_whole(tmp_path: Path) -> None:
    text = "[supervise]\nbase_s = 2.0\n[queries.clicks]\ndeadline = 4.0"
    arguments = {
        "supervise": slackwater.Supervision(limit=3),
        "queries": {"clicks": slackwater.QueryOptions(priority_class=1)},
    }
    found = of(tmp_path, text, arguments=arguments).settings()
    assert found.supervise == slackwater.Supervision(limit=3)
    assert found.queries == {"clicks": slackwater.QueryOptions(priority_class=1)}


@pytest.mark.parametrize(
    ("text", "environment", "on"),
    [
        ("", {}, False),
        ("supervise = true", {}, True),
        ("[supervise]", {}, True),
        ("[supervise]\nlimit = 3", {}, True),
        ("[supervise]\nlimit = 3\nenabled = false", {}, False),
        ("[supervise]\nlimit = 3", {"SLACKWATER_SUPERVISE": "false"}, False),
    ],
)
def test_a_section_of_which_something_is_said_is_on(
    tmp_path: Path, text: str, environment: dict[str, str], on: bool
) -> None:
    assert (of(tmp_path, text, environment=environment).settings().supervise is not None) == on


@pytest.mark.parametrize(
    ("text", "watched"),
    [
        ("", False),
        ("serve = true", True),
        ("supervise = true", True),
        ("alarms = true", True),
        ("serve = true\nalarms = false", False),
    ],
)
def test_alarms_are_looked_after_where_the_application_serves_or_is_supervised(
    tmp_path: Path, text: str, watched: bool
) -> None:
    assert (of(tmp_path, text).settings().alarms is not None) == watched


def test_the_file_is_the_one_given_else_that_of_the_environment_else_that_of_the_folder(tmp_path: Path) -> None:
    here, named, given_file = tmp_path / "here", tmp_path / "named.toml", tmp_path / "given.toml"
    here.mkdir()
    assert resolve(environment={}, folder=here).file is None
    written(here, "lanes = 1")
    named.write_text("lanes = 2")
    given_file.write_text("lanes = 3")
    environment = {"SLACKWATER_CONFIG": str(named)}
    assert resolve(environment={}, folder=here).settings().lanes == 1
    assert resolve(environment=environment, folder=here).settings().lanes == 2
    assert resolve(environment=environment, folder=here, config=given_file).settings().lanes == 3


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("LANES", "auto", "lanes", "auto"),
        ("LANES", "4", "lanes", 4),
        ("TUNE", "True", "tune", True),
        ("SERVE", "127.0.0.1:4050", "serve", "127.0.0.1:4050"),
        ("SERVE", "4050", "serve", 4050),
        ("SERVE", "false", "serve", False),
        ("PERIOD_S", "none", "period_s", None),
        ("POLICY", '"edf"', "policy", "edf"),
    ],
)
def test_text_is_read_as_toml_and_quotes_may_be_left_out(
    tmp_path: Path, variable: str, text: str, key: str, value: object
) -> None:
    found = getattr(of(tmp_path, environment={f"SLACKWATER_{variable}": text}).settings(), key)
    assert (found, type(found)) == (value, type(value))


def test_lists_and_names_with_dots_and_underscores_are_possible_everywhere(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        environment={"SLACKWATER_QUERIES__my__query__READS": "topic:a@b, /data/x"},
        conf={"spark.slackwater.queries.shop.clicks.deadline": "3"},
    ).settings()
    assert found.queries["my__query"].reads == ("topic:a@b", "file:/data/x")
    assert found.queries["shop.clicks"].deadline == 3


def test_variables_of_other_parts_are_left_alone(tmp_path: Path) -> None:
    of(tmp_path, environment={"SLACKWATER_RUNTIME_DIR": "/x", "SLACKWATER_JAVA_DIRS": "/y"})


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("polcy = 'edf'", ["slackwater.toml", "'polcy'", "'policy'"]),
        ("[alarm]\nlog = true", ["'alarm.log'", "'alarms'"]),
        ("[alarms]\nstoped_s = 3", ["'alarms.stoped_s'", "'alarms.stopped_s'"]),
        ("[queries.clicks]\npriority = 3", ["'queries.clicks.priority'", "'queries.clicks.priority_class'"]),
        ("[queries]\nclicks = 3", ["'queries.clicks'", "queries.NAME.KEY"]),
        ("[policy]\nname = 'edf'", ["'policy.name'", "'policy'"]),
        ("colour = 'blue'", ["'colour'", "known are: policy"]),
        ("max_wait_s = '3'", ["slackwater.toml: max_wait_s", '"3"', "a positive number of seconds"]),
        ("max_wait_s = true", ["max_wait_s is true", "a positive number"]),
        ("lanes = 0", ["lanes is 0", "from 1 up"]),
        ("knob = 'fast'", ["knob", '"fast"', '"cost", "balanced", "latency"']),
        ("policy = 'klnk'", ["slackwater.toml: policy", "'klnk'", "'klink'"]),
        ("[alarms]\nwebhook = 'ftp://u:secret@h/x'", ["alarms.webhook is ftp://h/…", "http or https"]),
        ("[alarms]\ntell = 'f'", ["alarms.tell", "only attach(alarms=…)"]),
        ("[supervise]\nbase_s = 9.0\ncap_s = 1.0", ["base_s=9.0", "slackwater.toml: supervise.base_s"]),
        ("[queries.a]\nreads = 'x'", ["queries.a.reads", "a list of places"]),
        ("policy = ", ["is not TOML"]),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        of(tmp_path, text)
    assert [word for word in words if word not in str(refused.value)] == []
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "conf", "words"),
    [
        ({"SLACKWATER_MAX_WAIT": "3"}, {}, ["SLACKWATER_MAX_WAIT:", "'SLACKWATER_MAX_WAIT_S'"]),
        ({"SLACKWATER_ALARMS__WEBHOK": "x"}, {}, ["SLACKWATER_ALARMS__WEBHOK", "'SLACKWATER_ALARMS__WEBHOOK'"]),
        ({"SLACKWATER_LANES": "many"}, {}, ["environment SLACKWATER_LANES", '"many"', "from 1 up"]),
        ({"SLACKWATER_TUNE": "true\nx = 1"}, {}, ["SLACKWATER_TUNE", "true or false"]),
        ({}, {"spark.slackwater.polcy": "x"}, ["spark.slackwater.polcy", "'spark.slackwater.policy'"]),
        ({}, {"spark.slackwater.supervise.limit": "0"}, ["spark.slackwater.supervise.limit", "from 1 up"]),
    ],
)
def test_what_is_wrong_in_environment_and_conf_is_named_as_it_is_spelt_there(
    tmp_path: Path, environment: dict[str, str], conf: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        of(tmp_path, environment=environment, conf=conf)
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_file_that_was_named_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        resolve(config=tmp_path / "none.toml", environment={})


# ---- while running ---------------------------------------------------------------------------------------------------


class Applied:
    def __init__(self, folder: Path, text: str) -> None:
        self.file = written(folder, text)
        self.changes: list[Change] = []
        self.fails = False
        read: Callable[[], Resolved] = lambda: resolve({}, config=self.file, environment={})  # noqa: E731
        self.watch = FileWatch(read(), read, self._apply)

    def _apply(self, change: Change) -> None:
        if self.fails:
            raise RuntimeError("the scheduler is silent")
        self.changes.append(change)

    def write(self, text: str) -> None:
        before = self.file.stat().st_mtime_ns if self.file.exists() else 0
        self.file.write_text(text)
        os.utime(self.file, ns=(before + 10**9, before + 10**9))
        self.watch.look()


def test_what_can_change_is_applied_and_what_cannot_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="slackwater")
    applied = Applied(tmp_path, "policy = 'klink'\nlanes = 1\n[queries.a]\npriority_class = 1")
    applied.watch.look()
    assert applied.changes == []
    applied.write("policy = 'edf'\nlanes = 2\n")
    (change,) = applied.changes
    assert change.live == (("policy",), ("queries", "a", "priority_class"))
    assert change.later == (("lanes",),)
    assert 'policy is "edf" instead of "klink"' in caplog.text
    assert "lanes is 2 instead of 1" in caplog.text
    applied.write("policy = 'edf'\nlanes = 2\n# a remark")
    assert len(applied.changes) == 1


def test_a_broken_file_is_told_once_and_changes_nothing_and_a_mended_one_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    applied = Applied(tmp_path, "policy = 'klink'")
    applied.write("polcy = 'edf'")
    for _ in range(5):
        applied.watch.look()
    assert caplog.text.count("cannot be used") == 1
    assert "Did you mean 'policy'?" in caplog.text
    assert applied.watch.resolved.settings().policy == "klink"
    applied.file.unlink()
    applied.watch.look()
    assert applied.changes == []
    applied.write("policy = 'fcfs'")
    assert [change.after.settings().policy for change in applied.changes] == ["fcfs"]


def test_a_change_that_cannot_be_put_into_effect_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    applied = Applied(tmp_path, "policy = 'klink'")
    applied.fails = True
    applied.write("policy = 'edf'")
    assert "could not take effect: RuntimeError: the scheduler is silent" in caplog.text


# ---- commands --------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_config_show_tells_every_setting_and_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLACKWATER_KNOB", "cost")
    written(tmp_path, "policy = 'edf'\n[alarms]\nwebhook = 'https://u:secret@hooks.example.com/secret?x=secret'")
    assert run("config", "show", "--conf", "spark.slackwater.lanes=2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    rows = {row["setting"]: row for row in told["settings"]}
    assert told["file"] == str(tmp_path / "slackwater.toml")
    assert (rows["policy"]["value"], rows["policy"]["where"]) == ("edf", f"{tmp_path / 'slackwater.toml'}: policy")
    assert (rows["knob"]["value"], rows["knob"]["where"]) == ("cost", "environment SLACKWATER_KNOB")
    assert (rows["lanes"]["value"], rows["lanes"]["where"]) == (2, "Spark conf spark.slackwater.lanes")
    assert rows["max_wait_s"]["is_default"]
    assert rows["alarms.webhook"]["value"] == "https://hooks.example.com/…"
    assert run("config", "show") == 0
    shown = capsys.readouterr().out
    assert "secret" not in shown
    assert len(shown.splitlines()) == 1 + len(rows)


def test_config_check_says_what_is_wrong_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "check", str(written(tmp_path, "policy = 'edf'"))) == 0
    assert run("config", "check", str(written(tmp_path, "polcy = 'edf'"))) == 2
    assert "Did you mean 'policy'?" in capsys.readouterr().err


def test_every_setting_is_in_the_documentation() -> None:
    from pathlib import Path as _Path  # noqa: PLC0415

    from slackwater.config.schema import QUERY, all_paths  # noqa: PLC0415

    page = (_Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    names = [".".join(path) for path in all_paths()] + list(QUERY)
    assert [name for name in names if f"`{name}`" not in page] == []
