"""`dualquery ledger create`, `show`, `audit`; and of a table that grows `dualquery series append`, `ask`, `show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dualquery.cli import output
from dualquery.cli.flags import argument, budget_from, option, table_of, with_flags
from dualquery.errors import BudgetError, QueryError
from dualquery.loops import limited
from dualquery.privacy.budget import Neighbours

if TYPE_CHECKING:
    from dualquery.ledger.book import Book, Statement

LEDGER = argument("LEDGER", "A file, or `postgresql://user@host/database`.")
DATASET = option("The dataset. [default: all there are]", "NAME")


@with_flags(
    ledger=LEDGER,
    dataset=option("The name of the dataset.", "NAME"),
    epsilon=option("The cap on all its releases together.", "ε", "--epsilon", "-e"),
    delta=option("The δ of the cap; 0 for a book of pure releases only.", "δ"),
    questions=option("A service that answers questions can be charged to it, too."),
    gaussian=option("For releases that add Gaussian noise alone, with less noise than in any other book."),
    by=option("The column that says when a record came, such as the day of its arrival.", "COLUMN"),
    calendar=option(
        "How time is cut: day, week, month, quarter or year. Releases of different periods do not add up.",
        "PERIOD",
    ),
    periods_per_person=option("The cap is on a person with records in at most so many periods.", "L"),
)
def create(
    ledger: str,
    dataset: str,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    questions: bool = False,
    gaussian: bool = False,
    by: str | None = None,
    calendar: str | None = None,
    periods_per_person: int | None = None,
    json: bool = False,
) -> None:
    """Open a book: a cap on all releases of a dataset together, or on those of each period of a calendar.

    Examples:

    ```
    dualquery ledger create census.ledger --dataset census --epsilon 3 --delta 1e-9
    dualquery ledger create postgresql://steward@db/privacy --dataset census --epsilon 3 --delta 1e-9 \\
        --neighbours add-remove
    dualquery ledger create visits.ledger --dataset visits --epsilon 1 --delta 1e-6 \\
        --by received --calendar quarter
    ```
    """
    from dualquery.ledger.books import create as create_book
    from dualquery.table.persons import Calendar

    if (by is None) != (calendar is None):
        raise BudgetError("--by and --calendar belong together; give both, or none")
    made = create_book(
        ledger,
        name=dataset,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        questions=questions,
        gaussian=gaussian,
        calendar=None if by is None or calendar is None else Calendar(by, calendar),
        periods_per_person=periods_per_person,
    )
    _print([made], json=json)


@with_flags(ledger=LEDGER, dataset=DATASET)
def show(ledger: str, dataset: str | None = None, json: bool = False) -> None:
    """Show what is spent and what is left, charge by charge. Costs no privacy.

    Examples:

    ```
    dualquery ledger show census.ledger
    dualquery ledger show census.ledger --dataset census --json
    ```
    """
    from dualquery.releases.verify import audit as verify

    _print(verify(ledger, dataset=dataset).statements, json=json)


@with_flags(
    ledger=LEDGER,
    folders=argument("[DIR]...", "Releases (folders or certificates) that must be in it."),
    dataset=DATASET,
)
def audit(
    ledger: str, folders: list[Path] | None = None, dataset: str | None = None, json: bool = False
) -> None:
    """Verify the chain of every book, and that it contains the charge of each release that is named.

    Examples:

    ```
    dualquery ledger audit census.ledger
    dualquery ledger audit census.ledger released-2024 released-2025
    ```
    """
    from dualquery.releases.sentences import counted
    from dualquery.releases.verify import as_json
    from dualquery.releases.verify import audit as verify

    found = verify(ledger, folders or [], dataset=dataset)
    if json:
        output.print_json({"certificates": found.certificates, "books": as_json(found.statements)})
        return
    for statement in found.statements:
        print(
            f"{statement.book.name}: {counted(len(statement.charges), 'charge')}, chained to each other, that add up "
            f"to what is spent, within the cap. Head {statement.head}"
        )
    if found.certificates:
        print(f"The charges of all certificates named ({found.certificates}) are in it.")
    else:
        print("No certificate was named: an old copy of the ledger would pass, too.")


def _print(statements: Sequence[Statement], *, json: bool) -> None:
    from dualquery.ledger.book import written
    from dualquery.releases.verify import as_json

    if json:
        output.print_json(as_json(statements))
        return
    for statement in statements:
        output.print_facts(_facts(statement))
        if not statement.charges:
            continue
        book, rows = statement.book, []
        for each in statement.charges:
            of = [] if book.periods is None else [each.named or "all"]
            costs = map(written, (each.cost(book).largest, each.spent_after))
            rows.append([each.what, *of, str(each.sequence), each.day, *costs, each.hash[:12]])
        of = [] if book.periods is None else ["of"]
        print()
        output.print_table("Charges", ["what", *of, "number", "day", _unit(book), "spent", "hash"], rows)


def _facts(statement: Statement) -> dict[str, str]:
    from dualquery.ledger.book import below, written
    from dualquery.releases.sentences import number, number_above

    book = statement.book
    spent, cap = written(book.spent), written(book.cap)
    return {
        "dataset": book.name,
        "neighbours": book.neighbours,
        "cap": f"ε = {number(float(book.epsilon))}, δ = {number(float(book.delta))} ({_unit(book)} = {cap})",
        "spent": f"ε = {number_above(book.epsilon_spent)} ({_unit(book)} = {spent})",
        "left": f"enough for one release of ε = {below(book.epsilon_left)} at the same δ"
        + ("" if book.periods is None else f", of the {book.calendar} that has paid most; another has more"),
        **({} if book.periods is None else {"calendar": book.periods.words}),
        **book.promises(statement.costs),
        "opened": book.created,
        "head": statement.head,
    }


def _unit(book: Book) -> str:
    return {"rho": "ρ", "epsilon": "ε", "mu_squared": "μ²", "renyi": f"D, order {book.order},"}[book.currency]


SERIES = argument("SERIES", "The folder of the series: a release for each period.")


@with_flags(
    folder=SERIES,
    ledger=option("The ledger with a calendar that is charged, a file or a `postgresql://` URL.", "LEDGER"),
    periods=option("A known number of periods: totals so far are more exact, single periods less.", "N"),
)
def append(
    folder: Path,
    table: str,
    schema: Path,
    ledger: str,
    epsilon: float,
    delta: float | None = None,
    queries: list[str] | None = None,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    period: str | None = None,
    periods: int | None = None,
    records: int | None = None,
    dataset: str | None = None,
    named: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
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
    budget = budget_from(epsilon, delta, rows=records, neighbours=neighbours)
    from dualquery.cli.release import print_summary
    from dualquery.queries.families import from_spec
    from dualquery.releases.series import Series
    from dualquery.table.schema import read_schema

    described = read_schema(schema)
    workload = from_spec(described.domain, queries or ["marginals:2"])
    with limited(threads), output.ProgressBars(wanted=not quiet) as progress:
        series = Series(ledger, described, folder, dataset=dataset, workload=workload, periods=periods)
        read = table_of(table, named)
        made = series.append(read, budget, period=period, records=records, progress=progress)
    if not quiet:
        print_summary(folder / made.certificate["period"]["periods"].split("..")[-1], made.certificate)
        output.print_warnings(made.certificate["warnings"])


@with_flags(
    folder=SERIES,
    queries=argument("[QUERY]...", "Queries."),
    period=option("A range: `2024-Q1..2024-Q3`, or `2024`.", "PERIOD"),
    so_far=option("All periods together."),
    out=option("Write the release that answers, to be asked again.", "DIR", "--out", "-o"),
)
def ask_series(
    folder: Path,
    queries: list[str] | None = None,
    period: str | None = None,
    so_far: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Ask the last period, a range of them, or all so far. **Costs no privacy.**

    Examples:

    ```
    dualquery series ask visits-series "ward = heart"
    dualquery series ask visits-series --period 2024-Q1..2024-Q2 "ward = heart"
    dualquery series ask visits-series --so-far --out visits-so-far
    ```
    """
    from dualquery.releases.series import Series

    if so_far and period is not None:
        raise QueryError("--period and --so-far are two different questions; keep one")
    if not queries and out is None:
        raise QueryError(
            "there is no query to answer; write one after the folder, or --out for the release itself"
        )
    series = Series.opened(folder)
    with output.ProgressBars(wanted=not json) as progress:
        if so_far:
            found = series.so_far(progress=progress)
        else:
            found = series.current if period is None else series.between(period, progress=progress)
    answers = found.answer_all(queries or [])
    if out is not None:
        found.save(out)
    if json:
        said = [{"query": each.query, "value": each.value, "bar": each.error} for each in answers]
        output.print_json({"periods": found.certificate["period"]["periods"], "answers": said})
    elif answers:
        title = f"Shares of the records of {found.certificate['period']['periods']}"
        output.print_table(title, ["query", "share"], [[each.query, str(each)] for each in answers])


@with_flags(folder=SERIES)
def show_series(folder: Path, json: bool = False) -> None:
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
