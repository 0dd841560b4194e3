"""Statistical queries: the mean of a public function over the records, asked like any question."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dualquery
from dualquery import Domain, Items, QueryError
from dualquery.interactive import Fired, MemoryJournal
from dualquery.interactive.answers import Badge
from dualquery.queries.question import MOST_CELLS, UNIT, QuestionReader, numbers_text, read_numbers
from dualquery.table.records import Records
from tests.interactive.conftest import BUDGET, DOMAIN, ROWS, records, release_of

ROWS_OF_IT = records().to_rows()
REGION, SEX, AGE, RARE = ROWS_OF_IT.T.astype(int)


def test_the_mean_of_a_function_is_answered_and_bounded(open_table) -> None:
    """Brute force over the records: the function of each, added up."""
    online = open_table()
    middle = np.append(10 * np.arange(8) + 4.5, 85)[AGE]
    cases = {
        "age": (lambda age: age / 100, middle / 100),
        "two": (
            lambda sex, age: np.where(sex == "m", age / 200, 0.25),
            np.where(SEX == 1, middle / 200, 0.25),
        ),
        "other order": (
            lambda rare, region: (rare == "yes") | (region == "east"),
            (RARE == 1) | (REGION == 2),
        ),
        "clipped": (lambda age: age / 40 - 0.5, np.clip(middle / 40 - 0.5, 0, 1)),
    }
    for function, each in cases.values():
        answer = online.expect(function)
        assert answer.badge is Badge.NOT_CONTRADICTED
        assert (answer.cost.units, answer.labels) == (0, ())
        assert abs(answer.value - each.mean()) <= answer.bound
        assert answer.bound == pytest.approx(online.rule.bound(online.rule.test) + 0.5 / ROWS)
        assert online.ask(answer.question) == answer  # what it writes is read back, and was tested
    assert online.expect(lambda a, b: np.ones(len(a)), ["sex", "rare"]).value == 1


def test_a_surprise_is_measured_charged_and_moves_the_hypothesis(open_table) -> None:
    journal = MemoryJournal()
    online = open_table(lean=0.3, share=0.5, journal=journal)

    def south(region, age):
        return np.where(region == "south", 1 - age / 100, 0.1)

    exact = np.where(REGION == 1, 1 - np.append(10 * np.arange(8) + 4.5, 85)[AGE] / 100, 0.1).mean()
    text = online.expect(south, test=False).question
    before = online._state.hypothesis.fractions(online._state.reader.read(text))[0]
    spent = online.status().spent
    answer = online.expect(south)
    assert (answer.badge, answer.cost) == (Badge.MEASURED, online.price)
    assert online.status().spent == spent + online.price.units
    assert abs(answer.value - exact) <= answer.bound < 0.01
    after = online._state.hypothesis.fractions(online._state.reader.read(text))[0]
    assert abs(after - exact) < 0.6 * abs(before - exact)
    bought = online.buy(text, error=0.002)
    assert abs(bought.value - exact) <= bought.bound
    # Replayed, the same hypothesis to the byte.
    online.close()
    again = open_table(lean=0.3, share=0.5, journal=MemoryJournal(journal.entries()))
    assert again.fingerprint() == online.fingerprint()
    assert any(isinstance(entry, Fired) and entry.question == text for entry in journal.entries())


def test_it_moves_a_promised_hypothesis_too() -> None:
    online = dualquery.online(records(), schema=DOMAIN, budget=BUDGET, test="sparse-vector", seed=3)

    def common(rare, sex):
        return np.where(rare == "no", 1.0, np.where(sex == "m", 0.0, 0.1))

    exact = np.where(RARE == 0, 1.0, np.where(SEX == 1, 0.0, 0.1)).mean()
    before = online.expect(common, test=False)
    answer = online.expect(common)
    assert abs(answer.value - exact) <= online.rule.accuracy.error
    assert answer.badge is Badge.MEASURED
    state = online._state
    after = state.hypothesis.fractions(state.reader.read(answer.question))[0]
    assert before.value < after < exact


@pytest.mark.parametrize(
    ("function", "columns", "sentence"),
    [
        (lambda: 1, None, "reads nothing"),
        (lambda age: 1 / 0, None, "raised ZeroDivisionError"),
        (lambda age: 1 if age > 50 else 0, None, "raised ValueError"),
        (lambda age: age.astype(str), None, "must return numbers"),
        (lambda age: None, None, "must return numbers"),
        (lambda age: np.where(age > 50, np.nan, 0), None, "not finite"),
        (lambda age: age + np.inf, None, "not finite"),
        (lambda age: 0.5, None, "one number for each of the 9 values"),
        (lambda age: age[:3], None, "one number for each of the 9 values"),
        (lambda planet: planet, None, "unknown attribute 'planet'"),
        (lambda a, b: a, ("age", "age"), "named twice"),
        (lambda *columns: columns[0], None, "reads nothing"),
        (print, ["age"], "must return numbers"),
    ],
)
def test_what_is_no_function_from_0_to_1_is_refused_and_nothing_is_charged(
    open_table, function, columns, sentence: str
) -> None:
    online = open_table()
    before = len(list(online.journal.entries()))
    with pytest.raises(QueryError, match=sentence):
        online.expect(function, columns)
    assert len(list(online.journal.entries())) == before


def test_a_function_of_too_much_is_refused() -> None:
    wide = Domain((*DOMAIN.columns, Items("item", 14)))
    table = Records.from_rows(wide, np.zeros((ROWS, 18), np.int64))
    online = dualquery.online(table, schema=wide, budget=BUDGET, workload="marginals:1", seed=1)
    names = [f"item[{i}]" for i in range(1, 15)]
    assert online.expect(lambda one, other: one * other, names[:2]).value < 0.01
    with pytest.raises(QueryError, match="36,864 combinations of values"):
        online.expect(lambda *columns: columns[0] / 1, [*names[:12], "age"])
    with pytest.raises(QueryError, match="characters long when it is written out"):
        online.expect(
            lambda *columns: sum(each * 0.3571**i for i, each in enumerate(columns)) / 2, names[:13]
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mean of [0, 1] by region", "by 4 cells and has 2 numbers"),
        ("mean of [0, 2, 0, 0] by region", "numbers from 0 to 1"),
        ("mean of [0; 1] by sex", "numbers from 0 to 1"),
        ("mean of [] by sex", "numbers from 0 to 1"),
        ("mean of [0*8] by sex by region", "in the order of the schema"),
        ("mean of [0*3000000] by sex", "at most 1,000,000 numbers|has 1,000,000 numbers"),
        ("mean of [0, 1] by planet", "unknown attribute"),
        ("mean of [0, 1]", "column"),
    ],
)
def test_a_mean_that_cannot_be_read_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(QueryError, match=sentence):
        QuestionReader(DOMAIN).read(text)


def test_means_are_written_and_read_back_the_same() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        numbers = rng.choice([0, UNIT, 1, 250_000, int(rng.integers(UNIT))], 40)
        assert read_numbers(numbers_text(numbers.tolist())).tolist() == numbers.tolist()
    reader = QuestionReader(DOMAIN)
    question = reader.read("  Mean of[ 0.50, .25*2,1. ]by  region")
    assert question.text == "mean of [0.5, 0.25*2, 1] by region"
    assert reader.read(question.text) == question
    assert question.cells == 1
    assert MOST_CELLS >= 20_000
    json.dumps(question.text)


def test_a_perceptron_is_trained_by_means_alone() -> None:
    """A learner of statistical queries: every update is a few means; it sees no record and beats the base rate."""
    rng = np.random.default_rng(4)
    named = [*(f"x{j}" for j in range(5)), "y"]
    columns = Domain(tuple(dualquery.Categorical(name, ("0", "1")) for name in named))
    x = rng.integers(0, 2, (30_000, 5))
    y = (x @ [3, -2, 2, 0, 0] + rng.normal(0, 0.7, len(x)) > 1.5).astype(int)
    table = Records.from_rows(columns, np.column_stack([x, y]))
    online = dualquery.online(table, schema=columns, budget=BUDGET, workload="marginals:3", seed=2)
    weights, bias = np.zeros(5), 0.0

    def wrong(*given):
        z = np.array(given[:5]).astype(float)
        return (weights @ z + bias > 0) != (given[5] == "1")

    for _ in range(12):
        signed = [
            online.expect(lambda *g, j=j: wrong(*g) * (g[5] == "1") * (g[j] == "1"), named).value
            - online.expect(lambda *g, j=j: wrong(*g) * (g[5] == "0") * (g[j] == "1"), named).value
            for j in range(5)
        ]
        ones = online.expect(lambda *g: wrong(*g) * (g[5] == "1"), named).value
        bias += 2 * (2 * ones - online.expect(wrong, named).value)
        weights += 2 * np.array(signed)
    accuracy = ((x @ weights + bias > 0) == y).mean()
    assert accuracy > 0.9 > y.mean() + 0.3
    assert online.status().spent <= online.rule.cap


def test_a_mean_of_another_kind_of_release_is_still_a_mean() -> None:
    online = dualquery.online(records(), schema=DOMAIN, budget=BUDGET, release=release_of(), seed=1)
    answer = online.ask("mean of [0.5*4] by region")
    assert answer.value == 0.5
