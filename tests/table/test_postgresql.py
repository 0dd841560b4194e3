"""A table of a real PostgreSQL server reads as the same table from a file, in memory and in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest

from dualquery.cli import run
from dualquery.counting import MemoryCounter, SpilledCounter
from dualquery.counting.opening import open_counter
from dualquery.errors import DataError
from dualquery.queries.families import from_spec
from dualquery.table.database import Database
from dualquery.table.dates import dates
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.reading.postgresql import PostgresTable
from dualquery.table.schema import Schema, parse_schema, schema_text
from tests.counting.test_streams import PEOPLE, people
from tests.ledger.conftest import Server, server  # noqa: F401 - a fixture
from tests.table.test_drafts import completed, drafted_database

ROWS = 3000


@pytest.fixture(scope="module")
def url(server: Server) -> str:  # noqa: F811
    made = server.new_database()
    table = people(ROWS)
    with psycopg.connect(made) as connection:
        connection.execute('CREATE TABLE people (sex text, age double precision, "region" varchar(20))')
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE VIEW other.grown AS SELECT * FROM people WHERE age >= 20")
    return made


def test_a_table_of_a_database_counts_as_the_same_file(url: str) -> None:
    inside = MemoryCounter(encode(people(ROWS), PEOPLE))
    source = PostgresTable(url, "people")
    whole = MemoryCounter(encode(source, PEOPLE))
    parts = SpilledCounter(PEOPLE.domain, record_blocks(source, PEOPLE, rows=500), rows=256)
    for group in from_spec(PEOPLE.domain, ["marginals:2", "random:3:200"]).groups:
        expected = inside.true_counts(group)
        assert np.array_equal(whole.true_counts(group), expected)
        assert np.array_equal(parts.true_counts(group), expected)


def test_a_view_is_read_in_a_stream_whatever_it_holds(url: str) -> None:
    assert isinstance(open_counter(PostgresTable(url, "people"), PEOPLE), MemoryCounter)
    assert isinstance(open_counter(PostgresTable(url, "people"), PEOPLE, memory=1000), SpilledCounter)
    grown = open_counter(PostgresTable(url, "other.grown"), PEOPLE)
    assert isinstance(grown, SpilledCounter)
    assert grown.true_rows == int((np.array(people(ROWS)["age"]) >= 20).sum())


def test_cells_of_every_type_are_written_as_a_schema_lists_them(url: str) -> None:
    schema = Schema(
        Domain(
            (
                Categorical("happy", ("true", "false", "unknown"), missing="unknown"),
                Categorical("code", ("007", 'a "quoted", one\nin two lines', "")),
                Categorical("day", ("2024-02-29", "1999-12-31")),
                Numeric("paid", (0.0, 1.5, 10.0), missing="missing"),
                Items("basket", 4, first=0),
            )
        )
    )
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE mixed (basket integer[], happy boolean, code text, day date, paid numeric(8, 2), more text)"
        )
        rows: list[tuple[Any, ...]] = [
            ([0, 3], True, "007", "2024-02-29", 1.5, "x"),
            ([], None, 'a "quoted", one\nin two lines', "1999-12-31", None, "y"),
            ([2], False, "", "1999-12-31", 1.49, "z"),
        ]
        connection.cursor().executemany("INSERT INTO mixed VALUES (%s, %s, %s, %s, %s, %s)", rows)
    records = encode(PostgresTable(url, "mixed"), schema)
    assert records.to_rows().tolist() == [
        [0, 0, 0, 1, 1, 0, 0, 1],
        [2, 1, 1, 2, 0, 0, 0, 0],
        [1, 2, 1, 0, 0, 0, 1, 0],
    ]


def test_what_cannot_be_read_is_said_without_the_password(url: str, server: Server) -> None:  # noqa: F811
    wrong = url.replace(server.password, "wrong")
    for address, name, words in [
        (url, "nobody", "there is no table 'nobody'"),
        (wrong, "people", "cannot be reached"),
        (url.replace(str(server.port), "1"), "people", "cannot be reached"),
        (url, "other.grown.more", "--table"),
        (url, "", "--table"),
    ]:
        with pytest.raises(DataError, match=words) as caught:
            encode(PostgresTable(address, name), PEOPLE)
        assert server.password not in str(caught.value)
        assert "wrong" not in str(caught.value)
    schema = Schema(Domain((Categorical("colour", ("red", "blue")),)))
    with pytest.raises(DataError, match="table 'people' of the database has no column 'colour'"):
        encode(PostgresTable(url, "people"), schema)
    with pytest.raises(DataError, match="--table people"):
        encode(url, PEOPLE)
    assert server.password not in repr(PostgresTable(url, "people"))


def test_a_server_that_breaks_off_is_an_error_and_not_a_shorter_table(url: str) -> None:
    source = PostgresTable(url, "generate")
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE VIEW generate AS SELECT 'f' AS sex, 3 AS age, 'north' AS region, "
            "1 / (200000 - n) AS broken FROM generate_series(1, 200001) n"
        )
    with pytest.raises(DataError, match="SQLSTATE 22012"):
        SpilledCounter(
            PEOPLE.domain,
            record_blocks(source, Schema(Domain((*PEOPLE.domain.columns, _BROKEN))), rows=500),
            rows=64,
        )


_BROKEN = Numeric("broken", (-1.0, 0.0, 1.0))


def test_release_from_a_database(url: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(schema_text(PEOPLE))
    command = ["release", url, "--schema", str(schema), "--queries", "marginals:2", "--epsilon", "1"]
    assert run([*command, "--table", "nobody", "--out", str(tmp_path / "made"), "--quiet"]) == 2
    assert not (tmp_path / "made").exists()
    assert (
        run([*command, "--table", "people", "--out", str(tmp_path / "made"), "--seed", "1", "--quiet"]) == 0
    )
    assert (tmp_path / "made" / "certificate.json").exists()
    assert url not in (tmp_path / "made" / "certificate.json").read_text()


def test_typed_cells_are_in_no_notation_of_texts(server: Server) -> None:  # noqa: F811
    made = server.new_database()
    with psycopg.connect(made) as connection:
        connection.execute("CREATE TABLE t (price numeric(9, 3), written text, day date, at timestamptz)")
        connection.execute("INSERT INTO t VALUES (1.234, '1.234', '2024-03-04', '2024-03-04 09:30+00')")
        connection.execute("INSERT INTO t VALUES (1234, '1,2', '1900-01-01', NULL)")
    columns = (
        *(Numeric(name, (0.0, 2.0, 2000.0), decimal_comma=True) for name in ("price", "written")),
        *(
            dates(name, "2024-03-01", "2024-03-05", format="%Y-%d-%m", missing="none", empty=("1900-01-01",))
            for name in ("day", "at")
        ),
    )
    source = PostgresTable(made, "t")
    expected = [[0, 1, 3, 3], [1, 0, 5, 5]]
    assert encode(source, Domain(columns)).to_rows().tolist() == expected
    blocks = record_blocks(source, Schema(Domain(columns)), rows=1)
    assert [row for block in blocks for row in block.to_rows().tolist()] == expected


def test_a_schema_is_drafted_from_a_table_of_a_database_and_held_against_it(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, inside, outside = (tmp_path / name for name in ("people.parquet", "inside.toml", "outside.toml"))
    pq.write_table(people(ROWS), file)
    assert run(["schema", "draft", str(file), "--out", str(outside), "--quiet"]) == 0
    assert run(["schema", "draft", url, "--table", "people", "--out", str(inside), "--quiet"]) == 0
    assert inside.read_text().partition("[[")[2] == outside.read_text().partition("[[")[2]
    lines = [line for line in inside.read_text().splitlines() if not line.startswith("draft = true")]
    inside.write_text("\n".join(lines).replace("  # from the data", ""))
    assert run(["schema", "check", str(inside), url, "--table", "people", "--quiet"]) == 0
    assert run(["schema", "check", str(inside), str(file), "--table", "people"]) == 2
    assert "--table names a table of a database" in capsys.readouterr().err


def test_keys_of_a_database_are_drafted_without_a_look_at_cells(server: Server) -> None:  # noqa: F811
    made = server.new_database()
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("CREATE TYPE sexes AS ENUM ('female', 'male')")
        connection.execute(
            "CREATE TABLE household (hh integer PRIMARY KEY, region text NOT NULL, owns boolean NOT NULL)"
        )
        connection.execute('CREATE TABLE "Job" (code text PRIMARY KEY, skill text)')
        connection.execute(
            "CREATE TABLE person (pid serial PRIMARY KEY, hh integer REFERENCES household, sex sexes, age integer, "
            'job text REFERENCES "Job", partner integer REFERENCES person)'
        )
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.hidden (hh integer REFERENCES household)")
        # Whoever may not read a cell may read the structure.
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'plain'")
    clerk = made.replace(made.split("//")[1].split("@")[0], "clerk:plain")
    text = drafted_database(clerk, "--public", "Job")
    found = parse_schema(completed(text), origin="t").domain
    assert isinstance(found, Database)
    assert [column.name for column in found.root.own] == ["region", "owns"]
    assert found.root.own[1].labels == ("true", "false")
    person = found.child("person")
    assert [column.name for column in person.own] == ["sex", "age"]
    assert person.own[0].labels == ("female", "male", "missing")
    assert [(each.name, each.key, each.link) for each in person.lookups] == [("Job", "code", "job")]
    assert "hidden" not in text
    with psycopg.connect(made) as connection:
        connection.execute("INSERT INTO household VALUES (1, '1', true), (2, '2', false)")
        connection.execute(
            "INSERT INTO person (hh, sex, age) VALUES (1, 'male', 2), (1, NULL, 1), (2, 'female', 1)"
        )
        connection.execute("INSERT INTO \"Job\" VALUES ('x', '1')")
    schema = parse_schema(completed(text).replace('["1", "2"]', '["1", "2", ""]'), origin="t")
    assert encode(made, schema).rows == 2
