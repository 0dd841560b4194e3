"""How many queries one record satisfies, and on how many two differ: against all records, and what noise follows."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from dualquery.mechanisms.baselines import INDEPENDENT_GAUSSIAN
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours, Sensitivity
from dualquery.privacy.ledger import Ledger
from dualquery.queries import conjunctions
from dualquery.queries.conjunctions import Parities
from dualquery.queries.families import from_texts
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import curator_of

DOMAIN = Domain(tuple(Categorical(f"a{j}", tuple("vwxyz"[:size])) for j, size in enumerate((2, 3, 5))))


def answers(workload: Workload) -> np.ndarray:
    """Of every possible record to every query."""
    out = []
    for record in product(*map(range, DOMAIN.sizes)):
        row = np.zeros(workload.size, np.int32)
        workload.groups[0].add_answers(np.array(record, np.int32), row)
        out.append(row)
    return np.array(out)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_bounds_hold_and_are_exact_over_one_set_of_attributes(k: int, seed: int) -> None:
    workload = random_conjunctions(DOMAIN, k, 40, seed)
    group, held = workload.groups[0], answers(workload)
    differing = max(int(np.abs(a - b).sum()) for a, b in combinations(held, 2))
    assert held.sum(axis=1).max() <= group.most_satisfied() <= group.size
    assert differing <= group.most_differing() <= group.size
    if k == 3:  # there is one set of three
        assert group.most_satisfied() == held.sum(axis=1).max()


def test_complements_and_queries_of_nobody() -> None:
    texts = ["!(a0 = v & a1 = v)", "a2 = z", "a2 in {y, z}", "a2 != z", "a1 = w & a2 = v"]
    workload = from_texts(DOMAIN, texts)
    assert sum(group.most_satisfied() for group in workload.groups) == 1 + 2 + 1


def test_too_many_cells_are_charged_all_their_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjunctions, "MOST_LISTED", 3)
    group = from_texts(DOMAIN, ["a2 = v", "a2 = w", "a0 = v & a2 != z", "a0 = v & a2 != y"]).groups[0]
    assert (group.most_satisfied(), group.most_differing()) == (1 + 2, 2 + 2)


def plan_of(workload: Workload, neighbours: Neighbours, *, rows: int, variance: float | None = None):
    budget = Budget(epsilon=1, delta=1e-6, neighbours=neighbours, accounting=Accounting.ZCDP)
    return INDEPENDENT_GAUSSIAN.plan_for(Task(workload, rows, budget, variance), {})


WIDE = Domain((Categorical("code", tuple(f"c{i}" for i in range(4000))), Categorical("sex", ("f", "m"))))


def test_disjoint_look_ups_have_the_noise_of_one() -> None:
    texts = [f"code = c{i} & sex = {sex}" for i in range(2000) for sex in "fm"]
    workload = from_texts(WIDE, texts)
    plan = plan_of(workload, Neighbours.ADD_REMOVE, rows=10_000)
    assert not any(plan.parameters.balanced)
    assert plan.parameters.noise == pytest.approx(0.798 * 4.53, rel=0.02)
    rows = np.random.default_rng(0).integers([4000, 2], size=(10_000, 2))
    records = Records.from_rows(WIDE, rows)
    ledger = Ledger(plan.task.budget)
    curator = curator_of(records, ledger, seed=1)
    found = INDEPENDENT_GAUSSIAN.run(plan, curator, np.random.default_rng(), silent).artefact.values
    error = np.abs(found - workload.counts(records) / 10_000).mean() * 10_000
    assert error < 3.7  # of 4,000 queries by their number it would be 229, as balances 114


def test_twenty_thousand_disjoint_look_ups_move_by_one_record() -> None:
    """A record satisfies one of them, so that the noise is that of one count, and not √20,000 times it."""
    codes = Domain((Categorical("code", tuple(f"c{i}" for i in range(20_000))),))
    workload = from_texts(codes, [f"code = c{i}" for i in range(20_000)])
    assert workload.size == 20_000
    (group,) = workload.groups
    assert Neighbours.ADD_REMOVE.sensitivity(group.bound()) == Sensitivity(1, 1)
    assert Neighbours.REPLACE.sensitivity(group.bound()) == Sensitivity(2, 2)
    plan = plan_of(workload, Neighbours.ADD_REMOVE, rows=100_000)
    assert plan.parameters.noise == pytest.approx(
        0.798 * 4.53, rel=0.02
    )  # by their number it would be 253 off


def test_single_counts_are_balances_where_records_are_added() -> None:
    """σ√K/2 by 2c − n, σ√r where few hold at once, and nothing changes where records are replaced."""
    half = from_texts(DOMAIN, ["a0 = v"])
    added, replaced = (plan_of(half, each, rows=1000) for each in (Neighbours.ADD_REMOVE, Neighbours.REPLACE))
    assert added.parameters.balanced == (True,)
    assert replaced.parameters.balanced == (False,)
    assert added.parameters.noise == pytest.approx(replaced.parameters.noise / 2, rel=1e-6)
    measured = plan_of(half, Neighbours.ADD_REMOVE, rows=1000, variance=2000.0)
    assert len(measured.steps) == 2  # the number of records again, at half of the budget


def test_a_measured_number_does_not_move_balances_by_much() -> None:
    workload = from_texts(DOMAIN, ["a0 = v", "a1 = v", "a2 = v", "a2 != v"])
    rows = np.random.default_rng(0).integers(DOMAIN.sizes, size=(5000, 3))
    records = Records.from_rows(DOMAIN, rows)
    errors = []
    for seed in range(30):
        plan = plan_of(workload, Neighbours.ADD_REMOVE, rows=5000 + 60 * (-1) ** seed, variance=3600.0)
        curator = curator_of(records, plan.task.budget, seed=seed)
        found = INDEPENDENT_GAUSSIAN.run(plan, curator, np.random.default_rng(), silent).artefact.values
        errors.append(np.abs(found - workload.counts(records) / 5000).mean() * 5000)
    # σ(√K + 1)/2 = 6.8, of which the mean size is 5.4; with the first measurement of n alone it would be 15.
    assert 3 < np.mean(errors) < 8


def test_very_many_sets_take_no_time_each() -> None:
    """Nearly every query asks about a set of its own; going through all queries for each set would take hours."""
    domain = Domain((Items("item", 20_000),))
    (group,) = random_conjunctions(domain, 3, 200_000, 1).groups
    assert 199_900 < group.most_satisfied() <= 200_000


def test_parities_are_the_same_in_any_order_of_their_attributes() -> None:
    """{0, 1} twice, once as {1, 0}: not all pairs of three attributes, though there are three rows."""
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1")) for j in range(3)))
    doubled = Parities(domain, np.array([[0, 1], [1, 0], [0, 2]], np.int32))
    universe = Records.from_rows(domain, np.array(list(product((0, 1), repeat=3))))
    satisfied = np.stack([doubled.counts(universe.take(np.array([i]))) for i in range(8)])
    truth = max(int((x != y).sum()) for x in satisfied for y in satisfied)
    assert doubled.most_differing() >= truth == 3
