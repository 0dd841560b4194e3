"""The query language: what is read means what it says, prints back as it was, and errs with a finger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from dualquery.errors import QueryError, SchemaError
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.language.formula import Literal, Query, canonical
from dualquery.queries.language.reader import parse, to_groups
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric

PEOPLE = Domain(
    (
        Numeric("age", tuple(float(x) for x in range(0, 101, 5)), integer=True),
        Categorical("sex", ("Male", "Female")),
        Categorical("workclass", ("Private", "?", "Self-emp-inc", "Never-worked"), missing="?"),
        Categorical("income", ("<=50K", ">50K")),
        Categorical("native-country", ("Cuba", "Trinadad&Tobago", "Outlying-US(Guam-USVI-etc)", "O'Brien")),
        Categorical(
            "education", ("Primary", "HS-grad", "?", "Bachelors", "Masters"), ordered=True, missing="?"
        ),
        Numeric("rate", (0.0, 0.1, 0.2, 0.3, 1.0), missing="unknown"),
        Numeric("fragments", (0.0, 0.75, 1.5, 2.25, 3.0), integer=True),
        Items("item", 512_000),
    )
)


# Domains and queries at random


NAMES = st.sampled_from(
    ["age", "in", "NOT", "missing", "x[3]", "it's", 'say "no"', "<=50K", "a b", "#1", "7"]
) | st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5)
VALUES = NAMES | st.just("")


@st.composite
def categorical_columns(draw: st.DrawFn, name: str) -> Categorical:
    values = tuple(draw(st.lists(VALUES, min_size=1, max_size=6, unique=True)))
    place = st.none() | st.sampled_from(values)
    return Categorical(name, values, draw(place), draw(place), draw(st.booleans()))


@st.composite
def numeric_columns(draw: st.DrawFn, name: str) -> Numeric:
    scale = draw(st.sampled_from([0.1, 0.25, 1.0, 1e6]))
    marks = draw(st.lists(st.integers(-40, 40), min_size=2, max_size=7, unique=True))
    edges = tuple(sorted(mark * scale for mark in marks))
    missing = draw(st.none() | NAMES | st.sampled_from(["1e9", "-1000000000", "nan"]))
    return Numeric(name, edges, missing=missing, integer=scale >= 1.0 and draw(st.booleans()))


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    columns: list[Column] = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["categorical", "numeric", "items"]))
        if kind == "categorical":
            columns.append(draw(categorical_columns(name)))
        elif kind == "numeric":
            columns.append(draw(numeric_columns(name)))
        else:
            columns.append(Items(name, draw(st.integers(1, 4)), draw(st.integers(0, 20))))
    try:
        return Domain(tuple(columns))
    except SchemaError:  # names that clash
        return reject()


@st.composite
def asked_domains(draw: st.DrawFn) -> tuple[Domain, Query]:
    domain = draw(domains())
    sizes = domain.sizes.tolist()
    binary = [j for j, size in enumerate(sizes) if size == 2]
    if binary and draw(st.integers(0, 5)) == 0:
        return domain, Query((), parity=tuple(sorted(draw(st.sets(st.sampled_from(binary), min_size=1)))))
    eligible = [j for j, size in enumerate(sizes) if size > 1]
    assume(eligible)
    chosen = sorted(draw(st.sets(st.sampled_from(eligible), min_size=1, max_size=4)))
    literals = [Literal(j, *canonical(draw(st.integers(1, 2 ** sizes[j] - 2)), sizes[j])) for j in chosen]
    return domain, Query(tuple(literals), len(literals) > 1 and draw(st.booleans()))


@settings(max_examples=200, deadline=None)
@given(asked_domains())
def test_a_query_prints_as_text_that_reads_back_as_the_same_query(asked: tuple[Domain, Query]) -> None:
    domain, query = asked
    assert parse(query.text(domain), domain) == query


# Meaning

SMALL = Domain(
    (
        Categorical("colour", ("red", "green", "blue"), missing="blue"),
        Numeric("size", (0.0, 1.0, 2.0, 4.0), missing="none"),
        Categorical("grade", ("low", "?", "mid", "high"), unknown="?", ordered=True),
        Items("item", 2),
    )
)
RECORDS = list(product(*(range(size) for size in SMALL.sizes.tolist())))
Meaning = Callable[[Sequence[int]], bool]
ATOMS: list[tuple[str, Meaning]] = [
    ("colour = red", lambda r: r[0] == 0),
    ("colour != 'green'", lambda r: r[0] != 1),
    ("colour in {red, blue}", lambda r: r[0] in (0, 2)),
    ("colour not in {red}", lambda r: r[0] != 0),
    ("colour is missing", lambda r: r[0] == 2),
    ("size < 2", lambda r: r[1] in (0, 1)),
    ("size >= 1", lambda r: r[1] in (1, 2)),
    ("size <= 4", lambda r: r[1] != 3),
    ("size in [1, 2)", lambda r: r[1] == 1),
    ("size not in [0, 2)", lambda r: r[1] in (2, 3)),
    ("size in {[0, 1), [2, 4], none}", lambda r: r[1] != 1),
    ("size is not missing", lambda r: r[1] != 3),
    ("grade >= mid", lambda r: r[2] in (2, 3)),
    ("grade < high", lambda r: r[2] in (0, 2)),
    ("grade > low", lambda r: r[2] in (2, 3)),
    ("grade <= low", lambda r: r[2] == 0),
    ("grade in (low, high]", lambda r: r[2] in (2, 3)),
    ("grade == ?", lambda r: r[2] == 1),
    ("item[1]", lambda r: r[3] == 1),
    ("item[2] = 0", lambda r: r[4] == 0),
]


def conjoined(parts: list[tuple[str, Meaning]], sign: str) -> tuple[str, Meaning]:
    quantifier = all if sign in ("&", "and") else any
    return (
        "(" + f" {sign} ".join(text for text, _ in parts) + ")",
        lambda record: quantifier(holds(record) for _, holds in parts),
    )


def negated(part: tuple[str, Meaning], sign: str) -> tuple[str, Meaning]:
    return f"{sign}({part[0]})", lambda record: not part[1](record)


FORMULAS: st.SearchStrategy[tuple[str, Meaning]] = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds(
            conjoined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["&", "and", "|", "OR", "∨"])
        )
        | st.builds(negated, inner, st.sampled_from(["!", "not ", "¬", "!!! "]))
    ),
    max_leaves=5,
)


def is_box(records: set[tuple[int, ...]]) -> bool:
    sides = [{record[j] for record in records} for j in range(len(SMALL.sizes))]
    count = 1
    for side in sides:
        count *= len(side)
    return len(records) == count


@settings(max_examples=300, deadline=None)
@given(FORMULAS)
def test_a_formula_means_what_it_says_or_is_refused_because_no_product_does(
    formula: tuple[str, Meaning],
) -> None:
    text, holds = formula
    satisfied = {record for record in RECORDS if holds(record)}
    try:
        query = parse(text, SMALL)
    except QueryError:
        others = set(RECORDS) - satisfied
        assert not satisfied or not others or not (is_box(satisfied) or is_box(others))
    else:
        assert {record for record in RECORDS if query.holds(record)} == satisfied
        assert parse(query.text(SMALL), SMALL) == query


@settings(max_examples=100, deadline=None)
@given(FORMULAS, FORMULAS)
def test_formulas_with_one_meaning_are_one_query(
    one: tuple[str, Meaning], other: tuple[str, Meaning]
) -> None:
    try:
        first, second = parse(one[0], SMALL), parse(other[0], SMALL)
    except QueryError:
        return
    same = all(one[1](record) == other[1](record) for record in RECORDS)
    assert (first == second) == same


def test_precedence_is_not_then_and_then_or() -> None:
    either = parse("!item[1] | item[2]", SMALL)
    assert [either.holds((0, 0, 0, a, b)) for a, b in product((0, 1), repeat=2)] == [True, True, False, True]
    with pytest.raises(QueryError, match="neither a product"):
        parse("item[1] & item[2] | colour = red", SMALL)
    assert parse("item[1] & item[2] | item[1] & !item[2]", SMALL) == parse("item[1]", SMALL)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (
            "age >= 50 & sex = Female & !(workclass = Private)",
            "age >= 50 & sex = Female & workclass != Private",
        ),
        ("age > 49 and age <= 64", "age in [50, 65)"),
        ("age < 30 or age ≥ 60", "age not in [30, 60)"),
        ("not sex = Male", "sex = Female"),
        ("workclass ≠ '?'", "workclass is not missing"),
        ('income = ">50K" | sex == Male', "sex = Male | income = '>50K'"),
        ("native-country = 'Trinadad&Tobago'", "native-country = 'Trinadad&Tobago'"),
        (
            "native-country in {'Outlying-US(Guam-USVI-etc)', 'O''Brien'}",
            "native-country in {'Outlying-US(Guam-USVI-etc)', 'O''Brien'}",
        ),
        ("education >= Bachelors", "education >= Bachelors"),
        ("!(education >= Bachelors)", "!(education >= Bachelors)"),
        ("!(age >= 50)", "age < 50"),
        ("rate < 0.2", "rate < 0.2"),
        ("!(rate < .2)", "!(rate < 0.2)"),
        ("rate in {[0, 0.1), [0.2, 0.3)}", "rate in {[0, 0.1), [0.2, 0.3)}"),
        ("rate = unknown", "rate is missing"),
        ("fragments = 2", "fragments in [1.5, 2.25)"),
        ("fragments > 0", "fragments >= 0.75"),
        ("fragments != 3", "fragments < 2.25"),
        ("item[17] & !item[512000]  # a comment", "item[17] & !item[512000]"),
        ("item[17] = 0", "!item[17]"),
        ("!(item[1] & item[2])", "!item[1] | !item[2]"),
        ("parity(item[9], sex, item[3])", "parity(sex, item[3], item[9])"),
    ],
)
def test_canonical_text(text: str, printed: str) -> None:
    assert parse(text, PEOPLE).text(PEOPLE) == printed


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("sex=Male & agee > 3", 12, "unknown attribute 'agee'; did you mean 'age'?"),
        ("sex = female", 7, "attribute 'sex' has no value 'female'; did you mean 'Female'?"),
        ("age = 52", 7, "ask for age in [50, 55)"),
        ("age >= 52", 8, "would split the bin [50, 55) of attribute 'age'; the nearest edges are 50 and 55"),
        ("age > 50", 7, "the nearest edges are 50 and 55"),
        ("age in [50, 100)", 13, "would split the bin [95, 100]"),
        ("age < 200", 7, "beyond the bins of attribute 'age', which reach from 0 to 100"),
        ("age < old", 7, "'old' is not a number"),
        ("rate = 0.1", 8, "ask for rate in [0.1, 0.2)"),
        ("sex >= Male", 8, "attribute 'sex' has no order"),
        ("education > '?'", 13, "has no rank"),
        ("sex = Male & sex = Female", 1, "no record can satisfy this query"),
        ("age >= 50 & age < 30", 1, "no record can satisfy this query"),
        ("age in [50, 30)", 1, "no record can satisfy this query"),
        ("sex = Male | !(sex = Male)", 1, "holds for every record"),
        ("age <= 100", 1, "holds for every record"),
        ("sex = Male & item[3] | age < 50", 1, "neither a product of conditions"),
        ("item", 1, "block of items; name one, as item[1]"),
        ("item[0]", 6, "'item' has items 1 to 512000"),
        ("item[" + "1" * 5000 + "]", 6, "'item' has items 1 to 512000"),
        ("item[x]", 6, "'item' has items 1 to 512000"),
        ("item[", 6, "expected a value, found the end of the query"),
        ("sex[1]", 1, "'sex' is not a block of items"),
        ("item[3] >= 1", 12, "has no order"),
        ("sex", 4, "expected a comparison of 'sex' with a value, found the end of the query"),
        ("sex Male", 5, "expected a comparison of 'sex' with a value, found 'Male'"),
        ("income = >50K", 10, "found '>'; put quotes around it"),
        ("(sex = Male", 12, "expected ')' to close the '(' at column 1"),
        ("sex = Male)", 11, "expected '&', '|' or the end of the query"),
        ("sex = Male &", 13, "expected an attribute, found the end of the query"),
        ("sex in Male", 8, "expected '{' or '['"),
        ("sex not Male", 9, "expected 'in'"),
        ("age is 3", 8, "expected 'missing'"),
        ("sex is missing", 1, "'sex' declares no place for missing values"),
        ("sex = 'Male", 7, "this quote is not closed"),
        ("parity(age, sex)", 8, "'age' is not binary"),
        ("parity(sex, sex)", 13, "stands twice"),
        ("parity sex", 8, "a name 'parity' needs quotes"),
        ("sex = Male & parity(sex)", 1, "a parity stands alone"),
        ("!parity(sex)", 1, "a parity stands alone"),
        ("  ", 1, "the query is empty"),
        ("(" * 60 + "sex = Male" + ")" * 60, 51, "nested"),
        ("!" * 5000 + "agee", 5001, "unknown attribute"),
    ],
)
def test_errors_point_at_their_column(text: str, column: int, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, PEOPLE)
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith(f"column {column}: ")
    assert message in first
    place = caret.index("^")
    if column <= len(text):
        assert shown[place] == text[column - 1]


def test_the_place_of_a_query_is_named() -> None:
    with pytest.raises(QueryError, match=r"^survey\.txt, line 3, column 1: unknown attribute"):
        parse("agee = 3", PEOPLE, place="survey.txt, line 3")


def test_a_name_with_brackets_is_quoted() -> None:
    domain = Domain((Items("my item", 5), Categorical("x[3]", ("a", "b", "c"))))
    query = parse("'my item'[3] & 'x[3]' = c", domain)
    assert query.literals == (Literal(2, (1,), False), Literal(5, (2,), False))
    assert query.text(domain) == "'my item'[3] & 'x[3]' = c"


def test_an_edge_with_a_rounding_error_is_found() -> None:
    domain = Domain((Numeric("x", tuple(0.1 * b for b in range(11))),))
    assert domain.labels(0)[3].startswith("[0.30000000000000004,")
    assert parse("x >= 0.3", domain) == parse("x >= 0.30000000000000004", domain)
    with pytest.raises(QueryError, match="would split the bin"):
        parse("x >= 0.3000000001", domain)


def test_a_missing_label_that_looks_like_a_number() -> None:
    domain = Domain((Numeric("n", (0.0, 1.0, 2.0, 3.0), missing="-1"),))
    assert parse("n = '-1'", domain) == parse("n is missing", domain)
    query = parse("n in {[0, 1), '-1', [2, 3]}", domain)
    assert query.literals == (Literal(0, (1,), True),)
    assert parse(query.text(domain), domain) == query


def test_long_formulas_need_no_truth_table() -> None:
    text = " & ".join(f"item[{i}]" for i in range(1, 2001))
    assert len(parse(text, PEOPLE).literals) == 2000
    assert parse(f"!({text})", PEOPLE).complement
    with pytest.raises(QueryError, match="too tangled"):
        parse(" | ".join(f"(item[{i}] & item[{i + 1}])" for i in range(1, 100)), PEOPLE)


def test_wide_attributes() -> None:
    domain = Domain((Categorical("v", tuple(f"v{i}" for i in range(5000)), ordered=True),))
    query = parse("v >= v2500", domain)
    assert len(query.literals[0].values) == 2500
    assert query.text(domain) == "v >= v2500"
    assert parse("v != v77", domain).literals == (Literal(0, (77,), True),)
    scattered = parse("v in {v1, v3, v4999}", domain)
    assert parse(scattered.text(domain), domain) == scattered


def test_groups_keep_the_order_and_share_predicates() -> None:
    texts = ["sex = Male & age < 50", "sex = Female | item[3]", "parity(sex, item[1])", "sex = Male"]
    groups = to_groups(PEOPLE, [parse(text, PEOPLE) for text in texts])
    assert [type(group) for group in groups] == [Conjunctions, Parities, Conjunctions]
    assert isinstance(groups[0], Conjunctions)
    assert len(groups[0].predicates) == 3
    assert groups[0].complement is not None
    assert groups[0].complement.tolist() == [False, True]
    assert groups[2].complement is None  # type: ignore[union-attr]
