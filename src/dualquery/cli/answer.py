"""`dualquery answer`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dualquery.cli.flags import JsonFlag


def answer(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")],
    queries: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]...", help="Queries; `-` reads them from the standard input."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file with one query a line; `-` as above."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Answer queries from a release alone. **Costs no privacy**, as often as you like.

    Examples:

    ```
    dualquery answer released "age >= 50 & sex = Female & !(workclass = Private)"
    dualquery answer released --file questions.txt --json
    ```
    """
    from dualquery.cli import output
    from dualquery.errors import QueryError
    from dualquery.mechanisms.error_bars import LEVEL
    from dualquery.releases.release import Release

    asked: list[tuple[str, str]] = []  # the text, and where it stands
    for number, text in enumerate(queries or [], start=1):
        place = f"query {number}" if len(queries or []) > 1 else ""
        asked += _lines(Path("-")) if text == "-" else [(text, place)]
    if file is not None:
        asked += _lines(file)
    if not asked:
        raise QueryError(
            "there is no query to answer; write one behind the folder, or name a file with --file"
        )
    answers = Release.load(folder).answers([text for text, _ in asked], places=[place for _, place in asked])
    if json:
        output.print_json(
            [
                {"query": text.strip(), "answer": each.value, "error": each.error, "level": LEVEL}
                for (text, _), each in zip(asked, answers, strict=True)
            ]
        )
    elif len(answers) == 1:
        print(answers[0])
    else:
        width = max(len(str(each)) for each in answers)
        for (text, _), each in zip(asked, answers, strict=True):
            print(f"{each!s:<{width}}  {text.strip()}")


def _lines(file: Path) -> list[tuple[str, str]]:
    """The queries of a file or of the standard input; blank lines and comments are passed over."""
    from dualquery.errors import QueryError

    name = "the standard input" if str(file) == "-" else f"'{file}'"
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise QueryError(f"{name} is not text in UTF-8") from None
    except OSError as error:
        raise QueryError(f"{name} cannot be read: {error.strerror}") from None
    return [
        (line, f"{name}, line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
