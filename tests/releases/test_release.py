"""Asking a release: answers against a naive count, error bars, and releases that hold answers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualquery
from dualquery import QueryError, Release, Schema
from dualquery.queries import workload as workloads
from dualquery.queries.language.reader import parse
from dualquery.releases.release import Answer

Make = Callable[..., Release]


def test_answers_are_shares_of_the_synthetic_records(make: Make) -> None:
    release = make()
    frame = release.to_pandas()
    old = (frame["age"] >= 55) & (frame["sex"] == "female") & (frame["region"] != "capital")
    answer = release.answer("age >= 55 & sex = female & !(region = capital)")
    assert answer.value == pytest.approx(old.mean())
    assert answer.error == pytest.approx(
        1.96 * math.sqrt(math.pi / 2) * 0.0125, rel=1e-4
    )  # of the planned mean
    either = (frame["smokes"] == "yes") | (frame["health"] == "poor")
    texts = ["smokes = yes | health = poor", "sex = male"]
    found = release.answer_all(texts)
    assert [each.value for each in found] == pytest.approx([either.mean(), (frame["sex"] == "male").mean()])
    assert release.answer_all([]) == []


def test_a_release_is_handled_like_a_frame(make: Make, tmp_path: Path) -> None:
    release = make(mechanism="zeros", synthetic_rows=12)
    frame = release.to_pandas()
    assert len(release) == len(frame) == 12
    assert release.columns == list(frame.columns) == [each.name for each in release.domain.columns]
    assert release.head().equals(frame.head())
    assert release.head(3).equals(frame.head(3))
    told = release.describe().set_index("column")
    assert list(told.index) == list(frame.columns)
    assert told.loc["age", "mean"] == pytest.approx(frame["age"].mean())
    assert told.loc["sex", "top"] == frame["sex"].mode()[0]
    text = release.to_csv()
    assert text is not None
    assert release.to_csv(tmp_path / "rows.csv") is None
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == text
    release.save(tmp_path / "saved", csv=True)
    assert (tmp_path / "saved" / "synthetic.csv").read_text(encoding="utf-8") == text
    answers = make(mechanism="independent")
    assert len(answers) == len(answers.to_pandas())
    assert answers.columns == list(answers.to_pandas().columns)
    assert bool(make(mechanism="independent"))


def test_an_error_names_the_query(make: Make) -> None:
    with pytest.raises(QueryError, match="query 2, column 1"):
        make().answer_all(["sex = male", "sax = male"])
    with pytest.raises(QueryError, match="line 9"):
        make().answer_all(["sax = male"], places=["line 9"])


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.14234, 0.0031, "0.142 ± 0.003 (95%)"),
        (0.14234, 0.0013, "0.1423 ± 0.0013 (95%)"),
        (0.14234, 0.00196, "0.142 ± 0.002 (95%)"),
        (0.5, 0.096, "0.50 ± 0.10 (95%)"),
        (0.5, 0.23, "0.5 ± 0.2 (95%)"),
        (0.5, 3.0, "0 ± 3 (95%)"),
        (0.14234, 0.000042, "0.14234 ± 0.00004 (95%)"),
        (0.14234, None, "0.1423"),
        (0.14234, 0.0, "0.1423"),
    ],
)
def test_answers_print_with_the_digits_that_matter(value: float, error: float | None, text: str) -> None:
    assert str(Answer("q", value, error)) == text


@given(st.floats(0, 1), st.floats(1e-9, 1))
def test_what_is_printed_is_close_to_what_is_meant(value: float, error: float) -> None:
    printed_value, printed_error = str(Answer("q", value, error)).removesuffix(" (95%)").split(" ± ")
    assert float(printed_error) == pytest.approx(error, rel=0.26)
    assert abs(float(printed_value) - value) <= max(error, 1e-12)


def test_bare_answers_know_their_own_queries_only(make: Make, tmp_path: Path) -> None:
    release = make(mechanism="bare")
    assert release.records is None
    assert release.certificate["synthetic_rows"] is None
    release.save(tmp_path / "answers")
    again = Release.load(tmp_path / "answers")
    assert (tmp_path / "answers" / "answers.parquet").exists()
    for text in ("sex = male", "age >= 75"):
        assert again.answer(text).value == release.answer(text).value
    assert again.answer("sex = male").error == pytest.approx(0.01)
    with pytest.raises(QueryError, match="not among its queries"):
        again.answer("sex = male & age >= 75")
    assert again.to_arrow().column_names == ["query", "answer", "bar"]


@pytest.mark.parametrize("at_once", [50_000, 7])
def test_texts_of_a_workload_are_those_of_its_queries(
    schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(workloads, "_TEXTS_AT_ONCE", at_once)
    file = tmp_path / "queries.txt"
    file.write_text("sex = male | age >= 55\nregion in {north, south} & sex = male\nparity(sex)\nage < 55\n")
    workload = dualquery.from_spec(schema.domain, ["marginals:2", "random:3:50", "ranges:age:9", str(file)])
    found = list(workload.texts())
    assert found == [workload.text(i) for i in range(workload.size)]
    for text in found[::97]:
        assert parse(text, schema.domain).text(schema.domain) == text
