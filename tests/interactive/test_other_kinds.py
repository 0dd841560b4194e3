"""Cuts, distances, look-ups and lists, asked one at a time: the same test, charge and journal as any question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery import Budget, BudgetError, DualQueryError, Online, QueryError, Release
from dualquery.interactive import Answered, Fired, MemoryJournal, Prepaid, Serving, opening
from dualquery.interactive.answers import Badge
from dualquery.interactive.opening import first_release
from dualquery.kinds import kind_named
from dualquery.queries.families import from_texts
from dualquery.queries.group import NotProducts
from dualquery.queries.question import QuestionReader
from dualquery.table.encoding import encode
from dualquery.table.graph import codes_table, graph_of
from dualquery.table.points import GRID, Coordinate, Points
from dualquery.table.records import Records
from tests.interactive.conftest import BUDGET

ROWS = 20_000
NAMES = tuple(f"n{i}" for i in range(12))
PLANE = Points((Coordinate("x", (0.0, 10.0)), Coordinate("y", (0.0, 5.0))))
CODES = codes_table({"icd": 8, "born": (1900, 2030)})


@dataclass(frozen=True)
class Kind:
    """A table, one that is older and quite another, what is asked of it, and for what a release is made."""

    now: Callable[[], Records]
    older: Callable[[], Records]
    texts: tuple[str, ...]
    workload: str | list[str]


def edges(graph, *, turned: bool = False) -> Records:
    rng = np.random.default_rng(0)
    chance = np.arange(1, 13)[:: -1 if turned else 1] / 78
    codes = [rng.choice(12, ROWS, p=chance), rng.integers(0, 12, ROWS)]
    weights = [rng.binomial(4, 0.3, ROWS)] * (len(graph.columns) - 2)
    return Records.from_rows(graph, np.column_stack([*codes, *weights]))


def points(*, turned: bool = False) -> Records:
    rng = np.random.default_rng(0)
    places = np.column_stack([np.clip(rng.normal(0.3, 0.1, ROWS), 0, 1), rng.beta(2, 5, ROWS)])
    return Records.from_rows(PLANE, np.rint((1 - places if turned else places) * GRID).astype(np.int64))


def patients(*, turned: bool = False) -> Records:
    rng = np.random.default_rng(0)
    which = rng.choice(6, ROWS, p=np.array([6, 5, 4, 3, 2, 1])[:: -1 if turned else 1] / 21)
    return encode(pa.table({"icd": [f"C{k}" for k in which], "born": rng.integers(1980, 1983, ROWS)}), CODES)


def graph_kind(**shape) -> Kind:
    graph = graph_of(NAMES, **shape)
    leaving, *others = (
        "edges leaving {n0 .. n5}",
        "edges within {n6 .. n11}",
        "edges from {n11, n10} to {everything}",
    )
    # Without directions as many leave the lower half as the upper: the older graph says the same of it.
    texts = (leaving, *others) if shape.get("directed", True) else (*others, leaving)
    return Kind(lambda: edges(graph), lambda: edges(graph, turned=True), texts, "cuts:random:50")


LOOK_UP = "icd = C0 & born = 1981"
LIST = " | ".join(f"icd = C1 & born = {year}" for year in (1980, 1981, 1982))
KINDS = {
    "graph": graph_kind(),
    "without directions": graph_kind(directed=False),
    "weights": graph_kind(weight="w", heaviest=4),
    "points": Kind(
        points,
        lambda: points(turned=True),
        ("distance to (x = 3, y = 1)", "distance to (x = 10)", "distance to (y = 0)"),
        "points:random:50",
    ),
    "codes": Kind(patients, lambda: patients(turned=True), (LOOK_UP, LIST, "icd = X & born = 1999"), [LOOK_UP, LIST]),
}  # fmt: skip


@cache
def stale(name: str) -> Release:
    """Of the older table, for half of the budget."""
    half = Budget(0.5, 1e-6, neighbours=BUDGET.neighbours, accounting="zcdp")
    kind = KINDS[name]
    older = kind.older()
    return dualquery.release(older, schema=older.domain, budget=half, workload=kind.workload, seed=1)


def truth(records: Records, text: str) -> float:
    (group,) = from_texts(records.domain, [text]).groups
    return float(group.counts(records)[0]) / group.unit / records.rows


few = [pytest.param(name, marks=pytest.mark.long if name == "without directions" else ()) for name in KINDS]


@pytest.mark.parametrize(
    "name", [*few[:1], *few[2:3], pytest.param("points", marks=pytest.mark.long), few[-1]]
)
def test_a_question_is_answered_within_its_bound_from_the_first_release(name: str) -> None:
    """Opened with nothing but the table: the first release is made, or none where nobody can list what is asked."""
    records = KINDS[name].now()
    online = dualquery.online(records, schema=records.domain, budget=BUDGET, seed=2)
    assert (online.release is None) == (name == "codes")
    assert online.status().fires_left == (50 if name == "codes" else 5)
    for text in KINDS[name].texts:
        answer = online.ask(text)
        assert abs(answer.value - truth(records, text)) <= answer.bound
        if online.release is not None:
            released = online.release.answer(text).value
            assert abs(answer.value - released) < 0.003  # the hypothesis says what the release says
            assert answer.cost.units == 0


@pytest.mark.parametrize("name", few)
def test_a_stale_release_is_contradicted_measured_paid_and_mended(name: str) -> None:
    records, journal = KINDS[name].now(), MemoryJournal()

    def opened(kept: MemoryJournal) -> Online:
        given = {"schema": records.domain, "budget": BUDGET, "release": stale(name), "seed": 3}
        return dualquery.online(records, journal=kept, **given)

    online = opened(journal)
    text = KINDS[name].texts[0]
    question, hypothesis = online._state.reader.read(text), online._state.hypothesis
    before, right, spent = hypothesis.fractions(question)[0], truth(records, text), online.status().spent
    answer = online.ask(text)
    assert answer.badge is Badge.MEASURED
    assert answer.cost == online.price
    assert online.status().spent == spent + online.price.units
    assert abs(answer.value - right) <= answer.bound < 0.01
    assert abs(hypothesis.fractions(question)[0] - right) < 0.7 * abs(before - right)
    assert online.ask(text).cost.units == 0
    bought = online.buy(KINDS[name].texts[1], error=0.002)
    assert abs(bought.value - truth(records, bought.question)) <= bought.bound
    kinds = [type(entry) for entry in journal.entries()]
    paid = [kinds.index(Prepaid), kinds.index(Serving), kinds.index(Fired)]
    assert paid == sorted(paid)
    assert isinstance(journal.entries()[-1], Answered) or kinds[-1].__name__ == "Bought"
    online.close()
    again = opened(MemoryJournal(journal.entries()))
    assert again.fingerprint() == online.fingerprint()
    assert again.status().spent == online.status().spent


@pytest.mark.parametrize("name", KINDS)
def test_what_rows_are_given_and_how_they_are_changed(name: str) -> None:
    """`given` is what the group counts, row by row; `changed` rows are given more than any, or less."""
    rng = np.random.default_rng(1)
    records = KINDS[name].now()
    sample = records.take(rng.integers(0, ROWS, 40))
    for text in KINDS[name].texts:
        (group,) = from_texts(records.domain, [text]).groups
        given = group.given(sample)
        np.testing.assert_array_equal(given, NotProducts.given(group, sample))
        assert group.given(group.changed(sample, more=True)).min() >= given.max()
        assert group.given(group.changed(sample, more=False)).max(initial=0) <= given.min()


def test_a_question_keeps_its_text_and_is_equal_where_it_is() -> None:
    reader = QuestionReader(graph_of(NAMES))
    question = reader.read("  edges leaving {n0 .. n5} ")
    assert question.text == "edges leaving {n0 .. n5}"
    assert reader.read(question.text) == question
    assert (question.cells, question.labels, question.is_table, question.off) == (1, (), False, 0.0)
    assert QuestionReader(PLANE).read("distance to (x = 3)").off == 0.5


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("graph", "edges leaving {n99}", "not among the vertices"),
        ("graph", "region = south", "a question about edges reads like"),
        ("graph", "mean of [0, 1] by source", "a question about edges reads like"),
        ("points", "distance to (x = 11)", "outside the bounds"),
        ("codes", "icd = C0", "names every column"),
        ("codes", "icd = C0 & born = 1980 |", "a look-up reads like"),
        ("codes", "record in list('codes.csv')", "names its records itself"),
        ("codes", "record in list('/etc/passwd')", "names its records itself"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence_and_nothing_happens(name: str, text: str, sentence: str) -> None:
    records = KINDS[name].now()
    online = dualquery.online(records, schema=records.domain, budget=BUDGET, release=stale(name), seed=3)
    before = len(list(online.journal.entries()))
    for call in (online.ask, online.quote, lambda text: online.buy(text, error=0.1)):
        with pytest.raises(QueryError, match=sentence):
            call(text)
    assert len(list(online.journal.entries())) == before
    with pytest.raises(QueryError, match=f"this is a table of {records.domain.kind}"):
        online.expect(lambda x: x)


def test_a_release_of_another_table_is_refused_and_a_universe_that_is_too_large() -> None:
    graph, plane = edges(graph_of(NAMES)), points()
    with pytest.raises(DualQueryError, match="graph, curves or cells of its kind"):
        dualquery.online(graph, schema=graph.domain, budget=BUDGET, release=stale("weights"))
    with pytest.raises(BudgetError, match="records that the schema allows"):
        dualquery.online(plane, schema=plane.domain, budget=BUDGET, test="sparse-vector")
    with pytest.raises(DualQueryError, match="name a workload"):
        first_release(patients(), schema=CODES, budget=BUDGET)
    # A journal of a graph belongs to that graph: with directions it is another.
    journal = MemoryJournal()
    dualquery.online(
        graph, schema=graph.domain, budget=BUDGET, release=stale("graph"), journal=journal
    ).close()
    other = edges(graph_of(NAMES, directed=False))
    with pytest.raises(DualQueryError):
        dualquery.online(
            other, schema=other.domain, budget=BUDGET, release=stale("without directions"), journal=journal,
            table_changed=True,
        )  # fmt: skip


def test_cuts_keep_the_promise_of_online_multiplicative_weights() -> None:
    weighted = edges(graph_of(NAMES, weight="w", heaviest=4))
    online = dualquery.online(weighted, schema=weighted.domain, budget=BUDGET, test="sparse-vector", seed=4)
    for text in (
        "edges within {everything}",
        "edges from {n0 .. n9} to {everything}",
        *KINDS["weights"].texts,
    ):
        answer = online.ask(text)
        assert abs(answer.value - truth(weighted, text)) <= online.rule.accuracy.error
    assert online.rule.accuracy.universe == 12 * 12 * 5


def test_a_list_of_a_few_look_ups_is_written_and_read_back() -> None:
    (group,) = from_texts(CODES, [LIST + " | icd = C1 & born = 1980"]).groups
    assert group.texts(np.zeros(1, np.int64)) == [LIST]
    assert len(group.cells) == 3
    assert group.counts(patients())[0] == pytest.approx(ROWS * 5 / 21, rel=0.05)


def test_a_kind_that_says_nothing_of_a_hypothesis_is_released_and_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "kind_named", lambda name: replace(kind_named(name), believes=None))
    graph = edges(graph_of(NAMES))
    with pytest.raises(DualQueryError, match="a kind that is not asked one question at a time; release it"):
        dualquery.online(graph, schema=graph.domain, budget=BUDGET)
