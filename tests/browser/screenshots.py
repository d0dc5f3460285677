"""`make screenshots`: the page in light, in dark and on a phone, of a simulated application, as PNG."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.drivers.spark.sessions import tell_for
from slackwater.sim.live import Heap, live_application, platform
from tests.browser import chromium

if TYPE_CHECKING:
    from slackwater.drivers.spark.sessions import Plain
    from tests.browser.chromium import Page

HISTORY_S = 150.0
SETTLES_S = 75.0
ID = "local-1731700000000"
QUERY = "orders.per-minute"


def late() -> list[dict[str, Plain]]:
    """Two late queries as their runs would tell of themselves."""
    passed = time.time() % 1000
    return [
        {
            "name": name,
            "stalest": round(0.018 + 0.004 * number, 3),
            "staleness_bound": 0.05,
            "late_results": int(passed) * (number + 1) // 7,
            "final_results": int(passed) // 12,
            "open_windows": 2,
            "past_windows": 6 - number,
            "memory_bytes": (31 + 9 * number) << 20,
            "disk_bytes": (118 + 40 * number) << 20,
            "late_rows": int(passed * 410),
            "pending_rows": int(passed * 7) % 260,
            "dead_rows": 12 * number,
            "allowed_lateness_s": 60.0,
        }
        for number, name in enumerate(("sensors.per-minute", "trips.by-region"))
    ]


def wait_for(page: Page) -> None:
    page.until("document.querySelector('#connection')?.dataset.state === 'live'", 120)
    page.until("document.querySelectorAll('#latency canvas').length === 1", 120)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    program = chromium.found()
    if program is None:
        sys.exit("no Chromium was found: apt-get install chromium, or name one in $CHROMIUM")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        os.environ["SLACKWATER_RUNTIME_DIR"] = scratch + "/run"
        tell_for(ID, "late", late)
        with (
            live_application(
                platform(40), heap=Heap(), history_s=HISTORY_S, name="shop-streams", application_id=ID
            ) as handle,
            chromium.Chromium(program, Path(scratch) / "profile") as browser,
        ):
            handle.pause("carts.funnel")
            page = browser.open(f"{handle.url}/", width=1360, height=1100)
            wait_for(page)
            time.sleep(SETTLES_S)  # so that memory has a past, too
            for scheme in ("light", "dark"):
                page.prefer(prefers_color_scheme=scheme)
                save(page, folder / f"page-{scheme}.png")
            page.prefer(prefers_color_scheme="light")
            page.run(f"location.hash = '#/query/{QUERY}'")
            page.until("document.querySelector('#query .words')?.textContent.length > 0")
            save(page, folder / "page-query.png")
            page.run("location.hash = '#/'")
            page.resize(360, 1500)
            save(page, folder / "page-narrow.png")
            shadowed(browser, folder)


def shadowed(browser: chromium.Chromium, folder: Path) -> None:
    """Plain Spark, watched, and what another policy would bring."""
    queries = [replace(query, batch_cost_s=0.5) for query in platform(8)]
    with live_application(
        queries,
        policy="observe",
        heap=Heap(),
        history_s=HISTORY_S,
        name="shop-streams",
        shadow="klink",
        shadow_after_s=5,
    ) as handle:
        page = browser.open(f"{handle.url}/", width=1360, height=760)
        page.until("document.querySelector('#advice')?.hidden === false", 300)
        page.until("document.querySelectorAll('#choices li').length > 0", 300)
        page.run("document.querySelector('#advice').open = true")
        page.run("scrollTo(0, document.querySelector('#shadow-card').offsetTop - 70)")
        save(page, folder / "page-shadow.png")


def save(page: Page, file: Path) -> None:
    """After the next frame, drawn in the new colours and size, of an application that the machine does not hold up."""
    store = "import('/static/store.js')"
    page.until(f"{store}.then(({{store}}) => store.now - store.scheduler[5] < 1)", 300)
    page.run(f"{store}.then(m => new Promise(done => m.subscribe(() => setTimeout(done, 100))))")
    file.write_bytes(page.picture())
    print(f"written: {file} ({file.stat().st_size // 1000} kB)")


if __name__ == "__main__":
    main()
