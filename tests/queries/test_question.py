"""Questions one at a time: how they are read, and counts from kept columns, which are those of their groups."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.counting.opening import ColumnCounter
from dualquery.errors import QueryError
from dualquery.queries.families import from_texts, marginals
from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.question import MOST_CELLS, Question, QuestionReader
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records, as_lists

DOMAIN = Domain(
    (
        Categorical("region", ("north", "south", "east", "west")),
        Categorical("sex", ("f", "m")),
        Numeric("age", tuple(float(x) for x in range(0, 100, 10)), integer=True),
        Categorical("by", ("x", "y")),
        Items("item", 5, first=0),
    )
)
TEXTS = [
    "sex = m",
    "region = south & age >= 50",
    "region in {north, west} & !(sex = f)",
    "!(region = north & sex = m)",
    "region = east | sex = f",
    "item[3]",
    "item[0] & !item[4] & age < 30",
    "parity(sex, item[1], item[2])",
    "by = x",
]
ROWS = 203  # no multiple of 64


def records(rows: int = ROWS, *, sparse: bool = False, seed: int = 1) -> Records:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, DOMAIN.sizes, (rows, DOMAIN.width))
    found = Records.from_rows(DOMAIN, codes)
    if not sparse:
        return found
    *columns, items = found.columns
    return Records(DOMAIN, rows, (*columns, as_lists(items, rows)))


def read(text: str) -> Question:
    return QuestionReader(DOMAIN).read(text)


@pytest.mark.parametrize(
    ("text", "canonical", "members"),
    [
        ("region by sex", "region by sex", (0, 1)),
        ("sex BY region", "region by sex", (0, 1)),
        ("by region", "by region", (0,)),
        ("item[2] by sex by age", "sex by age by item[2]", (1, 2, 6)),
        ("'by' by sex", "sex by 'by'", (1, 3)),
        ("by 'by'", "by 'by'", (3,)),
    ],
)
def test_a_table_is_read_and_printed_and_read_again(
    text: str, canonical: str, members: tuple[int, ...]
) -> None:
    question = read(text)
    assert (question.text, question.members, question.query) == (canonical, members, None)
    assert read(question.text) == question
    assert len(question.labels) == question.cells == int(np.prod(question.shape))


def test_labels_follow_the_cells() -> None:
    question = read("sex by region")
    assert question.attributes == ("region", "sex")
    assert question.labels[:3] == (("north", "f"), ("north", "m"), ("south", "f"))


def test_a_column_that_is_called_by_still_has_conditions() -> None:
    assert read("by = x").query is not None
    assert read("by in {x, y} & sex = m").text == "sex = m"


@pytest.mark.parametrize(
    ("text", "column", "sentence"),
    [
        ("region by", 10, "an attribute"),
        ("region by sex by region", 18, "twice"),
        ("region by planet", 11, "unknown attribute 'planet'"),
        ("region by sex & age", 15, "'by' or the end"),
        ("region", 7, "a comparison"),
        ("item by sex", 1, "block of items"),
        ("", 1, "empty"),
        ("sex = 'm", 7, "not closed"),
    ],
)
def test_a_fault_is_pointed_at(text: str, column: int, sentence: str) -> None:
    with pytest.raises(QueryError, match=sentence) as caught:
        read(text)
    assert str(caught.value).startswith(f"column {column}:")


def test_what_is_too_much_is_refused() -> None:
    wide = Domain(tuple(Categorical(f"a{j}", tuple(str(v) for v in range(30))) for j in range(3)))
    assert MOST_CELLS < 30**3
    with pytest.raises(QueryError, match="27,000 cells"):
        QuestionReader(wide).read("a0 by a1 by a2")
    with pytest.raises(QueryError, match="characters"):
        read("sex = m & " * 3000)


def test_questions_are_remembered_and_many_threads_may_read() -> None:
    reader, found = QuestionReader(DOMAIN), []
    threads = [
        Thread(target=lambda: found.extend(reader.read(text).text for text in TEXTS * 20)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(read(text).text for text in TEXTS * 80)
    assert reader.read("sex = m") is reader.read("sex = m")


@pytest.mark.parametrize("sparse", [False, True])
def test_kept_columns_count_as_the_groups_do(sparse: bool) -> None:
    table = records(sparse=sparse)
    kept = KeptColumns(table, most_bytes=200)  # nothing stays for long
    for text in TEXTS * 2:
        group = read(text).group
        assert kept.counts(group).tolist() == group.counts(table).tolist(), text
    for text in ("region by sex by age", "by item[2]", "item[0] by item[4] by sex"):
        group = read(text).group
        assert kept.counts(group).tolist() == group.counts(table).tolist(), text
    both = from_texts(DOMAIN, TEXTS[:7])
    assert kept.counts(both.groups[0]).tolist() == both.counts(table).tolist()


def test_masses_are_sums_of_weights() -> None:
    table = records()
    weights = np.random.default_rng(5).integers(1, 1 << 40, ROWS)
    kept = KeptColumns(table)
    rows = table.to_rows().tolist()
    for text in TEXTS:
        question = read(text)
        assert question.query is not None
        expected = sum(w for w, row in zip(weights.tolist(), rows, strict=True) if question.query.holds(row))
        assert kept.mass(question.group, weights).tolist() == [expected], text
    masses = kept.mass(read("region by sex").group, weights)
    codes = table.to_rows()
    expected_cells = np.bincount(codes[:, 0] * 2 + codes[:, 1], weights=weights.astype(float), minlength=8)
    assert np.allclose(masses, expected_cells)


def test_the_counter_of_single_questions_is_the_counter_of_many() -> None:
    table = records()
    one, other = ColumnCounter(MemoryCounter(table)), MemoryCounter(table)
    assert one.true_rows == other.true_rows
    assert one.domain == other.domain
    several = Tables(DOMAIN, ((0,), (1, 2)))
    many = marginals(DOMAIN, 2)
    for countable in (read("sex = m").group, read("region by sex").group, several, many, many.groups[0]):
        assert one.true_counts(countable).tolist() == other.true_counts(countable).tolist()
