"""A table in blocks, from any kind of file and in any number of parts, counts as the table in memory does."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dualquery.counting import MemoryCounter, SpilledCounter
from dualquery.counting.opening import block_rows, open_counter
from dualquery.errors import DataError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.queries.binary import HeldPairs
from dualquery.queries.families import from_spec
from dualquery.releases.make import release
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.encoding import bin_of, encode, record_blocks
from dualquery.table.schema import Schema

PEOPLE = Schema(
    Domain(
        (
            Categorical("region", ("north", "south", "west")),
            Numeric("age", (0.0, 20.0, 40.0, 60.0, 120.0)),
            Categorical("sex", ("f", "m")),
        )
    )
)
QUERIES = ["marginals:2", "random:3:200"]


def people(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "sex": rng.choice(["f", "m"], rows),
            "age": rng.integers(0, 120, rows),
            "region": rng.choice(["north", "south", "west"], rows, p=[0.5, 0.3, 0.2]),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=100)
    elif path.suffix == ".gz":
        with gzip.open(path, "wb") as stream:
            pa.csv.write_csv(table, stream)
    elif path.suffix == ".ndjson":
        path.write_text(table.to_pandas().to_json(orient="records", lines=True))
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table)
    else:
        pa.csv.write_csv(table, path)


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".csv.gz", ".ndjson", ".arrow"])
@pytest.mark.parametrize("cuts", [(0, 1000), (0, 1, 333, 334, 999, 1000)])
def test_a_table_in_blocks_counts_as_the_table(tmp_path: Path, kind: str, cuts: tuple[int, ...]) -> None:
    table = people(1000)
    for number, (first, last) in enumerate(pairwise(cuts)):
        write(table.slice(first, last - first), tmp_path / f"part-{number}{kind}")
    pattern = str(tmp_path / f"part-*{kind}")
    inside = MemoryCounter(encode(table, PEOPLE))
    outside = SpilledCounter(PEOPLE.domain, record_blocks(pattern, PEOPLE, rows=70), rows=64)
    assert outside.true_rows == inside.true_rows == encode(pattern, PEOPLE).rows == 1000
    for group in from_spec(PEOPLE.domain, QUERIES).groups:
        assert np.array_equal(outside.true_counts(group), inside.true_counts(group))
    outside.close()


def test_items_and_pairs_of_items_lie_on_disk_as_in_memory(tmp_path: Path) -> None:
    schema = Schema(Domain((Items("basket", 40, first=0),)))
    rng = np.random.default_rng(1)
    lines = [" ".join(map(str, rng.choice(40, rng.integers(0, 9), replace=False))) for _ in range(500)]
    (tmp_path / "a.dat").write_text("\n".join(lines[:300]) + "\n")
    (tmp_path / "b.dat").write_text("\n".join(lines[300:]))
    pattern = str(tmp_path / "*.dat")
    outside = SpilledCounter(schema.domain, record_blocks(pattern, schema, rows=3), rows=50)
    inside = MemoryCounter(encode(pattern, schema))
    assert outside.true_rows == inside.true_rows == 500
    for countable in (HeldPairs(0, np.arange(40), 40, 5), from_spec(schema.domain, ["random:3:50"])):
        assert np.array_equal(outside.true_counts(countable), inside.true_counts(countable))


@pytest.mark.parametrize("most", [1, 3])
def test_a_person_keeps_the_same_records_in_any_number_of_parts(tmp_path: Path, most: int) -> None:
    table = people(600, seed=2)
    who = np.random.default_rng(3).choice([*map(str, range(80)), " ", ""], 600)
    table = table.append_column("person", pa.array(who))
    schema = Schema(PEOPLE.domain, unit="person")
    for number in range(5):
        write(table.slice(120 * number, 120), tmp_path / f"{number}.csv")
    whole = encode(table, schema, records_per_person=most)
    blocks = record_blocks(str(tmp_path / "*.csv"), schema, rows=50, records_per_person=most)
    outside = SpilledCounter(schema.domain, blocks, rows=64, records_per_person=most)
    assert outside.records_per_person == most
    group = from_spec(schema.domain, ["marginals:3"]).groups[0]
    assert np.array_equal(outside.true_counts(group), MemoryCounter(whole).true_counts(group))


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".ndjson", ".arrow"])
def test_whether_a_streamed_table_of_persons_is_empty_is_not_told(tmp_path: Path, kind: str) -> None:
    table = people(3).append_column("person", pa.array(["a", "b", "b"]))
    schema = Schema(PEOPLE.domain, unit="person")
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.named("person-add-remove", 2))
    for rows in (0, 1):
        path = tmp_path / f"{rows}{kind}"
        write(table.slice(0, rows), path)
        counter = open_counter(path, schema, records_per_person=2, memory=1)
        assert isinstance(counter, SpilledCounter)
        made = release(counter, schema=schema, workload="marginals:1", budget=budget, seed=1, public_rows=100)
        assert made.certificate["budget"]["records_per_person"] == 2


def test_long_baskets_are_put_together_across_parts(tmp_path: Path) -> None:
    schema = Schema(Domain((Items("item", 12, first=0),)), unit="basket", long=True)
    rng = np.random.default_rng(4)
    table = pa.table(
        {"basket": rng.integers(0, 60, 400), "item": [[int(i)] for i in rng.integers(0, 12, 400)]}
    )
    for number in range(4):
        write(table.slice(100 * number, 100), tmp_path / f"{number}.parquet")
    outside = SpilledCounter(
        schema.domain, record_blocks(str(tmp_path / "*.parquet"), schema, rows=30), rows=16
    )
    inside = MemoryCounter(encode(table, schema))
    assert outside.true_rows == inside.true_rows
    group = from_spec(schema.domain, ["random:2:60"]).groups[0]
    assert np.array_equal(outside.true_counts(group), inside.true_counts(group))


def test_the_rows_of_a_person_fall_into_one_bin_however_the_id_is_written() -> None:
    ids = pa.chunked_array([pa.array(["17", " 17 ", "17.0", "x", None, ""])])
    assert len(set(bin_of(ids, "id", 1 << 20)[:3].tolist())) == 1
    assert bin_of(ids, "id", 1 << 20)[3] != bin_of(ids, "id", 1 << 20)[0]


def test_a_release_is_the_same_with_little_memory(tmp_path: Path) -> None:
    table = people(5000, seed=5)
    for number in range(3):
        write(table.slice(1700 * number, 1700), tmp_path / f"{number}.parquet")
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)

    def rows_of(source: object, **options: object) -> np.ndarray:
        made = release(
            source,  # type: ignore[arg-type]
            schema=PEOPLE,
            workload="marginals:2",
            budget=budget,
            seed=7,
            public_rows=5000,
            synthetic_rows=2000,
            **options,
        )
        assert made.records is not None
        return made.records.to_rows()

    pattern = str(tmp_path / "*.parquet")
    counter = SpilledCounter(PEOPLE.domain, record_blocks(pattern, PEOPLE, rows=500), rows=700)
    expected = rows_of(table)
    assert np.array_equal(rows_of(pattern), expected)
    assert np.array_equal(rows_of(counter), expected)


def test_what_does_not_fit_is_spilled_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    write(people(20_000), tmp_path / "people.csv")
    told: list[tuple[str, int, int]] = []
    counter = open_counter(
        tmp_path / "people.csv", PEOPLE, memory=100_000, tell=lambda *stage: told.append(stage)
    )
    assert isinstance(counter, SpilledCounter)
    assert counter.true_rows == 20_000
    assert list(folder.iterdir()) == []
    assert told[-1][1] == told[-1][2] == (tmp_path / "people.csv").stat().st_size
    assert told[-1][0].startswith("reading the table: ")
    assert told[-1][0].endswith(" rows a second")
    assert isinstance(open_counter(tmp_path / "people.csv", PEOPLE), MemoryCounter)


def test_fewer_records_are_held_at_once_where_memory_is_short() -> None:
    assert block_rows(PEOPLE, 2_000_000_000) > block_rows(PEOPLE, 20_000_000) >= 4096


def test_a_part_without_a_column_or_of_another_kind_is_named(tmp_path: Path) -> None:
    table = people(50)
    write(table, tmp_path / "a.parquet")
    write(table.drop_columns(["sex"]), tmp_path / "b.parquet")
    pattern = str(tmp_path / "*.parquet")
    for reading in (lambda: list(record_blocks(pattern, PEOPLE, rows=10)), lambda: encode(pattern, PEOPLE)):
        with pytest.raises(DataError, match=r"b\.parquet.*no column 'sex'"):
            reading()
    other = table.set_column(1, "age", table.column("age").cast(pa.string()))
    write(other, tmp_path / "b.parquet")
    for reading in (lambda: list(record_blocks(pattern, PEOPLE, rows=10)), lambda: encode(pattern, PEOPLE)):
        with pytest.raises(DataError, match=r"b\.parquet.*column 'age' holds string there and int64"):
            reading()
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    for reading in (lambda: list(record_blocks(pattern, PEOPLE, rows=10)), lambda: encode(pattern, PEOPLE)):
        with pytest.raises(DataError, match=r"b\.parquet.*cut short"):
            reading()
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "b.parquet").symlink_to(tmp_path / "elsewhere" / "b.parquet")
    for reading in (lambda: list(record_blocks(pattern, PEOPLE, rows=10)), lambda: encode(pattern, PEOPLE)):
        with pytest.raises(DataError, match=r"b\.parquet"):
            reading()
    with pytest.raises(DataError, match="no file matches"):
        encode(str(tmp_path / "*.csv"), PEOPLE)


def test_a_ragged_line_at_the_end_stops_before_anything_is_counted(tmp_path: Path) -> None:
    write(people(5000), tmp_path / "people.csv")
    with (tmp_path / "people.csv").open("a") as out:
        out.write("f,3\n")
    with pytest.raises(DataError, match="more or fewer cells"):
        SpilledCounter(PEOPLE.domain, record_blocks(tmp_path / "people.csv", PEOPLE, rows=100), rows=100)
