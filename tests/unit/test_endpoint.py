"""The endpoint of an attached application: who may read, who may change, how it is found."""

from __future__ import annotations

import logging
import os
import stat
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.endpoint import access, discovery
from slackwater.endpoint.server import LARGEST_BODY_BYTES, Endpoint, Refused
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def broken(_: Any) -> Any:
    raise RuntimeError("a secret of the application's")


def echo(body: bytes) -> Any:
    try:
        return {"got": msgspec.json.decode(body, type=dict[str, int])}
    except msgspec.DecodeError as error:
        raise Refused(f"not understood: {error}") from error


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    served = Endpoint(
        application_id="app-../1",
        name="alerts",
        reads={"/api/status": lambda _: {"queries": 2}, "/api/broken": broken},
        changes={"/api/echo": echo},
        folder=tmp_path / "run",
    )
    yield served
    served.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_anyone_on_the_host_may_read(endpoint: Endpoint) -> None:
    answer = httpx2.get(endpoint.url + "/api/status")
    assert answer.status_code == 200
    assert answer.json() == {"queries": 2}
    assert answer.headers["cache-control"] == "no-store"


def test_a_change_needs_the_token(endpoint: Endpoint) -> None:
    content = b'{"a": 1}'
    url = endpoint.url + "/api/echo"
    assert httpx2.post(url, content=content).status_code == 401
    assert httpx2.post(url, content=content, headers=bearer(endpoint.token[:-1])).status_code == 401
    assert httpx2.post(url, content=content, headers={"authorization": endpoint.token}).status_code == 401
    answer = httpx2.post(url, content=content, headers=bearer(access.read_token(endpoint.token_file)))
    assert answer.json() == {"got": {"a": 1}}


def test_a_change_is_not_made_by_get(endpoint: Endpoint) -> None:
    assert httpx2.get(endpoint.url + "/api/echo", headers=bearer(endpoint.token)).status_code == 405


def test_pages_of_other_sites_and_forged_names_are_refused(endpoint: Endpoint) -> None:
    url = endpoint.url + "/api/status"
    assert httpx2.get(url, headers={"origin": "https://example.org"}).status_code == 403
    assert httpx2.get(url, headers={"host": "evil.example:80"}).status_code == 403
    own = f"localhost:{endpoint.port}"
    assert httpx2.get(url, headers={"host": own, "origin": f"http://{own}"}).status_code == 200
    assert httpx2.get(url, headers={"origin": endpoint.url}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "["},
        {"host": "[::1"},
        {"host": "localhost:99999999"},
        {"host": "evil@127.0.0.1"},
        {"host": "127.0.0.1/x"},
        {"host": ""},
        {"origin": "http://["},
        {"origin": "null"},
        {"origin": "http://localhost"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "ftp://127.0.0.1"},
    ],
    ids=str,
)
def test_a_host_or_an_origin_that_is_odd_is_refused_and_not_logged(
    endpoint: Endpoint, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert httpx2.get(endpoint.url + "/api/status", headers=headers).status_code == 403
    assert [record for record in caplog.records if not record.name.startswith("httpx")] == []


def test_a_page_elsewhere_can_link_here_but_not_take_up_a_place(endpoint: Endpoint) -> None:
    def asked(site: str, mode: str, dest: str) -> int:
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        return httpx2.get(endpoint.url + "/api/status", headers=headers).status_code

    assert [asked(site, "no-cors", "image") for site in ("cross-site", "same-site")] == [403, 403]
    assert asked("cross-site", "navigate", "iframe") == 403
    assert asked("cross-site", "navigate", "document") == 200
    assert [asked(site, "cors", "empty") for site in ("same-origin", "none")] == [200, 200]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["localhost", "127.0.0.1", "::1", "evil", "[", "]", ":", "@", "/", ".", "4050"])))
def test_whatever_host_is_let_in_is_this_one(pieces: list[str]) -> None:
    host = "".join(pieces)
    if access.refusal({"host": host}, "127.0.0.1") is None:
        named = urlsplit(f"//{host}").hostname or ""
        assert named == "localhost" or ip_address(named).is_loopback


def test_nonsense_and_too_much_are_refused_with_the_reason(endpoint: Endpoint) -> None:
    url, headers = endpoint.url + "/api/echo", bearer(endpoint.token)
    assert "not understood" in httpx2.post(url, content=b"{", headers=headers).json()["error"]
    assert httpx2.post(url, content=b" " * (LARGEST_BODY_BYTES + 1), headers=headers).status_code == 413


def test_trouble_inside_is_not_told_outside(endpoint: Endpoint) -> None:
    answer = httpx2.get(endpoint.url + "/api/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_an_endpoint_is_announced_for_its_user_alone_and_goes_with_it(endpoint: Endpoint, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (found,) = discovery.announced(folder)
    assert (found.application_id, found.name, found.url) == ("app-../1", "alerts", endpoint.url)
    assert found.pid == os.getpid()
    assert stat.S_IMODE(endpoint.token_file.stat().st_mode) == 0o600
    assert endpoint.token_file.parent == folder
    endpoint.close()
    assert discovery.announced(folder) == []
    assert list(folder.iterdir()) == []


def test_what_a_dead_application_announced_is_swept_away(tmp_path: Path) -> None:
    token, elsewhere = tmp_path / "dead.token", tmp_path / "elsewhere"
    for path in (token, elsewhere):
        path.write_text("x")
    for name, token_file in (("dead", token), ("odd", elsewhere)):
        said = discovery.Announcement(
            application_id=name,
            name=name,
            url="http://127.0.0.1:1",
            token_file=str(token_file),
            pid=os.getpid(),
            started_ticks=1,
        )
        discovery.announce(tmp_path, said)
    (tmp_path / "torn.json").write_text("{")
    assert discovery.announced(tmp_path) == []
    assert not token.exists()
    assert elsewhere.exists(), "what a file names is not removed unless it is ours"
    assert (tmp_path / "torn.json").exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="no folder of yours alone"):
        discovery.ready(tmp_path)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    open_ = tmp_path / "open.token"
    open_.write_text("abc")
    open_.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        access.read_token(open_)
    with pytest.raises(ConfigurationError, match="no token can be read"):
        access.read_token(tmp_path / "none.token")


def test_what_is_no_token_file_is_refused_and_holds_nobody(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.token", tmp_path / "large.token"
    os.mkfifo(pipe, 0o600)
    large.write_text("x" * 5000)
    large.chmod(0o600)
    for path in (pipe, large):
        with pytest.raises(ConfigurationError, match="is no token file"):
            access.read_token(path)


def test_a_token_is_its_owners_alone_whatever_lay_there_before(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "app.token", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    path.write_text("old")
    path.chmod(0o666)
    kept_open = path.open()
    access.write_token(path, "first")
    assert kept_open.read() == "old", "whoever had the old file open learns nothing"
    kept_open.close()
    assert (access.read_token(path), stat.S_IMODE(path.stat().st_mode)) == ("first", 0o600)
    path.unlink()
    path.symlink_to(elsewhere)
    access.write_token(path, "second")
    assert (access.read_token(path), path.is_symlink(), elsewhere.read_text()) == ("second", False, "mine")


def test_a_taken_port_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Give another port"):
        Endpoint(application_id="b", name="b", reads={}, port=endpoint.port, folder=tmp_path / "run")
