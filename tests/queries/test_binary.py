"""Vectors of a wide binary table against the plain formulas, in any storage and cut into any parts."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.queries import binary as binary_module
from dualquery.queries.binary import (
    GRID,
    SHIFT,
    Axes,
    Balances,
    Binary,
    Centred,
    CentreSums,
    Classes,
    ClassSums,
    Clip,
    CrossSums,
    Lengths,
    SecondMoments,
    held_lengths,
)
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records, SparseItems, as_lists

WIDTH, ROWS = 70, 700
BLOCK = Domain((Items("item", WIDTH),))
MIXED = Domain(
    (*(Categorical(f"c{j}", ("no", "yes")) for j in range(9)), Items("a", 40), Items("b", WIDTH - 49))
)
RNG = np.random.default_rng(3)
X = (RNG.random((ROWS, WIDTH)) < RNG.random(WIDTH)).astype(np.int64)
ATTRIBUTES = np.sort(RNG.choice(WIDTH, 50, replace=False)).astype(np.int64)
FEW = ATTRIBUTES[::3]


def stored(domain: Domain, rows: np.ndarray, *, sparse: bool = False) -> Records:
    records = Records.from_rows(domain, rows)
    if not sparse:
        return records
    columns = [c if isinstance(c, np.ndarray) else as_lists(c, len(rows)) for c in records.columns]
    return Records(domain, len(rows), tuple(columns))


def axes(domain: Domain) -> Axes:
    directions = RNG.integers(-900, 900, (len(FEW), 3))
    return Axes(Binary(domain, FEW), RNG.integers(0, GRID + 1, len(FEW)), directions)


STORED = [(BLOCK, False), (BLOCK, True), (MIXED, False), (MIXED, True)]
stored_every_way = pytest.mark.parametrize(("domain", "sparse"), STORED, ids=str)


def countables(domain: Domain) -> list[tuple[object, np.ndarray]]:
    """Each with what the formulas say of the whole table."""
    binary, few, along = Binary(domain, ATTRIBUTES), Binary(domain, FEW), axes(domain)
    centres = RNG.integers(-40, 40, (4, 3))
    classes = Classes(along, centres)
    u = np.floor((GRID * X[:, FEW] - along.centre) @ along.directions / 2**SHIFT + 0.5).astype(int)
    group = np.argmin(((u[:, None, :] - centres) ** 2).sum(axis=2), axis=1)
    centre = RNG.integers(0, GRID + 1, (4, len(ATTRIBUTES)))
    y = GRID * X[:, ATTRIBUTES] - centre[group]
    flat = GRID * X[:, ATTRIBUTES] - centre[0]
    small = GRID * X[:, FEW] - centre[0, : len(FEW)]
    clip, clip_u = Clip(5, int(np.quantile((y**2).sum(axis=1), 0.6))), Clip(3, 900)

    def weights(vectors: np.ndarray, clip: Clip) -> np.ndarray:
        lengths = (vectors**2).sum(axis=1)
        fits = [max(w for w in range(clip.most + 1) if w * w * n <= clip.longest) for n in lengths.tolist()]
        return np.array(fits)[:, None]

    w, w_u, w_flat, w_small = (
        weights(v, c) for v, c in ((y, clip), (u, clip_u), (flat, clip), (small, clip))
    )
    edges = np.quantile((y**2).sum(axis=1), [0.2, 0.5, 0.9]).astype(int)
    held = np.array([3, 20, 30])
    counted = np.hstack([7 * w, w * y])
    by_class = np.array([counted[group == c].sum(axis=0) for c in range(4)])
    counted_u = np.hstack([2 * w_u, w_u * u])
    squares = ((w_u[:, 0] ** 2 * (u**2).sum(axis=1)) // 11).sum()
    by_centre = np.array([counted_u[group == c].sum(axis=0) for c in range(4)])
    moments = (w_small * small).T @ (w_small * small)
    return [
        (Balances(binary), (2 * X[:, ATTRIBUTES] - 1).sum(axis=0)),
        (
            Lengths(Centred(binary, centre, classes), edges),
            np.bincount(np.searchsorted(edges, (y**2).sum(axis=1)), minlength=4),
        ),
        (
            held_lengths(binary, held),
            np.bincount(np.searchsorted(held, X[:, ATTRIBUTES].sum(axis=1)), minlength=4),
        ),
        (
            SecondMoments(Centred(few, centre[:1, : len(FEW)]), clip),
            moments[np.triu_indices(len(FEW), 1)],
        ),
        (ClassSums(Centred(binary, centre, classes), clip, 7), by_class.ravel()),
        (ClassSums(Centred(binary, centre, classes), clip, 7, together=True), by_class.sum(axis=0)),
        (CentreSums(classes, clip_u, 2, 11), np.append(by_centre.ravel(), squares)),
        (
            CrossSums(Centred(binary, centre[:1]), clip, along, clip_u),
            ((w_flat * flat).T @ (w_u * u)).ravel(),
        ),
    ]


@stored_every_way
def test_sums_are_what_the_formulas_say(domain: Domain, sparse: bool) -> None:
    records = stored(domain, X, sparse=sparse)
    for countable, expected in countables(domain):
        found = countable.counts(records)
        assert found.dtype == np.int64
        assert found.tolist() == expected.tolist(), type(countable).__name__


@pytest.mark.parametrize("slab", [1 << 6, 1 << 20])
def test_parts_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch, slab: int) -> None:
    """Over parts of the table, and over slabs of records within a part."""
    monkeypatch.setattr(binary_module, "SLAB_BYTES", slab)
    monkeypatch.setattr(binary_module, "LEAST_ROWS", 64)
    parts = [stored(BLOCK, rows) for rows in (X[:1], X[1:130], X[130:])]
    for countable, expected in countables(BLOCK):
        assert sum(countable.counts(part) for part in parts).tolist() == expected.tolist()
        assert countable.counts(stored(BLOCK, X)).tolist() == expected.tolist()


def test_weights_are_the_largest_that_fit() -> None:
    rng = np.random.default_rng(0)
    for most, squared in ((1, 0), (1, 7), (64, 1), (16, 10**6), (64, 10**12), (3, 2**40)):
        clip = Clip(most, squared)
        lengths = np.concatenate([[0, 1, squared], rng.integers(0, 4 * squared + 9, 300)])
        for w, length in zip(clip.weights(lengths).tolist(), lengths.tolist(), strict=True):
            assert w * w * length <= most**2 * squared
            assert w == most or (w + 1) ** 2 * length > most**2 * squared


def test_bits_and_lists_are_the_same_records() -> None:
    dense, listed = stored(BLOCK, X), stored(BLOCK, X, sparse=True)
    assert isinstance(listed.columns[0], SparseItems)
    assert (dense.to_rows() == listed.to_rows()).all()
    assert (dense.to_rows() == X).all()
    none = as_lists(stored(BLOCK, X[:0]).columns[0], 0)
    assert none.start.tolist() == [0]
    assert len(none.ids) == 0
