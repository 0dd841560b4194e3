"""The bytes of one record, replaced by anything: the file is refused, or the other records are the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import DataError
from dualquery.table.domain import Domain
from dualquery.table.encoding import encode
from tests.table.formats import AWKWARD, COLUMNS, as_csv, saved

HOW_OFTEN = pytest.mark.parametrize("many", [60, pytest.param(600, marks=pytest.mark.long)])
SMALL = Domain((COLUMNS["text"], COLUMNS["whole"]))


def others_stay(folder: Path, name: str, domain: Domain, parts: list[bytes], place: int, wild: bytes) -> None:
    """`parts` are the head, one part a record, and the tail; the record at `place` becomes `wild`."""
    before = encode(saved(folder / name, b"".join(parts)), domain).to_rows()
    assert len(before) == len(parts) - 2
    edited = [*parts[: place + 1], wild, *parts[place + 2 :]]
    try:
        after = encode(saved(folder / name, b"".join(edited)), domain).to_rows()
    except DataError:
        return
    behind = len(before) - place - 1
    assert len(after) >= len(before) - 1
    np.testing.assert_array_equal(after[:place], before[:place])
    np.testing.assert_array_equal(after[len(after) - behind :], before[len(before) - behind :])


cells = st.lists(st.sampled_from([*AWKWARD, "", '""', '","', '\n"']), min_size=2, max_size=6)
wild_csv = st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"a", b'",', b',"', b"\r"]), max_size=12)


@HOW_OFTEN
def test_no_bytes_of_a_csv_record_reach_another(tmp_path: Path, many: int) -> None:
    @given(cells, st.integers(0, 5), wild_csv)
    @settings(max_examples=many)
    def others(texts: list[str], place: int, wild: list[bytes]) -> None:
        rows = [as_csv([{"text": text, "whole": 1}], ["text", "whole"]).partition(b"\n")[2] for text in texts]
        parts = [b"text,whole\n", *rows, b""]
        others_stay(tmp_path, "wild.csv", SMALL, parts, place % len(rows), b"".join(wild) + b"\n")

    others()


wild_json = st.lists(
    st.sampled_from(['"', "{", "}", "[", "]", ",", ":", '"text"', "1", "\\", "\n", '{"text": "a"}']),
    max_size=12,
)


@HOW_OFTEN
def test_no_bytes_of_a_json_record_reach_another(tmp_path: Path, many: int) -> None:
    @given(cells, st.integers(0, 5), wild_json, st.booleans())
    @settings(max_examples=many)
    def others(texts: list[str], place: int, wild: list[str], lines: bool) -> None:
        rows = [json.dumps({"text": text, "whole": 1}) for text in texts]
        place %= len(rows)
        head, between, tail = ("", "\n", "\n") if lines else ("[", ",", "]")
        written = [row + (between if i < len(rows) - 1 else "") for i, row in enumerate(rows)]
        replaced = "".join(wild) + (between if place < len(rows) - 1 else "")
        parts = [part.encode() for part in (head, *written, tail)]
        others_stay(tmp_path, "wild.json", SMALL, parts, place, replaced.encode())

    others()


baskets_of_items = st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=5)


@HOW_OFTEN
def test_no_bytes_of_a_transaction_reach_another(tmp_path: Path, many: int) -> None:
    @given(baskets_of_items, st.integers(0, 4), st.binary())
    @settings(max_examples=many)
    def others(baskets: list[list[int]], place: int, wild: bytes) -> None:
        rows = [" ".join(map(str, basket)).encode() + b"\n" for basket in baskets]
        domain = Domain((COLUMNS["item"],))
        others_stay(tmp_path, "wild.dat", domain, [b"", *rows, b""], place % len(rows), wild + b"\n")

    others()
