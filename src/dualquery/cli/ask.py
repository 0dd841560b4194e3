"""`dualquery ask`."""

from __future__ import annotations

import os
from pathlib import Path

from dualquery.cli.flags import ByFlag, JsonFlag, argument, option, with_flags


@with_flags(
    url=argument("URL", "Of a service: `http://127.0.0.1:8642`."),
    question=argument("[QUESTION]", "A query, or a table: `region by sex`."),
    tolerance=option("How far off an answer may be before it is noticed.", "T"),
    buy=option(
        "Have it measured with this standard error, for its price; the ± is then about twice that.", "ERROR"
    ),
    free=option("The hypothesis alone: no test, no cost."),
    quote=option("Say what it would cost, and ask nothing."),
    dataset=option("[default: the interactive table]", "NAME", show_default=False),
    token_file=option("Where your token is. [default: DUALQUERY_TOKEN]", "FILE"),
)
def ask(
    url: str,
    question: str | None = None,
    by: ByFlag = None,
    tolerance: float | None = None,
    buy: float | None = None,
    free: bool = False,
    quote: bool = False,
    dataset: str | None = None,
    token_file: Path | None = None,
    json: JsonFlag = False,
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
    from dualquery.cli import output
    from dualquery.errors import DualQueryError
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
    from dualquery.errors import QueryError

    if (question is None) == (not by):
        raise QueryError("ask one thing: a QUESTION, or a table with --by")
    if question is not None:
        return question
    names = [_written(name.strip()) for text in by or [] for name in text.split(",")]
    return " by ".join(names) if len(names) > 1 else f"by {names[0]}"


def _written(name: str) -> str:
    """A name as the language reads it; the number of an item stands behind the name of its block."""
    from dualquery.queries.language.vocabulary import quoted_where_needed

    block, bracket, number = name.rpartition("[")
    if bracket and number[:-1].isdecimal() and number.endswith("]"):
        return f"{quoted_where_needed(block)}[{number}"
    return f"'{name}'" if name.lower() == "by" else quoted_where_needed(name)


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
