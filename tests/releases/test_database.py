"""Releases of a database: tables with keys that fit, kept in a folder, asked about units and about their rows.

A stand-in plays here that measures next to nothing: these tests are about what is made of units that were released.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import dualquery
from dualquery import (
    Budget,
    Curator,
    Neighbours,
    Outcome,
    PersonAddRemove,
    PersonReplace,
    Plan,
    Progress,
    Release,
    Step,
    Task,
    example,
)
from dualquery.errors import DualQueryError, QueryError, ReleaseError, SchemaError
from dualquery.fitting.measured import Measured
from dualquery.fitting.public_units import PublicUnits
from dualquery.kinds.special import DATABASE
from dualquery.mechanisms.artefact import SyntheticUnits, synthetic
from dualquery.mechanisms.error_bars import ANY
from dualquery.mechanisms.mechanism import Mechanism, hidden
from dualquery.mechanisms.wishes import MECHANISMS, NoWishes
from dualquery.privacy.noise import Gaussian, Noise
from dualquery.queries.derived import number_of_records
from dualquery.queries.families import from_texts
from dualquery.queries.language.units import rows_groups_of
from dualquery.queries.rules import checked
from dualquery.registry import KINDS
from dualquery.releases.certificate import Certificate
from dualquery.releases.check import as_released, hanging
from dualquery.releases.frames import units_for_people
from dualquery.releases.public import public_rows
from dualquery.table.database import Database
from dualquery.table.schema import parse_schema
from dualquery.table.units import Units, units_of
from tests.house import database_in
from tests.table.test_database import ALONE
from tests.table.test_linking import frames


@dataclass(frozen=True, kw_only=True)
class Parameters:
    units: int
    law: Noise = hidden()


def planned(task: Task, wanted: NoWishes) -> Plan[Parameters]:
    law = Gaussian(Fraction(400))
    event = law.event(task.budget.neighbours.sensitivity(number_of_records(task.domain).bound()))
    return Plan(
        mechanism="stand-in",
        task=task,
        reason="it stands in",
        parameters=Parameters(units=task.rows, law=law),
        steps=(Step("measure how many there are", event),),
        mean_error=0.1,
        max_error=0.5,
        seconds=0.0,
        bytes=1,
    )


def random_units(database: Database, number: int, rng: np.random.Generator) -> Units:
    tables = []
    for child in database.children:
        sizes = rng.integers(child.at_least, child.at_most + 1, number)
        rows = rng.integers(0, child.domain.sizes, (int(sizes.sum()), child.domain.width))
        tables.append((sizes, rows))
    roots = rng.integers(
        0, [len(c.labels) for c in database.root.columns], (number, len(database.root.columns))
    )
    return units_of(database, roots, tables)


def run(plan: Plan[Parameters], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    domain = plan.task.domain
    assert isinstance(domain, Database)
    curator.measure(number_of_records(domain), noise=plan.parameters.law)
    return Outcome(artefact=synthetic(random_units(domain, plan.parameters.units, rng)))


STAND_IN = Mechanism(
    "stand-in",
    "random units",
    NoWishes,
    planned,
    run,
    plays=("database",),
    replica=lambda plan: plan,
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        KINDS._values, "database", replace(DATABASE, prefers=lambda task: (("stand-in", "It stands in."),))
    )
    monkeypatch.setitem(MECHANISMS._values, "stand-in", STAND_IN)


SOME = 400


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    made = example.households(Path()).files
    household, person = (made[f"{name}.csv"].to_pandas() for name in ("household", "person"))
    return {"household": household[household.hh < SOME], "person": person[person.hh < SOME]}


BUDGET = Budget(2.0, 1e-6, "add-remove")


def released(tables: dict[str, pd.DataFrame], **options: Any) -> Release:
    schema = parse_schema(example.DATABASE_SCHEMA, origin="the example")
    given = {"workload": "marginals:2", "budget": BUDGET, "seed": 3, "check": 0.0, **options}
    return dualquery.release(tables, schema=schema, **given)


def test_keys_of_released_tables_fit(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    household, person = made.tables["household"], made.tables["person"]
    assert list(household) == ["hh", "region", "housing"]
    assert list(person) == ["pid", "hh", "age", "sex", "work", "education"]
    assert household.hh.is_unique
    assert person.pid.is_unique
    assert set(person.hh) == set(household.hh), "every household has somebody, and nobody is an orphan"
    assert person.groupby("hh").size().max() <= 6
    assert made.certificate["records"]["from"].startswith("measured")
    assert abs(len(household) - SOME) < 150


def test_a_release_is_the_same_when_it_is_read_again(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    made = released(tables)
    made.save(tmp_path / "released", csv=True)
    again = Release.load(tmp_path / "released")
    dualquery.verify(tmp_path / "released")
    for name, frame in made.tables.items():
        pd.testing.assert_frame_equal(frame, again.tables[name])
        written = pd.read_csv(tmp_path / "released" / f"{name}.csv")
        assert (written["hh"] == frame["hh"]).all()
    questions = [
        "any(person.age < 18)",
        "region = Coast",
        "count(person where sex = female) >= 2",
        "person >= 3",
    ]
    assert made.replicas
    assert list(map(str, made.answer_all(questions))) == list(map(str, again.answer_all(questions)))
    assert str(made.answer("age >= 65", of="person")) == str(again.answer("age >= 65", of="person"))
    assert "any(person.age = …)" in (tmp_path / "released" / "report.html").read_text(encoding="utf-8")


def test_answers_are_those_of_the_tables(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    household, person = made.tables["household"], made.tables["person"]
    old = person[person.age >= 65].hh
    asked = {
        "any(person.age >= 65)": household.hh.isin(old).mean(),
        "region = Coast & any(person.age >= 65)": (
            household.hh.isin(old) & (household.region == "Coast")
        ).mean(),
        "count(person where sex = male) = 2": (person[person.sex == "male"].groupby("hh").size() == 2).sum()
        / len(household),
    }
    for text, value in asked.items():
        found = made.answer(text)
        assert found.value == pytest.approx(value)
        assert found.error is not None
    joined = person.merge(household, on="hh")
    value = ((joined.age >= 65) & (joined.region == "Coast")).mean()
    assert made.answer("age >= 65 & household.region = Coast", of="person").value == pytest.approx(value)
    share = made.answer("sex = male", of="person", given="age >= 65").value
    assert share == pytest.approx((joined[joined.age >= 65].sex == "male").mean())
    assert list(made.answers(["sex = male"], of="person")["share"]) == pytest.approx(
        [(person.sex == "male").mean()]
    )


def test_a_bare_attribute_of_a_child_is_refused_with_what_to_write(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    with pytest.raises(
        QueryError, match=r"any\(person\.age …\), all\(person\.age …\) or count\(person where age …\)"
    ):
        made.answer("person.age >= 65")
    with pytest.raises(QueryError, match="there are person"):
        made.answer("age >= 65", of="car")
    with pytest.raises(QueryError, match="asks about a whole household"):
        made.answer("any(person.age >= 65)", of="person")


def test_what_a_public_table_says_is_asked_and_released(
    tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    text = example.DATABASE_SCHEMA.replace('key = "hh"', 'key = "hh"\nlookup = { place = "region" }', 1)
    text += '[[table]]\nname = "place"\npublic = true\nkey = "region"\n'
    text += '[[table.attribute]]\nname = "climate"\nvalues = ["mild", "harsh"]\n'
    place = pd.DataFrame(
        {"region": ["North", "East", "South", "West", "Coast"], "climate": ["harsh", "harsh", *["mild"] * 3]}
    )
    schema = parse_schema(text, origin="schema")
    units = dualquery.encode({**tables, "place": place}, schema)
    (climate,) = from_texts(units.domain, ["climate = harsh"]).groups
    assert climate.counts(units)[0] == tables["household"].region.isin(["North", "East"]).sum()
    made = dualquery.release(
        {**tables, "place": place}, schema=schema, workload="marginals:2", budget=BUDGET, check=0.0
    )
    assert list(made.tables) == ["household", "person"]
    assert list(made.tables["household"]) == ["hh", "region", "housing", "climate"]
    made.save(tmp_path / "released")
    dualquery.verify(tmp_path / "released")
    again = Release.load(tmp_path / "released")
    asked = "climate = mild & any(person.age >= 65)"
    assert str(again.answer(asked)) == str(made.answer(asked))
    prior, _ = public_rows(tmp_path / "released", None, schema, tables)
    assert isinstance(prior, PublicUnits)
    assert made.records is not None
    assert prior.units.domain == schema.domain
    rows = [sorted(map(tuple, each.to_rows().tolist())) for each in (prior.units, made.records)]
    assert rows[0] == rows[1]


def test_a_release_of_one_table_has_no_tables(records: Any) -> None:
    made = dualquery.release(records, workload="marginals:1", budget=Budget(1, 1e-6), mechanism="uniform")
    with pytest.raises(QueryError, match="holds one table"):
        _ = made.tables


def test_csv_files_for_each_table(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    made = released(tables)
    with pytest.raises(ReleaseError, match="name the folder"):
        made.to_csv()
    made.to_csv(tmp_path / "out")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"household.csv", "person.csv"}
    schema = parse_schema(example.DATABASE_SCHEMA, origin="the example")
    again = dualquery.encode(tmp_path / "out", schema)
    assert isinstance(again, Units)
    assert again.dropped == {}
    assert checked(schema, tmp_path / "out").sound
    blank = tables["household"].assign(hh=None)
    assert (
        f"left out: rows of 'household' with a blank key, {len(blank):,}"
        in checked(schema, tables | {"household": blank}).notes
    )
    assert again.rows == len(made.tables["household"])


@pytest.mark.parametrize("file", ["person.parquet", "replicas.person.parquet"])
def test_a_table_that_was_changed_by_hand_is_refused(
    tables: dict[str, pd.DataFrame], tmp_path: Path, file: str
) -> None:
    released(tables).save(tmp_path / "released")
    path = tmp_path / "released" / file
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.slice(0, table.num_rows - 1), path)
    with pytest.raises(ReleaseError):
        Release.load(tmp_path / "released")


def test_keys_that_do_not_fit_are_no_release(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables).artefact
    assert isinstance(made, SyntheticUnits)
    files = made.files()
    orphans = files["person.parquet"].to_pandas()
    orphans["hh"] += 1
    with pytest.raises(DualQueryError, match="keys of 'person'"):
        SyntheticUnits.of_files(
            made.records.domain, {**files, "person.parquet": pyarrow.Table.from_pandas(orphans)}
        )


def test_where_the_number_of_records_is_public_nothing_may_be_dropped(
    tables: dict[str, pd.DataFrame],
) -> None:
    for neighbours in (Neighbours.REPLACE, PersonAddRemove(3), PersonReplace(3)):
        with pytest.raises(SchemaError, match="add-remove"):
            released(tables, budget=Budget(1, 1e-6, neighbours))
    schema = parse_schema(example.DATABASE_SCHEMA, origin="the example")
    with pytest.raises(SchemaError, match="add-remove"):
        dualquery.plan(schema, workload="marginals:1", budget=Budget(1, 1e-6), records=500)


def test_tables_of_units_and_of_their_rows(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    assert isinstance(made.artefact, SyntheticUnits)
    household, person = (made.artefact.tables[name].to_pandas() for name in ("household", "person"))
    found = made.table(["region", "person"], where="any(person.age >= 65)")
    old = household[household.hh.isin(person[person.age >= 65].hh)]
    assert found.share.sum() == pytest.approx(len(old) / len(household))
    assert len(found) == 5 * 6
    rows = made.of("person")
    shares = rows.table(["person.sex"]).set_index("person.sex").share
    assert shares["male"] == pytest.approx((person.sex == "male").mean())
    assert f"{len(person):,} synthetic records" in repr(rows)


BAD = {
    "value": lambda t: t["person"].assign(sex=t["person"].sex.where(t["person"].pid != 5, "?")),
    "blank key": lambda t: t["person"].assign(
        hh=t["person"].hh.astype(object).where(t["person"].pid != 5, "")
    ),
    "orphan": lambda t: t["person"].assign(hh=t["person"].hh.where(t["person"].pid != 5, 10**6)),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_rows_leave_no_trace_in_a_release(
    tables: dict[str, pd.DataFrame], tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was dropped is known to the steward who encodes the table, and stands in nothing that is released."""
    schema = parse_schema(example.DATABASE_SCHEMA, origin="the example")
    spoilt = {**tables, "person": BAD[fault](tables)}
    units = dualquery.encode(spoilt, schema)
    assert isinstance(units, Units)
    assert sum(units.dropped.values()) >= 1
    made = released(spoilt)
    made.save(tmp_path / "released")
    words = json.dumps(json.loads(made.certificate.to_json())) + (
        tmp_path / "released" / "report.html"
    ).read_text(encoding="utf-8")
    assert "dropped" not in words
    assert not any(reason in words for reason in units.dropped)
    assert capsys.readouterr().out == ""


def test_frames_of_the_toy_are_a_database() -> None:
    assert set(frames()) == {"household", "person", "car"}


def test_an_evaluation_compares_rows_and_pairs_of_them_too(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    found = dualquery.evaluate(made, tables)
    assert [each.what.partition(" of ")[0] for each in found.hanging] == [
        "rows",
        "rows",
        "two rows",
        "any",
        "all",
        "two or more",
    ]
    assert [each.number for each in found.hanging] == [6, 15, 10, 16, 16, 16]
    assert all(0 < each.mean <= each.largest for each in found.hanging)
    persons = dualquery.evaluate(made, tables, "marginals:1", of="person")
    assert persons.rows == len(tables["person"])
    assert persons.hanging == ()
    # By hand: the share of persons by sex, and of households with somebody under 6.
    person = made.artefact.records.joined("person").to_rows()  # type: ignore[attr-defined]
    sex = list(made.of("person").domain.names()).index("person.sex")
    truth = (tables["person"].sex == "male").mean()
    off = abs((person[:, sex] == 1).mean() - truth)
    assert dualquery.evaluate(made, tables, ["person.sex = male"], of="person").max_error == pytest.approx(
        off
    )


def test_a_release_against_itself_has_no_error(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    made = released(tables)
    records = made.records
    assert records is not None
    found = dualquery.evaluate(made, records)
    assert [each.largest for each in found.hanging] == pytest.approx([0.0] * 6, abs=1e-12)


def test_sql_counts_along_keys_with_one_factor_for_all_tables(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    assert isinstance(made.artefact, SyntheticUnits)
    household, person = (made.artefact.tables[name].to_pandas() for name in ("household", "person"))
    factor = made.certificate["records"]["rows"] / len(household)
    found = made.sql("select count(*) as n, avg(case when sex = 'male' then 1 else 0 end) as men from person")
    assert found.n[0] == pytest.approx(factor * len(person))
    assert found.men[0] == pytest.approx((person.sex == "male").mean())
    assert found.n_bar[0] > 0
    by_region = person.merge(household, on="hh").groupby("region").size()
    for joined in (
        "household h join person p on h.hh = p.hh",
        "person join household on person.hh = household.hh",
        "household join person using (hh)",
        "household left join person using (hh)",
    ):
        found = made.sql(f"select region, count(*) as n from {joined} group by region order by region")
        assert dict(zip(found.region, found.n, strict=True)) == pytest.approx(dict(factor * by_region))
        assert (found.n_bar > 0).all()
    pairs = person.merge(person, on="hh")
    found = made.sql("select count(*) as n from person a join person b on a.hh = b.hh where a.sex <> b.sex")
    assert found.n[0] == pytest.approx(factor * (pairs.sex_x != pairs.sex_y).sum())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select count(*) from household, person", "joined along their keys alone"),
        ("select count(*) from household natural join person", "joined along their keys alone"),
        ("select count(*) from household h join person p on h.hh = p.pid", "joined along their keys alone"),
        ("select count(*) from household h join person p on h.hh < p.hh", "joined along their keys alone"),
        ("select count(*) from person a join person b on a.age = b.age", "joined along their keys alone"),
        ("select count(*) from person a join person b on a.hh = a.hh", "joined along their keys alone"),
        ("select hh, count(*) from person group by hh", "'hh' is a key that the release made up"),
        ("select count(*) from (select hh, count(*) as k from person group by hh) where k > 2", "one SELECT"),
        ("select count(*) from data", "no table 'data'; there are household, person"),
        ("select 1", "name a table behind FROM: household, person"),
        ("select count(*) from household where region in (select region from household)", "one SELECT"),
        ("select count(*) from household union select count(*) from person", "one SELECT"),
        ("drop table person", "only SELECT"),
    ],
)  # fmt: skip
def test_other_sql_is_refused_in_a_sentence(tables: dict[str, pd.DataFrame], text: str, said: str) -> None:
    with pytest.raises(QueryError) as refused:
        released(tables).sql(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_sql_is_asked_of_the_whole_release(tables: dict[str, pd.DataFrame]) -> None:
    with pytest.raises(QueryError, match="whole release"):
        released(tables).of("person").sql("select count(*) from data")


BARE = """
[database]
protect = "shop"
[[table]]
name = "shop"
key = "id"
[[table]]
name = "order"
parent = "shop"
link = "shop"
at_most = 20
[[table.attribute]]
name = "paid"
values = ["cash", "card"]
"""


@pytest.mark.parametrize("orders", [0, 30], ids=["nobody ordered", "many orders"])
def test_a_protected_table_without_attributes(tmp_path: Path, orders: int) -> None:
    schema = parse_schema(BARE, origin="schema")
    rng = np.random.default_rng(1)
    shops = np.repeat(np.arange(60), rng.integers(0, orders, 60)) if orders else np.empty(0, np.int64)
    tables = {
        "shop": pd.DataFrame({"id": np.arange(60)}),
        "order": pd.DataFrame({"shop": shops, "paid": np.array(["cash", "card"])[shops % 2]}),
    }
    units = dualquery.encode(tables, schema)
    assert isinstance(units, Units)
    assert units.rows == 60
    assert units.members[0].sizes.max() <= 20
    given = {"workload": "marginals:1", "budget": BUDGET, "seed": 1, "check": 0.0, "mechanism": "stand-in"}
    made = dualquery.release(tables, schema=schema, **given)  # type: ignore[arg-type]
    made.save(tmp_path / "released")
    again = Release.load(tmp_path / "released")
    assert list(again.tables["shop"]) == ["id"]
    assert list(again.tables["order"]) == ["shop", "paid"]
    for text in ("any(order.paid = cash)", "count(order) >= 6", "order >= 5", "all(order.paid = card)"):
        assert again.answer(text).value == made.answer(text).value
    assert dualquery.evaluate(made, tables).queries == len(units.domain.columns[0].labels)


def test_where_fewer_units_were_fitted_than_there_are_some_stand_several_times() -> None:
    whole = SyntheticUnits(random_units(database_in(), 10, np.random.default_rng(3)))
    release: Any = SimpleNamespace(certificate={"rows_for_people": 25})
    people = units_for_people(release, whole)
    homes, persons = (people.tables[name].to_pandas() for name in ("household", "person"))
    assert homes["hh"].tolist() == list(range(1, 26))
    assert set(persons["home"]) <= set(homes["hh"])
    expected = whole.records.take(np.array([*range(10), *range(10), *range(5)]))
    assert (people.records.to_rows() == expected.to_rows()).all()
    assert (people.records.members[0].records.to_rows() == expected.members[0].records.to_rows()).all()


def test_a_frame_alone_is_released_with_keys_for_whom_it_names(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hh": [1, 1, 2, 3], "sex": ["f", "m", "f", "?"]})
    budget = Budget(1, 1e-6, Neighbours.ADD_REMOVE)
    made = dualquery.release(
        frame, schema=parse_schema(ALONE, origin="schema"), budget=budget, workload="marginals:1"
    )
    assert set(made.tables) == {"household", "person"}
    assert made.tables["household"].columns.tolist() == ["hh"]
    assert set(made.tables["person"]["hh"]) == set(made.tables["household"]["hh"])
    made.save(tmp_path / "made")
    again = Release.load(tmp_path / "made")
    assert again.answer("any(sex = f)").value == made.answer("any(sex = f)").value
    assert again.answer("sex = f", of="person").value == made.answer("sex = f", of="person").value


def test_what_databases_do_not_have_is_refused_in_a_sentence(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    for asked in (made, made.of("person")):
        with pytest.raises(QueryError, match="of a database nothing can be estimated"):
            asked.estimate("region = East")
        with pytest.raises(QueryError, match="of a database nothing can be estimated"):
            asked.regress("region ~ kind")
    with pytest.raises(DualQueryError, match="those of its protected table"):
        released(tables, totals=tables["person"][["sex", "work"]].assign(people=1))
    with pytest.raises(DualQueryError, match="those of its protected table"):
        released(tables, totals=pd.DataFrame({"region": ["East"], "person": [2], "households": [5]}))
    with pytest.raises(DualQueryError, match="of a database cannot be fitted again"):
        dualquery.refit(made, prior=tables, prior_origin="a census")


@pytest.fixture
def public(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: frame[frame.hh < SOME // 2] for name, frame in tables.items()}


def test_a_database_starts_from_public_ones(
    tables: dict[str, pd.DataFrame], public: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    given = {"mechanism": "linked", "synthetic_rows": 500, "seed": None}
    made = released(tables, prior=public, prior_origin="a census", **given)
    (entry,) = made.certificate["prior"]
    assert (entry["origin"], entry["records"], entry["lacks"]) == ("a census", SOME // 2, ())
    assert 0 < made.certificate["trust"]["share"] <= 1
    assert any("the prior counts as" in note for note in made.certificate["notes"])
    assert made.certificate["spent"] == released(tables, **given).certificate["spent"]
    made.save(tmp_path / "last")
    dualquery.verify(tmp_path / "last")
    again = released(tables, prior=[public, tmp_path / "last"], prior_origin="a census", **given)
    assert [each["records"] for each in again.certificate["prior"]] == [
        200,
        made.certificate["records"]["rows"],
    ]
    swapped = {"household": public["household"], "person": public["person"].sample(frac=1, random_state=1)}
    other = released(tables, prior=swapped, prior_origin="a census", **given).certificate["prior"][0]
    assert other["digest"] == entry["digest"], "in whatever order the rows of a file stand"


@pytest.mark.parametrize("mechanism", ["stand-in", "linked"])
def test_units_meet_totals_of_their_own_attributes(
    tables: dict[str, pd.DataFrame], mechanism: str, tmp_path: Path
) -> None:
    counts = tables["household"].groupby(["region", "housing"], as_index=False).size()
    counts = counts.rename(columns={"size": "households"})
    counts.loc[0, "households"] += 7
    options = {"synthetic_rows": None} if mechanism == "linked" else {}
    made = released(tables, totals=counts, mechanism=mechanism, **options)
    made.save(tmp_path / "released")
    dualquery.verify(tmp_path / "released")
    again = Release.load(tmp_path / "released")
    for each in (made, again):
        found = each.tables["household"].astype(str).groupby(["region", "housing"]).size()
        assert dict(found) == dict(counts.set_index(["region", "housing"]).households)
        assert set(each.tables["person"].hh) == set(each.tables["household"].hh)
    assert made.certificate["totals"][0]["records"] == SOME + 7
    assert made.certificate["totals"][0]["attributes"] == ("region", "housing")
    region = counts.groupby("region").households.sum()
    assert made.answer("region = Coast").value == pytest.approx(region["Coast"] / (SOME + 7))


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (lambda t: {"household": t["household"]}, "the prior 'x': no table 'person' was given"),
        (lambda t: {**t, "person": t["person"].drop(columns="work")}, "no column 'work'"),
        (lambda t: {**t, "person": t["person"].assign(hh=-1)}, "has no household that the schema allows"),
        (lambda t: t["person"], "the prior 'x': a DataFrame is no database"),
        (lambda t: "nowhere", "there is no prior 'nowhere'"),
        (lambda t: SOURCE, "is the private table itself"),
        (lambda t: {**t, "person": SOURCE["person"]}, "is the private table itself"),
    ],
)  # fmt: skip
def test_priors_of_a_database_that_are_refused(
    public: dict[str, pd.DataFrame], prior: Any, said: str
) -> None:
    SOURCE.update({name: frame.copy() for name, frame in public.items()})
    with pytest.raises(DualQueryError, match=said):
        released(SOURCE, prior=prior(public), prior_origin="x", mechanism="linked")


def test_one_table_and_a_database_are_no_priors_of_each_other(
    tables: dict[str, pd.DataFrame], records: Any
) -> None:
    flat = dualquery.release(
        records, workload="marginals:1", budget=Budget(1, 1e-6), mechanism="uniform", check=0
    )
    with pytest.raises(
        DualQueryError, match="the prior is a release of one table, and the schema describes a database"
    ):
        released(tables, prior=flat, mechanism="linked")
    schema = parse_schema(example.SCHEMA, origin="the example")
    with pytest.raises(DualQueryError, match="a dict is not a table"):
        dualquery.release(
            records,
            schema=schema,
            workload="marginals:1",
            budget=Budget(1, 1e-6),
            prior=tables,
            prior_origin="x",
        )


SOURCE: dict[str, pd.DataFrame] = {}
RICH = Budget(200.0, 1e-6, "add-remove")


def weighed_error(truth: Units, made: Units, slots: int, c: int) -> float:
    """The mean error of tables of two attributes of persons (slots 1) or of pairs of them, each person of a unit of m
    counting ⌊1000 · min(1, c/E)/c⌋ thousandths, E = m or m(m − 1): row by row."""
    width, own = truth.database.width, truth.members[0].records.domain.width

    def told(units: Units) -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
        roots, rows = units.to_rows(), units.members[0].records.to_rows()
        tables: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        for u, (a, b) in enumerate(pairwise(units.members[0].start.tolist())):
            found = [
                (x,) if slots == 1 else (x, y)
                for x in range(a, b)
                for y in range(a, b)
                if (x != y or slots == 1)
            ]
            found = list(dict.fromkeys(found))
            for each in found:
                flat = [*roots[u], *(code for row in each for code in rows[row])]
                weight = int(1000 * min(1, c / len(found)) / c + 1e-9) / units.rows
                for s in combinations(range(width + slots * own), 2):
                    held = [(j - width) % own for j in s if j >= width]
                    both = len(held) == 2 and s[0] < width + own <= s[1] and held[0] <= held[1]
                    if not (held if slots == 1 else both):
                        continue
                    cells, cell = tables.setdefault(s, {}), (flat[s[0]], flat[s[1]])
                    cells[cell] = cells.get(cell, 0.0) + weight
        return tables

    one, other = told(truth), told(made)
    off = [
        sum(abs(one[s].get(x, 0) - other[s].get(x, 0)) for x in one[s].keys() | other[s].keys()) for s in one
    ]
    return float(np.mean(off)) / sum(next(iter(other.values())).values())


def test_a_check_measures_rows_and_pairs_of_them_too(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    made = released(tables, check=0.3, budget=RICH)
    found = made.certificate["check"]["orders"]
    kinds = [(each.get("of"), each["attributes"]) for each in found]
    assert kinds == [(None, 1), (None, 2), (None, 3), ("person", 2), ("pairs of person", 2)]
    assert [each["tables"] for each in found[3:]] == [6 + 12, 10]
    truth = dualquery.encode(tables, parse_schema(example.DATABASE_SCHEMA, origin="the example"))
    assert isinstance(truth, Units)
    assert isinstance(made.records, Units)
    for each, view in zip(found[3:], hanging(truth.domain), strict=True):
        by_hand = weighed_error(truth, made.records, view.slots, as_released(view, made.records).c)
        assert by_hand > 0.2
        assert abs(each["error"] - by_hand) <= 2 * each["bar"]
        assert each["bar"] < 0.1 * by_hand
    made.save(tmp_path / "released")
    again = Release.load(tmp_path / "released")
    for text, of in (("any(sex = male & age >= 65)", None), ("sex = male & region = Coast", "person")):
        assert str(again.answer(text, of=of)) == str(made.answer(text, of=of))
    said = (tmp_path / "released" / "report.html").read_text(encoding="utf-8")
    assert "tables of two attributes of pairs of person" in said


def test_bars_of_rows_and_of_any_follow_their_own_check(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables, check=0.3, budget=RICH)
    scales = {("", 2): 1.0, ("person", 2): 3.0, ("pairs of person", 2): 2.0}
    data = {
        **made.certificate.plain(),
        "predicted_error": made.certificate.predicted_error.scaled(scales).to_json(),
    }
    wide = replace(made, certificate=Certificate.of(data))
    rows, anything = "sex = male & age >= 18", "any(sex = male & age >= 18) & region = Coast"
    for text, of in ((rows, "person"), (anything, None)):
        assert wide.answer(text, of=of).error == pytest.approx(3 * made.answer(text, of=of).error)
    own = "region = Coast & person = 2"
    assert wide.answer(own).error == made.answer(own).error
    found = made.certificate["check"]["orders"]
    assert all(each["scale"] for each in found if each["attributes"] > 1)


def test_each_kind_of_question_has_curves_of_its_own(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    made = released(tables, check=0)
    predicted = made.certificate.predicted_error
    assert list(predicted.curves_of) == ["person", ANY]
    joined = [each.joined("person") for each in made.replicas]
    group = rows_groups_of(made.domain, made.of("person").domain, ["sex = male & age >= 18"], [""])[0]
    errors = [each.seen(group).errors for each in joined]
    answer = made.answer("sex = male & age >= 18", of="person")
    by_hand = predicted.curves_of["person"].bars(np.array([answer.value]), np.array([2]), errors)
    assert answer.error == pytest.approx(by_hand[0])
    wider = replace(
        predicted, curves_of={**predicted.curves_of, ANY: predicted.curves_of[ANY].scaled({1: 4.0})}
    )
    other = replace(
        made,
        certificate=Certificate.of(made.certificate.plain() | {"predicted_error": wider.to_json()}),
    )
    for text, of in (("region = Coast & person = 2", None), ("sex = male", "person")):
        assert other.answer(text, of=of).error == made.answer(text, of=of).error
    assert other.answer("any(sex = male)").error > 2 * made.answer("any(sex = male)").error


def test_rows_and_pairs_have_criteria(tables: dict[str, pd.DataFrame]) -> None:
    criteria = [
        {"tables": 2, "of": "person", "mean": 5.0},
        {"tables": 2, "of": "pairs of person", "worst": 5.0},
        {"tables": 3, "of": "person", "mean": 5.0},
        {"table": ["region", "person.work"], "error": 0.05},
        {"table": ["person.sex", "other person.sex"], "error": 5.0},
        {"mean_of": "person.age", "by": ["region"], "error": 100.0},
    ]
    made = released(tables, check=0.3, budget=RICH, accept={"criterion": criteria})
    told = made.certificate["accepted"]["criteria"]
    assert [each["verdict"] for each in told] == ["pass", "pass", "pass", "fail", "pass", "pass"]
    assert told[1]["says"] == "worst error of tables of 2 attributes of pairs of person"
    assert told[3]["says"] == "error of region × person.work"
    person = tables["person"].merge(tables["household"], on="hh")
    made_person = made.tables["person"].merge(made.tables["household"], on="hh")
    ages = [each.groupby("region").age.mean() for each in (person, made_person)]
    assert 0.3 < told[5]["error"] / (ages[0] - ages[1]).abs().mean() < 3


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        ({"tables": 2, "of": "car", "mean": 0.1}, "'of' names 'person' or 'pairs of person'"),
        ({"tables": 1, "of": "pairs of person", "mean": 0.1}, "are of 2 attributes at least"),
        ({"table": ["person.age", "person.wrok"], "error": 0.1}, "person.work"),
        ({"table": ["person.age", "other person.age", "region"], "error": 1e-4}, "below what could be told"),
        ({"tables": 2, "of": "person"}, "a criterion says"),
        ({"mean_of": "person.sex", "error": 0.1}, "is no number"),
        ({"mean_of": "person.age", "by": 3, "error": 0.1}, "in a list of texts"),
        ({"table": 3, "error": 0.1}, "in a list of texts"),
        ({"tables": 2, "of": ["person"], "mean": 0.1}, "'of' names 'person' or"),
        ({"mean_of": "person", "by": "person.work", "error": 1e-4}, "below what could be told"),
    ],
)  # fmt: skip
def test_criteria_of_rows_that_cannot_be(
    tables: dict[str, pd.DataFrame], criterion: dict[str, Any], said: str
) -> None:
    with pytest.raises(DualQueryError, match=said):
        released(tables, check=0.3, budget=RICH, records=SOME, accept={"criterion": [criterion]})


def test_a_table_without_rows_is_released_and_asked(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    schema = parse_schema(example.DATABASE_SCHEMA.replace("at_least = 1", "at_least = 0"), origin="t")
    empty = tables | {"person": tables["person"].iloc[:0]}
    options = {"budget": RICH, "check": 0.0, "mechanism": "linked", "synthetic_rows": 400}
    made = dualquery.release(empty, schema=schema, workload="marginals:2", **options)  # type: ignore[arg-type]
    made.save(tmp_path / "released")
    assert not len(made.tables["person"])
    answer = made.answer("sex = male", of="person")
    assert answer.value == 0
    assert answer.error >= 1, "nothing is known of persons"


def test_counts_in_sql_are_no_surer_than_the_number_of_units(tables: dict[str, pd.DataFrame]) -> None:
    made = released(tables)
    units = int(made.certificate["records"]["rows"])
    loud = replace(made, measured=(Measured((), np.array(float(units)), (0.1 * units) ** 2),))
    men = "case when sex = 'male' then 1 else 0 end"
    asked = f"select count(*) as n, sum({men}) as s, avg({men}) as a from household join person using (hh)"
    few, many = made.sql(asked), loud.sql(asked)
    for name in ("n", "s"):
        more = np.sqrt(many[f"{name}_bar"][0] ** 2 - few[f"{name}_bar"][0] ** 2)
        assert more == pytest.approx(1.96 * 0.1 * many[name][0], rel=1e-3)
    assert many.a_bar[0] == few.a_bar[0]
