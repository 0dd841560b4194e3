"""Which pictures the report shows: of every column, and of the pairs of attributes that go together most."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.tables import attribute_codes
from dualquery.releases import plots
from dualquery.table.domain import Items
from dualquery.table.records import BitItems, ColumnCodes, Records, SparseItems

MOST_COLUMNS = 60
MOST_BARS = 30
MOST_CELLS_A_SIDE = 24
MOST_ITEMS_IN_PAIRS = 12
PAIRS = 6
LEAST_BITS = 0.005  # below this nothing is to be seen


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    svg: str


def histograms(records: Records) -> list[Picture]:
    """The shares of the values of each column, and of a block of items the most frequent ones."""
    pictures = []
    for position, column in enumerate(records.domain.columns[:MOST_COLUMNS]):
        codes = records.columns[position]
        if isinstance(column, Items):
            shares = _item_counts(codes, column.count) / records.rows
            labels = _Labels(column.first, column.count)
        else:
            assert isinstance(codes, np.ndarray), "only blocks of items are stored otherwise"
            shares = np.bincount(codes, minlength=len(column.labels)) / records.rows
            labels = column.labels  # type: ignore[assignment]
        kept = np.arange(len(shares))
        caption = ""
        if len(shares) > MOST_BARS:
            kept = np.argsort(-shares, kind="stable")[:MOST_BARS]
            what = "items" if isinstance(column, Items) else "values"
            caption = f"the {MOST_BARS} most frequent of {len(shares):,} {what}"
        svg = plots.histogram([labels[int(i)] for i in kept], shares[kept], name=column.name)
        pictures.append(Picture(column.name, caption, svg))
    return pictures


@dataclass(frozen=True)
class _Labels:
    """The ids of a block of items, made on the way."""

    first: int
    count: int

    def __getitem__(self, item: int) -> str:
        return str(self.first + item)


def _item_counts(codes: ColumnCodes, count: int) -> NDArray[np.int64]:
    if isinstance(codes, SparseItems):
        return np.bincount(codes.ids, minlength=count)
    assert isinstance(codes, BitItems), "a block of items is sparse or bits"
    return np.bitwise_count(codes.words).sum(axis=1, dtype=np.int64)


def heat_maps(records: Records) -> list[Picture]:
    """The pairs with the strongest association in the synthetic records, strongest first."""
    domain = records.domain
    attributes = _candidates(records)
    codes = attribute_codes(records, attributes).astype(np.int64)
    sizes = [int(domain.sizes[j]) for j in attributes]
    ranked = []
    for a, b in combinations(range(len(attributes)), 2):
        joint = np.bincount(codes[a] * sizes[b] + codes[b], minlength=sizes[a] * sizes[b])
        ranked.append((information(joint.reshape(sizes[a], sizes[b])), a, b))
    ranked.sort(key=lambda entry: -entry[0])
    pictures = []
    for bits, a, b in ranked[:PAIRS]:
        if bits < LEAST_BITS:
            break
        if sizes[a] > sizes[b]:  # the longer list of values reads better downwards
            rows, columns = a, b
        else:
            rows, columns = b, a
        joint = np.bincount(codes[rows] * sizes[columns] + codes[columns], minlength=sizes[a] * sizes[b])
        shares = joint.reshape(sizes[rows], sizes[columns]) / records.rows
        names = (domain.name(attributes[rows]), domain.name(attributes[columns]))
        down, across = _largest(shares.sum(axis=1)), _largest(shares.sum(axis=0))
        svg = plots.heat_map(
            [domain.labels(attributes[rows])[i] for i in down],
            [domain.labels(attributes[columns])[i] for i in across],
            shares[np.ix_(down, across)],
            names=names,
        )
        pictures.append(Picture(f"{names[0]} × {names[1]}", f"{bits:.2f} bits in common", svg))
    return pictures


def information(joint: NDArray[np.integer]) -> float:
    """The mutual information of two attributes in bits, Σ p_ij log₂(p_ij / p_i p_j), corrected for its bias.

    From n records it is too large by (r − 1)(c − 1) / (2 n ln 2) on average when r and c values occur
    (Miller 1955). Rare values weigh little here, unlike in χ².
    """
    table = joint[joint.sum(axis=1) > 0][:, joint.sum(axis=0) > 0].astype(np.float64)
    n = float(table.sum())
    if n == 0:
        return 0.0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / n
    held = table > 0
    bits = float((table[held] * np.log2(table[held] / expected[held])).sum()) / n
    rows, columns = table.shape
    return max(0.0, bits - (rows - 1) * (columns - 1) / (2 * n * np.log(2)))


def _candidates(records: Records) -> list[int]:
    """All attributes that are columns of their own, and the most frequent items of blocks."""
    domain = records.domain
    attributes: list[int] = []
    for position, column in enumerate(domain.columns[:MOST_COLUMNS]):
        first = domain.starts[position]
        if isinstance(column, Items):
            counts = _item_counts(records.columns[position], column.count)
            attributes += [first + int(i) for i in np.argsort(-counts, kind="stable")[:MOST_ITEMS_IN_PAIRS]]
        elif len(column.labels) <= 1000:
            attributes.append(first)
    return attributes


def _largest(shares: NDArray[np.float64]) -> list[int]:
    """The values with the largest shares, as many as a picture has room for, in their own order."""
    kept = np.argsort(-shares, kind="stable")[:MOST_CELLS_A_SIDE]
    return sorted(int(i) for i in kept)
