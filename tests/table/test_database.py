"""Schemas of databases: what they say, and one sentence for each thing that can be wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.errors import DataError, SchemaError
from dualquery.queries.group import Digest
from dualquery.table.columns import Categorical
from dualquery.table.database import Linked
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text
from dualquery.table.units import Units, units_of
from tests.house import HOUSEHOLDS, database_in


def test_a_database_is_the_domain_of_its_units() -> None:
    domain = database_in()
    assert list(domain.names()) == ["region", "kind", "person", "car"]
    assert domain.labels(2) == ("1", "2", "3")
    assert [domain.child(name).link for name in ("person", "car")] == ["home", "hh"]
    assert list(domain.view_domain("person").names()) == [
        "region",
        "household.kind",
        "person",
        "car",
        "person.age",
        "person.sex",
        "person.kind",
    ]
    assert list(domain.pair_domain("car").names())[4:] == ["car.fuel", "other car.fuel"]


def test_a_schema_comes_back_as_it_was_written() -> None:
    schema = parse_schema(HOUSEHOLDS, origin="schema")
    for written in (HOUSEHOLDS, HOUSEHOLDS.replace("protect", "encoding = 'latin-1'\nprotect", 1)):
        schema = parse_schema(written, origin="schema")
        assert parse_schema(schema_text(schema), origin="schema") == schema


@pytest.mark.parametrize("least", [0, 1, 3])
@pytest.mark.parametrize("most", [3, 12, 13, 15, 16, 40])
def test_every_size_has_one_class(least: int, most: int) -> None:
    table = Linked("person", (Categorical("sex", ("f", "m")),), parent="h", at_most=most, at_least=least)
    sizes = np.arange(least, most + 1)
    codes = table.size_codes(sizes)
    assert codes[0] == 0
    assert set(np.diff(codes).tolist()) <= {0, 1}
    assert codes[-1] == len(table.size.labels) - 1
    for code in range(len(table.size.labels)):
        assert list(table.sizes_in(code)) == sizes[codes == code].tolist()
    if most > 15 and least == 1:
        assert [len(table.sizes_in(code)) for code in range(8)] == [1, 1, 1, 1, 2, 3, 5, most - 14]


def test_databases_that_differ_in_a_child_are_asked_different_things() -> None:
    def digest(text: str) -> str:
        found = Digest()
        found.add_domain(parse_schema(text, origin="schema").domain)
        return found.hexdigest()

    assert digest(HOUSEHOLDS) == digest(HOUSEHOLDS.replace('"a toy"', '"another"'))
    assert digest(HOUSEHOLDS) != digest(HOUSEHOLDS.replace('"petrol"', '"gas"'))


FAULTS = {
    "circle": (
        'name = "person"\nparent = "household"',
        'name = "person"\nparent = "car"',
        "hangs on 'car', which hangs on 'household'",
    ),
    "root with a parent": (
        'name = "household"\nkey = "hh"',
        'name = "household"\nparent = "person"\nat_most = 1\nkey = "hh"',
        "in a circle, household → person → household",
    ),
    "unknown parent": (
        'name = "car"\nparent = "household"',
        'name = "car"\nparent = "home"',
        "no [[table]] is named 'home'",
    ),
    "no at_most": ("at_most = 20\n", "", "table 'car' needs 'at_most'"),
    "does not lead to the root": (
        'name = "car"\nparent = "household"\nat_most = 20',
        'name = "car"',
        "table 'car' does not lead to 'household'",
    ),
    "two parents": (
        'name = "car"\nparent = "household"',
        'name = "car"\nparent = ["household", "person"]',
        "names several parents",
    ),
    "unknown protected table": ('protect = "household"', 'protect = "home"', "no [[table]] has that name"),
    "nothing protected": ('protect = "household"', "", "[database] has no 'protect'"),
    "an order by nothing": ("at_most = 20", "at_most = 20\norder = 'price'", "'order' names 'price'"),
    "an order of the root": ('key = "hh"', 'key = "hh"\norder = "region"', "has 'order' and no parent"),
    "two of one name": ('name = "car"', 'name = "person"', "two tables are named 'person'"),
    "no key": ('key = "hh"', "", "table 'household' needs 'key'"),
    "key released": ('name = "sex"', 'name = "home"', "'home' is both a key and an attribute"),
    "no attribute": ('[[table.attribute]]\nname = "fuel"\nvalues = ["petrol", "power"]', "", "has no attribute"),
    "misspelt key": ("at_least = 1", "atleast = 1", "key 'atleast' that means nothing"),
    "sizes that cross": ("at_least = 1", "at_least = 4", "'at_least' from 0 to that"),
    "none at most": ("at_most = 20", "at_most = 0", "'at_most' from 1 to"),
    "at_most of the root": ('key = "hh"', 'key = "hh"\nat_most = 3', "has 'at_most' and no parent"),
    "name no identifier": ('name = "car"', 'name = "a car"', "letters, digits and underscores"),
    "a word of questions": ('name = "car"', 'name = "any"', "none of all, answers, any, count"),
    "blank key": ('key = "hh"', 'key = " "', "'key' must be a name"),
    "column of the root named like a child": ('name = "region"', 'name = "car"', "'car' stands twice"),
    "column of the root named like one of a child": (
        'name = "region"',
        'name = "person.age"',
        "'person.age' stands twice",
    ),
    "column twice": ('name = "sex"', 'name = "age"', "table 'person': attribute 'age' stands twice"),
    "values twice": ('values = ["f", "m"]', 'values = ["f", "f"]', "table 'person': attribute 'sex' lists"),
    "items": ('name = "sex"\nvalues = ["f", "m"]', 'name = "sex"\ncount = 3', "is a block of items"),
    "attribute of no table": ("[about]", '[[attribute]]\nname = "x"\nvalues = ["1"]\n[about]', "[[table.attribute]]"),
    "rules": ("[about]", '[[rule]]\nsays = "never sex = f"\n[about]', "rules are for tables of attributes"),
    "no section database": ('[database]\nprotect = "household"', "", "need [database] with 'protect'"),
}  # fmt: skip


PUBLIC = (
    HOUSEHOLDS.replace('key = "pid"', 'key = "pid"\nlookup = { job = "work", school = "age" }')
    + """
[[table]]
name = "job"
public = true
key = "code"
[[table.attribute]]
name = "skill"
values = ["high", "low"]

[[table]]
name = "school"
public = true
key = "age"
[[table.attribute]]
name = "grade"
low = 0
high = 10
bins = 5
"""
)
PUBLIC_FAULTS = {
    "nobody looks": ('job = "work", ', "", "no table looks up 'job', which is public"),
    "not public": ('name = "job"\npublic = true', 'name = "job"\npublic = false', "looks up 'job', and no [[table]]"),
    "unknown": ('job = "work"', 'jobs = "work"', "looks up 'jobs', and no [[table]] of that name is public"),
    "no column": ('job = "work"', "job = 3", "each with the column that has its key"),
    "a list": ('lookup = { job = "work", school = "age" }', 'lookup = ["job"]', "'lookup' names public tables"),
    "no key": ('key = "code"', "", "table 'job' needs 'key'"),
    "no attribute": ('[[table.attribute]]\nname = "skill"\nvalues = ["high", "low"]', "", "'job' has no attribute"),
    "a parent": ('key = "code"', 'key = "code"\nparent = "household"', "has a key 'parent' that means nothing here"),
    "protected": ('protect = "household"', 'protect = "job"', "'job' is public, so that there is nothing to protect"),
    "twice": ('name = "school"\npublic', 'name = "job"\npublic', "two tables are named 'job'"),
    "twice, private": ('name = "car"', 'name = "job"', "two tables are named 'job'"),
    "a child of it": ('name = "car"\nparent = "household"', 'name = "car"\nparent = "job"', "'job', its parent"),
    "an attribute twice": ('name = "skill"', 'name = "sex"', "table 'person': attribute 'sex' stands twice"),
    "a word": ("public = true\nkey = \"code\"", "public = 'yes'\nkey = \"code\"", "'public' must be true or false"),
}  # fmt: skip


def test_public_tables_come_back_as_they_were_written() -> None:
    schema = parse_schema(PUBLIC, origin="schema")
    assert parse_schema(schema_text(schema), origin="schema") == schema
    database = database_in(PUBLIC)
    assert [each.name for each in database.tables] == ["household", "person", "car"]
    assert [(each.name, each.key, each.link) for each in database.child("person").lookups] == [
        ("job", "code", "work"),
        ("school", "age", "age"),
    ]
    assert [column.name for column in database.child("person").own] == ["age", "sex", "kind"]


@pytest.mark.parametrize("fault", PUBLIC_FAULTS)
def test_a_fault_of_a_public_table_is_one_sentence(fault: str) -> None:
    right, wrong, said = PUBLIC_FAULTS[fault]
    assert PUBLIC.count(right) == 1, "the fault is made in one place"
    with pytest.raises(SchemaError) as refused:
        parse_schema(PUBLIC.replace(right, wrong), origin="the schema")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_schema_is_one_sentence(fault: str) -> None:
    right, wrong, said = FAULTS[fault]
    assert HOUSEHOLDS.count(right) == 1, "the fault is made in one place"
    with pytest.raises(SchemaError) as refused:
        parse_schema(HOUSEHOLDS.replace(right, wrong), origin="the schema")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_table_is_no_database() -> None:
    alone = HOUSEHOLDS[: HOUSEHOLDS.index('[[table]]\nname = "person"')]
    with pytest.raises(SchemaError, match="has one table"):
        parse_schema(alone, origin="the schema")


def test_a_unit_or_a_dropping_rule_beside_a_database_is_refused() -> None:
    for wrong in (
        {"unit": "hh"},
        {"drop_rows_containing": "?"},
    ):
        with pytest.raises(SchemaError):
            Schema(database_in(), **wrong)  # type: ignore[arg-type]


def toy() -> Units:
    return units_of(
        database_in(),
        np.array([[0, 0], [1, 2], [1, 1]]),
        [
            (
                np.array([2, 1, 3]),
                np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [2, 1, 1], [2, 0, 0], [0, 1, 0]]),
            ),
            (np.array([0, 1, 0]), np.array([[1]])),
        ],
    )


def test_units_know_their_sizes() -> None:
    units = toy()
    assert units.to_rows().tolist() == [[0, 0, 1, 0], [1, 2, 0, 1], [1, 1, 2, 0]]
    assert units.members[0].owner.tolist() == [0, 0, 1, 2, 2, 2]
    assert isinstance(units, Records)


def test_taking_and_joining_units_keeps_their_rows() -> None:
    units = toy()
    some = units.take(np.array([2, 0]))
    assert some.members[0].records.take(np.arange(4)).to_rows().tolist() == [
        [2, 1, 1],
        [2, 0, 0],
        [0, 1, 0],
        [0, 0, 0],
    ]
    assert some.members[1].sizes.tolist() == [0, 0]
    both = some.with_more(units.take(np.array([1])))
    assert both.members[0].owner.tolist() == [0, 0, 0, 1, 1, 2]
    assert both.members[1].sizes.tolist() == [0, 0, 1]
    assert both.take(np.array([1, 2, 0])).to_rows().tolist() == units.to_rows().tolist()


def test_units_beyond_the_schema_are_refused() -> None:
    with pytest.raises(DataError, match="fewer or more rows of table 'person'"):
        units_of(
            database_in(),
            np.array([[0, 0]]),
            [(np.array([0]), np.empty((0, 3), np.int64)), (np.array([0]), np.empty((0, 1), np.int64))],
        )
    units = toy()
    wrong = (*units.columns[:2], units.columns[2][::-1], units.columns[3])
    with pytest.raises(DataError, match="not what the units say"):
        Units(units.domain, units.rows, wrong, members=units.members)


ALONE = """
[database]
protect = "household"
[[table]]
name = "person"
parent = "household"
link = "hh"
at_most = 3
[[table.attribute]]
name = "sex"
values = ["f", "m"]
"""


def test_a_table_whose_parent_is_no_table_is_a_database() -> None:
    schema = parse_schema(ALONE, origin="schema")
    assert parse_schema(schema_text(schema), origin="schema") == schema
    domain = database_in(ALONE)
    assert (domain.root.name, domain.root.key, domain.root.given) == ("household", "hh", False)
    assert list(domain.names()) == ["person"]
    assert domain.labels(0) == ("1", "2", "3")  # whoever is named has a row


@pytest.mark.parametrize(
    ("said", "other", "expected"),
    [
        ('link = "hh"\n', "", "table 'person' needs 'link'"),
        ('protect = "household"', 'protect = "home"', "no [[table]] has that name"),
        ("at_most = 3", "at_most = 1", "nothing tells one household from another"),
        ('"household"', '"any"', "none of all, answers, any, count"),
        ("at_most = 3", 'at_most = 3\nlookup = { job = "x" }', "no [[table]] of that name is public"),
    ],
)
def test_what_is_wrong_with_a_table_alone(said: str, other: str, expected: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse_schema(ALONE.replace(said, other), origin="schema")
    assert expected in str(refused.value)
