"""`dualquery ledger create`, `show` and `audit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dualquery.cli.flags import (
    DatasetFlag,
    JsonFlag,
    NeighboursFlag,
    RecordsPerPersonFlag,
    argument,
    option,
    with_flags,
)
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.ledger.book import Book, Statement

LedgerArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="LEDGER", help="A file, or `postgresql://user@host/database`.")
]


@with_flags(
    dataset=option("The name of the dataset.", "NAME"),
    epsilon=typer.Option("--epsilon", "-e", metavar="ε", help="The cap on all its releases together."),
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
    ledger: LedgerArgument,
    dataset: str,
    epsilon: float,
    delta: float,
    neighbours: NeighboursFlag = Neighbours.REPLACE,
    records_per_person: RecordsPerPersonFlag = None,
    questions: bool = False,
    gaussian: bool = False,
    by: str | None = None,
    calendar: str | None = None,
    periods_per_person: int | None = None,
    json: JsonFlag = False,
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
    from dualquery.errors import BudgetError
    from dualquery.ledger.books import create as create_book
    from dualquery.table.periods import Calendar

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


def show(ledger: LedgerArgument, dataset: DatasetFlag = None, json: JsonFlag = False) -> None:
    """Show what is spent and what is left, charge by charge. Costs no privacy.

    Examples:

    ```
    dualquery ledger show census.ledger
    dualquery ledger show census.ledger --dataset census --json
    ```
    """
    from dualquery.releases.verify import audit as verify

    _print(verify(ledger, dataset=dataset).statements, json=json)


@with_flags(folders=argument("[DIR]...", "Releases (folders or certificates) that must be in it."))
def audit(
    ledger: LedgerArgument,
    folders: list[Path] | None = None,
    dataset: DatasetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Verify the chain of every book, and that it contains the charge of each release that is named.

    Examples:

    ```
    dualquery ledger audit census.ledger
    dualquery ledger audit census.ledger released-2024 released-2025
    ```
    """
    from dualquery.cli import output
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
    from dualquery.cli import output
    from dualquery.ledger.book import written
    from dualquery.releases.verify import as_json

    if json:
        output.print_json(as_json(statements))
        return
    for statement in statements:
        output.print_facts(_facts(statement))
        if statement.charges:
            dated = statement.book.periods is not None
            heads = [
                "what",
                *(["of"] if dated else []),
                "number",
                "day",
                _unit(statement.book),
                "spent",
                "hash",
            ]
            charges = [
                [
                    each.what,
                    *([each.named or "all"] if dated else []),
                    str(each.sequence),
                    each.day,
                    *map(written, (each.cost(statement.book).largest, each.spent_after)),
                    each.hash[:12],
                ]
                for each in statement.charges
            ]
            print()
            output.print_table("Charges", heads, charges)


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
