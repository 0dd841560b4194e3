"""Interactions in integers: sensitivity against all neighbours, and the tables put together again."""

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.fitting.measured import reconstructed
from dualquery.mechanisms.shares import Stage
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.queries import derived as module
from dualquery.queries.derived import (
    Interactions,
    integer_interaction,
    interaction_distance,
    interaction_length,
    interaction_scale,
)
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records


def one_record(sizes, cell):
    table = np.zeros(sizes, np.int64)
    table[cell] = 1
    return integer_interaction(table)


def domain(sizes):
    return Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))


@pytest.fixture
def short(request, monkeypatch):
    """Another limit of what is short; distances are remembered by sizes alone, so they are forgotten around it."""
    monkeypatch.setattr(module, "SHORT", request.param)
    interaction_distance.cache_clear()
    yield request.param
    interaction_distance.cache_clear()


@pytest.mark.parametrize("short", [16, 2], indirect=True)
@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 2), (2, 3), (4, 3), (2, 3, 4), (2, 2, 2, 2), (1, 3)])
def test_sensitivity_is_the_largest_over_all_neighbours(sizes, short):
    cells = list(product(*(range(k) for k in sizes)))
    statistic = Interactions(domain(sizes), (tuple(range(len(sizes))),), (1,))
    added = [one_record(sizes, cell) for cell in cells]
    replaced = [one - other for one in added for other in added]
    for moves, squared, neighbours in (
        (added, interaction_length(sizes), Neighbours.ADD_REMOVE),
        (replaced, interaction_distance(sizes), Neighbours.REPLACE),
    ):
        assert squared == max(int(np.sum(move**2)) for move in moves)
        assert neighbours.sensitivity(statistic.bound()).l2_squared == squared
        assert neighbours.sensitivity(statistic.bound()).l1 >= max(int(np.abs(move).sum()) for move in moves)
    longest = max(int(np.abs(move).sum()) for move in added)
    assert Neighbours.ADD_REMOVE.sensitivity(statistic.bound()).l1 == longest


def test_the_total_is_free_between_tables_of_one_length():
    total = Interactions(domain((2, 3)), ((),), (1,))
    assert Neighbours.REPLACE.sensitivity(total.bound()).l2_squared == 0
    assert Neighbours.ADD_REMOVE.sensitivity(total.bound()).l2_squared == 1


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3), seed=st.integers(0, 1000))
def test_interactions_of_all_subsets_give_the_table_back(sizes, seed):
    table = np.random.default_rng(seed).integers(0, 50, sizes)
    members = tuple(range(len(sizes)))
    parts = {}
    for chosen in product((False, True), repeat=len(sizes)):
        subset = tuple(j for j in members if chosen[j])
        margin = table.sum(axis=tuple(j for j in members if not chosen[j]))
        parts[subset] = integer_interaction(np.asarray(margin)) / interaction_scale(
            [sizes[j] for j in subset]
        )
    assert reconstructed(members, parts, np.array(sizes)) == pytest.approx(table)


DOMAIN = Domain(
    (Categorical("a", ("0", "1")), Categorical("b", ("0", "1", "2")), Categorical("c", ("x",) * 1))
)


def curator(epsilon=1.0, seed=0, rows=500):
    codes = np.column_stack([np.random.default_rng(1).integers(0, k, rows) for k in (2, 3, 1)])
    budget = Budget(epsilon=epsilon, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    counter = MemoryCounter(Records.from_rows(DOMAIN, codes))
    return Curator(counter, Ledger(budget), SeededEntropy(seed)), codes


def test_every_set_is_its_integer_interaction_times_its_multiplier():
    _, codes = curator()
    statistic = Interactions(DOMAIN, ((), (1,), (0, 1)), (300, 2, 5))
    table = np.zeros((2, 3), np.int64)
    np.add.at(table, (codes[:, 0], codes[:, 1]), 1)
    parts = [
        300 * np.array([500]),
        2 * integer_interaction(table.sum(axis=0)),
        5 * integer_interaction(table),
    ]
    expected = np.concatenate([part.ravel() for part in parts])
    counter = MemoryCounter(Records.from_rows(DOMAIN, codes))
    np.testing.assert_array_equal(counter.true_counts(statistic), expected)
    np.testing.assert_array_equal(counter.true_counts(statistic), expected)  # and asking changes nothing
    in_records = statistic.in_records(expected)
    assert in_records[()] == pytest.approx(500)
    np.testing.assert_allclose(in_records[(1,)], table.sum(axis=0) - 500 / 3)


def test_the_charge_is_that_of_the_plan_by_hand():
    holder, _ = curator()
    statistic = Interactions(DOMAIN, ((), (0,), (0, 1)), (300, 2, 5))
    holder.measure(statistic, noise=Gaussian(Fraction(10**7)))
    (event,) = holder.ledger.events
    by_hand = 300**2 * 1 + 2**2 * (2 * 1) + 5**2 * (2 * 1) * (3 * 2)
    assert event.sensitivity_squared == by_hand
    assert event.rho == Fraction(by_hand, 2 * 10**7)


def test_noise_has_the_variance_that_the_plan_says():
    what, stage = (
        Interactions(DOMAIN, ((0, 1),), (7,)),
        Stage("measure", 1.0, 10**6, Gaussian(Fraction(10**6))),
    )
    spread = []
    for seed in range(200):
        holder, codes = curator(seed=seed)
        truth = np.zeros((2, 3))
        np.add.at(truth, (codes[:, 0], codes[:, 1]), 1)
        exact = integer_interaction(truth.astype(np.int64)) / 6
        noisy = holder.measure(what, noise=stage.noise)
        spread.append(what.in_records(noisy)[(0, 1)] - exact)
    noise = np.array(spread)
    assert noise.sum(axis=(1, 2)) == pytest.approx(0, abs=1e-6)
    assert stage.variances(what)[(0, 1)] == pytest.approx(10**6 / (7 * 6) ** 2)
    expected = stage.variances(what)[(0, 1)] * prod((k - 1) / k for k in (2, 3))
    assert noise.var() == pytest.approx(expected, rel=0.15)


def test_too_small_a_budget_is_refused_before_anything_is_drawn():
    holder, _ = curator(epsilon=0.01)
    with pytest.raises(BudgetError):
        holder.measure(Interactions(DOMAIN, ((0,),), (1,)), noise=Gaussian(Fraction(1, 100)))
    assert holder.ledger.events == ()
