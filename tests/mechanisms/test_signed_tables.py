"""Pure projection: signed tables are what they say, least squares joins them, and the price is ε."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.measured import Measured, MeasuredTables, determined, interactions_told, reconstructed
from dualquery.kinds import choose
from dualquery.mechanisms.mechanism import Plan, Task, affordable
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.projection.pure import BySignedTables, Shape, measure, plan_signed
from dualquery.privacy.budget import Accounting, Neighbours, PersonAddRemove
from dualquery.privacy.events import LaplaceMeasurement, Selection
from dualquery.queries.derived import SignedTables
from dualquery.queries.families import from_spec
from dualquery.queries.tables import Tables, centred, signed, signed_shape
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from tests import house
from tests.house import curator_of


def domain_of(*sizes: int) -> Domain:
    return Domain(tuple(Categorical(f"a{j}", tuple(f"v{v}" for v in range(k))) for j, k in enumerate(sizes)))


MIXED = domain_of(2, 3, 2, 4)
BINARY = Domain((Items("item", 6),))


def table(domain: Domain, rows: int, seed: int = 0) -> Records:
    """Records whose attributes hang together: each leans on the one before it."""
    rng = np.random.default_rng(seed)
    codes = (rng.random((rows, domain.width)) ** 2 * domain.sizes).astype(int)
    for j in range(1, domain.width):
        same = rng.random(rows) < 0.6
        codes[same, j] = codes[same, j - 1] % domain.sizes[j]
    return Records.from_rows(domain, codes)


budget = partial(house.budget, delta=0.0, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.PURE)


def task_of(
    domain: Domain, spec: str, rows: int, epsilon: float, neighbours: Neighbours = Neighbours.ADD_REMOVE
) -> Task:
    return Task(from_spec(domain, spec), rows, budget(epsilon, neighbours=neighbours))


def cells_of(records: Records, members: tuple[int, ...]) -> np.ndarray:
    tables = Tables(records.domain, (members,))
    return tables.counts(records).reshape(tables.shape_of(0))


def subsets(width: int) -> list[tuple[int, ...]]:
    return [members for order in range(width + 1) for members in combinations(range(width), order)]


# ── The statistic ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_signed_table_adds_up_signs_record_by_record() -> None:
    records = table(MIXED, 50)
    for members in subsets(MIXED.width):
        sizes = [int(MIXED.sizes[j]) for j in members]
        expected = np.zeros(signed_shape(sizes), np.int64)
        for row in records.to_rows().tolist():
            place = tuple(0 if k == 2 else row[j] for j, k in zip(members, sizes, strict=True))
            ones = sum(row[j] for j, k in zip(members, sizes, strict=True) if k == 2)
            expected[place] += (-1) ** ones
        statistic = SignedTables(MIXED, (members,), (3,))
        counted = statistic.counts(records)
        assert (counted == 3 * expected.ravel()).all()
        assert (statistic.in_records(counted)[members] == expected).all()
        assert (signed(cells_of(records, members)) == expected).all()


# ── From signed tables to interactions ──────────────────────────────────────────────────────────────────────────


def test_without_noise_every_table_comes_back() -> None:
    records = table(MIXED, 200)
    measured = MeasuredTables.rows(MIXED, records.rows, 0.0)
    for members in subsets(MIXED.width)[1:]:
        heard = Measured(members, signed(cells_of(records, members)).astype(float), 1.0)
        measured = measured.joined(interactions_told(heard, MIXED))
    for members in subsets(MIXED.width):
        assert reconstructed(members, measured.interactions, MIXED.sizes) == pytest.approx(
            cells_of(records, members), abs=1e-9
        )


def test_a_signed_table_tells_the_interactions_that_hold_its_binary_attributes() -> None:
    records = table(MIXED, 100)
    assert determined((0, 1, 3), MIXED) == [(0,), (0, 1), (0, 3), (0, 1, 3)]
    assert determined((1,), MIXED) == [(), (1,)]
    for members in subsets(MIXED.width):
        heard = Measured(members, signed(cells_of(records, members)).astype(float), 1.0)
        told = interactions_told(heard, MIXED)
        assert [each.what for each in told] == determined(members, MIXED)
        for each in told:
            assert each.values == pytest.approx(centred(cells_of(records, each.what).astype(float)), abs=1e-9)


def least_squares(domain: Domain, heard: list[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """The histogram nearest to everything heard, each entry weighted by its precision; and the covariance."""
    cells = list(product(*(range(int(k)) for k in domain.sizes)))
    rows, values, precision = [], [], []
    for each in heard:
        for place in np.ndindex(each.values.shape):
            row = []
            for cell in cells:
                sign, here = 1, True
                for axis, j in enumerate(each.what):
                    if domain.sizes[j] == 2:
                        sign *= 1 - 2 * cell[j]
                    else:
                        here &= cell[j] == place[axis]
                row.append(sign * here)
            rows.append(row)
            values.append(each.values[place])
            precision.append(1 / each.variance)
    matrix, weights = np.array(rows, float), np.array(precision)
    inverse = np.linalg.pinv(matrix.T @ (weights[:, None] * matrix))
    return inverse @ (matrix.T @ (weights * np.array(values))), inverse


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_mean_by_inverse_variance_is_least_squares(seed: int) -> None:
    """On what the measured sets determine, and with the variance that least squares has."""
    rng = np.random.default_rng(seed)
    domain = domain_of(2, 3, 2, 3)
    pool = subsets(4)
    sets = [(), *(pool[i] for i in rng.choice(len(pool), 7))]
    heard = [
        Measured(
            members,
            rng.normal(size=signed_shape([int(domain.sizes[j]) for j in members])) * 10,
            float(rng.uniform(0.1, 5)),
        )
        for members in sets
    ]
    measured = MeasuredTables.rows(domain, 0.0, 1e18)
    for each in heard:
        measured = measured.joined(interactions_told(each, domain))
    histogram, covariance = least_squares(domain, heard)
    shape = tuple(int(k) for k in domain.sizes)
    for members, cells in measured.interactions.items():
        others = tuple(j for j in range(4) if j not in members)
        expected = centred(histogram.reshape(shape).sum(axis=others))
        assert cells == pytest.approx(expected, rel=1e-6, abs=1e-6)
        along = np.zeros(shape)
        index = tuple(0 if j in members else slice(None) for j in range(4))
        along[index] = 1
        contrast = along
        for axis in members:  # the functional that reads cell 0 of the interaction
            contrast = contrast - contrast.mean(axis=axis, keepdims=True)
        variance = contrast.ravel() @ covariance @ contrast.ravel()
        share = np.prod([(shape[j] - 1) / shape[j] for j in members])
        assert measured.variance[members] * share == pytest.approx(variance, rel=1e-6)


# ── The plan and its price ──────────────────────────────────────────────────────────────────────────────────────

CASES = [
    (MIXED, "marginals:2", 5_000, 1.0),
    (MIXED, "marginals:1", 5_000, 1.0),
    (domain_of(5, 6, 7, 8, 9), "marginals:2", 500, 0.3),  # pairs are chosen
    (BINARY, "marginals:3", 600, 1.0),  # pairs alone
    (BINARY, "marginals:3", 300_000, 1.0),  # all triples are measured
    (BINARY, "marginals:5", 10_000, 3.0),
    (BINARY, "parities:2", 1_000, 0.7),
    (domain_of(3), "marginals:1", 1, 0.1),
]
RELATIONS = [Neighbours.REPLACE, Neighbours.ADD_REMOVE, PersonAddRemove(3)]


def name_of(case: tuple[Domain, str, int, float]) -> str:
    return f"{case[0].width} attributes-{case[1]}-{case[2]}"


@pytest.mark.parametrize("neighbours", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_price_is_epsilon_to_the_last_unit(case, neighbours: Neighbours) -> None:
    domain, spec, rows, epsilon = case
    task = task_of(domain, spec, rows, epsilon, neighbours)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 50})
    assert affordable(task.budget, plan.steps)
    curator = curator_of(table(domain, rows), task.budget)
    PROJECTION.run(plan, curator, np.random.default_rng(0), silent)
    assert curator.ledger.spent().epsilon == epsilon
    kinds = {type(event) for event in curator.ledger.events}
    chosen = plan.parameters.rounds
    assert kinds == ({LaplaceMeasurement, Selection} if chosen else {LaplaceMeasurement})
    assert len(curator.ledger.events) == 1 + 2 * chosen


def test_which_tables_are_measured() -> None:
    def orders(domain: Domain, spec: str, rows: int, epsilon: float) -> tuple[dict[int, int], int, int]:
        plan = plan_signed(task_of(domain, spec, rows, epsilon))
        first = {k: sum(len(s) == k for s in plan.first.sets) for k in range(6)}
        rounds = plan.rounds
        counts = {order: count for order, count in first.items() if count}
        return (counts, 0, 0) if rounds is None else (counts, rounds.number, len(rounds.candidates.sets[0]))

    assert orders(BINARY, "marginals:2", 2_000, 1.0) == ({0: 1, 1: 6, 2: 15}, 0, 0)
    assert orders(BINARY, "marginals:3", 600, 1.0) == ({0: 1, 1: 6, 2: 15}, 0, 0)
    assert orders(BINARY, "marginals:3", 300_000, 1.0) == ({0: 1, 1: 6, 2: 15, 3: 20}, 0, 0)
    assert orders(BINARY, "marginals:5", 300_000, 1.0) == ({0: 1, 1: 6, 2: 15, 3: 20, 4: 15, 5: 6}, 0, 0)
    many = domain_of(*(16 * [2]))  # 560 triples: too many for all, and too large for none
    assert orders(many, "marginals:3", 21_574, 1.0) == ({0: 1, 1: 16, 2: 120}, 0, 0)
    assert orders(many, "marginals:3", 21_574, 3.0) == ({0: 1, 1: 16, 2: 120}, 8, 3)
    assert orders(many, "marginals:3", 21_574, 10.0) == ({0: 1, 1: 16, 2: 120, 3: 560}, 0, 0)
    long = domain_of(9, 9, 9, 9, 9, 9)
    assert orders(long, "marginals:2", 3_000, 1.0) == ({0: 1, 1: 6}, 4, 2)
    assert orders(long, "marginals:2", 300_000, 1.0) == ({0: 1, 2: 15}, 0, 0)  # which tell the one-way tables
    assert orders(long, "marginals:3", 300_000, 0.05) == ({0: 1, 2: 15}, 0, 0)
    assert orders(long, "marginals:3", 300_000, 1.0) == ({0: 1, 3: 20}, 0, 0)  # which tell the pairs
    # a signed table tells nothing of two attributes where a third is binary, so these two are measured beside it
    assert orders(MIXED, "marginals:3", 30_000, 1.0) == ({0: 1, 2: 1, 3: 4}, 0, 0)
    assert orders(domain_of(2, 1, 1), "marginals:2", 100, 1.0) == ({0: 1, 1: 1}, 0, 0)


def test_where_the_length_is_public_or_was_measured_it_is_not_measured_again() -> None:
    workload = from_spec(MIXED, "marginals:2")
    public = Task(workload, 100, budget(neighbours=Neighbours.REPLACE))
    before = Task(workload, 100, budget(), rows_variance=4.0)
    assert all(() not in plan_signed(task).first.sets for task in (public, before))
    assert () in plan_signed(Task(workload, 100, budget())).first.sets


def test_the_rule_looks_at_public_things_and_more_budget_means_less_noise() -> None:
    coarse, fine = (PROJECTION.plan_for(task_of(MIXED, "marginals:2", 5_000, e), {}) for e in (0.5, 5.0))
    assert coarse.mean_error > 5 * fine.mean_error
    assert coarse.max_error > coarse.mean_error
    replaced = PROJECTION.plan_for(task_of(MIXED, "marginals:2", 5_000, 5.0, Neighbours.REPLACE), {})
    assert replaced.parameters.cell_noise == pytest.approx(2 * fine.parameters.cell_noise, rel=0.1)
    shape = Shape.of(task_of(MIXED, "marginals:2", 5_000, 1.0))
    assert shape.noise_of_pairs == pytest.approx((3 + 1 + 4 + 3 + 12 + 4) / 5_000)
    assert "signed tables" in fine.reason


def test_noise_is_combined_as_the_plan_predicts() -> None:
    """The deviation of a pair's cell over repetitions is the one that plan and measurement state."""
    task = task_of(MIXED, "marginals:2", 400, 2.0, Neighbours.REPLACE)
    records, plan = table(MIXED, 400), plan_signed(task)
    found = []
    for seed in range(120):
        measured = measure(plan, curator_of(records, task.budget, seed=seed), task, np.random.default_rng(0))
        found.append([measured.table((0, 1))[1, 1], measured.table((1, 3))[0, 2]])
    stated = [measured.deviation((0, 1)), measured.deviation((1, 3))]
    assert np.std(found, axis=0) == pytest.approx(stated, rel=0.25)
    true = [cells_of(records, (0, 1))[1, 1] / 400, cells_of(records, (1, 3))[0, 2] / 400]
    assert np.abs(np.mean(found, axis=0) - true).max() < 4 * max(stated) / np.sqrt(120)


# ── Runs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def mean_error(task: Task, records: Records, seed: int = 1) -> tuple[float, Plan[BySignedTables]]:
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 20_000})
    outcome = PROJECTION.run(
        plan, curator_of(records, task.budget, seed=seed), np.random.default_rng(seed), silent
    )
    workload: Workload = task.workload
    wrong = np.abs(workload.fractions(outcome.artefact.records) - workload.fractions(records))
    return float(wrong.mean()), plan


@pytest.mark.parametrize(
    ("domain", "spec", "epsilon", "most"),
    [
        (BINARY, "marginals:2", 1.0, 0.004),
        (BINARY, "marginals:3", 0.5, 0.006),
        (MIXED, "marginals:2", 1.0, 0.002),
    ],
)
def test_rows_are_as_good_as_the_noise_allows(domain: Domain, spec: str, epsilon: float, most: float) -> None:
    records = table(domain, 10_000)
    error, plan = mean_error(task_of(domain, spec, 10_000, epsilon), records)
    assert error < most
    assert error < 2.5 * plan.mean_error


def test_chosen_pairs_are_better_than_independence() -> None:
    domain = domain_of(*[8] * 7)
    records = table(domain, 5_000)
    task = task_of(domain, "marginals:2", 5_000, 1.0)
    error, plan = mean_error(task, records)
    assert plan.parameters.rounds == 6
    alone, _ = mean_error(task_of(domain, "marginals:1", 5_000, 100.0), records)
    assert alone < 0.001
    independent = PROJECTION.plan_for(
        task_of(domain, "marginals:1", 5_000, 100.0), {"synthetic_rows": 20_000}
    )
    outcome = PROJECTION.run(
        independent, curator_of(records, independent.task.budget), np.random.default_rng(0), silent
    )
    truth = task.workload.fractions(records)
    without = np.abs(task.workload.fractions(outcome.artefact.records) - truth).mean()
    assert error < 0.9 * without


def test_the_error_falls_with_the_budget() -> None:
    """The largest cell of triples that pairs do not imply: of five attributes one is the sum of two others."""
    domain, rng = domain_of(4, 4, 4, 4, 4), np.random.default_rng(0)
    codes = rng.integers(0, 4, (20_000, 5))
    odd = rng.random(20_000) < 0.3
    codes[odd, 2] = (codes[odd, 0] + codes[odd, 1]) % 4
    records = Records.from_rows(domain, codes)
    largest = []
    for epsilon in (0.3, 1.0, 3.0, 10.0):
        task = task_of(domain, "marginals:3", 20_000, epsilon)
        plan = PROJECTION.plan_for(task, {"synthetic_rows": 40_000})
        made = PROJECTION.run(plan, curator_of(records, task.budget), np.random.default_rng(0), silent)
        wrong = task.workload.fractions(made.artefact.records) - task.workload.fractions(records)
        largest.append(float(np.abs(wrong).max()))
    assert all(after < 0.7 * before for before, after in pairwise(largest))


def test_the_predicted_shares_are_a_minimum() -> None:
    """No group of tables alike would be better off with more, less or nothing; and what they tell is complete."""
    task = task_of(MIXED, "marginals:3", 30_000, 1.0)
    overlaps = Shape.of(task).overlaps(task, 10**6)
    best = overlaps.best()
    assert best.sum() == pytest.approx(1)
    least = overlaps.error(best)
    for group in range(overlaps.group.max() + 1):
        for factor in (0.0, 0.7, 1.5):
            other = np.where(overlaps.group == group, factor * best, best)
            assert not other.any() or overlaps.error(other / other.sum()) > 0.998 * least
    everything = np.full(len(best), 1 / len(best))
    assert least < overlaps.error(everything) < np.inf
    ones = np.array([len(members) == 1 for members in overlaps.curves.sets])
    assert (best[ones] == 0).all()  # triples tell the one-way tables
    assert overlaps.error(np.where(ones, 1 / ones.sum(), 0.0)) < np.inf
    long = np.array([members == (1, 3) for members in overlaps.curves.sets])
    assert (
        overlaps.error(np.where(long, 0.0, best)) == np.inf
    )  # with a binary attribute none tells of these two


def test_a_seed_gives_the_same_rows() -> None:
    task = task_of(domain_of(5, 6, 7, 8, 9), "marginals:2", 500, 0.3)
    records = table(task.domain, 500)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 300})
    first, second = (
        PROJECTION.run(plan, curator_of(records, task.budget, seed=5), np.random.default_rng(5), silent)
        for _ in range(2)
    )
    assert (first.artefact.records.to_rows() == second.artefact.records.to_rows()).all()


def test_a_declared_number_of_records_is_believed_roughly() -> None:
    """Of a table of 200 records noise alone says little; of one of 20,000 it corrects what was declared."""
    workload = from_spec(BINARY, "marginals:1")
    for true, declared, most in ((200, 200, 0.1), (20_000, 22_000, 0.02)):
        task = Task(workload, declared, budget(2.0))
        records = table(BINARY, true)
        measured = measure(
            plan_signed(task), curator_of(records, task.budget), task, np.random.default_rng(0)
        )
        assert abs(measured.total / true - 1) < most


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_refusals_are_sentences() -> None:
    with pytest.raises(DualQueryError, match="is constant"):
        plan_signed(task_of(domain_of(1, 1), "marginals:1", 100, 1.0))
    with pytest.raises(BudgetError, match=r"larger (epsilon|budget)"):
        plan_signed(task_of(MIXED, "marginals:2", 100, 1e-11))
    with pytest.raises(BudgetError, match=r"larger (epsilon|budget)"):
        plan_signed(task_of(domain_of(*[9] * 6), "marginals:2", 3_000, 1e-11))
    task = task_of(MIXED, "marginals:2", 100, 1.0)
    with pytest.raises(DualQueryError, match="--memory"):
        PROJECTION.plan_for(task, {"memory": 1000})
    with pytest.raises(DualQueryError, match="--items-per-record"):
        PROJECTION.plan_for(task, {"items_per_record": 3})


def test_a_small_budget_has_coarse_shares() -> None:
    plan = plan_signed(task_of(MIXED, "marginals:1", 100, 1e-6))
    assert min(plan.first.multipliers) < 256
    assert plan.noise.scale == Fraction(sum(plan.first.multipliers)) / Fraction("1e-6")


# ── The choice ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rule_under_pure_epsilon() -> None:
    def chosen(domain: Domain, spec: str, rows: int, **options: object) -> str:
        return choose(task_of(domain, spec, rows, 1.0), options).mechanism

    assert chosen(BINARY, "marginals:2", 599) == "mwem"
    assert chosen(BINARY, "marginals:2", 601) == "projection"
    with pytest.raises(DualQueryError, match=r"--rounds means nothing to the mechanism 'projection'.*mwem"):
        chosen(BINARY, "marginals:2", 5_000, rounds=3)
    assert chosen(Domain((Items("item", 1_000),)), "random:3:200", 5_000) == "projection"
    assert chosen(Domain((Items("item", 2_000),)), "random:3:100000", 5_000) == "dualquery"
    for neighbours in (Neighbours.REPLACE, PersonAddRemove(2)):  # either doubles the noise
        assert choose(task_of(BINARY, "marginals:2", 1_199, 1.0, neighbours), {}).mechanism == "mwem"
        assert choose(task_of(BINARY, "marginals:2", 1_201, 1.0, neighbours), {}).mechanism == "projection"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_chosen_triples_find_what_pairs_do_not_show(seed: int) -> None:
    """Sixteen fair coins of which one is the parity of two others: no pair of them depends, one triple does."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (20_000, 16))
    codes[:, 2] = codes[:, 0] ^ codes[:, 1]
    domain = domain_of(*(16 * [2]))
    records, task = Records.from_rows(domain, codes), task_of(domain, "marginals:3", 20_000, 3.0)
    plan = PROJECTION.plan_for(task, {})
    assert plan.parameters.rounds == 8
    curator = curator_of(records, task.budget, seed=seed)
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(seed), silent)
    found = outcome.artefact.records.to_rows()
    assert np.mean(found[:, 2] == found[:, 0] ^ found[:, 1]) > 0.9
    assert curator.ledger.spent().epsilon <= 3.0
