"""Online PMW: the tutorial's threshold algorithm, its parameters, its budget and its answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dualquery.counting.memory import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.online_pmw.game import Answers, online_pmw
from dualquery.mechanisms.online_pmw.parameters import OnlinePmwParameters, Update, parameters_of
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Epoch
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.queries.families import from_texts
from dualquery.queries.language.reader import Reader
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

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


def budget(accounting: Accounting = Accounting.ZCDP, epsilon: float = 2.0) -> Budget:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=accounting)


def parameters(spend: Budget, **options) -> OnlinePmwParameters:
    options = {"update": Update.RAKE, "part_cells": UNIVERSE, **options}
    return parameters_of(DOMAIN, rows=ROWS, budget=spend, questions=len(TEXTS), **options)


def played(spend: Budget, chosen: OnlinePmwParameters, ledger: Ledger | None = None) -> Answers:
    reader = Reader(DOMAIN)
    curator = Curator(MemoryCounter(TABLE), ledger or Ledger(spend), SeededEntropy(4))
    stream = (reader.read(text) for text in TEXTS)
    return online_pmw(curator, stream, domain=DOMAIN, rows=ROWS, parameters=chosen)


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
def test_raked_it_answers_far_better_than_the_uniform_guess(accounting: Accounting) -> None:
    spend = budget(accounting, 4.0)
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


def test_the_parameters_are_the_theorem() -> None:
    spend = budget(epsilon=8.0)
    chosen = parameters(spend, update=Update.STEP)
    alpha, size = chosen.promised_error, math.log(UNIVERSE)
    assert chosen.updates == math.ceil(4 * size / alpha**2)
    assert chosen.learning_rate == alpha / 4
    noise = 6 / float(chosen.law.epsilon) * math.log(2 * len(TEXTS) / 0.05)
    assert noise <= alpha * ROWS / 4
    assert chosen.law.threshold == max(math.ceil(noise), math.ceil(alpha / 2 * ROWS))
    assert (
        parameters_of(DOMAIN, rows=4 * ROWS, budget=spend, questions=100, part_cells=UNIVERSE).promised_error
        < alpha
    )


@pytest.mark.parametrize("updates", [1, 7, 200])
def test_all_epochs_and_measurements_together_cost_the_budget(updates: int) -> None:
    for accounting, kind in ((Accounting.ZCDP, Gaussian), (Accounting.PURE, Laplace)):
        spend = budget(accounting)
        chosen = parameters(spend, updates=updates)
        assert isinstance(chosen.noise, kind)
        ledger = Ledger(spend)
        moved = spend.neighbours.sensitivity(alone=_one(), apart=_one())
        for _ in range(updates):
            ledger.charge(chosen.law.event, chosen.noise.event(moved))
        with pytest.raises(BudgetError):
            ledger.charge(chosen.law.event)


def _one():
    from dualquery.privacy.neighbours import Sensitivity

    return Sensitivity(1, 1)


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
    with pytest.raises(DualQueryError, match="from 1 to"):
        parameters(budget(), updates=0)
    with pytest.raises(DualQueryError, match="at least one"):
        parameters_of(DOMAIN, rows=0, budget=budget(), questions=5, part_cells=UNIVERSE)
    renyi = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
    with pytest.raises(BudgetError, match="pure or by zcdp"):
        parameters(renyi)
    assert parameters(budget(), updates=2).law.epsilon > Fraction(0)
