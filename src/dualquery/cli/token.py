"""`dualquery serve token add`, `rotate`, `revoke` and `list`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dualquery.cli.flags import JsonFlag

if TYPE_CHECKING:
    from dualquery.ledger.chain import Witness
    from dualquery.ledger.journal import Storage

ServiceFlag: TypeAlias = Annotated[
    Path, typer.Option("--service", metavar="FILE", help="The file that `dualquery serve init` wrote.")
]
AnalystArgument: TypeAlias = Annotated[str, typer.Argument(metavar="ANALYST", help="Whose token it is.")]

ExpiresFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="WHEN",
        help="12h, 30d, 4w or a date: the token opens nothing after that. [default: never]",
        show_default=False,
    ),
]


def add(
    analyst: AnalystArgument,
    quota: Annotated[
        float,
        typer.Option("--quota", metavar="Q", help="Of what the first release left of the budget: 0 to 1."),
    ] = 1.0,
    owner: Annotated[
        bool, typer.Option("--owner", help="May see everybody's history, analysts and charges.")
    ] = False,
    expires: ExpiresFlag = None,
    service: ServiceFlag = Path("service.toml"),
) -> None:
    """Make a token and print it, once: only its hash is kept. How many paid checks the quota buys is said beside it.

    Examples:

    ```
    dualquery serve token add ada --quota 0.2 --expires 30d
    dualquery serve token add steward --owner
    ```
    """
    from dualquery.service import tokens
    from dualquery.service.standing import checks_of

    storage, witness = _ledger(service)
    until = "" if expires is None else tokens.expiry(expires)
    print(tokens.add(storage, analyst, quota=quota, owner=owner, expires=until, witness=witness))
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


def rotate(
    analyst: AnalystArgument, expires: ExpiresFlag = None, service: ServiceFlag = Path("service.toml")
) -> None:
    """Make another token and print it, once: the old one opens nothing from now on; role and quota stay.

    Examples:

    ```
    dualquery serve token rotate ada --expires 30d
    ```
    """
    from dualquery.service import tokens

    storage, witness = _ledger(service)
    until = "" if expires is None else tokens.expiry(expires)
    print(tokens.rotate(storage, analyst, expires=until, witness=witness))


def revoke(analyst: AnalystArgument, service: ServiceFlag = Path("service.toml")) -> None:
    """Revoke a token. A running service knows within a second.

    Examples:

    ```
    dualquery serve token revoke ada
    ```
    """
    from dualquery.service import tokens

    storage, witness = _ledger(service)
    tokens.revoke(storage, analyst, witness=witness)


def list_all(service: ServiceFlag = Path("service.toml"), json: JsonFlag = False) -> None:
    """List who has or had a token, with the quota; never the tokens, which nobody knows.

    Examples:

    ```
    dualquery serve token list
    ```
    """
    from dualquery.cli import output
    from dualquery.service import tokens

    storage, witness = _ledger(service)
    holders = tokens.known(storage, witness).everybody
    rows = [
        {"name": h.name, "role": h.role, "quota": f"{float(h.quota):g}", "added": h.added, "expires": h.expires,
         "revoked": h.revoked}
        for h in holders
    ]  # fmt: skip
    if json:
        output.print_json([{**row, "quota": float(row["quota"])} for row in rows])
        return
    heads = ["name", "role", "quota", "added", "expires", "revoked"]
    output.print_table("Tokens", heads, [[row[head] or "no" for head in heads] for row in rows])


def _ledger(service: Path) -> tuple[Storage, Witness]:
    from dualquery.ledger.chain import Witness
    from dualquery.ledger.journal import Storage
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    return Storage(settings.place), Witness(settings.path(settings.witness))


token = typer.Typer(help="Who may ask, and how much.", rich_markup_mode="markdown")
token.command("add")(add)
token.command("rotate")(rotate)
token.command("revoke")(revoke)
token.command("list")(list_all)
