"""The plan of a release from public things alone: by a mechanism that was named, or by the rule that chooses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.choose import MECHANISMS, AnyMechanism, choose
from dualquery.mechanisms.mechanism import Plan, Task
from dualquery.mechanisms.special import SPECIAL
from dualquery.mechanisms.wishes import WISHES, flags_of
from dualquery.privacy.budget import Accounting, Budget, budget_warnings
from dualquery.releases.calling import checked_wish
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
