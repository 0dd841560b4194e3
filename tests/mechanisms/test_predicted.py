"""The mean error that a plan of projection predicts: by its formula, beside the truth, and as a wish."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dualquery
from dualquery import Budget, BudgetError, Categorical, Domain, Records
from dualquery.mechanisms.mechanism import Plan, Task
from dualquery.mechanisms.projection import PROJECTION, predicted
from dualquery.mechanisms.projection.predicted import likely_ones, predicted_errors
from dualquery.privacy.budget import Accounting
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec, from_texts, marginals
from dualquery.releases.enough import AIM, LEAST, enough_for
from dualquery.releases.plan import settled_plan
from dualquery.table.domain import Numeric
from dualquery.types import silent
from tests.house import curator_of
from tests.mechanisms.test_projection import domain, related_table

SIZES = (2, 3, 4)
ROWS = 20_000


def budget(epsilon: float, **more: Any) -> Budget:
    return Budget(epsilon, 1e-6, **{"accounting": Accounting.GAUSSIAN, **more})


def centred(members: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """White noise over the cells of a set, without what smaller sets tell."""
    noise = rng.standard_normal([SIZES[j] for j in members])
    for axis in range(len(members)):
        noise -= noise.mean(axis=axis, keepdims=True)
    return noise


@pytest.mark.parametrize(
    "text", ["a0 = 1 & a1 = 2", "a1 != 0 & a2 in {1, 3}", "a0 = 0 & a1 = 1 & a2 = 2", "a2 = 1"]
)
def test_a_query_adds_up_the_interactions_of_its_attributes(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brute force: noise is drawn for every interaction, spread over the whole table, and the query asked."""
    rng = np.random.default_rng(0)
    deviation = {s: 1 + rng.random() for k in (1, 2, 3) for s in combinations(range(3), k)}
    workload = from_texts(domain(*SIZES), [text])
    task = Task(workload, ROWS, budget(1.0))
    accepts = np.array(
        [
            workload.fractions(Records.from_rows(workload.domain, np.array([cell])))[0]
            for cell in np.ndindex(SIZES)
        ]
    )
    off, l1 = [], dict.fromkeys(deviation, 0.0)
    for _ in range(4000):
        table = np.zeros(SIZES)
        for s, each in deviation.items():
            noise = each * centred(s, rng)
            l1[s] += np.abs(noise).sum() / 4000
            spread = tuple(slice(None) if j in s else None for j in range(3))
            table = table + noise[spread] / np.prod([SIZES[j] for j in range(3) if j not in s])
        off.append(abs(float((table.ravel() * accepts).sum())))
    monkeypatch.setattr(
        predicted,
        "_errors_of",
        lambda task, variances, sets: np.array(
            [l1.get(tuple(sorted(int(j) for j in s if j >= 0)), 0.0) for s in sets]
        ),
    )
    said, _ = predicted_errors(task, {}, 0.0, 0.0)
    assert said / predicted.UNSURE == pytest.approx(np.mean(off), rel=0.05)


def test_a_parity_is_half_its_interaction(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(from_spec(domain(2, 2, 2), "parities:2"), ROWS, budget(1.0))
    monkeypatch.setattr(predicted, "_errors_of", lambda task, variances, sets: np.ones(len(sets)))
    assert predicted_errors(task, {}, 0.0, 0.0)[0] == pytest.approx(0.5 * predicted.UNSURE)


def test_what_is_no_product_has_the_error_of_the_noise() -> None:
    graph = dualquery.Domain((Categorical("a", ("x", "y")),))

    class Odd:
        size = 3

        def product_rows(self, drawn: np.ndarray) -> None:
            raise dualquery.QueryError("no products")

    task = Task(marginals(graph, 1), ROWS, budget(1.0))
    object.__setattr__(task, "workload", Odd())
    assert predicted_errors(task, {}, 0.25, 0.125) == (0.25, 0.25)


def test_bins_of_different_widths_are_taken_to_be_filled() -> None:
    even = Numeric("even", tuple(map(float, range(9))))
    drafted = Numeric("drafted", (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0))
    few = Categorical("few", tuple(map(str, range(8))), numeric=True)
    names = Categorical("names", tuple("abcdefgh"))
    first = [float(likely_ones(Domain((column,)))[0][0]) for column in (even, drafted, few, names)]
    assert first[1] == first[2] < first[0] == first[3]


def test_what_a_schema_says_of_dependence() -> None:
    """Few values tell little, two numbers in bins much, and most pairs less than a few."""
    bins = tuple(map(float, range(9)))
    named = [Categorical(name, tuple("abcdefgh")) for name in "xy"]
    few = [Categorical(name, ("no", "yes")) for name in "uv"]
    schema = Domain((*named, *few, Numeric("n", bins), Numeric("m", bins)))
    theta = predicted._dependence(schema, [(0,), (0, 1), (2, 3), (0, 4), (4, 5), (0, 1, 2)])
    assert theta[1] == theta[3] == pytest.approx(0.5 * 7 / 8)
    assert theta[2] == pytest.approx(0.5 / 2)
    assert theta[4] == 2 * theta[1]
    assert theta[0] == 1.0
    assert theta[5] == predicted.LARGER
    points, weights = np.array(predicted.LAW).T
    assert [weights.sum(), weights @ points, weights @ points**2] == pytest.approx([1, 1, 2], abs=1e-3)


def test_a_triple_that_is_not_measured_is_better_where_its_pairs_are_known() -> None:
    task = Task(marginals(domain(6, 6, 6), 3), 10**6, budget(1.0))
    ones, pairs = [(0,), (1,), (2,)], list(combinations(range(3), 2))
    errors = [
        predicted._errors_of_sets(
            task, dict.fromkeys(ones, 1.0) | dict.fromkeys(pairs, variance), [(0, 1, 2)]
        )
        for variance in (1.0, 1e8, 1e12)
    ]
    assert errors[0] < errors[1] < errors[2]
    implied = 0.8 * math.sqrt(3) * (0.5 * 5 / 6) ** 2 * (5 / 6) ** 1.5  # all that pairs would tell
    assert errors[2] == pytest.approx(implied, rel=0.1)


def made(records: Records, order: int, epsilon: float) -> tuple[float, Plan[Any]]:
    workload, paid = marginals(records.domain, order), budget(epsilon)
    plan = PROJECTION.plan_for(Task(workload, records.rows, paid), {"synthetic_rows": 20_000})
    outcome = PROJECTION.run(
        plan, curator_of(records, Ledger(paid), seed=1), np.random.default_rng(1), silent
    )
    off = workload.fractions(outcome.artefact.records) - workload.fractions(records)
    return float(np.abs(off).mean()), plan


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(
    ("sizes", "rows", "epsilon"),
    [
        ((2, 5, 3, 8, 4, 6), 20_000, 1.0),
        ((2, 3, 2, 4, 2, 3, 2, 2), 1_500, 0.5),
        ((6, 9, 7, 12, 5), 5_000, 0.3),
    ],
)
def test_the_prediction_is_that_of_the_workload(
    sizes: tuple[int, ...], rows: int, epsilon: float, order: int
) -> None:
    true, plan = made(related_table(sizes, rows, seed=3), order, epsilon)
    assert 0.6 < plan.mean_error / true < 1.8


def test_the_noise_of_a_cell_alone_is_far_too_much_for_triples() -> None:
    true, plan = made(related_table((6, 9, 7, 12, 5), 5_000, seed=3), 3, 0.3)
    assert 0.45 * plan.parameters.cell_noise > 3 * true


SCHEMA = domain(2, 5, 3, 8, 4)


def test_the_least_epsilon_for_a_wish() -> None:
    for order in (2, 3):
        workload = marginals(SCHEMA, order)

        def planned(tried: Budget, workload: dualquery.Workload = workload) -> Any:
            return settled_plan(SCHEMA, workload, tried, records=ROWS)

        for wish in (0.005, 0.002, 0.0005):
            found = enough_for(wish, budget(50.0), planned)
            assert (
                found.settled.plan.mean_error
                <= AIM * wish
                < planned(budget(0.98 * found.epsilon)).plan.mean_error
            )
            epsilons, errors = zip(*found.curve, strict=True)
            assert list(epsilons) == sorted(epsilons)
            assert list(errors) == sorted(errors, reverse=True)
            assert (found.epsilon, found.settled.plan.mean_error) in found.curve


def test_a_wish_that_anything_meets_costs_next_to_nothing() -> None:
    found = enough_for(
        0.5, budget(50.0), lambda tried: settled_plan(SCHEMA, marginals(SCHEMA, 2), tried, records=ROWS)
    )
    assert found.epsilon == LEAST


def test_a_wish_in_python() -> None:
    asked: dict[str, Any] = {"workload": "marginals:2", "records": ROWS, "error": 0.002}
    found = dualquery.choose_epsilon(SCHEMA, **asked)
    assert found.plan.mean_error <= AIM * 0.002
    enough = Budget(found.epsilon * 0.97, found.settled.budget.delta)  # predicts the wish, though not the aim
    assert dualquery.choose_epsilon(SCHEMA, budget=enough, **asked).plan.mean_error <= 0.002
    most = Budget(20, found.settled.budget.delta, dualquery.PersonReplace(3))
    person = dualquery.choose_epsilon(SCHEMA, budget=most, **asked)
    assert 2.5 < person.epsilon / found.epsilon < 5  # three records move thrice as far
    with pytest.raises(BudgetError, match=r"more than the 0\.002 wanted"):
        dualquery.choose_epsilon(SCHEMA, budget=Budget(0.01, 1e-6), **asked)
    for wrong in (0, 1, -0.1, "much", True, float("nan")):
        with pytest.raises(BudgetError, match="between 0 and 1"):
            dualquery.choose_epsilon(SCHEMA, **asked | {"error": wrong})
