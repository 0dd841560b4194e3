"""`dualquery plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualquery.cli import flags
from dualquery.privacy.budget import Accounting
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.queries.workload import Workload
    from dualquery.releases.foresight import Foreseen


@flags.with_mechanism_flags()
def plan(
    *,
    schema: flags.SchemaFlag,
    queries: flags.QueriesFlag,
    epsilon: flags.EpsilonFlag,
    records: Annotated[
        int | None,
        typer.Option(
            "--records",
            "--public-rows",
            metavar="N",
            min=1,
            show_default=False,
            help="The number of records of the table, declared as public where neighbours do not share it.",
        ),
    ] = None,
    expected_records: Annotated[
        int | None,
        typer.Option(
            "--expected-records",
            metavar="N",
            min=1,
            show_default=False,
            help="About how many there are, where the release is to measure it instead.",
        ),
    ] = None,
    delta: flags.DeltaFlag = None,
    mechanism: flags.MechanismFlag = None,
    accounting: flags.AccountingFlag = Accounting.TIGHTEST,
    neighbours: flags.NeighboursFlag = Neighbours.REPLACE,
    records_per_person: flags.RecordsPerPersonFlag = None,
    json: flags.JsonFlag = False,
    options: dict[str, Any],
) -> None:
    """Say what a release would be: parameters, predicted error, time, memory. **Needs no data.**

    Example:

    ```
    dualquery plan --schema schema.toml --records 30162 \\
        --queries random:3:500000 --epsilon 1 --delta 1e-6
    ```
    """
    if (records is None) == (expected_records is None):
        raise typer.BadParameter("say how many records the table has: --records, or --expected-records.")
    number = records or expected_records or 0
    budget = flags.budget_from(epsilon, delta, rows=number, neighbours=neighbours, accounting=accounting)
    from dualquery.cli import output
    from dualquery.queries.families import from_spec
    from dualquery.releases.foresight import foreseen
    from dualquery.releases.planning import warnings_of
    from dualquery.table.schema import read_schema

    described = read_schema(schema)
    workload = from_spec(described.domain, queries)
    found = foreseen(
        described,
        expected_records=expected_records,
        records=records,
        workload=workload,
        budget=budget,
        mechanism=mechanism,
        **options,
    )
    warnings = warnings_of(budget, number, described)
    if json:
        output.print_json(_json(found, workload, number, warnings))
    else:
        _print(found, workload)
        output.print_warnings(warnings)


def _print(found: Foreseen, workload: Workload) -> None:
    """The plan for people."""
    from dualquery.cli import output
    from dualquery.mechanisms.mechanism import shown

    made, budget = found.plan, found.budget
    facts = {
        "mechanism": made.mechanism,
        "because": made.reason,
        "queries": f"{workload.size:,} ({workload.spec})",
        "budget": f"ε = {budget.epsilon:g}, δ = {budget.delta:g}, neighbours {budget.neighbours}, "
        f"accounting {budget.accounting} ({found.accounting_reason})",
    }
    for name, value in shown(made.parameters).items():
        facts[name.replace("_", " ")] = output.parameter(value)
    facts["predicted error"] = output.errors(made.mean_error, made.max_error, made.task.domain.kind)
    facts["time"], facts["memory"] = output.seconds(made.seconds), output.size(made.bytes)
    output.print_facts(facts)
    if made.steps:
        output.print_table("What the curator is asked, and what it costs", *output.steps(made.steps))
    for note in made.notes:
        print(f"Note: {note}")


def _json(found: Foreseen, workload: Workload, rows: int, warnings: list[str]) -> dict[str, object]:
    from dualquery.mechanisms.mechanism import shown

    made, budget = found.plan, found.budget
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
            "accounting_reason": found.accounting_reason,
        },
        "mean_error": made.mean_error,
        "max_error": made.max_error,
        "seconds": made.seconds,
        "bytes": made.bytes,
        "notes": list(made.notes),
        "warnings": warnings,
    }
