"""What is written is read back the same: schemas as text, records as readable tables."""

from __future__ import annotations

import csv
import io
import re
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualquery.errors import DataError, SchemaError
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric, equal_width
from dualquery.table.encoding import decode, encode
from dualquery.table.records import BitItems, Records, SparseItems, pack_bits, smallest_type
from dualquery.table.schema import Schema, parse_schema, schema_text

# Every letter that some quoting or some reader treats in its own way, and a few that none does.
texts = st.text("ab1.-_é漢𝔘 \"'\\#=[],;|\t\n\x00\x1f\x7f\x85\u2028\ufeff", max_size=6)
names = st.text("ab1.-_é漢𝔘 \"'\\#=[],;|\x85\u2028", min_size=1, max_size=6)
values = st.lists(
    texts | st.sampled_from(["", " ", "a", " a", "1", "1.0", "-0", "true", "True", "nan", "?"]),
    min_size=1,
    max_size=6,
    unique=True,
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def categorical_columns(draw: st.DrawFn) -> Categorical:
    listed = draw(values)
    place = st.none() | st.sampled_from(listed)
    return Categorical(draw(names), tuple(listed), draw(place), draw(place), draw(st.booleans()))


@st.composite
def numeric_columns(draw: st.DrawFn) -> Numeric:
    integer = draw(st.booleans())
    clamp, missing = draw(st.booleans()), draw(st.sampled_from([None, "missing", "?", "-1e300"]))
    if draw(st.booleans()):
        low = draw(st.integers(-1000, 1000)) / draw(st.sampled_from([1, 10, 64]))
        high = low + draw(st.integers(1, 1000))
        bins = draw(st.integers(1, max(1, int((high - low) / 2)) if integer else 50))
        return equal_width(draw(names), low, high, bins, clamp=clamp, missing=missing, integer=integer)
    number = st.integers(-(2**52), 2**52).map(float) if integer else st.floats(-1e299, 1e308)
    edges = sorted(set(draw(st.lists(number, min_size=2, max_size=6, unique=True))) | {0.0, 1.0})
    return Numeric(draw(names), tuple(edges), clamp, missing, integer)


item_columns = st.builds(Items, names, st.integers(1, 70), st.integers(0, 3))


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    columns: list[Column] = draw(
        st.lists(categorical_columns() | numeric_columns() | item_columns, min_size=1, max_size=4)
    )
    unique = {column.name: column for column in columns}
    blocks = {column.name for column in unique.values() if isinstance(column, Items)}
    apart = [c for c in unique.values() if c.name.rpartition("[")[0] not in blocks or isinstance(c, Items)]
    return Domain(tuple(apart))


@st.composite
def tables(draw: st.DrawFn) -> Records:
    domain, rows = draw(domains()), draw(st.integers(1, 70))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random_records(domain, rows, random)


def random_records(domain: Domain, rows: int, random: np.random.Generator) -> Records:
    columns: list[np.ndarray | SparseItems] = []
    for column in domain.columns:
        if isinstance(column, Items):
            held = random.random((rows, column.count)) < 0.3
            start = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
            columns.append(SparseItems(start, np.nonzero(held)[1].astype(np.int32)))
        else:
            size = len(column.labels)
            columns.append(random.integers(0, size, rows).astype(smallest_type(size)))
    return Records(domain, rows, tuple(columns))


def assert_same(found: Records, wanted: Records) -> None:
    assert (found.domain, found.rows) == (wanted.domain, wanted.rows)
    for a, b in zip(found.columns, wanted.columns, strict=True):
        if isinstance(b, SparseItems):
            assert isinstance(a, SparseItems)
            np.testing.assert_array_equal(a.start, b.start)
            np.testing.assert_array_equal(a.ids, b.ids)
            assert (a.start.dtype, a.ids.dtype) == (np.int64, np.int32)
        else:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@given(domains(), st.none() | texts.filter(str.strip), st.none() | texts)
def test_schema_text_reads_back(domain: Domain, marker: str | None, heading: str | None) -> None:
    schema = Schema(domain, marker)
    assert parse_schema(schema_text(schema, heading=heading), origin="draft") == schema


@given(tables())
def test_decoded_records_encode_back(records: Records) -> None:
    assert_same(encode(decode(records), records.domain), records)


@given(tables())
def test_bits_and_lists_of_items_decode_alike(records: Records) -> None:
    bits = tuple(
        BitItems(pack_bits(Records(Domain((column,)), records.rows, (codes,)).to_rows().T != 0))
        if isinstance(column, Items)
        else codes
        for column, codes in zip(records.domain.columns, records.columns, strict=True)
    )
    assert decode(Records(records.domain, records.rows, bits)).equals(decode(records))


@given(numeric_columns())
def test_numbers_lie_in_their_bins(column: Numeric) -> None:
    codes = np.repeat(np.arange(column.bins, dtype=np.uint32), 3)
    numbers = decode(Records(Domain((column,)), len(codes), (codes,)))[0].to_numpy()
    edges = np.array(column.edges)
    assert (edges[codes] <= numbers).all()
    assert (numbers[:-3] < edges[codes + 1][:-3]).all()
    assert numbers.max() <= edges[-1]
    assert not column.integer or (numbers == np.floor(numbers)).all()


SURVEY = Domain(
    (
        Categorical("sex", ("Female", "Male")),
        Categorical("grade", ("low", "middle", "none", "high"), missing="none", ordered=True),
        equal_width("age", 0, 100, 20, clamp=True, integer=True),
        equal_width("rate", 0, 1, 10, missing="missing"),
        Items("visits", 30, first=0),
    )
)


@pytest.fixture
def survey() -> Records:
    return random_records(SURVEY, 500, np.random.default_rng(5))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_parquet(survey: Records, tmp_path: Path, compression: str | None) -> None:
    pyarrow.parquet.write_table(decode(survey), tmp_path / "t.parquet", compression=compression)
    assert_same(encode(tmp_path / "t.parquet", SURVEY), survey)
    assert_same(encode(tmp_path, SURVEY), survey)


def test_arrow_files(survey: Records, tmp_path: Path) -> None:
    table = decode(survey)
    pyarrow.feather.write_feather(table, tmp_path / "t.feather")
    with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as writer:
        for batch in table.to_batches(max_chunksize=100):
            writer.write_batch(batch)
    pl.from_arrow(table).write_ipc_stream(tmp_path / "p.arrow")
    for name in ("t.feather", "t.arrow", "p.arrow"):
        assert_same(encode(tmp_path / name, SURVEY), survey)


def test_frames(survey: Records) -> None:
    table = decode(survey)
    assert_same(encode(table.to_pandas(), SURVEY), survey)
    assert_same(encode(pl.from_arrow(table), SURVEY), survey)
    assert_same(encode(table.to_reader(max_chunksize=7), SURVEY), survey)
    # Without dictionaries, and with columns that nobody asked for, one of them not even convertible.
    frame = pd.DataFrame(table.to_pylist()).assign(other=[1, "x"] * 250)
    assert_same(encode(frame[[*reversed(frame.columns)]], SURVEY), survey)
    plain = pl.DataFrame(table.to_pylist(), schema_overrides={"rate": pl.Float64}, infer_schema_length=None)
    assert_same(encode(plain.with_columns(pl.col("rate").fill_null(float("nan"))), SURVEY), survey)


def test_json_and_csv(survey: Records, tmp_path: Path) -> None:
    rows = decode(survey).to_pylist()
    frame = pd.DataFrame(rows)
    frame.to_json(tmp_path / "t.json", orient="records")
    frame.to_json(tmp_path / "t.jsonl.gz", orient="records", lines=True)
    frame["visits"] = [" ".join(map(str, ids)) for ids in frame["visits"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pa.output_stream(tmp_path / "t.csv.zst") as compressed:
        compressed.write((tmp_path / "t.csv").read_bytes())
    frame.to_csv(tmp_path / "t.tsv.gz", index=False, sep="\t")
    frame.to_csv(tmp_path / "t.csv.bz2", index=False, sep=";", lineterminator="\r\n", encoding="utf-8-sig")
    for name in ("t.json", "t.jsonl.gz", "t.csv", "t.csv.zst", "t.tsv.gz", "t.csv.bz2"):
        assert_same(encode(tmp_path / name, SURVEY), survey)


# Against slow readings of the definition, one cell at a time.

decimals = st.builds(lambda n, p: f"{n / 10**p:.{p}f}", st.integers(-(10**6), 10**6), st.integers(0, 4))


@given(
    st.integers(-50, 50), st.integers(1, 200), st.sampled_from([1, 10, 100]), st.integers(1, 30), st.data()
)
def test_equal_width_is_the_floor_rule(
    low: int, span: int, unit: int, bins: int, data: st.DataObject
) -> None:
    column = equal_width("x", low / unit, (low + span) / unit, bins, clamp=True)
    exact_low, width = Fraction(low, unit), Fraction(span, unit) / bins
    on_edges = [f"{float(exact_low + width * b):.15g}" for b in range(bins + 1)]
    texts = data.draw(st.lists(decimals | st.sampled_from(on_edges), min_size=1, max_size=30))
    codes = encode(pa.table({"x": texts}), Domain((column,))).columns[0]
    for text, code in zip(texts, codes, strict=True):
        v = Fraction(text)
        edge = min((exact_low + width * b for b in range(bins + 1)), key=lambda e: abs(e - v))
        v = edge if float(edge) == float(text) else v  # the decimals of 1/3 stand for 1/3
        assert code == min(bins - 1, max(0, (v - exact_low) // width))


def test_the_cell_that_reads_point_three_lies_in_the_fourth_of_ten_bins() -> None:
    domain = Domain((equal_width("rate", 0, 1, 10),))
    tenths = [f"{b / 10:.2f}" for b in range(11)]
    assert list(encode(pa.table({"rate": tenths}), domain).columns[0]) == [*range(10), 9]
    assert np.floor(0.3 / 0.1) == 2  # what a division of floats would have said


def slow_value(column: Categorical, text: str) -> str | None:
    """The listed value that a text stands for, as the documentation has it."""
    trimmed = text.strip()
    ways = [text, trimmed]
    if re.fullmatch(r"-?[0-9]+\.?0*", trimmed):
        ways += [trimmed.partition(".")[0].replace("-0", "0") if "." in trimmed else trimmed]
    ways += {"true": ["true", "True", "TRUE", "1"], "false": ["false", "False", "FALSE", "0"]}.get(
        trimmed.lower(), []
    )
    listed = [way for way in ways if way in column.values]
    if listed:
        return listed[0]
    if trimmed:
        return column.unknown
    return column.missing if column.missing is not None else "" if "" in column.values else None


@given(
    categorical_columns(),
    st.lists(texts | st.sampled_from(["1.00", "-5.0", "TRUE", "false "]), min_size=1, max_size=20),
)
def test_categories_against_a_slow_reading(column: Categorical, strange: list[str]) -> None:
    for text in [*column.values, *strange]:
        wanted = slow_value(column, text)
        try:
            found = column.values[encode(pa.table({column.name: [text]}), Domain((column,))).columns[0][0]]
        except DataError:
            found = None
        assert found == wanted


@given(st.lists(st.lists(texts, min_size=2, max_size=2), min_size=1, max_size=10))
def test_csv_cells_arrive_as_they_were_written(rows: list[list[str]]) -> None:
    rows = [[cell.replace("\x00", "") for cell in row] for row in rows]
    listed = [tuple(dict.fromkeys(row[i] for row in rows)) for i in range(2)]
    domain = Domain((Categorical("a, b", listed[0]), Categorical('c "d"', listed[1])))
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["a, b", 'c "d"'], *rows])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.getvalue().encode())
        decoded = decode(encode(path, domain)).to_pylist()
    # A listed empty text is a missing value, and comes back as one.
    assert [[cell or "" for cell in row.values()] for row in decoded] == rows


def test_a_domain_that_cannot_be_written_is_not_made() -> None:
    with pytest.raises(SchemaError, match="no integer"):
        Domain((Numeric("x", (0.0, 1.0, 1.5, 1.7, 3.0), integer=True),))
    with pytest.raises(SchemaError, match="within its edges"):
        Domain((equal_width("x", -1, 1, 2, missing="0"),))
