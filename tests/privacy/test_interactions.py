"""Interactions in integers: sensitivity against all neighbours, and the tables put together again."""

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.mechanisms.shrinkage import reconstructed
from dualquery.privacy import interactions as module
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.interactions import (
    InteractionPlan,
    integer_interaction,
    interaction_scale,
    interaction_sensitivity,
    measure_interactions,
)
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.families import marginals
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records


def one_record(sizes, cell):
    table = np.zeros(sizes, np.int64)
    table[cell] = 1
    return integer_interaction(table)


@pytest.mark.parametrize("short", [16, 2])
@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 2), (2, 3), (4, 3), (2, 3, 4), (2, 2, 2, 2), (1, 3)])
def test_sensitivity_is_the_largest_over_all_neighbours(sizes, short, monkeypatch):
    monkeypatch.setattr(module, "SHORT", short)
    cells = list(product(*(range(k) for k in sizes)))
    added = max(int(np.sum(one_record(sizes, cell) ** 2)) for cell in cells)
    assert interaction_sensitivity(sizes, Neighbours.ADD_REMOVE) == added
    replaced = max(
        int(np.sum((one_record(sizes, a) - one_record(sizes, b)) ** 2)) for a in cells for b in cells
    )
    assert interaction_sensitivity(sizes, Neighbours.REPLACE) == replaced


def test_the_total_is_free_between_tables_of_one_length():
    assert interaction_sensitivity((), Neighbours.REPLACE) == 0
    assert interaction_sensitivity((), Neighbours.ADD_REMOVE) == 1


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
    records = Records.from_rows(DOMAIN, codes)
    return Curator(records, marginals(DOMAIN, 2), Ledger(budget), SeededEntropy(seed)), codes


def test_the_charge_is_that_of_the_plan_by_hand():
    holder, _ = curator()
    plan = InteractionPlan(((), (0,), (0, 1)), (300, 2, 5), Fraction(10**7))
    measure_interactions(holder, plan)
    (event,) = holder.ledger.events
    by_hand = 300**2 * 1 + 2**2 * (2 * 1) + 5**2 * (2 * 1) * (3 * 2)
    assert event.sensitivity_squared == by_hand
    assert event.rho == Fraction(by_hand, 2 * 10**7)


def test_noise_has_the_variance_that_the_plan_says():
    plan = InteractionPlan(((0, 1),), (7,), Fraction(10**6))
    spread = []
    for seed in range(200):
        holder, codes = curator(seed=seed)
        truth = np.zeros((2, 3))
        np.add.at(truth, (codes[:, 0], codes[:, 1]), 1)
        exact = integer_interaction(truth.astype(np.int64)) / 6
        spread.append(measure_interactions(holder, plan)[(0, 1)] - exact)
    noise = np.array(spread)
    assert noise.sum(axis=(1, 2)) == pytest.approx(0, abs=1e-6)
    expected = plan.noise(DOMAIN.sizes)[(0, 1)] * prod((k - 1) / k for k in (2, 3))
    assert noise.var() == pytest.approx(expected, rel=0.15)


def test_too_small_a_budget_is_refused_before_anything_is_drawn():
    holder, _ = curator(epsilon=0.01)
    with pytest.raises(BudgetError):
        measure_interactions(holder, InteractionPlan(((0,),), (1,), Fraction(1, 100)))
    assert holder.ledger.events == ()
