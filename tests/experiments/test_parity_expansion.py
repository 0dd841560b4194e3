"""Theorem A.2 against a direct count."""

from itertools import combinations, product

import numpy as np
import pytest

from dualquery.errors import QueryError
from experiments.parity_expansion import cell_from_parities


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_every_cell_follows_from_parities(k):
    rng = np.random.default_rng(k)
    rows = (rng.random((500, 5)) < rng.random(5)).astype(int)
    even = {
        members: np.mean(rows[:, members].sum(axis=1) % 2 == 0)
        for size in range(1, k + 1)
        for members in combinations(range(5), size)
    }
    for attributes in combinations(range(5), k):
        for values in product((0, 1), repeat=k):
            direct = np.mean(np.all(rows[:, attributes] == values, axis=1))
            assert cell_from_parities(even, attributes, values) == pytest.approx(direct, abs=1e-12)


def test_errors_do_not_grow():
    """Parities wrong by at most α, as fractions of ±1, give cells wrong by at most α."""
    rng = np.random.default_rng(0)
    exact = {m: 0.5 for size in (1, 2, 3) for m in combinations(range(3), size)}
    for _ in range(50):
        off = {m: e + rng.uniform(-0.05, 0.05) for m, e in exact.items()}  # ±0.1 on the scale of ±1
        for values in product((0, 1), repeat=3):
            assert abs(cell_from_parities(off, (0, 1, 2), values) - 1 / 8) <= 0.1 * 7 / 8 + 1e-12


def test_a_missing_parity_is_named():
    with pytest.raises(QueryError, match="larger K"):
        cell_from_parities({(0,): 0.5}, (0, 1), (1, 1))
