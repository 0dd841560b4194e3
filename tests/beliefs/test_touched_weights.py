"""Weights over touched cells against weights that are all written out."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.beliefs.universes import TouchedLists, TouchedWeights
from dualquery.game import Heard
from dualquery.queries.lists import Catalogue, Lists
from dualquery.queries.workload import Workload
from dualquery.table.graph import codes_table


def test_implicit_is_explicit() -> None:
    """The same lists, heard in the same order, by a learner that holds every cell: to 10⁻¹²."""
    rng = np.random.default_rng(0)
    size = 1 << 12
    implicit, explicit = TouchedWeights(size), np.full(size, 1 / size)
    for _ in range(400):
        cells = rng.choice(size, int(rng.integers(1, 60)), replace=False)
        value = float(rng.random() ** 3)
        told = min(max(value, 1e-4), 1 - 1e-4)
        before = explicit[cells].sum()
        explicit[cells] *= told / (1 - told) * (1 - before) / before
        explicit /= explicit.sum()
        assert implicit.hear(cells.astype(np.uint64), value, 1e-4) == pytest.approx(
            abs(value - before), abs=1e-12
        )
    queries = [rng.choice(size, 50, replace=False) for _ in range(300)]
    start = np.arange(0, 50 * 300 + 1, 50)
    answers = implicit.answers(start, np.concatenate(queries).astype(np.uint64))
    np.testing.assert_allclose(answers, [explicit[cells].sum() for cells in queries], rtol=0, atol=1e-12)
    everything = implicit.answers(np.array([0, size]), np.arange(size, dtype=np.uint64))
    assert everything[0] == pytest.approx(1, abs=1e-12)


def test_a_step_from_next_to_nothing_arrives() -> None:
    weights = TouchedWeights(2.0**64)
    cells = np.random.default_rng(1).integers(0, 2**64, 100, dtype=np.uint64)
    weights.hear(cells, 0.3, 1e-9)
    assert weights.answers(np.array([0, 100]), cells)[0] == pytest.approx(0.3, abs=1e-12)
    assert weights.touched == 100
    other = np.random.default_rng(2).integers(0, 2**64, 100, dtype=np.uint64)
    assert weights.answers(np.array([0, 100]), other)[0] < 1e-15


def test_a_copy_stays_as_it_was() -> None:
    weights = TouchedWeights(2.0**64)
    cells = np.arange(5000, dtype=np.uint64)
    weights.hear(cells[:2500], 0.2, 1e-9)
    kept = weights.copy()
    weights.hear(cells[1000:], 0.9, 1e-9)  # the table grows on the way
    assert kept.answers(np.array([0, 2500]), cells[:2500])[0] == pytest.approx(0.2)
    assert kept.touched == 2500
    assert weights.touched == 5000


def test_lists_move_with_the_cells_that_they_share() -> None:
    """What lists hold, kept from round to round, against sums over all their cells."""
    rng, domain = np.random.default_rng(3), codes_table({"code": (0, 2**53)})
    sizes = rng.integers(1, 30, 60)
    cells = np.concatenate([np.sort(rng.choice(200, size, replace=False)) for size in sizes]).astype(
        np.uint64
    )
    start = np.concatenate([[0], np.cumsum(sizes)])
    named = np.unique(cells)
    group = Lists(domain, start, cells, ("a list",) * 60, Catalogue(named, named.astype(str)[:, None]))
    belief = TouchedLists(group, TouchedWeights(2.0**64), floor=1e-6)
    workload = Workload(domain, (group,), "lists")
    for query, value in zip(
        rng.integers(60, size=300).tolist(), (rng.random(300) ** 4).tolist(), strict=True
    ):
        before = belief.snapshot()
        told = before.answers(workload)
        belief.hear(Heard(query, value))
        np.testing.assert_array_equal(before.answers(workload), told)
    np.testing.assert_allclose(
        belief.answers(workload), belief.weights.answers(start, cells), rtol=1e-9, atol=1e-12
    )
