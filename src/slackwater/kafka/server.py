"""A broker's process: its settings, its command lines, and what its log says of a failure."""

from __future__ import annotations

import base64
import subprocess
import uuid
from typing import TYPE_CHECKING, Final

from slackwater.errors import KafkaError
from slackwater.kafka.jars import broker_jars, class_path, fetched

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.kafka.model import BrokerPlan

LOOPBACK: Final = "127.0.0.1"
MAIN: Final = "kafka.Kafka"
STARTED: Final = "Kafka Server started"
SETTINGS: Final = "server.properties"
DATA: Final = "data"

_FORMAT: Final = "kafka.tools.StorageTool"
_FORMAT_TIMEOUT_S: Final = 300.0
_LOG_LINES: Final = 15
_LOG_BYTES: Final = 20_000
# With its standard input at an end, whoever started the broker is gone: it is asked to end in order. The shell becomes
# Java, so that the process that was started is the broker's.
_ENDS_WITH_ITS_STARTER: Final = (
    # Another descriptor for it: of what a shell runs in the background, standard input is /dev/null.
    f'exec 3<&0; (cat <&3; grep -q {MAIN} /proc/$$/cmdline && kill $$) >/dev/null 2>&1 & exec "$@" </dev/null 3<&-'
)

_LOG4J: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%ex
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def settings(folder: Path, port: int, controller_port: int) -> str:
    """Broker and controller in one, alone, on loopback; a topic is there when somebody has made it."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / DATA),
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.bytes": str(64 * 1024 * 1024),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def prepare(folder: Path, java_home: Path, plan: BrokerPlan, port: int, controller_port: int) -> None:
    """Write its settings and, the first time, format its storage."""
    (folder / SETTINGS).write_text(settings(folder, port, controller_port), "utf-8")
    (folder / "log4j2.properties").write_text(_LOG4J, "utf-8")
    if (folder / DATA / "meta.properties").exists():
        return
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
    command = [*_java(folder, java_home, plan), _FORMAT, "format", "--config", str(folder / SETTINGS)]
    command += ["--cluster-id", cluster_id]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaError(f"formatting {folder / DATA} took longer than {_FORMAT_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise KafkaError(
            f"the broker's storage in {folder / DATA} could not be formatted: {(done.stderr or done.stdout)[-1000:]}"
        )


def start(folder: Path, java_home: Path, plan: BrokerPlan, log: Path, *, detached: bool) -> subprocess.Popen[bytes]:
    """The broker's process; that it runs does not mean yet that it serves.

    detached: it outlives this process and the terminal; otherwise it ends in order when this process does, however that
    happens.
    """
    command = [*_java(folder, java_home, plan), MAIN, str(folder / SETTINGS)]
    if not detached:
        command = ["/bin/sh", "-c", _ENDS_WITH_ITS_STARTER, "sh", *command]
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=detached,
        )


def died(log: Path) -> KafkaError:
    """The error for a broker that ended by itself, with the end of what it logged."""
    lines = read_log(log).splitlines()
    taken = any("Address already in use" in line or "BindException" in line for line in lines)
    advice = "Its port is taken: name another one, or none. " if taken else ""
    return KafkaError(f"the broker ended. {advice}The end of {log}:\n" + "\n".join(lines[-_LOG_LINES:]))


def read_log(log: Path) -> str:
    """Its end."""
    try:
        return log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
    except OSError as error:
        return f"(its log cannot be read: {error})"


def _java(folder: Path, java_home: Path, plan: BrokerPlan) -> list[str]:
    wanted = broker_jars()
    jars = class_path(wanted, fetched(wanted))
    return [
        str(java_home / "bin" / "java"),
        f"-Xmx{plan.heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        ":".join(map(str, jars)),
    ]
