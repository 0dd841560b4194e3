"""`dualquery serve`: init, run, status, log; and token: add, rotate, revoke, list. And the other end, `ask`."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from dualquery.cli import output
from dualquery.cli.flags import argument, option, with_flags
from dualquery.errors import DualQueryError, QueryError
from dualquery.privacy.budget import Neighbours

if TYPE_CHECKING:
    from dualquery.ledger import Witness
    from dualquery.ledger.journal import Storage

WRITTEN = "The file that `dualquery serve init` wrote."
SERVICE, SERVICE_FILE = option(WRITTEN, "FILE"), argument("SERVICE", WRITTEN)
ANALYST = argument("ANALYST", "Whose token it is.")
EXPIRES = option(
    "12h, 30d, 4w or a date: the token opens nothing after that. [default: never]", "WHEN", show_default=False
)
TRUST = option(
    "Believe that this ledger is the newest, if the witness beside it is lost. Never after a restore."
)


@with_flags(
    analyst=ANALYST,
    quota=option("Of what the first release left of the budget: 0 to 1.", "Q"),
    owner=option("May see everybody's history, analysts and charges."),
    expires=EXPIRES,
    service=SERVICE,
)
def add(
    analyst: str,
    quota: float = 1.0,
    owner: bool = False,
    expires: str | None = None,
    service: Path = Path("service.toml"),
) -> None:
    """Make a token and print it, once: only its hash is kept. How many paid checks the quota buys is said beside it.

    Examples:

    ```
    dualquery serve token add ada --quota 0.2 --expires 30d
    dualquery serve token add steward --owner
    ```
    """
    from dualquery.service import tokens
    from dualquery.service.journal import checks_of

    storage, witness = _ledger(service)
    until = "" if expires is None else tokens.expiry(expires)
    print(tokens.add(storage, analyst, quota=quota, owner=owner, expires=until, witness=witness))
    print(_bought(*checks_of(storage, quota)), file=sys.stderr)  # so that the token can be piped


def _bought(checks: int, least: float) -> str:
    if checks:
        many = "1 paid check" if checks == 1 else f"{checks:,} paid checks"
        return f"This quota buys {many}. A check is free unless it finds the answer far off."
    enough = f" A quota of {math.ceil(1000 * least) / 1000:g} buys one." if least <= 1 else ""
    return (
        f"This quota buys no check, so answers will be unchecked, or those that others had checked.{enough}"
    )


@with_flags(analyst=ANALYST, expires=EXPIRES, service=SERVICE)
def rotate(analyst: str, expires: str | None = None, service: Path = Path("service.toml")) -> None:
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


@with_flags(analyst=ANALYST, service=SERVICE)
def revoke(analyst: str, service: Path = Path("service.toml")) -> None:
    """Revoke a token. A running service knows within a second.

    Examples:

    ```
    dualquery serve token revoke ada
    ```
    """
    from dualquery.service import tokens

    storage, witness = _ledger(service)
    tokens.revoke(storage, analyst, witness=witness)


@with_flags(service=SERVICE)
def list_all(service: Path = Path("service.toml"), json: bool = False) -> None:
    """List who has or had a token, with the quota; never the tokens, which nobody knows.

    Examples:

    ```
    dualquery serve token list
    ```
    """
    from dualquery.service import tokens

    holders = tokens.known(*_ledger(service)).everybody
    heads = ["name", "role", "quota", "added", "expires", "revoked"]
    rows = [{**{head: getattr(each, head) for head in heads}, "quota": float(each.quota)} for each in holders]
    if json:
        output.print_json(rows)
        return
    shown = [[f"{row[h]:g}" if h == "quota" else str(row[h]) or "no" for h in heads] for row in rows]
    output.print_table("Tokens", heads, shown)


def _ledger(service: Path) -> tuple[Storage, Witness]:
    from dualquery.ledger import Witness
    from dualquery.ledger.journal import Storage
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    return Storage(settings.place), Witness(settings.path(settings.witness))


class ServeGroup(TyperGroup):
    """`dualquery serve service.toml` is `dualquery serve run service.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


@with_flags(
    table=argument("TABLE", "The private table."),
    out=option("The file to write, which describes the service.", "FILE"),
    records=option("The number of records, if it is public.", "N", "--records", "--public-rows"),
    delta=(float | None, None),
    neighbours=(Neighbours, Neighbours.REPLACE),
    records_per_person=(int | None, None),
    dataset=(
        str | None,
        None,
        option("What analysts call the table. [default: its name]", "NAME", show_default=False),
    ),
    ledger=(
        str | None,
        None,
        option(
            "A new file, or `postgresql://user@host/database`. [default: a file beside the service]", "PLACE"
        ),
    ),
    book=(
        str | None,
        None,
        option(
            "The ledger of all releases of the dataset (`dualquery ledger create --questions`): it is charged with "
            "the whole budget.",
            "LEDGER",
        ),
    ),
    share=(float, 0.9, option("The share of the budget for the first release.", "S")),
    release=(Path | None, None, option("Start from this earlier release of the table instead.", "DIR")),
    questions=(int, 2000, option("In so many questions one may be measured without need.", "K", min=1)),
    tolerance=(
        float | None,
        None,
        option(
            "How far off an answer may be, as a fraction of the table. [default: what 1% of the budget buys]",
            "T",
        ),
    ),
    test=(
        str,
        "hazard",
        option(
            "How questions are tested: hazard; or sparse-vector, online private multiplicative weights without a "
            "release, which promises an error and needs a small universe.",
            "NAME",
        ),
    ),
    resume=(
        bool,
        False,
        option(
            "Go on with a beginning that was stopped, by the same command: nothing is charged a second time."
        ),
    ),
)
def init(
    table: Path,
    schema: Path,
    epsilon: float,
    out: Path,
    records: int | None = None,
    quiet: bool = False,
    **given: Any,
) -> None:
    """Begin a service: open its ledger, make the first release, write it all down. **Spends** the release's share.

    Examples:

    ```
    dualquery serve init people.csv --schema schema.toml --epsilon 1 --out service.toml
    dualquery serve init people.csv --schema schema.toml --epsilon 1 --delta 1e-6 --out service.toml \\
        --ledger postgresql://steward@db/privacy
    dualquery serve init people.csv --schema schema.toml --epsilon 1 --test sparse-vector --out service.toml
    ```
    """

    with output.ProgressBars(wanted=not quiet) as progress:
        from dualquery.service.journal import ledger_status
        from dualquery.service.run import begin

        made = begin(
            table, schema=schema, epsilon=epsilon, out=out, public_rows=records, progress=progress, **given
        )
    if quiet:
        return
    facts = {
        "service": str(out),
        "dataset": made.dataset,
        "privacy": f"ε = {made.epsilon:g}, δ = {made.delta:g}, neighbours {made.neighbours}",
        "release": str(made.path(made.release)) if made.release else None,
        "accuracy": ledger_status(made).accuracy,
        "ledger": made.ledger,
        "next": f"dualquery serve token add NAME --service {out}, then dualquery serve {out}",
    }
    output.print_facts({name: fact for name, fact in facts.items() if fact is not None})


@with_flags(
    service=SERVICE_FILE,
    host=option("The address to listen at. [default: as the file says, 127.0.0.1]", "HOST"),
    port=option("The port. [default: as the file says, 8642]", "PORT"),
    tls_certificate=option("Serve HTTPS with this certificate.", "FILE"),
    tls_key=option("The private key of that certificate.", "FILE"),
    trust_ledger=TRUST,
    log_json=option("Print one line of JSON per request; no question is in it."),
    table_changed=option(
        "The records are others than before, on purpose. The budget stays; the ledger notes the change."
    ),
)
def run(
    service: Path,
    host: str | None = None,
    port: int | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    trust_ledger: bool = False,
    log_json: bool = False,
    table_changed: bool = False,
    quiet: bool = False,
) -> None:
    """Run a service until interrupted: HTTP and a web page. `dualquery serve SERVICE` for short.

    Examples:

    ```
    dualquery serve service.toml
    dualquery serve service.toml --host 0.0.0.0 --tls-certificate host.pem --tls-key host.key
    ```
    """
    from dualquery.service.run import serve
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    given = {"host": host, "port": port, "certificate": tls_certificate, "key": tls_key}
    changed = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings, http=replace(settings.http, **changed))  # type: ignore[arg-type]
    with output.ProgressBars(wanted=not quiet) as progress:
        ready = None if quiet else partial(print, flush=True)
        log = partial(print, flush=True) if log_json else None
        serve(
            settings, trust=trust_ledger, table_changed=table_changed, log=log, ready=ready, progress=progress
        )


@with_flags(service=SERVICE_FILE, trust_ledger=TRUST)
def status(service: Path, trust_ledger: bool = False, json: bool = False) -> None:
    """Verify the ledger, and show what is spent and left, fires left, and answers given. Costs no privacy.

    Examples:

    ```
    dualquery serve status service.toml
    ```
    """
    from dualquery.service.journal import ledger_status
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    found = ledger_status(settings, trust=trust_ledger)
    if json:
        output.print_json(found.to_json())
        return
    answers = ", ".join(f"{count:,} {badge}" for badge, count in sorted(found.answers.items())) or "none"
    spent, release, left = (
        f"{100 * part / found.cap:.3g}%" for part in (found.spent, found.release, found.left)
    )
    facts = {
        "dataset": found.dataset,
        "cap": f"ε = {settings.epsilon:g}, δ = {settings.delta:g}, neighbours {settings.neighbours}",
        "accuracy": found.accuracy,
        "spent": f"{spent} (the release {release})",
        "left": f"{left}, {found.fires_left:,} fires",
        "answers given": answers,
        "fires": f"{found.fires:,}, and {found.burned:,} burned by unclean stops",
        "running": "yes, or stopped uncleanly" if found.running else "no",
        "ledger": f"{found.head.length:,} lines follow from each other, head {found.head.hash}",
    }
    output.print_facts({name: fact for name, fact in facts.items() if fact is not None})


@with_flags(service=SERVICE_FILE, last=option("Only the newest N lines.", "N", min=1), trust_ledger=TRUST)
def log(service: Path, last: int | None = None, trust_ledger: bool = False, json: bool = False) -> None:
    """Verify the ledger, and print its lines: what was paid, told and granted, and to whom. Costs no privacy.

    Examples:

    ```
    dualquery serve log service.toml
    dualquery serve log service.toml --last 20 --json
    ```
    """
    from dualquery.service.journal import log_of
    from dualquery.service.settings import read_settings

    rows = log_of(read_settings(service), last=last, trust=trust_ledger)
    if json:
        output.print_json(rows)
        return
    heads = ["line", "kind", "analyst", "units", "what"]
    shown = [
        [f"{row['line']}", row["kind"], row["analyst"], f"{row['units']:,}", row["words"]] for row in rows
    ]
    output.print_table("Ledger", heads, shown)


token = typer.Typer(help="Who may ask, and how much.", rich_markup_mode="markdown")
for command, name in ((add, "add"), (rotate, "rotate"), (revoke, "revoke"), (list_all, "list")):
    token.command(name)(command)
serve = typer.Typer(
    help="Answer questions about a private table over HTTP.", rich_markup_mode="markdown", cls=ServeGroup
)
for command in (init, run, status, log):
    serve.command(command.__name__)(command)
serve.add_typer(token, name="token")


@with_flags(
    url=argument("URL", "Of a service: `http://127.0.0.1:8642`."),
    question=argument("[QUESTION]", "A query, or a table: `region by sex`."),
    tolerance=option("The error that the check should notice, as a fraction of the table.", "T"),
    buy=option(
        "Have it measured with this standard error, for its price; the ± is then about twice that.", "ERROR"
    ),
    free=option("The hypothesis alone: no test, no cost."),
    quote=option("Say what it would cost, and ask nothing."),
    dataset=option(
        "The table or release to ask. [default: the interactive table]", "NAME", show_default=False
    ),
    token_file=option(
        "The file with your token. [default: the environment variable DUALQUERY_TOKEN]", "FILE"
    ),
)
def ask(
    url: str,
    question: str | None = None,
    by: list[str] | None = None,
    tolerance: float | None = None,
    buy: float | None = None,
    free: bool = False,
    quote: bool = False,
    dataset: str | None = None,
    token_file: Path | None = None,
    json: bool = False,
) -> None:
    """Ask a service a question. **Usually free**, at most the price of a paid check; with `--buy`, its price.

    The ± is 95%: in 19 of 20 cases the answer is off by at most that.

    Examples:

    ```
    dualquery ask http://127.0.0.1:8642 "age >= 50 & sex = Female"
    dualquery ask http://127.0.0.1:8642 --by region,sex --tolerance 0.01
    dualquery ask http://127.0.0.1:8642 "income >= 50000" --buy 0.002 --quote
    ```
    """
    from dualquery.service.client import Client

    if (buy is not None) + (tolerance is not None) + free > 1:
        raise DualQueryError("--buy, --tolerance and --free are three ways to ask; name one of them")
    asked = _question(question, by)
    with Client(url, _token(token_file), dataset=dataset) as client:
        if quote:
            quoted = client.quote(asked, tolerance=tolerance, error=buy)
            output.print_json(quoted) if json else print(quoted["words"])
            return
        reply = (
            client.ask(asked, tolerance=tolerance, free=free) if buy is None else client.buy(asked, error=buy)
        )
    output.print_json(reply.data) if json else print(reply)


def _question(question: str | None, by: list[str] | None) -> str:
    """One of the two: a text, or the table over some attributes as a text."""
    if (question is None) == (not by):
        raise QueryError("ask one thing: a QUESTION, or a table with --by")
    if question is not None:
        return question
    names = [_written(name.strip()) for text in by or [] for name in text.split(",")]
    return " by ".join(names) if len(names) > 1 else f"by {names[0]}"


def _written(name: str) -> str:
    """A name as the language reads it; the number of an item stands behind the name of its block."""
    from dualquery.queries.language import quoted_where_needed

    block, bracket, number = name.rpartition("[")
    if bracket and number[:-1].isdecimal() and number.endswith("]"):
        return f"{quoted_where_needed(block)}[{number}"
    return f"'{name}'" if name.lower() == "by" else quoted_where_needed(name)


def _token(file: Path | None) -> str:
    """From a file or the environment: a command line can be read by everybody on the machine."""
    try:
        token = os.environ.get("DUALQUERY_TOKEN", "") if file is None else file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise DualQueryError(f"'{file}' cannot be read as a token") from None
    if not token.strip():
        raise DualQueryError("set DUALQUERY_TOKEN to your token, or name a file with --token-file")
    return token.strip()
