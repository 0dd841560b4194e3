"""Formulas of regressions, and the workloads that are made of them."""

from __future__ import annotations

import pytest

from dualquery.errors import QueryError
from dualquery.queries.families import from_spec, tables
from dualquery.queries.models import read_formula
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Numeric

DOMAIN = Domain(
    (
        Numeric("age", (0.0, 30.0, 60.0)),
        Categorical("sex", ("f", "m")),
        Categorical("income", ("<=50K", ">50K")),
        Categorical("a*b", ("x", "y", "z")),
        Categorical("hours worked", ("few", "many")),
        Categorical("a", ("0", "1")),
    )
)


def sets_of(workload: Workload) -> list[tuple[int, ...]]:
    return [members for group in workload.groups if isinstance(group, Tables) for members in group.sets]


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("income ~ age + sex", [(0, 1), (0, 2), (1, 2)]),
        ("income ~ age * sex", [(0, 1), (0, 2), (1, 2), (0, 1, 2)]),
        ("income ~ sex:age", [(0, 1), (0, 2), (1, 2), (0, 1, 2)]),
        ("income = '>50K' ~ age + age", [(0, 2)]),
        ("'hours worked' ~ 'a*b' + \"a\"", [(3, 4), (3, 5), (4, 5)]),
    ],
)
def test_a_formula_names_its_tables(text: str, sets: list[tuple[int, ...]]) -> None:
    formula = read_formula(DOMAIN, text)
    assert formula.sets == sets
    assert sets_of(from_spec(DOMAIN, f"regress:{text}")) == sets


def test_a_product_is_both_and_their_interaction() -> None:
    terms = [tuple(f.attribute for f in term) for term in read_formula(DOMAIN, "income ~ sex*age").terms]
    assert terms == [(1,), (0,), (0, 1)]
    assert read_formula(DOMAIN, "income ~ sex = m").terms[0][0].text(DOMAIN) == "sex = m"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("income", "one ~"),
        ("income ~ ", "one ~"),
        ("a ~ age ~ sex", "one ~"),
        ("income ~ agee", "did you mean 'age'"),
        ("income ~ income", "by itself"),
        ("income ~ age*sex*a", "two different attributes"),
        ("income ~ age*age", "two different attributes"),
        ("income ~ 'age", "never closed"),
        ("income = 50 ~ age", "no value '50'"),
        ("age = 3 ~ sex", "is a number"),
        ("income ~ age sex", "cannot be read"),
        ("income ~ age + ", "cannot be read"),
        (3, "expected a formula as text"),
    ],
)
def test_a_formula_that_cannot_be_read(text: str, part: str) -> None:
    with pytest.raises(QueryError, match=part) as refused:
        read_formula(DOMAIN, text)
    assert "\n" not in str(refused.value)


def test_tables_by_name() -> None:
    assert sets_of(from_spec(DOMAIN, "tables:age*sex,income")) == [(0, 1), (2,)]
    assert sets_of(from_spec(DOMAIN, "tables:a*b*sex")) == [(1, 3)]  # a name with an asterisk wins
    assert sets_of(from_spec(DOMAIN, "tables:sex*age,age*sex")) == [(0, 1)]
    assert tables(DOMAIN, [["age", "sex"]]).spec == "tables:age*sex"


def test_pluses_join_workloads_and_belong_to_formulas() -> None:
    found = from_spec(DOMAIN, "tables:age + regress:income ~ age + sex + marginals:1")
    assert found.spec == "tables:age + regress:income ~ age + sex + marginals:1"
    assert sets_of(found)[:4] == [(0,), (0, 1), (0, 2), (1, 2)]
    assert len(found.groups) == 3


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("tables:", "should read tables:A"),
        ("tables:age*nope", "unknown attribute 'nope'"),
        ("tables:age,,sex", "should read tables:A"),
        ("tables:age*age", "stands twice"),
        ("regress:income", "one ~"),
        ("regress:income ~ nope", "unknown attribute 'nope'"),
    ],
)
def test_workloads_that_cannot_be_read(spec: str, part: str) -> None:
    with pytest.raises(QueryError, match=part):
        from_spec(DOMAIN, spec)


def test_tables_of_too_many_cells_are_refused() -> None:
    wide = Domain(tuple(Categorical(f"c{i}", tuple(map(str, range(1000)))) for i in range(4)))
    with pytest.raises(QueryError, match="at most 1,000,000,000"):
        from_spec(wide, "tables:c0*c1*c2*c3")
