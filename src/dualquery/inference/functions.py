"""Functions that a user hands in: which columns they read, and the numbers that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.errors import QueryError
from dualquery.types import Reals

Function = Callable[[Any], Any]
READS_NOTHING = "the function reads no column of its frame; say which it reads, columns=[...]"
LOOKED_AT = 2_000  # rows, to find out what a function reads


def numbers_of(function: Function, table: pa.Table) -> tuple[list[str], Reals]:
    """What a function makes of a table as a pandas frame: names and numbers; not a number stays one."""
    try:
        found = function(table.to_pandas())
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise QueryError(
            f"the function failed with {said}; it is given a pandas frame with the columns "
            f"{', '.join(table.column_names[:12])}"
        ) from None
    names, values = _named(found)
    if not names:
        raise QueryError(
            "the function gave no numbers; it should return a number, or a dict of numbers by name"
        )
    return names, values


def _named(found: Any) -> tuple[list[str], Reals]:
    """A number, a mapping (or pandas series) of numbers by name, or some numbers in a row."""
    if hasattr(found, "to_dict") and not isinstance(found, Mapping):
        if getattr(found, "ndim", 1) != 1:
            raise QueryError(
                "the function gave a frame, and should return a number, or a dict or series of numbers by name"
            )
        found = found.to_dict()
    if isinstance(found, Mapping):
        pairs = [(_name(key), value) for key, value in found.items()]
    elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
        values = list(np.ravel(np.asarray(list(found), dtype=object)))
        pairs = [(f"value_{number}", value) for number, value in enumerate(values, start=1)]
    else:
        pairs = [("value", found)]
    return [name for name, _ in pairs], np.array([_number(name, value) for name, value in pairs])


def _name(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _number(name: str, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, Real | np.bool_):
        return float(value) if isfinite(value) else float("nan")
    raise QueryError(
        f"the function gave {type(value).__name__} for '{name}'; it should return a number, or a dict "
        "of numbers by name"
    )


def columns_read(function: Function, table: pa.Table) -> list[str]:
    """The columns without which the function fails or says something else, in the order of the table."""
    some = table.slice(0, LOOKED_AT)
    names, values = numbers_of(function, some)
    read = []
    for column in some.column_names if some.num_columns > 1 else []:
        try:
            said, found = numbers_of(function, some.drop_columns([column]))
        except QueryError:
            read.append(column)
            continue
        if said != names or not np.array_equal(found, values, equal_nan=True):
            read.append(column)
    if some.num_columns == 1:
        read = list(some.column_names)
    if not read:
        raise QueryError(READS_NOTHING)
    return read


def takes_part(function: Function, table: pa.Table, columns: list[str]) -> bool:
    """Whether the function says the same of these columns alone."""
    some = table.slice(0, LOOKED_AT)
    try:
        names, values = numbers_of(function, some)
        said, found = numbers_of(function, some.select(columns))
    except QueryError:
        return False
    return said == names and np.array_equal(found, values, equal_nan=True)


def aligned(first: list[str], names: list[str], values: Reals) -> Reals:
    """The numbers under the names that came first; not a number where one did not come."""
    if names == first:
        return values
    found = dict(zip(names, values.tolist(), strict=True))
    return np.array([found.get(name, np.nan) for name in first])
