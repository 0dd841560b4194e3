"""Replicas and the bars made from them: the formula by hand, what is drawn, and what a replica may touch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import t as student

from dualquery.counting import MemoryCounter
from dualquery.fitting.fitter import REPLICAS
from dualquery.fitting.prior import Trust
from dualquery.mechanisms import error_bars
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.baselines import UNIFORM
from dualquery.mechanisms.error_bars import (
    LEVEL,
    POINTS,
    STUDENT,
    CurvePoint,
    Draw,
    ErrorCurves,
    Repeated,
    Replica,
    learned_curves,
    made_replicas,
    narrowest,
    tables_drawn,
)
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.group import NONE
from dualquery.queries.random_families import Stream, mixed_questions, random_conjunctions
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records, SparseItems
from dualquery.types import silent
from tests.fitting.test_units import random_units, town
from tests.house import curator_of

SIZES = (3, 4, 2, 5, 1, 2)
DOMAIN = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(SIZES)))


def random_rows(rows: int, seed: int) -> Records:
    """A hidden class of two, and attributes that follow it more or less."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 2, rows)
    columns = []
    for j, k in enumerate(SIZES):
        laws = np.random.default_rng(j).dirichlet(np.full(k, 0.6), 2)
        columns.append(
            np.minimum((rng.random(rows)[:, None] > np.cumsum(laws, axis=1)[hidden]).sum(axis=1), k - 1)
        )
    return Records.from_rows(DOMAIN, np.column_stack(columns))


@pytest.mark.parametrize("seed", range(20))
def test_a_curve_goes_up_where_answers_are_equal_but_for_their_last_bit(seed: int) -> None:
    """Seen: one release of fifty wrote means of equal answers that fell by 10^-16, and could not be read again."""
    rng = np.random.default_rng(seed)
    answers = rng.choice(rng.random(3), 401)
    errors = rng.random(401)
    points = error_bars._curve(answers, errors, errors / 2, 0.5)
    assert all(a.answer <= b.answer for a, b in pairwise(points))


def test_student_s_quantile_is_that_of_all_replicas_and_as_many_more() -> None:
    assert pytest.approx(student.ppf((1 + LEVEL) / 2, 2 * REPLICAS)) == STUDENT


def test_bars_by_hand() -> None:
    one = (CurvePoint(0.0, 0.01, 1.0), CurvePoint(0.5, 0.03, 1.0))
    two = (CurvePoint(0.1, 0.02, 0.5),)
    curves = ErrorCurves((one, two))
    answers, orders = np.array([0.25, 0.75, 0.9, 0.0]), np.array([1, 1, 2, 7])
    errors = [np.full(4, size) for size in (0.01, -0.02, 0.03, 0.0)]
    squares = 0.01**2 + 0.02**2 + 0.03**2
    found = curves.bars(answers, orders, errors)
    first = STUDENT * np.sqrt((4 * 0.02**2 + squares) / 8)
    last = STUDENT * np.sqrt((4 * 0.02**2 + 0.25 * squares) / 8)
    assert found == pytest.approx([first, first, last, last])


def test_halves_of_units_are_fits() -> None:
    units = random_units(town(), 9, np.random.default_rng(0))
    one, other = Replica.of(units, units).halves
    assert [one.rows, other.rows] == [5, 4]
    assert (np.concatenate([one.to_rows(), other.to_rows()]) == units.to_rows()).all()


def test_no_bar_is_narrower_than_a_record_or_the_rule_of_three() -> None:
    assert narrowest(1000, 10**6) == 1 / 1000
    assert narrowest(10**6, 1000) == 3 / 1000


def test_tables_are_drawn_alike_on_every_machine() -> None:
    released = random_rows(1000, 0)
    first, second = (
        [table.to_rows() for table in tables_drawn(released, Draw(300, seed))]
        for seed in (2**53 - 1, 2**53 - 1)
    )
    assert len(first) == REPLICAS
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], first[1])
    # The raw stream is one that numpy promises to keep; these are its first words.
    assert error_bars._drawn(20, 5, Stream(7)).tolist() == DRAWN_OF_20
    assert error_bars._drawn(3, 5, Stream(7)).tolist() == DRAWN_OF_3


DRAWN_OF_20 = [3, 4, 6, 11, 12]
DRAWN_OF_3 = [0, 0, 1, 2, 2]


def test_rows_are_drawn_once_where_there_are_enough_of_them() -> None:
    for seed in range(20):
        drawn = error_bars._drawn(50, 20, Stream(seed))
        assert len(set(drawn.tolist())) == 20
        assert drawn.min() >= 0
        assert drawn.max() < 50
    often = np.bincount(
        np.concatenate([error_bars._drawn(50, 20, Stream(seed)) for seed in range(500)]), minlength=50
    )
    assert 140 < often.min() < 200 < often.max() < 260
    assert len(error_bars._drawn(10, 25, Stream(0))) == 25


def test_of_a_large_table_each_row_drawn_stands_for_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(40, 1)
    counter, plain = Repeated(rows, 3), MemoryCounter(rows)
    group = marginals(DOMAIN, 1).groups[0]
    assert counter.true_rows == 120
    assert np.array_equal(counter.true_counts(group), 3 * plain.true_counts(group))
    assert Draw.of(SyntheticRecords(rows), 950, 7) == Draw(950, 7)
    monkeypatch.setattr(error_bars, "MOST_DRAWN", 100)
    assert Draw.of(SyntheticRecords(rows), 950, 7) == Draw(100, 7)
    monkeypatch.setattr(error_bars, "MOST_BYTES", rows.bytes // 4)
    assert Draw.of(SyntheticRecords(rows), 950, 7) == Draw(10, 7)
    assert [table.rows for table in tables_drawn(rows, Draw(100, 0))] == [100] * REPLICAS


def test_with_a_prior_tables_lie_as_far_about_the_release_as_the_records_it_counts_as() -> None:
    """Cells of drawn tables vary by p(1 − p)/N₀, the chance of their own n records among it."""
    rows = Records.from_rows(DOMAIN, np.zeros((4_000, DOMAIN.width), np.int32))
    artefact = SyntheticRecords(rows)
    drawn = Draw.of(artefact, 1_000, 7, Trust(400.0, 1.0))
    assert drawn.atoms == round(1 / (1 / 400 - 1 / 1_000))
    assert Draw.of(artefact, 1_000, 7, Trust(1_000.0, 1.0)).atoms is None
    assert Draw.of(artefact, 1_000, 7, Trust(400.0, 0.0)).atoms is None
    codes = np.zeros((4_000, DOMAIN.width), np.int32)
    codes[:1_600, 0] = 1
    released = Records.from_rows(DOMAIN, codes)
    shares = [
        float((np.asarray(error_bars._table_drawn(released, drawn, n).columns[0]) == 1).mean())
        for n in range(400)
    ]
    kept = 1 - drawn.atoms / 4_000  # atoms are drawn without replacement
    expected = 0.4 * 0.6 * (kept / drawn.atoms + 1 / 1_000)
    assert float(np.var(shares)) == pytest.approx(expected, rel=0.25)


def test_mixed_questions_are_about_as_many_attributes_as_asked_for() -> None:
    attributes = np.flatnonzero(DOMAIN.sizes > 1)
    orders = np.repeat([1, 3, 5], 50)
    group = mixed_questions(DOMAIN, attributes, orders, Stream(3))
    asked = group.attribute_rows()
    assert np.array_equal((asked != NONE).sum(axis=1), orders)
    for row, order in zip(asked, orders, strict=True):
        assert len({j for j in row.tolist() if j != NONE}) == order
    accepted = [group.predicates.accepted(p) for p in range(len(group.predicates))]
    sizes = DOMAIN.sizes[group.predicates.attribute]
    assert all(0 < len(each) < size for each, size in zip(accepted, sizes, strict=True))


def test_what_fewer_rows_add_is_not_counted() -> None:
    """Replicas without any error but sampling: 1,000 rows of a law, where 50,000 were released of many records."""
    released = random_rows(50_000, 2)
    made = [Replica.of(random_rows(200_000, 10 + b), random_rows(1_000, 20 + b)) for b in range(REPLICAS)]
    raw = learned_curves(random_rows(1_000, 3), 10**6, made, Stream(0))
    counted = learned_curves(released, 10**6, made, Stream(0))
    answers, orders = np.array([0.3, 0.2, 0.1, 0.1]), np.array([1, 2, 3, 4])
    error, part = raw.at(answers, orders)
    assert part == pytest.approx(np.ones(4))
    assert error == pytest.approx(np.sqrt(answers * (1 - answers) / 1_000), rel=0.3)
    error, part = counted.at(answers, orders)
    assert np.all(part[1:] < 0.5)
    assert np.all(error[1:] < 0.6 * np.sqrt(answers * (1 - answers) / 1_000)[1:])
    assert part[0] < 0.95  # of one attribute there are few questions
    assert np.all(part >= np.sqrt(1_000 / 50_000) - 1e-12)
    assert len(counted.curves) == 5
    assert all(len(curve) == POINTS for curve in counted.curves)


@pytest.mark.parametrize("mechanism", [PROJECTION])
def test_replicas_read_nothing_but_released_rows(mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    """The private counter is closed, and the ledger stays as it was, when replicas are made."""
    records = random_rows(3_000, 4)
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    task = Task(marginals(DOMAIN, 2), 3_000, budget, rows_variance=400.0)
    plan = mechanism.plan_for(task, {"synthetic_rows": 2_000})
    counter, ledger = MemoryCounter(records), Ledger(budget)
    released = mechanism.run(
        plan, Curator(counter, ledger, SeededEntropy(1)), np.random.default_rng(1), silent
    )
    paid = ledger.events

    def closed(*_: object, **__: object) -> None:
        raise AssertionError("the private table was read")

    monkeypatch.setattr(counter, "true_counts", closed)
    told: list[tuple[str, int, int]] = []
    made = made_replicas(mechanism, plan, released, Draw(3_000, 5), lambda *step: told.append(step))
    assert ledger.events == paid
    assert [each.table.rows for each in made] == [3_000] * REPLICAS
    assert {each.rows for each in made} == {2_000}
    assert told[-1] == ("estimating errors", REPLICAS, REPLICAS)
    again = made_replicas(mechanism, plan, released, Draw(3_000, 5), silent)
    for one, other in zip(made, again, strict=True):
        assert np.array_equal(one.halves[0].to_rows(), other.halves[0].to_rows())
        assert np.array_equal(one.table.to_rows(), other.table.to_rows())


def test_a_guess_has_no_replicas() -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    plan = UNIFORM.plan_for(Task(marginals(DOMAIN, 1), 100, budget), {})
    assert (
        made_replicas(
            UNIFORM, plan, Outcome(artefact=SyntheticRecords(random_rows(10, 0))), Draw(100, 0), silent
        )
        == ()
    )


def test_baskets_have_replicas() -> None:
    """Records that are lists of items are drawn, measured and counted as any others."""
    rng = np.random.default_rng(0)
    held = rng.random((2_000, 250)) < np.minimum(0.4, 2 / np.arange(2, 252))
    owner, item = np.nonzero(held)
    start = np.searchsorted(owner, np.arange(2_001)).astype(np.int64)
    baskets = Domain((Items("item", 250),))
    records = Records(baskets, 2_000, (SparseItems(start, item.astype(np.int32)),))
    budget = Budget(epsilon=5, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    task = Task(random_conjunctions(baskets, 2, 500, seed=1), 2_000, budget)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 400, "items_per_record": 15})
    curator = curator_of(records, budget, seed=1)
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(1), silent)
    made = made_replicas(PROJECTION, plan, outcome, Draw(2_000, 3), silent)
    assert [each.table.rows for each in made] == [2_000] * REPLICAS
    curves = learned_curves(outcome.artefact.records, 2_000, made, Stream(1))
    error, _ = curves.at(np.array([0.4, 0.4]), np.array([1, 2]))
    assert np.all((error > 1e-4) & (error < 0.1))
