"""The command line: `slackwater COMMAND`. Exit 2 on wrong usage, 1 on failure."""

from __future__ import annotations

import json
import logging
import os
import sys
import textwrap
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations
from typing import Annotated, Any

from cyclopts import App, Parameter

from slackwater import __version__
from slackwater.bench.advise_commands import bench_advise, bench_recording
from slackwater.bench.chain_commands import bench_chain
from slackwater.bench.commands import bench_command
from slackwater.bench.engines_commands import bench_engines
from slackwater.bench.experiment_commands import (
    bench_beside,
    bench_classes,
    bench_hosts,
    bench_kills,
    bench_memory,
    bench_middleware_cost,
    bench_supervision,
)
from slackwater.bench.late_commands import bench_late
from slackwater.bench.mix_commands import bench_mix
from slackwater.bench.produce_command import produce
from slackwater.bench.scale_commands import bench_scale
from slackwater.chaos.commands import chaos
from slackwater.cluster.commands import cluster
from slackwater.config.commands import config
from slackwater.control.commands import COMMANDS as CONTROL
from slackwater.drivers.spark.run_command import run
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.extras import explained
from slackwater.kafka.commands import kafka
from slackwater.late.commands import late
from slackwater.middleware.commands import middleware
from slackwater.recording.commands import trace
from slackwater.replay.commands import advise, replay
from slackwater.sim.commands import sim
from slackwater.telemetry.commands import grafana
from slackwater.verify.commands import verify
from slackwater.workloads.registry import WORKLOADS

app = App(
    name="slackwater",
    version=__version__,
    help="Progress-aware scheduling for many Spark Structured Streaming queries.",
)
bench = App(name="bench", help="Measure policies against plain Spark, each in a fresh Spark process.")
app.command(bench)
for workload in WORKLOADS:
    bench.command(bench_command(workload), name=workload)
bench.command(bench_mix, name="mix")
bench.command(bench_scale, name="scale")
bench.command(bench_classes, name="classes")
bench.command(bench_memory, name="memory")
bench.command(bench_beside, name="beside")
bench.command(bench_supervision, name="supervision")
bench.command(bench_hosts, name="hosts")
bench.command(bench_middleware_cost, name="middleware-cost")
bench.command(bench_engines, name="engines")
bench.command(bench_kills, name="kills")
bench.command(bench_late, name="late")
bench.command(bench_chain, name="chain")
bench.command(bench_advise, name="advise")
bench.command(bench_recording, name="recording")
app.command(sim)
app.command(verify)
app.command(chaos)
app.command(late)
app.command(middleware)
app.command(cluster)
app.command(config)
kafka.command(produce)
app.command(kafka)
for steering in CONTROL:
    app.command(steering)
app.command(run)
app.command(grafana)
app.command(trace)
app.command(replay)
app.command(advise)


@app.command
def demo(*, fast: bool = False, queries: int = 12, serve: bool = False, out: Path | None = None) -> None:
    """Run YSB queries on local Spark alone, then with Slackwater, and compare.

    Parameters
    ----------
    fast
        About two minutes instead of four.
    queries
        Number of queries.
    serve
        Open the live page in the second half, and say where it is.
    out
        Folder for the report; `out/demo` when not given.
    """
    from slackwater.demo import run_demo  # noqa: PLC0415 - Spark is loaded on use

    run_demo(fast=fast, queries=queries, serve=serve, out=out)


@app.command
def policies(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> None:
    """List the policies that attach() and bench know."""
    from slackwater.policies.registry import describe, known_policies  # noqa: PLC0415

    found = {name: describe(name) for name in known_policies()}
    if as_json:
        print(json.dumps([{"name": name, "about": about} for name, about in found.items()], indent=1))
        return
    for name, about in found.items():
        print(f"{name:14} {about}")


@app.command
def doctor(
    *,
    conf: Annotated[tuple[str, ...], Parameter(name="--conf", negative=())] = (),
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Say which Java is used and which settings of a Spark session cost latency, with what each would bring.

    Parameters
    ----------
    conf
        A setting `key=value` of the session to examine, as given to spark-submit; may be repeated.
    as_json
        Print facts as JSON.
    """
    from dataclasses import asdict  # noqa: PLC0415

    from slackwater.drivers.spark.doctor import examine, session_facts  # noqa: PLC0415
    from slackwater.drivers.spark.java import ensure_java  # noqa: PLC0415

    java = ensure_java()
    spark = _examined_session(conf)
    try:
        facts = session_facts(spark)
        findings = examine(facts)
    finally:
        spark.stop()
    if as_json:
        chosen = {"home": str(java.home), "version": java.version, "origin": java.origin, "note": java.note}
        report = {"java": chosen, "session": asdict(facts), "findings": [asdict(f) for f in findings]}
        print(json.dumps(report, indent=1, default=_plain))
        return
    print(f"Java {java.version} from {java.origin}: {java.home}" + (f" ({java.note})" if java.note else ""))
    print(f"Spark {facts.spark_version}, master {facts.master}, {facts.cores} cores")
    if not findings:
        print("No setting of this session costs latency, as far as Slackwater knows.")
    for number, finding in enumerate(findings, 1):
        applied = "attach(tune=True) sets it" if finding.safe_to_apply else "yours to decide"
        print(f"\n{number}. {finding.setting}: {finding.found}   [{applied}]")
        for line in (finding.advice, f"What it brings: {finding.gain}."):
            print(textwrap.fill(line, 100, initial_indent="   ", subsequent_indent="   "))


@app.command
def java() -> None:
    """Print the JAVA_HOME on which Slackwater starts Spark, for applications that start it themselves."""
    from slackwater.drivers.spark.java import find_java  # noqa: PLC0415

    choice = find_java()
    print(choice.home)
    if choice.note:
        print(f"slackwater: {choice.note}", file=sys.stderr)


@bench.command(name="report")
def bench_report(*files: Path, out: Path | None = None) -> None:
    """Draw results as PNG and SVG and write one self-contained HTML page.

    Parameters
    ----------
    files
        Result files of `slackwater bench`.
    out
        Folder for pictures and page; `out/report` when not given.
    """
    from pathlib import Path as _Path  # noqa: PLC0415

    from slackwater.bench.report import write_report  # noqa: PLC0415

    if not files:
        raise ConfigurationError("no result file was given: slackwater bench report FILE… --out DIR")
    paths = write_report(list(files), out or _Path("out/report"))
    print(f"page: {paths.page}")
    print(f"summary picture: {paths.summary}")


def _examined_session(conf: tuple[str, ...]) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("slackwater-doctor").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--conf {setting!r}: give key=value, as spark-submit takes it.")
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def main(arguments: list[str] | None = None) -> None:
    if (sys.argv[1:] if arguments is None else arguments)[:1] != ["run"]:  # the script's logging is its own business
        logging.basicConfig(level=logging.WARNING, format="slackwater: %(message)s")
        logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        app(arguments)
    except ConfigurationError as error:
        print(f"slackwater: {error}", file=sys.stderr)
        sys.exit(2)
    except SlackwaterError as error:
        print(f"slackwater: {error}", file=sys.stderr)
        sys.exit(1)
    except ImportError as error:
        if (missing := explained(error)) is None:
            raise
        print(f"slackwater: {missing}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
