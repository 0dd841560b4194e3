"""MWEM as a mechanism: what it costs, how it learns, what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dualquery.beliefs.factored import Factored
from dualquery.errors import BudgetError, DualQueryError, QueryError
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Outcome, Task, last
from dualquery.mechanisms.mwem import MWEM, automatic_rounds, belief_of, parameters_of
from dualquery.mechanisms.rounds import (
    AskedQueries,
    AskedTables,
    QuestionKind,
    asked_of,
    priced,
    replies,
    usual_kind,
)
from dualquery.mechanisms.wishes import MwemWishes
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Laplace
from dualquery.privacy.scores import FINE
from dualquery.privacy.selection import SLACK
from dualquery.queries.families import from_spec
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import curator_of

BINARY = Domain((Items("item", 8),))
MIXED = Domain(
    (Categorical("a", ("x", "y", "z")), equal_width("c", 0, 10, 10), Categorical("e", tuple("pqrst")))
)


def skewed(domain: Domain, rows: int = 3000) -> Records:
    """Records whose attributes depend on each other."""
    rng = np.random.default_rng(0)
    mood = rng.random(rows)
    columns = [
        np.minimum((mood ** (1 + j % 3) * size).astype(int), size - 1) for j, size in enumerate(domain.sizes)
    ]
    mixed = [
        np.where(rng.random(rows) < 0.8, c, rng.integers(0, s, rows))
        for c, s in zip(columns, domain.sizes, strict=True)
    ]
    return Records.from_rows(domain, np.stack(mixed, axis=1))


def budget(
    epsilon: float = 1.0, delta: float = 0.0, neighbours: Neighbours = Neighbours.ADD_REMOVE
) -> Budget:
    accounting = Accounting.ZCDP if delta else Accounting.PURE
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


def run(
    records: Records, workload: Workload, spend: Budget, seed: int = 1, **options: object
) -> tuple[Outcome, Ledger]:
    plan = MWEM.plan_for(Task(workload, records.rows, spend), options)
    ledger = Ledger(spend)
    curator = curator_of(records, ledger, seed=seed)
    return MWEM.run(plan, curator, np.random.default_rng(seed), silent), ledger


def errors(outcome: Outcome, workload: Workload, records: Records) -> float:
    assert outcome.belief is not None
    return float(np.abs(outcome.belief.answers(workload) - workload.fractions(records)).mean())


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("measured", [each.value for each in QuestionKind])
@pytest.mark.parametrize("updates", ["repeated", "once"])
def test_a_pure_run_costs_what_the_paper_says(neighbours: Neighbours, measured: str, updates: str) -> None:
    records = skewed(BINARY)
    spend = budget(1.0, neighbours=neighbours)
    _, ledger = run(
        records, from_spec(BINARY, "marginals:2"), spend, rounds=5, measured=measured, updates=updates
    )
    selections = [event for event in ledger.events if isinstance(event, Selection)]
    noises = [event for event in ledger.events if isinstance(event, LaplaceMeasurement)]
    assert len(selections) == len(noises) == 5
    # Half and half as in Figure 1, or three to two where parities are measured again and again.
    share = Fraction(3, 5) if updates == "repeated" and "parities" in measured else Fraction(1, 2)
    for event in selections:
        assert event.pure <= share / 5
        assert float(event.pure) == pytest.approx(float(share / 5), rel=1e-6)
    moved = 2 if neighbours is Neighbours.REPLACE else 1
    for noise in noises:
        assert noise.sensitivity == moved
        assert float(noise.scale) == pytest.approx(float(5 * moved / (1 - share)))
    assert ledger.spent().epsilon == pytest.approx(1.0, abs=1e-9)
    assert ledger.spent().epsilon <= 1.0


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_a_concentrated_run_costs_what_bounded_range_says(neighbours: Neighbours) -> None:
    records = skewed(BINARY)
    spend = budget(1.0, 1e-6, neighbours)
    _, ledger = run(records, from_spec(BINARY, "marginals:2"), spend, rounds=4)
    rho = Fraction(0)
    for event in ledger.events:
        if isinstance(event, Selection):
            rho += event.range**2 / 8
        else:
            assert isinstance(event, GaussianMeasurement)
            rho += event.sensitivity_squared / (2 * event.variance)
    spent = ledger.spent()
    assert spent.rho_units == pytest.approx(float(rho) * 1e12, rel=1e-6)
    assert spent.epsilon <= 1.0
    assert spent.epsilon == pytest.approx(1.0, abs=1e-6)


def test_a_noisy_start_is_paid_for() -> None:
    records = skewed(BINARY)
    _, ledger = run(records, from_spec(BINARY, "marginals:2"), budget(), rounds=3, start="noisy")
    first = ledger.events[0]
    assert isinstance(first, LaplaceMeasurement)
    assert float(first.pure) == pytest.approx(0.25)
    assert len(ledger.events) == 7
    assert 1 - 1e-9 <= ledger.spent().epsilon <= 1


def test_a_selection_stays_within_its_range_on_every_neighbour() -> None:
    """Log-weights of all candidates, as the curator scores them, between all pairs of tiny tables."""
    rows = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1]])
    domain = Domain((Items("item", 3),))
    workload = from_spec(domain, "parities:3")
    answers = np.linspace(0.1, 0.9, workload.size)

    def scores(codes: np.ndarray, public: int) -> np.ndarray:
        counts = workload.counts(Records.from_rows(domain, codes))
        errors = counts - public * answers
        return np.concatenate([errors, (len(codes) - counts) - public * (1 - answers)])

    for r in range(len(rows)):
        moves = scores(rows, 4) - scores(np.delete(rows, r, axis=0), 4)
        assert np.ptp(moves) <= 1  # added or removed: every candidate rises by 0 or 1
        changed = rows.copy()
        changed[r] = 1 - changed[r]
        moves = scores(rows, 4) - scores(changed, 4)
        assert np.ptp(moves) <= 2


@pytest.mark.parametrize("measured", [each.value for each in QuestionKind])
def test_the_more_budget_the_better(measured: str) -> None:
    records, workload = skewed(BINARY), from_spec(BINARY, "marginals:2")
    poor = np.mean(
        [
            errors(run(records, workload, budget(0.01), s, measured=measured)[0], workload, records)
            for s in range(3)
        ]
    )
    rich = np.mean(
        [
            errors(run(records, workload, budget(5.0), s, measured=measured)[0], workload, records)
            for s in range(3)
        ]
    )
    uniform = np.abs(0.25 - workload.fractions(records)).mean()
    assert rich < poor / 2
    assert rich < uniform / 2


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_figure_1_draws_and_measures_as_printed(neighbours: Neighbours) -> None:
    """exp(ε s / 4T) for a gap of s records, Lap(2T/ε), and no candidate but the workload's own queries."""
    records, workload = skewed(BINARY), from_spec(BINARY, "marginals:2")
    spend = budget(1.0, neighbours=neighbours)
    chosen = parameters_of(Task(workload, records.rows, spend), MwemWishes(rounds=5, updates="figure-1"))
    assert chosen.asked.size == workload.size
    assert float(chosen.rate.nats * FINE) == pytest.approx(1 / (4 * 5), rel=1e-6)
    assert isinstance(chosen.law, Laplace)
    assert float(chosen.law.scale) == pytest.approx(2 * 5, rel=1e-6)
    _, ledger = run(records, workload, spend, rounds=5, updates="figure-1")
    assert len(ledger.events) == 10
    assert 1 - 1e-9 <= ledger.spent().epsilon <= 1


def figure_1(records: Records, workload: Workload, rounds: int) -> np.ndarray:
    """Figure 1 without privacy, cell by cell: the worst query, its count, one update; answers of avg A_i, i < T."""
    cells = np.array(list(product(*(range(size) for size in records.domain.sizes))))
    truth = workload.counts(records)
    queries = np.stack(
        [workload.counts(Records.from_rows(records.domain, cell[None])) for cell in cells], axis=1
    )
    n, weights, given = records.rows, np.full(len(cells), 1 / len(cells)), []
    for _ in range(rounds):
        given.append(queries @ weights)
        gaps = truth - n * given[-1]
        q = int(np.argmax(np.abs(gaps)))
        weights = weights * np.exp(queries[q] * gaps[q] / (2 * n))
        weights /= weights.sum()
    return np.mean(given, axis=0)


def test_figure_1_with_a_huge_budget_is_figure_1_without_privacy() -> None:
    records, workload = skewed(MIXED), from_spec(MIXED, "random:2:40 + marginals:1")
    outcome, _ = run(records, workload, budget(1e5), rounds=12, updates="figure-1")
    assert outcome.belief is not None
    np.testing.assert_allclose(outcome.belief.answers(workload), figure_1(records, workload, 12), atol=1e-6)


def test_theorem_2_2_stands_on_the_plan_and_holds() -> None:
    records, workload = skewed(BINARY, 100_000), from_spec(BINARY, "random:3:500")
    options = {"rounds": 100, "updates": "figure-1"}
    plan = MWEM.plan_for(Task(workload, records.rows, budget(1.0)), options)
    promised = 2 * math.sqrt(math.log(256) / 100) + 10 * 100 * math.log(500) / 100_000
    assert plan.parameters.promised_error == pytest.approx(promised)
    assert "with probability 0.6 every query is answered within 53,3" in " ".join(plan.notes)
    for seed in range(3):
        outcome, _ = run(records, workload, budget(1.0), seed, **options)
        assert outcome.belief is not None
        wrong = np.abs(outcome.belief.answers(workload) - workload.fractions(records)).max()
        assert 0.1 * promised < wrong < promised
    with pytest.raises(BudgetError, match="pure epsilon"):
        MWEM.plan_for(Task(workload, 1000, budget(1.0, 1e-6)), options)
    few = MWEM.plan_for(Task(workload, 1000, budget()), {"rounds": 250, "updates": "figure-1"})
    assert few.parameters.promised_error is None


def test_the_literal_figure_1_is_available_and_poor() -> None:
    records, workload = skewed(BINARY), from_spec(BINARY, "random:3:500")
    literal, _ = run(records, workload, budget(1.0), updates="figure-1", rounds=8)
    ours, _ = run(records, workload, budget(1.0), rounds=8)
    uniform = Factored(BINARY, part_cells=1).answers(workload)
    guess = np.abs(uniform - workload.fractions(records)).mean()
    assert errors(ours, workload, records) < errors(literal, workload, records) / 2
    assert errors(literal, workload, records) < guess


def test_records_and_answers_agree() -> None:
    records, workload = skewed(MIXED), from_spec(MIXED, "marginals:2 + ranges:c:100")
    outcome, _ = run(records, workload, budget(2.0))
    assert isinstance(outcome.artefact, SyntheticRecords)
    assert outcome.belief is not None
    assert outcome.artefact.rows == 20_000
    made = workload.fractions(outcome.artefact.records)
    assert np.abs(made - outcome.belief.answers(workload)).max() < 0.01


def played(records: Records, task: Task, start: Factored, **wishes: int) -> Factored:
    """The game alone, from this start: the last reply."""
    chosen = parameters_of(task, MwemWishes(**wishes))
    curator = curator_of(records, task.budget, seed=3)
    return last(replies(chosen, belief_of(chosen, start, task.rows), curator, silent))


def test_factored_and_explicit_runs_are_the_same_run() -> None:
    records, workload = skewed(BINARY), from_spec(BINARY, "parities:2")
    task = Task(workload, records.rows, budget())
    found = []
    for start in (Factored(BINARY, part_cells=256), Factored.explicit(BINARY)):
        found.append(played(records, task, start, rounds=10).marginal(tuple(range(8))))
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_parts_stay_within_their_limit() -> None:
    records, workload = skewed(BINARY), from_spec(BINARY, "parities:3")
    task = Task(workload, records.rows, budget(5.0))
    distribution = played(records, task, Factored(BINARY, part_cells=16), rounds=12, part_cells=16)
    assert max(np.bincount(distribution.owner)) <= 4


def test_what_is_measured_by_default() -> None:
    assert usual_kind(from_spec(BINARY, "marginals:3")) is QuestionKind.QUERIES_AND_PARITIES
    assert usual_kind(from_spec(MIXED, "marginals:2")) is QuestionKind.TABLES
    assert usual_kind(from_spec(MIXED, "random:2:10")) is QuestionKind.QUERIES
    closed = asked_of(from_spec(BINARY, "marginals:3"), QuestionKind.PARITIES, 100)
    assert isinstance(closed, AskedQueries)
    assert closed.size == closed.workload.size == sum(math.comb(8, k) for k in (1, 2, 3))
    both = asked_of(from_spec(BINARY, "marginals:3"), QuestionKind.QUERIES_AND_PARITIES, 100)
    assert both.size == closed.size + 8 * math.comb(8, 3)


def test_tables_that_noise_would_drown_are_left_out() -> None:
    asked = asked_of(from_spec(MIXED, "marginals:3"), QuestionKind.TABLES, public_rows=1000)
    assert isinstance(asked, AskedTables)
    assert len(asked.tables.sets) == 7
    # In more than twenty cells noise of 100 records each is more than 2n, the largest error of a table.
    assert asked.worthwhile(100.0).tables.sets == ((0,), (1,), (2,), (0, 2))
    assert asked.worthwhile(20_000.0).tables.sets == ((0,),)
    assert asked.worthwhile(100.0).noise_per_cell == 100.0


def test_rounds_come_from_public_quantities() -> None:
    task = Task(from_spec(BINARY, "parities:3"), 1000, budget(1.0))
    assert automatic_rounds(task) == round(8 * 10 / 10)
    assert automatic_rounds(Task(task.workload, 1000, budget(1.0, 1e-6))) == 16


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [1_000, 30_000, 1_000_000])
def test_rounds_of_tables_end_where_noise_meets_the_gap_still_expected(rows: int, delta: float) -> None:
    """(d/4)⁶ / T⁵ of the records; a hundred times the records are worth twice the rounds (100^⅙), not five times."""
    domain = Domain(tuple(Categorical(f"a{j}", tuple("pqrs")) for j in range(8)))
    task = Task(from_spec(domain, "marginals:3"), rows, budget(1.0, delta))
    asked = asked_of(task.workload, QuestionKind.TABLES, rows)
    rounds = automatic_rounds(task, asked)
    assert MWEM.plan_for(task, {}).parameters.rounds == rounds < len(asked.tables.sets)
    for played, below in ((rounds, True), (rounds + 1, False)):
        assert (priced(task, played, asked).noise <= rows * 2**6 / played**5) is below
    many = Task(task.workload, 100 * rows, task.budget)
    assert 1.5 < automatic_rounds(many, asked_of(task.workload, QuestionKind.TABLES, 100 * rows)) / rounds < 3


def test_no_more_rounds_than_tables() -> None:
    task = Task(from_spec(MIXED, "marginals:1"), 10**7, budget(10.0))
    assert automatic_rounds(task, asked_of(task.workload, QuestionKind.TABLES, task.rows)) == 3


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"rounds": 0}, DualQueryError, "at least one round"),
        ({"part_cells": 2, "measured": "tables"}, None, ""),
        ({"part_cells": 1}, QueryError, "allow larger parts"),
        ({"iterate": "best"}, DualQueryError, "--iterate must be one of last, average"),
        ({"updates": "twice"}, DualQueryError, "--updates must be one of"),
        ({"updates": "figure-1", "start": "noisy"}, DualQueryError, "Figure 1 has --start uniform"),
        ({"updates": "figure-1", "iterate": "last"}, DualQueryError, "Figure 1 has --iterate average"),
        ({"start": "noisy", "part_cells": 64}, QueryError, "noisy start counts every one of 256 cells"),
        ({"synthetic_rows": 0}, DualQueryError, "at least one row"),
        ({"learning_rate": 0.1}, DualQueryError, "means nothing to the mechanism 'mwem'"),
        ({"rounds": 10**13}, BudgetError, "too small for this many rounds"),
    ],
)
def test_bad_input_is_refused_by_the_plan(
    options: dict[str, object], kind: type[DualQueryError] | None, sentence: str
) -> None:
    task = Task(from_spec(BINARY, "marginals:2"), 1000, budget())
    if kind is None:
        MWEM.plan_for(task, options)
        return
    with pytest.raises(kind, match=sentence):
        MWEM.plan_for(task, options)


def test_a_workload_too_wide_for_any_universe_is_refused_with_its_bytes() -> None:
    wide = Domain((Items("item", 40),))
    workload = Workload(wide, (Tables(wide, (tuple(range(30)),)),), "wide")
    with pytest.raises(QueryError, match=f"{8 << 30:,} bytes"):
        MWEM.plan_for(Task(workload, 1000, budget()), {"measured": "queries"})


def test_parities_of_what_is_not_binary_are_refused() -> None:
    task = Task(from_spec(MIXED, "marginals:2"), 1000, budget())
    with pytest.raises(QueryError, match="'a' is not"):
        MWEM.plan_for(task, {"measured": "parities"})


def test_slack_is_part_of_every_selection() -> None:
    _, ledger = run(skewed(BINARY), from_spec(BINARY, "parities:1"), budget(), rounds=1)
    assert isinstance(ledger.events[0], Selection)
    assert ledger.events[0].range > SLACK
