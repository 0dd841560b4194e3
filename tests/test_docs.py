"""A command, an option or a public name that nobody wrote about is not finished."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dualquery.cli.app import app
from dualquery.mechanisms.wishes import MECHANISMS, WISHES, Flag, flags_of, options

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (dualquery.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def commands(command: Any, path: str = "dualquery") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None or path == "dualquery":
        yield path, command
    for name, each in (below or {}).items():
        yield from commands(each, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(app)))


def names(command: Any) -> set[str]:
    """Every spelling of every option, and the arguments."""
    found = set()
    for parameter in command.params:
        found |= {name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")}
    return found


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_is_documented(path: str) -> None:
    assert path in SECTIONS, f"docs/cli.md has no section '## {path}'"
    written = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", SECTIONS[path]))
    assert names(COMMANDS[path]) <= written | {"--help", "-h"}


@pytest.mark.parametrize("path", SECTIONS)
def test_nothing_is_documented_that_does_not_exist(path: str) -> None:
    assert path in COMMANDS
    rows = re.findall(
        r"^(?:\| (`.*?) \||- (`.*?): )", SECTIONS[path], re.MULTILINE
    )  # of a table, or of a list
    assert rows
    written = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", " ".join(map("".join, rows))))
    assert written <= names(COMMANDS[path]) | {"--help", "-h"}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    if path != "dualquery":
        assert "Example" in command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path} {parameter.name}"


@pytest.mark.parametrize("path", ["dualquery plan", "dualquery release"])
def test_the_flags_of_mechanisms_are_exactly_their_wishes(path: str) -> None:
    """One flag for each field of `mechanisms.wishes`, in its words, and no other in their panel."""
    wishes: dict[str, Flag] = {}
    users: dict[str, list[str]] = {}
    for mechanism, kind in WISHES.items():
        for field, flag in flags_of(kind).items():
            assert wishes.setdefault(field, flag) == flag, f"{field} means two things"
            users.setdefault(field, []).append(mechanism)
    found = {each.name: each for each in COMMANDS[path].params if panel(each) == "Options of mechanisms"}
    assert list(found) == list(wishes) == list(options())
    own = {each.name for each in COMMANDS[path].params} - set(found)
    assert own.isdisjoint(wishes)
    for field, flag in wishes.items():
        assert found[field].help == f"{flag.help} [{', '.join(users[field])}]"
        assert found[field].metavar == flag.metavar
        assert found[field].default is None
        spelled = set(flag.names) or {"--" + field.replace("_", "-")}
        assert set(found[field].opts) == spelled


def panel(parameter: Any) -> str | None:
    return getattr(parameter, "rich_help_panel", None)


def test_the_page_says_which_mechanisms_use_a_flag() -> None:
    """As `used by` in the table of `plan`, in whatever words the mechanisms are called there."""
    called = {
        "DualQuery": ["dualquery"],
        "MWEM": ["mwem"],
        "PMW": ["pmw"],
        "mirror descent": ["mirror"],
        "Euclid": ["euclidean"],
        "least squares": ["least-squares"],
        "monomials": ["monomials"],
        "parities": ["parities"],
        "touched weights": ["touched-weights"],
        "coordinate-wise": ["coordinate-wise"],
        "Frieze-Kannan": ["frieze-kannan"],
        "projection": ["projection"],
        "baselines": ["hadamard", "uniform", "zeros"],
        "learners of special tables": ["frieze-kannan", "coordinate-wise"],
    }
    rows = re.findall(r"^\| `(--[a-z-]+)[^|]*\| ([^|]+) \|[^|]+\|$", SECTIONS["dualquery plan"], re.MULTILINE)
    written = {flag: {name for words in users.split(", ") for name in called[words]} for flag, users in rows}
    assert written == {
        "--" + field.replace("_", "-"): set(flag.mechanisms) for field, flag in options().items()
    }


def test_the_page_of_mechanisms_has_every_one() -> None:
    """In its first table, each name once."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "learners.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", page.partition("\n## ")[0], re.MULTILINE)
    written = [name for row in rows for name in re.findall(r"`([a-z][a-z-]+)`", row)]
    assert sorted(written) == sorted(MECHANISMS)


def test_the_version_is_one() -> None:
    import tomllib

    import dualquery

    project = tomllib.loads(
        (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert project["project"]["version"] == dualquery.__version__


def test_every_public_name_exists() -> None:
    import dualquery

    for name in dualquery.__all__:
        assert getattr(dualquery, name) is not None
    with pytest.raises(AttributeError):
        _ = dualquery.no_such_name
