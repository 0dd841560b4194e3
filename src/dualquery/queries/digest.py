"""A name for what a workload asks: equal queries give equal digests, however they are stored.

Predicates are numbered anew by their contents, each in canonical form; literals are translated and
sorted within each query; padding is dropped. What is hashed is then the same for any numbering,
padding, integer type or order of literals.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.domain import Domain

PAD = np.iinfo(np.int32).max  # sorts behind every literal


class Digest:
    """SHA-256 of labelled parts. Label and shape stand in front: the bytes could be read back, so different queries
    have different bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, label: str, contents: bytes | memoryview, shape: tuple[int, ...]) -> None:
        self._hash.update(f"{label} {shape}\n".encode())
        self._hash.update(contents)

    def add_integers(self, label: str, array: NDArray[np.integer]) -> None:
        self.add(label, np.ascontiguousarray(array, dtype="<i4").data, array.shape)

    def add_text(self, label: str, text: str) -> None:
        contents = text.encode()
        self.add(label, contents, (len(contents),))

    def add_domain(self, domain: Domain) -> None:
        self.add_text("schema", _schema_text(domain))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


# What a code means; how cells are written, in the table or in the release, is no part of a question.
_MEANING = {
    "name", "values", "unknown", "missing", "ordered", "edges", "clamp", "integer", "by", "count", "first",
}  # fmt: skip


def _schema_text(domain: Domain) -> str:
    columns = []
    for column in domain.columns:
        fields = {key: value for key, value in asdict(column).items() if key in _MEANING}
        if "edges" in fields:
            fields["edges"] = [float(edge) for edge in fields["edges"]]
        columns.append([type(column).__name__, fields])
    return json.dumps(columns, sort_keys=True)


@dataclass(frozen=True)
class Numbering:
    """New numbers for the predicates in use: first those of one value, then the longer ones."""

    number: NDArray[np.int64]  # of each old predicate, where it is in use
    flipped: NDArray[np.bool_]  # whether the canonical predicate is the negation of the old one
    short: NDArray[np.int64]  # (attribute, value) by increasing number
    long: list[tuple[int, tuple[int, ...]]]  # (attribute, values) by increasing number

    def long_text(self) -> str:
        return json.dumps(self.long)


def numbering_of(predicates: Predicates, literals: NDArray[np.int32], domain: Domain) -> Numbering:
    """The numbering of the predicates that some literals use."""
    used = np.zeros(len(predicates) + 1, np.bool_)
    used[literals >> 1] = True  # padding, -1 >> 1 = -1, marks the last place, which is nobody's
    lengths = np.diff(predicates.start)
    sizes = domain.sizes[predicates.attribute]
    flipped = np.zeros(len(predicates), np.bool_)
    value = np.full(len(predicates), NONE, np.int64)

    ones = np.flatnonzero(used[:-1] & (lengths == 1))
    value[ones] = predicates.values[predicates.start[ones]]
    flipped[ones] = (sizes[ones] == 2) & (value[ones] == 0)
    value[flipped] = 1

    contents: dict[int, tuple[int, tuple[int, ...]]] = {}
    for p in np.flatnonzero(used[:-1] & (lengths != 1)).tolist():
        values, flipped[p] = _canonical_values(predicates, p, int(sizes[p]))
        if len(values) == 1:
            value[p] = values[0]
        else:
            contents[p] = (int(predicates.attribute[p]), values)

    number = np.zeros(len(predicates), np.int64)
    singles = np.flatnonzero(value != NONE)
    keys = (predicates.attribute[singles].astype(np.int64) << 32) | value[singles]
    short, number[singles] = np.unique(keys, return_inverse=True)
    long = sorted(set(contents.values()))
    places = {content: len(short) + i for i, content in enumerate(long)}
    for p, content in contents.items():
        number[p] = places[content]
    return Numbering(number, flipped, np.stack([short >> 32, short & (2**32 - 1)]), long)


def _canonical_values(predicates: Predicates, p: int, size: int) -> tuple[tuple[int, ...], bool]:
    values = np.unique(predicates.accepted(p))
    if 2 * len(values) > size or (2 * len(values) == size and values[0] == 0):
        return tuple(np.setdiff1d(np.arange(size), values).tolist()), True
    return tuple(values.tolist()), False


def canonical_rows(
    literals: NDArray[np.int32], flags: NDArray[np.bool_] | None, numbering: Numbering
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    translation = np.empty(2 * len(numbering.number) + 1, np.int32)
    translation[:-1:2] = 2 * numbering.number + numbering.flipped
    translation[1::2] = 2 * numbering.number + ~numbering.flipped
    translation[-1] = PAD  # padding, -1, reads the last place
    rows = sorted_rows(translation[literals])
    complement = np.zeros(len(rows), np.bool_) if flags is None else flags.copy()
    if complement.any():  # 1 − f is the negated literal
        alone = np.flatnonzero(complement & ((rows != PAD).sum(axis=1) == 1))
        rows[alone, 0] ^= 1
        complement[alone] = False
    return rows, complement


def sorted_rows(rows: NDArray[np.integer]) -> NDArray[np.int32]:
    """Each row sorted, and columns that hold nothing but padding dropped."""
    out = np.sort(rows.astype(np.int32, copy=False), axis=1)
    return out[:, : int((out != PAD).any(axis=0).sum())]
