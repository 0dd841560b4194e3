"""`dualquery serve token add`, `revoke` and `list`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dualquery.cli.flags import JsonFlag

if TYPE_CHECKING:
    from dualquery.service.storage import Storage

ServiceFlag: TypeAlias = Annotated[
    Path, typer.Option("--service", metavar="FILE", help="The file that `dualquery serve init` wrote.")
]
AnalystArgument: TypeAlias = Annotated[str, typer.Argument(metavar="ANALYST", help="Whose token it is.")]


def add(
    analyst: AnalystArgument,
    quota: Annotated[
        float,
        typer.Option("--quota", metavar="Q", help="Of what the first release left of the budget: 0 to 1."),
    ] = 1.0,
    owner: Annotated[
        bool, typer.Option("--owner", help="May see everybody's history, analysts and charges.")
    ] = False,
    service: ServiceFlag = Path("service.toml"),
) -> None:
    """Make a token and print it, once: only its hash is kept. How many paid checks the quota buys is said beside it.

    Examples:

    ```
    dualquery serve token add ada --quota 0.2
    dualquery serve token add steward --owner
    ```
    """
    from dualquery.service import tokens
    from dualquery.service.standing import checks_of

    storage = _storage(service)
    print(tokens.add(storage, analyst, quota=quota, owner=owner))
    print(_bought(*checks_of(storage, quota)), file=sys.stderr)  # so that the token can be piped


def _bought(checks: int, least: float) -> str:
    """A quota in words."""
    if checks:
        many = "1 paid check" if checks == 1 else f"{checks:,} paid checks"
        return f"This quota buys {many}. A check is free unless it finds the answer far off."
    enough = f" A quota of {math.ceil(1000 * least) / 1000:g} buys one." if least <= 1 else ""
    return (
        f"This quota buys no check, so answers will be unchecked, or those that others had checked.{enough}"
    )


def revoke(analyst: AnalystArgument, service: ServiceFlag = Path("service.toml")) -> None:
    """Revoke a token. A running service knows within a second.

    Examples:

    ```
    dualquery serve token revoke ada
    ```
    """
    from dualquery.service import tokens

    tokens.revoke(_storage(service), analyst)


def list_all(service: ServiceFlag = Path("service.toml"), json: JsonFlag = False) -> None:
    """List who has or had a token, with the quota; never the tokens, which nobody knows.

    Examples:

    ```
    dualquery serve token list
    ```
    """
    from dualquery.cli import output
    from dualquery.service import tokens

    holders = tokens.holders(_storage(service))
    if json:
        output.print_json(
            [{"name": h.name, "role": h.role, "quota": float(h.quota), "revoked": h.revoked} for h in holders]
        )
        return
    rows = [[h.name, h.role, f"{float(h.quota):g}", h.added, h.revoked or "no"] for h in holders]
    output.print_table("Tokens", ["name", "role", "quota", "added", "revoked"], rows)


def _storage(service: Path) -> Storage:
    from dualquery.service.settings import read_settings
    from dualquery.service.storage import Storage

    storage = Storage(read_settings(service).place)
    storage.promise()  # refuses what is no ledger
    return storage


token = typer.Typer(help="Who may ask, and how much.", rich_markup_mode="markdown")
token.command("add")(add)
token.command("revoke")(revoke)
token.command("list")(list_all)
