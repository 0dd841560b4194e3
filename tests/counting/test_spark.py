"""Counting by Spark gives the numbers of one machine; `test_spark_cluster` has executors, and kills one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.cli import run
from dualquery.counting import MemoryCounter, is_spark_frame
from dualquery.counting.opening import open_counter
from dualquery.counting.spark import SparkCounter
from dualquery.errors import DataError, DualQueryError
from dualquery.queries.distances import distances_to
from dualquery.queries.families import from_spec
from dualquery.releases.make import release
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.graph import graph_of
from dualquery.table.points import GRID, points_of
from dualquery.table.schema import Schema, schema_text
from tests.counting.test_streams import PEOPLE, people
from tests.counting.test_units import SCHEMA as UNITS
from tests.counting.test_units import same_counts
from tests.table.test_linking import at_random, frames

pytest.importorskip("pyspark")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("there is no Java here; install openjdk-17-jre-headless", allow_module_level=True)

from dualquery.counting import spark as spark_module

MASTER = "local[2]"


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    # Java compiles little of what runs for seconds only, and needs no threads to collect garbage in.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    opened = spark_module.open_session(MASTER)
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    who = np.random.default_rng(3).choice([*map(str, range(300)), " "], 4000)
    return people(4000, seed=1).append_column("person", pa.array(who))


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    for number in range(4):
        pa.parquet.write_table(table.slice(1000 * number, 1000), folder / f"part-{number}.parquet")
    return folder


def test_spark_counts_as_one_machine(
    session: Any, table: pa.Table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark_module.spark_frame(str(folder / "part-*.parquet"), ["age", "sex"], MASTER)
    assert is_spark_frame(frame)
    inside, outside = MemoryCounter(encode(table, PEOPLE)), SparkCounter(frame, PEOPLE)
    assert outside.true_rows == 4000
    for group in from_spec(PEOPLE.domain, ["marginals:2", "random:3:200"]).groups:
        assert np.array_equal(outside.true_counts(group), inside.true_counts(group))
    monkeypatch.setattr("dualquery.counting.spark.AT_ONCE", 0)  # by a tree
    assert np.array_equal(outside.true_counts(group), inside.true_counts(group))
    outside.close()


def test_points_and_edges_of_owners_count_as_in_memory(session: Any) -> None:
    rng = np.random.default_rng(2)
    places = points_of({"lat": (47.0, 55.0), "lon": (5.0, 15.0)})
    held = pa.table({"lat": rng.uniform(47, 55, 500), "lon": rng.uniform(5, 15, 500)})
    ends = graph_of(("a", "b", "c", "d"), source="payer", target="payee")
    edges = pa.table({name: rng.choice(list("abcd"), 500) for name in ("payer", "payee")})
    far = distances_to(places, rng.integers(GRID + 1, size=(50, 2)))
    cuts = from_spec(ends, "cuts:random:20").groups[0]
    for schema, table, most, group in (
        (Schema(places), held, None, far),
        (Schema(ends, unit="payer"), edges, 7, cuts),  # whose column is read once, and owns
    ):
        frame = session.createDataFrame(table.to_pylist()).repartition(3)
        outside = SparkCounter(frame, schema, records_per_person=most)
        inside = MemoryCounter(encode(table, schema, records_per_person=most))
        assert outside.true_rows == inside.true_rows == (500 if most is None else 28)
        assert np.array_equal(outside.true_counts(group), inside.true_counts(group))
        outside.close()


def test_units_count_as_in_memory(session: Any, tmp_path: Path) -> None:
    database = frames(*at_random(3, keys=200))
    parts = {name: session.createDataFrame(each.fillna("")).repartition(3) for name, each in database.items()}
    same_counts(open_counter(parts, UNITS), open_counter(database, UNITS))
    for name, each in parts.items():
        each.write.parquet(str(tmp_path / f"{name}.parquet"))
    (tmp_path / "schema.toml").write_text(schema_text(UNITS), encoding="utf-8")
    given = ["--queries", "marginals:1", "--epsilon", "1", "--delta", "1e-6", "--neighbours", "add-remove"]
    where = ["--schema", str(tmp_path / "schema.toml"), "--out", str(tmp_path / "out"), "--rows", "50"]
    spark = ["--engine", "spark", "--master", MASTER, "--check", "0"]
    assert run(["release", str(tmp_path), *where, *given, *spark, "--quiet"]) == 0
    assert (tmp_path / "out" / "car.parquet").is_file()
    with pytest.raises(DataError, match="table 'person' is no Spark frame"):
        open_counter({**parts, "person": database["person"]}, UNITS)


def test_persons_are_brought_together_before_their_records_are_limited(
    session: Any, table: pa.Table, folder: Path
) -> None:
    schema = Schema(PEOPLE.domain, unit="person")
    outside = SparkCounter(session.read.parquet(str(folder)), schema, records_per_person=2)
    inside = MemoryCounter(encode(table, schema, records_per_person=2))
    group = from_spec(PEOPLE.domain, ["marginals:3"]).groups[0]
    assert outside.true_rows == inside.true_rows
    assert np.array_equal(outside.true_counts(group), inside.true_counts(group))


def test_a_release_from_a_spark_frame_is_that_of_the_table(
    session: Any, table: pa.Table, folder: Path
) -> None:
    from dualquery.privacy.budget import Accounting, Budget, Neighbours

    budget = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    made = [
        release(
            source, schema=PEOPLE, workload="marginals:2", budget=budget, seed=1, synthetic_rows=500
        ).records
        for source in (table, session.read.parquet(str(folder)))
    ]
    assert np.array_equal(made[0].to_rows(), made[1].to_rows())  # type: ignore[union-attr]


def test_a_cell_without_a_place_is_one_sentence(session: Any, folder: Path) -> None:
    schema = Schema(Domain((Categorical("region", ("north", "south")),)))
    with pytest.raises(DataError, match="column 'region' holds values that the schema does not list"):
        SparkCounter(session.read.parquet(str(folder)), schema)


def test_a_part_without_a_column_or_of_another_kind_is_named(
    session: Any, table: pa.Table, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    pa.parquet.write_table(table.drop_columns(["age"]), tmp_path / "part-9.parquet")
    with pytest.raises(DataError, match=r"part-9\.parquet.*no column 'age'"):
        spark_module.spark_frame(str(tmp_path), ["age", "sex"], MASTER)
    texts = table.set_column(1, "age", table.column("age").cast(pa.string()))
    pa.parquet.write_table(texts, tmp_path / "part-9.parquet")
    with pytest.raises(DataError, match=r"part-9\.parquet.*column 'age' holds string"):
        spark_module.spark_frame(str(tmp_path), ["age", "sex"], MASTER)
    (tmp_path / "part-9.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DualQueryError, match="part-9"):
        spark_module.spark_frame(str(tmp_path), ["age", "sex"], MASTER)


def test_what_spark_cannot_read_is_said_in_one_sentence(session: Any, tmp_path: Path) -> None:
    with pytest.raises(DualQueryError, match="PATH_NOT_FOUND"):
        spark_module.spark_frame(str(tmp_path / "nothing"), ["age"], MASTER)
    with pytest.raises(DataError, match="is Parquet"):
        spark_module.spark_frame("people.csv", ["age"], MASTER)


def test_without_java_the_thing_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DualQueryError, match="openjdk-17-jre-headless"):
        spark_module.open_session("local[1]")


def test_a_master_that_is_none_is_named() -> None:
    with pytest.raises(DualQueryError, match="got 'flink'"):
        spark_module.open_session("flink")
    with pytest.raises(DualQueryError, match="no Spark Connect server answers at"):
        spark_module.open_session("sc://127.0.0.1:1")


def test_release_engine_spark(session: Any, table: pa.Table, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(schema_text(PEOPLE))
    command = ["release", f"{folder}/part-*.parquet", "--schema", str(tmp_path / "schema.toml"), "--queries"]
    command += ["marginals:2", "--epsilon", "1", "--seed", "1", "--synthetic-rows", "500", "--quiet"]
    assert run([*command, "--engine", "spark", "--master", MASTER, "--out", str(tmp_path / "spark")]) == 0
    assert run([*command, "--out", str(tmp_path / "here")]) == 0
    made = [json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("spark", "here")]
    assert [each["engine"] for each in made] == ["Spark", "one machine"]
    assert made[0]["files"]["synthetic.parquet"] == made[1]["files"]["synthetic.parquet"]


def test_a_job_that_dies_releases_and_charges_nothing(
    session: Any, table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schema.toml").write_text(schema_text(PEOPLE))
    for number in range(2):
        pa.parquet.write_table(table, tmp_path / f"part-{number}.parquet", compression="zstd")
    path = tmp_path / "part-1.parquet"
    data = bytearray(path.read_bytes())
    data[8 : len(data) // 2] = bytes(len(data) // 2 - 8)  # the cells, not the list of columns at the end
    path.write_bytes(data)
    book = str(tmp_path / "people.ledger")
    assert run(["ledger", "create", book, "--dataset", "people", "--epsilon", "3", "--delta", "1e-6"]) == 0
    capsys.readouterr()
    command = [
        "release",
        f"{tmp_path}/part-*.parquet",
        "--schema",
        str(tmp_path / "schema.toml"),
        "--queries",
    ]
    command += ["marginals:2", "--epsilon", "1", "--delta", "1e-7", "--ledger", book, "--out"]
    assert run([*command, str(tmp_path / "made"), "--engine", "spark", "--master", MASTER]) == 2
    assert "part-1.parquet" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    assert run(["ledger", "show", book]) == 0
    assert "Charges" not in capsys.readouterr().out
