"""Online PMW: the tutorial's threshold algorithm, its parameters, its budget and its answers."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dualquery.counting.counter import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.online_pmw import (
    Answers,
    OnlinePmwParameters,
    Update,
    online_pmw,
    parameters_of,
)
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Epoch
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.queries.countable import Bound
from dualquery.queries.families import from_texts
from dualquery.queries.language.reader import Reader
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from tests import house
from tests.house import curator_of

DOMAIN = Domain(tuple(Categorical(f"a{j}", ("0", "1", "2")) for j in range(5)))
ROWS = 50_000
UNIVERSE = 3**5
TEXTS = [f"a{i} = {v} & a{j} = {w}" for i in range(5) for j in range(i) for v in "012" for w in "012"]


def records() -> Records:
    rng = np.random.default_rng(0)
    first = rng.choice(3, ROWS, p=[0.8, 0.15, 0.05])
    columns = [first, *(np.where(rng.random(ROWS) < 0.7, first, rng.integers(0, 3, ROWS)) for _ in range(4))]
    return Records.from_rows(DOMAIN, np.column_stack(columns))


TABLE = records()
TRUTH = from_texts(DOMAIN, TEXTS).counts(TABLE) / ROWS


budget = partial(house.budget, epsilon=2.0)


def parameters(spend: Budget, **options) -> OnlinePmwParameters:
    options = {"update": Update.RAKE, "part_cells": UNIVERSE, **options}
    return parameters_of(DOMAIN, rows=ROWS, budget=spend, questions=len(TEXTS), **options)


def played(spend: Budget, chosen: OnlinePmwParameters, ledger: Ledger | None = None) -> Answers:
    reader = Reader(DOMAIN)
    curator = curator_of(TABLE, ledger or Ledger(spend), seed=4)
    stream = (reader.read(text) for text in TEXTS)
    return online_pmw(curator, stream, domain=DOMAIN, rows=ROWS, parameters=chosen)


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
def test_raked_it_answers_far_better_than_the_uniform_guess(accounting: Accounting) -> None:
    spend = budget(epsilon=4.0, accounting=accounting)
    ledger = Ledger(spend)
    found = played(spend, parameters(spend, updates=30), ledger)
    assert len(found.values) == len(TEXTS)
    assert 5 <= found.measured.sum() <= 30
    assert np.abs(found.values - TRUTH).mean() < 0.4 * np.abs(1 / 9 - TRUTH).mean()
    assert ledger.spent().epsilon <= spend.epsilon


def test_the_step_of_the_tutorial_learns_too_but_slowly() -> None:
    spend = budget(epsilon=8.0)
    chosen = parameters(spend, update=Update.STEP)
    found = played(spend, chosen)
    guess = np.abs(1 / 9 - TRUTH)
    assert found.measured.any()
    assert np.abs(found.values - TRUTH).mean() < guess.mean()


def test_after_the_last_update_the_distribution_answers_alone() -> None:
    spend = budget(epsilon=4.0)
    ledger = Ledger(spend)
    found = played(spend, parameters(spend, updates=3), ledger)
    assert found.measured.sum() == 3
    last = int(np.flatnonzero(found.measured)[-1])
    assert last < len(TEXTS) - 1
    assert sum(isinstance(event, Epoch) for event in ledger.events) == 3


def test_measured_answers_are_fresh_and_near() -> None:
    spend = budget(epsilon=4.0)
    chosen = parameters(spend, updates=10)
    found = played(spend, chosen)
    off = np.abs(found.values - TRUTH)[found.measured] * ROWS
    assert 0 < off.max() < 5 * chosen.noise.deviation


ONE_COLUMN = Domain((Categorical("a", tuple(f"v{i}" for i in range(1024))),))


class Adversary:
    """Asks for sets that miss the one value that all records have, as heavy as the threshold: the slowest lesson.

    It knows the algorithm and all answers, so it holds the same distribution over the values as the learner.
    """

    def __init__(self, chosen: OnlinePmwParameters, questions: int) -> None:
        self.chosen, self.left, self.fired = chosen, questions, False
        self.weights = np.full(1024, 1 / 1024)
        self.asked: list[float] = []  # what the learner believed of each set; the truth is 0

    def __iter__(self):
        reader, names = Reader(ONE_COLUMN), np.array([f"v{i}" for i in range(1024)])
        inside = np.zeros(1024, bool)
        for _ in range(self.left):
            if self.fired:
                self.weights[inside] *= math.exp(-self.chosen.learning_rate)
                self.weights /= self.weights.sum()
                self.fired = False
            heaviest = 1 + np.argsort(-self.weights[1:], kind="stable")
            reach = np.cumsum(self.weights[heaviest])
            inside = np.zeros(1024, bool)
            inside[heaviest[: 1 + int(np.searchsorted(reach, 0.76 * self.chosen.promised_error))]] = True
            self.asked.append(float(self.weights[inside].sum()))
            yield reader.read(f"a in {{{', '.join(names[inside])}}}")


def under_attack(rows: int, seed: int, questions: int) -> tuple[OnlinePmwParameters, Answers, Adversary]:
    spend = budget(epsilon=1.0)
    chosen = parameters_of(ONE_COLUMN, rows=rows, budget=spend, questions=questions, part_cells=1024)
    adversary = Adversary(chosen, questions)
    everybody = Records.from_rows(ONE_COLUMN, np.zeros((rows, 1), np.int64))

    class Watched(Curator):
        def exceeds(self, *given, **named):
            found = super().exceeds(*given, **named)
            adversary.fired = found is not None
            return found

    curator = Watched(MemoryCounter(everybody), Ledger(spend), SeededEntropy(seed))
    found = online_pmw(curator, iter(adversary), domain=ONE_COLUMN, rows=rows, parameters=chosen)
    return chosen, found, adversary


@pytest.mark.parametrize(
    ("rows", "questions", "promised", "seeds"),
    [(30_162, 150, 0.6, 2), pytest.param(200_000, 700, 0.25, 20, marks=pytest.mark.long)],
)
def test_the_promise_holds_against_an_adversary(
    rows: int, questions: int, promised: float, seeds: int
) -> None:
    """All answers within α in 19 of 20 streams, never more than B updates, and the adversary does make many."""
    kept = 0
    for seed in range(seeds):
        chosen, found, adversary = under_attack(rows, seed, questions)
        assert chosen.promised_error < promised
        np.testing.assert_allclose(
            found.values[~found.measured], np.array(adversary.asked)[~found.measured], atol=1e-9
        )
        kept += bool(found.values.max() <= chosen.promised_error)
        assert chosen.updates / 3 < found.measured.sum() <= chosen.updates
    assert kept >= 0.95 * seeds


def test_more_records_are_promised_less_error() -> None:
    spend = budget(epsilon=8.0)
    few, many = (
        parameters_of(DOMAIN, rows=rows, budget=spend, questions=100, part_cells=UNIVERSE).promised_error
        for rows in (ROWS, 4 * ROWS)
    )
    assert many < 0.55 * few


@pytest.mark.parametrize("updates", [1, 7, 200])
def test_all_epochs_and_measurements_together_cost_the_budget(updates: int) -> None:
    for accounting, kind in ((Accounting.ZCDP, Gaussian), (Accounting.PURE, Laplace)):
        spend = budget(accounting=accounting)
        chosen = parameters(spend, updates=updates)
        assert isinstance(chosen.noise, kind)
        ledger = Ledger(spend)
        moved = spend.neighbours.sensitivity(Bound((1, 1), (1, 1)))
        for _ in range(updates):
            ledger.charge(chosen.law.event, chosen.noise.event(moved))
        with pytest.raises(BudgetError):
            ledger.charge(chosen.law.event)


def test_a_factored_distribution_tests_only_what_it_could_hold() -> None:
    """Parts of nine cells: a pair of attributes can be merged, and the next pair that would need three is let be."""
    spend = budget(epsilon=4.0)
    found = played(spend, parameters(spend, updates=30, part_cells=9))
    assert len(found.values) == len(TEXTS)
    pairs = {
        tuple(sorted((text[1], text[10]))) for text, fired in zip(TEXTS, found.measured, strict=True) if fired
    }
    used = [name for pair in pairs for name in pair]
    assert len(used) == len(set(used))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(DualQueryError, match="updates must lie between 1 and"):
        parameters(budget(), updates=0)
    with pytest.raises(DualQueryError, match="at least one"):
        parameters_of(DOMAIN, rows=0, budget=budget(), questions=5, part_cells=UNIVERSE)
    renyi = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
    with pytest.raises(BudgetError, match="pure or by zcdp"):
        parameters(renyi)
    assert parameters(budget(), updates=2).law.epsilon > Fraction(0)
