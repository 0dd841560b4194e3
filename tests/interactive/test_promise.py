"""Online private multiplicative weights, by `test="sparse-vector"`: what it promises, and that it keeps it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import dualquery
from dualquery import Budget, BudgetError, Neighbours, Online
from dualquery.beliefs.weighted_rows import WholeUniverse
from dualquery.interactive import Fired, MemoryJournal
from dualquery.interactive.answers import Badge
from dualquery.interactive.rule import OnlineRule
from dualquery.queries.families import from_texts
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from experiments.online_streams import ALL_EQUAL, slowest_lesson
from tests.interactive.conftest import BUDGET, DOMAIN, ROWS, records, release_of


def attacked(rows: int, questions: int, seed: int) -> tuple[Online, float]:
    """A table in which all records are equal, as far from uniform as can be, and the largest error of a stream."""
    everybody = Records.from_rows(ALL_EQUAL, np.zeros((rows, 1), np.int64))
    online = dualquery.online(
        everybody, schema=ALL_EQUAL, budget=BUDGET, test="sparse-vector", questions=questions, seed=seed
    )
    return online, max(slowest_lesson(online, questions))


@pytest.mark.parametrize(
    ("rows", "questions", "promised", "seeds"),
    [
        (30_162, 150, 0.4, 2),
        pytest.param(30_162, 700, 0.4, 20, marks=pytest.mark.long),
        pytest.param(200_000, 700, 0.16, 20, marks=pytest.mark.long),
    ],
)
def test_the_promise_holds_against_an_adversary(
    rows: int, questions: int, promised: float, seeds: int
) -> None:
    """All answers within α in 19 of 20 streams, never more than B updates, and the adversary does make many."""
    kept = 0
    for seed in range(seeds):
        online, largest = attacked(rows, questions, seed)
        promise = online.rule.accuracy
        assert promise.error < promised
        assert promise.updates / 3 < online.status().updates <= promise.updates
        kept += largest <= promise.error
        assert online.status().spent <= online.rule.cap
    assert kept >= 0.95 * seeds


def test_the_parameters_are_the_theorems() -> None:
    """B = 2 ln|X|/α², threshold ¾αn, η = 2α; all B epochs and measurements cost the cap, and not much less."""
    for rows in (30_162, 200_000):
        rule = OnlineRule.of(BUDGET, rows=rows, test="sparse-vector", domain=ALL_EQUAL)
        alpha, promise = rule.accuracy.error, rule.accuracy
        assert 0 <= promise.updates - 2 * math.log(1024) / alpha**2 < 1.2
        assert rule.test.threshold == math.floor(0.75 * alpha * rows)
        assert promise.factor == pytest.approx(math.exp(-2 * alpha), rel=1e-12)
        assert 0.999 < promise.updates * rule.price / rule.cap <= 1
        assert rule.bound(rule.test) < alpha
        # Both noises of a test together stay below αn/4 in all questions but for β/2, by the tails of their laws.
        tails = [promise.updates, promise.questions]
        scales = [float(rule.test.threshold_scale), float(rule.test.query_scale)]
        room = alpha * rows / 4 - 2
        assert sum(s * math.log(4 * k / 0.05) for s, k in zip(scales, tails, strict=True)) <= room


def test_a_step_lowers_the_relative_entropy_as_the_theorem_says() -> None:
    """For random distributions and questions that are wrong by g: by η g − η²/8 at the least."""
    rng = np.random.default_rng(0)
    online = dualquery.online(records(), schema=DOMAIN, budget=BUDGET, test="sparse-vector", seed=1)
    universe, eta = online._state.hypothesis, 2 * online.rule.accuracy.error
    assert isinstance(universe, WholeUniverse)
    truth = np.zeros(universe.rows)
    cells = np.ravel_multi_index(records().to_rows().T, DOMAIN.sizes.tolist())
    np.add.at(truth, cells, 1 / ROWS)
    held = truth > 0
    for text in ("region = south", "sex = f & age >= 30", "by age", "!(rare = yes)", "region by sex"):
        question = online._state.reader.read(text)
        believed = universe._weights / universe.total
        apart = question.group.counts(records()) / ROWS - universe.fractions(question)
        cell = int(rng.integers(len(apart)))
        from dualquery.beliefs.weighted_rows import MeasuredQuestion

        exact = tuple(question.group.counts(records()).tolist())
        universe.hear(MeasuredQuestion(question, exact, ROWS, 1, 1, cell))
        after = universe._weights / universe.total
        lowered = float((truth[held] * np.log(after[held] / believed[held])).sum())
        assert lowered >= eta * abs(apart[cell]) - eta**2 / 8 - 1e-9
        assert universe.total == pytest.approx(2**52, rel=1e-9)


def test_more_records_and_a_wider_tolerance_change_the_promise() -> None:
    def promise(rows: int, **more: float):
        return OnlineRule.of(BUDGET, rows=rows, test="sparse-vector", domain=DOMAIN, **more).accuracy

    assert promise(4 * ROWS).error < 0.55 * promise(ROWS).error
    wide = promise(4 * ROWS, tolerance=0.5)
    assert wide.error == 0.5
    assert wide.updates < promise(4 * ROWS).updates
    assert promise(ROWS, tolerance=0.001) == promise(ROWS)  # what cannot be had is not promised
    assert promise(ROWS, questions=50).error < promise(ROWS).error


def truth(text: str) -> float:
    return float(from_texts(DOMAIN, [text]).counts(records())[0]) / ROWS


def test_it_is_asked_like_any_table_and_says_what_it_promises() -> None:
    online = dualquery.online(records(), schema=DOMAIN, budget=BUDGET, test="sparse-vector", seed=3)
    promise = online.rule.accuracy
    said = json.loads(json.dumps(online.certificate()))
    assert said["accuracy"] == {**vars(promise), "words": promise.words()}
    assert said["test"]["name"] == "sparse-vector"
    assert said["release_units"] == 0
    status = online.status()
    assert status.accuracy == promise.words()
    assert status.fires_left >= promise.updates
    assert online.release is None
    texts = ("rare = no", "rare = yes", "sex = m", "age >= 50", "region = north & sex = f")
    answers = [online.ask(text) for text in texts]
    for text, answer in zip(texts, answers, strict=True):
        assert abs(answer.value - truth(text)) <= promise.error
        assert answer.badge in (Badge.NOT_CONTRADICTED, Badge.MEASURED)
    assert answers[0].badge is Badge.MEASURED  # 98% where half is believed
    table = online.ask("region by rare")
    exact = [truth(f"region = {region} & rare = {rare}") for region, rare in table.labels]
    assert np.abs(np.array(table.values) - exact).max() <= promise.error
    assert online.ask("sex = m", tolerance=1.0) == online.ask("sex = m")
    with pytest.raises(dualquery.QueryError, match="tolerance"):
        online.ask("sex = m", tolerance=0.9 * online.rule.bound(online.rule.test))
    assert online.status().tolerances == (online.rule.bound(online.rule.test),)


def test_it_goes_on_from_its_journal_to_the_byte() -> None:
    journal = MemoryJournal()

    def again() -> Online:
        return dualquery.online(
            records(), schema=DOMAIN, budget=BUDGET, test="sparse-vector", journal=journal, seed=3
        )

    first = again()
    for text in ("rare = yes", "by region", "sex = m", "age < 20 & rare = no"):
        first.ask(text)
    assert any(isinstance(entry, Fired) for entry in journal.entries())
    first.close()
    second = again()
    assert second.fingerprint() == first.fingerprint()
    assert second.status().updates == first.status().updates > 0
    assert WholeUniverse(DOMAIN, factor=0.5).fingerprint() != first.fingerprint()


def test_what_it_cannot_promise_is_refused_in_one_sentence_and_nothing_is_written() -> None:
    wide = Domain(tuple(Categorical(f"a{j}", ("0", "1", "2", "3")) for j in range(12)))
    few = Records.from_rows(wide, np.zeros((1000, 12), np.int64))
    small = records(rows=200)
    by_number = Budget(1, 1e-6, neighbours=Neighbours.ADD_REMOVE)
    for table, schema, budget, more, sentence in (
        (
            few,
            wide,
            BUDGET,
            {},
            "each of the 1.68e\\+7 records that the schema allows, and 4,194,304 is the most",
        ),
        (small, DOMAIN, BUDGET, {}, "can promise nothing of 200 records, 144 values and this budget"),
        (records(), DOMAIN, BUDGET, {"release": release_of()}, "starts from a uniform hypothesis"),
        (records(), DOMAIN, by_number, {}, "say how many there are"),
        (records(), DOMAIN, BUDGET, {"share": 0.5}, "no release is made first here"),
    ):
        journal = MemoryJournal()
        with pytest.raises(BudgetError, match=sentence):
            dualquery.online(
                table, schema=schema, budget=budget, test="sparse-vector", journal=journal, **more
            )
        assert journal.entries() == ()
    said = dualquery.online(records(), schema=DOMAIN, budget=by_number, test="sparse-vector", records=20_000)
    assert said.ask("sex = m").bound < said.rule.accuracy.error


def test_nothing_is_for_sale_where_the_whole_budget_stands_behind_the_promise() -> None:
    online = dualquery.online(records(), schema=DOMAIN, budget=BUDGET, test="sparse-vector", seed=3)
    before = len(list(online.journal.entries()))
    for call in (online.buy, online.quote):
        with pytest.raises(BudgetError, match="nothing is for sale here"):
            call("sex = m", error=0.1)
    assert len(list(online.journal.entries())) == before
    assert online.quote("sex = m").most == online.price
