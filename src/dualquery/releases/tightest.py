"""Which theorem adds up a release, where the user names none: the tightest that the mechanism can be paid by.

It is settled from public things alone, before the ledger is opened. Gaussian accounting comes first where a mechanism
can be paid by it, and its plan is made on trial: a plan that draws something else than Gaussian noise refuses
(`AnotherAccounting`), and the next theorem is taken. Where the number of records is still to be measured, the trial
is made at a nominal number: the theorem must stand before the first draw, and that measurement is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dualquery.errors import DualQueryError
from dualquery.mechanisms.choose import TIGHTEST_FIRST, AnyMechanism
from dualquery.mechanisms.mechanism import AnotherAccounting, Plan, Task
from dualquery.privacy.budget import Accounting, Budget
from dualquery.queries.workload import Workload
from dualquery.releases.planning import check_mechanism, named, plan_for

NOMINAL_ROWS = 10_000  # of a table whose number of records is not known yet

ASKED = "it was asked for"
BOOK = "the book of the dataset adds up ρ, of which this theorem asks the least for an epsilon"
WHY = {
    Accounting.GAUSSIAN: "it is the tightest for a release that only adds Gaussian noise",
    Accounting.ZCDP: "it is the tightest here for a mechanism that does not only add Gaussian noise",
    Accounting.PURE: "it is the tightest for a mechanism that only adds Laplace noise",
}


@dataclass(frozen=True)
class Settled:
    """A budget whose accounting is settled, why, and the plan where one was made on the way."""

    budget: Budget
    why: str
    planned: tuple[AnyMechanism, Plan[Any]] | None = None


def by_the_book(budget: Budget, mechanism: str | None) -> Settled:
    """For a release that is charged to a book: ρ is what the book adds up, so zcdp, where it can pay."""
    check_mechanism(mechanism)
    if budget.accounting is not Accounting.TIGHTEST:
        return Settled(budget, ASKED)
    candidates = TIGHTEST_FIRST if mechanism is None else named(mechanism).paid_by
    if Accounting.ZCDP in candidates:
        return Settled(replace(budget, accounting=Accounting.ZCDP), BOOK)
    return Settled(replace(budget, accounting=candidates[0]), WHY[candidates[0]])


def settle(
    workload: Workload, budget: Budget, options: Mapping[str, object], mechanism: str | None, rows: int | None
) -> Settled:
    """The budget with a theorem; `rows` is None where the number of records is still to be measured."""
    check_mechanism(mechanism)
    if budget.accounting is not Accounting.TIGHTEST:
        return Settled(budget, ASKED)
    tightest, *others = TIGHTEST_FIRST if mechanism is None else named(mechanism).paid_by
    if tightest is Accounting.GAUSSIAN and others:  # which does not pay for a plan that selects
        # Of a mechanism that was named, no other refusal is a reason to take the next theorem.
        refusal = DualQueryError if mechanism is None else AnotherAccounting
        found = replace(budget, accounting=tightest)
        try:
            variance = None if rows is not None else 1.0
            planned = plan_for(Task(workload, rows or NOMINAL_ROWS, found, variance), options, mechanism)
        except refusal:
            tightest = others[0]
        else:
            return Settled(found, WHY[tightest], planned if rows else None)
    return Settled(replace(budget, accounting=tightest), WHY[tightest])
