"""The plan of a release from public things alone: by a mechanism that was named, or by the rule that chooses one.

Which theorem adds up a release, where the user names none: the tightest that the mechanism can be paid by.

It is settled from public things alone, before the ledger is opened. Gaussian accounting comes first where a mechanism
can be paid by it, and its plan is made on trial: a plan that draws something else than Gaussian noise refuses
(`AnotherAccounting`), and the next theorem is taken. Where the number of records is still to be measured, the trial
is made at a nominal number: the theorem must stand before the first draw, and that measurement is one.

A plan on trial, where the number of records is still to be measured: what is refused for certain is not charged.

Measuring the number charges the book, and the plan follows the number. What would be refused whatever the number is
(an option that means nothing, a workload too large, a budget too small) can be said from public things alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.choose import MECHANISMS, TIGHTEST_FIRST, AnyMechanism, choose
from dualquery.mechanisms.mechanism import AnotherAccounting, Plan, Task
from dualquery.mechanisms.special import SPECIAL
from dualquery.mechanisms.wishes import WISHES, flags_of
from dualquery.privacy.budget import Accounting, Budget, budget_warnings
from dualquery.queries.workload import Workload
from dualquery.releases.calling import checked_wish
from dualquery.releases.rows import price_of_rows
from dualquery.table.schema import Schema


def plan_for(
    task: Task, options: Mapping[str, object], mechanism: str | None
) -> tuple[AnyMechanism, Plan[Any]]:
    """The mechanism asked for by name, or the one that the public rule chooses, and its plan."""
    assert task.budget.accounting is not Accounting.TIGHTEST, "settled before anything is planned"
    if task.budget.accounting is Accounting.RENYI:
        raise BudgetError("renyi accounting is for questions asked one at a time; release with zcdp or pure")
    chosen = choose(task, options) if mechanism is None else named(mechanism).plan_for(task, options)
    return named(mechanism or chosen.mechanism), replace(chosen, notes=(*task.workload.notes, *chosen.notes))


def named(mechanism: str) -> AnyMechanism:
    """The mechanism of this name, of whatever table it plays."""
    check_mechanism(mechanism)
    return MECHANISMS.get(mechanism) or SPECIAL[mechanism]


def check_mechanism(name: str | None) -> None:
    """Refuse a name that no mechanism has; None leaves the choice to the program."""
    known = [*MECHANISMS, *SPECIAL]
    if name is not None and name not in known:
        raise DualQueryError(f"there is no mechanism '{name}'; there are {', '.join(known)}")


def check_plays(name: str | None, kind: str) -> None:
    """Refuse a mechanism that does not play this kind of table: before a book is charged, or the number measured."""
    check_mechanism(name)
    if name is not None:
        named(name).check_plays(kind)


def checked_options(options: Mapping[str, object]) -> dict[str, object]:
    """Options given by name, after refusing names that no mechanism knows. None is as good as not given."""
    known = list(dict.fromkeys(name for wishes in WISHES.values() for name in flags_of(wishes)))
    for name in options:
        if name not in known:
            raise DualQueryError(
                f"there is no argument '{name}'; the options of mechanisms are {', '.join(known)}"
            )
    return {name: checked_wish(name, value) for name, value in options.items() if value is not None}


DRAFT = (
    "not private: the schema still says that it is a draft, read off the private table; no guarantee holds until "
    "everything in it is public knowledge and its line 'draft = true' is deleted"
)


def warnings_of(budget: Budget, rows: int, schema: Schema, *, seed: int | None = None) -> list[str]:
    """What a careful reader should know before trusting the promise."""
    warnings = [*([DRAFT] if schema.draft else []), *schema.doubts]
    if seed is not None:
        warnings.append("not private: a seed was used, and whoever knows it can undo the noise")
    return [*warnings, *budget_warnings(budget, rows)]


NOMINAL_ROWS = 10_000  # of a table whose number of records is not known yet

ASKED = "it was asked for"
BOOK = "the ledger adds up ρ, for which zCDP asks the least"
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


TRIED = (NOMINAL_ROWS, 10**2, 10**6, 10**9)


def refuse_hopeless(
    workload: Workload, budget: Budget, options: Mapping[str, object], mechanism: str | None
) -> None:
    """Refuse what no number of records would let be planned; the first plan that stands ends the trial."""
    priced, refused = price_of_rows(budget), None
    for rows in TRIED:
        known = priced.known(rows)
        try:
            plan_for(Task(workload, known.rows, known.left, known.variance), options, mechanism)
        except DualQueryError as problem:
            refused = refused or problem
        else:
            return
    assert refused is not None, "some number was tried"
    raise refused
