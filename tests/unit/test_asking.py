"""Asking engines: what they answer, and everything else that may come instead."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from slackwater.endpoint import asking
from slackwater.endpoint.asking import Asker, RefusedError
from slackwater.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator


TOKEN = "t"  # noqa: S105 - of a server in this file


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, headers, body = 200, {}, b'{"a": 1}'
        if self.path == "/asked?get=x%2Cy&n=1":
            body = b'{"a": 2}'
        elif self.path == "/moved":
            status, headers = 302, {"Location": "/there"}
        elif self.path == "/away":
            status, headers = 302, {"Location": "http://127.0.0.2:1/there"}
        elif self.path == "/round":
            status, headers = 302, {"Location": "/round"}
        elif self.path == "/none":
            status = 404
        elif self.path == "/words":
            body = b"<html>"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        # It goes away after every answer without saying so, as an engine that was restarted between two periods.
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/there"

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status, headers = (429, {"Retry-After": "7"}) if self.path == "/often" else (200, {})
        said = {"error": "too often"} if status == 429 else {"sent": sent, "token": self.headers["Authorization"]}
        body = msgspec.json.encode(said)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def asker() -> Iterator[Asker]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with Asker(f"http://127.0.0.1:{server.server_port}/") as found:
        yield found
    server.shutdown()
    server.server_close()


def test_answers_are_decoded_and_parameters_sent(asker):
    assert asker.get("/x", dict[str, int]) == {"a": 1}
    assert asker.get("/asked", dict[str, int], get="x,y", n=1) == {"a": 2}


def test_a_connection_that_has_gone_since_is_made_anew(asker):
    for _ in range(3):
        assert asker.get("/there", dict[str, int]) == {"a": 1}


def test_a_way_on_the_same_host_is_followed_and_no_other(asker):
    assert asker.get("/moved", dict[str, int]) == {"a": 1}
    with pytest.raises(RefusedError, match=r"points to http://127\.0\.0\.2:1"):
        asker.get("/away", dict[str, int])
    with pytest.raises(RefusedError, match="302"):
        asker.get("/round", dict[str, int])
    assert asker.get("/x", dict[str, int]) == {"a": 1}


def test_what_is_not_there_is_told_from_an_engine_that_is_not(asker):
    with pytest.raises(RefusedError, match="404"):
        asker.get("/none", dict[str, int])
    with Asker("http://127.0.0.1:9") as nobody, pytest.raises(UnreachableError, match="does not answer") as raised:
        nobody.get("/x", dict[str, int])
    assert not isinstance(raised.value, RefusedError)
    with Asker("ftp://127.0.0.1") as nobody, pytest.raises(UnreachableError, match="http://HOST:PORT"):
        nobody.get("/x", dict[str, int])


def test_answers_of_another_kind_and_size_are_refused(asker, monkeypatch):
    with pytest.raises(UnreachableError, match="something else than expected"):
        asker.get("/words", dict[str, int])
    with pytest.raises(UnreachableError, match="something else than expected"):
        asker.get("/x", list[int])
    monkeypatch.setattr(asking, "LARGEST_ANSWER_BYTES", 4)
    with pytest.raises(UnreachableError, match="more than 4 bytes"):
        asker.get("/x", dict[str, int])


def test_a_change_is_sent_with_its_token_and_a_refusal_tells_why_and_when_to_come_again(asker):
    sent = asker.post("/x", {"query": "a"}, dict[str, str], token=TOKEN)
    assert sent == {"sent": '{"query":"a"}', "token": f"Bearer {TOKEN}"}
    with pytest.raises(RefusedError, match="429") as refused:
        asker.post("/often", {}, dict[str, str], token=TOKEN)
    assert (refused.value.status, refused.value.said, refused.value.retry_after_s) == (429, "too often", 7.0)
