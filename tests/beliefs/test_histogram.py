"""Distributions against naive sums over the cells, and the factored form against the explicit one."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.beliefs.histogram import MOST_CELLS, Histogram
from dualquery.errors import QueryError
from dualquery.queries.families import from_spec
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import Records

MIXED = Domain(
    (
        Categorical("a", ("x", "y", "z")),
        Categorical("b", ("0", "1")),
        equal_width("c", 0, 10, 10),
        Categorical("d", ("only",)),
        Categorical("e", ("p", "q", "r", "s", "t")),
        Categorical("f", ("0", "1")),
    )
)
BINARY = Domain((Items("item", 9),))

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=7).filter(lambda sizes: prod(sizes) <= 20_000)


def random_histogram(sizes: tuple[int, ...], seed: int) -> tuple[Histogram, np.ndarray]:
    weights = np.random.default_rng(seed).random(sizes)
    return Histogram.of(tuple(range(len(sizes))), weights), weights


def naive_marginal(weights: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    return weights.sum(axis=tuple(j for j in range(weights.ndim) if j not in members)) / weights.sum()


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 3), st.integers(0, 2**31))
def test_survival_is_the_sum_of_all_cells_above(sizes: list[int], order: int, seed: int) -> None:
    histogram, weights = random_histogram(tuple(sizes), seed)
    survival = histogram.survival(order)
    for members in combinations(range(len(sizes)), min(order, len(sizes))):
        corner = np.zeros(len(sizes), int)
        corner[list(members)] = [np.random.default_rng(seed).integers(sizes[j]) for j in members]
        cell = np.ravel_multi_index(tuple(corner), sizes)
        above = weights[tuple(slice(low, None) for low in corner)].sum() / weights.sum()
        assert survival.at(np.array(cell)) == pytest.approx(above, abs=1e-13)


def test_all_low_order_moments_of_a_binary_universe_against_brute_force() -> None:
    width = 14  # more than a row, so that leading and trailing attributes both take part
    histogram, weights = random_histogram((2,) * width, 3)
    survival = histogram.survival(3)
    for members in [m for k in range(4) for m in combinations(range(width), k)]:
        cell = sum(1 << (width - 1 - j) for j in members)
        moment = naive_marginal(weights, members)[(1,) * len(members)]
        assert survival.at(np.array(cell)) == pytest.approx(moment, abs=1e-13)


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 2**31), st.data())
def test_marginals_and_masked_updates_against_naive_sums(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    histogram, weights = random_histogram(tuple(sizes), seed)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        members = tuple(sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
        marginal = histogram.marginal(members)
        np.testing.assert_allclose(marginal, naive_marginal(weights, members), atol=1e-13)
        histogram.survival(3)
        np.testing.assert_allclose(histogram.glimpse(members), marginal, atol=1e-13)
        factors = np.where(rng.random(marginal.shape) < 0.5, 1.0, rng.random(marginal.shape) + 0.1)
        histogram.multiply(members, factors, mass=float((marginal * factors).sum()))
        weights = weights * factors.reshape([s if j in members else 1 for j, s in enumerate(sizes)])
        assert histogram.total == pytest.approx(weights.sum())  # from the mass alone
        np.testing.assert_allclose(histogram.probabilities(), weights / weights.sum(), atol=1e-13)
        assert histogram.marginal(()).item() == pytest.approx(1.0)
        assert histogram.total == pytest.approx(weights.sum())  # and after a pass over the cells


def test_large_matrices_take_the_threaded_way_to_the_same_numbers() -> None:
    histogram, weights = random_histogram((2, 3, 7, 11, 4, 5, 2, 6), 5)
    np.testing.assert_allclose(histogram.marginal((1, 4, 7)), naive_marginal(weights, (1, 4, 7)), atol=1e-13)
    factors = np.random.default_rng(0).random((3, 4))
    mass = float((histogram.marginal((1, 4)) * factors).sum())
    histogram.multiply((1, 4), factors, mass=mass)
    weights = weights * factors[None, :, None, None, :, None, None, None]
    np.testing.assert_allclose(histogram.probabilities(), weights / weights.sum(), atol=1e-15)
    assert histogram.total == pytest.approx(weights.sum())


def test_systematic_samples_give_every_cell_its_share() -> None:
    histogram, weights = random_histogram((5, 4, 3), 1)
    counts = np.bincount(histogram.sample(1000, np.random.default_rng(0)), minlength=60)
    assert np.abs(counts - 1000 * weights.ravel() / weights.sum()).max() <= 1


def test_too_many_cells_are_refused_with_their_bytes() -> None:
    with pytest.raises(QueryError, match=f"{16 * MOST_CELLS:,} bytes"):
        Histogram(tuple(range(28)), (2,) * 28)


def table_of(records: Records) -> np.ndarray:
    weights = np.zeros(records.domain.sizes)
    np.add.at(weights, tuple(records.to_rows().T.astype(int)), 1.0)
    return weights


@pytest.mark.parametrize(
    ("domain", "spec"),
    [(MIXED, "marginals:3 + random:3:200 + ranges:c:50 + marginals:1"), (BINARY, "parities:3 + random:2:50")],
)
def test_a_histogram_of_records_answers_as_the_records_do(domain: Domain, spec: str) -> None:
    rng = np.random.default_rng(2)
    rows = np.stack([rng.integers(0, size, 500) for size in domain.sizes], axis=1)
    records = Records.from_rows(domain, rows)
    workload = from_spec(domain, spec)
    distribution = Factored.explicit(domain)
    counts = table_of(records)
    everything = tuple(range(domain.width))
    factors = counts / counts.mean()
    distribution.multiply(everything, factors, mass=1.0)
    truth = workload.counts(records) / records.rows
    products = Products.of(workload)
    np.testing.assert_allclose(RunningAnswers(products).answers(distribution), truth, atol=1e-12)
    np.testing.assert_allclose(distribution.answers(workload), truth, atol=1e-12)
    for query in range(0, workload.size, 41):
        table = distribution.marginal(products.attributes_of(query))
        assert (products.table_of(query) * table).sum() == pytest.approx(truth[query], abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_factored_equals_explicit(seed: int, updates: int) -> None:
    workload = from_spec(MIXED, "marginals:3 + random:4:50")
    products = Products.of(workload)
    parts, whole = Factored(MIXED, part_cells=10**6), Factored.explicit(MIXED)
    in_parts, in_whole = RunningAnswers(products), RunningAnswers(products)
    rng = np.random.default_rng(seed)
    for _ in range(updates):
        members = tuple(sorted(rng.choice(MIXED.width, rng.integers(1, 4), replace=False).tolist()))
        factors = rng.random([int(MIXED.sizes[j]) for j in members]) + 0.01
        for distribution in (parts, whole):
            mass = float((distribution.marginal(members) * factors).sum())
            distribution.multiply(members, factors, mass=mass)
        running = in_parts.answers(parts.snapshot())
        np.testing.assert_allclose(running, in_whole.answers(whole.snapshot()), atol=1e-12)
        np.testing.assert_allclose(running, whole.answers(workload), atol=1e-12)
    everything = tuple(range(MIXED.width))
    np.testing.assert_allclose(parts.marginal(everything), whole.marginal(everything), atol=1e-12)


@pytest.mark.parametrize("distribution", [Factored.explicit(MIXED), Factored(MIXED, part_cells=1)])
def test_a_distribution_that_was_told_nothing_is_uniform(distribution: Factored) -> None:
    everything = tuple(range(MIXED.width))
    cells = prod(MIXED.sizes.tolist())
    np.testing.assert_allclose(distribution.marginal(everything), np.full(MIXED.sizes, 1 / cells), rtol=1e-12)
    for members in combinations(everything, 2):
        table = distribution.marginal(members)
        np.testing.assert_allclose(table, np.full(table.shape, 1 / table.size), rtol=1e-12)
    rows = distribution.sample(6000, np.random.default_rng(4))
    for j, size in enumerate(MIXED.sizes.tolist()):  # systematic: each value has its share to one record
        assert np.abs(np.bincount(rows[:, j], minlength=size) - 6000 / size).max() <= 1
    for a, b in combinations([j for j in everything if MIXED.sizes[j] > 1], 2):
        seen = np.zeros((MIXED.sizes[a], MIXED.sizes[b]))
        np.add.at(seen, (rows[:, a], rows[:, b]), 1)
        assert chisquare(seen.ravel()).pvalue > 1e-6


# Snapshots


def tell(distribution: Factored, members: tuple[int, ...], rng: np.random.Generator) -> None:
    factors = rng.random([int(MIXED.sizes[j]) for j in members]) + 0.05
    mass = float((distribution.marginal(members) * factors).sum())
    distribution.multiply(members, factors, mass=mass)


@pytest.mark.parametrize("explicit", [True, False])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_a_snapshot_does_not_change_when_the_distribution_hears_more(explicit: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    workload = from_spec(MIXED, "marginals:2 + random:3:20")
    distribution = Factored.explicit(MIXED) if explicit else Factored(MIXED, part_cells=10**6)
    everything = tuple(range(MIXED.width))
    kept = []
    for _ in range(5):
        members = tuple(sorted(rng.choice(MIXED.width, rng.integers(1, 4), replace=False).tolist()))
        tell(distribution, members, rng)
        before = distribution.answers(workload)
        snapshot = distribution.snapshot()
        np.testing.assert_array_equal(snapshot.answers(workload), before)
        kept.append((snapshot, before, distribution.marginal(everything), distribution.owner.copy()))
    for snapshot, before, table, owner in kept:
        np.testing.assert_array_equal(snapshot.owner, owner)
        np.testing.assert_array_equal(snapshot.marginal(everything), table)
        np.testing.assert_array_equal(snapshot.answers(workload), before)
    # Nor does the distribution where somebody changes a snapshot.
    snapshot, before, table, _ = kept[-1]
    tell(snapshot, (0, 2), rng)
    np.testing.assert_array_equal(distribution.marginal(everything), table)
    np.testing.assert_array_equal(distribution.answers(workload), before)
    assert not np.allclose(snapshot.marginal(everything), table)


def test_parts_are_shared_with_a_snapshot_until_they_change() -> None:
    rng = np.random.default_rng(0)
    distribution = Factored(MIXED, part_cells=10**6)
    for members in ((0, 1), (2,), (4, 5)):
        tell(distribution, members, rng)
    snapshot = distribution.snapshot()
    held = {number: distribution.part(number) for number in (0, 2, 4)}
    assert all(snapshot.part(number) is part for number, part in held.items())
    tell(distribution, (1,), rng)
    assert distribution.part(0) is not held[0]
    assert distribution.part(2) is held[2]  # what was not told about is still one and the same
    changed = distribution.part(0)
    tell(distribution, (0,), rng)
    assert distribution.part(0) is changed  # copied once, and the distribution's own from then on
    tell(distribution, (2, 5), rng)  # a merger makes a new part and leaves the old ones alone
    assert distribution.owner.tolist() == [0, 0, 2, 3, 2, 2]
    assert all(snapshot.part(number) is part for number, part in held.items())
    assert snapshot.owner.tolist() == [0, 0, 2, 3, 4, 4]


def test_running_answers_of_snapshots_are_those_of_each_from_the_start() -> None:
    rng = np.random.default_rng(6)
    workload = from_spec(MIXED, "marginals:3 + random:3:30")
    distribution, running = Factored(MIXED, part_cells=10**6), RunningAnswers(Products.of(workload))
    for members in ((0,), (1, 2), (0, 1), (4,), (4, 5), (0, 4), (2,)):
        tell(distribution, members, rng)
        snapshot = distribution.snapshot()
        tell(distribution, (2,), rng)  # later news must not leak into the answers of an older snapshot
        np.testing.assert_allclose(running.answers(snapshot), snapshot.answers(workload), atol=1e-12)


def test_parts_are_merged_only_when_a_query_forces_it() -> None:
    distribution = Factored(BINARY, part_cells=8)
    distribution.multiply((0, 1), np.ones((2, 2)), mass=1.0)
    distribution.multiply((3,), np.ones(2), mass=1.0)
    assert distribution.owner.tolist() == [0, 0, 2, 3, 4, 5, 6, 7, 8]
    distribution.multiply((1, 3), np.ones((2, 2)), mass=1.0)
    assert distribution.owner.tolist() == [0, 0, 2, 0, 4, 5, 6, 7, 8]
    products = Products.of(from_spec(BINARY, "parities:2"))
    fitting = {products.attributes_of(int(q)) for q in distribution.fitting(products)}
    assert {(0, 1), (0, 3), (4, 5), (2,)} <= fitting
    assert (0, 2) not in fitting  # would need 16 cells


def test_samples_of_independent_parts_follow_both() -> None:
    distribution = Factored(BINARY, part_cells=4)
    distribution.multiply((0, 1), np.array([[4.0, 0.0], [0.0, 4.0]]), mass=2.0)
    distribution.multiply((2,), np.array([0.2, 1.8]), mass=1.0)
    rows = distribution.sample(4000, np.random.default_rng(0))
    assert np.array_equal(rows[:, 0], rows[:, 1])
    assert rows[:, 2].mean() == pytest.approx(0.9, abs=1e-3)
    assert rows[:, 3].mean() == pytest.approx(0.5, abs=1e-3)
    assert np.corrcoef(rows[:, 0], rows[:, 3])[0, 1] == pytest.approx(0, abs=0.1)
