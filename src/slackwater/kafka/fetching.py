"""Jars from a Maven repository, with a client that is on the machine: Maven itself, or the Ivy that Spark brings.

Either goes where the user has set it up to go (Maven's settings.xml, Spark's `spark.jars.ivySettings`), and is asked
for exactly the jars that are named: what their own dependencies are is decided by the pins.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slackwater.drivers.spark.java import ensure_java
from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.kafka.jars import Jar

FETCH_TIMEOUT_S: Final = 900.0
_TOLD: Final = 600
_DEPENDENCY: Final = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
_POM: Final = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>slackwater</groupId><artifactId>jars</artifactId>"
    "<version>1</version><packaging>pom</packaging><dependencies>{}</dependencies></project>"
)


class NotFetchedError(SlackwaterError):
    """Why a jar did not come."""


def fetch(jars: Sequence[Jar], into: Path) -> None:
    """Put these jars into a folder."""
    maven = shutil.which("mvn")
    if maven is not None:
        by_maven(maven, jars, into)
    else:
        by_ivy(jars, into)


def by_maven(maven: str, jars: Sequence[Jar], into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="slackwater-maven-") as folder:
        pom = Path(folder) / "pom.xml"
        wanted = "".join(
            _DEPENDENCY.format(group=jar.group, artifact=jar.artifact, version=jar.version) for jar in jars
        )
        pom.write_text(_POM.format(wanted), "utf-8")
        command = [maven, "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise NotFetchedError(f"Maven took longer than {FETCH_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise NotFetchedError(f"Maven says: {_first_error(done.stdout + done.stderr)}")


def by_ivy(jars: Sequence[Jar], into: Path) -> None:
    """Through Spark's own `ADD JAR ivy://…`, in a JVM of its own and without a session."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - loaded on use
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    ensure_java()
    gateway: Any = launch_gateway()
    try:
        jvm = gateway.jvm
        for jar in jars:
            uri = f"ivy://{jar.group}:{jar.artifact}:{jar.version}?transitive=false"
            found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(jvm.java.net.URI(uri))
            for place in range(found.size()):
                shutil.copyfile(found.apply(place), into / jar.file)
    except Py4JJavaError as error:
        raise NotFetchedError(f"Spark's Ivy says: {str(error.java_exception)[:_TOLD]}") from error
    finally:
        # The JVM ends with its standard input.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _first_error(said: str) -> str:
    errors = [line.removeprefix("[ERROR]").strip() for line in said.splitlines() if line.startswith("[ERROR]")]
    return (next(filter(None, errors), None) or said.strip() or "nothing")[:_TOLD]
