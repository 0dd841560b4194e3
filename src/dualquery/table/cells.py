"""The cells of an Arrow column as texts and as numbers, whatever type the source gave them.

The same table must encode alike from CSV, Parquet or a data frame, so a cell of any type has one
canonical text: an integer in decimals, a float as the shortest decimals that read the same with
whole numbers written without a point (1.0 is `1`), a truth value as `true` or `false`, a date in
ISO form, decimals and times without the zeros at the end of their fraction: how many there are may
depend on the other cells of the column. Where that text is not a listed value, close spellings of it
may be (`spellings`).

*Columns of several kinds.* The cells of a data frame may be objects. Arrow takes the type of such a column from its
first cells and bends the others to it, so that one record would decide how all are read. Here each cell goes by
itself to a place that its own class decides, and cells of one place stand together in a typed array: a column of
one kind is that array, one of several kinds a dense union of them. What reads a union reads each of its arrays as a
column of its own (`by_kind`).

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

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import compress
from operator import not_
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.loops import njit

TYPED = "typed"  # the kind of texts that write what is a number or a date in the source
_FEW = 255  # whole numbers between the least and the largest of a column
FEW_BINS = 64  # a comparison with each edge is faster than a bisection for each number
AT_ONCE = 2048  # numbers that stay in the nearest cache
FEW_CELLS = 1 << 18  # cells that numpy looks up in less time than it takes to load compiled loops
_WHOLE = re.compile(r"(-?[0-9]+)(\.0*)?")
_PADDING = re.compile(r"(\.[0-9]*[1-9])0+(?![0-9])|\.0+(?![0-9])")
_TRUTHS = {"true": ("true", "True", "TRUE", "1"), "false": ("false", "False", "FALSE", "0")}
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


@dataclass(frozen=True)
class Distinct:
    """A column as its distinct cells: row r holds values[index[r]], and is empty at index len(values)."""

    values: pa.Array
    index: NDArray[np.integer]


def is_numeric(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind) or of.is_boolean(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_mixed(kind: pa.DataType) -> bool:
    """Whether each cell has a kind of its own."""
    return bool(pa.types.is_union(kind) and kind.mode == "dense")


def plain(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same cells without the types that few functions know: views, runs and extensions."""
    kind = cells.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(cells.cast(kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        return plain(pa.chunked_array([pc.run_end_decode(part) for part in cells.chunks], kind.value_type))
    if pa.types.is_string_view(kind):
        return cells.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return cells.cast(pa.large_binary())
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        values = [chunk.dictionary.cast(pa.large_string()) for chunk in cells.chunks]
        pairs = zip(cells.chunks, values, strict=True)
        chunks = [pa.DictionaryArray.from_arrays(chunk.indices, each) for chunk, each in pairs]
        return pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.large_string()))
    return cells


def distinct(cells: pa.ChunkedArray, name: str) -> Distinct:
    """The distinct cells of a column. Some may occur in no row: a source may list more than it uses."""
    if (near := near_numbers(cells)) is not None:
        return near
    if is_mixed(cells.type):
        cells = written(cells, name, texts_of)
    try:
        if not pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        chunks = cells.unify_dictionaries().chunks
    except pa.ArrowException:
        raise DataError(f"the cells of column '{name}' are neither texts nor numbers") from None
    if not chunks:
        return Distinct(pa.array([], cells.type.value_type), np.empty(0, np.int64))
    values = chunks[0].dictionary
    return Distinct(values, np.concatenate([_positions(chunk.indices, len(values)) for chunk in chunks]))


def by_kind(cells: pa.ChunkedArray) -> Iterator[tuple[str, NDArray[np.int64], pa.ChunkedArray]]:
    """The arrays of a column of several kinds: the name of each kind, the rows that its cells stand in, the cells."""
    first = 0
    for chunk in cells.chunks:
        if not len(chunk):
            continue
        # `type_codes` and `offsets` of a slice are those of the whole.
        _, codes_held, offsets_held, *_ = chunk.buffers()
        codes = np.frombuffer(codes_held, np.int8, len(chunk), chunk.offset)
        offsets = np.frombuffer(offsets_held, np.int32, len(chunk), 4 * chunk.offset)
        for place, code in enumerate(chunk.type.type_codes):
            here = np.flatnonzero(codes == code)
            if len(here):
                some = chunk.field(place).take(pa.array(offsets[here]))
                yield chunk.type.field(place).name, first + here, pa.chunked_array([some])
        first += len(chunk)


def written(
    cells: pa.ChunkedArray, name: str, texts: Callable[[pa.Array, str], list[str | None]]
) -> pa.ChunkedArray:
    """The cells of a column of several kinds as texts, each as its own kind is written."""
    out = np.empty(len(cells), object)
    for _, rows, part in by_kind(cells):
        held = distinct(part, name)
        out[rows] = np.array([*texts(held.values, name), None], object)[held.index]
    return pa.chunked_array([pa.array(out, pa.large_string())])


def as_numpy(numbers: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers of Arrow; NaN for null. (`to_numpy` would import pandas, where it is installed.)"""
    if numbers.null_count:
        return numbers.to_numpy(zero_copy_only=False)
    if isinstance(numbers, pa.ChunkedArray):
        return np.concatenate(
            [np.from_dlpack(chunk) for chunk in numbers.chunks or [pa.nulls(0, numbers.type)]]
        )
    return np.from_dlpack(numbers)


def from_numpy(numbers: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """The way back, with nulls where they are missing: what `pa.array` does, without pandas."""
    valid = None if missing is None or not missing.any() else np.packbits(~missing, bitorder="little")
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def from_texts(texts: Sequence[str]) -> pa.Array:
    each = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, each)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(each), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(each))]
    )


def near_numbers(cells: pa.ChunkedArray) -> Distinct | None:
    """All whole numbers between the least and the largest of a column, where they are few: nothing to hash."""
    if not pa.types.is_integer(cells.type) or cells.null_count or not len(cells):
        return None
    parts = [as_numpy(chunk) for chunk in cells.chunks if len(chunk)]
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if most - least >= _FEW or most >= 1 << 63:
        return None
    # Whole numbers of any type wrap around at 256 alike.
    index = [part.astype(np.uint8) - np.uint8(least % 256) for part in parts]
    values = from_numpy(np.arange(least, most + 1)).cast(cells.type)
    return Distinct(values, index[0] if len(index) == 1 else np.concatenate(index))


def _positions(indices: pa.Array, empty: int) -> NDArray[np.integer]:
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(empty)
    return as_numpy(indices).astype(np.uint8 if empty <= _FEW else np.int64, copy=False)


def texts_of(values: pa.Array, name: str) -> list[str | None]:
    """The canonical text of each value; None for null and NaN."""
    if is_text(values.type):
        return values.to_pylist()
    if is_mixed(values.type):
        return written(pa.chunked_array([values]), name, texts_of).to_pylist()
    if pa.types.is_integer(values.type):
        return [None if x is None else str(x) for x in values.to_pylist()]
    if pa.types.is_decimal(values.type):  # Arrow writes small ones, and 0 of many decimals, with an exponent
        return [None if x is None else without_padding(f"{x:f}") for x in values.to_pylist()]
    try:
        texts = values.cast(pa.string()).to_pylist()
    except pa.ArrowException:
        raise DataError(f"the cells of column '{name}' are neither texts nor numbers") from None
    if has_padding(values.type):
        return [None if text is None else without_padding(text) for text in texts]
    if not pa.types.is_floating(values.type):
        return texts
    return [
        None if x is None or x != x else str(int(x)) if x.is_integer() and abs(x) < 2**53 else text
        for x, text in zip(values.to_pylist(), texts, strict=True)
    ]


def has_padding(kind: pa.DataType) -> bool:
    """Whether cells of this type are written with as many decimals as the type has."""
    return bool(pa.types.is_decimal(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date(kind)))


def without_padding(text: str) -> str:
    """A text without the zeros that end its fraction: `1.50` is `1.5`, `12:00:00.000Z` is `12:00:00Z`."""
    return _PADDING.sub(r"\1", text)


def spellings(text: str) -> Iterator[str]:
    """The ways in which a list of values may spell a cell, the closest first.

    As it is; without the blanks around it; a whole number without its point and zeros; a truth value
    in its usual capitals or as 1 and 0.
    """
    yield text
    trimmed = text.strip()
    yield trimmed
    if whole := _WHOLE.fullmatch(trimmed):
        yield "0" if whole[1] == "-0" else whole[1]
    yield from _TRUTHS.get(trimmed.lower(), ())


def numbers_of(values: pa.Array, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each value as a number, NaN where it is empty, and whether it is no number at all."""
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan), np.zeros(len(values), np.bool_)
    if is_numeric(values.type):
        return floats_of(values), np.zeros(len(values), np.bool_)
    trimmed = pc.utf8_trim_whitespace(pa.array(texts_of(values, name), pa.large_string()))
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.large_string()), trimmed)
    try:
        floats = as_numpy(trimmed.cast(pa.float64()))
        return floats, np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        # Only a table that is about to be refused, or that says "?" for missing, comes this slow way.
        each = [number_in(text) if text is not None else np.nan for text in trimmed.to_pylist()]
        floats = np.array([np.nan if x is None else x for x in each])
        return floats, np.array([x is None for x in each], np.bool_)


def floats_of(cells: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Cells that are numbers, as the nearest floats; NaN where empty.

    Decimals go by their text: divided by their power of ten they would be rounded twice, and differently for
    each number of decimals, which other cells may have a say in.
    """
    if pa.types.is_decimal(cells.type):
        cells = cells.cast(pa.string())
    return as_numpy(cells.cast(pa.float64(), safe=False))


def number_in(text: str) -> float | None:
    try:
        return float(pa.scalar(text.strip()).cast(pa.float64()).as_py())
    except pa.ArrowInvalid:
        return None


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
    none = pa.array([], texts.type)

    def typed(some: pa.Array) -> pa.Array:
        return _two_kinds(np.ones(len(some), np.int8), np.arange(len(some), dtype=np.int32), [none, some])

    return pa.chunked_array([typed(some) for some in (texts.chunks or [none])])


def _two_kinds(typed: NDArray[np.int8], offsets: NDArray[np.int32], children: list[pa.Array]) -> pa.Array:
    return pa.UnionArray.from_dense(pa.array(typed), pa.array(offsets), children, ["texts", TYPED])


def of_objects(cells: Sequence[Any], name: str, *, lists: bool) -> pa.Array:
    """Objects as a typed column, or as a union of some; with `lists` a list of ids is a cell, read as `3 1`."""
    try:  # texts and missing cells, nothing else
        return pa.array(cells, pa.string(), from_pandas=True)
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
    ids = [_placed(each) for each in cell]
    if not all(place == "wholes" or (place == "floats" and value.is_integer()) for place, value in ids):
        raise TypeError
    return " ".join(str(int(value)) for _, value in ids)


def looked_up(codes: NDArray[np.int64], index: NDArray[np.integer]) -> NDArray[np.signedinteger]:
    """codes[index], in the smallest type that holds the codes and the reasons why a cell has none."""
    small = codes.astype(signed_type(int(codes.max(initial=0))))
    bytes_both = index.dtype == np.uint8 and small.dtype == np.int8
    if len(index) <= FEW_CELLS or not bytes_both or int(index.max(initial=0)) >= len(codes):
        return np.take(small, index)
    table = np.zeros(256, np.int8)
    table[: len(small)] = small[:256]
    found = np.empty(len(index), np.int8)
    _take_bytes(table, index, found)
    return found


def bins_of(edges: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.signedinteger]:
    """The bin of each number, those beyond the ends in the nearest: how many inner edges are at most the number.

    What NaN gets is for the caller to replace.
    """
    bins = len(edges) - 1
    if bins > FEW_BINS or len(numbers) <= FEW_CELLS:
        return np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, bins - 1)
    codes = np.zeros(len(numbers), np.int8)
    _add_passed(edges[1:-1], numbers, codes)
    return codes


@njit(cache=True)
def _take_bytes(table, index, found):  # type: ignore[no-untyped-def]
    for i in range(len(index)):
        found[i] = table[index[i]]


@njit(cache=True)
def _add_passed(edges, numbers, codes):  # type: ignore[no-untyped-def]
    """To each code the number of edges that its number has passed."""
    for first in range(0, len(numbers), AT_ONCE):
        some, found = numbers[first : first + AT_ONCE], codes[first : first + AT_ONCE]
        for edge in edges:
            for i in range(len(some)):
                found[i] += some[i] >= edge


def signed_type(largest: int) -> Any:
    """The smallest signed type that holds codes up to this one, and the reasons why a cell has none."""
    return np.int8 if largest < 1 << 7 else np.int16 if largest < 1 << 15 else np.int64
