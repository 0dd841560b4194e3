"""From tables and keys to units: what is dropped is dropped by looking at the rows of one key alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from dualquery.errors import DataError
from dualquery.table.encoding import encode
from dualquery.table.units import Units, units_in
from tests.house import HOUSEHOLDS, database_in

DOMAIN = database_in()
HOMES = [("1", "East", "a"), ("2", "West", "b"), ("3", "East", "c")]
PERSONS = [("1", 40, "f", "x"), ("1", 70, "m", "what?"), ("2", 17, "f", "y"), ("3", 30, "m", "y")]
CARS = [("1", "power"), ("3", "petrol"), ("3", "petrol")]
Row = Sequence[str | None]


def frames(
    households: Sequence[Row] = HOMES, persons: Sequence[Row] = PERSONS, cars: Sequence[Row] = CARS
) -> dict[str, pd.DataFrame]:
    return {
        "household": pd.DataFrame(list(households), columns=["hh", "region", "kind"], dtype=object),
        "person": pd.DataFrame(list(persons), columns=["home", "age", "sex", "kind"], dtype=object),
        "car": pd.DataFrame(list(cars), columns=["hh", "fuel"], dtype=object),
    }


def shown(units: Units) -> list[tuple[object, ...]]:
    """Each unit: its own codes and the rows that hang on it."""
    out: list[tuple[object, ...]] = []
    for u, own in enumerate(units.to_rows().tolist()):
        inside = [
            tuple(map(tuple, sorted(each.records.to_rows()[each.start[u] : each.start[u + 1]].tolist())))
            for each in units.members
        ]
        out.append((tuple(own), *inside))
    return out


def read(*tables: Sequence[Row]) -> Units:
    return units_in(frames(*tables), DOMAIN)


WHOLE = [
    ((0, 0, 1, 1), ((1, 0, 0), (2, 1, 1)), ((1,),)),
    ((1, 1, 0, 0), ((0, 0, 1),), ()),
    ((0, 2, 0, 2), ((1, 1, 1),), ((0,), (0,))),
]


def test_rows_hang_on_the_row_whose_key_they_name() -> None:
    units = read()
    assert shown(units) == WHOLE
    assert units.dropped == {}


def written(folder: Path, suffix: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, frame in frames().items():
        if suffix == "csv":
            frame.to_csv(folder / f"{name}.csv", index=False)
        elif suffix == "csv.gz":
            frame.to_csv(folder / f"{name}.csv.gz", index=False)
        else:
            pyarrow.parquet.write_table(pa.Table.from_pandas(frame), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_folder_of_files(tmp_path: Path, suffix: str) -> None:
    assert shown(units_in(written(tmp_path / "db", suffix), DOMAIN)) == WHOLE


def test_an_sqlite_file_and_frames_of_other_makers(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        for name, frame in frames().items():
            frame.to_sql(name, connection, index=False)
        connection.execute("create table other (x)")
    assert shown(units_in(tmp_path / "db.sqlite", DOMAIN)) == WHOLE
    of_polars = {name: polars.DataFrame(each.to_dict("list")) for name, each in frames().items()}
    of_arrow = {name: pa.Table.from_pandas(each) for name, each in frames().items()}
    assert shown(units_in(of_polars, DOMAIN)) == shown(units_in(of_arrow, DOMAIN)) == WHOLE


def test_keys_of_other_types_are_the_same_keys() -> None:
    tables = frames()
    tables["household"]["hh"] = [1, 2, 3]
    tables["person"]["home"] = [1.0, 1.0, 2.0, 3.0]
    tables["car"]["hh"] = [" 1", "3", "3.0"]
    assert shown(units_in(tables, DOMAIN)) == WHOLE


BAD: dict[str, tuple[list[Row], list[Row], list[Row], str, int]] = {
    "value of a household": (
        [("9", "South", "a")],
        [("9", 20, "f", "y")],
        [],
        "rows of 'household' with a value that the schema does not have",
        1,
    ),
    "empty value": ([], [("1", 20, None, "y")], [], "rows of 'person' with a value that the schema does not have", 1),
    "value of a child": ([], [], [("1", "coal")], "rows of 'car' with a value that the schema does not have", 1),
    "blank key": ([(" ", "East", "a"), (None, "West", "a")], [], [], "rows of 'household' with a blank key", 2),
    "blank link": ([], [("", 20, "f", "y")], [], "rows of 'person' with a blank key", 1),
    "second parent": (
        [("1", "West", "a"), ("1.0", "East", "b")],
        [],
        [],
        "further rows of the protected table with the same key",
        2,
    ),
    "orphans": ([], [("7", 20, "f", "y"), ("8", 20, "m", "y")], [], "rows of 'person' that hang on no row", 2),
    "beyond at_most": ([], [], [("3", "power")] * 22, "rows of 'car' beyond 20 of one unit", 4),
    "too few": ([("5", "East", "a")], [], [("5", "power")], "units with fewer rows than 'at_least'", 1),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_bad_rows_are_dropped_and_numbered_for_the_steward_alone(fault: str) -> None:
    households, persons, cars, why, number = BAD[fault]
    units = read([*HOMES, *households], [*PERSONS, *persons], [*CARS, *cars])
    found = {reason: count for reason, count in units.dropped.items() if reason.startswith(why)}
    assert list(found.values()) == [number]
    others = [u for u, own in enumerate(WHOLE) if fault != "beyond at_most" or own[0] != WHOLE[2][0]]
    assert [shown(units)[u] for u in others] == [WHOLE[u] for u in others]
    assert units.rows == 3


def test_the_first_of_two_parents_is_so_by_its_codes_and_not_by_its_place() -> None:
    one = read([("1", "West", "a"), ("1", "East", "a")], PERSONS, CARS)
    other = read([("1", "East", "a"), ("1", "West", "a")], PERSONS, CARS)
    assert shown(one) == shown(other)
    assert shown(one)[0][0] == (0, 0, 1, 1)


KEY = some.sampled_from(["1", "2", "3", "4", "", "1.0"])
households = some.lists(
    some.tuples(KEY, some.sampled_from(["East", "West", "South"]), some.just("a")), max_size=6
)
persons = some.lists(
    some.tuples(KEY, some.just(20), some.sampled_from(["f", "m", "x"]), some.sampled_from(["x", "y"])),
    max_size=12,
)
cars = some.lists(some.tuples(KEY, some.sampled_from(["petrol", "power", ""])), max_size=8)


@settings(max_examples=20, deadline=None)
@given(households, persons, cars, some.randoms(use_true_random=False))
@example([*HOMES], [("1", 20, sex, job) for sex in "fm" for job in "xy"], [], Random(1))  # more than stay
def test_the_order_of_rows_changes_nothing(
    households: list[Row], persons: list[Row], cars: list[Row], random: object
) -> None:
    before = read(households, persons, cars)
    order = [each.records.to_rows().tolist() for each in before.members]
    for rows in (households, persons, cars):
        random.shuffle(rows)  # type: ignore[attr-defined]
    after = read(households, persons, cars)
    assert shown(before) == shown(after)
    assert order == [each.records.to_rows().tolist() for each in after.members]
    assert before.dropped == after.dropped


def canonical(key: str | None) -> str:
    return (key or "").strip().removesuffix(".0")


def without(rows: Sequence[Row], key: str) -> list[Row]:
    return [row for row in rows if canonical(row[0]) != key]


def at_random(seed: int, keys: int = 24) -> tuple[list[Row], list[Row], list[Row]]:
    """A database in which everything that can be wrong with a household is wrong with some."""
    rng = np.random.default_rng(seed)
    named = [str(key) for key in range(keys)] + [f"{key}.0" for key in range(keys)] + [""]

    def rows(number: int, *columns: Sequence[str]) -> list[Row]:
        return [tuple(str(rng.choice(list(each))) for each in (named, *columns)) for _ in range(number)]

    homes = rows(2 * keys, ("East", "West", "East", "West", "South"), "abc")
    persons = rows(5 * keys, ("17", "40", "70"), "fmfmx", "xy")
    return homes, persons, rows(4 * keys, ("petrol", "power", ""))


@pytest.mark.parametrize("seed", [1, 2])
def test_one_household_more_or_less_changes_one_unit(seed: int) -> None:
    """Of every key: the units of all rows are those of the rows without it, and at most one more."""
    tables = at_random(seed)
    whole = shown(read(*tables))
    assert 5 < len(whole) < 24
    for key in sorted({canonical(row[0]) for rows in tables for row in rows}):
        less = shown(read(*(without(rows, key) for rows in tables)))
        alone = shown(read(*([row for row in rows if canonical(row[0]) == key] for rows in tables)))
        assert len(alone) <= 1
        assert sorted(map(repr, whole)) == sorted(map(repr, [*less, *alone]))


def test_rows_of_a_unit_stand_in_the_order_of_an_attribute() -> None:
    ordered = database_in(HOUSEHOLDS.replace("at_least = 1", 'at_least = 1\norder = "age"'))
    tables = at_random(3)
    units = units_in(frames(*tables), ordered)
    members = units.members[0]
    within = members.owner[1:] == members.owner[:-1]
    ages = np.asarray(members.records.columns[0], np.int64)
    assert within.sum() > 5
    assert (np.diff(ages)[within] >= 0).all()
    assert (np.diff(ages)[~within] < 0).any()
    assert shown(units) == shown(read(*tables))  # as sets of rows


def test_rows_with_blank_keys_change_nothing() -> None:
    assert (
        shown(read([*HOMES, ("", "East", "a")], [*PERSONS, ("", 20, "f", "y")], [*CARS, ("", "power")]))
        == WHOLE
    )


def test_who_stays_of_many_does_not_follow_the_codes() -> None:
    """Of units with six different rows the three that stay are spread over all of them."""
    many = [(str(k), "East", "a") for k in range(400)]
    rows = [(str(k), (17, 40, 70)[j % 3], "fm"[j % 2], "x") for k in range(400) for j in range(6)]
    units = read(many, rows, [])
    kinds = units.members[0].records.to_rows() @ np.array([2, 1, 0])
    share = np.bincount(kinds, minlength=6) / len(kinds)
    assert share == pytest.approx(np.full(6, 1 / 6), abs=0.06)


FAULTS: dict[str, tuple[object, str]] = {
    "table not given": ({"household": frames()["household"]}, "no table 'person' was given"),
    "no table at all": ({**frames(), "car": 3}, "a int is not a table"),
    "no database": (3, "a int is no database"),
    "nowhere": ("nowhere", "there is no folder or file 'nowhere'"),
    "column missing": (
        {**frames(), "person": frames()["person"].drop(columns="home")},
        "table 'person': the table has no column 'home'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_source_that_is_none_is_refused_in_a_sentence(fault: str) -> None:
    source, said = FAULTS[fault]
    with pytest.raises(DataError) as refused:
        units_in(source, DOMAIN)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_names_each_table_once(tmp_path: Path) -> None:
    folder = written(tmp_path / "db", "csv")
    (folder / "person.parquet").touch()
    with pytest.raises(DataError, match="more than one table 'person'"):
        units_in(folder, DOMAIN)
    (folder / "person.parquet").unlink()
    (folder / "person.csv").unlink()
    with pytest.raises(DataError, match="has no table 'person'"):
        units_in(folder, DOMAIN)
    with pytest.raises(DataError, match="is one table"):
        units_in(folder / "car.csv", DOMAIN)


def test_nothing_at_all_is_no_unit() -> None:
    assert read([], [], []).rows == 0


def test_several_tables_for_the_schema_of_one_are_refused() -> None:
    with pytest.raises(DataError, match="the schema describes one table"):
        encode(frames(), DOMAIN.root.domain)


def test_encoding_a_database_gives_its_units() -> None:
    units = encode(frames(), DOMAIN)
    assert isinstance(units, Units)
    assert shown(units) == WHOLE


LOOKED_UP = (
    (
        HOUSEHOLDS.replace('name = "kind"\nvalues = ["x"', 'name = "work"\nvalues = ["x"')
        .replace('key = "hh"', 'key = "hh"\nlookup = { town = "home_town" }', 1)
        .replace('key = "pid"', 'key = "pid"\nlookup = { job = "kind" }')
        .replace(
            'name = "work"\nvalues = ["x", "y"]\nunknown = "y"', 'name = "kind"\nvalues = ["x", "y", "z"]'
        )
    )
    + """
[[table]]
name = "town"
public = true
key = "code"
[[table.attribute]]
name = "large"
values = ["yes", "no"]
[[table.attribute]]
name = "coast"
values = ["yes", "no", "nobody knows"]
missing = "nobody knows"

[[table]]
name = "job"
public = true
key = "kind"
[[table.attribute]]
name = "skill"
values = ["high", "low", "none"]
missing = "none"
"""
)


def with_lookups(
    homes: Sequence[Row] = HOMES, persons: Sequence[Row] = PERSONS, cars: Sequence[Row] = CARS
) -> dict[str, pd.DataFrame]:
    """The same households, each in the town of its own number; there is no town 9."""
    tables = frames(homes, persons, cars)
    tables["household"]["home_town"] = [canonical(hh) or None for hh, *_ in homes]
    tables["town"] = pd.DataFrame(
        {
            "code": [*map(float, range(24))],
            "large": ["yes", "no", "no"] * 8,
            "coast": ["yes", None, "no", "no"] * 6,
        }
    )
    tables["job"] = pd.DataFrame({"skill": ["low", "high"], "kind": ["x", "y"]})
    return tables


def test_public_tables_are_columns_of_whoever_names_their_keys() -> None:
    database = database_in(LOOKED_UP)
    assert list(database.root.domain.names()) == ["region", "kind", "large", "coast"]
    assert list(database.child("person").domain.names()) == ["age", "sex", "kind", "skill"]
    persons = [*PERSONS[:1], ("1", 70, "m", "z"), *PERSONS[2:]]
    units = units_in(with_lookups(persons=persons), database)
    assert units.to_rows().tolist() == [[0, 0, 1, 2, 1, 1], [1, 1, 1, 1, 0, 0], [0, 2, 0, 1, 0, 2]]
    rows = sorted(units.members[0].records.to_rows().tolist())
    assert rows == [
        [0, 0, 1, 0],
        [1, 0, 0, 1],
        [1, 1, 1, 0],
        [2, 1, 2, 2],
    ]  # of a job that is not there the skill is missing
    assert units.dropped == {}


def test_a_row_that_names_no_row_of_a_public_table_is_dropped() -> None:
    homes = [*HOMES, ("77", "East", "a")]
    units = units_in(with_lookups(homes, [*PERSONS, ("77", 20, "f", "x")]), database_in(LOOKED_UP))
    assert units.rows == 3
    assert units.dropped["rows of 'household' with a value that the schema does not have"] == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_public_tables_tie_no_household_to_another(seed: int) -> None:
    homes, persons, cars = at_random(seed)
    database = database_in(LOOKED_UP)

    def read(*tables: list[Row]) -> list[str]:
        return sorted(map(repr, shown(units_in(with_lookups(*tables), database))))

    whole = read(homes, persons, cars)
    assert len(whole) > 5
    for key in sorted({canonical(row[0]) for rows in (homes, persons, cars) for row in rows}):
        less = read(*(without(rows, key) for rows in (homes, persons, cars)))
        alone = read(*([row for row in rows if canonical(row[0]) == key] for rows in (homes, persons, cars)))
        assert sorted([*less, *alone]) == whole
        assert len(alone) <= 1


PUBLIC_FAULTS: dict[str, tuple[object, str]] = {
    "a key twice": ({"kind": ["x", "x"], "skill": ["low", "high"]}, "two rows with one key"),
    "a blank key": ({"kind": ["x", None], "skill": ["low", "high"]}, "a row without a key"),
    "no key": ({"skill": ["low", "high"]}, "table 'job': the table has no column 'kind'"),
}


@pytest.mark.parametrize("fault", PUBLIC_FAULTS)
def test_a_faulty_public_table_is_refused_in_a_sentence(fault: str) -> None:
    columns, said = PUBLIC_FAULTS[fault]
    tables = {**with_lookups(), "job": pd.DataFrame(columns)}
    with pytest.raises(DataError) as refused:
        units_in(tables, database_in(LOOKED_UP))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_public_table_holds_what_the_schema_lists() -> None:
    tables = with_lookups()
    tables["town"].loc[3, "large"] = "huge"
    with pytest.raises(
        DataError, match="public table 'town' has a value of 'large' that the schema does not list"
    ):
        units_in(tables, database_in(LOOKED_UP))
    del tables["town"]
    with pytest.raises(DataError, match="no table 'town' was given"):
        units_in(tables, database_in(LOOKED_UP))


NAMED = HOUSEHOLDS.replace(
    """[[table]]
name = "household"
key = "hh"
[[table.attribute]]
name = "region"
values = ["East", "West"]
[[table.attribute]]
name = "kind"
values = ["a", "b", "c"]
""",
    "",
).replace('parent = "household"\nat_most = 20', 'parent = "household"\nlink = "hh"\nat_most = 20')
PERSONS_ALONE = NAMED[: NAMED.index('[[table]]\nname = "car"')]


def test_units_are_whoever_is_named_where_the_protected_rows_are_no_table() -> None:
    domain = database_in(NAMED)
    tables = frames(persons=[*PERSONS, ("", 20, "f", "x"), ("5", 20, "?", "x")], cars=[*CARS, ("4", "power")])
    del tables["household"]
    # The fourth has a car and no person, and fewer than one person is no unit; the fifth has no row that fits.
    assert shown(units_in(tables, domain)) == [(own[2:], *rows) for own, *rows in WHOLE]
    none = units_in({name: frame.iloc[:0] for name, frame in tables.items()}, domain)
    assert none.rows == 0


def test_a_file_or_a_frame_alone(tmp_path: Path) -> None:
    domain, frame = database_in(PERSONS_ALONE), frames()["person"]
    frame.to_csv(tmp_path / "what you like.csv", index=False)
    found = [
        units_in(each, domain) for each in (frame, {"person": frame}, str(tmp_path / "what you like.csv"))
    ]
    expected = [((own[2],), persons) for own, persons, _ in WHOLE]
    assert [shown(each) for each in found] == [expected] * 3


ROW = some.tuples(some.sampled_from("1234"), some.sampled_from((20, 70)), some.sampled_from("fm?"))


@given(some.lists(ROW, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_name_more_or_less_changes_one_unit(rows: list[tuple[str, int, str]]) -> None:
    """Whatever stands under one name, all others are the units that they were."""
    domain, persons = database_in(PERSONS_ALONE), [(*row, "x") for row in rows]
    every = shown(units_in({"person": frames(persons=persons)["person"]}, domain))
    for name in "1234":
        others = [row for row in persons if row[0] != name]
        fewer = shown(units_in({"person": frames(persons=others)["person"]}, domain))
        assert len(every) - len(fewer) in (0, 1)
        left = list(every)
        for unit in fewer:
            left.remove(unit)
