"""Tables of codes: what may be asked, noisy cells, weights over touched cells, and what leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery.counting import MemoryCounter
from dualquery.errors import DataError, DualQueryError, QueryError, SchemaError
from dualquery.mechanisms.lists import CellFractions, told_counts
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.lists import Lists, lists_of, lookups_of, record_cells
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.releases.make import release
from dualquery.table.graph import codes_table
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text
from dualquery.types import silent

TABLE = codes_table({"icd": 8, "born": (1900, 2030)})
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
ROWS = pa.table({"icd": ["C71.9", "C71.9", "D33", "E10", "C71.9"], "born": [1984, 1984, 1990, 1970, 1985]})


def register(rows: int = 4000, codes: int = 300) -> tuple[Records, pa.Table]:
    """Invented records of codes that are few and popular, or many and rare."""
    rng = np.random.default_rng(0)
    chosen = np.minimum((codes * rng.random(rows) ** 3).astype(int), codes - 1)
    table = pa.table({"icd": [f"K{code}" for code in chosen], "born": [1980 + code % 3 for code in chosen]})
    return dualquery.encode(table, TABLE), table


def named(codes: int = 600) -> pa.Table:
    return pa.table(
        {"icd": [f"K{code}" for code in range(codes)], "born": [1980 + code % 3 for code in range(codes)]}
    )


def overlapping(lists: int, each: int, codes: int = 600) -> Workload:
    rng = np.random.default_rng(1)
    chosen = np.concatenate([rng.choice(codes, each, replace=False) for _ in range(lists)])
    table = pa.table(
        {
            "icd": [f"K{code}" for code in chosen],
            "born": [1980 + int(code) % 3 for code in chosen],
            "list": np.repeat([f"list {i}" for i in range(lists)], each).tolist(),
        }
    )
    return Workload(TABLE, (lists_of(TABLE, table),), "lists")


def ran(name: str, records: Records, workload: Workload, **options: object) -> Outcome:
    plan = MECHANISMS[name].plan_for(Task(workload, records.rows, BUDGET), options)
    entropy = SeededEntropy(0)
    curator = Curator(MemoryCounter(records), Ledger(BUDGET), entropy)
    return MECHANISMS[name].run(plan, curator, entropy.public_generator(), silent)


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schema_goes_there_and_back() -> None:
    text = schema_text(Schema(TABLE))
    assert "[codes.columns]" in text
    assert parse_schema(text, origin="here").domain == TABLE
    assert TABLE.log2_size > 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[codes]\nicd = 3", "one section, \\[codes.columns\\]"),
        ("[codes.columns]\nicd = 16", "should read like icd = {text = 16}"),
        ("[codes.columns]\nicd = {text = 0}", "1 to 64 characters"),
        ("[codes.columns]\nborn = {from = 5, to = 5}", "from < to"),
        ("[codes.columns]", "1 to 32 columns"),
    ],
)
def test_a_schema_that_says_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(text, origin="here")


@pytest.mark.parametrize(
    ("icd", "born"), [("C71.9-too-long", 1984), ("C71.9", 1899), ("C71.9", 2031), ("", 1984), (None, 1984)]
)
def test_a_cell_that_cannot_be_is_refused(icd: str | None, born: int) -> None:
    with pytest.raises(DataError, match="holds cells other than"):
        dualquery.encode(pa.table({"icd": [icd], "born": [born]}), TABLE)


def test_cells_are_the_same_from_numbers_and_from_texts() -> None:
    one = dualquery.encode(ROWS, TABLE)
    other = dualquery.encode(
        ROWS.set_column(1, "born", pa.array([str(x) for x in ROWS["born"].to_pylist()])), TABLE
    )
    np.testing.assert_array_equal(record_cells(one), record_cells(other))
    assert len(np.unique(record_cells(one))) == 4


# ── What may be asked ───────────────────────────────────────────────────────────────────────────────────────────


def test_lookups_and_lists_count(tmp_path: Path) -> None:
    records = dualquery.encode(ROWS, TABLE)
    file = tmp_path / "codes.csv"
    file.write_text("icd,born\nC71.9,1984\nD33,1990\nD33,1990\nX1,1950\n")
    texts = [
        "icd = C71.9 & born = 1984",
        "born = 1970 & icd = 'E10'",
        f"record in list('{file}')",
        "icd = Q & born = 1900",
    ]
    workload = from_texts(TABLE, texts)
    np.testing.assert_array_equal(workload.counts(records), [2, 1, 3, 0])
    assert workload.text(0) == "icd = C71.9 & born = 1984"
    again = from_texts(TABLE, list(workload.texts()))
    assert again.digest() == workload.digest()
    assert from_spec(TABLE, f"lookups:{file}").size == 4


def test_lists_of_a_file_by_name(tmp_path: Path) -> None:
    file = tmp_path / "lists.csv"
    file.write_text("list,icd,born\nbrain,C71.9,1984\nother,E10,1970\nbrain,D33,1990\nother,C71.9,1984\n")
    workload = from_spec(TABLE, f"lists:{file}")
    np.testing.assert_array_equal(workload.counts(dualquery.encode(ROWS, TABLE)), [3, 3])
    (group,) = workload.groups
    assert isinstance(group, Lists)
    assert group.most_satisfied() == 2
    assert group.most_differing() == 2
    one = from_texts(TABLE, [f"record in list('{file}', 'other')"])
    assert one.counts(dualquery.encode(ROWS, TABLE)).tolist() == [3]


def test_every_group_member_agrees(tmp_path: Path) -> None:
    workload, (records, _) = overlapping(20, 15), register(200)
    (group,) = workload.groups
    answers = np.zeros(group.size, np.int64)
    small = codes_table({"a": (0, 3), "b": (0, 2)})
    rows = np.array([[a, b] for a in range(4) for b in range(3)])
    lists = lookups_of(small, pa.table({"a": rows[:, 0], "b": rows[:, 1]}))
    for row in rows:
        mine = np.zeros(lists.size, np.int32)
        lists.add_answers(row.astype(np.int32), mine)
        np.testing.assert_array_equal(mine, lists.counts(Records.from_rows(small, row[None, :])))
    answers = group.counts(records)
    chosen = np.array([3, 1, 7], np.int64)
    np.testing.assert_array_equal(group.take(chosen).counts(records), answers[chosen])
    with pytest.raises(QueryError, match="no products"):
        group.products(chosen)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("icd = C71.9", "names every column, and 'born' is not named"),
        ("icd = C71.9 & born = 1800", "this cannot occur: 'born' holds whole numbers from 1900 to 2030"),
        ("icd = muchtoolong & born = 1984", "this cannot occur: 'icd' holds texts of 1 to 8 characters"),
        ("icd = C71.9 | born = 1984", "names every column, and 'born' is not named"),
        ("height = 3", "height"),
        ("record in list(codes)", "a list reads like"),
        ("record in list('no-such-file.csv')", "no-such-file"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(text: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        from_texts(TABLE, [text])


def test_a_list_with_a_code_that_cannot_occur_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "codes.csv"
    file.write_text("icd,born\nC71.9,1984\nC71.9-and-more,1984\n")
    with pytest.raises(QueryError, match=r"'C71.9-and-more' in .* cannot occur"):
        from_texts(TABLE, [f"record in list('{file}')"])


# ── What is released ────────────────────────────────────────────────────────────────────────────────────────────


def test_shrinking_helps() -> None:
    rng = np.random.default_rng(3)
    truth = np.where(rng.random(20_000) < 0.05, rng.poisson(3, 20_000), 0) + np.where(
        rng.random(20_000) < 0.005, 80, 0
    )
    noisy = truth + np.rint(rng.normal(0, 4.5, 20_000))
    told, deviation = told_counts(noisy, 4.5)
    assert np.abs(told - truth).mean() < 0.15 * np.abs(noisy - truth).mean()
    assert (np.abs(told - truth) <= np.maximum(2 * deviation, 1)).mean() > 0.95


def test_cells_beat_the_touched_weights_and_noise_on_every_list() -> None:
    records, _ = register()
    workload = overlapping(200, 40)
    truth = workload.fractions(records)
    error = {
        name: np.abs(ran(name, records, workload).answers - truth).mean()
        for name in ("noisy-cells", "touched-weights")
    }
    assert error["noisy-cells"] < error["touched-weights"]
    (group,) = workload.groups
    by_incidence = 4.53 * np.sqrt(group.most_satisfied()) * 0.8 / records.rows
    assert error["noisy-cells"] < by_incidence


@pytest.mark.parametrize("mechanism", [None, "touched-weights"])
def test_a_release_is_written_and_read_again(mechanism: str | None, tmp_path: Path) -> None:
    _, table = register(500)
    file = tmp_path / "lookups.csv"
    file.write_text("icd,born\n" + "\n".join(f"K{code},{1980 + code % 3}" for code in range(40)) + "\n")
    made = release(
        table,
        schema=TABLE,
        workload=f"lookups:{file}",
        budget=BUDGET,
        seed=1,
        public_rows=500,
        mechanism=mechanism,
    )
    made.save(tmp_path / "out", csv=True)
    again = dualquery.Release.load(tmp_path / "out")
    assert isinstance(again.artefact, CellFractions)
    question = "icd = K3 & born = 1980"
    assert str(again.answer_all([question])[0]) == str(made.answer_all([question])[0])
    assert (tmp_path / "out" / "cells.parquet").exists()
    with pytest.raises(QueryError, match="was not read for this release"):
        again.answer_all(["icd = K999 & born = 1980"])
    assert again.certificate["mechanism"] == (mechanism or "noisy-cells")


@pytest.mark.parametrize("mechanism", ["projection", "mwem", "parities"])
def test_mechanisms_of_other_tables_refuse(mechanism: str) -> None:
    _, table = register(100)
    workload = overlapping(3, 5)
    with pytest.raises(DualQueryError, match="plays tables of records, and this is a table of codes"):
        release(table, schema=TABLE, workload=workload, budget=BUDGET, mechanism=mechanism, public_rows=100)
