"""The best response as an integer program, of an optional extra: for any backend of OR-Tools, or written out.

One binary x_u for each choice u of a variable, of which it takes one, and one z_c for each clause c:

    max Σ_c w_c z_c      such that      Σ_{u of v} x_u = 1                        for each variable v
    w_c > 0:   z_c ≤ l               for each literal l of the clause
    w_c < 0:   z_c ≥ Σ l − (k − 1)   over its k literals
    a parity:  Σ l = 2 d_c + 1 − z_c,   0 ≤ d_c ≤ k/2 whole

where the literal of a predicate is Σ x_u over the choices that it accepts, or one less that. This is the program of
Gaboardi et al. (2014), over values instead of bits and with d_c as large as a parity needs. Neither our presolve nor
our search is used: this is the check on both.

*Who finds best responses*, by name: our search, CP-SAT, an integer solver that OR-Tools finds, or one of one's own.

    dualquery.register(Solver("mine", respond))             # then --oracle mine, or oracle="mine"

`respond` gets the clauses of a round, the record that our search found for them, and the seconds that it may take,
and gives back a record. Whatever it does is post-processing: a bad solver can only cost accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import floor
from typing import Any, ClassVar

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.oracles import Clauses, Response, merge
from dualquery.oracles.problem import Problem, compile_clauses, return_home
from dualquery.registry import Registry
from dualquery.types import Ints

PROVES = "SAT"  # CP-SAT, which comes with OR-Tools: exact in whole numbers
ONE_THREAD = "num_workers:1,linearization_level:2"
Respond = Callable[[Clauses, Ints, float], Ints]


def exact_response(
    clauses: Clauses,
    fallback: Ints,
    *,
    time_limit: float,
    hint: Ints | None = None,
    backend: str = PROVES,
) -> Response:
    """A record that maximises Σ_c w_c · q_c(x), or the best one found within `time_limit` seconds.

    The answer scores no less than `hint`, say a record of `best_response`. Ties go to the fallback as they do there.
    """
    clauses = merge(clauses)
    problem, meaning = compile_clauses(clauses, fallback, np.zeros(1, np.uint64))
    start = problem.home
    if hint is not None:  # the choices are numbered by the clauses alone; only home depends on the record
        start = compile_clauses(clauses, hint, np.zeros(1, np.uint64))[0].home
    found, bound = solved(problem, time_limit, backend)
    candidates = [*found, start.copy()]
    values = [int(return_home(problem, candidate)) for candidate in candidates]
    value = max(values)
    record = np.array(fallback, np.int32)
    record[meaning.attribute] = meaning.value[candidates[values.index(value)]]
    return Response(record, value, bound)


def solved(problem: Problem, time_limit: float, backend: str) -> tuple[list[Ints], int]:
    """The backend's assignment, if it found one in time, and its bound."""
    solver, picks, constant = _program(problem, backend, [f"x{u}" for u in range(len(problem.linear))])
    solver.SetTimeLimit(round(1000 * time_limit))
    if backend.upper() == PROVES:
        solver.SetSolverSpecificParametersAsString(ONE_THREAD)
    status = solver.Solve()
    if status not in (solver.OPTIMAL, solver.FEASIBLE):
        return [], int(problem.weights[problem.weights > 0].sum())
    chosen = [u for u, pick in enumerate(picks) if pick.solution_value() > 0.5]
    return [np.array(chosen, np.int32)], constant + floor(solver.Objective().BestBound() + 1e-6)


def mps(clauses: Clauses) -> str:
    """The program of some clauses in the format MPS, which every solver reads.

    a3_7 is 1 where attribute 3 has value 7, or another that no clause tells from 7.
    """
    home = np.zeros(len(clauses.sizes), np.int32)
    problem, meaning = compile_clauses(merge(clauses), home, np.zeros(1, np.uint64))
    attributes = np.repeat(meaning.attribute, np.diff(problem.first_choice)).tolist()
    names = [f"a{j}_{value}" for j, value in zip(attributes, meaning.value.tolist(), strict=True)]
    solver, _, _ = _program(problem, PROVES, names)
    written: str = solver.ExportModelAsMpsFormat(False, False)
    return written


def backend_of(name: str) -> Any:
    try:
        from ortools.linear_solver import pywraplp
    except ImportError as error:
        raise DualQueryError(
            "an exact oracle needs OR-Tools; install it with: pip install 'dualquery[exact]'"
        ) from error
    solver = pywraplp.Solver.CreateSolver(name.upper())
    if solver is None or not solver.IsMip():
        raise DualQueryError(
            f"--oracle '{name}' is neither search, exact, a registered solver nor an integer solver that OR-Tools "
            "finds here; its own are scip, cbc and sat"
        )
    return solver


def _program(problem: Problem, backend: str, names: list[str]) -> tuple[Any, list[Any], int]:
    """The solver with the program in it, one variable per choice, and what clauses without literals are worth."""
    solver = backend_of(backend)
    picks = [solver.BoolVar(name) for name in names]
    for low, high in pairwise(problem.first_choice.tolist()):
        solver.Add(solver.Sum(picks[low:high]) == 1)
    accepts, accepted = problem.first_accepted.tolist(), problem.accepted.tolist()
    bounds, literals = problem.first_literal.tolist(), problem.literal.tolist()
    worth, constant = [], 0
    for c, weight in enumerate(problem.weights.tolist()):
        asked = []
        for literal in literals[bounds[c] : bounds[c + 1]]:
            p = literal >> 1
            holds = sum(picks[u] for u in accepted[accepts[p] : accepts[p + 1]])
            asked.append(1 - holds if literal & 1 else holds)
        if not asked:
            constant += weight
            continue
        z = solver.BoolVar(f"z{c}")
        worth.append(weight * z)
        if c >= problem.conjunctions:
            pairs = solver.IntVar(0, len(asked) // 2, f"d{c}")
            solver.Add(sum(asked) == 2 * pairs + 1 - z)
        elif weight > 0:
            for holds in asked:
                solver.Add(z <= holds)
        else:
            solver.Add(z >= sum(asked) - (len(asked) - 1))
    solver.Maximize(solver.Sum(worth))
    return solver, picks, constant


@dataclass(frozen=True)
class Solver:
    """A solver by its name."""

    registered_in: ClassVar[str] = "solvers"

    name: str
    respond: Respond

    def best(self, clauses: Clauses, found: Ints, seconds: float) -> Ints:
        """Its record, after a look at whether it is one."""
        record = np.asarray(self.respond(clauses, found, seconds))
        whole = record.shape == clauses.sizes.shape and np.issubdtype(record.dtype, np.integer)
        if not whole or (record < 0).any() or (record >= clauses.sizes).any():
            raise DualQueryError(
                f"the solver '{self.name}' must give back a record: one code an attribute, within its values"
            )
        return record.astype(np.int32)


def _exact(clauses: Clauses, found: Ints, seconds: float, backend: str = PROVES) -> Ints:
    return exact_response(clauses, found, time_limit=seconds, hint=found, backend=backend).record


SEARCH = Solver("search", lambda clauses, found, seconds: found)
EXACT = Solver("exact", _exact)
SOLVERS: Registry[Solver] = Registry(
    "solvers",
    "solver",
    {"search": "dualquery.oracles.program:SEARCH", "exact": "dualquery.oracles.program:EXACT"},
)


def solver_of(name: str) -> Solver:
    """One that is built in or registered; else a backend of OR-Tools, or a sentence that says what there is."""
    if name in SOLVERS:
        return SOLVERS[name]
    backend_of(name)
    return Solver(name, partial(_exact, backend=name))
