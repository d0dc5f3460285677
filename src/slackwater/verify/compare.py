"""Two answers, row by row: what is missing, what is too much, and what is there with other values.

Answers are bags: order does not matter, repeats do. Floating-point numbers are equal when they differ by no more than
the order of a sum can make them differ; everything else must be the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from slackwater.errors import ConfigurationError
from slackwater.verify.model import Differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slackwater.verify.model import Row

RELATIVE_TOLERANCE = 1e-9
_NAN = ("not a number",)


def compare(expected: Iterable[Sequence[Any]], found: Iterable[Sequence[Any]], keys: Sequence[int] = ()) -> Differences:
    """`keys` are the places of the columns that name a row; without them no two rows are taken for the same one."""
    wanted, got = [_row(row) for row in expected], [_row(row) for row in found]
    missing = list((Counter(wanted) - Counter(got)).elements())
    surplus = list((Counter(got) - Counter(wanted)).elements())
    missing, surplus = _unlike(missing, surplus)
    different: list[tuple[Row, Row]] = []
    if keys:
        missing, surplus, different = _by_key(missing, surplus, keys)
    return Differences(
        expected_rows=len(wanted),
        found_rows=len(got),
        missing=tuple(sorted(missing, key=_order)),
        surplus=tuple(sorted(surplus, key=_order)),
        different=tuple(sorted(different, key=lambda pair: _order(pair[0]))),
    )


def places(keys: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Where these columns stand."""
    unknown = [key for key in keys if key not in columns]
    if unknown:
        raise ConfigurationError(f"the key {unknown[0]!r} is no column of the answer, which has {', '.join(columns)}.")
    return [columns.index(key) for key in keys]


def _row(row: Sequence[Any]) -> Row:
    return tuple(_frozen(value) for value in row)


def _frozen(value: Any) -> Any:
    """The value such that it can be counted; arrays, structs and maps as tuples, NaN equal to itself."""
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    if isinstance(value, dict):
        return tuple(sorted(((_frozen(key), _frozen(held)) for key, held in value.items()), key=_order))
    if isinstance(value, list | tuple):
        return tuple(_frozen(one) for one in value)
    return bytes(value) if isinstance(value, bytearray) else value


def _unlike(missing: list[Row], surplus: list[Row]) -> tuple[list[Row], list[Row]]:
    """Without those that differ only as sums of floating-point numbers may."""
    candidates: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in surplus:
        candidates[_skeleton(row)].append(row)
    still_missing = []
    for row in missing:
        alike = candidates[_skeleton(row)]
        match = next((place for place, other in enumerate(alike) if _close(row, other)), None)
        if match is None:
            still_missing.append(row)
        else:
            del alike[match]
    return still_missing, [row for rows in candidates.values() for row in rows]


def _skeleton(value: Any) -> Any:
    """The value without its floating-point numbers."""
    if isinstance(value, float):
        return float
    return tuple(_skeleton(one) for one in value) if isinstance(value, tuple) else value


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(_close(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE)
    return bool(left == right)


def _by_key(
    missing: list[Row], surplus: list[Row], keys: Sequence[int]
) -> tuple[list[Row], list[Row], list[tuple[Row, Row]]]:
    there: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in sorted(surplus, key=_order):
        there[_key(row, keys)].append(row)
    absent: list[Row] = []
    different: list[tuple[Row, Row]] = []
    for row in sorted(missing, key=_order):
        others = there[_key(row, keys)]
        if others:
            different.append((row, others.pop(0)))
        else:
            absent.append(row)
    return absent, [row for rows in there.values() for row in rows], different


def _key(row: Row, keys: Sequence[int]) -> Row:
    """A row that is too short has no such key, and is like no other."""
    return tuple(row[place] for place in keys) if max(keys) < len(row) else (None, row)


def _order(value: Any) -> Any:
    """Something that sorts whatever the values are: missing ones first, then by kind."""
    if isinstance(value, tuple):
        return (2, "", tuple(_order(one) for one in value))
    if value is None:
        return (0, "", 0)
    if isinstance(value, bool | int | float):
        return (1, "", value)
    return (1, type(value).__name__, value)
