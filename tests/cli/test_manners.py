"""How the program behaves on terminals and in pipes: help, width, colour, completion, and one meaning a flag."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dualquery
from dualquery.cli import output, run
from dualquery.releases.sentences import counted
from tests.test_docs import COMMANDS

SOURCE = str(Path(dualquery.__file__).resolve().parents[1])
PROGRAM = "from dualquery.cli import main; main()"
WORDS = re.compile(r"\S+")


def on_a_terminal(script: str, *arguments: str, columns: int, **variables: str) -> str:
    """What a program writes to a terminal of so many columns."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": str(columns), "TERM": "xterm", **variables}
    done = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=slave,
        stderr=slave,
        env=environment,
        close_fds=True,
    )
    os.close(slave)
    parts = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(master)
    assert done.wait(timeout=120) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


FACTS = (
    "from dualquery.cli import output; "
    "output.print_facts({'mechanism': 'the quick brown fox jumps over the lazy dog ' * 3, 'at': '/' + 'x' * 60}); "
    "output.print_table('A title', ['query', 'truth', 'release'], [['age >= 55 & sex = female', '0.2245', '0.228']])"
)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_breaks_no_word_and_shows_no_types(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for columns in (200, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run([*path.split()[1:], "-h"]) == 0
        shown[columns] = capsys.readouterr().out
        assert "<" not in shown[columns].replace("<=", "").replace("p < ", "")
        assert all(line == line.rstrip() for line in shown[columns].splitlines())
    assert "Usage: " + path in " ".join(shown[40].split())
    parted = [WORDS.findall(text.replace("|", " ")) for text in shown.values()]
    assert sorted(parted[0]) == sorted(parted[1])


def test_a_narrow_terminal_breaks_between_words() -> None:
    wide, narrow = (on_a_terminal(FACTS, columns=columns, NO_COLOR="1") for columns in (120, 30))
    for text in (wide, narrow):
        words = WORDS.findall(text)
        assert words.count("quick") == 3
        assert "/" + "x" * 60 in words  # a path stays whole
        assert "female" in words
    assert max(len(line) for line in narrow.splitlines() if "xx" not in line) <= 30


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b[" in on_a_terminal(FACTS, columns=80)
    assert "\x1b" not in on_a_terminal(FACTS, columns=80, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(FACTS, columns=80, TERM="dumb")


def test_a_pipe_gets_no_padding(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_facts({"a": "word " * 100, "longer name": "b"})
    output.print_table("Title", ["query", "truth"], [["x", "1"], ["longer", "0.25"]])
    output.print_lines([["0.1", "x"], ["0.123", "y"]])
    out = capsys.readouterr().out
    assert out == (
        f"a\t{'word ' * 100}\nlonger name\tb\nTitle\nquery\ttruth\nx\t1\nlonger\t0.25\n0.1\tx\n0.123\ty\n"
    )


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("dualquery ver", "verify"),
        ("dualquery release t.csv --expec", ""),
        ("dualquery plan --expec", "--expected-records"),
        ("dualquery plan --mechanism mono", "monomials"),
        ("dualquery plan --neighbours person-r", "person-replace"),
        ("dualquery plan --accounting z", "zcdp"),
    ],
)
def test_shells_complete(typed: str, proposed: str) -> None:
    words = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "_DUALQUERY_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": SOURCE, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == proposed.split(), done.stderr


def test_rows_are_synthetic_and_records_private_everywhere() -> None:
    for command in COMMANDS.values():
        for parameter in command.params:
            if "--rows" in parameter.opts:
                assert parameter.name == "synthetic_rows"
            if "--records" in parameter.opts:
                assert "number of records" in parameter.help


def test_one_is_one() -> None:
    assert [counted(n, "measurement") for n in (0, 1, 2, 1000)] == [
        "0 measurements",
        "1 measurement",
        "2 measurements",
        "1,000 measurements",
    ]
