"""The plan of a release from public things alone: which mechanism, which theorem adds up its cost, what it would be.

The theorem stands before the first draw. Where the user names none it is the tightest that the mechanism can be paid
by: Gaussian accounting comes first, and its plan is made to see; a plan that draws something else than Gaussian noise
refuses (`AnotherAccounting`), and the next theorem is taken. Where the number of records is still to be measured, the
plan to see is made at a nominal number.

Measuring the number charges the book, and the plan follows the number. What would be refused whatever the number is
(an option that means nothing, a workload too large, a budget too small) is said before anything is charged.

*The number of records*, as the public knows it: the table's own, declared, or measured and paid for.

Where it is measured, everything that comes after follows it, sizes and all. So the budget is `adaptive` from the
start, its accounting is a filter, and what is left of it is again a budget of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from dualquery.counting import Counter
from dualquery.errors import BudgetError, DataError, DualQueryError, SchemaError
from dualquery.fitting.measured import Measured
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.public_units import PublicUnits
from dualquery.fitting.totals import Totals
from dualquery.kinds import TIGHTEST_FIRST, choose
from dualquery.mechanisms.mechanism import AnotherAccounting, AnyMechanism, Plan, Step, Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours, budget_warnings
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger, Portion, portion
from dualquery.queries.derived import Multiplied, number_of_records
from dualquery.queries.statistics import Bound, Countable
from dualquery.queries.workload import Workload
from dualquery.releases.acceptance import NOTHING_WANTED, GivenAcceptance, Wanted
from dualquery.releases.arguments import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    checked_options,
    checked_rows,
    for_callers,
    schema_from,
    workload_from,
)
from dualquery.releases.certificate import RowsFrom
from dualquery.releases.check import SHARE, Reserved, Unchecked
from dualquery.table.domain import Domain
from dualquery.table.schema import Schema

SHARE_FOR_ROWS = Fraction(1, 100)  # of the budget, where the number of records must be measured
TOO_SMALL = "the budget is too small to measure the number of records; declare it as public (--records)"


@dataclass(frozen=True)
class KnownRows:
    """The number of records as the public knows it, how, and the budget left for the mechanism."""

    rows: int
    source: RowsFrom
    left: Budget
    variance: float | None = None  # of the noise with which it was measured

    def task(self, workload: Workload, *, places: bool) -> Task:
        """What is left to do; `places` as the task has it."""
        return Task(workload, self.rows, self.left, self.variance, places)


@dataclass(frozen=True)
class PricedRows(Portion):
    """Noise for so many times the number of records, and the budget that is left after it."""

    def statistic(self, domain: Domain) -> Countable:
        rows = number_of_records(domain)
        return rows if self.times == 1 else Multiplied(rows, self.times)

    def step(self, domain: Domain) -> Step:
        moved = self.left.neighbours.sensitivity(self.statistic(domain).bound())
        return Step("measure the number of records", self.noise.event(moved))

    def known(self, rows: int) -> KnownRows:
        """What the public knows when so many were measured."""
        return KnownRows(max(1, rows), RowsFrom.MEASURED, self.left, (self.noise.deviation / self.times) ** 2)


def measures_rows(budget: Budget, declared: int | None) -> bool:
    """Whether the number of records is to be measured: it is no public number, and nobody declared one."""
    return declared is None and not budget.neighbours.size_is_public


def known_rows(curator: Curator, counter: Counter, declared: int | None) -> KnownRows:
    """Under replacement the length of the table is public; otherwise declared, or measured and paid for."""
    budget = curator.ledger.budget
    if (rows := shared_rows(counter, budget.neighbours)) is not None:  # no secret: an error may depend on it
        if declared is not None and declared != rows:
            raise DataError("the declared number of records is not that of the table; leave it out")
        if rows == 0:
            raise DataError("the table has no rows")
        return KnownRows(rows, RowsFrom.TABLE, budget)
    if declared is not None:
        if declared < 1:
            raise BudgetError("the declared number of records must be at least 1")
        return KnownRows(declared, RowsFrom.DECLARED, budget)
    priced = price_of_rows(budget)
    measured = curator.measure(priced.statistic(counter.domain), noise=priced.noise)
    return priced.known(round(int(measured[0]) / priced.times))


def price_of_rows(budget: Budget) -> PricedRows:
    """Noise for the number of records that costs `SHARE_FOR_ROWS` of a budget, and what is left of it.

    One count, changed by at most Δ between neighbours: 1, or K where a person's K records move together.
    """
    if not budget.adaptive:
        raise BudgetError(
            "what follows a measured number of records has sizes that follow it; the budget must say that (adaptive)"
        )
    # As `number_of_records` has it, of any domain: a record counts as one, and two records count alike.
    moved = budget.neighbours.sensitivity(Bound((1, 1), (0, 0)))
    return PricedRows(**vars(portion(budget, SHARE_FOR_ROWS, moved, TOO_SMALL)))


def shared_rows(counter: Counter, neighbours: Neighbours) -> int | None:
    return counter.shared_rows(neighbours.size_is_public)


def plan_for(task: Task, asked: Request) -> tuple[AnyMechanism, Plan[Any]]:
    """The mechanism asked for by name, or the one that the public rule chooses, and its plan."""
    mechanism, options = asked.mechanism, asked.options
    assert task.budget.accounting is not Accounting.TIGHTEST, "settled before anything is planned"
    if task.budget.accounting is Accounting.RENYI:
        raise BudgetError("renyi accounting is for questions asked one at a time; release with zcdp or pure")
    chosen = choose(task, options) if mechanism is None else named(mechanism).plan_for(task, options)
    return named(mechanism or chosen.mechanism), replace(chosen, notes=(*task.workload.notes, *chosen.notes))


def named(mechanism: str) -> AnyMechanism:
    """The mechanism of this name, of whatever table it plays."""
    check_mechanism(mechanism)
    return MECHANISMS[mechanism]


def check_mechanism(name: str | None) -> None:
    """Refuse a name that no mechanism has; None leaves the choice to the program."""
    if name is not None and name not in MECHANISMS:
        raise DualQueryError(f"there is no mechanism '{name}'; there are {', '.join(MECHANISMS)}")


def check_plays(name: str | None, kind: str) -> None:
    """Refuse a mechanism that does not play this kind of table: before a book is charged, or the number measured."""
    check_mechanism(name)
    if name is not None:
        named(name).check_plays(kind)


DRAFT = (
    "not private: the schema still says that it is a draft, read off the private table; no guarantee holds until "
    "everything in it is public knowledge and its line 'draft = true' is deleted"
)


def foreign_code(mechanism: AnyMechanism) -> list[str]:
    """A sentence where a mechanism was added from outside: nobody here has read its code."""
    if mechanism.name in MECHANISMS.homes:
        return []
    return [
        f"the mechanism '{mechanism.name}' is not part of dualquery; the promise holds if its code sees the table "
        "through the curator alone"
    ]


def warnings_of(budget: Budget, rows: int, schema: Schema, *, seed: int | None = None) -> list[str]:
    """What a careful reader should know before trusting the promise."""
    warnings = [*([DRAFT] if schema.draft else []), *schema.doubts]
    if seed is not None:
        warnings.append("not private: a seed was used, and whoever knows it can undo the noise")
    return [*warnings, *budget_warnings(budget, rows)]


@dataclass(frozen=True)
class Request:
    """What is asked of a table, all of it public, before its budget is settled."""

    workload: Workload
    options: Mapping[str, object]
    mechanism: str | None = None  # None: the program chooses
    prior: PublicRows | PublicUnits | None = None
    earlier: tuple[Measured, ...] = ()  # and paid for, by a private draft
    checking: Wanted = NOTHING_WANTED
    totals: Totals | None = None

    def of(self, task: Task) -> Task:
        """A task, with what is known of the table before it is read."""
        return replace(task, prior=self.prior, earlier=self.earlier)


class WithCheck(NamedTuple):
    """A mechanism and its plan, and the check that its budget leaves room for."""

    mechanism: AnyMechanism
    plan: Plan[Any]
    check: Reserved | Unchecked = Unchecked("nothing is released")


def plan_checked(task: Task, asked: Request) -> WithCheck:
    """The plan with what is left beside a check, where synthetic records leave; else with the whole budget."""
    checking, check = asked.checking, asked.checking.set_aside(task)
    if isinstance(check, Unchecked):
        chosen, made = plan_for(task, asked)
        if why := _nothing_to_check(made):  # refused whatever the number of records is
            checking.refused(why)
        return WithCheck(chosen, made, check)
    chosen, made = plan_for(check.task, asked)
    why = _nothing_to_check(made)
    if why is None and _fits(task.budget, (check.step(), *made.steps)):
        return WithCheck(chosen, made, check)
    why = why or "beside a check this plan would exceed the budget"
    return WithCheck(*plan_for(task, asked), checking.refused(why))


def _nothing_to_check(made: Plan[Any]) -> str | None:
    """Why what a plan makes could not be checked, if so."""
    if not made.steps:
        return "the mechanism looks at no data"
    return None if made.records else "no synthetic records leave"


def _fits(budget: Budget, steps: Sequence[Step]) -> bool:
    """Whether a ledger pays for a plan and its check. Sums other than the Gaussian one are exact by themselves."""
    if budget.accounting is not Accounting.GAUSSIAN:
        return True
    return Ledger(budget).affords(*(event for step in steps for event in [step.event] * step.times))


NOMINAL_ROWS = 10_000  # of a table whose number of records is not known yet

ASKED = "it was asked for"
BOOK = {
    Accounting.ZCDP: "the ledger adds up ρ, for which zCDP asks the least",
    Accounting.GAUSSIAN: "the ledger adds up Gaussian noise",
}
WHY = {
    Accounting.GAUSSIAN: "it is the tightest for a release that only adds Gaussian noise",
    Accounting.ZCDP: "it is the tightest here for a mechanism that does not only add Gaussian noise",
    Accounting.PURE: "it is the tightest for a mechanism that only adds Laplace noise",
}


@dataclass(frozen=True)
class Settled:
    """A budget whose accounting is settled, why, and the mechanism with its plan where one was made on the way."""

    budget: Budget
    why: str
    planned: WithCheck | None = None

    @property
    def check_words(self) -> str:
        """What a check will show, or why there is none."""
        return "" if self.planned is None else self.planned.check.words()

    @property
    def plan(self) -> Plan[Any]:
        assert self.planned is not None, "made by `settled_plan`"
        return self.planned.plan


def settle(
    asked: Request, budget: Budget, rows: int | None, *, booked: Accounting | None = None, places: bool = True
) -> Settled:
    """The budget with a theorem; `rows` is None where the number of records is still to be measured.

    For a release that is charged to a book: what the book asks the least for (`booked`), where it can pay.
    """
    mechanism = asked.mechanism
    check_mechanism(mechanism)
    if budget.accounting is not Accounting.TIGHTEST:
        return Settled(budget, ASKED)
    candidates = TIGHTEST_FIRST if mechanism is None else named(mechanism).paid_by
    if booked is not None and booked in candidates:
        return Settled(replace(budget, accounting=booked), BOOK[booked])
    tightest, *others = candidates
    if tightest is Accounting.GAUSSIAN and others:  # which does not pay for a plan that selects
        # Of a mechanism that was named, no other refusal is a reason to take the next theorem.
        refusal = DualQueryError if mechanism is None else AnotherAccounting
        found = replace(budget, accounting=tightest)
        variance = None if rows is not None else 1.0
        task = asked.of(Task(asked.workload, rows or NOMINAL_ROWS, found, variance, places))
        try:
            planned = plan_checked(task, asked if rows else replace(asked, checking=NOTHING_WANTED))
        except refusal:
            tightest = others[0]
        else:
            return Settled(found, WHY[tightest], planned if rows else None)
    return Settled(replace(budget, accounting=tightest), WHY[tightest])


TRIED = (NOMINAL_ROWS, 10**2, 10**6, 10**9)


def refuse_hopeless(asked: Request, budget: Budget) -> None:
    """Refuse what no number of records would let be planned and judged; the first that stands ends the search."""
    priced, refused = price_of_rows(budget), None
    for rows in TRIED:
        try:
            task = asked.of(priced.known(rows).task(asked.workload, places=True))
            refuse_unmet(plan_checked(task, asked).plan, asked.totals)
        except DualQueryError as problem:
            refused = refused or problem
        else:
            return
    assert refused is not None, "some number was tried"
    raise refused


def refuse_unmet(made: Plan[Any], totals: Totals | None) -> None:
    """Refuse totals where no records leave that could meet them."""
    if totals is not None and not made.records:
        raise DualQueryError(
            f"totals are met by synthetic records, and '{made.mechanism}' makes none; leave out --totals"
        )


@for_callers
def plan(
    schema: GivenSchema,
    *,
    workload: GivenWorkload,
    budget: GivenBudget,
    expected_records: int | None = None,
    records: int | None = None,
    mechanism: str | None = None,
    check: float = SHARE,
    accept: GivenAcceptance | None = None,
    **options: object,
) -> Plan[Any]:
    """The plan of a release of a table of so many records. Needs no data; see `dualquery.release`.

    `records` is declared, as there. Of a table of about `expected_records` the release would have to measure how many
    there are, where neighbours may differ in that; the plan then begins with the measurement.
    """
    return settled_plan(
        schema, workload, budget, expected_records, records, mechanism, options, check, accept
    ).plan


def settled_plan(
    schema: GivenSchema,
    workload: GivenWorkload,
    budget: GivenBudget,
    expected_records: int | None = None,
    records: int | None = None,
    mechanism: str | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
    check: float = SHARE,
    accept: GivenAcceptance | None = None,
) -> Settled:
    """`plan`, with the budget of the whole release and the accounting that is settled on the way."""
    if (expected_records is None) == (records is None):
        raise DualQueryError("say how many records the table has: give one of records and expected_records")
    number = checked_rows(
        "the number of records", expected_records if expected_records is not None else records
    )
    assert number is not None, "one of the two"
    described, budget = schema_from(schema), budget_from(budget, lambda: number)
    if not isinstance(schema, Domain):
        records_per_person(described, budget.neighbours)
    questions, wanted = workload_from(described.domain, workload), checked_options(options)
    asked = Request(questions, wanted, mechanism, checking=Wanted.of(check, accept, described.domain))
    measured = measures_rows(budget, records)
    settled = settle(asked, replace(budget, adaptive=measured), None if measured else number)
    first: tuple[Step, ...] = ()  # what is paid for before all else: the number of records, then the check
    if measured:
        priced = price_of_rows(settled.budget)
        first = (priced.step(questions.domain),)
        planned = plan_checked(priced.known(number).task(questions, places=True), asked)
    else:
        planned = settled.planned or plan_checked(Task(questions, number, settled.budget, places=True), asked)
    made = planned.plan
    first += () if isinstance(planned.check, Unchecked) else (planned.check.step(),)
    return replace(settled, planned=planned._replace(plan=replace(made, steps=(*first, *made.steps))))


def records_per_person(schema: Schema, neighbours: Neighbours) -> int | None:
    """How many records of a person are read, None for all; refused where schema and neighbours do not agree."""
    most = neighbours.records_per_person
    if schema.domain.inner and (neighbours.size_is_public or most is not None):
        raise SchemaError(
            "a database protects units, and its rows that have no place in the schema are dropped, so that the "
            "number of units is private: release with --neighbours add-remove, or Budget(ε, δ, 'add-remove')"
        )
    if most is None:
        if schema.unit is not None and not schema.long:
            raise DualQueryError(
                f"the schema says whose record a row is (unit = '{schema.unit}'), so a person is to be "
                f"protected and not one record: use --neighbours person-{neighbours.value} with "
                "--records-per-person K, or remove the unit"
            )
        return None
    record_level = neighbours.value.removeprefix("person-")
    if schema.unit is None:
        raise DualQueryError(
            f"neighbours '{neighbours.value}' protect a person, and the schema does not say whose record a row "
            f'is: name that column in its section [table] (unit = "..."), or use --neighbours {record_level}'
        )
    if schema.long:
        raise DualQueryError(
            f"with long = true all rows of a unit are one record, which --neighbours {record_level} protects: "
            "use that, without --records-per-person"
        )
    return most


def check_records(found: int | None, schema: Schema, neighbours: Neighbours) -> None:
    """Records that are encoded already know how many a person has; nobody may have more than is charged."""
    most = neighbours.records_per_person
    if most is None:
        records_per_person(schema, neighbours)
        if found is not None:
            raise DualQueryError(
                f"the records were read as those of persons, at most {found} of each, so a person is to be "
                f"protected: use the neighbours person-{neighbours.value}"
            )
    elif found is None or found > most:
        raise DualQueryError(
            f"the records may hold more than {most} of a person; read them with "
            f"encode(table, schema, records_per_person={most})"
        )
