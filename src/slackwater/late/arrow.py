"""The one place that imports pyarrow, so that its absence is said once and well."""

from __future__ import annotations

from slackwater.late.errors import MissingPyarrowError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingPyarrowError(
        f"late data needs pyarrow, which cannot be imported ({error}). Install it: pip install 'slackwater[late]'"
    ) from error

__all__ = ["pa", "pafs", "pc", "pq"]
