"""Schedulers that forward over a network that fails: decisions keep coming, and what was lost comes back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from uuid import uuid4

import httpx2
import pytest

from slackwater.core.model import Window
from slackwater.core.words import Demand, Words
from slackwater.endpoint.server import Endpoint
from slackwater.errors import ConfigurationError
from slackwater.forwarding.courier import PATH
from slackwater.forwarding.forwarder import Forwarder
from slackwater.forwarding.letters import LARGEST_LETTER_BYTES, Letter, UnusableLetterError, encode
from slackwater.forwarding.post import Post
from slackwater.forwarding.settings import Forwarding, Peer
from slackwater.testing import FakeClock
from tests.unit.forwarding_support import COUNT, ENRICH, Application, Proxy, eventually, quick, token_file

DEMAND = Demand("file:/lake", (Window(10.0, 10.0),), 1.0, 1_000_000.0, 0.5, ("reader",))
ENOUGH = 5


def letter(sender: str = "b", sent: float = 1_200_000.0, **words) -> Letter:
    return Letter(application_id=sender, sent_wall_ts=sent, words=Words(**words))


@pytest.fixture
def post() -> Post:
    return Post("a", 3.0, FakeClock().now)


# ---- letters -------------------------------------------------------------------------------------------------------


def test_a_stranger_is_told_the_places_and_a_neighbour_what_it_needs(post):
    post.publish(Words(reads=frozenset({"in"}), writes=frozenset({"out"}), demands=(replace(DEMAND, place="in"),)))
    stranger = post.receive(encode(letter("stranger", writes=frozenset({"elsewhere"}))))
    assert stranger.words.reads == {"in"}
    assert stranger.words.demands == ()
    neighbour = post.receive(encode(letter("neighbour", writes=frozenset({"in"}))))
    assert neighbour.words.demands == (replace(DEMAND, place="in"),)


def test_words_count_from_when_they_were_sent(post):
    post.take(encode(letter(sent=1_199_998.0, demands=(DEMAND,))))
    (heard,) = post.heard()
    assert heard.until_wall_ts == 1_200_001.0
    assert heard.words.demands == (DEMAND,)


def test_a_letter_that_was_overtaken_changes_nothing(post):
    post.take(encode(letter(sent=1_200_000.0, demands=(DEMAND,))))
    post.take(encode(letter(sent=1_199_999.0)))
    assert post.heard()[0].words.demands == (DEMAND,)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b'{"format": 1, "application_id": "b", "sent_wall_ts": "now", "words": {}}',
        b'{"format": 1, "application_id": "b", "sent_wall_ts": NaN, "words": {}}',
        b"\xff\xfe",
        b" " * (LARGEST_LETTER_BYTES + 1),
        encode(letter(sent=1_200_010.0)),
        encode(letter(sent=1_199_990.0)),
        encode(letter("a")),
        encode(Letter(format=2, application_id="b", sent_wall_ts=1_200_000.0, words=Words())),
        encode(letter(demands=(replace(DEMAND, cost_s=-1.0),))),
        encode(letter(demands=(replace(DEMAND, after_event_ts=1e12),))),
        encode(letter(demands=(replace(DEMAND, cost_s=float("nan")),))),
    ],
)
def test_a_letter_that_cannot_be_heeded_is_refused_and_leaves_what_was_heard(post, raw):
    post.take(encode(letter("c", demands=(DEMAND,))))
    with pytest.raises(UnusableLetterError):
        post.take(raw)
    assert len(post.heard()) == 1


def test_nonsense_is_logged_once(post, caplog):
    for cost_s in (-1.0, -2.0, -3.0):
        with pytest.raises(UnusableLetterError):
            post.take(encode(letter(demands=(replace(DEMAND, cost_s=cost_s),))))
    assert len([record for record in caplog.records if "not heeded" in record.message]) == 1


def test_senders_are_bounded_and_those_who_fell_silent_go(post):
    for i in range(100):
        post.take(encode(letter(f"sender-{i}", sent=1_199_999.0 + i / 200)))
    assert len(post.heard()) == 64
    clock = FakeClock()
    late = Post("a", 3.0, clock.now)
    late.take(encode(letter("gone")))
    clock.advance(10)
    late.take(encode(letter("here", sent=clock.now())))
    assert len(late.heard()) == 1


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ConfigurationError, match="an address"):
        Peer("ftp://somewhere", "token")
    with pytest.raises(ConfigurationError, match="a tuple of Peer"):
        Forwarding(peers=["http://127.0.0.1:1"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="two such periods"):
        Forwarding(period_s=2.0, stale_after_s=3.0)
    with pytest.raises(ConfigurationError, match="positive number"):
        Forwarding(timeout_s=0.0)


# ---- over HTTP -----------------------------------------------------------------------------------------------------


def test_letters_need_the_token(tmp_path):
    forwarder = Forwarder("a", Forwarding(discover=False, stale_after_s=120.0), lambda: None, folder=tmp_path)
    endpoint = Endpoint(application_id="a", name="a", reads={}, changes=forwarder.routes(), folder=tmp_path)
    try:
        with httpx2.Client(base_url=endpoint.url, trust_env=False, timeout=10) as client:
            body = encode(letter(sent=time.time()))
            assert client.post(PATH, content=body).status_code == 401
            assert client.post(PATH, content=body, headers={"authorization": "Bearer no"}).status_code == 401
            assert forwarder.heard() == ()
            right = {"authorization": f"Bearer {endpoint.token}"}
            assert client.post(PATH, content=b"{}", headers=right).status_code == 400
            assert client.post(PATH, content=body, headers=right).status_code == 200
            assert client.post(PATH, content=b"x" * 300_000, headers=right).status_code == 413
        assert len(forwarder.heard()) == 1
    finally:
        forwarder.close()
        endpoint.close()


def test_neighbours_on_this_host_find_each_other_and_wake_the_scheduler(tmp_path):
    woken = threading.Event()
    sides, endpoints = [], []
    try:
        for name, wake in (("a", woken.set), ("b", lambda: None)):
            sides.append(Forwarder(name, quick(discover=True), wake, folder=tmp_path))
            endpoints.append(
                Endpoint(application_id=name, name=name, reads={}, changes=sides[-1].routes(), folder=tmp_path)
            )
        a, b = sides
        a.publish(Words(writes=frozenset({"file:/lake"})))
        b.publish(Words(reads=frozenset({"file:/lake"}), demands=(DEMAND,)))
        eventually(lambda: any(heard.words.demands == (DEMAND,) for heard in a.heard()))
        eventually(woken.is_set)
        assert all(not heard.words.demands for heard in b.heard())
    finally:
        for side in sides:
            side.close()
        for endpoint in endpoints:
            endpoint.close()


@pytest.fixture
def chain(tmp_path):
    """Two applications, each of which reaches the other through a network of its own that can fail."""
    began = time.time()
    first, second = (Application(query, tmp_path, began=began) for query in (ENRICH, COUNT))
    proxies = {app.query.name: Proxy(app.endpoint.port) for app in (first, second)}
    for app, other in ((first, second), (second, first)):
        name = other.query.name
        peer = Peer(f"http://127.0.0.1:{proxies[name].port}", token_file(tmp_path, name))
        app.forwarder._settings = quick(peer)
        app.start()
    yield first, second, tuple(proxies.values())
    for app in (first, second):
        app.close()
    for proxy in proxies.values():
        proxy.close()


def decides_on(*applications: Application) -> None:
    before = [app.decisions for app in applications]
    eventually(lambda: all(app.decisions > was + ENOUGH for app, was in zip(applications, before, strict=True)))


def test_delay_beyond_the_time_outs_leaves_each_side_to_itself_and_both_come_back(chain):
    first, second, proxies = chain
    eventually(lambda: first.heeds and second.heeds)
    for proxy in proxies:
        proxy.delay_s = 3.0
    eventually(lambda: not first.heeds and not second.heeds)
    decides_on(first, second)
    assert first.failures() > 0
    assert second.failures() > 0
    for proxy in proxies:
        proxy.delay_s = 0.0
        proxy.cut()
    eventually(lambda: first.heeds and second.heeds)


def test_half_of_the_exchanges_lost_is_no_silence(chain):
    first, second, proxies = chain
    eventually(lambda: first.heeds and second.heeds)
    for proxy in proxies:
        proxy.loses = True
    before = first.exchanges(), second.exchanges()
    eventually(lambda: first.failures() > 0 and second.failures() > 0)
    decides_on(first, second)
    eventually(lambda: first.exchanges() > before[0] and second.exchanges() > before[1])
    eventually(lambda: first.heeds and second.heeds)


# ---- a partition, in network namespaces ----------------------------------------------------------------------------


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)


@pytest.fixture
def namespaces():
    """Two network namespaces with a cable between them; what they are called, and how to cut the cable."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2's ip")
    tag = uuid4().hex[:6]
    names = f"sw{tag}a", f"sw{tag}b"
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", "sw0", "netns", names[0], "type", "veth", "peer", "name", "sw1", "netns", names[1])
            for index, name in enumerate(names):
                ip("-n", name, "address", "add", f"10.231.7.{index + 1}/24", "dev", f"sw{index}")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", f"sw{index}", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=10)


class Side:
    """One application in a namespace; `last` is what it said last."""

    def __init__(self, namespace: str, name: str, host: str, peer: str, folder, began: float) -> None:
        self.last = {"decisions": 0, "heeds": False}
        module = [sys.executable, "-m", "tests.unit.forwarding_support", name, host, "4050", f"http://{peer}:4050"]
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *module, str(folder), str(began)], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


def test_a_partition_stops_no_decision_and_heals(namespaces, tmp_path):
    sides, began = [], time.time()
    try:
        for index, name in enumerate(("enrich", "count")):
            host, peer = f"10.231.7.{index + 1}", f"10.231.7.{2 - index}"
            sides.append(Side(namespaces[index], name, host, peer, tmp_path, began))
        eventually(lambda: all(side.last["heeds"] for side in sides), 40)
        ip("-n", namespaces[0], "link", "set", "sw0", "down")
        eventually(lambda: not any(side.last["heeds"] for side in sides))
        before = [side.last["decisions"] for side in sides]
        eventually(lambda: all(side.last["decisions"] > was + ENOUGH for side, was in zip(sides, before, strict=True)))
        assert not any(side.last["heeds"] for side in sides)
        ip("-n", namespaces[0], "link", "set", "sw0", "up")
        eventually(lambda: all(side.last["heeds"] for side in sides), 40)
    finally:
        for side in sides:
            side.close()
