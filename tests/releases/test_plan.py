"""Which theorem adds up a release where none is named, when that is settled, and why it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dualquery
from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    Categorical,
    Domain,
    DualQueryError,
    Neighbours,
    Records,
)
from dualquery.ledger.books import Books, create
from dualquery.mechanisms.mechanism import AnotherAccounting, Plan, Task
from dualquery.mechanisms.wishes import MECHANISMS, NoWishes
from dualquery.privacy.budget import PersonAddRemove, PersonReplace
from dualquery.privacy.curator import Curator
from dualquery.queries.families import from_spec
from dualquery.releases import sentences
from dualquery.releases.plan import ASKED, BOOK, NOMINAL_ROWS, WHY, Request, Settled, settle, settled_plan
from tests import house

OF_RECORDS = [name for name, each in MECHANISMS.items() if each.plays is None or "records" in each.plays]

DOMAIN = Domain(tuple(Categorical(name, ("0", "1")) for name in "abcd"))
WORKLOAD = from_spec(DOMAIN, "marginals:2")
RELATIONS = [Neighbours.REPLACE, Neighbours.ADD_REMOVE, PersonAddRemove(3), PersonReplace(3)]
EXPECTED = {
    None: Accounting.GAUSSIAN,
    "projection": Accounting.GAUSSIAN,
    "gaussian": Accounting.GAUSSIAN,
    "least-squares": Accounting.GAUSSIAN,
    "hadamard": Accounting.GAUSSIAN,
    "dualquery": Accounting.ZCDP,
    "mwem": Accounting.ZCDP,
    "pmw": Accounting.ZCDP,
    "mirror": Accounting.ZCDP,
    "euclidean": Accounting.ZCDP,
    "parities": Accounting.GAUSSIAN,
    "laplace": Accounting.PURE,
    "uniform": Accounting.ZCDP,
    "zeros": Accounting.ZCDP,
}


limits = partial(house.budget, accounting=Accounting.TIGHTEST)


def by_the_book(budget: Budget, mechanism: str | None) -> Settled:
    return settle(Request(WORKLOAD, {}, mechanism), budget, None, booked=Accounting.ZCDP)


@pytest.mark.parametrize("mechanism", EXPECTED)
@pytest.mark.parametrize("rows", [5000, None], ids=["public", "to be measured"])
def test_the_tightest_that_a_mechanism_allows(mechanism: str | None, rows: int | None) -> None:
    budget = replace(limits(neighbours=Neighbours.ADD_REMOVE), adaptive=rows is None)
    found = settle(Request(WORKLOAD, {}, mechanism), budget, rows)
    assert found.budget == replace(budget, accounting=EXPECTED[mechanism])
    assert found.why == WHY[EXPECTED[mechanism]]
    if found.planned is not None:
        assert rows == 5000
        assert found.planned[1].task == Task(WORKLOAD, 5000, found.budget, places=True)


def test_every_mechanism_is_expected_something() -> None:
    others = {"independent", "replicated", "bare", "monomials"}  # the last plays disjunctions alone
    assert set(EXPECTED) - {None} == set(OF_RECORDS) - others


@pytest.mark.parametrize("accounting", [a for a in Accounting if a is not Accounting.TIGHTEST])
def test_what_was_asked_for_stays(accounting: Accounting) -> None:
    for mechanism in EXPECTED:
        budget = limits(accounting=accounting)
        assert settle(Request(WORKLOAD, {}, mechanism), budget, 5000).budget == budget
        assert settle(Request(WORKLOAD, {}, mechanism), budget, 5000).why == ASKED
        assert by_the_book(budget, mechanism).budget == budget


def test_a_budget_names_no_theorem_unless_asked() -> None:
    assert Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE).accounting is Accounting.TIGHTEST


def test_an_option_decides_for_the_mechanism_and_so_for_the_theorem() -> None:
    assert (
        settle(Request(WORKLOAD, {"samples": 5}, None), limits(), 5000).budget.accounting is Accounting.ZCDP
    )
    assert (
        settle(Request(WORKLOAD, {"synthetic_rows": 5}, None), limits(), 5000).budget.accounting
        is Accounting.GAUSSIAN
    )


def test_a_workload_too_wide_for_projection_is_paid_for_by_zcdp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualquery.mechanisms.shares.MOST_SETS", 3)
    for rows in (5000, None):
        budget = replace(limits(neighbours=Neighbours.ADD_REMOVE), adaptive=rows is None)
        assert settle(Request(WORKLOAD, {}, None), budget, rows).budget.accounting is Accounting.ZCDP
    with pytest.raises(DualQueryError, match="too many"):  # of a mechanism that was named, the refusal stands
        settle(Request(WORKLOAD, {}, "projection"), limits(), 5000)


@pytest.fixture
def selecting(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """A mechanism that only adds noise to large tables, and wants to select in small ones."""
    real, seen = MECHANISMS["gaussian"], list[Task]()

    def plan(task: Task, wanted: NoWishes) -> Plan[Any]:
        seen.append(task)
        small = task.rows < 1000 and task.rows_variance is None
        if small and task.budget.accounting is Accounting.GAUSSIAN:
            raise AnotherAccounting(
                "a small table is measured where a selection says so; use zcdp accounting"
            )
        return real.plan(task, wanted)

    monkeypatch.setitem(MECHANISMS, "gaussian", replace(real, plan=plan))
    return seen


def test_a_plan_may_ask_for_the_next_theorem(selecting: list[Task]) -> None:
    large, small = (settle(Request(WORKLOAD, {}, "gaussian"), limits(), rows) for rows in (5000, 500))
    assert large.budget.accounting is Accounting.GAUSSIAN
    assert small.budget.accounting is Accounting.ZCDP
    assert small.why == WHY[Accounting.ZCDP]
    with pytest.raises(AnotherAccounting):  # what was asked for is not given up
        settled_plan(
            DOMAIN,
            expected_records=500,
            workload=WORKLOAD,
            budget=limits(accounting=Accounting.GAUSSIAN),
            mechanism="gaussian",
        )
    assert (
        settled_plan(
            DOMAIN, expected_records=500, workload=WORKLOAD, budget=limits(), mechanism="gaussian"
        ).plan.task.rows
        == 500
    )


def test_where_the_number_is_measured_the_theorem_is_settled_at_a_nominal_one(selecting: list[Task]) -> None:
    budget = replace(limits(neighbours=Neighbours.ADD_REMOVE), adaptive=True)
    assert settle(Request(WORKLOAD, {}, "gaussian"), budget, None).budget.accounting is Accounting.GAUSSIAN
    assert [task.rows for task in selecting] == [NOMINAL_ROWS]
    assert selecting[0].rows_variance is not None
    found = settled_plan(
        DOMAIN,
        expected_records=500,
        workload=WORKLOAD,
        budget=limits(neighbours=Neighbours.ADD_REMOVE),
        mechanism="gaussian",
    )
    assert found.budget.accounting is Accounting.GAUSSIAN  # the plan did without what it could not pay for


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_the_theorem_stands_before_anything_is_drawn(
    records: Records, relation: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every measurement meets a ledger whose theorem is settled, and the same one."""
    seen: list[Accounting] = []
    measure = Curator.measure

    def watched(self: Curator, *arguments: Any, **named: Any) -> Any:
        seen.append(self.ledger.budget.accounting)
        return measure(self, *arguments, **named)

    monkeypatch.setattr(Curator, "measure", watched)
    monkeypatch.setattr("dualquery.releases.make.check_records", lambda *_: None)
    made = dualquery.release(
        records, workload="marginals:2", budget=limits(neighbours=relation), mechanism="gaussian", seed=1
    )
    assert set(seen) == {Accounting.GAUSSIAN}
    told = made.certificate["budget"]
    assert (told["accounting"], told["accounting_reason"]) == ("gaussian", WHY[Accounting.GAUSSIAN])
    assert made.certificate["spent"]["epsilon"] == pytest.approx(1, abs=1e-6)
    told_in_words = " ".join(sentences.price(made.certificate))
    assert f"taken because {WHY[Accounting.GAUSSIAN]}." in told_in_words
    assert ("the whole budget counts as spent" in told_in_words) is not relation.size_is_public


@pytest.mark.parametrize("relation", [Neighbours.REPLACE, Neighbours.ADD_REMOVE], ids=str)
def test_a_book_adds_up_rho_so_its_releases_do(
    records: Records, relation: Neighbours, tmp_path: Path
) -> None:
    """All of a book's ε can be released at once; the theorem that buys more ρ for it would not fit."""
    create(tmp_path / "ledger", name="people", epsilon=1.0, delta=1e-6, neighbours=relation)
    asked: dict[str, Any] = {"workload": "marginals:2", "mechanism": "gaussian", "seed": 1}
    with pytest.raises(BudgetError, match="too little is left"):
        dualquery.release(
            records,
            budget=limits(neighbours=relation, accounting=Accounting.GAUSSIAN),
            ledger=tmp_path / "ledger",
            **asked,
        )
    made = dualquery.release(records, budget=limits(neighbours=relation), ledger=tmp_path / "ledger", **asked)
    assert made.certificate["budget"]["accounting"] == "zcdp"
    assert made.certificate["budget"]["accounting_reason"] == BOOK[Accounting.ZCDP]
    assert Books(tmp_path / "ledger").read().book.left == 0


def test_a_book_and_a_mechanism_that_zcdp_does_not_pay() -> None:
    assert by_the_book(limits(), "laplace").budget.accounting is Accounting.PURE
    assert by_the_book(limits(), None).budget.accounting is Accounting.ZCDP


def test_no_such_mechanism() -> None:
    for settled in (
        lambda: settle(Request(WORKLOAD, {}, "nonsense"), limits(), 10),
        lambda: by_the_book(limits(), "nonsense"),
    ):
        with pytest.raises(DualQueryError, match="no mechanism 'nonsense'"):
            settled()


def test_the_plan_says_which_theorem_and_why(make: Callable[..., Any]) -> None:
    found = settled_plan(DOMAIN, expected_records=5000, workload=WORKLOAD, budget=limits())
    assert found.plan.mechanism == "projection"
    assert found.why == WHY[Accounting.GAUSSIAN]
    assert 0.98 < found.plan.task.budget.epsilon < found.budget.epsilon  # 1% is set aside for the check
    alone = settled_plan(DOMAIN, expected_records=5000, workload=WORKLOAD, budget=limits(), check=0)
    assert alone.plan.task.budget == alone.budget
    measured = settled_plan(
        DOMAIN, expected_records=5000, workload=WORKLOAD, budget=limits(neighbours=Neighbours.ADD_REMOVE)
    )
    assert measured.budget.epsilon == 1.0
    assert measured.plan.task.budget.epsilon < 1.0
