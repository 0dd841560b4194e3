"""Whose record a row is: at most K records of a person, or all rows of a basket as one record.

The schema's `unit` names the column that says it. That column is read, used here, and left behind: it is in no
domain and in no release. (Of a graph it may be one end of the edges: each belongs to its payer, whose name is public
as a vertex. Which edges there are is protected all the same.) An id is its canonical text (`cells`) without the
blanks around it, a whole number without its point and zeros, so that 17, 17.0 and "17 " are one person. A blank id
is nobody's: each such row is a person of its own. (Too few persons only hide more; a person under two ids is
protected less, and no program can know it.)

*At most K records of a person.* A person's records are sorted canonically, by their codes. Record j of them gets the
ticket mix(seed + jφ), where the seed is a hash of the id, and those with the K smallest tickets are kept. So what is
kept of a person depends on that person's id and records and on K, and on nothing else: not on how often others have
the same record, not on the order of the file. That is all that privacy needs (docs/schema.md). The tickets are for
accuracy: the first K in canonical order would favour small codes, and a choice by the records alone would drop the
same one from all persons with the same records.

*A unit that nobody named.* An id is no attribute: it tells who somebody is. Where it comes again, somebody has
several rows, and then a promise about one row is none about that person; the column is the `unit` (docs/schema.md).
That is for a person to say.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import distinct, is_mixed, is_text, texts_of, written
from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, ColumnCodes, SparseItems
from dualquery.table.toml_text import quoted

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_EXACT = 2.0**53  # from here on floats skip whole numbers
FEW = 20  # ids of places and kinds: regions, products
EACH = 100  # rows: an id with more is rather that of a place, unless its name says otherwise
_PERSON = (
    r"(patient|person|subject|client|customer|participant|respondent|employee|student|pupil|member|donor|user|"
    r"household|hh)"
)
_SHORT = r"(subj|cust|resp|emp|family|case|account|card)"
_ID = r"(id|key|uuid|guid|code)"
PERSONS = re.compile(
    rf"id|ids|uuid|guid|ssn|pid|uid|({_PERSON}|{_SHORT})[_\W]?{_ID}|id[_\W]?{_PERSON}", re.IGNORECASE
)
IDS = re.compile(
    rf"(?i:(^|[_\W])(id|ids|nr|no|number|key|uuid|guid|ssn|serial)$|^id[_\W]|^{_PERSON}$)|[a-z](Id|ID)$|^id(?=[A-Z])"
)


def check_unit(domain: Domain, unit: str | None, *, long: bool, drops_rows: bool) -> None:
    """Refuse a schema whose unit is released, and a long table that is more than units and items."""
    if unit is None:
        if long:
            raise SchemaError("[table]: 'long' needs 'unit', the column that says which rows are one record")
        return
    if not unit.strip():
        raise SchemaError("[table]: 'unit' must be the name of a column, and it is blank")
    if (long or unit not in domain.unit_columns) and unit.strip() in {
        column.name.strip() for column in domain.columns
    }:
        raise SchemaError(
            f"'{unit}' is both the unit and an attribute; a unit is never released, so remove one of them"
        )
    if long and (len(domain.columns) != 1 or not isinstance(domain.columns[0], Items) or drops_rows):
        raise SchemaError(
            "[table]: with 'long' a row is a unit and one item, so the schema must be one attribute with "
            "'count' and drop no rows"
        )


@dataclass(frozen=True)
class Owners:
    """Row r belongs to owner of[r]; the first owners have ids, those after them are rows with blank ids."""

    of: NDArray[np.int64]
    ids: pa.Array

    @property
    def number(self) -> int:
        return int(self.of.max(initial=-1)) + 1


def owners_of(cells: pa.ChunkedArray, name: str) -> Owners:
    if is_mixed(cells.type):
        cells = written(cells, name, lambda values, name: _canonical(values, name).to_pylist())
    held = distinct(cells, name)
    ids = _canonical(held.values, name).dictionary_encode()
    blank = ids.indices.is_null().to_numpy(zero_copy_only=False)
    place = ids.indices.fill_null(-1).to_numpy().astype(np.int64)
    place[blank] = -1
    of = np.append(place, -1)[held.index]
    alone = np.flatnonzero(of < 0)
    # Ids that stand in no row of the table (a source may list more than it uses) own nothing.
    of[alone] = len(ids.dictionary) + np.arange(len(alone))
    return Owners(of, ids.dictionary)


def _canonical(values: pa.Array, name: str) -> pa.Array:
    """The id that each cell spells, null where it is blank."""
    if pa.types.is_floating(values.type):
        floats = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        if (np.abs(floats) >= _EXACT).any():
            raise DataError(
                f"column '{name}' holds ids as floating-point numbers too large to be told apart; "
                "give ids as texts or as whole numbers"
            )
    texts = values if is_text(values.type) else pa.array(texts_of(values, name), pa.large_string())
    texts = pc.utf8_trim_whitespace(texts.cast(pa.large_string()))
    texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0*$", r"\1")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def kept_rows(owners: Owners, columns: tuple[ColumnCodes, ...], most: int) -> NDArray[np.int64]:
    """The rows that stay when everybody keeps at most so many records, in the order of the table."""
    if most < 1:
        raise DataError("a person keeps at least one record; give records per person as 1 or more")
    sizes = np.bincount(owners.of, minlength=owners.number)
    stays = sizes[owners.of] <= most
    rows = np.flatnonzero(~stays)
    if len(rows):
        rows = by_tickets(owners, columns, rows)
        stays[rows[places_of(owners.of[rows]) < most]] = True
    return np.flatnonzero(stays)


def by_tickets(
    owners: Owners, columns: tuple[ColumnCodes, ...], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Some rows, owner by owner, those of each by their tickets: an order that depends on its own rows alone."""
    order = np.lexsort((*_canonical_keys(columns, rows)[::-1], owners.of[rows]))
    rows = rows[order]  # owner by owner, the records of each sorted by their codes
    owner = owners.of[rows]
    place = places_of(owner)
    tickets = _mixed(_seeds(owners, owner) + place.astype(np.uint64) * _GOLDEN)
    return rows[np.lexsort((place, tickets, owner))]


def places_of(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each row among those of its owner, who stand together."""
    number = np.arange(len(owner))
    begins = np.append(True, owner[1:] != owner[:-1])
    return number - np.maximum.accumulate(np.where(begins, number, 0))


def _seeds(owners: Owners, owner: NDArray[np.int64]) -> NDArray[np.uint64]:
    needed, index = np.unique(owner, return_inverse=True)
    return hashes_of(owners.ids.take(pa.array(needed)), b"records kept")[index]


def hashes_of(ids: pa.Array, purpose: bytes) -> NDArray[np.uint64]:
    """64 bits for each id, the same on any machine; for another purpose others."""
    digests = (hashlib.blake2b(each.encode(), digest_size=8, person=purpose) for each in ids.to_pylist())
    return np.array([int.from_bytes(each.digest(), "big") for each in digests], np.uint64)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _canonical_keys(
    columns: tuple[ColumnCodes, ...], rows: NDArray[np.int64]
) -> list[NDArray[np.unsignedinteger]]:
    """Numbers by which records are sorted; equal where records are. Sets of items go by a hash of 128 bits."""
    keys: list[NDArray[np.unsignedinteger]] = []
    for codes in columns:
        if isinstance(codes, SparseItems):
            ends = zip(codes.start[rows].tolist(), codes.start[rows + 1].tolist(), strict=True)
            sets = (codes.ids[a:b].tobytes() for a, b in ends)
            digests = b"".join(hashlib.blake2b(each, digest_size=16).digest() for each in sets)
            halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
            keys += [halves[:, 0], halves[:, 1]]
        else:
            assert not isinstance(codes, BitItems), "encoding gives lists of items"
            keys.append(codes[rows])
    return keys


def baskets(owners: Owners, items: SparseItems, count: int) -> SparseItems:
    """One record an owner: all items of its rows, each once. Ids without a row have no record."""
    present, basket = np.unique(owners.of, return_inverse=True)
    key = np.unique(np.repeat(basket, np.diff(items.start)) * count + items.ids)
    start = np.searchsorted(key, np.arange(len(present) + 1) * count)
    return SparseItems(start.astype(np.int64), (key % count).astype(np.int32))


def looks_like_id(name: str) -> bool:
    return PERSONS.fullmatch(name.strip()) is not None or IDS.search(name.strip()) is not None


def repeats(name: str, number: int, rows: int) -> bool:
    """Whether so many ids in so many rows, under this name, are those of persons with several rows."""
    name = name.strip()
    if PERSONS.fullmatch(name):
        return 2 < number < rows
    return looks_like_id(name) and FEW < number < rows <= EACH * number


def no_unit(what: str, name: str) -> str:
    """The warning where nobody said whose row it is."""
    return (
        f"{what} '{name}' looks like the id of a person, and the schema names no unit: the promise is about one row, "
        f"not about somebody with several; if it is one, write unit = {quoted(name)} into [table] "
        '(docs/schema.md, "Persons with several records")'
    )
