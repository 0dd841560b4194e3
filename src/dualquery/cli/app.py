"""All commands in one place, and what `--help` and `-h` print.

Help is plain lines that end where their words do, on any width, in a pipe too. Markup of docstrings is for pages:
here stars and backquotes are left out, and code keeps its lines.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial
from typing import Annotated, Any

import typer
import typer.main

from dualquery import __version__
from dualquery.cli.conclude import imputations, regress, sql
from dualquery.cli.demo import audit, demo, desk
from dualquery.cli.ledger import append, ask_series, create, show, show_series
from dualquery.cli.ledger import audit as audit_ledger
from dualquery.cli.output import wrapped
from dualquery.cli.release import degrees, plan, program, release
from dualquery.cli.released import answer, evaluate, fit, refit, verify
from dualquery.cli.released import create as create_key
from dualquery.cli.schema import check, draft
from dualquery.cli.serve import ask, serve

WIDEST = 110
BESIDE = 30  # columns for names beside their help; on narrow terminals help stands below
NARROW = 80

app = typer.Typer(
    help="Answers to very many statistical questions about a private table, with differential privacy.",
    epilog="Start with `dualquery demo`, or with `dualquery schema draft TABLE --out schema.toml`.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _group(help: str, **commands: Callable[..., None]) -> typer.Typer:
    group = typer.Typer(help=help, rich_markup_mode="markdown")
    for name, command in commands.items():
        group.command(name)(command)
    return group


def _add(*commands: Callable[..., None]) -> None:
    for command in commands:
        app.command()(command)


app.add_typer(_group("The public description of a table.", draft=draft, check=check), name="schema")
app.add_typer(
    _group("What all releases of a dataset may cost together.", create=create, show=show, audit=audit_ledger),
    name="ledger",
)
app.add_typer(
    _group(
        "A table that grows: one release for each period.", append=append, ask=ask_series, show=show_series
    ),
    name="series",
)
_add(plan, release, answer, sql, regress, imputations, refit, fit, evaluate, verify)
app.add_typer(_group("Keys that sign releases.", create=create_key), name="key")
_add(audit)
app.add_typer(serve, name="serve")
_add(ask, desk, demo, degrees, program)


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


@cache
def command_of(app: typer.Typer, flags: Hashable) -> Any:
    """The program, every command of which prints its help as said here; made once for the same flags."""
    command = typer.main.get_command(app)
    for each in _all(command):
        each.format_help = partial(_write, each)
    return command


def _all(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _all(each)


def _write(command: Any, context: Any, formatter: Any) -> None:
    room = min(shutil.get_terminal_size().columns, WIDEST)
    formatter.write("\n".join(_lines(command, context, room)) + "\n")


def _lines(command: Any, context: Any, room: int) -> Iterator[str]:
    usage = " ".join([context.command_path, *(_usage(command, context))])
    yield from wrapped(f"Usage: {usage}", room, 0, 4)
    yield ""
    yield from _text(command.help or "", room)
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(context):
        if not getattr(each, "hidden", False):
            panel, row = _parameter(each, context)
            panels.setdefault(panel, []).append(row)
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            first = inspect.cleandoc(below.help or "").split("\n\n")[0]
            panels.setdefault("Commands", []).append((name, _plain(first.replace("\n", " "))))
    for title, rows in panels.items():
        yield f"{title}:"
        for name, words in rows:
            yield from _entry(name, words, room)
        yield ""
    yield from _text(command.epilog or "", room)


def _usage(command: Any, context: Any) -> list[str]:
    names = ["[OPTIONS]"]
    for each in command.get_params(context):
        if _is_argument(each):
            names.append(_metavar(each))
    return [*names, *(["COMMAND [ARGS]..."] if hasattr(command, "commands") else [])]


def _parameter(parameter: Any, context: Any) -> tuple[str, tuple[str, str]]:
    """The panel that it stands in, how it is written, and what it means."""
    words = _plain(getattr(parameter, "help", None) or "")
    if parameter.required and not _is_argument(parameter):
        words += " [required]"
    default = getattr(parameter.default, "value", parameter.default)  # of an Enum
    shown = getattr(parameter, "show_default", True) and "[default" not in words
    if shown and default not in (None, False, (), []) and not callable(default) and not parameter.required:
        words += f" [default: {default}]"
    if _is_argument(parameter):
        return "Arguments", (_metavar(parameter), words)
    long_first = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: name[:2] != "--")
    name = ", ".join(long_first)
    if not getattr(parameter, "is_flag", False):
        name = f"{name} {_metavar(parameter)}"
    return getattr(parameter, "rich_help_panel", None) or "Options", (name, words)


def _is_argument(parameter: Any) -> bool:
    return str(getattr(parameter, "param_type_name", "")) == "argument"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or (parameter.name or "").upper())


def _entry(name: str, words: str, room: int) -> Iterator[str]:
    """A name and what it means: beside it where there is room, and otherwise below."""
    if room >= NARROW and len(name) + 4 <= BESIDE:
        below = wrapped(words, room, BESIDE, BESIDE) or [""]
        yield f"  {name}".ljust(BESIDE) + below[0][BESIDE:]
        yield from below[1:]
        return
    yield from wrapped(name if len(name) + 2 <= room else name.replace("|", " | "), room, 2, 6)
    yield from wrapped(words, room, BESIDE if room >= NARROW else 6, BESIDE if room >= NARROW else 6)


def _text(text: str, room: int) -> Iterator[str]:
    """Paragraphs, and examples as they are."""
    for number, part in enumerate(inspect.cleandoc(text).split("```")):
        if number % 2:
            yield from (f"  {line}".rstrip() for line in part.strip("\n").splitlines())
            yield ""
            continue
        for paragraph in part.split("\n\n"):
            if paragraph.strip():
                yield from wrapped(_plain(" ".join(paragraph.split())), room, 0, 0)
                yield ""


def _plain(text: str) -> str:
    return text.replace("**", "").replace("`", "")
