"""How many rounds learners play: from public numbers, while a measurement still says more than its noise."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.rounds import priced, usual_rounds
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.queries.families import disjunctions, from_spec
from dualquery.queries.lists import Catalogue, Lists
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items
from dualquery.table.graph import cells_of, codes_table, graph_of

CODES = codes_table({"code": (0, 2**53)})


def budget(accounting: Accounting, epsilon: float = 1.0) -> Budget:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)


def lists(number: int, length: int, codes: int) -> Workload:
    """So many lists of so many codes each."""
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.choice(codes, length, replace=False)) for _ in range(number)]
    cells = np.concatenate([np.sort(cells_of([each.astype(np.uint64)], length)) for each in chosen])
    named = np.unique(cells)
    catalogue = Catalogue(named, named.astype(str)[:, None])
    start = np.arange(0, number * length + 1, length)
    group = Lists(CODES, start, cells, tuple(f"list {i}" for i in range(number)), catalogue)
    return Workload(CODES, (group,), "lists")


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
@pytest.mark.parametrize("rows", [500, 20_000, 1_000_000])
def test_rounds_go_on_while_the_noise_is_below_the_gap(accounting: Accounting, rows: int) -> None:
    task = Task(from_spec(graph_of(tuple(map(str, range(40)))), "cuts:random:30"), rows, budget(accounting))
    rounds = usual_rounds(task, wrong=3.0, most=100_000)
    assert priced(task, rounds).noise <= 3.0 * rows / rounds
    assert priced(task, rounds + 1).noise > 3.0 * rows / (rounds + 1)
    assert usual_rounds(task, wrong=3.0, most=7) == 7
    few = usual_rounds(task, wrong=3.0, typical=priced(task, 1).noise / rows * 2, most=100_000)
    assert few < rounds


def test_look_ups_get_few_rounds_and_lists_that_overlap_many() -> None:
    """A look-up that nobody finds is about nothing; a list that others overlap teaches something."""
    plans = {
        length: MECHANISMS["touched-weights"].plan_for(
            Task(lists(1000, length, 1000), 2_000, budget(Accounting.ZCDP)), {}
        )
        for length in (1, 50)
    }
    assert 2 <= plans[1].parameters.rounds <= 30
    assert plans[50].parameters.rounds >= 300


def test_more_budget_never_means_fewer_rounds() -> None:
    workload = from_spec(graph_of(tuple(map(str, range(40)))), "cuts:random:30")
    for accounting in (Accounting.ZCDP, Accounting.PURE):
        found = [
            MECHANISMS["frieze-kannan"]
            .plan_for(Task(workload, 20_000, budget(accounting, epsilon)), {})
            .parameters.rounds
            for epsilon in (0.01, 0.1, 1.0, 10.0)
        ]
        assert found == sorted(found)
        assert found[0] < found[-1]


def test_monomials_take_a_higher_degree_where_there_are_more_records() -> None:
    """α falls and W rises with the degree: few records cannot learn what a heavy polynomial would answer."""
    workload = disjunctions(Domain((Items("item", 50),)), 6, 200, seed=1)
    degrees, errors = [], []
    for rows in (500, 5_000, 1_000_000):
        plan = MECHANISMS["monomials"].plan_for(Task(workload, rows, budget(Accounting.ZCDP)), {})
        degrees.append(plan.parameters.degree)
        errors.append(plan.max_error)
        others = [MECHANISMS["monomials"].plan_for(plan.task, {"degree": t}) for t in range(1, 6)]
        assert plan.max_error <= 1.001 * min(other.max_error for other in others)
    assert degrees == sorted(degrees)
    assert degrees[0] < degrees[-1]
    assert errors == sorted(errors, reverse=True)
