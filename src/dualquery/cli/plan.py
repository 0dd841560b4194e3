"""`dualquery plan`: what a release would be, or which ε is enough for an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualquery.cli import flags, output
from dualquery.privacy.budget import Accounting
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.privacy.budget import Budget
    from dualquery.queries.workload import Workload
    from dualquery.releases.enough import Enough
    from dualquery.releases.plan import Settled

WIDEST_BAR = 30  # columns


@flags.with_mechanism_flags
def plan(
    *,
    schema: flags.SchemaFlag,
    queries: Annotated[
        list[str] | None, typer.Option("--queries", "-q", metavar="SPEC", help=flags.SPEC)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            "-e",
            metavar="ε",
            help="The privacy budget; with --error the most that may be spent.",
        ),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            "--error",
            metavar="E",
            help="The mean error wanted, as a fraction of the table: finds the least ε.",
        ),
    ] = None,
    order: Annotated[
        int | None,
        typer.Option("--order", metavar="K", min=1, help="In place of --queries: all tables of K columns."),
    ] = None,
    records: flags.RecordsFlag = None,
    expected_records: Annotated[
        int | None,
        typer.Option(
            "--expected-records",
            metavar="N",
            min=1,
            help="About how many records there are, if the release is to measure their number.",
        ),
    ] = None,
    delta: flags.DeltaFlag = None,
    mechanism: flags.MechanismFlag = None,
    accounting: flags.AccountingFlag = Accounting.TIGHTEST,
    neighbours: flags.NeighboursFlag = Neighbours.REPLACE,
    records_per_person: flags.RecordsPerPersonFlag = None,
    check: flags.CheckFlag = 0.01,
    accept: flags.AcceptFlag = None,
    json: flags.JsonFlag = False,
    options: dict[str, Any],
) -> None:
    """Say what a release would be: parameters, predicted error, time, memory. **Needs no data.**

    Example:

    ```
    dualquery plan --schema schema.toml --records 30162 \\
        --queries random:3:500000 --epsilon 1 --delta 1e-6
    dualquery plan --schema schema.toml --records 30162 --error 0.001 --order 2
    ```
    """
    if (queries is None) == (order is None):
        raise typer.BadParameter(
            "say what is asked: --queries SPEC, or --order K for all tables of K columns."
        )
    if (records is None) == (expected_records is None):
        raise typer.BadParameter("say how many records the table has: --records, or --expected-records.")
    if epsilon is None and error is None:
        raise typer.BadParameter("say what may be spent, --epsilon, or which mean error is wanted, --error.")
    number = records or expected_records or 0
    from dualquery.queries.families import from_spec
    from dualquery.releases.enough import MOST, enough_for
    from dualquery.releases.plan import settled_plan, warnings_of
    from dualquery.table.schema import read_schema

    budget = flags.budget_from(
        MOST if epsilon is None else epsilon, delta, rows=number, neighbours=neighbours, accounting=accounting
    )
    described = read_schema(schema)
    workload = from_spec(described.domain, queries or [f"marginals:{order}"])

    def planned(tried: Budget) -> Settled:
        return settled_plan(
            described, workload, tried, expected_records, records, mechanism, options, check, accept
        )

    enough = None if error is None else enough_for(error, budget, planned)
    found = planned(budget) if enough is None else enough.settled
    warnings = warnings_of(found.budget, number, described)
    if json:
        curve = (
            {} if enough is None else {"error": enough.wanted, "curve": [list(each) for each in enough.curve]}
        )
        output.print_json(_plan_json(found, workload, number, warnings) | curve)
    else:
        _print_plan(found, workload)
        if enough is not None:
            _print_curve(enough)
        output.print_warnings(warnings)


def _print_curve(enough: Enough) -> None:
    """ε against the predicted mean error, a bar for each."""
    most = max(error for _, error in enough.curve)
    rows = [
        [
            f"{epsilon:g}",
            output.fraction(error),
            "█" * max(1, round(WIDEST_BAR * error / most)),
            "enough for the error wanted" if epsilon == enough.epsilon else "",
        ]
        for epsilon, error in enough.curve
    ]
    print("Mean error by ε, predicted")
    output.print_lines(rows)


def _print_plan(found: Settled, workload: Workload) -> None:
    """The plan for people."""
    from dualquery.mechanisms.mechanism import shown

    made, budget = found.plan, found.budget
    facts = {
        "mechanism": made.mechanism,
        "because": made.reason,
        "queries": f"{workload.size:,} ({workload.spec})",
        "budget": f"ε = {budget.epsilon:g}, δ = {budget.delta:g}, neighbours {budget.neighbours}, "
        f"accounting {budget.accounting} ({found.why})",
    }
    for name, value in shown(made.parameters).items():
        facts[name.replace("_", " ")] = output.parameter(value)
    facts["predicted error"] = output.errors(made.mean_error, made.max_error, made.task.domain.kind)
    facts["check"] = found.check_words
    facts["time"], facts["memory"] = output.seconds(made.seconds), output.size(made.bytes)
    output.print_facts(facts)
    if made.steps:
        output.print_table("What the curator is asked, and what it costs", *output.steps(made.steps))
    for note in made.notes:
        print(f"Note: {note}")


def _plan_json(found: Settled, workload: Workload, rows: int, warnings: list[str]) -> dict[str, object]:
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
            "accounting_reason": found.why,
        },
        "check": found.check_words,
        "mean_error": made.mean_error,
        "max_error": made.max_error,
        "seconds": made.seconds,
        "bytes": made.bytes,
        "notes": list(made.notes),
        "warnings": warnings,
    }
