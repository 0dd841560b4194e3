"""Rules: what cannot be never appears, whatever the mechanism; numbers add up; the report lists them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery import Budget, Neighbours, Release
from dualquery.errors import SchemaError
from dualquery.queries.rules import check_rules, structural_zeros, zeros_of
from dualquery.table.schema import parse_schema, schema_text

COLUMNS = """
[[attribute]]
name = "age"
edges = [0, 15, 25, 65, 100]
integer = true
[[attribute]]
name = "wages"
edges = [0, 1, 1000, 10000, 100000]
integer = true
[[attribute]]
name = "benefits"
edges = [0, 1, 1000, 10000]
integer = true
[[attribute]]
name = "total"
edges = [0, 1, 1000, 10000, 110000]
integer = true
[[attribute]]
name = "puma"
values = ["0101", "0102", "0201", "0202"]
[[attribute]]
name = "density"
edges = [0, 100, 1000, 10000]
[[attribute]]
name = "relation"
values = ["husband", "wife", "child", "other"]
[[attribute]]
name = "sex"
values = ["f", "m"]
"""
RULES = """
[[rule]]
says = "age < 15 => wages = 0 & benefits = 0"
[[rule]]
says = "never age < 15 & relation in {husband, wife}"
[[rule]]
says = "relation = husband => sex = m"
[[rule]]
says = "total = wages + benefits"
[[rule]]
says = "density from puma"
"""


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, rows)
    wages = np.where((age >= 15) & (rng.random(rows) < 0.7), np.exp(rng.normal(8, 1.5, rows)), 0).clip(
        0, 99_000
    )
    benefits = np.where((age >= 15) & (rng.random(rows) < 0.3), np.exp(rng.normal(6, 1, rows)), 0).clip(
        0, 9_900
    )
    wages, benefits = wages.astype(int), benefits.astype(int)
    puma = rng.choice(["0101", "0102", "0201", "0202"], rows)
    sex = rng.choice(["f", "m"], rows)
    relation = np.where(
        age < 15, "child", np.where(rng.random(rows) < 0.6, np.where(sex == "m", "husband", "wife"), "other")
    )
    density = pd.Series(puma).map({"0101": 50.0, "0102": 5000.0, "0201": 500.0, "0202": 70.0}).to_numpy()
    return pd.DataFrame(
        {
            "age": age, "wages": wages, "benefits": benefits, "total": wages + benefits,
            "puma": puma, "density": density, "relation": relation, "sex": sex,
        }
    )  # fmt: skip


def assert_keeps_all(frame: pd.DataFrame) -> None:
    young = frame.age < 15
    assert (frame.wages[young] == 0).all()
    assert (frame.benefits[young] == 0).all()
    assert not frame.relation[young].isin(["husband", "wife"]).any()
    assert (frame.sex[frame.relation == "husband"] == "m").all()
    assert (frame.total == frame.wages + frame.benefits).all()
    assert (frame.groupby("puma", observed=True).density.nunique() == 1).all()


@pytest.fixture(scope="module")
def schema() -> dualquery.Schema:
    return parse_schema(COLUMNS + RULES, origin="the test")


@pytest.mark.parametrize("mechanism", ["projection", "mwem", "dualquery"])
def test_what_cannot_be_never_appears(schema: dualquery.Schema, mechanism: str, tmp_path: Path) -> None:
    budget = Budget(epsilon=0.3, delta=1e-6, neighbours=Neighbours.REPLACE)
    if mechanism == "mwem":
        columns = (*schema.domain.columns[:1], *schema.domain.columns[-2:])
        schema = dualquery.Schema(dualquery.Domain(columns, schema.domain.rules[1:3]))
    options = {"dualquery": {"rounds": 20}, "projection": {"synthetic_rows": 3000}}.get(mechanism, {})
    made = dualquery.release(
        people(1500),
        schema=schema,
        workload="marginals:2",
        budget=budget,
        mechanism=mechanism,
        seed=1,
        **options,
    )
    frame = made.to_pandas()
    if mechanism == "mwem":
        assert not ((frame.age < 15) & frame.relation.isin(["husband", "wife"])).any()
        assert (frame.sex[frame.relation == "husband"] == "m").all()
        assert made.answer("relation = husband & sex = f").value == 0
        return
    assert_keeps_all(frame)
    assert made.answer("age < 15 & !(wages = 0)").value == 0
    if mechanism == "projection":
        made.save(tmp_path / "r", csv=True)
        again = Release.load(tmp_path / "r")
        assert again.to_arrow().equals(made.to_arrow())
        assert again.domain.rules == schema.domain.rules
        assert_keeps_all(pd.read_csv(tmp_path / "r" / "synthetic.csv", dtype={"puma": str}))
        page = (tmp_path / "r" / "report.html").read_text()
        assert "age &lt; 15 =&gt; wages = 0 &amp; benefits = 0" in page
        assert "total = wages + benefits" in page


def test_the_schema_reads_back(schema: dualquery.Schema) -> None:
    assert parse_schema(schema_text(schema), origin="again") == schema
    check_rules(schema.domain)


def test_zeros_of_pairs_follow_from_rules_of_more(schema: dualquery.Schema) -> None:
    domain = schema.domain
    age, wages = domain.find("age"), domain.find("wages")
    found = zeros_of(domain, (age, wages))
    assert found is not None
    assert found[0].tolist() == [False, True, True, True]
    assert not found[1:].any()
    assert zeros_of(domain, (age, domain.find("puma"))) is None
    sums = structural_zeros(domain)[3]
    assert sums.members == (1, 2, 3)
    assert sums.impossible[0, 0].tolist() == [False, True, True, True]  # nothing and nothing is nothing
    assert sums.impossible[2, 0].tolist() == [True, True, False, True]


def test_a_dependency_that_is_known() -> None:
    text = COLUMNS + '[[rule]]\nsays = "sex from relation"\nvalues = { husband = "m", wife = "f" }\n'
    schema = parse_schema(text, origin="t")
    assert parse_schema(schema_text(schema), origin="again") == schema
    (zeros,) = structural_zeros(schema.domain)
    assert zeros.impossible.tolist() == [[True, False], [False, True], [False, False], [False, False]]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("age < 15", "cannot be read: write"),
        ("age < 15 =>", "either side"),
        ("age < 17 => wages = 0", "would split the bin"),
        ("agee < 15 => wages = 0", "unknown attribute 'agee'"),
        ("density from county", "'county', which is no attribute"),
        ("total = wages + sex", "not numeric"),
        ("total = wages + density", "different decimals"),
        ("age >= 0 => sex = f | sex = m", "holds for every record"),
    ],
)
def test_rules_that_mean_nothing(says: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        check_rules(parse_schema(f'{COLUMNS}[[rule]]\nsays = "{says}"\n', origin="t").domain)


def test_rules_that_leave_nobody() -> None:
    text = (
        COLUMNS + '[[rule]]\nsays = "sex = f => relation = wife"\n[[rule]]\nsays = "never relation = wife"\n'
    )
    check_rules(parse_schema(text, origin="t").domain)
    text += '[[rule]]\nsays = "never sex = m"\n'
    schema = parse_schema(text, origin="t")
    with pytest.raises(SchemaError, match="no record possible"):
        dualquery.release(
            people(50),
            schema=schema,
            workload="marginals:1",
            budget=Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE),
        )
