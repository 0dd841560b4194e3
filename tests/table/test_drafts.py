"""A draft worth editing: bins, codes, missing markers, ids and free text, and what was read off the data."""

from __future__ import annotations

import contextlib
import io
import re
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery import Categorical, Numeric
from dualquery.cli import run
from dualquery.errors import DataError, SchemaError
from dualquery.table.database import Database
from dualquery.table.dates import Dates
from dualquery.table.schema import parse_schema, read_schema

ROWS = 1200


@pytest.fixture(scope="module")
def export() -> pd.DataFrame:
    rng = np.random.default_rng(9)
    return pd.DataFrame(
        {
            "person_id": np.arange(10_000, 10_000 + ROWS),
            "zip": rng.choice(["01001", "02139", "90210"], ROWS),
            "parcel": [f"{x:05d}" for x in rng.integers(0, 99_999, ROWS)],
            "race": rng.choice(["1", "2", "3", "9"], ROWS),
            "children": rng.choice([0, 1, 2, 3], ROWS),
            "answer": rng.choice(["1", "2", "N"], ROWS),
            "agrees": rng.choice(["Y", "N"], ROWS),
            "score": rng.choice(["-9", *(str(i) for i in range(40))], ROWS),
            "income": np.where(rng.random(ROWS) < 0.3, 0, np.exp(rng.normal(10, 1.4, ROWS)))
            .round()
            .astype(int),
            "height": [f"{x:.1f}" for x in rng.normal(170, 10, ROWS)],
            "price": [f"{x:,.2f} €".replace(",", " ").replace(".", ",") for x in rng.uniform(1, 5000, ROWS)],
            "admitted": pd.Timestamp("2021-02-03") + pd.to_timedelta(rng.integers(0, 900, ROWS), "D"),
            "seen": rng.choice(["2020-01-05", "2020-02-11", "NA"], ROWS),
            "remark": [f"The patient of row {i} said that it hurts on the left side" for i in range(ROWS)],
            "name": [f"Person {i}" for i in range(ROWS)],
            "nothing": [None] * ROWS,
        }
    )


@pytest.fixture(scope="module")
def draft(export: pd.DataFrame) -> dualquery.Draft:
    return dualquery.schema_draft(export)


def columns(draft: dualquery.Draft) -> dict[str, object]:
    return {column.name: column for column in draft.schema.domain.columns}


def test_codes_are_categories_without_order(draft: dualquery.Draft) -> None:
    found = columns(draft)
    assert found["zip"] == Categorical("zip", ("01001", "02139", "90210"))
    assert found["race"] == Categorical("race", ("1", "2", "3", "9"))
    assert found["children"] == Categorical("children", ("0", "1", "2", "3"), numeric=True)


def test_markers_are_proposed_as_missing(draft: dualquery.Draft) -> None:
    found = columns(draft)
    assert found["answer"].empty == ("N",)
    assert found["agrees"] == Categorical("agrees", ("N", "Y"))
    score = found["score"]
    assert isinstance(score, Numeric)
    assert (score.empty, score.missing, score.edges[0]) == (("-9",), "missing", 0)
    assert found["seen"].empty == ("NA",)


def test_numbers_are_binned_by_share_and_heaped_ones_stand_alone(
    draft: dualquery.Draft, export: pd.DataFrame
) -> None:
    income = columns(draft)["income"]
    assert isinstance(income, Numeric)
    assert income.edges[:2] == (0, 1)  # nothing at all has a bin of its own
    held = np.histogram(export.income, income.edges)[0] / ROWS
    assert held.max() < 0.5
    assert income.integer
    assert income.bins <= 25
    height = columns(draft)["height"]
    assert isinstance(height, Numeric)
    assert height.decimals == 1
    held = np.histogram(export.height.astype(float), height.edges)[0] / ROWS
    assert held.max() < 2 / height.bins


def test_money_and_dates_are_known(draft: dualquery.Draft) -> None:
    price, admitted = columns(draft)["price"], columns(draft)["admitted"]
    assert isinstance(price, Numeric)
    assert (price.currency, price.decimal_comma, price.exact, price.decimals) == ("€", True, True, 2)
    assert isinstance(admitted, Dates)
    assert (admitted.by, admitted.labels[0], admitted.labels[-1]) == ("month", "2021-02", "2023-07")


def test_what_is_left_out_is_named_with_its_reason(draft: dualquery.Draft) -> None:
    reasons = {each.name: each.reason for each in draft.left_out}
    assert list(reasons) == ["person_id", "parcel", "remark", "name", "nothing"]
    for name, word in (
        ("person_id", "id"),
        ("parcel", "5 figures"),
        ("remark", "free text"),
        ("name", "name"),
    ):
        assert word in reasons[name]
    assert '#   "remark": it is free text' in str(draft)


def test_every_line_from_the_data_is_marked(draft: dualquery.Draft) -> None:
    text = str(draft)
    body = text[text.index("[[attribute]]") :].splitlines()
    for line in body:
        key = line.partition(" =")[0]
        read_off = ("values", "edges", "low", "high", "bins", "from", "to", "missing", "empty")
        if line.startswith("    ") or key in read_off:
            assert line.endswith("# from the data"), line
        if key in ("name", "[[attribute]]", "clamp", ""):
            assert "# from the data" not in line
    assert parse_schema(text, origin="draft") == draft.schema
    assert draft.schema.draft


def test_a_draft_fits_its_table(draft: dualquery.Draft, export: pd.DataFrame) -> None:
    assert dualquery.encode(export, draft.schema).rows == ROWS


def test_quantiles_on_request(export: pd.DataFrame) -> None:
    column = columns(dualquery.schema_draft(export[["income"]], quantiles=5))["income"]
    assert isinstance(column, Numeric)
    held = np.histogram(export.income[export.income > 0], column.edges)[0]
    assert held.max() < 0.45 * held.sum()
    with pytest.raises(SchemaError, match="between 2 and 1000"):
        dualquery.schema_draft(export, quantiles=1)


def test_a_public_reference_makes_no_draft(export: pd.DataFrame, tmp_path: Path) -> None:
    export[:600].to_csv(tmp_path / "census.csv", index=False)
    made = dualquery.schema_draft(public_reference=tmp_path / "census.csv")
    assert not made.schema.draft
    assert "from the data" not in str(made)
    made.save(tmp_path / "schema.toml")
    assert read_schema(tmp_path / "schema.toml") == made.schema
    with pytest.raises(SchemaError, match="exists already"):
        made.save(tmp_path / "schema.toml")
    with pytest.raises(DataError, match="give the table"):
        dualquery.schema_draft()


def text_of(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": range(18, 80), "sex": ["f", "m"] * 31})
    frame[frame.age > 30].to_csv(tmp_path / "indexed.csv")  # the index is 13, 14, …, and has no name
    pd.read_csv(tmp_path / "indexed.csv").sample(frac=0.8, random_state=1).to_csv(tmp_path / "again.csv")
    for name, nameless in (("indexed.csv", [""]), ("again.csv", ["", "Unnamed: 0"])):
        made = dualquery.schema_draft(tmp_path / name)
        assert list(columns(made)) == ["age", "sex"]
        assert [each.name for each in made.left_out] == nameless
        assert "column 1 has no name" in str(made)
        assert dualquery.encode(tmp_path / name, parse_schema(str(made), origin="t")).rows


def test_columns_of_one_name_are_left_out_with_their_places(tmp_path: Path) -> None:
    made = dualquery.schema_draft(text_of(tmp_path / "t.csv", "age,sex, age", "1,f,2", "2,m,3"))
    assert list(columns(made)) == ["sex"]
    assert '"age": column 1 is one of 2 with this name' in str(made)
    assert '" age": column 3 is one of 2 with this name' in str(made)


def test_what_cannot_be_drafted_says_why(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "nothing").mkdir()
    text_of(tmp_path / "texts" / "a.csv", "age,sex", "1,f")
    latin = text_of(tmp_path / "latin.csv", "town,n", "Köln,1", "Bonn,2", encoding="latin-1")
    for source, words in (
        (text_of(tmp_path / "head.csv", "age,sex"), "no rows below the names of its columns"),
        (text_of(tmp_path / "twice.csv", "a,a", "1,2"), "drafted for: .*column 1 is one of 2 with this name"),
        (text_of(tmp_path / "ragged.csv", "", "a,b", '"x\ny",1', "", "z,1,2"), "than its header: line 6,"),
        (text_of(tmp_path / "quote.csv", "a,b", "x,1", 'y"y",2'), "stray quote .*: line 3,"),
        (tmp_path / "texts", r"holds a file that is no Parquet.*texts/\*\.csv"),
        (tmp_path / "nothing", "holds no Parquet file"),
        (latin, "--encoding latin-1"),
        (pd.Series([1, 2, 3]), "a Series is one column and no table"),
        (pd.Series([1, 2, 3]).to_frame().to_numpy(), "a ndarray is not a table"),
    ):
        with pytest.raises(DataError, match=words) as error:
            dualquery.schema_draft(source)
        assert "\n" not in str(error.value)
    assert list(columns(dualquery.schema_draft(str(tmp_path / "texts" / "*.csv")))) == ["age", "sex"]
    made = dualquery.schema_draft(latin, encoding="latin-1")
    assert made.schema.encoding == "iso8859-1"
    assert parse_schema(str(made), origin="t") == made.schema
    assert dualquery.encode(latin, made.schema).rows == 2
    for wrong, error in (("klingon", SchemaError), ("utf-7", SchemaError), ("utf-16", DataError)):
        with pytest.raises(error):
            dualquery.schema_draft(latin, encoding=wrong)


def test_common_formats_of_dates_are_known() -> None:
    rng = np.random.default_rng(3)
    days = pd.Series(pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, 400), "D"))
    forms = ["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%Y", "%d.%m.%y", "%d/%m/%Y %H:%M", "%Y/%m/%d"]
    frame = pd.DataFrame({form: days.dt.strftime(form) for form in forms})
    frame.loc[:9, "%d.%m.%Y"] = "NA"
    made = dualquery.schema_draft(frame)
    found = columns(made)
    for form in forms:
        column = found[form]
        assert isinstance(column, Dates)
        assert (column.format, column.by, column.labels[0]) == (form, "month", "2021-01")
    assert found["%d.%m.%Y"].empty == ("NA",)
    schema = parse_schema(str(made), origin="t")
    assert schema == made.schema
    assert dualquery.encode(frame, schema).rows == 400


def test_a_date_that_can_be_read_in_two_ways_is_for_a_person_to_decide() -> None:
    frame = pd.DataFrame(
        {"seen": ["02/01/2021", "04/03/2021", "06/05/2021"] * 20, "sex": ["f", "m", "f"] * 20}
    )
    made = dualquery.schema_draft(frame)
    assert list(columns(made)) == ["sex"]
    text = str(made)
    assert '# format = "%d/%m/%Y"  # or "%m/%d/%Y": which one is meant?' in text
    assert parse_schema(text, origin="t") == made.schema
    head, choice = text.split("# [[attribute]]")
    chosen = head + "[[attribute]]" + choice.replace("\n# ", "\n")
    for form in ("%d/%m/%Y", "%m/%d/%Y"):  # the bounds hold whatever is chosen
        schema = parse_schema(chosen.replace("%d/%m/%Y", form), origin="t")
        assert schema.domain.columns[1].format == form
        assert dualquery.encode(frame, schema).rows == 60


def test_numbers_are_no_dates() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "parts": rng.integers(10_000_000, 99_999_999, 300),
            "ratio": [f"{x:.4f}" for x in rng.uniform(1, 12, 300)],
            "version": rng.choice(["1.2.3", "1.10.2"], 300),
        }
    )
    assert not any(isinstance(column, Dates) for column in columns(dualquery.schema_draft(frame)).values())


def test_ids_that_come_again_are_proposed_as_the_unit() -> None:
    rng = np.random.default_rng(4)
    rows = 480
    frame = pd.DataFrame(
        {
            "id": np.repeat(np.arange(1000, 1020), 24),  # 24 rows each
            "patient": np.repeat([f"P{i:04d}" for i in range(240)], 2),
            "token": rng.permutation(np.repeat([f"x{i:04d}y" for i in range(240)], 2)),
            "visitId": rng.integers(0, 400, rows),
            "region_id": rng.integers(0, 5, rows),
            "paid": rng.permutation(np.arange(0, 20 * rows, 20)),
            "covid": rng.choice(["yes", "no"], rows),
            "sex": rng.choice(["f", "m"], rows),
        }
    )
    made = dualquery.schema_draft(frame)
    assert list(columns(made)) == ["region_id", "paid", "covid", "sex"]
    text = str(made)
    assert '\n[table]\n# unit = "id"   # about 24 rows each: a person?\n' in text
    assert '# unit = "patient"   # about 2 rows each: a person?\n' in text
    assert '# unit = "token"   # about 2 rows each: a person?\n' in text
    assert '# unit = "visitId"   # ' in text
    assert parse_schema(text, origin="t") == made.schema
    said = parse_schema(text.replace('# unit = "id"', 'unit = "id"'), origin="t")
    assert said.unit == "id"
    assert dualquery.encode(frame, said, records_per_person=3).rows == 60


def test_whole_numbers_written_as_floats_are_whole() -> None:
    frame = pd.DataFrame({"stage": ["1.0", "2.0", "3.0", ""] * 20, "half": ["0.5", "1.0", "1.5", "2.0"] * 20})
    made = dualquery.schema_draft(frame)
    assert columns(made)["stage"].values == ("1", "2", "3", "missing")
    assert columns(made)["half"].values == ("0.5", "1.0", "1.5", "2.0")
    for whole in (frame, frame.assign(stage=[1, 2, 3, None] * 20), frame.assign(stage=[1, 2, 3, 1] * 20)):
        assert dualquery.encode(whole, made.schema).rows == 80


@pytest.mark.parametrize("name", ["count", "Freq", "n"])
def test_a_row_that_may_stand_for_several_records_is_asked_about(name: str) -> None:
    rows = {"sex": ["f", "m"] * 40, name: list(range(40)) * 2}
    question = "# is a row of this file several records"
    draft = str(dualquery.schema_draft(pd.DataFrame(rows)))
    assert draft.count(question) == 1
    assert f'name = "{name}"' in draft.partition(question)[2]
    assert parse_schema(draft, origin="t").draft
    few = pd.DataFrame({"sex": ["f", "m"] * 40, name: [0, 1, 2, 5] * 20})
    assert question in str(dualquery.schema_draft(few))
    for other in ({"country": [1, 2] * 40}, {name: ["a", "b"] * 40}, {name: np.linspace(0, 1, 80)}):
        assert question not in str(dualquery.schema_draft(pd.DataFrame(other)))


@pytest.mark.data
@pytest.mark.parametrize("name", ["mildew", "rochdale"])
def test_tables_of_counts_are_asked_about(name: str, data_folder: Path) -> None:
    assert "# is a row of this file several records" in str(
        dualquery.schema_draft(data_folder / f"{name}.csv")
    )


KEYED = """
create table household (hh integer primary key, head integer, region text not null);
create table job (code varchar(9) primary key, skill text);
create table person (pid integer primary key, hh integer not null references household, job varchar(9)
    references job (code), partner integer references person (pid), age integer);
create table spell (pid integer references person, days integer);
"""
CIRCLE = """
create table a (x int primary key, y int references b);
create table b (y int primary key, x int references a);
"""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keyed") / "census.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(KEYED)
        connection.execute("insert into household values (1, 2, 'a secret')")
    return path


def drafted_database(source: Path | str, *flags: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["schema", "draft", str(source), *flags]) == 0
    return out.getvalue()


def completed(text: str) -> str:
    """As a steward completes it: how many, and the values of each attribute."""
    text = text.replace("# at_most = …", "at_most = 6").replace(
        "# [[table.attribute]]\n# name", "[[table.attribute]]\nname"
    )
    return re.sub(r"# # .*", 'values = ["1", "2"]', text)


def test_keys_that_a_database_declares_become_a_schema_of_it(keyed: Path) -> None:
    text = drafted_database(keyed, "--public", "job")
    assert "secret" not in text
    assert '"spell": no key leads from it to household in one step' in text
    with pytest.raises(SchemaError, match="'person' needs 'at_most'"):
        parse_schema(completed(text).replace("at_most = 6", ""), origin="t")
    found = parse_schema(completed(text), origin="t").domain
    assert isinstance(found, Database)
    person = found.child("person")
    assert (found.root.name, found.root.key, person.link, person.at_most) == ("household", "hh", "hh", 6)
    assert [column.name for column in found.root.own] == ["head", "region"]
    assert [column.name for column in person.own] == ["age"]
    assert [(each.name, each.key, each.link) for each in person.lookups] == [("job", "code", "job")]


@pytest.mark.parametrize(
    ("script", "flags", "said"),
    [
        (KEYED, (), "several tables could be protected, household, job: say which one is"),
        (KEYED, ("--protect", "household"), "rows of 'person' hang on 'job', too"),
        (KEYED, ("--protect", "spell"), "no table has a foreign key to 'spell'"),
        (KEYED, ("--public", "jobs"), "the database has no table 'jobs'"),
        (KEYED, ("--protect", "job", "--public", "job"), "cannot be protected and public"),
        (CIRCLE, (), "tables refer to each other in a circle, a, b: say which one is protected"),
        ("create table a (x int, y int, primary key (x, y)); "
         "create table b (z int, u int, foreign key (z, u) references a)",
         (), "'b' refers to 'a' by several columns (z, u)"),
        ("create table a (x int primary key); create table b (x int references a, y int references a)",
         (), "'b' refers to 'a' by several columns (x), in several ways"),
        ("create table a (x int)", ("--protect", "a"), "--protect and --public are for a whole database"),
    ],
)  # fmt: skip
def test_keys_that_say_no_database_are_told_in_a_sentence(
    tmp_path: Path, script: str, flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
    assert run(["schema", "draft", str(path), *flags, "--out", str(tmp_path / "schema.toml")]) == 2
    assert said[1:] in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "schema.toml").exists()


def test_keys_of_sqlite_are_found_whatever_their_case_and_truth_values_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript("""
            create table House (Id int primary key, r int);
            create table p (h int references house (ID), own boolean not null);
            create table q (h int references HOUSE, own boolean not null);
        """)
    found = parse_schema(completed(drafted_database(path)), origin="t").domain
    assert isinstance(found, Database)
    assert (found.root.key, [each.link for each in found.children]) == ("Id", ["h", "h"])
    assert found.child("p").own[0].labels == ("0", "1")


def test_a_table_alone_is_drafted_whatever_it_refers_to(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "create table a (x int primary key, y int references a); insert into a values (1, 1)"
        )
    assert "[[attribute]]" in drafted_database(path)


def test_a_circle_is_none_where_it_is_said_who_is_protected(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(CIRCLE)
    assert 'protect = "a"\n\n[[table]]\nname = "a"\nkey = "x"' in drafted_database(path, "--protect", "a")
