"""A command, an option or a public name that nobody wrote about is not finished."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
        "linked tables": ["linked"],
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


# docs/papers.md

ROOT = Path(__file__).resolve().parents[1]
PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ITEMS = {
    "DualQuery": (
        "Definitions 2.1 to 2.3, Lemma 2.4, Definition 3.1, Algorithm 1, Theorem 3.2, Algorithm 2, Lemma 4.1, "
        "Theorem 4.2, Theorem 4.3, Lemmas 4.4 and 4.5, Theorem 4.6, Remark 4.7, Definition 5.1, Definition 6.1, "
        "Theorem A.2, Figure 1, Figure 2, Figure 3, Figure 4, Figure 5"
    ),
    "MWEM": (
        "Definition 2.1, Figure 1, Theorem 2.1, Theorem 2.2, 2.3.2, Figure 2, Figure 3, Figure 4, Figure 5, Section 4"
    ),
    "From learning to privacy": (
        "blueprint, regret, private multiplicative weights, composition, optimal, threshold, online, cuts, mirror, "
        "sparse, distance, disjunctions, polynomials, blocks"
    ),
}


def part_of(heading: str) -> list[str]:
    return PAPERS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()


def items_of(heading: str) -> list[tuple[str, ...]]:
    """Each item of a list with its code, command, test and page."""
    told = [line[2:].partition(": `") for line in part_of(heading) if line.startswith("- ")]
    return [(item, *f"`{rest}".split("; ")) for item, _, rest in told]


ROWS = [row for heading in ITEMS for row in items_of(heading)]
MISPRINTS = [line[2:-2].split(" | ") for line in part_of("Misprints") if line.startswith("| ")][2:]


@pytest.mark.parametrize("heading", ITEMS)
def test_every_item_of_a_paper_has_a_line(heading: str) -> None:
    items = " ".join(row[0] for row in items_of(heading))
    assert [item for item in ITEMS[heading].split(", ") if item not in items] == []


def test_what_the_page_of_the_papers_names_is_there() -> None:
    """A file, a command, an option, a mechanism, a test: none may be renamed without its row."""
    missing = []
    for item, code, command, test, page in ROWS:
        names_of_files, names_of_tests = re.findall(r"`([^`]+)`", code), re.findall(r"`([^`]+)`", test)
        if not (names_of_files and names_of_tests and "](" in page):
            missing.append(item)
        for name in names_of_files:
            if not ((ROOT / "src" / "dualquery" / name).is_file() or (ROOT / name).is_file()):
                missing.append(name)
        missing += [name for name in names_of_tests if not is_test(name)]
        missing += [words for words in re.findall(r"`([^`]+)`", command) if not is_command(words)]
    missing += [row[3] for row in MISPRINTS if not is_test(row[3].strip("`"))]
    assert missing == []


def is_test(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and f"\ndef {function}(" in path.read_text(encoding="utf-8")


def is_command(words: str) -> bool:
    """A module of experiments, or a command with options that it has and a mechanism that there is."""
    if words.startswith("python -m "):
        return (ROOT / f"{words.removeprefix('python -m ').replace('.', '/')}.py").is_file()
    path = words.partition(" --")[0]
    mechanism = re.search(r"--mechanism (\S+)", words)
    flags = {word for word in words.split() if word.startswith("--")}
    return (
        path in COMMANDS
        and flags <= names(COMMANDS[path])
        and (mechanism is None or mechanism[1] in MECHANISMS)
    )


def test_a_renamed_thing_would_be_seen() -> None:
    assert is_command("dualquery plan --mechanism pmw")
    assert is_test("tests/test_docs.py::test_a_renamed_thing_would_be_seen")
    for gone in (
        "dualquery plan --mechanism x",
        "dualquery plan --x",
        "dualquery x",
        "python -m experiments.x",
    ):
        assert not is_command(gone)
    for gone in ("tests/test_docs.py::test_gone", "tests/test_gone.py::test_gone"):
        assert not is_test(gone)


def test_the_uniform_tables_error_is_that_with_a_square() -> None:
    """E|1/8 − p q r| of three uniform chances, by their density (ln t)²/2: the printed (ln 8)³ is not it."""
    t = (np.arange(200_000) + 0.5) / 200_000
    error = float(np.mean(np.abs(1 / 8 - t) * np.log(t) ** 2 / 2))
    printed, right = ((7 + 18 * math.log(2) + 2 * math.log(8) ** power) / 256 for power in (3, 2))
    assert error == pytest.approx(right, abs=1e-4)
    assert abs(error - printed) > 0.03
