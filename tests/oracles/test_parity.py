from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dualquery.oracles import Clauses, merge, value
from dualquery.oracles.local_search import best_response, eliminate, heaviest_first
from dualquery.oracles.presolve import presolve, split
from dualquery.oracles.problem import compile_clauses, truths
from dualquery.queries.group import Predicates


def rank(rows: list[set[int]]) -> int:
    """Over GF(2), by the book."""
    basis: list[int] = []
    for row in rows:
        bits = sum(1 << j for j in row)
        for kept in basis:
            bits = min(bits, bits ^ kept)
        if bits:
            basis.append(bits)
    return len(basis)


def test_parities_with_variables_of_their_own_are_all_satisfied(random_clauses):
    clauses = random_clauses([2] * 4000, 0, 1500, seed=1)
    rng = np.random.default_rng(0)
    fallback = rng.integers(0, 2, 4000).astype(np.int32)
    response = best_response(clauses, fallback, rng=rng)
    assert response.value == merge(clauses).ceiling == value(clauses, response.record)
    assert response.optimal


@pytest.mark.parametrize("seed", range(5))
def test_independent_parities_are_all_satisfied(seed, random_clauses):
    """Every variable stands in many parities, so nothing can be peeled: this is the work of elimination."""
    clauses = random_clauses([2] * 60, 0, 55, seed, width=12, heaviest=9)
    assert rank([set(row) for row in clauses.parities.tolist()]) == 55
    response = best_response(clauses, np.zeros(60, np.int32), rng=np.random.default_rng(seed), flips=50)
    assert response.value == clauses.ceiling == value(clauses, response.record)
    assert response.optimal


@pytest.mark.parametrize("seed", range(5))
def test_elimination_satisfies_the_heaviest_independent_parities(seed, random_clauses):
    clauses = merge(random_clauses([2] * 30, 0, 70, seed, width=5, heaviest=1000))
    problem, _ = compile_clauses(clauses, np.zeros(30, np.int32), np.zeros(1, np.uint64))
    parts = split(problem, presolve(problem, np.zeros(1, np.uint64)))
    core = parts.core
    choice = core.home.copy()
    settled = np.zeros(len(parts.first_variable) - 1, bool)
    order = heaviest_first(core)
    assert np.all(eliminate(core, order, parts.first_variable, parts.component, settled, choice))
    _, unmet = truths(core, choice)
    independent: list[set[int]] = []
    for c in order[order < len(core.weights)]:
        literals = core.literal[core.first_literal[c] : core.first_literal[c + 1]]
        row = set(core.variable[literals >> 1].tolist())
        if rank([*independent, row]) > len(independent):
            independent.append(row)
            assert (unmet[c] == 0) == (core.weights[c] > 0)
    assert len(independent) == 30


@pytest.mark.parametrize("seed", range(3))
def test_overdetermined_parities_against_all_records(seed, random_clauses, universe_values):
    clauses = random_clauses([2] * 17, 0, 60, seed, width=4, heaviest=5)  # one too many to enumerate
    response = best_response(clauses, np.zeros(17, np.int32), rng=np.random.default_rng(seed))
    best = max(universe_values(clauses).values())
    assert response.value == value(clauses, response.record) == best


def test_conjunctions_and_parities_together(random_clauses, universe_values):
    clauses = random_clauses([2] * 17, 80, 40, seed=3, heaviest=4)
    response = best_response(clauses, np.ones(17, np.int32), rng=np.random.default_rng(0))
    best = max(universe_values(clauses).values())
    assert response.value == value(clauses, response.record) == best


def test_a_parity_and_a_preference_of_its_variable():
    """A private variable that has a weight of its own is no reason to peel: the other may have to give way."""
    for first, second, parity in product((-3, -1, 0, 1, 3), (-2, 2), (-5, -1, 1, 5)):
        clauses = Clauses(
            np.array([2, 2], np.int32),
            Predicates.of([(0, [1]), (1, [1])]),
            np.array([[0], [2]], np.int32),
            np.array([first, second], np.int64),
            np.array([[0, 1]], np.int32),
            np.array([parity], np.int64),
        )
        response = best_response(clauses, np.zeros(2, np.int32), rng=np.random.default_rng(0))
        best = max(value(clauses, np.array(r, np.int32)) for r in product((0, 1), repeat=2))
        assert response.value == best
