"""Rows of binary attributes in the basis of signed counts: the same game, move by move."""

from itertools import combinations

import numpy as np
import pytest

from dualquery.fitting.cpu import (
    BINARY_ATTRIBUTES,
    COMPILED,
    all_binary,
    binary_passes,
    signed_sums,
    table_passes,
)
from dualquery.fitting.fitter import Targets
from dualquery.queries.tables import centred
from dualquery.table.records import pack_bits

WIDTH = 6
SEEDS = np.array([7, 8], np.uint64)


def problem(seed, *, orders=(1, 2, 3)):
    """Tables, interactions of some triples, and a lean; and rows to start from."""
    rng = np.random.default_rng(seed)
    maker = Targets(np.full(WIDTH, 2, np.int64))
    for order in orders:
        for members in combinations(range(WIDTH), order):
            table = rng.dirichlet(np.ones(2**order)).reshape((2,) * order)
            if order < 3:
                maker.add_table(members, table, float(rng.uniform(0.5, 2)))
            elif rng.random() < 0.6:
                maker.add_interaction(members, centred(table), float(rng.uniform(0.5, 2)))
    maker.add_lean((0, 1), rng.normal(0, 1, (2, 2)), 0.002)
    maker.lean = {j: rng.dirichlet((2, 2)) for j in range(WIDTH)}
    return maker, rng.integers(0, 2, (2, 200, WIDTH)).astype(np.uint8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("orders", [(1,), (1, 2), (1, 2, 3)])
def test_without_heat_both_kernels_move_alike(seed, orders):
    targets, start = problem(seed, orders=orders)
    one, two = (kernel(targets, start, [0.0] * 3, SEEDS) for kernel in (table_passes, binary_passes))
    assert all(np.array_equal(*both) for both in zip(one, two, strict=True))


def test_with_heat_both_draw_from_the_same_distribution():
    targets, start = problem(1)
    means = []
    for kernel in (table_passes, binary_passes):
        rows = list(kernel(targets, start, [40.0] * 60, SEEDS))[10:]
        signs = 1.0 - 2.0 * np.concatenate(rows, axis=1).reshape(-1, WIDTH)
        products = [
            signs[:, list(s)].prod(axis=1).mean() for o in (1, 2, 3) for s in combinations(range(WIDTH), o)
        ]
        means.append(np.array(products))
    assert np.abs(means[0] - means[1]).max() < 0.02


def test_signed_sums_by_hand():
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, 30, 4)).astype(np.float32)
    one, two, three = (np.zeros((2, *[4] * order), np.float32) for order in (1, 2, 3))
    bits = np.stack([pack_bits(rows.T < 0) for rows in signs])
    signed_sums(0, 8, bits, 30, one, two, three)
    for chain in range(2):
        rows = signs[chain]
        np.testing.assert_allclose(one[chain], rows.sum(axis=0))
        np.testing.assert_allclose(two[chain], rows.T @ rows)
        for i, j, k in combinations(range(4), 3):
            expected = (rows[:, i] * rows[:, j] * rows[:, k]).sum()
            for a, b, c in ((i, j, k), (k, i, j), (j, i, k), (k, j, i)):
                assert three[chain, a, b, c] == expected


def test_which_rows_are_binary():
    assert all_binary(np.full(50, 2), 3)
    assert not all_binary(np.full(50, 2), 4)
    assert not all_binary(np.array([2, 3]), 2)
    assert not all_binary(np.full(BINARY_ATTRIBUTES + 1, 2), 3)
    targets, start = problem(0)
    assert COMPILED.fit(targets, start, [0.0], SEEDS).__name__ == "binary_passes"
