"""Truncated items: the sensitivity against random neighbours, and exact counts without noise."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.fitting.wide import shrunk_pairs
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.noise import Gaussian
from dualquery.queries import binary as module
from dualquery.queries.binary import HeldItems, HeldPairs
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records, SparseItems
from tests.house import curator_of

ITEMS = 9
DOMAIN = Domain((Items("item", ITEMS),))
baskets = st.lists(st.sets(st.integers(0, ITEMS - 1)), min_size=1, max_size=6)


def sparse(sets):
    start = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
    return Records(
        DOMAIN, len(sets), (SparseItems(start, np.array([i for s in sets for i in sorted(s)], np.int32)),)
    )


def bits(sets):
    rows = np.zeros((len(sets), ITEMS), np.int64)
    for r, s in enumerate(sets):
        rows[r, list(s)] = 1
    return Records.from_rows(DOMAIN, rows)


def counts(records, rank, items, limit):
    """How many hold each item, and as a matrix how many hold both of two."""
    single = HeldItems(0, rank, items, limit).counts(records)
    pairs = np.zeros((items, items), np.int64)
    pairs[np.triu_indices(items, 1)] = HeldPairs(0, rank, items, limit).counts(records)
    return single, pairs


@settings(max_examples=60, deadline=None)
@given(
    sets=baskets, extra=st.sets(st.integers(0, ITEMS - 1)), limit=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_no_neighbour_moves_more_counts_than_are_paid_for(sets, extra, limit, seed):
    rank = np.random.default_rng(seed).permutation(ITEMS)
    items, pairs = counts(sparse(sets), rank, 6, limit)
    of_items, of_pairs = HeldItems(0, rank, 6, limit), HeldPairs(0, rank, 6, limit)
    for neighbours, other in (
        (Neighbours.ADD_REMOVE, [*sets, extra]),
        (Neighbours.REPLACE, [extra, *sets[1:]]),
    ):
        other_items, other_pairs = counts(sparse(other), rank, 6, limit)
        for moved, statistic in ((items - other_items, of_items), (pairs - other_pairs, of_pairs)):
            bound = neighbours.sensitivity(statistic.bound())
            assert np.sum(moved**2) <= bound.l2_squared
            assert np.sum(np.abs(moved)) <= bound.l1


@pytest.mark.parametrize("limit", range(1, 10))
def test_the_price_is_that_of_the_limit_by_hand(limit):
    rank = np.arange(ITEMS)
    items, pairs = HeldItems(0, rank, ITEMS, limit), HeldPairs(0, rank, ITEMS, limit)
    for neighbours, times in ((Neighbours.ADD_REMOVE, 1), (Neighbours.REPLACE, 2)):
        assert neighbours.sensitivity(items.bound()).l2_squared == min(times * limit, ITEMS)
        assert neighbours.sensitivity(pairs.bound()).l2_squared == times * limit * (limit - 1) // 2


@given(sets=baskets, limit=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_sparse_and_bits_agree_with_a_plain_count(sets, limit, seed):
    rank = np.random.default_rng(seed).permutation(ITEMS)
    expected_items, expected_pairs = np.zeros(7, int), np.zeros((7, 7), int)
    for held in sets:
        kept = sorted(rank[i] for i in held if rank[i] < 7)[:limit]
        for a, i in enumerate(kept):
            expected_items[i] += 1
            for j in kept[a + 1 :]:
                expected_pairs[i, j] += 1
    for records in (sparse(sets), bits(sets)):
        items, pairs = counts(records, rank, 7, limit)
        assert np.array_equal(items, expected_items)
        assert np.array_equal(pairs, expected_pairs)


def test_bits_are_read_slab_by_slab(monkeypatch):
    rng = np.random.default_rng(4)
    sets = [set(np.flatnonzero(rng.random(ITEMS) < 0.4).tolist()) for _ in range(1000)]
    rank = rng.permutation(ITEMS)
    whole = counts(sparse(sets), rank, 7, 3)
    monkeypatch.setattr(module, "_SLAB", 64)
    for expected, found in zip(whole, counts(bits(sets), rank, 7, 3), strict=True):
        assert np.array_equal(found, expected)


def test_measuring_charges_and_comes_near_the_truth():
    rng = np.random.default_rng(0)
    sets = [set(np.flatnonzero(rng.random(ITEMS) < 0.4).tolist()) for _ in range(2000)]
    budget = Budget(epsilon=50, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    curator = curator_of(sparse(sets), budget)
    rank = np.arange(ITEMS, dtype=np.int64)
    items = curator.measure(HeldItems(0, rank, ITEMS, 9), noise=Gaussian(Fraction(4)))
    # Of five items no record holds more than five, whatever the limit.
    triangle = curator.measure(HeldPairs(0, rank, 5, 9), noise=Gaussian(Fraction(9)))
    assert np.abs(items - [sum(i in s for s in sets) for i in range(ITEMS)]).max() < 12
    pairs = np.zeros((5, 5), np.int64)
    pairs[np.triu_indices(5, 1)] = triangle
    for i in range(5):
        for j in range(i + 1, 5):
            assert abs(pairs[i, j] - sum({i, j} <= s for s in sets)) < 18
    first, second = curator.ledger.events
    assert (first.rho, second.rho) == (Fraction(9, 8), Fraction(10, 18))
    assert [float(e.variance) for e in (first, second)] == pytest.approx([4, 9])


def test_pairs_are_written_out_as_a_symmetric_matrix():
    rng = np.random.default_rng(2)
    single = rng.uniform(0.4, 0.8, 6)
    above = np.triu_indices(6, 1)
    noisy = np.outer(single, single)[above] + rng.normal(0, 1e-4, 15)
    pairs = shrunk_pairs(noisy, single, 1e-4, rng)
    assert np.array_equal(pairs, pairs.T)
    assert np.array_equal(np.diagonal(pairs), np.zeros(6))
    assert np.array_equal(pairs[above], noisy)  # far above the noise nothing is shrunk
