"""Questions about units: any, all and count by their definition, their texts, and how far one unit moves them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dualquery.errors import QueryError
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.group import Group
from dualquery.queries.language.units import groups_of, rows_groups_of
from dualquery.queries.views import OverUnits
from dualquery.table.units import Units, units_of
from tests.house import HOUSEHOLDS, database_in

DOMAIN = database_in(HOUSEHOLDS.replace("at_least = 1", "at_least = 0"))
Person = tuple[int, int, int]
Unit = tuple[int, int, tuple[Person, ...], tuple[int, ...]]  # region, kind, persons (age, sex, kind), fuels


def units(listed: list[Unit]) -> Units:
    persons = [p for unit in listed for p in unit[2]]
    fuels = [[w] for unit in listed for w in unit[3]]
    return units_of(
        DOMAIN,
        np.array([unit[:2] for unit in listed], np.int64).reshape(-1, 2),
        [
            (np.array([len(u[2]) for u in listed]), np.array(persons, np.int64).reshape(-1, 3)),
            (np.array([len(u[3]) for u in listed]), np.array(fuels, np.int64).reshape(-1, 1)),
        ],
    )


def some(number: int, seed: int = 1) -> list[Unit]:
    rng = np.random.default_rng(seed)
    out: list[Unit] = []
    for _ in range(number):
        persons = tuple(
            (int(rng.integers(3)), int(rng.integers(2)), int(rng.integers(2))) for _ in range(rng.integers(4))
        )
        fuels = tuple(int(rng.integers(2)) for _ in range(rng.integers(20)))
        out.append((int(rng.integers(2)), int(rng.integers(3)), persons, fuels))
    return out


TOY = some(300)
QUESTIONS: dict[str, tuple[str, Callable[[Unit], bool]]] = {
    "any(age >= 65)": ("any(person.age >= 65)", lambda u: any(p[0] == 2 for p in u[2])),
    "any(person.age >= 65) & region = West": (
        "region = West & any(person.age >= 65)",
        lambda u: any(p[0] == 2 for p in u[2]) and u[0] == 1,
    ),
    "all(person.age < 18)": ("all(person.age < 18)", lambda u: all(p[0] == 0 for p in u[2])),
    "!any(person.age >= 18)": ("all(person.age < 18)", lambda u: all(p[0] == 0 for p in u[2])),
    "!all(person.age < 18)": ("any(person.age >= 18)", lambda u: not all(p[0] == 0 for p in u[2])),
    "count(person where sex = f) >= 2": (
        "count(person where person.sex = f) >= 2",
        lambda u: sum(p[1] == 0 for p in u[2]) >= 2,
    ),
    "count(person where sex = f) > 0": ("any(person.sex = f)", lambda u: any(p[1] == 0 for p in u[2])),
    "count(person where sex = f) = 1": (
        "count(person where person.sex = f) = 1",
        lambda u: sum(p[1] == 0 for p in u[2]) == 1,
    ),
    "count(person where sex = f) in {0, 2}": (
        "count(person where person.sex = f) in {0, 2}",
        lambda u: sum(p[1] == 0 for p in u[2]) in (0, 2),
    ),
    "count(person) >= 2": ("person >= 2", lambda u: len(u[2]) >= 2),
    "count(car) = 6": ("count(car) = 6", lambda u: len(u[3]) == 6),
    "car >= 5": ("car >= 5", lambda u: len(u[3]) >= 5),
    "any(person.age >= 65 & sex = f)": (
        "any(person.age >= 65 & person.sex = f)",
        lambda u: any(p[0] == 2 and p[1] == 0 for p in u[2]),
    ),
    "all(age < 18 | sex = f)": (
        "all(person.age < 18 | person.sex = f)",
        lambda u: all(p[0] == 0 or p[1] == 0 for p in u[2]),
    ),
    "any(person.kind = x & household.kind = b)": (
        "any(household.kind = b & person.kind = x)",
        lambda u: u[1] == 1 and any(p[2] == 0 for p in u[2]),
    ),
    "any(age < 18 & region = East & car < 5)": (
        "any(region = East & car < 5 & person.age < 18)",
        lambda u: u[0] == 0 and len(u[3]) < 5 and any(p[0] == 0 for p in u[2]),
    ),
    "any(sex = f) & any(sex = m) & !any(fuel = power)": (
        "all(car.fuel = petrol) & any(person.sex = f) & any(person.sex = m)",
        lambda u: {p[1] for p in u[2]} == {0, 1} and 1 not in u[3],
    ),
    "any(sex = f) | household.region = West": (
        "region = West | any(person.sex = f)",
        lambda u: u[0] == 1 or any(p[1] == 0 for p in u[2]),
    ),
    "any(sex = f) & count(person where sex = f) <= 2": (
        "count(person where person.sex = f) in [1, 2]",
        lambda u: 1 <= sum(p[1] == 0 for p in u[2]) <= 2,
    ),
    "region = West & kind = a": ("region = West & kind = a", lambda u: u[0] == 1 and u[1] == 0),
}


def group_of(*texts: str) -> Group:
    groups = groups_of(DOMAIN, texts, list(texts))
    (group,) = groups
    return group


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_is_what_it_says(text: str) -> None:
    canonical, says = QUESTIONS[text]
    group = group_of(text)
    assert group.texts(np.zeros(1, np.int64)) == [canonical]
    assert group.counts(units(TOY)).tolist() == [sum(map(says, TOY))]
    assert 0 < sum(map(says, TOY)) < len(TOY), "a question that everybody answers alike tests nothing"
    again = group_of(canonical)
    assert again.texts(np.zeros(1, np.int64)) == [canonical]
    assert again.counts(units(TOY)).tolist() == group.counts(units(TOY)).tolist()
    if isinstance(group, OverUnits):
        assert group.given(units(TOY)).tolist() == [int(says(u)) for u in TOY]


def test_questions_keep_their_order_in_groups() -> None:
    workload = from_texts(DOMAIN, list(QUESTIONS))
    assert [canonical for canonical, _ in QUESTIONS.values()] == list(workload.texts())
    expected = [sum(map(says, TOY)) for _, says in QUESTIONS.values()]
    counts = np.concatenate([group.counts(units(TOY)) for group in workload.groups])
    assert counts.tolist() == expected


def test_equal_questions_have_equal_digests() -> None:
    def digest(text: str) -> str:
        return from_texts(DOMAIN, [text]).digest()

    assert digest("any(person.age >= 65)") == digest("!all(age < 65)")
    assert digest("any(person.age >= 65)") != digest("any(person.age >= 18)")
    assert digest("any(person.age >= 65)") != digest("all(person.age >= 65)")


def test_a_family_of_any() -> None:
    one, two = from_spec(DOMAIN, "any:1"), from_spec(DOMAIN, "any:2")
    assert one.size == 3 + 2 + 2 + 2
    assert two.size == 3 * 2 + 3 * 2 + 2 * 2
    assert "any(person.sex = f & person.kind = y)" in list(two.texts())
    for text, count in zip(one.texts(), one.groups[0].counts(units(TOY)), strict=True):
        assert group_of(text).counts(units(TOY)).tolist() == [count]


def test_of_the_rows_of_a_table() -> None:
    joined = units(TOY).joined("person")
    rows = [(u[0], *p) for u in TOY for p in u[2]]
    for text, says in {
        "age >= 65 & household.region = West": lambda r: r[1] == 2 and r[0] == 1,
        "person.age >= 65 & region = West": lambda r: r[1] == 2 and r[0] == 1,
        "person.kind = y": lambda r: r[3] == 1,
    }.items():
        (group,) = rows_groups_of(DOMAIN, joined.domain, [text], [text])
        assert group.counts(joined).tolist() == [sum(map(says, rows))]
    assert joined.rows == len(rows)


REFUSED = {
    "person.age >= 65": "any(person.age …), all(person.age …) or count(person where age …)",
    "age >= 65 & region = West": "any(person.age …), all(person.age …) or count(person where age …)",
    "any(region = West)": "name its attributes with the table before them, like person.age",
    "any(person.sex = f & car.fuel = petrol)": "asks about the rows of one table",
    "any(kind = x)": "write person.kind or household.kind: both have 'kind'",
    "any(person.income >= 3)": "name its attributes with the table before them",
    "any(person.sex in {f, m})": "holds for every row of 'person'",
    "any(person.sex = f & person.sex = m)": "no row of 'person' can satisfy this",
    "any(any(person.sex = f))": "asks about a whole household, not about one row",
    "count(bike) >= 1": "count(…) counts rows of person or car",
    "count(person where sex = f)": "expected a comparison",
    "count(person where sex = f) >= 4": "no record can satisfy this query",
    "count(car) >= 0": "this query holds for every record",
    "any(person.sex = f": "expected ')'",
    "any(person.sex = f) | region = West & any(person.sex = m)": "neither a product of conditions",
    "any person.sex = f": "unknown attribute 'any'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_question_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(QueryError) as refused:
        groups_of(DOMAIN, [text], ["here"])
    assert REFUSED[text] in str(refused.value)
    assert "^" in str(refused.value), "with a mark under the fault"


SMALL = """
[database]
protect = "h"
[[table]]
name = "h"
key = "h"
[[table.attribute]]
name = "r"
values = ["0", "1"]
[[table]]
name = "p"
parent = "h"
at_most = 3
[[table.attribute]]
name = "x"
values = ["0", "1"]
[[table.attribute]]
name = "y"
values = ["0", "1", "2"]
"""


def every_unit() -> Units:
    """All units of a small toy."""
    small = database_in(SMALL)
    kinds = list(product(range(2), range(3)))
    listed = [
        (r, rows) for r in range(2) for m in range(4) for rows in combinations_with_replacement(kinds, m)
    ]
    rows = np.array([p for _, each in listed for p in each])
    return units_of(
        small, np.array([[r] for r, _ in listed]), [(np.array([len(p) for _, p in listed]), rows)]
    )


ASKED = [
    ["any(x = 0)"],
    ["all(x = 0)", "r = 1 & any(x = 0)", "count(p where y = 1) >= 2"],
    ["count(p where y = 1) = 0", "count(p where y = 1) = 1", "count(p where y = 1) >= 2"],
    ["any(x = 0 & y = 1)", "any(x = 1 & y = 1)", "!(any(x = 1) & r = 0)"],
]


@pytest.mark.parametrize("texts", ASKED, ids=str)
def test_one_unit_moves_questions_by_no_more_than_their_bound(texts: list[str]) -> None:
    """All units, and all pairs of them: what is added, and how far apart two lie."""
    whole = every_unit()
    assert whole.rows == 2 * (1 + 6 + 21 + 56)
    (group,) = groups_of(whole.domain, texts, texts)  # type: ignore[arg-type]
    added = np.array([group.counts(whole.take(np.array([u]))) for u in range(whole.rows)])
    bound = group.bound()
    assert added.max(axis=0).tolist() == [1] * len(texts)
    assert added.min() == 0
    assert added.sum(axis=1).max() <= bound.alone[0]
    distinct = np.unique(added, axis=0)
    apart = np.abs(distinct[:, None] - distinct[None]).sum(axis=2).max()
    assert apart <= bound.apart[0]
    assert bound.each == 1
    if len(texts) == 1:
        assert (bound.alone, bound.apart) == ((1, 1), (1, 1))
