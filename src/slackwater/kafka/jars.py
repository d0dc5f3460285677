"""The jars of a Kafka broker and of Spark's Kafka source: pinned, fetched once into the user's cache, and checked.

`pins.txt` names every jar with its SHA-256; what comes from a repository and is not that jar is refused.
`slackwater kafka jars` fetches them all.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slackwater.errors import KafkaError
from slackwater.kafka.fetching import NotFetchedError, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BROKER: Final = "broker"
_PINS: Final = "pins.txt"


@dataclass(frozen=True)
class Jar:
    """One jar by its Maven coordinates."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True)
class JarSet:
    """Jars that are needed together."""

    name: str
    jars: tuple[Jar, ...]

    @property
    def folder(self) -> str:
        """Its name in the cache; other pins make another folder."""
        pins = "\n".join(f"{jar.file} {jar.sha256}" for jar in self.jars)
        return f"kafka-{self.name}-{hashlib.sha256(pins.encode()).hexdigest()[:10]}"


def pinned() -> dict[str, JarSet]:
    """All sets, by name: the broker's, and one for each minor version of Spark (`spark-4.3`)."""
    found: dict[str, list[Jar]] = {}
    for line in resources.files(__package__).joinpath(_PINS).read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, coordinates, sha256 = line.split()
        group, artifact, version = coordinates.split(":")
        found.setdefault(name, []).append(Jar(group, artifact, version, sha256))
    return {name: JarSet(name, tuple(jars)) for name, jars in found.items()}


def broker_jars() -> JarSet:
    return pinned()[BROKER]


def connector_jars(spark_version: str | None = None) -> JarSet:
    """What Spark's class path must have for `format("kafka")`, beside what Spark brings; for the installed Spark."""
    if spark_version is None:
        import pyspark  # noqa: PLC0415 - loaded on use

        spark_version = str(pyspark.__version__)
    sets = pinned()
    name = "spark-" + ".".join(spark_version.split(".")[:2])
    if name not in sets:
        known = ", ".join(sorted(other.removeprefix("spark-") for other in sets if other != BROKER))
        raise KafkaError(
            f"no jars of a Kafka source are pinned for Spark {spark_version}; they are for {known}. Name the connector "
            "of your Spark yourself, as in spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION."
        )
    return sets[name]


def cached(wanted: JarSet, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder with these jars where it is here already; None where they would have to be fetched."""
    home = _place(wanted, os.environ if environ is None else environ)
    return home if home.is_dir() else None


def fetched(
    wanted: JarSet,
    environ: Mapping[str, str] | None = None,
    fetch_into: Callable[[Sequence[Jar], Path], None] = fetch,
) -> Path:
    """The same, fetched where they are not here yet."""
    environ = os.environ if environ is None else environ
    here = cached(wanted, environ)
    if here is not None:
        return here
    home = _place(wanted, environ)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="kafka-") as scratch:
            jars = Path(scratch) / "jars"
            jars.mkdir()
            fetch_into(wanted.jars, jars)
            _check(wanted, jars)
            try:
                jars.rename(home)
            except OSError:
                # Another process was faster; what it has fetched is the same.
                if not home.is_dir():
                    raise
    except NotFetchedError as error:
        raise KafkaError(
            f"the jars of {wanted.name} could not be fetched: {error} Run `slackwater kafka jars` where a "
            f"Maven repository is in reach, and copy {home} here (or set XDG_CACHE_HOME to a cache that has it)."
        ) from error
    except OSError as error:
        raise KafkaError(
            f"the jars of {wanted.name} could not be put into {home}: {error}. Set XDG_CACHE_HOME to a directory with "
            "100 MB of space."
        ) from error
    return home


def class_path(wanted: JarSet, folder: Path) -> list[Path]:
    """The jars in the order of their pins: the first one with a class is the one that is taken."""
    return [folder / jar.file for jar in wanted.jars]


def spark_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a session of the installed Spark must be built with to read topics; fetches the jars if need be."""
    wanted = connector_jars()
    return {"spark.jars": ",".join(map(str, class_path(wanted, fetched(wanted, environ))))}


def _place(wanted: JarSet, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater" / wanted.folder


def _check(wanted: JarSet, folder: Path) -> None:
    """Every jar is there, and is the one that was pinned; whatever else came along goes."""
    for jar in wanted.jars:
        file = folder / jar.file
        if not file.exists():
            raise NotFetchedError(f"{jar.file} did not come.")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != jar.sha256:
            raise NotFetchedError(f"{jar.file} is not the jar that was pinned: its SHA-256 is {found}.")
    known = {jar.file for jar in wanted.jars}
    for file in folder.iterdir():
        if file.name not in known:
            file.unlink()
