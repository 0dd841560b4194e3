"""All commands in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from dualquery import __version__
from dualquery.cli.answer import answer
from dualquery.cli.audit import audit
from dualquery.cli.demo import demo
from dualquery.cli.evaluate import evaluate
from dualquery.cli.plan import plan
from dualquery.cli.release import release
from dualquery.cli.schema import draft

app = typer.Typer(
    help="Answers to very many statistical questions about a private table, with differential privacy.",
    epilog="Start with `dualquery demo`, or with `dualquery schema draft TABLE --out schema.toml`.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

schema = typer.Typer(help="The public description of a table.", rich_markup_mode="markdown")
schema.command("draft")(draft)

app.add_typer(schema, name="schema")
app.command()(plan)
app.command()(release)
app.command()(answer)
app.command()(evaluate)
app.command()(audit)
app.command()(demo)


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
