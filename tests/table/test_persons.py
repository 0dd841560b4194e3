"""Whose record a row is: at most K of a person, by a rule that looks at that person alone; baskets in long form."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import DataError, SchemaError
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.encoding import encode
from dualquery.table.persons import owners_of
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text

VISITS = Domain((Categorical("ward", ("a", "b", "c")), Categorical("stay", ("1", "2", "3", "4"))))
SCHEMA = Schema(VISITS, unit="patient")
BASKETS = Schema(Domain((Items("item", 9),)), unit="basket", long=True)
Row = tuple[Any, str, str]


def frame(rows: list[Row], names: tuple[str, ...] = ("patient", "ward", "stay")) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})


def kept(rows: list[Row], most: int) -> Counter[tuple[int, ...]]:
    return as_counter(encode(frame(rows), SCHEMA, records_per_person=most))


def as_counter(records: Records) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, records.to_rows().tolist()))


ids = st.sampled_from(["p", "q", "r", "s", "", " ", None])
rows = st.lists(st.tuples(ids, st.sampled_from("abc"), st.sampled_from("1234")), max_size=25)


def by_hand(table: list[Row], most: int) -> Counter[tuple[int, ...]]:
    """The rule of table/persons.py, one person at a time."""
    own: dict[str, list[tuple[int, int]]] = defaultdict(list)
    out: Counter[tuple[int, ...]] = Counter()
    for who, ward, stay in table:
        record = ("abc".index(ward), int(stay) - 1)
        if who is None or not who.strip():
            out[record] += 1
        else:
            own[who.strip()].append(record)
    for who, records in own.items():
        seed = int.from_bytes(
            hashlib.blake2b(who.encode(), digest_size=8, person=b"records kept").digest(), "big"
        )
        order = sorted(range(len(records)), key=lambda j: (ticket(seed, j), j))
        chosen = order[:most] if len(records) > most else order
        out.update(sorted(records)[j] for j in chosen)
    return out


def ticket(seed: int, place: int) -> int:
    """Number `place` of the stream of splitmix64."""
    mask = (1 << 64) - 1
    x = (seed + place * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


@given(rows, st.integers(1, 4))
def test_the_rule_is_what_it_says(table: list[Row], most: int) -> None:
    assert kept(table, most) == by_hand(table, most)


@given(rows, st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(table: list[Row], most: int, shuffler: Any) -> None:
    shuffled = list(table)
    shuffler.shuffle(shuffled)
    assert kept(shuffled, most) == kept(table, most)


@given(rows, rows, st.integers(1, 4))
def test_what_is_kept_of_a_person_depends_on_that_person_alone(
    others: list[Row], more: list[Row], most: int
) -> None:
    """Reading maps tables that differ in one person to records that differ in at most K on either side."""
    others = [row for row in others if row[0] != "p"]
    first, second = [("p", "a", "1")] * 3, [("p", ward, stay) for _, ward, stay in more]
    alone = kept(others, most)
    for mine in (first, second):
        assert kept([*others, *mine], most) == alone + kept(mine, most)
        assert kept(mine, most).total() == min(most, len(mine))


@given(rows)
def test_enough_room_keeps_everything(table: list[Row]) -> None:
    everything = encode(frame(table), SCHEMA)
    assert everything.records_per_person is None
    for most in (25, 10**6):
        limited = encode(frame(table), SCHEMA, records_per_person=most)
        assert limited.records_per_person == most
        np.testing.assert_array_equal(limited.to_rows(), everything.to_rows())


def test_no_code_is_favoured_and_nobody_loses_the_same() -> None:
    """1,000 persons with the same ten records keep 3 each: every record about as often."""
    wards = Domain((Categorical("ward", tuple("abcdefghij")),))
    table = pa.table({"patient": [f"p{i // 10}" for i in range(10_000)], "ward": list("abcdefghij") * 1000})
    found = encode(table, Schema(wards, unit="patient"), records_per_person=3).columns[0]
    counts = np.bincount(np.asarray(found), minlength=10)
    assert counts.sum() == 3000
    assert np.abs(counts - 300).max() < 5 * np.sqrt(210)
    smaller = as_counter(encode(table, Schema(wards, unit="patient"), records_per_person=2))
    assert not smaller - as_counter(encode(table, Schema(wards, unit="patient"), records_per_person=3))


def test_a_person_with_baskets_keeps_k_of_them() -> None:
    """Lists of items are records like others, in whatever order they stand."""
    schema = Schema(Domain((Categorical("shop", ("e", "w")), Items("item", 9))), unit="who")
    lists = [[1, 2], [2, 1], [9], [], [3, 4, 5], [1]]
    table = {"who": ["x"] * 6, "shop": list("eewwew"), "item": lists}
    seen = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 4, 2, 0], [2, 5, 0, 1, 3, 4]):
        shuffled = pa.table({name: [cells[i] for i in order] for name, cells in table.items()})
        seen.append(as_counter(encode(shuffled, schema, records_per_person=4)))
    assert seen[0].total() == 4
    assert seen[0] == seen[1] == seen[2]
    assert not seen[0] - as_counter(encode(pa.table(table), schema))


# ── Ids ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def groups(cells: Any) -> list[list[int]]:
    """The rows of each person."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, owner in enumerate(owners_of(pa.chunked_array([cells]), "id").of.tolist()):
        found[owner].append(row)
    return sorted(found.values())


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([17, 18, 17, None, None]),
        pa.array([17.0, 18.0, 17.0, float("nan"), None]),
        pa.array(["17", "18", " 17.0 ", "", " "]),
        pa.array(["17", "18", "17", None, None]).dictionary_encode(),
        pa.array([True, False, True, None, None]),
        pa.array([b"17", b"18", b"17", None, b""]),
    ],
    ids=["whole", "float", "text", "dictionary", "truth", "binary"],
)
def test_ids_of_any_type_tell_the_same_persons_apart(cells: Any) -> None:
    """Blank ids are persons of their own."""
    assert groups(cells) == [[0, 2], [1], [3], [4]]


def test_close_ids_are_other_persons() -> None:
    assert groups(pa.array(["7", "07", "a", "A", "7.5", "-0", "0"])) == [[0], [1], [2], [3], [4], [5], [6]]


def test_only_blank_ids() -> None:
    for cells in (pa.nulls(3), pa.array(["", " ", None]), pa.array([], pa.string())):
        assert groups(cells) == [[row] for row in range(len(cells))]
    table = frame([(None, "a", "1")] * 5)
    assert encode(table, SCHEMA, records_per_person=1).rows == 5


def test_ids_that_floats_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(DataError, match="too large to be told apart; give ids as texts"):
        groups(pa.array([2.0**53, 1.0]))
    assert groups(pa.array([2**53, 2**53 + 1])) == [[0], [1]]


def test_ids_of_several_types_are_read_each_by_itself() -> None:
    mixed = pd.DataFrame({"patient": [1, "1", 2.5], "ward": list("abc"), "stay": list("123")})
    texts = mixed.assign(patient=["1", "1", "2.5"])
    found, wanted = (encode(each, SCHEMA, records_per_person=1) for each in (mixed, texts))
    assert found.to_rows().tolist() == wanted.to_rows().tolist()
    assert found.rows == 2
    with pytest.raises(DataError, match="too large to be told apart"):
        encode(mixed.assign(patient=[1, "1", 1e17]), SCHEMA, records_per_person=2)
    lists = pa.table({"patient": [[1], [2]], "ward": ["a", "b"], "stay": ["1", "2"]})
    with pytest.raises(DataError, match="'patient' are neither texts nor numbers"):
        encode(lists, SCHEMA, records_per_person=2)


# ── Sources ─────────────────────────────────────────────────────────────────────────────────────────────────────

TABLE: list[Row] = [(f"{n % 7}" if n % 5 else None, "abc"[n % 3], "1234"[n * n % 4]) for n in range(60)]


def as_text(table: pa.Table) -> str:
    lines = [",".join(table.column_names)]
    lines += [",".join("" if cell is None else cell for cell in row.values()) for row in table.to_pylist()]
    return "\n".join(lines) + "\n"


def as_parquet(table: pa.Table, path: Path) -> Path:
    pyarrow.parquet.write_table(table, path)
    return path


SOURCES: dict[str, Callable[[pa.Table, Path], object]] = {
    "csv": lambda table, folder: saved(folder / "t.csv", as_text(table).encode()),
    "txt.gz": lambda table, folder: saved(folder / "t.txt.gz", gzip.compress(as_text(table).encode())),
    "parquet": lambda table, folder: as_parquet(table, folder / "t.parquet"),
    "json": lambda table, folder: saved(folder / "t.json", json.dumps(table.to_pylist()).encode()),
    "pandas": lambda table, folder: table.to_pandas(),
    "polars": lambda table, folder: pl.from_arrow(table),
}


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_records(source: str, tmp_path: Path) -> None:
    found = encode(SOURCES[source](frame(TABLE), tmp_path), SCHEMA, records_per_person=3)  # type: ignore[arg-type]
    assert as_counter(found) == by_hand(TABLE, 3)


def test_a_unit_that_is_not_there_is_an_error_only_where_it_is_needed(tmp_path: Path) -> None:
    path = saved(tmp_path / "t.csv", b"ward,stay\na,1\nb,2\n")
    with pytest.raises(
        DataError, match="has no column 'patient'; its columns must be named as in the schema"
    ):
        encode(path, SCHEMA, records_per_person=2)
    assert encode(path, SCHEMA).rows == 2  # an evaluation looks at all records, whoever has them


def test_records_per_person_need_a_unit() -> None:
    for schema in (Schema(VISITS), BASKETS):
        with pytest.raises(DataError, match="need a schema that says whose record a row is: unit"):
            encode(frame(TABLE), schema, records_per_person=2)
    with pytest.raises(DataError, match="at least one record"):
        encode(frame(TABLE), SCHEMA, records_per_person=0)


def test_rows_are_dropped_before_persons_are_limited() -> None:
    """A dropped row is no record, and takes no place."""
    schema = Schema(VISITS, drop_rows_containing="c", unit="patient")
    table = frame([("p", "c", "1")] * 9 + [("p", "a", "2"), ("c", "b", "3")])
    assert as_counter(encode(table, schema, records_per_person=1)) == {(0, 1): 1, (1, 2): 1}


# ── Baskets in long form ────────────────────────────────────────────────────────────────────────────────────────


def sets_of(records: Records) -> Counter[tuple[int, ...]]:
    return Counter(tuple((np.flatnonzero(row) + 1).tolist()) for row in records.to_rows())


LONG = [("x", "3"), ("y", "1"), ("x", "1"), (None, "9"), ("x", "3"), ("y", None), ("z", None), ("", "9")]
WHOLE = Counter({(1, 3): 1, (1,): 1, (): 1, (9,): 2})


@pytest.mark.parametrize("source", SOURCES)
def test_all_rows_of_a_basket_are_one_record(source: str, tmp_path: Path) -> None:
    """A row without an item is a basket all the same, and one without a basket is one of its own."""
    table = frame([(*row, "") for row in LONG], ("basket", "item"))
    assert sets_of(encode(SOURCES[source](table, tmp_path), BASKETS)) == WHOLE  # type: ignore[arg-type]


def test_numbers_and_lists_of_items_will_do() -> None:
    table = pa.table({"basket": [1, 2, 1], "item": [3, 1, 1]})
    assert sets_of(encode(table, BASKETS)) == {(1, 3): 1, (1,): 1}
    table = pa.table({"basket": [1, 2, 1], "item": [[3], [1], [1, 4]]})
    assert sets_of(encode(table, BASKETS)) == {(1, 3, 4): 1, (1,): 1}
    assert (
        encode(pa.table({"basket": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}), BASKETS).rows
        == 0
    )
    with pytest.raises(DataError, match="item ids outside 1 to 9"):
        encode(pa.table({"basket": [1], "item": [10]}), BASKETS)


long_rows = st.lists(st.tuples(st.sampled_from(["x", "y", "z", None]), st.integers(1, 9)), max_size=20)


@given(long_rows, long_rows, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_one_basket_changed_is_one_record_changed(
    table: list[tuple[str | None, int]], more: list[tuple[str | None, int]], shuffler: Any
) -> None:
    others = [row for row in table if row[0] != "x"]
    mine = [("x", item) for _, item in more]
    together = [*others, *mine]
    shuffler.shuffle(together)

    def read(rows: list[tuple[str | None, int]]) -> Counter[tuple[int, ...]]:
        arrays = {"basket": pa.array([b for b, _ in rows], pa.string()), "item": [i for _, i in rows]}
        return sets_of(encode(pa.table({**arrays, "item": pa.array(arrays["item"], pa.int64())}), BASKETS))

    expected = Counter([tuple(sorted({item for _, item in mine}))]) if mine else Counter()
    assert read(together) == read(others) + expected


# ── The schema ──────────────────────────────────────────────────────────────────────────────────────────────────

ATTRIBUTE = '[[attribute]]\nname = "ward"\nvalues = ["a", "b"]\n'
BLOCK = '[[attribute]]\nname = "item"\ncount = 9\n'


@pytest.mark.parametrize("schema", [SCHEMA, BASKETS, Schema(VISITS, "?", True, 'odd "name"')], ids=str)
def test_the_schema_is_written_as_it_is_read(schema: Schema) -> None:
    assert parse_schema(schema_text(schema), origin="here") == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'[table]\nunit = "ward"\n{ATTRIBUTE}', "'ward' is both the unit and an attribute; a unit is never"),
        (f'[table]\nunit = " ward "\n{ATTRIBUTE}', "both the unit and an attribute"),
        (f'[table]\nunit = " "\n{ATTRIBUTE}', "'unit' must be the name of a column"),
        (f"[table]\nunit = 3\n{ATTRIBUTE}", "'unit' must be a text in quotes"),
        (f'unit = "id"\n{ATTRIBUTE}', r"'unit' belongs into the section \[table\]"),
        (f"[table]\nlong = true\n{BLOCK}", "'long' needs 'unit'"),
        (f'[table]\nunit = "id"\nlong = true\n{ATTRIBUTE}', "must be one attribute with 'count'"),
        (f'[table]\nunit = "id"\nlong = true\n{ATTRIBUTE}{BLOCK}', "must be one attribute with 'count'"),
        (
            f'[table]\nunit = "id"\nlong = true\ndrop_rows_containing = "?"\n{BLOCK}',
            "and drop no rows",
        ),
        (f'[table]\nunit = "id"\nlong = "yes"\n{BLOCK}', "'long' must be true or false"),
    ],
)
def test_units_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_schema(text, origin="here")
