"""`dualquery schema draft` and `dualquery schema check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import QuietFlag
from dualquery.cli.output import say


def draft(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="The private table; it is not read where there is a public one."
        ),
    ] = None,
    public_reference: Annotated[
        str | None,
        typer.Option(
            "--public-reference",
            metavar="FILE",
            help="A public table of the same kind (a past census, a code book): the draft is then public.",
        ),
    ] = None,
    quantiles: Annotated[
        int | None,
        typer.Option(
            "--quantiles",
            metavar="COUNT",
            help="How many bins numbers get. [default: as suits the number of rows and --epsilon]",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="ε",
            help="The ε that a release will have, a hint for the number of bins; nothing is spent. [default: 1]",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="The encoding of a text file that is not UTF-8, such as `latin-1` or `cp1252`.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write it. [default: print it]")
    ] = None,
    quiet: QuietFlag = False,
) -> None:
    """Write a first schema for a table, **read off the private data**: edit it before using it.

    Example:

    ```
    dualquery schema draft people.csv --out schema.toml
    ```
    """
    from dualquery.errors import SchemaError
    from dualquery.table.draft import schema_draft

    if out is not None and out.exists():
        raise SchemaError(f"'{out}' exists already; choose another name, or remove it first")
    made = schema_draft(
        table, quantiles=quantiles, epsilon=epsilon, public_reference=public_reference, encoding=encoding
    )
    if out is None:
        print(str(made), end="")
    else:
        made.save(out)
    if not quiet and not made.public:
        where = "the text" if out is None else f"'{out}'"
        say(
            "Warning",
            f"{where} was read off the private table, so it is private too. Go through the lines that end in "
            "'# from the data', keep only what anybody would know without seeing the table, and delete these "
            "remarks and the line 'draft = true' before you release anything with it.",
        )


def check(
    schema: Annotated[Path, typer.Argument(metavar="FILE", help="The schema.")],
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="The private table that it should fit.")
    ] = None,
    quiet: QuietFlag = False,
) -> None:
    """Say what is missing in a schema, and what of a table has no place in it: **internal, do not publish**.

    Example:

    ```
    dualquery schema check schema.toml people.csv
    ```
    """
    from dualquery.errors import SchemaError
    from dualquery.queries.rules import checked

    found = checked(schema, table)
    if not quiet:
        print("\n".join(found.lines()))
    if not found.sound:
        raise SchemaError(f"'{schema}' has {found.wrong} to fix before a release can be made with it")
