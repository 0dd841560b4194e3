"""`dualquery ask`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import JsonFlag


def ask(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of a service: `http://127.0.0.1:8642`.")],
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="A query, or a table: `region by sex`.")
    ],
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="T", help="How far off an answer may be before it is noticed."),
    ] = None,
    buy: Annotated[
        float | None,
        typer.Option(
            "--buy", metavar="ERROR", help="Have it measured with this standard error, for its price."
        ),
    ] = None,
    free: Annotated[
        bool, typer.Option("--free", help="The hypothesis alone: no test, no cost, not verified.")
    ] = False,
    quote: Annotated[bool, typer.Option("--quote", help="Say what it would cost, and ask nothing.")] = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", metavar="NAME", help="[default: the interactive table]", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Where your token is. [default: DUALQUERY_TOKEN]"),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Ask a service a question. **Free if easy**, and at most the price of a fire; with `--buy`, its price.

    Examples:

    ```
    dualquery ask http://127.0.0.1:8642 "age >= 50 & sex = Female"
    dualquery ask http://127.0.0.1:8642 "region by sex" --tolerance 0.01
    dualquery ask http://127.0.0.1:8642 "income >= 50000" --buy 0.002 --quote
    ```
    """
    from dualquery.cli import output
    from dualquery.errors import DualQueryError
    from dualquery.service.client import Client

    if (buy is not None) + (tolerance is not None) + free > 1:
        raise DualQueryError("--buy, --tolerance and --free are three ways to ask; name one of them")
    with Client(url, _token(token_file), dataset=dataset) as client:
        if quote:
            quoted = client.quote(question, tolerance=tolerance, error=buy)
            output.print_json(quoted) if json else print(quoted["words"])
            return
        reply = (
            client.ask(question, tolerance=tolerance, free=free)
            if buy is None
            else client.buy(question, error=buy)
        )
    output.print_json(reply.data) if json else print(reply)


def _token(file: Path | None) -> str:
    """From a file or the environment: a command line can be read by everybody on the machine."""
    from dualquery.errors import DualQueryError

    try:
        token = os.environ.get("DUALQUERY_TOKEN", "") if file is None else file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise DualQueryError(f"'{file}' cannot be read as a token") from None
    if not token.strip():
        raise DualQueryError("set DUALQUERY_TOKEN to your token, or name a file with --token-file")
    return token.strip()
