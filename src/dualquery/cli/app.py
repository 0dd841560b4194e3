"""All commands in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from dualquery import __version__
from dualquery.cli.ask import ask
from dualquery.cli.audit import audit
from dualquery.cli.conclude import regress, sql
from dualquery.cli.demo import demo
from dualquery.cli.ledger import audit as audit_ledger
from dualquery.cli.ledger import create, show
from dualquery.cli.release import degrees, plan, program, release
from dualquery.cli.released import answer, evaluate, refit, verify
from dualquery.cli.released import create as create_key
from dualquery.cli.schema import check, draft
from dualquery.cli.serve import serve

app = typer.Typer(
    help="Answers to very many statistical questions about a private table, with differential privacy.",
    epilog="Start with `dualquery demo`, or with `dualquery schema draft TABLE --out schema.toml`.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

schema = typer.Typer(help="The public description of a table.", rich_markup_mode="markdown")
schema.command("draft")(draft)
schema.command("check")(check)

ledger = typer.Typer(help="What all releases of a dataset may cost together.", rich_markup_mode="markdown")
ledger.command("create")(create)
ledger.command("show")(show)
ledger.command("audit")(audit_ledger)

key = typer.Typer(help="Keys that sign releases.", rich_markup_mode="markdown")
key.command("create")(create_key)

app.add_typer(schema, name="schema")
app.add_typer(ledger, name="ledger")
app.command()(plan)
app.command()(release)
app.command()(answer)
app.command()(sql)
app.command()(regress)
app.command()(refit)
app.command()(evaluate)
app.command()(verify)
app.add_typer(key, name="key")
app.command()(audit)
app.add_typer(serve, name="serve")
app.command()(ask)
app.command()(demo)
app.command()(degrees)
app.command()(program)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dualquery {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
