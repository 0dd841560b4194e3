"""The checker against a reading of the grammar one byte at a time, and against the parser."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import DataError
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.reading.delimited import Checker
from tests.table.slow_grammar import slow_records

alphabet = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"\xc3\xa9"]), max_size=24
)


@pytest.mark.parametrize("many", [200, pytest.param(1500, marks=pytest.mark.long)])
def test_the_checker_knows_the_grammar(many: int) -> None:
    settings(max_examples=many)(given(alphabet, st.integers(1, 3), st.integers(1, 9))(checked))()


def checked(parts: list[bytes], width: int, piece: int) -> None:
    text = b"".join(parts)
    checker = Checker(ord(","), width=width, longest=10**6, skipped=0, where="it")
    try:
        for place in range(0, len(text), piece):
            checker.feed(text[place : place + piece])
        checker.finish()
        found: int | None = checker.records
    except DataError:
        found = None
    assert found == slow_records(text, ord(","), width)


@pytest.mark.parametrize("many", [60, pytest.param(400, marks=pytest.mark.long)])
def test_the_parser_finds_the_records_that_the_checker_counts(tmp_path: Path, many: int) -> None:
    @given(alphabet, st.integers(1, 3))
    @settings(max_examples=many)
    def parsed(parts: list[bytes], width: int) -> None:
        parses_as_checked(tmp_path / "t.csv", parts, width)

    parsed()


def parses_as_checked(path: Path, parts: list[bytes], width: int) -> None:
    names = [f"n{i}" for i in range(width)]
    text = ",".join(names).encode() + b"\n" + b"".join(parts)
    path.write_bytes(text)
    wanted = slow_records(text, ord(","), width)
    domain = Domain(tuple(Categorical(name, ("a", "o"), unknown="o", missing="o") for name in names))
    if wanted is None:
        with pytest.raises(DataError):
            encode(path, domain)
        return
    assert encode(path, domain).rows == wanted - 1
    if width > 1 and b"\r" not in text.replace(b"\r\n", b""):
        read = [row for row in csv.reader(io.StringIO(text.decode(), newline=""), strict=True) if row]
        assert len(read) == wanted
