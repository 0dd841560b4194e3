from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dualquery.oracles import Clauses, merge, value
from dualquery.oracles.local_search import best_response, search
from dualquery.oracles.presolve import presolve, split
from dualquery.oracles.problem import compile_clauses, truths
from dualquery.queries.group import Predicates


def chance(seed: int = 0):
    return np.array([seed], np.uint64)


def draw_fallback(data, clauses):
    return np.array([data.draw(st.integers(0, size - 1)) for size in clauses.sizes.tolist()], np.int32)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_small_problems_are_solved_exactly_and_stay_near_the_fallback(
    data, seed, small_clauses, universe_values
):
    clauses = data.draw(small_clauses)
    fallback = draw_fallback(data, clauses)
    response = best_response(clauses, fallback, rng=np.random.default_rng(seed))
    values = universe_values(clauses)
    assert response.value == values[tuple(response.record.tolist())] == max(values.values())
    assert response.optimal
    for attribute in np.flatnonzero(response.record != fallback):
        back = response.record.copy()
        back[attribute] = fallback[attribute]
        assert values[tuple(back.tolist())] < response.value  # nobody is away from home for nothing


@settings(max_examples=150, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_presolve_keeps_an_optimum(data, seed, small_clauses):
    """Over all choices and over those that are left the maximum is the same; what is peeled stays free."""
    clauses = merge(data.draw(small_clauses))
    problem, _ = compile_clauses(clauses, draw_fallback(data, clauses), chance())
    rest = presolve(problem, chance(seed))
    choices = [range(*pair) for pair in zip(problem.first_choice, problem.first_choice[1:], strict=False)]
    best_of_all = best_left = -(10**9)
    for assignment in product(*choices):
        _, unmet = truths(problem, np.array(assignment, np.int32))
        total = int(problem.weights[unmet == 0].sum())
        best_of_all = max(best_of_all, total)
        if not any(rest.struck[u] for u in assignment):
            best_left = max(best_left, total)
    assert best_left == best_of_all


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_search_keeps_its_books(data, seed, small_clauses):
    """Without presolve or enumeration: what the tabu search says a component is worth is what it is worth."""
    clauses = merge(data.draw(small_clauses))
    problem, _ = compile_clauses(clauses, draw_fallback(data, clauses), chance())
    assume(len(problem.home) > 0)  # a component has variables
    _, unmet = truths(problem, problem.home)
    choice = problem.home.copy()
    whole = np.array([0, len(problem.home)], np.int32)
    component = np.zeros(len(problem.weights), np.int32)
    worth, bound = search(problem, whole, component, np.zeros(1, bool), 300, chance(seed), choice)
    before = int(problem.weights[unmet == 0].sum())
    _, unmet = truths(problem, choice)
    assert before <= int(problem.weights[unmet == 0].sum()) == worth[0] <= bound[0]


def test_the_search_alone_nearly_always_finds_the_optimum_of_small_problems(random_clauses, universe_values):
    hits = 0
    for seed in range(60):
        clauses = random_clauses([2, 3, 2, 4, 2, 3], 60, 6 * (seed % 2), seed, width=2, heaviest=3)
        clauses = merge(
            Clauses(  # parities over the three binary attributes only
                clauses.sizes,
                clauses.predicates,
                clauses.literals,
                clauses.weights,
                np.array([[0, 2], [2, 4], [0, 4]] * 2, np.int32)[: len(clauses.parities)],
                clauses.parity_weights,
            )
        )
        problem, _ = compile_clauses(clauses, np.zeros(6, np.int32), chance())
        choice = problem.home.copy()
        whole = np.array([0, len(problem.home)], np.int32)
        component = np.zeros(len(problem.weights), np.int32)
        worth, _ = search(problem, whole, component, np.zeros(1, bool), 2000, chance(seed), choice)
        hits += int(worth[0]) == max(universe_values(clauses).values())
    assert hits >= 59


SURVEY = [20, 8, 20, 16, 10, 7, 14, 6, 5, 2, 10, 10, 10, 41, 2]


@pytest.mark.parametrize(("sizes", "conjunctions"), [([2] * 60, 300), ([2] * 200, 400), (SURVEY, 800)])
def test_larger_problems_report_what_their_record_scores_and_beat_simple_descent(
    sizes, conjunctions, random_clauses
):
    clauses = random_clauses(sizes, conjunctions, 0, seed=4)
    fallback = np.zeros(len(sizes), np.int32)
    response = best_response(clauses, fallback, rng=np.random.default_rng(0))
    assert response.value == value(clauses, response.record)
    assert np.all((response.record >= 0) & (response.record < clauses.sizes))
    descent, improved = fallback.copy(), True
    while improved:
        improved = False
        for attribute, size in enumerate(sizes):
            trials = [descent.copy() for _ in range(size)]
            for code, trial in enumerate(trials):
                trial[attribute] = code
            scores = [value(clauses, trial) for trial in trials]
            if max(scores) > value(clauses, descent):
                descent, improved = trials[int(np.argmax(scores))], True
    assert response.value > value(clauses, descent)


def test_sparse_problems_are_solved_by_presolve_and_touch_only_what_is_named(random_clauses):
    clauses = random_clauses([2] * 6000, 1500, 0, seed=2)
    rng = np.random.default_rng(3)
    fallback = rng.integers(0, 2, 6000).astype(np.int32)
    response = best_response(clauses, fallback, rng=rng)
    assert response.optimal
    assert response.value == value(clauses, response.record)
    named = np.zeros(6000, bool)
    named[clauses.predicates.attribute[clauses.literals >> 1]] = True
    assert np.array_equal(response.record[~named], fallback[~named])


def test_equal_seeds_give_equal_records_and_the_fallback_is_not_written_to(random_clauses):
    clauses = random_clauses([2] * 80, 400, 40, seed=5)
    fallback = np.zeros(80, np.int32)
    fallback.flags.writeable = False
    first = best_response(clauses, fallback, rng=np.random.default_rng(11))
    again = best_response(clauses, fallback, rng=np.random.default_rng(11))
    assert np.array_equal(first.record, again.record)
    assert first.value == again.value
    others = [best_response(clauses, fallback, rng=np.random.default_rng(s)).record for s in range(5)]
    assert any(not np.array_equal(first.record, other) for other in others)


def single(size: int, accepted: list[list[int]], weights: list[int]) -> Clauses:
    """Clauses about one attribute."""
    return Clauses(
        np.array([size], np.int32),
        Predicates.of([(0, codes) for codes in accepted]),
        2 * np.arange(len(accepted), dtype=np.int32)[:, None],
        np.array(weights, np.int64),
        np.zeros((0, 0), np.int32),
        np.zeros(0, np.int64),
    )


@pytest.mark.parametrize("accepted", [[[2]], [[0], [1], [2], [3]]])
def test_where_the_fallback_cannot_stay_equal_values_are_equally_likely(accepted):
    """Value 2 is bad; the others are alike, whether or not a predicate names them."""
    clauses = single(5, accepted, [-3 if codes == [2] else 0 for codes in accepted])
    clauses = Clauses(  # keep the clauses of weight zero apart from 0, so that merge does not drop them
        clauses.sizes,
        clauses.predicates,
        clauses.literals,
        clauses.weights + 1 if len(accepted) > 1 else clauses.weights,
        clauses.parities,
        clauses.parity_weights,
    )
    good = {0, 1, 3} if len(accepted) > 1 else {0, 1, 3, 4}
    drawn = [
        int(best_response(clauses, np.array([2], np.int32), rng=np.random.default_rng(seed)).record[0])
        for seed in range(2000)
    ]
    assert set(drawn) == good
    assert chisquare([drawn.count(value) for value in sorted(good)]).pvalue > 1e-6
    stays = best_response(clauses, np.array([3], np.int32), rng=np.random.default_rng(0))
    assert stays.record.tolist() == [3]


def test_ranges_over_many_values():
    rng = np.random.default_rng(8)
    ends = np.sort(rng.integers(0, 5000, (200, 2)), axis=1)
    weights = rng.integers(-5, 6, 200)
    clauses = single(5000, [list(range(a, b)) for a, b in ends], weights.tolist())
    score = np.zeros(5000, np.int64)
    for (a, b), weight in zip(ends, weights, strict=True):
        score[a:b] += weight
    response = best_response(clauses, np.zeros(1, np.int32), rng=rng)
    assert response.value == score.max() == score[response.record[0]]
    assert response.optimal


def test_no_clauses_mean_the_fallback():
    clauses = single(3, [[1]], [0])
    response = best_response(clauses, np.array([2], np.int32), rng=np.random.default_rng(0))
    assert (response.record.tolist(), response.value, response.bound) == ([2], 0, 0)


def test_components_are_disjoint_and_cover_the_open_clauses(random_clauses):
    clauses = merge(random_clauses([2] * 1200, 1500, 0, seed=9))
    problem, _ = compile_clauses(clauses, np.zeros(1200, np.int32), chance())
    parts = split(problem, presolve(problem, chance()))
    where = np.repeat(np.arange(len(parts.first_variable) - 1), np.diff(parts.first_variable))
    core = parts.core
    assert len(core.weights) > 0
    for c in range(len(core.weights)):
        literals = core.literal[core.first_literal[c] : core.first_literal[c + 1]]
        assert len(literals) >= 2
        assert set(where[core.variable[literals >> 1]]) == {parts.component[c]}


def test_malformed_clauses_are_refused():
    two = Predicates.of([(0, [1]), (0, [0]), (1, [2])])
    twice = Clauses(
        np.array([2, 3], np.int32),
        two,
        np.array([[0, 2]], np.int32),
        np.ones(1, np.int64),
        np.zeros((0, 0), np.int32),
        np.zeros(0, np.int64),
    )
    with pytest.raises(ValueError, match="twice"):
        best_response(twice, np.zeros(2, np.int32), rng=np.random.default_rng(0))
    ternary = Clauses(
        np.array([2, 3], np.int32),
        two,
        np.zeros((0, 0), np.int32),
        np.zeros(0, np.int64),
        np.array([[0, 1]], np.int32),
        np.ones(1, np.int64),
    )
    with pytest.raises(ValueError, match="not binary"):
        best_response(ternary, np.zeros(2, np.int32), rng=np.random.default_rng(0))
