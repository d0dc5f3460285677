"""Walk the newcomer's path: every command and file of docs/quickstart.md as printed, in a fresh clone.

    python -m tools.newcomer            # `make newcomer`

Files are written when the page says to save them, commands run in the order in which they stand, in one shell. While
`three_queries.py` runs, its page and its status are asked for. What is marked `not run` is left out and told.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

from tools.environments import say
from tools.pages import blocks

if TYPE_CHECKING:
    from tools.pages import Block

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "quickstart.md"
_LONGEST_S = 3600.0
_ADDRESS = re.compile(r"look at (http://127\.0\.0\.1:\d+)")


class NewcomerError(Exception):
    """A step of the page did not work."""


def main() -> int:
    argparse.ArgumentParser(description="Walk the newcomer's path: docs/quickstart.md as printed.").parse_args()
    began = time.monotonic()
    words = len(PAGE.read_text("utf-8").split())
    with tempfile.TemporaryDirectory(prefix="slackwater-newcomer-") as folder:
        say("git clone, of this working copy's last commit")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), "slackwater"], cwd=folder, check=True)
        try:
            walk(blocks(ROOT, PAGE), Path(folder))
        except NewcomerError as error:
            print(f"newcomer: {error}", file=sys.stderr)
            return 1
    say(f"every command of the quickstart works: {time.monotonic() - began:.0f} s; {words} words to read")
    return 0


def walk(path: list[Block], folder: Path) -> None:
    here = folder
    variables: list[str] = []
    for block in path:
        where = f"{block.page}:{block.line}"
        if block.reason is not None:
            say(f"{where}: not run: {block.reason}")
        elif block.language == "python" and block.file is not None:
            say(f"{where}: saving {block.file}")
            (here / block.file).write_text(block.code, "utf-8")
        elif block.language == "python" and block.replaces is not None:
            replace(here, block)
        elif block.language == "sh":
            for line in block.code.strip().splitlines():
                say(f"{where}: {line}")
                if line.startswith("cd "):
                    here = here / line.removeprefix("cd ")
                elif line.startswith("export "):
                    variables.append(line)
                else:
                    run(line, here, variables)
        else:
            raise NewcomerError(f"{where}: this block says neither where it is saved nor why it is not run.")


def replace(folder: Path, block: Block) -> None:
    file, text = block.replaces or ("", "")
    lines = (folder / file).read_text("utf-8").splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if text in line]
    if len(found) != 1:
        raise NewcomerError(f"{block.page}:{block.line}: {len(found)} lines of {file} have {text!r}, not one.")
    say(f"{block.page}:{block.line}: in place of line {found[0] + 1} of {file}")
    lines[found[0]] = block.code
    (folder / file).write_text("".join(lines), "utf-8")


def run(line: str, folder: Path, variables: list[str]) -> None:
    """In a shell; what it prints is shown, and an address that it prints is looked at."""
    script = "\n".join([*variables, line])
    started = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    deadline = time.monotonic() + _LONGEST_S
    if started.stdout is None:
        raise NewcomerError("no output to read")
    for printed in started.stdout:
        print(f"    {printed.rstrip()}", flush=True)
        if address := _ADDRESS.search(printed):
            look_at(address[1])
        if time.monotonic() > deadline:
            started.kill()
            raise NewcomerError(f"{shlex.quote(line)} took longer than {_LONGEST_S:.0f} s")
    if started.wait() != 0:
        raise NewcomerError(f"{line} ended with {started.returncode}")


def look_at(address: str) -> None:
    with urlopen(f"{address}/api/status", timeout=30) as answer:  # noqa: S310 - loopback, as matched
        status = json.load(answer)
    print(f"    (status: {', '.join(sorted(status))})", flush=True)
    try:
        with urlopen(f"{address}/", timeout=30) as answer:  # noqa: S310
            print(f"    (page: {answer.headers.get_content_type()}, {len(answer.read())} bytes)", flush=True)
    except URLError as error:
        raise NewcomerError(f"the page at {address}/ does not answer: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
