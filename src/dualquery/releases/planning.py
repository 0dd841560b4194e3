"""What a release would be, before any data is touched: mechanism, parameters, error, time, memory."""

from __future__ import annotations

from collections.abc import Mapping

from dualquery.errors import DualQueryError
from dualquery.mechanisms.choose import MECHANISMS, choose
from dualquery.mechanisms.plan import Mechanism, Options, Plan, Shape
from dualquery.privacy.budget import Budget, delta_warning
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.table.schema import Schema


def plan(
    schema: Schema | Domain,
    *,
    rows: int,
    workload: Workload | str,
    budget: Budget,
    mechanism: str | None = None,
    options: Options | None = None,
    **named_options: object,
) -> Plan:
    """The plan of a release of a table of `rows` records. Needs no data; see `dualquery.release`."""
    if rows < 1:
        raise DualQueryError("the number of records must be at least 1")
    asked = from_spec(Schema.of(schema).domain, workload) if isinstance(workload, str) else workload
    shape = Shape(workload=asked, rows=rows, budget=budget)
    return plan_for(shape, merged_options(options, named_options), mechanism)[1]


def plan_for(shape: Shape, options: Options, mechanism: str | None) -> tuple[Mechanism, Plan]:
    """The mechanism asked for by name, or the one that the public rule chooses, and its plan."""
    if mechanism is None:
        chosen = choose(shape, options)
        return MECHANISMS[chosen.mechanism], chosen
    check_mechanism(mechanism)
    return MECHANISMS[mechanism], MECHANISMS[mechanism].checked_plan(shape, options)


def check_mechanism(name: str | None) -> None:
    """Refuse a name that no mechanism has; None leaves the choice to the program."""
    if name is not None and name not in MECHANISMS:
        raise DualQueryError(f"there is no mechanism '{name}'; there are {', '.join(MECHANISMS)}")


def merged_options(options: Options | None, named: Mapping[str, object]) -> Options:
    """Options given together, and those given by name."""
    given = {} if options is None else options.given()
    known = Options.__dataclass_fields__
    for name in named:
        if name not in known:
            raise TypeError(
                f"there is no argument '{name}'; the options of mechanisms are {', '.join(known)}"
            )
    return Options(**{**given, **named})  # type: ignore[arg-type]


def warnings_of(budget: Budget, rows: int, *, seed: int | None = None) -> list[str]:
    """What a careful reader should know before trusting the promise."""
    warnings = []
    if seed is not None:
        warnings.append("not private: a seed was used, and whoever knows it can undo the noise")
    weak = delta_warning(budget, rows)
    if weak is not None:
        warnings.append(weak)
    return warnings
