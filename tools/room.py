"""Say so before `make setup` fills a disk: pip unpacks, builds and copies PySpark, each time whole."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

_PEAK_GB = 3.1  # measured, without what pip keeps for the next time
_NEEDED_GB = 4


def main() -> None:
    for folder in sorted({Path.cwd(), Path(tempfile.gettempdir())}):
        free_gb = shutil.disk_usage(folder).free / 1e9
        if free_gb < _NEEDED_GB:
            print(
                f"==> {folder} has {free_gb:.1f} GB left, and installing takes more than {_PEAK_GB} GB for a while: "
                "if it fails, make room and run it again",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
