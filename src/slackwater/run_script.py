"""What spark-submit runs in place of a script: `spark-submit … path/of/this/file [OPTIONS] SCRIPT.py [ARGUMENTS…]`.

`slackwater run --entry` prints the path.
"""

from __future__ import annotations

import sys


def main() -> None:
    # Python has put this file's folder first on the path: nothing of the package may stand there under a short name.
    from os.path import abspath, dirname  # noqa: PLC0415 - nothing else may be loaded before

    package = dirname(abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [entry for entry in sys.path if abspath(entry or ".") != package]  # noqa: PTH100
    sys.path.insert(0, "")  # the script's folder will take this place
    try:
        import slackwater  # noqa: F401, PLC0415
    except ImportError:
        sys.path.append(dirname(package))  # noqa: PTH120
    from slackwater.cli import main as cli  # noqa: PLC0415

    cli(["run", *sys.argv[1:]])


if __name__ == "__main__":
    main()
