"""`dualquery serve`: init, run, status, log; and token: add, rotate, revoke, list."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from dualquery.cli.flags import (
    DeltaFlag,
    EpsilonFlag,
    JsonFlag,
    NeighboursFlag,
    QuietFlag,
    RecordsPerPersonFlag,
    SchemaFlag,
)
from dualquery.privacy.neighbours import Neighbours

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
    from dualquery.service.journal import checks_of

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
    heads = ["name", "role", "quota", "added", "expires", "revoked"]
    if json:
        rows = [
            {**{head: getattr(each, head) for head in heads}, "quota": float(each.quota)} for each in holders
        ]
        output.print_json(rows)
        return
    shown = [[f"{float(each.quota):g}" if head == "quota" else getattr(each, head) or "no" for head in heads]
             for each in holders]  # fmt: skip
    output.print_table("Tokens", heads, shown)


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


if TYPE_CHECKING:
    pass

ServiceArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SERVICE", help="The file that `dualquery serve init` wrote.")
]
TrustFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--trust-ledger",
        help="Believe that this ledger is the newest, where the witness beside it is lost. Never after a restore.",
    ),
]
TableArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="TABLE", help="The private table.")]
OutFlag: TypeAlias = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="Where to write the service down.")
]
RecordsFlag: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--records", "--public-rows", metavar="N", help="The number of records, where it is to be public."
    ),
]
NameFlag: TypeAlias = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="[default: the name of the table]", show_default=False),
]
LedgerFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="PLACE",
        help="A new file, or `postgresql://user@host/database`. [default: a file beside the service]",
        show_default=False,
    ),
]
BookFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--book",
        metavar="LEDGER",
        show_default=False,
        help="The ledger of all releases of the dataset (`dualquery ledger create --questions`): it is charged with "
        "the whole budget.",
    ),
]
ShareFlag: TypeAlias = Annotated[
    float, typer.Option("--share", metavar="S", help="Of the budget, for the first release.")
]
EarlierFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option("--release", metavar="DIR", help="Start from this earlier release of the table instead."),
]
QuestionsFlag: TypeAlias = Annotated[
    int, typer.Option("--questions", metavar="K", min=1, help="One false fire in so many questions.")
]
ResumeFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a beginning that was stopped, by the same command: nothing is charged a second time.",
    ),
]
TableChangedFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--table-changed",
        help="The records are others than before, on purpose. The budget stays; the ledger notes the change.",
    ),
]
ToleranceFlag: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="T",
        help="How far off an answer may be, as a fraction of the table. [default: what 1% of the budget buys]",
        show_default=False,
    ),
]


TestFlag: TypeAlias = Annotated[
    str,
    typer.Option(
        "--test",
        metavar="NAME",
        help="How questions are tested: hazard; or sparse-vector, online private multiplicative weights without a "
        "release, which promises an error and needs a small universe.",
    ),
]


class ServeGroup(TyperGroup):
    """`dualquery serve service.toml` is `dualquery serve run service.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


def init(
    table: TableArgument,
    schema: SchemaFlag,
    epsilon: EpsilonFlag,
    out: OutFlag,
    delta: DeltaFlag = None,
    neighbours: NeighboursFlag = Neighbours.REPLACE,
    records_per_person: RecordsPerPersonFlag = None,
    records: RecordsFlag = None,
    dataset: NameFlag = None,
    ledger: LedgerFlag = None,
    book: BookFlag = None,
    share: ShareFlag = 0.9,
    release: EarlierFlag = None,
    questions: QuestionsFlag = 2000,
    tolerance: ToleranceFlag = None,
    test: TestFlag = "hazard",
    resume: ResumeFlag = False,
    quiet: QuietFlag = False,
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
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars

    with ProgressBars(wanted=not quiet) as progress:
        from dualquery.service.create import begin
        from dualquery.service.journal import ledger_status

        made = begin(
            table,
            schema=schema,
            epsilon=epsilon,
            out=out,
            delta=delta,
            neighbours=neighbours,
            records_per_person=records_per_person,
            public_rows=records,
            dataset=dataset,
            ledger=ledger,
            book=book,
            share=share,
            release=release,
            questions=questions,
            tolerance=tolerance,
            test=test,
            resume=resume,
            progress=progress,
        )
    if not quiet:
        output.print_facts(
            {
                "service": str(out),
                "dataset": made.dataset,
                "privacy": f"ε = {made.epsilon:g}, δ = {made.delta:g}, neighbours {made.neighbours}",
                **({"release": str(made.path(made.release))} if made.release else {}),
                **_accuracy(ledger_status(made).accuracy),
                "ledger": made.ledger,
                "next": f"dualquery serve token add NAME --service {out}, then dualquery serve {out}",
            }
        )


def _accuracy(words: str | None) -> dict[str, str]:
    return {} if words is None else {"accuracy": words}


def run(
    service: ServiceArgument,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="[default: as the file says, 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", help="[default: as the file says, 8642]")
    ] = None,
    tls_certificate: Annotated[
        str | None,
        typer.Option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="And its key.")] = None,
    trust_ledger: TrustFlag = False,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Print a line of JSON a request; no question is in it.")
    ] = False,
    table_changed: TableChangedFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a service until interrupted: HTTP and a web page. `dualquery serve SERVICE` for short.

    Examples:

    ```
    dualquery serve service.toml
    dualquery serve service.toml --host 0.0.0.0 --tls-certificate host.pem --tls-key host.key
    ```
    """
    from dualquery.cli.output import ProgressBars
    from dualquery.service.run import serve
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    given = {"host": host, "port": port, "certificate": tls_certificate, "key": tls_key}
    changed = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings, http=replace(settings.http, **changed))  # type: ignore[arg-type]
    with ProgressBars(wanted=not quiet) as progress:
        ready = None if quiet else partial(print, flush=True)
        log = partial(print, flush=True) if log_json else None
        serve(
            settings, trust=trust_ledger, table_changed=table_changed, log=log, ready=ready, progress=progress
        )


def status(service: ServiceArgument, trust_ledger: TrustFlag = False, json: JsonFlag = False) -> None:
    """Verify the ledger, and show what is spent and left, fires left, and answers given. Costs no privacy.

    Examples:

    ```
    dualquery serve status service.toml
    ```
    """
    from dualquery.cli import output
    from dualquery.service.journal import ledger_status
    from dualquery.service.settings import read_settings

    settings = read_settings(service)
    found = ledger_status(settings, trust=trust_ledger)
    if json:
        output.print_json(found.to_json())
        return
    answers = ", ".join(f"{count:,} {badge}" for badge, count in sorted(found.answers.items())) or "none"
    output.print_facts(
        {
            "dataset": found.dataset,
            "cap": f"ε = {settings.epsilon:g}, δ = {settings.delta:g}, neighbours {settings.neighbours}",
            **_accuracy(found.accuracy),
            "spent": f"{100 * found.spent / found.cap:.3g}% (the release {100 * found.release / found.cap:.3g}%)",
            "left": f"{100 * found.left / found.cap:.3g}%, {found.fires_left:,} fires",
            "answers given": answers,
            "fires": f"{found.fires:,}, and {found.burned:,} burned by unclean stops",
            "running": "yes, or stopped uncleanly" if found.running else "no",
            "ledger": f"{found.head.length:,} lines follow from each other, head {found.head.hash}",
        }
    )


def log(
    service: ServiceArgument,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, help="Only so many lines, the newest.")
    ] = None,
    trust_ledger: TrustFlag = False,
    json: JsonFlag = False,
) -> None:
    """Verify the ledger, and print its lines: what was paid, told and granted, and to whom. Costs no privacy.

    Examples:

    ```
    dualquery serve log service.toml
    dualquery serve log service.toml --last 20 --json
    ```
    """
    from dualquery.cli import output
    from dualquery.service.journal import log_of
    from dualquery.service.settings import read_settings

    rows = log_of(read_settings(service), last=last, trust=trust_ledger)
    if json:
        output.print_json(rows)
        return
    shown = [
        [f"{row['line']}", row["kind"], row["analyst"], f"{row['units']:,}", row["words"]] for row in rows
    ]
    output.print_table("Ledger", ["line", "kind", "analyst", "units", "what"], shown)


serve = typer.Typer(
    help="Answer questions about a private table over HTTP.", rich_markup_mode="markdown", cls=ServeGroup
)
serve.command("init")(init)
serve.command("run")(run)
serve.command("status")(status)
serve.command("log")(log)
serve.add_typer(token, name="token")
