"""Run a PySpark script as it is, with every session that it makes attached.

The script must not notice: it is `__main__`, has its own arguments, path, logging and exit code, and what it prints is
its own. If attaching fails, it runs on as plain Spark.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import io
import logging
import os
import runpy
import shutil
import sys
import threading
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slackwater.drivers.spark.attach import attach
from slackwater.drivers.spark.java import ensure_java
from slackwater.drivers.spark.sessions import stands_in
from slackwater.errors import ConfigurationError, SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slackwater.drivers.spark.handle import Handle

log = logging.getLogger("slackwater")


def run_script(script: Path, arguments: Sequence[str], settings: dict[str, Any]) -> None:
    """Run it, attached with these settings. Ends as it ends: returns, or raises SystemExit with its code."""
    if not script.exists():
        raise ConfigurationError(f"there is no script at {script}. Give the path of a Python file.")
    _find_a_java()
    Sessions(settings).watch()
    sys.argv = [str(script), *arguments]
    try:
        if script.is_file() and script.suffix not in (".zip", ".pyz"):
            _run_file(script)
        else:
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def _run_file(script: Path) -> None:
    """As `python SCRIPT` does it. The module stays `__main__`, for threads of the script that outlive its last line."""
    if not sys.flags.safe_path:
        sys.path[:1] = [str(script.resolve().parent)]
    main = ModuleType("__main__")
    main.__file__ = str(script)
    main.__loader__ = SourceFileLoader("__main__", str(script))
    main.__dict__["__builtins__"] = builtins
    main.__dict__["__cached__"] = None
    with io.open_code(str(script.resolve())) as file:
        code = compile(file.read(), str(script), "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102 - running the user's own script is the job


def _find_a_java() -> None:
    """Only where Spark itself would find none."""
    found = os.environ.get("JAVA_HOME") or os.environ.get("PYSPARK_GATEWAY_PORT") or shutil.which("java")
    if not found:
        with suppress(SlackwaterError):
            ensure_java()


class Sessions:
    """Attaches to the first session of each Spark application of this process, however it is made."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._seen: set[str] = set()
        self._handle: Handle | None = None
        self._lock = threading.RLock()
        self._making = threading.local()

    def watch(self) -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded on use

        builder = SparkSession.Builder
        get_or_create, init = builder.getOrCreate, SparkSession.__init__

        @functools.wraps(get_or_create)
        def got_or_created(this: Any) -> Any:
            # What the builder still has to set is set before anybody attaches.
            outermost = not getattr(self._making, "session", False)
            self._making.session = True
            try:
                session = get_or_create(this)
            finally:
                self._making.session = not outermost
            if outermost:
                self._saw(session)
            return session

        @functools.wraps(init)
        def made(this: Any, *arguments: Any, **options: Any) -> None:
            init(this, *arguments, **options)
            if not getattr(self._making, "session", False):
                self._saw(this)

        builder.getOrCreate, SparkSession.__init__ = got_or_created, made
        there = SparkSession._instantiatedSession  # noqa: SLF001 - also where no thread has an active one
        if there is not None:
            self._saw(there)

    def _saw(self, session: Any) -> None:
        """Never raises: the script goes on, attached or not."""
        try:
            with self._lock:
                context = getattr(session, "_sc", None)
                application = context.applicationId if context is not None else type(session).__module__
                if application in self._seen:
                    return
                self._seen.add(application)
                self._attach(session)
        except Exception as error:
            log.warning(
                "slackwater could not attach, so the script runs on plain Spark: %s",
                error if isinstance(error, SlackwaterError) else f"{type(error).__name__}: {error}",
            )

    def _attach(self, session: Any) -> None:
        if self._handle is not None:  # of an application that has ended
            self._handle.detach()
        self._handle = handle = attach(session, **self._settings)
        stands_in(handle)
        # After the script's last line and its threads; queries end with the process, as they would.
        atexit.register(handle.detach)
        if handle.url is not None:
            print(f"slackwater: {handle.url}", file=sys.stderr)
