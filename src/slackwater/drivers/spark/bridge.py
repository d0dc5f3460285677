"""The JVM side from Python: compile it with Spark's own Janino, talk to it in one call a tick."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from slackwater.drivers.spark import wire
from slackwater.errors import AttachError

if TYPE_CHECKING:
    from slackwater.core.model import Commands, QueryOptions, Report

_SOURCE = "SlackwaterGate.java"
_CLASS = "SlackwaterGate"
_WATCHDOG_TICK_S = 0.25


class SparkBridge:
    """One attached session."""

    def __init__(self, spark: Any, *, watchdog_s: float, enforce: bool, options: dict[str, QueryOptions]) -> None:
        self.options = options
        self.notes: list[str] = []
        self.opened = 0
        self.jvm_cpu_s = 0.0
        try:
            gate_class = _compile(spark)
            constructor = gate_class.getConstructors()[0]
            gateway = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public door to py4j
            arguments = gateway.new_array(gateway.jvm.java.lang.Object, 3)
            arguments[0] = spark._jsparkSession  # noqa: SLF001
            arguments[1] = max(2, round(watchdog_s / _WATCHDOG_TICK_S))
            arguments[2] = enforce
            self._gate = constructor.newInstance(arguments)
            try:
                self._gate.start()
            except Exception:
                self._gate.detach()
                raise
        except Exception as error:
            raise AttachError(
                f"Slackwater could not be put in place on Spark {spark.version}: {first_line(error)}. "
                "The session is as it was, plain Spark. Supported are 3.5 and 4.0 to 4.3; "
                "please report other versions with this message."
            ) from error

    def exchange(self, commands: Commands, *, decided: bool = True) -> Report:
        """Enact, wait until something happens or the time is up, and hear where every query stands.

        `decided` is False after trouble: such a call is no sign of life, so that gates open when it lasts.
        """
        answer = self._gate.exchange(wire.commands_json(commands), round(commands.wake_after_s * 1000), decided)
        seen = wire.decode(answer)
        self.notes.extend(seen.notes)
        self.opened = seen.opened
        self.jvm_cpu_s = seen.cpu_ns / 1e9
        return wire.report_of(seen, self.options)

    def wake(self) -> None:
        """Let an exchange that waits return now. From any thread."""
        self._gate.happened()

    def resync(self) -> None:
        """Close the gates, after a full report was understood."""
        self._gate.resync()

    def tell_task_times(self) -> None:
        """From now on reports tell what the tasks of batches took, a little after them."""
        try:
            self._gate.tellTaskTimes()
        except Exception as error:  # a trace is worth having without
            self.notes.append(f"what tasks take cannot be told: {first_line(error)}")

    def session_is_over(self) -> bool:
        return bool(self._gate.over())

    def kept(self) -> dict[str, int]:
        """How much the JVM side keeps, by name."""
        return wire.decode_kept(self._gate.kept())

    def detach(self) -> None:
        self._gate.detach()


def _compile(spark: Any) -> Any:
    """Under a name of its own each time: py4j remembers methods by their class's name, whatever its loader."""
    jvm = spark._jvm  # noqa: SLF001
    name = f"{_CLASS}_{uuid4().hex[:8]}"
    source = files(__package__).joinpath(_SOURCE).read_text("utf-8").replace(_CLASS, name)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name)


def first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", None)
    text = str(cause) if cause is not None else str(error)
    return text.splitlines()[0] if text else type(error).__name__
