"""Truncated items: the sensitivity against random neighbours, and exact counts without noise."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.itemsets import ItemLimit, _count_pairs, _kept_items, measure_items, measure_pairs
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.families import random_conjunctions
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records, SparseItems

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
    start, ids = _kept_items(records, 0, rank, items, limit)
    pairs = np.zeros((items, items), np.int64)
    _count_pairs(start, ids, pairs)
    return np.bincount(ids, minlength=items), pairs


@settings(max_examples=60, deadline=None)
@given(
    sets=baskets, extra=st.sets(st.integers(0, ITEMS - 1)), limit=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_no_neighbour_moves_more_counts_than_are_paid_for(sets, extra, limit, seed):
    rank = np.random.default_rng(seed).permutation(ITEMS)
    items, pairs = counts(sparse(sets), rank, 6, limit)
    bound = ItemLimit(limit)
    for neighbours, other in (
        (Neighbours.ADD_REMOVE, [*sets, extra]),
        (Neighbours.REPLACE, [extra, *sets[1:]]),
    ):
        other_items, other_pairs = counts(sparse(other), rank, 6, limit)
        one = Fraction(1)
        assert np.sum((items - other_items) ** 2) <= bound.items_event(one, neighbours).sensitivity_squared
        assert np.sum((pairs - other_pairs) ** 2) <= bound.pairs_event(one, neighbours).sensitivity_squared


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


def test_measuring_charges_and_comes_near_the_truth():
    rng = np.random.default_rng(0)
    sets = [set(np.flatnonzero(rng.random(ITEMS) < 0.4).tolist()) for _ in range(2000)]
    budget = Budget(epsilon=50, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    workload = random_conjunctions(DOMAIN, 2, 50, seed=0)
    curator = Curator(sparse(sets), workload, Ledger(budget), SeededEntropy(0))
    rank = np.arange(ITEMS, dtype=np.int64)
    items = measure_items(curator, 0, rank, limit=ItemLimit(9), variance=Fraction(4))
    pairs = measure_pairs(curator, 0, rank, items=5, limit=ItemLimit(9), variance=Fraction(9))
    assert np.abs(items - [sum(i in s for s in sets) for i in range(ITEMS)]).max() < 12
    assert abs(pairs[1, 3] - sum({1, 3} <= s for s in sets)) < 18
    assert np.array_equal(pairs, pairs.T)
    first, second = curator.ledger.events
    assert (first.rho, second.rho) == (Fraction(9, 8), Fraction(36, 18))
    assert [float(e.variance) for e in (first, second)] == pytest.approx([4, 9])
