"""Answers as people want them: frames with bars, SQL, pictures, and what a notebook shows."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from dualquery import DualQueryError, Neighbours, QueryError, Release, ReleaseError
from dualquery.cli import run
from dualquery.cli.serve import _question

Make = Callable[..., Release]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is made once: a release is read-only."""
    return {"folder": tmp_path_factory.mktemp("frames") / "released"}


@pytest.fixture
def release(make: Make, kept: dict[str, Any]) -> Release:
    if "release" not in kept:
        kept["release"] = make(mechanism="replicated")
    found: Release = kept["release"]
    return found


@pytest.fixture
def folder(release: Release, kept: dict[str, Any]) -> Path:
    place: Path = kept["folder"]
    if not place.exists():
        release.save(place)
    return place


def test_a_table_has_every_cell_with_its_bar_and_count(release: Release) -> None:
    frame = release.table(["sex", "region"])
    assert list(frame.columns) == ["sex", "region", "share", "bar", "count", "count_bar"]
    rows = release.to_pandas()
    for _, cell in frame.iterrows():
        share = ((rows["sex"] == cell["sex"]) & (rows["region"] == cell["region"])).mean()
        assert cell["share"] == pytest.approx(share)
        asked = release.answer(f"sex = {cell['sex']} & region = {cell['region']}")
        assert (cell["share"], cell["bar"]) == pytest.approx((asked.value, asked.error))
    assert frame["share"].sum() == pytest.approx(1)
    np.testing.assert_allclose(frame["count"], 500 * frame["share"])  # n is public, and 500
    np.testing.assert_allclose(frame["count_bar"], 500 * frame["bar"])
    turned = release.table(["region", "sex"])
    assert turned.set_index(["sex", "region"])["share"].to_dict() == pytest.approx(
        frame.set_index(["sex", "region"])["share"].to_dict()
    )
    assert release.table("age")["age"].cat.ordered


def test_a_table_of_some_records(release: Release) -> None:
    frame = release.table("sex", where="age >= 55")
    for _, cell in frame.iterrows():
        assert cell["share"] == pytest.approx(release.answer(f"age >= 55 & sex = {cell['sex']}").value)
    with pytest.raises(QueryError, match="where, column 7: attribute 'sex' has no value 'x'"):
        release.table("region", where="sex = x")


def test_other_frames(release: Release) -> None:
    assert isinstance(release.table("sex", frame="arrow"), pa.Table)
    assert isinstance(release.table("sex", frame="polars"), polars.DataFrame)
    assert isinstance(release.answers([]), pandas.DataFrame)
    with pytest.raises(DualQueryError, match="frame must be one of pandas, polars, arrow"):
        release.table("sex", frame="excel")


def test_counts_stand_there_only_where_the_number_of_records_is_public(make: Make, budget: Any) -> None:
    private = make(budget=budget(neighbours=Neighbours.ADD_REMOVE))
    assert list(private.table("sex").columns) == ["sex", "share", "bar"]
    declared = make(budget=budget(neighbours=Neighbours.ADD_REMOVE), public_rows=500)
    assert "count" in declared.table("sex").columns


def test_answers_are_a_frame(release: Release) -> None:
    texts = ["sex = male", "age >= 55 & smokes = yes"]
    frame = release.answers(texts)
    assert frame["query"].tolist() == texts
    assert frame["share"].tolist() == [release.answer(text).value for text in texts]
    assert frame["bar"].tolist() == [release.answer(text).error for text in texts]
    with pytest.raises(QueryError, match="query 2"):
        release.answers(["sex = male", "sax = male"])
    with pytest.raises(QueryError, match="a list of queries"):
        release.answers("sex = male")


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["sax"], "did you mean 'sex'"),
        ([], "at least one"),
        (["sex", "sex"], "twice"),
        ([3], "unknown attribute"),
        (5, "a list of names, got int"),
    ],
)
def test_what_is_no_table(release: Release, names: Any, part: str) -> None:
    with pytest.raises(QueryError, match=part):
        release.table(names)


def test_too_many_cells_are_refused(release: Release) -> None:
    names = [column.name for column in release.domain.columns]
    with pytest.raises(QueryError, match="cells"):
        release.table(names)


def test_sql_counts_records_and_has_bars(release: Release) -> None:
    frame = release.sql("select region, count(*) from data where age >= 55 group by region order by region")
    assert list(frame.columns) == ["region", "count", "count_bar"]
    for _, cell in frame.iterrows():
        asked = release.answer(f"age >= 55 & region = {cell['region']}")
        assert cell["count"] == pytest.approx(500 * asked.value)
        assert cell["count_bar"] >= 500 * 3 / 200  # never below the rule of three
    both = release.sql(
        "select sex, avg(income) as mean, sum(income) as total, count(*) as n from data group by 1"
    )
    assert list(both.columns) == ["sex", "mean", "mean_bar", "total", "total_bar", "n", "n_bar"]
    np.testing.assert_allclose(both["mean"] * both["n"], both["total"])
    assert both["n"].sum() == pytest.approx(500)
    assert (both[["mean_bar", "total_bar", "n_bar"]] > 0).all().all()


def test_sql_in_other_shapes(release: Release) -> None:
    share = release.sql(
        "select sex, 100 * count(*) / sum(count(*)) over () as percent from data group by sex"
    )
    assert share["percent"].sum() == pytest.approx(100)
    assert share["percent_bar"].notna().all()
    nested = release.sql(
        "with t as (select region, count(*) c from data group by 1) select sum(c) as s from t"
    )
    assert nested["s"].item() == pytest.approx(500)
    top = release.sql(
        "select region, count(*) n from data group by 1 having count(*) > 10 order by n desc limit 2"
    )
    assert len(top) == 2
    assert (top["n_bar"] > 0).all()
    some = release.sql("select count(*) filter (where sex = 'male') as men from data")
    assert some["men"].item() == pytest.approx(500 * release.answer("sex = male").value)
    assert release.sql("select count(distinct region) as k from data")["k"].item() <= 6
    assert len(release.sql("select * from data limit 3").columns) == 12
    assert (
        release.sql("select count(*) from data group by region")["count_bar"].isna().all()
    )  # which is which?


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("drop table data", "SELECT"),
        ("select nope from data", "nope"),
        ("select 1; select 2", "one SELECT"),
        ("select rank() over (order by age) from data", "group them first"),
        ("select count(*) from data a join data b on a.sex = b.sex", "joined"),
        ("select * from read_csv('/etc/passwd')", "cannot be answered"),
        ("selec", "cannot be read"),
        ("select * from nowhere", "it is called data"),
        (7, "expected SQL as text, got int"),
    ],
)
def test_sql_that_cannot_be_answered(release: Release, text: Any, part: str) -> None:
    with pytest.raises(QueryError, match=part):
        release.sql(text)


def test_sql_bars_hold_what_replicas_show(make: Make, records: Any) -> None:
    """Of many cells and seeds, about 19 of 20 lie within their bars."""
    within = []
    for seed in range(6):
        made = make(mechanism="replicated", seed=seed, synthetic_rows=4_000)
        one_way = made.sql("select region, count(*) as n from data group by 1")
        for _, cell in one_way.iterrows():
            true = _true_count(records, "region", cell["region"])
            within.append(abs(cell["n"] - true) <= cell["n_bar"])
    assert np.mean(within) >= 0.85


def _true_count(records: Any, name: str, value: str) -> int:
    from dualquery.queries.families import from_texts

    return int(from_texts(records.domain, [f"{name} = {value}"]).counts(records)[0])


def test_shares_among_some(release: Release) -> None:
    whole, both = release.answer("age >= 55").value, release.answer("age >= 55 & sex = male").value
    found = release.answer("sex = male", given="age >= 55")
    assert found.value == pytest.approx(both / whole)
    assert found.error is not None
    assert found.error > release.answer("sex = male").error  # fewer records
    frame = release.table("sex", given="age >= 55")
    assert list(frame.columns) == ["sex", "share", "bar"]
    assert frame["share"].sum() == pytest.approx(1)
    many = release.answers(["sex = male", "sex = female"], given="age >= 55")
    assert many["share"].tolist() == pytest.approx(frame["share"].tolist()[::-1])
    for ask, part in (
        (lambda: release.answer("sex = male", given="nope = 1"), "given, column 1: unknown attribute"),
        (lambda: release.answer("sex = male", given="sex = female"), "no record can satisfy"),
        (lambda: release.table("sex", where="age >= 55", given="age >= 55"), "one of where"),
    ):
        with pytest.raises(QueryError, match=part):
            ask()


def test_a_share_among_some_is_as_far_off_as_its_bar_says(make: Make, records: Any) -> None:
    within = []
    for seed in range(3):
        made = make(mechanism="replicated", seed=seed, synthetic_rows=4_000)
        for region in ("capital", "north", "south", "east", "west"):
            found = made.answer(f"region = {region}", given="sex = male")
            both, men = (_shares(records, text) for text in (f"region = {region} & sex = male", "sex = male"))
            within.append(abs(found.value - both / men) <= found.error)
    assert np.mean(within) >= 0.8


def _shares(records: Any, text: str) -> float:
    from dualquery.queries.families import from_texts

    return float(from_texts(records.domain, [text]).counts(records)[0] / records.rows)


def test_sql_says_why_a_bar_is_null(release: Release) -> None:
    frame = release.sql("select max(age) as oldest, count(distinct age) as k, median(age) as m from data")
    assert frame["oldest_bar"].isna().all()
    assert frame["k_bar"].isna().all()
    assert frame["m_bar"].item() >= 0.45 * 7  # about half of the narrowest bin
    notes = " ".join(frame.attrs["notes"])
    assert "ask for quantiles" in notes
    assert "how many different values" in notes
    assert "select what you group by" in str(
        release.sql("select count(*) from data group by sex").attrs["notes"]
    )


def test_bare_answers_have_tables_of_what_was_asked(make: Make) -> None:
    bare = make(mechanism="bare")
    assert bare.table("sex")["bar"].tolist() == [0.01, 0.01]
    with pytest.raises(QueryError, match="not among its queries"):
        bare.table(["sex", "region"])
    with pytest.raises(QueryError, match="no records"):
        bare.sql("select 1")


def test_pictures(release: Release, tmp_path: Path) -> None:
    one, two = release.plot("region"), release.plot(["age", "sex"], where="smokes = yes")
    for figure in (one, two):
        assert figure.svg.startswith("<svg ")
        assert figure.svg in figure._repr_html_()
    assert repr(two) == "<Figure: age × sex, in percent of the table, where smokes = yes>"
    one.save(tmp_path / "region.svg")
    assert (tmp_path / "region.svg").read_text() == one.svg
    with pytest.raises(ReleaseError, match="SVG"):
        one.save(tmp_path / "region.png")
    with pytest.raises(ReleaseError, match="cannot be written"):
        one.save(tmp_path / "no" / "region.svg")
    with pytest.raises(QueryError, match="one attribute or two"):
        release.plot(["age", "sex", "region"])


def test_a_notebook_shows_a_card_and_logs_show_a_line(release: Release) -> None:
    assert repr(release) == (
        "<Release: 200 synthetic records, 12 attributes, replicated, ε = 1, δ = 10⁻⁶, NOT PRIVATE>"
    )
    card = release._repr_html_()
    for part in ("200 synthetic records", "neighbours replace", "a seed was used", "region"):
        assert part in card
    assert "<script" not in card


def test_releases_can_be_pickled(release: Release, folder: Path) -> None:
    for each in (release, Release.load(folder)):
        again = pickle.loads(pickle.dumps(each))
        assert again.answer_all(["sex = male", "age >= 55"]) == each.answer_all(["sex = male", "age >= 55"])
        assert again.certificate.to_json() == each.certificate.to_json()


# On the command line


def test_by_prints_a_table(folder: Path, release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["answer", str(folder), "--by", "region,sex"]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert "by region, sex" in title
    assert head.split("\t") == ["region", "sex", "share", "count"]
    assert len(rows) == 10
    assert all(re.fullmatch(r"\S+\t\S+\t0\.\d+ ± 0\.\d+\t[\d,]+ ± [\d,]+", row) for row in rows)
    assert run(["answer", str(folder), "age >= 55", "--by", "region", "--by", "sex", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = release.table(["region", "sex"], where="age >= 55")
    assert [each["share"] for each in told] == pytest.approx(expected["share"].tolist())
    assert run(["answer", str(folder), "a = b", "c = d", "--by", "region"]) == 2
    assert run(["answer", str(folder), "--by", "regoin"]) == 2
    assert "did you mean 'region'" in capsys.readouterr().err


def test_a_file_without_questions_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked.txt").write_text("# nothing yet\n")
    assert run(["answer", str(folder), "--file", str(tmp_path / "asked.txt")]) == 2
    assert "asked.txt' holds no query" in capsys.readouterr().err


def test_a_bad_line_is_named_and_the_others_are_answered(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("# mine\nsex = male\nsax = male\n\nage >= 55\nage >=\n")
    assert run(["answer", str(folder), "--file", str(file)]) == 1
    out, err = capsys.readouterr()
    assert [line.split("\t")[1] for line in out.splitlines()] == ["sex = male", "age >= 55"]
    assert f"Error: '{file}', line 3, column 1" in err
    assert f"Error: '{file}', line 6" in err
    assert run(["answer", str(folder), "--file", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert ["refused" in each for each in told] == [False, True, False, True]


def test_a_bad_line_of_a_release_without_records(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(mechanism="bare").save(tmp_path / "bare")
    assert run(["answer", str(tmp_path / "bare"), "sex = male", "sex = male & age >= 75"]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("\tsex = male\n")
    assert "Error: Query 2: this release holds answers and no records" in err


def test_a_question_by_attributes() -> None:
    assert _question(None, ["region,sex"]) == "region by sex"
    assert _question(None, ["region"]) == "by region"
    assert _question(None, ["by, item[3]", "two words"]) == "'by' by item[3] by 'two words'"
    for given in ((None, None), ("a = b", ["a"])):
        with pytest.raises(QueryError, match="ask one thing"):
            _question(*given)
