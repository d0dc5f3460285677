"""Steering a running application over its endpoint and from the command line: orders, refusals, finding it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from slackwater.cli import main
from slackwater.control.client import Client, Target, find
from slackwater.control.routes import steering
from slackwater.core.model import Stage
from slackwater.endpoint import discovery
from slackwater.endpoint.limits import Limits, Rate
from slackwater.endpoint.server import Refused
from slackwater.errors import ConfigurationError, ControlError
from slackwater.policies.registry import known_policies
from tests.unit.control_support import Steered, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slackwater.endpoint.server import Endpoint

EVIL = "evil\x1b[2J\x1b]0;owned\x07\n\u202e[red]x"


@pytest.fixture
def steered() -> Steered:
    made = Steered("klink", "a", "b", "c", EVIL, lanes=1)
    made.run(35)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def endpoint(steered: Steered, folder: Path) -> Iterator[Endpoint]:
    with served(steered, folder) as running:
        yield running


def post(endpoint: Endpoint, path: str, content: Any) -> httpx2.Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"authorization": f"Bearer {endpoint.token}"}
    return httpx2.post(endpoint.url + path, content=body, headers=headers, timeout=60)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def stage(steered: Steered, query: str) -> Stage:
    return steered.engine.find(query).stage


# ---- routes ---------------------------------------------------------------------------------------------------------


def test_a_query_is_paused_and_resumed_and_gets_turns_accordingly(endpoint, steered):
    answer = post(endpoint, "/api/pause", {"query": "b"})
    assert answer.json() == {"done": "paused", "query": "b", "name": "b"}
    steered.run(5)
    before = steered.engine.find("b").batches_seen
    steered.run(60)
    assert stage(steered, "b") is Stage.PAUSED
    assert steered.engine.find("b").batches_seen == before
    assert post(endpoint, "/api/resume", {"query": "b"}).json()["done"] == "resumed"
    steered.run(40)
    assert steered.engine.find("b").batches_seen > before


def test_a_class_and_a_policy_are_set(endpoint, steered):
    assert post(endpoint, "/api/class", {"query": "a", "class": -3}).json()["done"] == "put into class -3"
    assert steered.engine.find("a").facts.options.priority_class == -3
    assert post(endpoint, "/api/policy", {"policy": "klink", "knob": "cost", "memory_bound": 0.5}).status_code == 200
    assert steered.overview().parameters == {"knob": "cost", "memory_bound": 0.5}
    assert post(endpoint, "/api/policy", {"policy": "fcfs", "period_s": 0.5}).status_code == 200
    assert steered.engine.policy.name == "fcfs"


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/api/pause", {"query": "aa"}, 404, "Did you mean 'a'?"),
        ("/api/pause", {"quer": "a"}, 400, "quer"),
        ("/api/pause", {"query": "a", "more": 1}, 400, "more"),
        ("/api/pause", {"query": 7}, 400, "Expected `str`"),
        ("/api/pause", b"{", 400, "not understood"),
        ("/api/pause", b"", 400, "not understood"),
        ("/api/class", {"query": "a", "class": "1"}, 400, "Expected `int`"),
        ("/api/class", {"query": "a", "class": 5000}, 400, "from -1000 to 1000"),
        ("/api/policy", {"policy": "klnk"}, 400, "Did you mean 'klink'?"),
        ("/api/policy", {"policy": "klink", "knob": "fast"}, 400, "Invalid enum value 'fast'"),
        ("/api/policy", {"policy": "klink", "memory_bound": 7.0}, 400, "memory"),
        ("/api/policy", {"policy": "klink", "period_s": -1.0}, 400, "period"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_the_reason(endpoint, path, content, status, said):
    answer = post(endpoint, path, content)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_pausing_under_a_policy_that_only_watches_is_refused(endpoint, steered):
    assert post(endpoint, "/api/policy", {"policy": "observe"}).status_code == 200
    answer = post(endpoint, "/api/pause", {"query": "a"})
    assert answer.status_code == 400
    assert "only watches" in answer.json()["error"]


def test_a_scheduler_that_does_not_answer_is_told_as_such(endpoint, steered):
    steered.silent = True
    for path, content in (("/api/resume", {"query": "a"}), ("/api/policy", {"policy": "fcfs"})):
        answer = post(endpoint, path, content)
        assert answer.status_code == 503
        assert "did not answer" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"


def test_orders_are_limited_together(steered):
    routes = steering(steered, steered.engine, Rate(0.001, 2), clock=lambda: 0.0)
    routes["/api/pause"](b'{"query":"a"}')
    routes["/api/resume"](b'{"query":"a"}')
    with pytest.raises(Refused, match="too many orders") as refused:
        routes["/api/class"](b'{"query":"a","class":1}')
    assert refused.value.status == 429


def test_no_more_orders_wait_for_a_silent_scheduler_than_a_few(steered, monkeypatch):
    routes = steering(steered, steered.engine)
    refused = []

    def hang(query: str) -> None:
        """Orders from others arrive while this one waits: one inside the other, as deep as they are let in."""
        try:
            routes["/api/pause"](b'{"query":"a"}')
        except Refused as why:
            refused.append(why)

    monkeypatch.setattr(steered, "pause", hang)
    routes["/api/pause"](b'{"query":"a"}')
    assert [why.status for why in refused] == [503]
    assert "still wait" in str(refused[0])


def test_one_query_tells_its_story_by_key_id_or_name(endpoint, steered):
    answer = httpx2.get(endpoint.url + "/api/query/a", timeout=60).json()
    assert answer["query"]["name"] == "a"
    assert "The last window that left" in answer["explanation"]
    assert {"planned", "requested", "observed"} <= {line["kind"] for line in answer["story"]}
    assert {ran["stage"] for ran in answer["ran"]} == {"data batch", "sweep batch"}
    assert all(left["latency_s"] == left["left_wall_ts"] - left["window_end_ts"] for left in answer["left"])
    with Client(Target(endpoint.url, "", None)) as client:
        assert client.query(EVIL).query.name == EVIL
    missing = httpx2.get(endpoint.url + "/api/query/aa", timeout=60)
    assert missing.status_code == 404
    assert "Did you mean 'a'?" in missing.json()["error"]


def test_the_policies_are_told(endpoint):
    told = httpx2.get(endpoint.url + "/api/policies", timeout=60).json()
    assert [policy["name"] for policy in told] == known_policies()
    assert all(policy["about"] for policy in told)


# ---- finding an application -----------------------------------------------------------------------------------------


def test_the_only_application_is_found_and_one_of_several_by_name_or_id(endpoint, steered, folder):
    assert find().url == endpoint.url
    with served(steered, folder, name="reports", application_id="app-2") as other:
        with pytest.raises(ConfigurationError, match=r"2 applications run here.*--app app-1 \(alerts\); --app app-2"):
            find()
        assert find(app="reports").url == find(app="app-2").url == other.url
        assert find(url=other.url).token_file == other.token_file
        with pytest.raises(ConfigurationError, match="Did you mean 'reports'"):
            find(app="report")
        with pytest.raises(ConfigurationError, match="give one of them"):
            find(url=other.url, app="reports")


def test_no_application_is_told_with_what_to_do(folder):
    with pytest.raises(ControlError, match="serve=True"):
        find()
    assert not folder.exists(), "looking makes nothing"


def test_a_folder_that_somebody_else_could_have_filled_is_not_believed(endpoint, folder):
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="no folder of yours alone"):
        find()


def test_one_that_does_not_answer_is_told_with_what_to_do(folder):
    discovery.announce(
        folder,
        discovery.Announcement(
            application_id="app-9",
            name="gone",
            url="http://127.0.0.1:9",
            token_file=str(folder / "t.token"),
            pid=os.getpid(),
            started_ticks=discovery.started_ticks(os.getpid()),
        ),
    )
    with Client(find()) as client, pytest.raises(ControlError, match=r"does not answer.*may have ended"):
        client.status()


def test_a_client_comes_again_when_it_was_only_too_soon_and_gives_up_in_the_end(steered, folder):
    pauses: list[float] = []
    with (
        served(steered, folder, limits=Limits(reads=Rate(0.01, 1))) as endpoint,
        Client(Target(endpoint.url, "", endpoint.token_file), pause=pauses.append) as client,
    ):
        assert client.status().name == "alerts"
        assert pauses == []
        with pytest.raises(ControlError, match="too many requests"):
            client.status()
    assert pauses == [5.0, 5.0, 5.0]


# ---- the command line -----------------------------------------------------------------------------------------------


def test_status_prints_a_table_in_which_no_name_moves_the_cursor(endpoint, capsys):
    assert exit_code("status") == 0
    out = capsys.readouterr().out
    assert "alerts (app-1): policy klink" in out
    assert "evil\\x1b[2J\\x1b]0;owned\\x07\\x0a" in out
    assert not set(out) & set("\x1b\x07\u202e")
    assert f"Page: {endpoint.url}/; its token is in {endpoint.token_file}" in out
    assert exit_code("status", "--json") == 0
    out += (as_json := capsys.readouterr().out)
    told = json.loads(as_json)
    assert endpoint.token not in out
    assert [query["name"] for query in told["queries"]] == ["a", "b", "c", EVIL]


def test_orders_from_the_command_line(endpoint, steered, capsys):
    assert exit_code("pause", "a") == 0
    assert "a: paused" in capsys.readouterr().out
    assert exit_code("resume", "a", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"done": "resumed", "query": "a", "name": "a"}
    assert exit_code("class", "set", "a", "-2", "--app", "alerts") == 0
    assert steered.engine.find("a").facts.options.priority_class == -2
    assert exit_code("policy", "set", "klink", "--knob", "latency", "--url", endpoint.url) == 0
    assert steered.overview().parameters["knob"] == "latency"


def test_explain_answers_in_words(endpoint, capsys):
    assert exit_code("explain", "a") == 0
    said = capsys.readouterr().out
    assert "waits at its gate since" in said or "is running" in said
    assert "with 95 % confidence between" in " ".join(said.split())
    assert exit_code("explain", EVIL) == 0
    assert not set(capsys.readouterr().out) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pause", "aa"), 2, "Did you mean 'a'?"),
        (("explain", "aa"), 2, "Did you mean 'a'?"),
        (("policy", "set", "klnk"), 2, "Did you mean 'klink'?"),
        (("policy", "set", "klink", "--knob", "fast"), 2, "fast"),
        (("class", "set", "a", "5000"), 2, "from -1000 to 1000"),
        (("class", "set", "a", "x"), 2, "x"),
        (("status", "--url", "127.0.0.1:9"), 2, "http://HOST:PORT"),
        (("status", "--url", "http://127.0.0.1:9"), 1, "does not answer"),
        (("pause", "a", "--token-file", "/nowhere"), 2, "no token can be read"),
        (("top", "--every", "0"), 2, "--every 0"),
    ],
)
def test_wrong_usage_ends_with_two_and_failure_with_one(endpoint, capsys, arguments, code, said):
    assert exit_code(*arguments) == code
    printed = capsys.readouterr()
    assert said in printed.err + printed.out


def test_a_wrong_token_is_told_and_changes_nothing(endpoint, steered, tmp_path, capsys):
    other = tmp_path / "other.token"
    other.touch(0o600)
    other.write_text("not-the-token")
    assert exit_code("pause", "a", "--token-file", str(other)) == 1
    assert "does not accept the token" in capsys.readouterr().err
    assert stage(steered, "a") is not Stage.PAUSED


def test_top_prints_once_where_there_is_no_terminal(endpoint, capsys):
    assert exit_code("top") == 0
    assert exit_code("top", "--once", "--json") == 0
    first, _, rest = capsys.readouterr().out.partition("{")
    assert "alerts (app-1)" in first
    assert json.loads("{" + rest)["application_id"] == "app-1"


def test_top_shows_a_table_in_a_terminal_until_q_is_pressed(endpoint, folder):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
    running = subprocess.Popen(
        [sys.executable, "-m", "slackwater", "top", "--every", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        close_fds=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while b"q leaves" not in seen:
            ready, _, _ = select.select([ours], [], [], 120)
            assert ready, seen
            seen += os.read(ours, 65536)
        os.write(ours, b"q")
        while True:  # what it still writes must be taken, or it would wait for that
            try:
                if not os.read(ours, 65536):
                    break
            except OSError:
                break
        assert running.wait(120) == 0
    finally:
        running.kill()
        running.wait()
        os.close(ours)
    assert b"alerts (app-1)" in seen
    assert b"evil\\x1b[2J" in seen
    assert b"\x1b]0;owned" not in seen
