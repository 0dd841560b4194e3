"""`dualquery key create`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import QuietFlag


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
