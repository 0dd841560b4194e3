"""Columns of a data frame whose cells are objects, each of a kind of its own.

Arrow takes the type of such a column from its first cells and bends the others to it, so that one record would decide
how all are read. Here each cell goes by itself to a place that its own class decides, and cells of one place stand
together in a typed array: a column of one kind is that array, one of several kinds a dense union of them. What reads
a union reads each of its arrays as a column of its own (`cells.by_kind`).

    texts       str, bytes of UTF-8, UUIDs
    typed       dates and times as ISO writes them (with a zone: what its clocks say, and the offset), and numbers
                that no other place holds: texts too, but not in the notation that the schema declares for texts
    truths      bool
    wholes      whole numbers of 64 bits
    decimals    Decimal, with at most 38 figures before and behind the point
    floats      float; singles those of 32 bits

A cell is missing where it is None, NaN, NaT or NA. Sources that keep cells of any type as texts (JSON, SQLite, Excel)
have the first two kinds (`apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import compress
from operator import not_
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.cells import TYPED, without_padding

_FIGURES = 38  # before the point of a decimal, and behind it
PLACES: dict[str, pa.DataType] = {
    "texts": pa.string(),
    TYPED: pa.string(),
    "truths": pa.bool_(),
    "wholes": pa.int64(),
    "decimals": pa.decimal256(2 * _FIGURES, _FIGURES),
    "floats": pa.float64(),
    "singles": pa.float32(),
}
_NOTHING = {"NoneType", "NAType", "NaTType"}

Placed = tuple[str, Any]  # the place of a cell, and what stands there


class Typed(str):
    """The canonical text of a cell that is no text."""

    __slots__ = ()


def apart(cells: Sequence[str | None]) -> pa.Array:
    """Texts and `Typed` texts as two kinds; dictionaries keep repeated cells once."""
    is_typed = [type(cell) is Typed for cell in cells]
    typed = np.array(is_typed, np.int8)
    offsets = np.where(typed, np.cumsum(typed, dtype=np.int32), np.cumsum(1 - typed, dtype=np.int32)) - 1
    texts = compress(cells, map(not_, is_typed)), compress(cells, is_typed)
    return _two_kinds(
        typed, offsets, [pa.array(list(some), pa.string()).dictionary_encode() for some in texts]
    )


def all_typed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that all write typed cells."""
    none = pa.array([], texts.type)
    return pa.chunked_array(
        [
            _two_kinds(np.ones(len(some), np.int8), np.arange(len(some), dtype=np.int32), [none, some])
            for some in (texts.chunks or [none])
        ]
    )


def _two_kinds(typed: NDArray[np.int8], offsets: NDArray[np.int32], children: list[pa.Array]) -> pa.Array:
    return pa.UnionArray.from_dense(pa.array(typed), pa.array(offsets), children, ["texts", TYPED])


def of_objects(cells: Sequence[Any], name: str, *, lists: bool) -> pa.Array:
    """Objects as a typed column, or as a union of some; with `lists` a list of ids is a cell, read as `3 1`."""
    try:
        return pa.array(
            cells, pa.string(), from_pandas=True
        )  # which texts become, missing cells, nothing else
    except (pa.ArrowException, TypeError, ValueError):
        pass
    held: dict[str, list[Any]] = {place: [] for place in PLACES}
    codes, offsets = np.zeros(len(cells), np.int8), np.zeros(len(cells), np.int32)
    number = {place: code for code, place in enumerate(PLACES)}
    try:
        placed = [("texts", _line(cell)) if lists and is_sequence(cell) else _placed(cell) for cell in cells]
        home = next((place for place, value in placed if value is not None), "texts")  # of missing cells
        for row, (place, value) in enumerate(placed):
            there = held[home if value is None else place]
            codes[row], offsets[row] = number[home if value is None else place], len(there)
            there.append(value)
        children = [pa.array(held[place], kind) for place, kind in PLACES.items()]
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        raise DataError(
            f"column '{name}' holds cells that are neither texts nor numbers nor dates; make each of them a text"
        ) from None
    used = [place for place in PLACES if held[place]]
    if len(used) == 1 and used != [TYPED]:
        return children[number[used[0]]]
    return pa.UnionArray.from_dense(pa.array(codes), pa.array(offsets), children, list(PLACES))


def is_sequence(cell: object) -> bool:
    return isinstance(cell, list | tuple | set | frozenset | np.ndarray)


def moment_text(moment: datetime | time) -> str:
    """A time as a typed one is written: without zeros at its end, with the offset of its zone where it has one."""
    text = str(moment if moment.tzinfo is None else moment.replace(tzinfo=None))
    bare = without_padding(text) if "." in text else text
    if moment.tzinfo is None:
        return bare
    return bare + ("Z" if str(moment.tzinfo) == "UTC" else moment.strftime("%z"))


def _placed(cell: Any) -> Placed:
    """Where a cell stands, by its class alone, and as what."""
    if type(cell).__name__ in _NOTHING:
        return "texts", None
    for kinds, place in _PLACE_OF:
        if isinstance(cell, kinds):
            return place(cell)
    raise TypeError


def _whole(cell: Any) -> Placed:
    number = int(cell)
    return ("wholes", number) if -(2**63) <= number < 2**63 else (TYPED, str(number))


def _decimal(cell: Decimal) -> Placed:
    if not cell.is_finite():
        return "floats", float(cell)
    _, figures, exponent = cell.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    fits = -exponent <= _FIGURES and len(figures) + exponent <= _FIGURES
    return ("decimals", cell) if fits else (TYPED, str(cell))


def _numpy_time(cell: Any) -> Placed:
    if np.isnat(cell):
        return "texts", None
    fine = cell.astype("datetime64[s]") if np.datetime_data(cell.dtype)[0] in ("h", "m") else cell
    return TYPED, without_padding(str(fine).replace("T", " "))


_PLACE_OF: tuple[tuple[Any, Callable[[Any], Placed]], ...] = (
    (str, lambda cell: ("texts", str(cell))),
    (bool | np.bool_, lambda cell: ("truths", bool(cell))),
    (int | np.integer, _whole),
    (np.float32, lambda cell: ("singles", cell)),
    (float | np.floating, lambda cell: ("floats", float(cell))),
    (Decimal, _decimal),
    (datetime | time, lambda cell: (TYPED, moment_text(cell))),
    (date, lambda cell: (TYPED, str(cell))),
    (UUID, lambda cell: ("texts", str(cell))),
    (np.datetime64, _numpy_time),
    (bytes, lambda cell: ("texts", cell.decode())),
)


def _line(cell: Any) -> str:
    """A list of item ids as a line of them."""
    ids = [_placed(each) for each in cell]
    if not all(place == "wholes" or (place == "floats" and value.is_integer()) for place, value in ids):
        raise TypeError
    return " ".join(str(int(value)) for _, value in ids)
