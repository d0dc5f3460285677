"""State of each key that follows its rows in their order: what Spark's own aggregates cannot say.

A stream keeps the state from batch to batch (applyInPandasWithState); over static frames each key begins anew and sees
all its rows at once. The rows of a batch are sorted, so that the answer does not depend on how Spark hands them over.
It is the same for both as long as no row of a key comes in a later batch than one that sorts after it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    from pyspark.sql import DataFrame

    Step = Callable[[Any, Sequence[Any]], tuple[Any, list[tuple[Any, ...]]]]
    """(what is kept, rows in order) -> (what is kept from now on, rows to emit).

    What is kept is any JSON value; None at a key's first rows, and to forget the key. Rows have their columns as
    attributes; a NULL among doubles is NaN.
    """

STATE = "kept STRING"


def followed(rows: DataFrame, by: Sequence[str], order: Sequence[str], step: Step, columns: str) -> DataFrame:
    """What `step` emits for the rows of each key `by`, in the order of the columns `order`; `columns` is its DDL."""
    names = [column.split()[0] for column in columns.split(", ")]

    def emit(kept: Any, pieces: list[pd.DataFrame]) -> tuple[Any, pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415  # only workers need it

        together = pd.concat(pieces).sort_values(list(order))
        kept, emitted = step(kept, list(together.itertuples(index=False)))
        return kept, pd.DataFrame(emitted, columns=names)

    if not rows.isStreaming:

        def at_once(piece: pd.DataFrame) -> pd.DataFrame:
            return emit(None, [piece])[1]

        return rows.groupBy(*by).applyInPandas(at_once, columns)

    def batch(_key: tuple[Any, ...], pieces: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        kept, emitted = emit(json.loads(state.get[0]) if state.exists else None, list(pieces))
        if kept is not None:
            state.update((json.dumps(kept),))
        elif state.exists:
            state.remove()
        if len(emitted):
            yield emitted

    from pyspark.sql.streaming.state import GroupStateTimeout  # noqa: PLC0415

    return rows.groupBy(*by).applyInPandasWithState(batch, columns, STATE, "append", GroupStateTimeout.NoTimeout)
