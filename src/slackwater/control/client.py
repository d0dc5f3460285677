"""Finding the endpoint of a running application, and talking to it: what can go wrong is said with what to do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from slackwater.control.answers import Done, PolicyAbout, QueryAnswer
from slackwater.control.plain import plain
from slackwater.endpoint import discovery
from slackwater.endpoint.access import read_token
from slackwater.endpoint.asking import Asker, RefusedError
from slackwater.endpoint.overview import FORMAT, Overview
from slackwater.errors import ConfigurationError, ControlError, UnreachableError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from slackwater.endpoint.discovery import Announcement

T = TypeVar("T")

_MOST_TRIES = 4
_LONGEST_PAUSE_S = 5.0
_HOW_TO_SERVE = "attach(spark, serve=True), or `slackwater run SCRIPT --serve`, makes one answer"


@dataclass(frozen=True, slots=True)
class Target:
    """An application to talk to. `token_file` is None where nobody said where it is."""

    url: str
    label: str
    token_file: Path | None


def find(
    url: str | None = None, app: str | None = None, token_file: Path | None = None, folder: Path | None = None
) -> Target:
    """The application at `url`, else the one called `app` (its name or id), else the only one that runs here."""
    looked = folder or discovery.default_folder()
    announced = discovery.announced(discovery.trusted(looked))
    if url is not None:
        return _at(url, app, token_file, announced)
    if not announced:
        raise ControlError(
            f"no application of yours answers on this host (none is announced in {looked}). {_HOW_TO_SERVE}; "
            "--url names one elsewhere."
        )
    chosen = announced if app is None else [found for found in announced if app in (found.name, found.application_id)]
    if not chosen:
        raise unknown_name("application", app or "", {found.name for found in announced})
    if len(chosen) > 1:
        listed = "; ".join(f"--app {plain(found.application_id)} ({plain(found.name)})" for found in chosen)
        raise ConfigurationError(f"{len(chosen)} applications run here: say which one. {listed}.")
    (one,) = chosen
    return Target(one.url, f"{one.name} ({one.application_id})", token_file or Path(one.token_file))


def _at(url: str, app: str | None, token_file: Path | None, announced: Sequence[Announcement]) -> Target:
    if app is not None:
        raise ConfigurationError("--url and --app both name an application: give one of them.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--url {url!r}: http://HOST:PORT is needed, such as http://127.0.0.1:4050.")
    known = next((found for found in announced if found.url.rstrip("/") == url.rstrip("/")), None)
    if token_file is None and known is not None:
        token_file = Path(known.token_file)
    return Target(url.rstrip("/"), url, token_file)


class Client:
    """One application's endpoint. Errors: ConfigurationError for what was asked wrongly, ControlError for the rest."""

    def __init__(self, target: Target, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.target = target
        self._asker = Asker(target.url)
        self._pause = pause

    def status(self) -> Overview:
        told = self._told(lambda: self._asker.get("/api/status", Overview))
        if told.format != FORMAT:
            raise ControlError(
                f"{self.target.url} speaks format {told.format} of the status, this command {FORMAT}: "
                "use the same version of Slackwater for both."
            )
        return told

    def query(self, query: str) -> QueryAnswer:
        return self._told(lambda: self._asker.get("/api/query", QueryAnswer, key=query))

    def policies(self) -> list[PolicyAbout]:
        return self._told(lambda: self._asker.get("/api/policies", list[PolicyAbout]))

    def order(self, path: str, order: Any) -> Done:
        """Have something changed, with the token."""
        file = self.target.token_file
        if file is None:
            raise ConfigurationError(
                f"changing something at {self.target.url} needs its token: give --token-file FILE. The application "
                "wrote it beside its announcement on its own host."
            )
        token = read_token(file)
        return self._told(lambda: self._asker.post(path, order, Done, token=token))

    def _told(self, ask: Callable[[], T]) -> T:
        """Asked again where it is only too soon."""
        for left in range(_MOST_TRIES - 1, -1, -1):
            try:
                return ask()
            except RefusedError as refused:
                if refused.status != 429 or not left:
                    raise self._meaning(refused) from refused
                self._pause(min(_LONGEST_PAUSE_S, max(1.0, refused.retry_after_s)))
            except UnreachableError as silent:
                raise ControlError(
                    f"{plain(str(silent))}. The application may have ended or hang; `slackwater status` without "
                    "--url looks for those that are announced."
                ) from silent
        raise AssertionError("unreachable: the last try returns or raises")

    def _meaning(self, refused: RefusedError) -> ConfigurationError | ControlError:
        said = plain(refused.said) if refused.said else None
        if refused.status == 401:
            return ControlError(
                f"{self.target.url} does not accept the token in {self.target.token_file}. It is another one's, or the "
                "application has been started anew: give the --token-file that belongs to it."
            )
        if refused.status in (400, 404) and said is not None:
            return ConfigurationError(said)
        return ControlError(f"{plain(str(refused))} {said or 'It may be another version of Slackwater.'}")

    def close(self) -> None:
        self._asker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
