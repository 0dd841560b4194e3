"""The oracle that proves what it says, and takes its time: CP-SAT of OR-Tools, an optional extra.

Each clause c of weight w_c gets a Boolean z_c in the objective Σ w_c · z_c. The objective pulls z_c up where
w_c > 0 and down where w_c < 0, so one side of z_c = Π literals is enough for conjunctions:

    w_c > 0:   z_c ≤ each literal            w_c < 0:   z_c ≥ Σ literals − (k − 1)

and a parity is z_c ⊕ x_1 ⊕ … ⊕ x_k = 1. Neither our presolve nor our search is used: this is the check on both.
"""

from __future__ import annotations

from itertools import pairwise
from math import floor
from typing import Any

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.oracles.clauses import Clauses, Response, merge
from dualquery.oracles.problem import Problem, compile_clauses, return_home, truths
from dualquery.oracles.program import solved
from dualquery.types import Ints


def exact_response(
    clauses: Clauses,
    fallback: Ints,
    *,
    time_limit: float,
    hint: Ints | None = None,
    backend: str | None = None,
) -> Response:
    """A record that maximises Σ_c w_c · q_c(x), or the best one found within `time_limit` seconds.

    `hint` is a record to start from, say one of `best_response`; the answer scores no less than it. Ties
    go to the fallback as they do there. CP-SAT solves it, or the integer solver of OR-Tools that `backend` names.
    """
    clauses = merge(clauses)
    problem, meaning = compile_clauses(clauses, fallback, np.zeros(1, np.uint64))
    start = problem.home
    if hint is not None:  # the choices are numbered by the clauses alone; only home depends on the record
        start = compile_clauses(clauses, hint, np.zeros(1, np.uint64))[0].home
    found, bound = (
        _solve(problem, start, time_limit) if backend is None else solved(problem, time_limit, backend)
    )
    candidates = [*found, start.copy()]
    values = [int(return_home(problem, candidate)) for candidate in candidates]
    value = max(values)
    record = np.array(fallback, np.int32)
    record[meaning.attribute] = meaning.value[candidates[values.index(value)]]
    return Response(record, value, bound)


def _solve(problem: Problem, start: Ints, time_limit: float) -> tuple[list[Ints], int]:
    """The solver's assignment, if it found one in time, and its bound."""
    cp_model = _cp_model()
    model = cp_model.CpModel()
    holds, unmet = truths(problem, start)
    picks = _picks(model, problem, start)
    tests = _tests(model, problem, picks, holds)

    bounds, literals = problem.first_literal.tolist(), problem.literal.tolist()
    terms, coefficients, constant = [], [], 0
    for c, weight in enumerate(problem.weights.tolist()):
        row = literals[bounds[c] : bounds[c + 1]]
        asked = [tests[literal >> 1].negated() if literal & 1 else tests[literal >> 1] for literal in row]
        if not asked:
            constant += weight
            continue
        z = model.new_bool_var("")
        model.add_hint(z, bool(unmet[c] == 0))
        terms.append(z)
        coefficients.append(weight)
        if c >= problem.conjunctions:
            model.add_bool_xor([z, *asked])
        elif weight > 0:
            for literal in asked:
                model.add_implication(z, literal)
        else:
            model.add_bool_or([z, *(literal.negated() for literal in asked)])
    model.maximize(cp_model.LinearExpr.weighted_sum(terms, coefficients))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [], int(problem.weights[problem.weights > 0].sum())  # its own bound means nothing yet
    chosen = [u for u, pick in enumerate(picks) if solver.boolean_value(pick)]
    return [np.array(chosen, np.int32)], constant + floor(solver.best_objective_bound + 1e-6)


def _picks(model: Any, problem: Problem, start: Ints) -> list[Any]:
    """One Boolean per choice, of which each variable has exactly one."""
    picks: list[Any] = []
    bounds = problem.first_choice.tolist()
    for (low, high), hinted in zip(pairwise(bounds), start.tolist(), strict=True):
        if high - low == 1:
            own = [model.new_constant(1)]
        elif high - low == 2:
            second = model.new_bool_var("")
            model.add_hint(second, hinted == low + 1)
            own = [second.negated(), second]
        else:
            own = [model.new_bool_var("") for _ in range(low, high)]
            model.add_exactly_one(own)
            for u, pick in enumerate(own, low):
                model.add_hint(pick, hinted == u)
        picks.extend(own)
    return picks


def _tests(model: Any, problem: Problem, picks: list[Any], holds: Ints) -> list[Any]:
    """One Boolean per predicate: that a choice it accepts is picked."""
    tests: list[Any] = []
    bounds, accepted = problem.first_accepted.tolist(), problem.accepted.tolist()
    for p, (low, high) in enumerate(pairwise(bounds)):
        if high - low == 0:
            tests.append(model.new_constant(0))
        elif high - low == 1:
            tests.append(picks[accepted[low]])
        else:
            test = model.new_bool_var("")
            model.add_hint(test, bool(holds[p]))
            model.add_exactly_one([test.negated(), *(picks[u] for u in accepted[low:high])])
            tests.append(test)
    return tests


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise DualQueryError(
            "the exact oracle needs OR-Tools; install it with: pip install 'dualquery[exact]'"
        ) from error
    return cp_model
