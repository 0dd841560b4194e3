"""Weighted rows: they answer as their weights say, and move by the formula, the same to the byte every time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dualquery.beliefs.weighted_rows import (
    SUPPORT,
    MeasuredQuestion,
    WeightedRows,
    changed_to_hold,
    changed_to_lie_in,
)
from dualquery.queries.question import Question, QuestionReader
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records, as_lists

DOMAIN = Domain(
    (Categorical("a", ("p", "q", "r", "s")), Categorical("b", ("x", "y")), Items("i", 3, first=0))
)
ROWS = 10_000


def public(rows: int = 2000, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, DOMAIN.sizes, (rows, DOMAIN.width))
    codes[:, 0] = np.where(codes[:, 0] == 3, 0, codes[:, 0])  # nobody has a = s
    return Records.from_rows(DOMAIN, codes)


def read(text: str) -> Question:
    return QuestionReader(DOMAIN).read(text)


def measured(text: str, *noisy: int, threshold: int = 400, deviation: int = 40) -> MeasuredQuestion:
    return MeasuredQuestion(read(text), noisy, ROWS, Fraction(deviation**2), threshold)


def test_the_start_is_the_release() -> None:
    belief, records = WeightedRows(public()), public()
    for text in ("a = p", "b = y & i[1]", "parity(b, i[0])", "!(a = q & b = x)"):
        question = read(text)
        assert belief.fractions(question).tolist() == (question.group.counts(records) / 2000).tolist()
    assert belief.fractions(read("a by b")).sum() == 1


@pytest.mark.parametrize("off", [700, -700, 1500, 2400])
def test_a_surprise_moves_half_the_way_or_to_the_threshold(off: int) -> None:
    """target = h + max(½, 1 − θ/|gap|)·gap/n, and the inside and the outside keep their shapes."""
    belief, question = WeightedRows(public()), read("a = p & b = y")
    before, inside = (
        float(belief.fractions(question)[0]),
        float(belief.fractions(read("a = p & b = y & i[2]"))[0]),
    )
    noisy = round(ROWS * before) + off
    gap = noisy - ROWS * before
    belief.hear(measured("a = p & b = y", noisy))
    target = before + max(0.5, 1 - 400 / abs(gap)) * gap / ROWS
    assert belief.fractions(question)[0] == pytest.approx(target, abs=1e-6)
    after = float(belief.fractions(read("a = p & b = y & i[2]"))[0])
    assert after / target == pytest.approx(inside / before, rel=1e-5)


def test_what_may_be_noise_moves_nothing() -> None:
    belief = WeightedRows(public())
    print_before = belief.fingerprint()
    count = int(ROWS * belief.fractions(read("a = p"))[0])
    belief.hear(measured("a = p", count + 119))
    assert belief.fingerprint() == print_before
    belief.hear(measured("a = p", count + 122))
    assert belief.fingerprint() != print_before


def test_a_question_without_rows_is_given_some() -> None:
    belief = WeightedRows(public())
    assert belief.fractions(read("a = s"))[0] == 0
    belief.hear(measured("a = s", 2000))
    assert belief.rows == 2000 + SUPPORT
    assert belief.fractions(read("a = s"))[0] == pytest.approx(0.16, abs=0.01)


@pytest.mark.parametrize("noisy", [-5000, 50_000])
def test_measurements_beyond_all_and_nothing_are_clamped(noisy: int) -> None:
    belief = WeightedRows(public())
    for _ in range(8):
        belief.hear(measured("a = p", noisy, threshold=0))
    value = float(belief.fractions(read("a = p"))[0])
    assert value == pytest.approx(0.0 if noisy < 0 else 1.0, abs=0.02)
    assert belief.fractions(read("by a")).sum() == pytest.approx(1)


def test_a_table_moves_cell_by_cell() -> None:
    belief = WeightedRows(public())
    table = read("a by b")
    before = belief.fractions(table)
    truth = np.array([0.05, 0.2, 0.125, 0.125, 0.125, 0.125, 0.15, 0.1])
    for _ in range(12):
        belief.hear(
            MeasuredQuestion(table, tuple((truth * ROWS).astype(int).tolist()), ROWS, Fraction(900), 100)
        )
    after = belief.fractions(table)
    assert np.abs(after - truth).max() < 0.012
    assert np.abs(before - truth).max() > 0.1
    assert after.sum() == pytest.approx(1)


def test_the_same_measurements_make_the_same_belief() -> None:
    heard = [measured("a = p", 5000), measured("a = s & b = x", 900), measured("b = y | i[0]", 2000)]
    heard.append(
        MeasuredQuestion(
            read("a by i[1]"), (100, 4000, 900, 900, 900, 900, 1500, 800), ROWS, Fraction(100), 50
        )
    )
    prints = set()
    for _ in range(2):
        belief = WeightedRows(public())
        for each in heard:
            belief.hear(each)
        prints.add(belief.fingerprint())
    assert len(prints) == 1
    # Sums of whole numbers and one rounding a weight: the same on any machine.
    assert prints == {"dcc542399bfd6742935cbfce59c42e63c18c4dbc4daa8dadd31d0a2fa682acc7"}


@pytest.mark.parametrize(
    "text", ["a in {q, s} & b = y", "!(a = p & b = x)", "parity(b, i[0], i[2])", "i[1] | a = p"]
)
@pytest.mark.parametrize("holds", [True, False])
def test_rows_are_changed_to_hold_and_otherwise_kept(text: str, holds: bool) -> None:
    rows, query = public().to_rows(), read(text).query
    assert query is not None
    changed = changed_to_hold(rows, query, DOMAIN, holds=holds)
    assert all(query.holds(row) == holds for row in changed.tolist())
    as_it_was = np.array([query.holds(row) == holds for row in rows.tolist()])
    assert (changed[as_it_was] == rows[as_it_was]).all()


def test_rows_are_moved_into_cells() -> None:
    cells = np.array([0, 7, 3])
    changed = changed_to_lie_in(public().to_rows()[:3], read("a by b"), cells)
    assert (changed[:, 0] * 2 + changed[:, 1]).tolist() == cells.tolist()


@pytest.mark.parametrize("sparse", [False, True])
def test_some_rows_and_more_rows(sparse: bool) -> None:
    records = public(130)
    if sparse:
        *columns, items = records.columns
        records = Records(DOMAIN, 130, (*columns, as_lists(items, 130)))
    places = np.array([5, 0, 129, 5])
    assert (records.take(places).to_rows() == public(130).to_rows()[places]).all()
    longer = records.with_more(records.take(places))
    assert (longer.to_rows() == np.vstack([public(130).to_rows(), public(130).to_rows()[places]])).all()
