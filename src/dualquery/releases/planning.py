"""What a release would be, before any data is touched: mechanism, parameters, steps, error, time, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.choose import MECHANISMS, AnyMechanism, choose
from dualquery.mechanisms.mechanism import Plan, Task
from dualquery.mechanisms.wishes import WISHES, flags_of
from dualquery.privacy.budget import Accounting, Budget, delta_warning
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.releases.persons import records_per_person
from dualquery.table.domain import Domain
from dualquery.table.schema import Schema


def plan(
    schema: Schema | Domain,
    *,
    rows: int,
    workload: Workload | str,
    budget: Budget,
    mechanism: str | None = None,
    **options: object,
) -> Plan[Any]:
    """The plan of a release of a table of `rows` records. Needs no data; see `dualquery.release`."""
    if rows < 1:
        raise DualQueryError("the number of records must be at least 1")
    if isinstance(schema, Schema):
        records_per_person(schema, budget.neighbours)
    asked = from_spec(Schema.of(schema).domain, workload) if isinstance(workload, str) else workload
    return plan_for(Task(asked, rows, budget), checked_options(options), mechanism)[1]


def plan_for(
    task: Task, options: Mapping[str, object], mechanism: str | None
) -> tuple[AnyMechanism, Plan[Any]]:
    """The mechanism asked for by name, or the one that the public rule chooses, and its plan."""
    if task.budget.accounting is Accounting.RENYI:
        raise BudgetError("renyi accounting is for questions asked one at a time; release with zcdp or pure")
    if mechanism is None:
        chosen = choose(task, options)
        return MECHANISMS[chosen.mechanism], chosen
    check_mechanism(mechanism)
    return MECHANISMS[mechanism], MECHANISMS[mechanism].plan_for(task, options)


def check_mechanism(name: str | None) -> None:
    """Refuse a name that no mechanism has; None leaves the choice to the program."""
    if name is not None and name not in MECHANISMS:
        raise DualQueryError(f"there is no mechanism '{name}'; there are {', '.join(MECHANISMS)}")


def checked_options(options: Mapping[str, object]) -> dict[str, object]:
    """Options given by name, after refusing names that no mechanism knows. None is as good as not given."""
    known = list(dict.fromkeys(name for wishes in WISHES.values() for name in flags_of(wishes)))
    for name in options:
        if name not in known:
            raise DualQueryError(
                f"there is no argument '{name}'; the options of mechanisms are {', '.join(known)}"
            )
    return {name: value for name, value in options.items() if value is not None}


DRAFT = (
    "not private: the schema still says that it is a draft, read off the private table; no guarantee holds until "
    "everything in it is public knowledge and its line 'draft = true' is deleted"
)


def warnings_of(budget: Budget, rows: int, *, seed: int | None = None, draft: bool = False) -> list[str]:
    """What a careful reader should know before trusting the promise."""
    warnings = [DRAFT] if draft else []
    if seed is not None:
        warnings.append("not private: a seed was used, and whoever knows it can undo the noise")
    weak = delta_warning(budget, rows)
    if weak is not None:
        warnings.append(weak)
    return warnings
