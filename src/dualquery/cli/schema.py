"""`dualquery schema draft` and `dualquery schema check`."""

from __future__ import annotations

from pathlib import Path

from dualquery.cli.flags import QuietFlag, argument, option, with_flags
from dualquery.cli.output import say


@with_flags(
    table=argument("TABLE", "The private table; it is not read where there is a public one."),
    public_reference=option(
        "A public table of the same kind (a past census, a code book): the draft is then public.", "FILE"
    ),
    quantiles=option(
        "How many bins numbers get. [default: as suits the number of rows and --epsilon]", "COUNT"
    ),
    epsilon=option(
        "The ε that a release will have, a hint for the number of bins; nothing is spent. [default: 1]", "ε"
    ),
    encoding=option("The encoding of a text file that is not UTF-8, such as `latin-1` or `cp1252`.", "NAME"),
    out=option("Where to write it. [default: print it]", "FILE"),
)
def draft(
    table: str | None = None,
    public_reference: str | None = None,
    quantiles: int | None = None,
    epsilon: float | None = None,
    encoding: str | None = None,
    out: Path | None = None,
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


@with_flags(
    schema=argument("FILE", "The schema."), table=argument("TABLE", "The private table that it should fit.")
)
def check(schema: Path, table: str | None = None, quiet: QuietFlag = False) -> None:
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
