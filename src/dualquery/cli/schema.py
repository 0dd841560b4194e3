"""`dualquery schema draft`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import QuietFlag


def draft(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The private table.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Where to write it. [default: print it]", show_default=False
        ),
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
    from dualquery.table.draft import draft_text

    if out is not None and out.exists():
        raise SchemaError(f"'{out}' exists already; choose another name, or remove it first")
    text = draft_text(table)
    if out is None:
        print(text, end="")
    else:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SchemaError(f"'{out}' cannot be written: {error.strerror}") from None
    if not quiet:
        where = "the text" if out is None else f"'{out}'"
        print(
            f"Warning: {where} was read off the private table, so it is private too. Keep only what anybody "
            "would know without seeing the table, and delete the warning at its top, before you release "
            "anything with it.",
            file=sys.stderr,
        )
