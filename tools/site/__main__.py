"""`python -m tools.site`: build the site into build/site, or say which links lead nowhere."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.site.build import BrokenLinksError, build

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation's site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    chosen = parser.parse_args()
    try:
        built = build(ROOT, chosen.out)
    except BrokenLinksError as error:
        print(error, file=sys.stderr)
        return 1
    for source in built.missing:
        print(f"==> not written yet: {source}")
    print(f"==> {built.pages} pages, {built.links} links checked: {chosen.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
