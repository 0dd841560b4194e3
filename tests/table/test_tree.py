"""Trees of counts: where numbers lie, with noise and without."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.table.binning import FINEST, LEVELS, Tree, edges_of, onto_simplex


def grown(numbers: np.ndarray, unit: float, sigma: float, seed: int = 0) -> Tree:
    """A tree of counts of these numbers, with real noise."""
    rng, tree = np.random.default_rng(seed), Tree(unit)
    while not tree.done:
        edges = tree.edges
        counts = np.bincount(np.searchsorted(edges, numbers, "right"), minlength=len(edges) + 1)[1:-1]
        tree.fill(counts + rng.normal(0, sigma, len(counts)), sigma)
    return tree


def shares(numbers: np.ndarray, edges: tuple[float, ...]) -> np.ndarray:
    return np.histogram(np.clip(numbers, edges[0], edges[-1]), edges)[0] / len(numbers)


NORMAL = np.round(np.random.default_rng(1).normal(300, 40, 50_000))


@pytest.mark.parametrize("scale", [1.0, 1000.0, 0.01])
@pytest.mark.parametrize("sign", [1, -1])
def test_edges_of_about_equal_share(scale: float, sign: int) -> None:
    numbers = sign * NORMAL * scale
    edges = edges_of(grown(numbers, min(scale, 1.0), 60.0), 16)
    assert 10 <= len(edges) - 1 <= 24
    assert shares(numbers, edges).max() < 0.16
    low, high = np.quantile(numbers, [0.02, 0.98])
    assert edges[0] < low
    assert edges[-1] > high
    assert edges[0] > numbers.min() - 200 * scale
    assert edges[-1] < numbers.max() + 200 * scale


def test_real_numbers_and_several_scales() -> None:
    numbers = np.exp(np.random.default_rng(2).normal(0, 2, 40_000))
    edges = edges_of(grown(numbers, FINEST, 50.0), 16)
    assert shares(numbers, edges).max() < 0.2
    assert edges[0] < 0.2
    assert edges[-1] > 20


def test_a_heaped_number_stands_alone() -> None:
    numbers = np.where(np.random.default_rng(3).random(30_000) < 0.6, 0, NORMAL[:30_000])
    edges = edges_of(grown(numbers, 1.0, 60.0), 16)
    assert {0, 1} < set(edges)
    assert shares(numbers, edges).max() > 0.55


@pytest.mark.parametrize("few", [(0, 1), (1, 2, 3), tuple(range(1990, 2005)), (-2, -1, 0, 1, 2)])
def test_few_whole_numbers_have_a_bin_each(few: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(4).choice(few, 20_000).astype(float)
    for seed in range(5):
        edges = edges_of(grown(numbers, 1.0, 40.0, seed), 16)
        assert set(map(float, few)) <= set(edges)
        assert np.count_nonzero(shares(numbers, edges) > 0.5 / len(few)) == len(few)


def test_a_thin_tail_is_found_though_no_octave_of_it_is() -> None:
    """Each octave of the lower tail holds less than what opens a node; all of them together hold much more."""
    tail = np.floor(2 ** np.random.default_rng(5).uniform(0, 10, 4000))
    numbers = np.concatenate([tail, np.full(20_000, 3000.0) + np.arange(20_000) % 900])
    for seed in range(10):
        assert edges_of(grown(numbers, 1.0, 230.0, seed), 16)[0] <= 64


def test_noise_alone_gives_nothing() -> None:
    found = [edges_of(grown(np.empty(0), 1.0, 50.0, seed), 16) for seed in range(200)]
    assert sum(edges != () for edges in found) <= 3  # 90 octaves beyond 4σ: 3 in 1,000


def test_no_more_levels_than_are_paid_for() -> None:
    counted, tree = 0, Tree(1.0)
    while not tree.done:
        tree.fill(np.where(np.arange(len(tree.edges) - 1) == 0, 100.0, 0.0), 1.0)
        counted += 1
    assert counted == LEVELS


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e7))
def test_the_projection_is_the_nearest_that_adds_up(masses: list[float], total: float) -> None:
    found = onto_simplex(np.array(masses), total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-6, abs=1e-5)
    less = np.array(masses) - found  # the same wherever something is left, and no more where nothing is
    held = found > 1e-9
    assert np.ptp(less[held]) < 1e-5 * (1 + max(map(abs, masses)))
    assert (np.array(masses)[~held] <= less[held].mean() + 1e-3).all()


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 0.1, 0.01, 0.001, FINEST]),
    st.floats(0.5, 500),
    st.floats(-1e5, 1e5),
    st.floats(0.01, 1e6),
    st.integers(2, 40),
)
def test_edges_increase_whatever_is_counted(
    seed: int, unit: float, sigma: float, middle: float, width: float, bins: int
) -> None:
    numbers = middle + width * np.random.default_rng(seed).standard_cauchy(3000)
    numbers = np.round(numbers / unit) * unit if unit > FINEST else numbers
    edges = edges_of(grown(numbers, unit, sigma, seed), bins)
    assert len(edges) == 0 or len(edges) >= 3
    assert all(a < b for a, b in pairwise(edges))
