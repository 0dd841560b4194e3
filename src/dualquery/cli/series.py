"""`dualquery series append`, `ask` and `show`: a table that grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dualquery.cli import flags, output
from dualquery.cli.flags import option, with_flags
from dualquery.errors import BudgetError
from dualquery.pool import limited
from dualquery.privacy.budget import Accounting
from dualquery.privacy.neighbours import Neighbours

SeriesFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SERIES", help="The folder of the series: a release for each period.")
]


@with_flags(
    ledger=option("The ledger with a calendar that is charged, a file or a `postgresql://` URL.", "LEDGER"),
    periods=option("A known number of periods: totals so far are more exact, single periods less.", "N"),
    queries=typer.Option("--queries", "-q", metavar="SPEC", help=flags.SPEC),
)
def append(
    folder: SeriesFolder,
    table: flags.TableArgument,
    schema: flags.SchemaFlag,
    ledger: str,
    epsilon: flags.EpsilonFlag,
    delta: flags.DeltaFlag = None,
    queries: list[str] | None = None,
    neighbours: flags.NeighboursFlag = Neighbours.REPLACE,
    records_per_person: flags.RecordsPerPersonFlag = None,
    period: flags.PeriodFlag = None,
    periods: int | None = None,
    records: flags.RecordsFlag = None,
    dataset: flags.ChargedFlag = None,
    named: flags.NamedTableFlag = None,
    threads: flags.ThreadsFlag = None,
    quiet: flags.QuietFlag = False,
) -> None:
    """Release the next period of a table that grows, starting from what was measured before.

    Only its records are read, whatever the table holds. Without `--period` it is the one after the last.

    Examples:

    ```
    dualquery series append visits-series visits.csv --schema schema.toml --ledger visits.ledger \\
        --neighbours add-remove --epsilon 1 --delta 1e-6 --period 2024-Q1
    dualquery series append visits-series visits.csv --schema schema.toml --ledger visits.ledger \\
        --neighbours add-remove --epsilon 1 --delta 1e-6
    ```
    """
    if delta is None and records is None:
        raise BudgetError("give --delta, well below one over the number of records of any period")
    budget = flags.budget_from(
        epsilon, delta, rows=records, neighbours=neighbours, accounting=Accounting.TIGHTEST
    )
    from dualquery.cli.release import print_summary
    from dualquery.queries.families import from_spec
    from dualquery.releases.series import Series
    from dualquery.table.schema import read_schema

    described = read_schema(schema)
    workload = from_spec(described.domain, queries or ["marginals:2"])
    with limited(threads), output.ProgressBars(wanted=not quiet) as progress:
        series = Series(ledger, described, folder, dataset=dataset, workload=workload, periods=periods)
        made = series.append(
            flags.table_of(table, named), budget, period=period, records=records, progress=progress
        )
    if not quiet:
        print_summary(folder / made.certificate["period"]["periods"].split("..")[-1], made.certificate)
        output.print_warnings(made.certificate["warnings"])


def ask(
    folder: SeriesFolder,
    queries: Annotated[list[str] | None, typer.Argument(metavar="[QUERY]...", help="Queries.")] = None,
    period: Annotated[
        str | None,
        typer.Option("--period", metavar="PERIOD", help="A range: `2024-Q1..2024-Q3`, or `2024`."),
    ] = None,
    so_far: Annotated[bool, typer.Option("--so-far", help="All periods together.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write the release that answers, to be asked again."),
    ] = None,
    json: flags.JsonFlag = False,
) -> None:
    """Ask the last period, a range of them, or all so far. **Costs no privacy.**

    Examples:

    ```
    dualquery series ask visits-series "ward = heart"
    dualquery series ask visits-series --period 2024-Q1..2024-Q2 "ward = heart"
    dualquery series ask visits-series --so-far --out visits-so-far
    ```
    """
    from dualquery.errors import QueryError
    from dualquery.releases.series import Series

    if so_far and period is not None:
        raise QueryError("--period and --so-far are two different questions; keep one")
    if not queries and out is None:
        raise QueryError(
            "there is no query to answer; write one after the folder, or --out for the release itself"
        )
    series = Series.opened(folder)
    with output.ProgressBars(wanted=not json) as progress:
        found = (
            series.so_far(progress=progress)
            if so_far
            else series.current
            if period is None
            else series.between(period, progress=progress)
        )
    answers = found.answer_all(queries or [])
    if out is not None:
        found.save(out)
    if json:
        said = [{"query": each.query, "value": each.value, "bar": each.error} for each in answers]
        output.print_json({"periods": found.certificate["period"]["periods"], "answers": said})
    elif answers:
        title = f"Shares of the records of {found.certificate['period']['periods']}"
        output.print_table(title, ["query", "share"], [[each.query, str(each)] for each in answers])


def show(folder: SeriesFolder, json: flags.JsonFlag = False) -> None:
    """Say which periods a series has released, with what, and how far the prior counted. Costs no privacy.

    Example:

    ```
    dualquery series show visits-series
    ```
    """
    from dualquery.releases.folder import read_certificate
    from dualquery.releases.sentences import number_above
    from dualquery.releases.series import Series

    rows = []
    for name in Series.opened(folder).periods:
        said = read_certificate(folder / name)
        trust = said.get("trust")
        believed = "" if trust is None else f"{trust['records']:,.0f} records, {trust['share']:.0%} of it"
        rows.append([name, f"{said['records']['rows']:,}", number_above(said["spent"]["epsilon"]), believed])
    heads = ["period", "records", "epsilon", "prior counts as"]
    if json:
        output.print_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        output.print_table("Releases", heads, rows)
