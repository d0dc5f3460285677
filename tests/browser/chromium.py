"""A real Chromium, driven by its DevTools protocol over a pipe: no port, no web socket, nothing to install but it.

`--remote-debugging-pipe` makes the browser read commands at descriptor 3 and write answers at 4, as JSON with a zero
byte after each. A test needs a dozen of the protocol's commands; this has them.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 60.0
_LOOK_S = 0.05


class BrowserError(Exception):
    pass


def found() -> str | None:
    """The browser that tests use: `$CHROMIUM`, or the first on the path; None where there is none."""
    given = os.environ.get("CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser with a profile of its own; leaving the block ends it."""

    def __init__(self, program: str, profile: Path) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--no-default-browser-check",
            "--no-sandbox",  # it opens our own pages only, and containers have no user namespaces
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--disable-sync",
            "--hide-scrollbars",
            "--mute-audio",
            "about:blank",
        ]
        # The descriptors must be 3 and 4 in the child, whatever they are here.
        move = f'exec "$@" 3<&{down_read} 4>&{up_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", move, "chromium", program, *options],
            pass_fds=(down_read, up_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down_read)
        os.close(up_write)
        self._down = os.fdopen(down_write, "wb", buffering=0)
        self._up = os.fdopen(up_read, "rb")
        self._number = 0
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="chromium", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.send("Browser.close", patience_s=10)
        except BrowserError:
            self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._down.close()

    def send(
        self, method: str, session: str | None = None, *, patience_s: float = _PATIENCE_S, **parameters: Any
    ) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            number = self._number
            answer = self._answers[number] = queue.Queue(1)
            message = {"id": number, "method": method, "params": parameters}
            if session is not None:
                message["sessionId"] = session
            try:
                self._down.write(json.dumps(message).encode() + b"\0")
            except OSError as error:
                raise BrowserError(f"{method}: the browser is gone ({error})") from error
        try:
            said = answer.get(timeout=patience_s)
        except queue.Empty:
            raise BrowserError(f"{method}: no answer within {patience_s:g} s") from None
        finally:
            del self._answers[number]
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']}")
        return dict(said.get("result", {}))

    def open(self, url: str, **size: int) -> Page:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        page.begin(url, **size)
        return page

    def _listen(self) -> None:
        """Messages until the browser is gone; then nobody is left waiting."""
        content = b""
        while chunk := os.read(self._up.fileno(), 1 << 16):
            content += chunk
            *messages, content = content.split(b"\0")
            for message in messages:
                self._hear(json.loads(message))
        for answer in list(self._answers.values()):
            answer.put({"error": "the browser is gone"})

    def _hear(self, message: dict[str, Any]) -> None:
        waiting = self._answers.get(message.get("id", -1))
        if waiting is not None:
            waiting.put(message)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.hear(message["method"], message["params"])


class Page:
    """A tab. `trouble` has what its console complained of: errors, and what the security policy stopped."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.trouble: list[str] = []

    def begin(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.go(url)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def hear(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.trouble.append(str(details.get("exception", {}).get("description", details.get("text"))))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            entry = said["entry"]
            self.trouble.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    def close(self) -> None:
        self.send("Page.close")

    def go(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )

    def prefer(self, **features: str) -> None:
        """Media features by name: prefers_color_scheme="dark"."""
        chosen = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.send("Emulation.setEmulatedMedia", features=chosen)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        said = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise BrowserError(f"{expression}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def until(self, expression: str, patience_s: float = _PATIENCE_S) -> Any:
        """Its first value that counts as true."""
        deadline = time.monotonic() + patience_s
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise BrowserError(
                    f"{expression} did not come true within {patience_s:g} s; trouble: {self.trouble}; "
                    f"the page says: {str(self.run('document.body.innerText'))[:1500]}"
                )
            time.sleep(_LOOK_S)

    def click(self, selector: str) -> None:
        """Where a user would: in the middle of it, wherever it is."""
        where = self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            " return b.width ? [b.x + b.width / 2, b.y + b.height / 2] : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "/": 191}[key]
        text = {"text": text} if (text := {"Enter": "\r", "/": "/"}.get(key)) else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, *, full: bool = False) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"])
