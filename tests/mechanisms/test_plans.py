"""What all mechanisms promise: a plan prices exactly what is run, refuses foreign options, and is plain data."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.baselines import IndependentParameters
from dualquery.mechanisms.mechanism import Plan, Task, affordable, shown
from dualquery.mechanisms.projection.small import ByChosenPairs
from dualquery.mechanisms.projection.tables import ByTables
from dualquery.mechanisms.wishes import MECHANISMS, WISHES, flags_of
from dualquery.privacy.budget import RELATIONS, Accounting, Neighbours, Sensitivity
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Event
from dualquery.privacy.ledger import Ledger
from dualquery.queries.derived import number_of_records
from dualquery.queries.families import from_spec
from dualquery.queries.statistics import Countable
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.releases.plan import known_rows, measures_rows, price_of_rows
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import Records
from dualquery.types import Integers, silent
from tests import house

OF_RECORDS = [name for name, each in MECHANISMS.items() if each.plays is None or "records" in each.plays]

MIXED = Domain((Categorical("a", ("x", "y", "z")), equal_width("c", 0, 10, 5), Items("item", 3)))
BINARY = Domain((Items("item", 6),))
FEW = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(9)))) for j in range(9)))  # few records for it
BASKETS = Domain((Items("item", 220),))  # so many that items and pairs are measured
WIDE = Domain((Items("item", 200), *(Categorical(f"c{j}", ("no", "yes")) for j in range(9))))
ROWS = 400

ZCDP, PURE, GAUSSIAN, THEOREM = (
    Accounting.ZCDP,
    Accounting.PURE,
    Accounting.GAUSSIAN,
    Accounting.THEOREM_4_3,
)

Case = tuple[str, Domain, str, Accounting, dict[str, object]]
CASES: list[Case] = [
    ("projection", MIXED, "marginals:2", ZCDP, {"synthetic_rows": 200}),
    ("projection", MIXED, "random:3:200", GAUSSIAN, {"synthetic_rows": 200}),
    ("projection", BASKETS, "random:3:200", ZCDP, {"synthetic_rows": 200, "items_per_record": 4}),
    ("projection", BASKETS, "random:3:200", ZCDP, {"synthetic_rows": 200, "items_per_record": 1}),
    ("projection", BASKETS, "random:3:21000", GAUSSIAN, {"synthetic_rows": 200}),
    ("projection", WIDE, "random:3:21000", ZCDP, {"synthetic_rows": 200}),
    ("projection", MIXED, "marginals:2", PURE, {"synthetic_rows": 200}),
    ("projection", BINARY, "marginals:3", PURE, {"synthetic_rows": 200}),
    ("dualquery", MIXED, "random:3:200", ZCDP, {"rounds": 5, "samples": 4, "free": "density"}),
    ("dualquery", MIXED, "marginals:2", PURE, {"rounds": 3, "samples": 2, "free": "density"}),
    ("dualquery", BINARY, "parities:2", THEOREM, {"rounds": 4, "samples": 3, "free": "random"}),
    ("dualquery", BINARY, "marginals:2", ZCDP, {"rounds": 1, "samples": 3, "free": "zeros"}),
    ("mwem", MIXED, "random:2:50", PURE, {"rounds": 3}),
    ("mwem", MIXED, "marginals:2", ZCDP, {"rounds": 3, "measured": "tables", "iterate": "average"}),
    ("mwem", BINARY, "marginals:2", ZCDP, {"rounds": 3, "measured": "parities", "start": "noisy"}),
    ("mwem", BINARY, "marginals:2", PURE, {"rounds": 3, "start": "noisy", "updates": "once"}),
    ("mwem", BINARY, "marginals:2", PURE, {"rounds": 3, "updates": "figure-1"}),
    ("mwem", BINARY, "parities:2", ZCDP, {"rounds": 4, "part_cells": 8}),
    ("pmw", MIXED, "marginals:2", ZCDP, {"rounds": 4}),
    ("pmw", BINARY, "random:2:30", PURE, {"rounds": 4, "iterate": "last"}),
    ("pmw", BINARY, "parities:2", THEOREM, {"rounds": 4}),
    ("mirror", MIXED, "random:2:50", PURE, {"rounds": 3, "mirror_map": "entropy"}),
    ("mirror", BINARY, "marginals:2", ZCDP, {"rounds": 3, "mirror_map": "p-norm", "iterate": "average"}),
    ("euclidean", MIXED, "random:2:50", ZCDP, {"rounds": 3}),
    ("euclidean", MIXED, "random:2:50", PURE, {"rounds": 2, "synthetic_rows": 200}),
    ("monomials", BINARY, "disjunctions:2", ZCDP, {"rounds": 3}),
    ("monomials", BINARY, "disjunctions:3", PURE, {"rounds": 3, "blocks": 2}),
    ("parities", BINARY, "disjunctions:2 + random:3:20", ZCDP, {}),
    ("parities", BINARY, "disjunctions:3", GAUSSIAN, {"widest": 3}),
    ("parities", BASKETS, "disjunctions:3:200", ZCDP, {}),
    ("least-squares", MIXED, "marginals:2 + random:2:10", GAUSSIAN, {"rounds": 5, "synthetic_rows": 200}),
    ("least-squares", BINARY, "parities:2", ZCDP, {"rounds": 5, "synthetic_rows": 200}),
    ("laplace", MIXED, "marginals:2 + random:2:10", PURE, {}),
    ("gaussian", MIXED, "marginals:2 + random:2:10", ZCDP, {}),
    ("gaussian", MIXED, "random:2:10", GAUSSIAN, {}),
    ("gaussian", MIXED, "marginals:2 + random:2:10", GAUSSIAN, {}),
    ("projection", BASKETS, "random:3:200", GAUSSIAN, {"synthetic_rows": 200, "items_per_record": 4}),
    ("hadamard", BINARY, "marginals:2", GAUSSIAN, {"synthetic_rows": 200}),
    ("hadamard", BINARY, "marginals:2", PURE, {"synthetic_rows": 200}),
    ("hadamard", BINARY, "marginals:2", ZCDP, {"synthetic_rows": 200}),
    ("projection", FEW, "marginals:2", ZCDP, {"synthetic_rows": 200}),
    ("projection", FEW, "random:3:200", GAUSSIAN, {"synthetic_rows": 200}),
    ("uniform", MIXED, "marginals:2", PURE, {"synthetic_rows": 200}),
    ("zeros", MIXED, "marginals:2", ZCDP, {"synthetic_rows": 200}),
]
every_case = pytest.mark.parametrize(
    "case", CASES, ids=["-".join((name, spec, paid.value)) for name, _, spec, paid, _ in CASES]
)


def table(domain: Domain) -> Records:
    rng = np.random.default_rng(0)
    return Records.from_rows(domain, (rng.random((ROWS, domain.width)) ** 3 * domain.sizes).astype(int))


budget = partial(house.budget, epsilon=2.0)


class CountingCounter(MemoryCounter):
    """Remembers how often the number of records was counted, alone or among tables."""

    totals = 0

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        self.totals += isinstance(countable, Tables) and () in countable.sets
        return super().true_counts(countable, kept=kept)


def planned(plan: Plan[Any]) -> Counter[Event]:
    """The events of a plan, each as often as it will happen."""
    return Counter(step.event for step in plan.steps for _ in range(step.times))


def ran(
    case: Case, neighbours: Neighbours, declared: int | None
) -> tuple[Plan[Any], Ledger, CountingCounter]:
    """Plan and run as `release` does."""
    name, domain, spec, accounting, options = case
    counter = CountingCounter(table(domain))
    limits = budget(neighbours=neighbours, accounting=accounting)
    ledger = Ledger(replace(limits, adaptive=measures_rows(limits, declared)))
    entropy = SeededEntropy(0)
    curator = Curator(counter, ledger, entropy)
    known = known_rows(curator, counter, declared)
    task = Task(from_spec(domain, spec), known.rows, known.left, known.variance)
    plan = MECHANISMS[name].plan_for(task, options)
    MECHANISMS[name].run(plan, curator, entropy.public_generator(), silent)
    return plan, ledger, counter


@every_case
@pytest.mark.parametrize("neighbours", RELATIONS, ids=lambda relation: relation.value)
def test_a_run_charges_what_was_planned_and_nothing_else(case: Case, neighbours: Neighbours) -> None:
    plan, ledger, counter = ran(case, neighbours, None if neighbours.size_is_public else ROWS)
    assert Counter(ledger.events) == planned(plan)
    assert affordable(ledger.budget, plan.steps)
    if neighbours.size_is_public:
        assert counter.totals == 0


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[3] is not THEOREM], ids=lambda case: f"{case[0]}-{case[3]}"
)
def test_a_private_number_of_records_is_measured_once_and_first(case: Case) -> None:
    """Then come the planned steps, paid for by what was left."""
    plan, ledger, counter = ran(case, Neighbours.ADD_REMOVE, None)
    priced = price_of_rows(ledger.budget)
    left, moved = (
        priced.left,
        Neighbours.ADD_REMOVE.sensitivity(number_of_records(case[1]).bound()).l2_squared,
    )
    first = priced.noise.event(Sensitivity(priced.times * moved, priced.times**2 * moved))
    assert ledger.events[0] == first
    assert Counter(ledger.events[1:]) == planned(plan)
    # Where records are few, the number is worth measuring again with the one-way tables; and balances 2c − n need it.
    assert counter.totals == 1 or isinstance(
        plan.parameters, ByChosenPairs | ByTables | IndependentParameters
    )
    assert plan.task.budget == left
    assert not any("number of records" in step.words for step in plan.steps)
    assert ledger.spent().epsilon <= ledger.budget.epsilon


@pytest.mark.parametrize(
    "case",
    CASES[:6],
    ids=["tables", "triples", "items", "lone items", "signed tables", "chosen triples"],
)
def test_where_no_measurement_came_before_projection_measures_the_number_itself(case: Case) -> None:
    plan, _, counter = ran(case, Neighbours.ADD_REMOVE, ROWS)
    assert counter.totals == (2 if isinstance(plan.parameters, ByChosenPairs) else 1)


@every_case
def test_what_a_certificate_shows_of_a_plan_is_plain_data(case: Case) -> None:
    name, domain, spec, accounting, options = case
    task = Task(from_spec(domain, spec), ROWS, budget(accounting=accounting))
    plan = MECHANISMS[name].plan_for(task, options)
    written = shown(plan.parameters)
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert all(type(value) in (int, float, str) for value in written.values())
    for option in options:
        if option in written:
            assert written[option] == options[option]
    steps = [step.event.to_json() for step in plan.steps]
    assert json.loads(json.dumps(steps, allow_nan=False)) == steps


@pytest.mark.parametrize("accounting", [ZCDP, GAUSSIAN, THEOREM, PURE], ids=str)
@pytest.mark.parametrize("name", OF_RECORDS)
def test_a_mechanism_is_paid_by_what_it_says_and_by_nothing_else(name: str, accounting: Accounting) -> None:
    mechanism = MECHANISMS[name]
    options = {option: 2 for option in ("rounds", "samples") if mechanism.accepts([option])}
    options |= {"free": "random"} if name == "dualquery" else {}
    spec = "disjunctions:2" if name == "monomials" else "marginals:2"
    task = Task(from_spec(BINARY, spec), ROWS, budget(accounting=accounting))
    if accounting in mechanism.paid_by:
        assert affordable(task.budget, mechanism.plan_for(task, options).steps)
    else:
        with pytest.raises(BudgetError):
            mechanism.plan_for(task, options)


def test_every_mechanism_is_among_the_cases() -> None:
    assert {name for name, *_ in CASES} == set(OF_RECORDS)


def test_every_mechanism_has_its_wishes() -> None:
    assert set(WISHES) == set(MECHANISMS)
    for name, mechanism in MECHANISMS.items():
        assert mechanism.name == name
        assert mechanism.wishes is WISHES[name]
        assert mechanism.accepts(flags_of(WISHES[name]))


@pytest.mark.parametrize("name", OF_RECORDS)
def test_foreign_options_are_refused_in_a_sentence(name: str) -> None:
    mechanism = MECHANISMS[name]
    task = Task(from_spec(BINARY, "marginals:2"), ROWS, budget(accounting=ZCDP))
    known = {option for wishes in WISHES.values() for option in flags_of(wishes)}
    foreign = known - set(flags_of(WISHES[name]))
    assert foreign
    for option in foreign:
        assert not mechanism.accepts([option])
        flag = "--" + option.replace("_", "-")
        with pytest.raises(DualQueryError) as refusal:
            mechanism.plan_for(task, {option: 1})
        assert str(refusal.value) == f"{flag} means nothing to the mechanism '{name}'; leave it out"
