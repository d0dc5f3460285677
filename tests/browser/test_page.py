"""The page in a real browser, served by a real handle, engine and endpoint over simulated queries in wall time."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slackwater.sim.live import Heap, live_application, platform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater import Handle
    from tests.browser.chromium import Chromium, Page

HOSTILE = "<img src=x onerror=window.hurt=1><script>window.hurt=2</script>"
VICTIM = "orders.per-minute"
LONG = 90.0


def application(port: int = 0) -> Handle:
    queries = platform(40)
    queries[3] = replace(queries[3], name=HOSTILE)
    return live_application(queries, heap=Heap(), history_s=15, name="shop <b>nights</b>", port=port)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path_factory.mktemp("run") / "slackwater"))
        yield


@pytest.fixture(scope="module")
def handle(runtime: None) -> Iterator[Handle]:
    with application() as served:
        yield served


@pytest.fixture
def page(browser: Chromium, handle: Handle) -> Iterator[Page]:
    with opened(browser, handle) as tab:
        yield tab


@contextmanager
def opened(browser: Chromium, handle: Handle, fragment: str = "") -> Iterator[Page]:
    assert handle.url is not None
    tab = browser.open(handle.url + "/" + fragment)
    tab.until("document.querySelector('#connection')?.dataset.state === 'live'", LONG)
    yield tab
    tab.close()


def token(handle: Handle) -> str:
    assert handle.token_file is not None
    return handle.token_file.read_text("utf-8").strip()


def store(expression: str) -> str:
    """Something that the page knows, by its own store."""
    return f"import('/static/store.js').then(({{store}}) => {expression})"


ALL_BATCHES = store("store.queries.reduce((n, q) => n + q.batches, 0)")
FRAMES = store("store.frames")


def batches(name: str, rest: str = "") -> str:
    return store(f"store.queries.find(q => q.name === {json.dumps(name)}).batches{rest}")


def row_of(name: str) -> str:
    rows = "[...document.querySelectorAll('#rows tr')]"
    return f"{rows}.find(r => r.querySelector('a').textContent === {json.dumps(name)})"


def stage_of(name: str) -> str:
    return f"{row_of(name)}?.querySelector('.stage').textContent"


def press_in_row(page: Page, name: str) -> None:
    page.run(f"{row_of(name)}.querySelector('button').click()")
    page.until("document.querySelector('#confirm').open")


def test_the_page_shows_forty_queries_under_load_and_their_values_move(page: Page) -> None:
    assert page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    slacks = "[...document.querySelectorAll('#rows .c-slack')].map(c => c.textContent).join()"
    before, seen = page.run(slacks), page.run(FRAMES)
    page.until(f"{FRAMES}.then(n => n > {seen} + 1)", LONG)
    assert page.run(slacks) != before
    page.until(store("store.turns.some(t => t.stage === 'sweep batch')"), LONG)
    page.until("document.querySelectorAll('#latency canvas').length === 1", LONG)
    page.until("document.querySelectorAll('#memory canvas').length === 1", LONG)
    assert page.run("document.querySelector('.stat.policy .value').textContent") == "klink"
    # /api/alarms is another part's: where it is not served, the browser notes the 404.
    assert [said for said in page.trouble if "/api/alarms" not in said] == []


def test_names_that_are_markup_are_shown_as_text_and_run_nothing(page: Page) -> None:
    page.until(f"Boolean({row_of(HOSTILE)})", LONG)
    page.run(f"{row_of(HOSTILE)}.querySelector('a').click()")
    page.until(f"document.querySelector('#query h2')?.textContent === {json.dumps(HOSTILE)}")
    page.until("document.querySelector('#query .words').textContent.length > 0", LONG)
    assert page.run("document.querySelectorAll('main img, main script, header b').length") == 0
    assert page.run("window.hurt === undefined")
    assert page.run("document.querySelector('#application').textContent") == "shop <b>nights</b>"


def test_a_wrong_token_is_refused_with_the_reason_and_asked_for_again(page: Page, handle: Handle) -> None:
    page.until(f"Boolean({row_of(VICTIM)})", LONG)
    press_in_row(page, VICTIM)
    page.click("#confirm-ok")
    page.until("document.querySelector('#token').open")
    page.click("#token-input")
    page.type("not-it")
    page.press("Enter")
    page.until("document.querySelector('#token').open && !document.querySelector('#token-error').hidden", LONG)
    assert "not the token" in page.run("document.querySelector('#token-error').textContent")
    assert page.run("sessionStorage.getItem('slackwater-token')") is None
    page.press("Escape")
    page.until("!document.querySelector('#token').open")
    assert handle_stage(handle, VICTIM) != "paused"


def handle_stage(handle: Handle, name: str) -> str:
    return next(status.stage for status in handle.status() if status.name == name)


def test_a_paused_query_gets_no_turns_until_it_is_resumed(browser: Chromium, handle: Handle) -> None:
    with opened(browser, handle, f"#token={token(handle)}") as page:
        assert page.run("location.hash") == ""
        page.until(f"Boolean({row_of(VICTIM)})", LONG)
        press_in_row(page, VICTIM)
        page.click("#confirm-ok")
        page.until("!document.querySelector('#confirm').open", LONG)
        page.until(f"{stage_of(VICTIM)} === 'paused'", LONG)
        stopped, others = page.run(batches(VICTIM)), page.run(ALL_BATCHES)
        page.until(f"{ALL_BATCHES}.then(n => n > {others} + 10)", LONG)
        assert page.run(batches(VICTIM)) == stopped
        press_in_row(page, VICTIM)
        page.click("#confirm-ok")
        page.until(batches(VICTIM, f" > {stopped}"), LONG)


def test_the_policy_is_switched_after_a_confirmation(browser: Chromium, handle: Handle) -> None:
    with opened(browser, handle, f"#token={token(handle)}") as page:
        page.click("#switch")
        page.until("document.querySelector('#confirm').open")
        assert handle.policy == "klink"
        page.run("document.querySelector('#confirm select').value = 'edf'")
        page.click("#confirm-ok")
        page.until("document.querySelector('.stat.policy .value').textContent === 'edf'", LONG)
        assert handle.policy == "edf"
        handle.switch("klink")


def test_keys_alone_reach_a_turn_and_its_query(page: Page) -> None:
    page.until(store("store.turns.length > 5"), LONG)
    page.run("document.querySelector('#timeline').focus()")
    page.press("ArrowRight")
    page.press("ArrowLeft")
    told = page.until("/.* rows? in .* after waiting .*/.exec(document.querySelector('#turn').textContent)?.[0]")
    page.press("Enter")
    page.until("!document.querySelector('#query').hidden")
    assert told.startswith(page.run("document.querySelector('#query h2').textContent"))
    page.run("history.back()")
    page.until("!document.querySelector('#overview').hidden")
    page.run("document.querySelector('#rows a').focus()")
    page.press("ArrowDown")
    assert page.run("document.activeElement === document.querySelectorAll('#rows a')[1]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_narrow_screen(page: Page, scheme: str) -> None:
    page.prefer(prefers_color_scheme=scheme)
    page.resize(360, 740)
    page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    page.until("innerWidth === 360")
    assert page.run("document.documentElement.scrollWidth") <= 360
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(14, 20, 23)") == (scheme == "dark")


def test_the_page_reconnects_by_itself_after_the_server_came_again(browser: Chromium, runtime: None) -> None:
    first = application()
    assert first.url is not None
    port = int(first.url.rpartition(":")[2])
    try:
        page = browser.open(first.url + "/")
        page.until("document.querySelector('#connection')?.dataset.state === 'live'", LONG)
    finally:
        first.detach()
    page.until("document.querySelector('#connection').dataset.state === 'lost'", LONG)
    assert "not connected since" in page.run("document.querySelector('#connection').textContent")
    with application(port):
        page.until("document.querySelector('#connection').dataset.state === 'live'", LONG)
        page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    page.close()
