"""The page in a real browser, served by a real handle, engine and endpoint over simulated queries in wall time."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2
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
    page.until(store("store.queries.some(q => q.turn?.running && q.turn.lane < store.lanes)"), LONG)
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


def test_a_link_whose_token_is_cut_off_opens_the_page_all_the_same(browser: Chromium, handle: Handle) -> None:
    with opened(browser, handle, "#token=%4") as page:
        assert page.run("location.hash") == ""
        assert page.run("sessionStorage.getItem('slackwater-token')") is None


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
    handle.switch("klink", knob="cost", memory_bound=0.6)
    with opened(browser, handle, f"#token={token(handle)}") as page:
        page.until(store("store.parameters.knob === 'cost'"), LONG)
        page.click("#switch")
        page.until("document.querySelector('#confirm').open")
        fields = "[...document.querySelectorAll('#confirm select, #confirm input')].map(f => f.value)"
        assert page.run(fields) == ["klink", "cost", "60", ""], "what is in force is kept unless somebody changes it"
        assert handle.policy == "klink"
        page.run("document.querySelector('#confirm select').value = 'edf'")
        page.click("#confirm-ok")
        page.until("document.querySelector('.stat.policy .value').textContent === 'edf'", LONG)
        assert handle.policy == "edf"
        handle.switch("klink")


def class_of(handle: Handle, name: str) -> int:
    assert handle.url is not None
    told = httpx2.get(f"{handle.url}/api/status").json()
    return int(next(query["priority_class"] for query in told["queries"] if query["name"] == name))


def open_class_dialog(page: Page) -> None:
    """By keys alone: the button has the focus, and Enter presses it."""
    page.until("[...document.querySelectorAll('#query button')].some(b => b.textContent === 'Class…' && !b.disabled)")
    page.run("[...document.querySelectorAll('#query button')].find(b => b.textContent === 'Class…').focus()")
    page.press("Enter")
    page.until("document.querySelector('#confirm').open")
    assert page.run("document.activeElement === document.querySelector('#confirm input')")
    page.run("document.activeElement.select()")


@pytest.mark.parametrize("leave", ["Escape", "the button"])
def test_a_class_is_changed_by_keys_after_a_confirmation_and_not_where_that_is_left(
    browser: Chromium, handle: Handle, leave: str
) -> None:
    before = class_of(handle, VICTIM)
    given = 7 if before != 7 else 8
    shown = "[...document.querySelectorAll('#query .stat')].find(s => s.firstChild.textContent === 'Class').lastChild"
    with opened(browser, handle, f"#token={token(handle)}") as page:
        key = page.run(store(f"store.queries.find(q => q.name === {json.dumps(VICTIM)}).key"))
        page.run(f"location.hash = '#/query/' + encodeURIComponent({json.dumps(key)})")
        page.until(f"{shown}?.textContent === '{before}'", LONG)

        open_class_dialog(page)
        page.type(str(given))
        if leave == "Escape":
            page.press("Escape")
        else:
            page.click("#confirm [data-cancel]")
        page.until("!document.querySelector('#confirm').open")
        page.until("document.activeElement.textContent === 'Class…'")
        seen = page.run(FRAMES)
        page.until(f"{FRAMES}.then(n => n > {seen} + 1)", LONG)
        assert class_of(handle, VICTIM) == before
        assert page.run(f"{shown}.textContent") == str(before)

        open_class_dialog(page)
        assert page.run("document.activeElement.value") == str(before)
        page.type("1001")
        page.press("Enter")
        assert page.run("document.querySelector('#confirm').open")
        assert class_of(handle, VICTIM) == before
        page.run("document.activeElement.select()")
        page.type(str(given))
        page.press("Enter")
        page.until("!document.querySelector('#confirm').open", LONG)
        page.until(f"{shown}.textContent === '{given}'", LONG)
        assert class_of(handle, VICTIM) == given
        assert f"{VICTIM} is in class {given}" in page.run("document.querySelector('#toast').textContent")


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
    page.press("/")
    assert page.run("document.activeElement.id") == "filter"
    page.press("/")
    assert page.run("document.activeElement.value") == "/", "where somebody types it is a letter"


def test_a_turn_that_is_looked_at_while_it_runs_is_told_when_it_ended(page: Page) -> None:
    page.run("document.querySelector('#timeline').focus()")
    found = page.until(
        """(() => {
            document.querySelector('#timeline').dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }));
            return /^(.*?), .* runs for .* now/.exec(document.querySelector('#turn').textContent)?.[1];
        })()""",
        LONG,
    )
    told = page.until("/.* rows? in .* after waiting .*/.exec(document.querySelector('#turn').textContent)?.[0]")
    assert told.startswith(f"{found}, ")


def test_the_link_that_skips_to_the_queries_stays_there(page: Page) -> None:
    page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.until("document.activeElement.id === 'queries' && scrollY > 0")
    seen = page.run(FRAMES)
    page.until(f"{FRAMES}.then(n => n > {seen})", LONG)
    assert page.run("scrollY") > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_narrow_screen(page: Page, scheme: str) -> None:
    page.prefer(prefers_color_scheme=scheme)
    page.resize(360, 740)
    page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    page.until("innerWidth === 360")
    assert page.run("document.documentElement.scrollWidth") <= 360
    dark = page.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(14, 20, 23)") == (scheme == "dark")


def test_the_page_shows_what_a_policy_in_the_shadow_would_bring_and_run(browser: Chromium, runtime: None) -> None:
    queries = [replace(query, batch_cost_s=0.5) for query in platform(4)]
    queries[0] = replace(queries[0], name=HOSTILE)
    served = live_application(queries, policy="observe", history_s=120, shadow="klink", shadow_after_s=4)
    with served as handle, opened(browser, handle) as page:
        page.until("!document.querySelector('#shadow-card').hidden", LONG)
        assert page.run("document.querySelector('#shadow-title').textContent") == "klink, in the shadow"
        page.until("document.querySelector('.stat.charge .value').textContent === 'watching'", LONG)
        names = "[...document.querySelectorAll('#choices b')].map(b => b.textContent)"
        page.until(f"{names}.includes({json.dumps(HOSTILE)})", LONG)
        cells = "[...document.querySelectorAll('#gain tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        mean, p99, cores = page.until(f"(rows => rows.length === 3 && rows)({cells})", LONG)
        shadow = handle.shadow()
        assert shadow is not None
        gain = shadow.gain
        assert gain is not None
        assert mean[0] == "Latency, mean"
        assert mean[1] == f"{gain.mean_s:.2f} s"
        assert mean[2].startswith(f"{gain.predicted_mean_s:.2f} s (")
        assert p99[2] == f"{gain.predicted_p99_s:.2f} s"
        assert cores[2] == f"{gain.predicted_cpu_cores:.2f}"
        page.until("!document.querySelector('#advice').hidden", LONG)
        assert page.run("document.querySelector('#advice-title').textContent").startswith("Advice of ")
        lines = page.run("[...document.querySelectorAll('#advice-lines li')].map(l => l.textContent)")
        assert lines[0].startswith("Recorded: 4 queries under plain Spark")
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("window.hurt === undefined")


def test_without_a_shadow_there_is_none_on_the_page(page: Page) -> None:
    page.until("document.querySelectorAll('#rows tr').length === 40", LONG)
    assert page.run("document.querySelector('#shadow-card').hidden")


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
