"""A store in figures, for whoever asks how it is. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.late.contents import Contents
    from slackwater.late.ledger import Ledger
    from slackwater.late.manifest import Manifest


def facts_of(known: Manifest, held: Contents, ledger: Ledger, *, quarantined_files: int) -> dict[str, Any]:
    windows = held.infos(ledger.purged)
    data = list(held.index.files.values())
    return {
        "kind": known.kind,
        "owner": known.owner,
        "format": known.format,
        "committed_batch": held.committed,
        "windows": len(windows),
        "rows": sum(info.rows for info in windows),
        "bytes": sum(info.bytes for info in windows),
        "files": len(data),
        "compacted_files": sum(file.replaces is not None for file in data),
        "disk_bytes": held.disk_bytes,
        "uncommitted_batches": sorted(held.uncommitted),
        "purged_windows": ledger.purged_windows,
        "purged_rows": ledger.purged_rows,
        "purged_before_ms": ledger.horizon.before if ledger.horizon else None,
        "dead_rows": sum(held.dead_counts().values()),
        "dead_files": len(held.dead),
        "emissions": sum(len(found) for found in ledger.emissions.values()),
        "quarantined_files": quarantined_files,
    }
