"""`dualquery verify`.

`dualquery key create`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import JsonFlag, QuietFlag


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="The public key of whoever released it. [default: the one that the folder names]",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Check that a release is as it was sealed: its files, its certificate, its signature.

    Examples:

    ```
    dualquery verify released
    dualquery verify released --key steward.pub
    ```
    """
    from dualquery.cli import output
    from dualquery.releases.verification import verify as check

    found = check(folder, key)
    if json:
        output.print_json({"folder": str(folder), **found.to_json()})
    else:
        output.print_facts(found.facts())


def create(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write the private key; FILE.pub is written too.")
    ],
    quiet: QuietFlag = False,
) -> None:
    """Make a key that signs releases: FILE for you alone, FILE.pub for everybody.

    Example:

    ```
    dualquery key create steward
    ```
    """
    from dualquery.releases.keys import create_key

    public = create_key(file)
    if not quiet:
        print(f"Sign with {file}, which only you should be able to read. Give {public} to everybody.")
