"""Dates and times: public bounds, a granularity, the language, and dates that come back as dates."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualquery
from dualquery import Budget, Domain, Neighbours, QueryError, Release
from dualquery.errors import DataError, SchemaError
from dualquery.queries.language.reader import parse
from dualquery.table.dates import PERIODS, dates
from dualquery.table.encoding import decode
from dualquery.table.schema import parse_schema, schema_text

BUDGET = Budget(epsilon=50, delta=1e-6, neighbours=Neighbours.REPLACE)
SCHEMA = """
[[attribute]]
name = "admitted"
from = "2022-01"
to = "2024-12"
by = "month"
missing = "never"

[[attribute]]
name = "at"
from = 2024-01-01
to = 2024-01-02
by = "hour"
"""


@pytest.fixture(scope="module")
def made() -> Release:
    rng = np.random.default_rng(5)
    days = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 1096, 3000), "D")
    hours = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 48 * 60, 3000), "min")
    frame = pd.DataFrame({"admitted": pd.Series(days).mask(rng.random(3000) < 0.1), "at": hours})
    return dualquery.release(
        frame, schema=parse_schema(SCHEMA, origin="t"), workload="marginals:1", budget=BUDGET, seed=2
    )


def test_dates_come_back_as_dates_and_agree_with_the_answers(made: Release) -> None:
    table = made.to_arrow()
    assert table["admitted"].type == pa.date32()
    assert table["at"].type == pa.timestamp("s")
    frame = made.to_pandas()
    days, hours = pd.to_datetime(frame.admitted), frame["at"]
    assert days.dt.day.nunique() == 31
    compared = {
        "admitted >= 2024-03": days >= "2024-03-01",
        "admitted > 2024-03": days >= "2024-04-01",
        "admitted <= 2023": days <= "2023-12-31",
        "admitted < 2024-Q2": days < "2024-04-01",
        "admitted = 2023": days.dt.year == 2023,
        "admitted = 2024-03": (days.dt.year == 2024) & (days.dt.month == 3),
        "admitted in [2023-06, 2024-02]": (days >= "2023-06-01") & (days < "2024-03-01"),
        "admitted in [2023-06, 2024-02)": (days >= "2023-06-01") & (days < "2024-02-01"),
        "admitted in {2022-05, 2023-Q4, 2024}": (days.dt.year == 2024)
        | ((days.dt.year == 2023) & (days.dt.month >= 10))
        | ((days.dt.year == 2022) & (days.dt.month == 5)),
        "admitted is missing": days.isna(),
        "at >= 2024-01-01T13": hours >= "2024-01-01 13:00",
        "at = 2024-01-02": hours >= "2024-01-02",
    }
    for text, found in compared.items():
        answer = made.answer(text)
        assert answer.value == pytest.approx(found.mean()), text
        assert made.answer(answer.query).value == answer.value


def test_the_distribution_is_kept(made: Release) -> None:
    shares = pd.to_datetime(made.to_pandas().admitted).dt.year.value_counts(normalize=True)
    assert shares.to_numpy() == pytest.approx([1 / 3] * 3, abs=0.03)


def test_typed_and_written_dates_encode_alike(tmp_path: Path) -> None:
    schema = parse_schema(SCHEMA, origin="t")
    written = pd.DataFrame(
        {
            "admitted": ["2022-01-01", "2024-12-31", "2023-05", "", "2023-05-17T23:59:59.5", "never"],
            "at": ["2024-01-01 00:00", "2024-01-02T23:59Z", "2024-01-01T07", "2024-01-01T07:30+02:00"] * 1
            + ["2024-01-01 12:00:00.000", "2024-01-02T00:00:00"],
        }
    )
    times = ["2024-01-01 00:00", "2024-01-02 23:59", "2024-01-01 07:00", "2024-01-01 07:30"]
    typed = pa.table(
        {
            "admitted": pa.array(
                [date(2022, 1, 1), date(2024, 12, 31), date(2023, 5, 1), None, date(2023, 5, 17), None]
            ),
            "at": pa.array(
                [datetime.fromisoformat(t) for t in [*times, "2024-01-01 12:00", "2024-01-02 00:00"]],
                pa.timestamp("ns", "Europe/Berlin"),
            ),
        }
    )
    local = typed.set_column(1, "at", typed["at"].cast(pa.timestamp("ns")))
    written.to_csv(tmp_path / "t.csv", index=False)
    pa.parquet.write_table(local, tmp_path / "t.parquet")
    codes = [[0, 0], [35, 47], [16, 7], [36, 7], [16, 12], [36, 24]]
    for source in (written, local, tmp_path / "t.csv", tmp_path / "t.parquet", local.to_pandas()):
        assert dualquery.encode(source, schema).to_rows().tolist() == codes
    # Of a time with a zone the clock of the zone counts: an hour later in Berlin, and past the end for the last.
    berlin = typed.slice(2, 2)
    assert dualquery.encode(berlin, schema).to_rows()[:, 1].tolist() == [8, 8]


@pytest.mark.parametrize("by", PERIODS)
def test_every_granularity_goes_round(by: str) -> None:
    column = dates("d", "2019-03-05", "2021-02-11", by, clamp=True, missing="?")
    domain = Domain((column,))
    schema = dualquery.Schema(domain)
    assert parse_schema(schema_text(schema), origin="again") == schema
    codes = np.arange(len(column.labels), dtype=np.uint16 if by in ("day", "hour") else np.uint8)
    table = decode(dualquery.Records(domain, len(codes), (codes,)))
    assert dualquery.encode(table, domain).columns[0].tolist() == codes.tolist()
    texts = pd.DataFrame({"d": column.labels})
    assert dualquery.encode(texts, domain).columns[0].tolist() == codes.tolist()
    middle = column.labels[column.bins // 2]
    assert parse(f"d = {middle}", domain).text(domain) == f"d = {middle}"
    assert parse(f"d >= {middle}", domain).text(domain) == f"d >= {middle}"
    assert parse(f"d in [{column.labels[1]}, {middle}]", domain)


@given(st.dates(date(1600, 1, 1), date(2400, 1, 1)), st.sampled_from(PERIODS[:-1]))
def test_a_day_lies_in_the_period_that_holds_it(day: date, by: str) -> None:
    column = dates("d", day.isoformat(), day.isoformat(), by)
    assert column.bins == 1
    assert dualquery.encode(pd.DataFrame({"d": [day.isoformat()]}), Domain((column,))).columns[
        0
    ].tolist() == [0]
    assert dualquery.encode(pa.table({"d": [day]}), Domain((column,))).columns[0].tolist() == [0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("admitted >= 2024-03-15", "would split the month 2024-03"),
        ("admitted = 2024-W10", "would split the month"),
        ("admitted >= 2019", "lies beyond attribute 'admitted', which reaches from 2022-01 to 2024-12"),
        ("admitted = yesterday", "is not a date such as 2022-01"),
    ],
)
def test_questions_that_cannot_be_asked(made: Release, text: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        made.answer(text)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('from = "2020"\nto = "2019"\nby = "month"', "'to' after 'from'"),
        ('from = "2020"\nto = "2021"\nby = "decade"', "by must be one of year"),
        ('from = "2020-13"\nto = "2021"\nby = "day"', "'from' must be a date"),
        ('from = "2020"\nby = "day"', "has no 'to'"),
        ('from = "0001"\nto = "9998"\nby = "hour"', "more than 1,000,000 periods"),
    ],
)
def test_schemas_that_mean_nothing(keys: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(f'[[attribute]]\nname = "d"\n{keys}\n', origin="t")


@pytest.mark.parametrize(
    ("cell", "words"), [("2023", "longer than a month"), ("03.04.2023", "no dates"), ("2031-01", "beyond")]
)
def test_cells_that_have_no_place(cell: str, words: str) -> None:
    column = dates("d", "2022-01", "2024-12", "month")
    with pytest.raises(DataError, match=words):
        dualquery.encode(pd.DataFrame({"d": ["2023-01-01", cell]}), Domain((column,)))
    if words == "beyond":
        clamped = dates("d", "2022-01", "2024-12", "month", clamp=True)
        assert dualquery.encode(pd.DataFrame({"d": [cell]}), Domain((clamped,))).columns[0].tolist() == [35]


FORMATS = (
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%Y%m%d",
    "%d.%m.%y",
    "%d-%b-%Y",
    "%Y年%m月%d日",
    "%d%b%Y",
    "%d/%m/%Y %H:%M",
)


@given(
    st.lists(st.dates(date(1990, 1, 1), date(2030, 12, 31)) | st.none(), min_size=1, max_size=5),
    st.sampled_from(FORMATS),
    st.sampled_from(PERIODS[:-1]),
)
def test_a_format_reads_as_strptime_does_and_writes_the_same_form(
    days: list[date | None], form: str, by: str
) -> None:
    column = dates("d", "1990", "2030", by, missing="none", format=form)
    iso = dates("d", "1990", "2030", by, missing="none")
    texts = [None if day is None else day.strftime(form) for day in days]
    records = dualquery.encode(pd.DataFrame({"d": pd.Series(texts, dtype="string")}), Domain((column,)))
    typed = dualquery.encode(pa.table({"d": pa.array(days, pa.date32())}), Domain((iso,)))
    np.testing.assert_array_equal(records.columns[0], typed.columns[0])
    back = decode(records)
    assert back["d"].type == pa.string()
    for text, day in zip(back["d"].to_pylist(), days, strict=True):
        assert (text is None) == (day is None)
        assert text is None or datetime.strptime(text, form).strftime(form) == text
    again = dualquery.encode(back, Domain((column,)))
    np.testing.assert_array_equal(again.columns[0], records.columns[0])


def test_a_format_is_read_cell_by_cell() -> None:
    column = dates("d", "2020", "2024", "day", format="%d.%m.%Y")

    def code(*texts: str) -> list[int]:
        return dualquery.encode(pa.table({"d": list(texts)}), Domain((column,))).columns[0].tolist()

    alone = [code(text)[0] for text in ("31.12.2023", "01.02.2023", "1.2.2023 ")]
    assert code("31.12.2023", "01.02.2023", "1.2.2023 ") == alone  # what stands above does not matter
    assert alone[1] == alone[2]
    for wrong in (
        "2023-02-01",
        "02/01/2023",
        "31.02.2023",
        "1.2.23",
        "01.02.2023x",
        "٠١.02.2023",
        "00.01.2023",
    ):
        with pytest.raises(DataError, match=r"no dates such as 01\.03\.2024"):
            code("31.12.2023", wrong)
    with pytest.raises(DataError, match="format = "):
        dualquery.encode(pa.table({"d": ["01.02.2023"]}), Domain((dates("d", "2020", "2024", "day"),)))


def test_formats_in_a_schema() -> None:
    text = '[[attribute]]\nname = "d"\nfrom = "1950"\nto = "2024"\nby = "year"\nformat = "%d.%m.%Y"\n'
    schema = parse_schema(text, origin="t")
    assert 'format = "%d.%m.%Y"' in schema_text(schema)
    assert parse_schema(schema_text(schema), origin="t") == schema
    for form, by, wrong in (
        ("%d.%m.%y", "day", "1969 to 2068"),
        ("%d.%m", "day", "name the year"),
        ("%Y.%d", "day", "name the year"),
        ("%Y %Y", "year", "each once"),
        ("today", "day", "name the year"),
        ("%d.%m.%Y %", "day", "it may have %d"),
        ("%A %d.%m.%Y", "day", "'%A'; it may have %d"),
        ("%m/%Y", "day", "names a month and 'by' a day"),
        ("%d.%m.%Y", "hour", "names a day and 'by' a hour"),
    ):
        with pytest.raises(SchemaError, match=wrong):
            dates("d", "1950", "2024", by, format=form)
    assert dates("d", "2020", "2024", "quarter", format="%m/%Y").bins == 20
