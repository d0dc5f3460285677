"""Which commit a result comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit that this file is part of, with "-dirty" where it is changed; None outside a checkout."""
    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=False, timeout=10
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    found = git("rev-parse", "--short", "HEAD")
    if found is None:
        return None
    return f"{found}-dirty" if git("status", "--porcelain") else found
