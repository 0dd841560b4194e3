"""`dualquery plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualquery.cli import flags
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Plan
    from dualquery.queries.workload import Workload


@flags.with_mechanism_flags(without=["--rows"])
def plan(
    *,
    schema: flags.SchemaFlag,
    rows: Annotated[
        int,
        typer.Option("--rows", "--records", metavar="N", min=1, help="The number of records of the table."),
    ],
    queries: flags.QueriesFlag,
    epsilon: flags.EpsilonFlag,
    delta: flags.DeltaFlag = None,
    mechanism: flags.MechanismFlag = None,
    accounting: flags.AccountingFlag = Accounting.ZCDP,
    neighbours: flags.NeighboursFlag = Neighbours.REPLACE,
    records_per_person: flags.RecordsPerPersonFlag = None,
    json: flags.JsonFlag = False,
    options: dict[str, Any],
) -> None:
    """Say what a release would be: parameters, predicted error, time, memory. **Needs no data.**

    Example:

    ```
    dualquery plan --schema schema.toml --rows 30162 \\
        --queries random:3:500000 --epsilon 1 --delta 1e-6
    ```
    """
    budget = flags.budget_from(epsilon, delta, rows=rows, neighbours=neighbours, accounting=accounting)
    from dualquery.cli import output
    from dualquery.mechanisms.mechanism import shown
    from dualquery.queries.families import from_spec
    from dualquery.releases.planning import plan as make_plan
    from dualquery.releases.planning import warnings_of
    from dualquery.table.schema import read_schema

    described = read_schema(schema)
    workload = from_spec(described.domain, queries)
    made = make_plan(described, rows=rows, workload=workload, budget=budget, mechanism=mechanism, **options)
    warnings = warnings_of(budget, rows)
    if json:
        output.print_json(_json(made, workload, rows, budget, warnings))
        return
    output.print_facts(
        {
            "mechanism": made.mechanism,
            "because": made.reason,
            "queries": f"{workload.size:,} ({workload.spec})",
            "budget": f"ε = {budget.epsilon:g}, δ = {budget.delta:g}, neighbours {neighbours}, "
            f"accounting {accounting.value}",
            **{
                name.replace("_", " "): output.parameter(value)
                for name, value in shown(made.parameters).items()
            },
            "predicted error": output.errors(made.mean_error, made.max_error),
            "time": output.seconds(made.seconds),
            "memory": output.size(made.bytes),
        }
    )
    if made.steps:
        output.print_table("What the curator is asked, and what it costs", *output.steps(made.steps))
    for note in made.notes:
        print(f"Note: {note}")
    output.print_warnings(warnings)


def _json(
    made: Plan[Any], workload: Workload, rows: int, budget: Budget, warnings: list[str]
) -> dict[str, object]:
    from dualquery.mechanisms.mechanism import shown

    return {
        "mechanism": made.mechanism,
        "reason": made.reason,
        "parameters": shown(made.parameters),
        "steps": [{**step.event.to_json(), "words": step.words, "times": step.times} for step in made.steps],
        "rows": rows,
        "queries": workload.size,
        "workload": workload.spec,
        "budget": {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "neighbours": budget.neighbours.value,
            "records_per_person": budget.neighbours.records_per_person,
            "accounting": budget.accounting.value,
        },
        "mean_error": made.mean_error,
        "max_error": made.max_error,
        "seconds": made.seconds,
        "bytes": made.bytes,
        "notes": list(made.notes),
        "warnings": warnings,
    }
