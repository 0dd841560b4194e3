"""What a release would be, before any data is touched: mechanism, parameters, steps, error, time, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Plan, Task
from dualquery.privacy.budget import Budget
from dualquery.releases.calling import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    checked_rows,
    for_callers,
    schema_from,
    workload_from,
)
from dualquery.releases.persons import records_per_person
from dualquery.releases.planning import checked_options, plan_for, settle
from dualquery.releases.rows import measures_rows, price_of_rows
from dualquery.table.domain import Domain


@dataclass(frozen=True)
class Foreseen:
    """A plan, the budget of the whole release with its accounting, and why it is that accounting."""

    plan: Plan[Any]
    budget: Budget
    accounting_reason: str


@for_callers
def plan(
    schema: GivenSchema,
    *,
    workload: GivenWorkload,
    budget: GivenBudget,
    expected_records: int | None = None,
    records: int | None = None,
    mechanism: str | None = None,
    **options: object,
) -> Plan[Any]:
    """The plan of a release of a table of so many records. Needs no data; see `dualquery.release`.

    `records` is declared, as there. Of a table of about `expected_records` the release would have to measure how many
    there are, where neighbours may differ in that; the plan then begins with the measurement.
    """
    return foreseen(
        schema,
        workload=workload,
        budget=budget,
        expected_records=expected_records,
        records=records,
        mechanism=mechanism,
        **options,
    ).plan


def foreseen(
    schema: GivenSchema,
    *,
    workload: GivenWorkload,
    budget: GivenBudget,
    expected_records: int | None = None,
    records: int | None = None,
    mechanism: str | None = None,
    **options: object,
) -> Foreseen:
    """`plan`, with the accounting that is settled on the way."""
    if (expected_records is None) == (records is None):
        raise DualQueryError("say how many records the table has: give one of records and expected_records")
    number = checked_rows(
        "the number of records", expected_records if expected_records is not None else records
    )
    assert number is not None, "one of the two"
    described, budget = schema_from(schema), budget_from(budget, lambda: number)
    if not isinstance(schema, Domain):
        records_per_person(described, budget.neighbours)
    asked = workload_from(described.domain, workload)
    wanted = checked_options(options)
    measured = measures_rows(budget, records)
    whole = replace(budget, adaptive=measured)
    settled = settle(asked, whole, wanted, mechanism, None if measured else number)
    if settled.planned is not None:
        return Foreseen(settled.planned[1], settled.budget, settled.why)
    if not measured:
        _, made = plan_for(Task(asked, number, settled.budget), wanted, mechanism)
        return Foreseen(made, settled.budget, settled.why)
    priced = price_of_rows(settled.budget)
    known = priced.known(number)
    _, made = plan_for(Task(asked, known.rows, known.left, known.variance), wanted, mechanism)
    steps = (priced.step(asked.domain), *made.steps)
    return Foreseen(replace(made, steps=steps), settled.budget, settled.why)
