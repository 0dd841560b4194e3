"""A card draws what the processor draws from the same uniform integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dualquery.privacy.cuda
from dualquery.card import CardError
from dualquery.privacy.cuda import CardAnswers, CardWeights
from dualquery.privacy.selection import CHUNK, Answers, Candidates, Rate, Scored, draw, weighing_with
from dualquery.queries.random_families import random_literals
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain


def some_scores(number: int, spread: int, candidates: Candidates, seed: int = 0) -> Scored:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, spread, number)
    offsets = rng.integers(0, 20, number).astype(np.int32)
    return Scored(counts, 20, spread, offsets, int(rng.integers(-3, 4)), candidates)


def broken(*given: object) -> None:
    raise CardError("the GPU gave up")


@pytest.mark.usefixtures("any_card")
@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize("number", [1, 255, CHUNK, 3 * CHUNK + 17])
@pytest.mark.parametrize(
    "bits", [0.0, 1e-6, 0.05, 40.0]
)  # of the largest score: one band, or all that there may be
def test_the_same_candidates_are_drawn(candidates: Candidates, number: int, bits: float) -> None:
    scored = some_scores(number, 1000, candidates, seed=number)
    rate = Rate.below(bits / 100, 20_000)
    expected = draw(scored, rate=rate, draws=300, entropy=SeededEntropy(1))
    on_card = CardWeights()
    with weighing_with(on_card):
        found = draw(scored, rate=rate, draws=300, entropy=SeededEntropy(1))
    assert not on_card.said
    np.testing.assert_array_equal(found.queries, expected.queries)
    np.testing.assert_array_equal(found.negated, expected.negated)


@pytest.mark.usefixtures("any_card")
def test_counts_stay_on_the_card_and_offsets_do_not() -> None:
    scored = some_scores(5000, 1000, Candidates.SIGNED)
    later = Scored(scored.counts, 30, 1000, scored.offsets + 3, scored.surplus, Candidates.SIGNED)
    rate, on_card = Rate.below(1e-3, 40_000), CardWeights()
    for each in (scored, later, scored):
        expected = draw(each, rate=rate, draws=50, entropy=SeededEntropy(2))
        with weighing_with(on_card):
            found = draw(each, rate=rate, draws=50, entropy=SeededEntropy(2))
        np.testing.assert_array_equal(found.queries, expected.queries)


@pytest.mark.usefixtures("any_card")
def test_a_card_that_fails_says_so_and_the_processor_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    scored, rate, on_card = some_scores(3000, 100, Candidates.SIGNED), Rate.below(1e-3, 4000), CardWeights()
    expected = draw(scored, rate=rate, draws=20, entropy=SeededEntropy(3))

    monkeypatch.setattr(dualquery.privacy.cuda, "kernels", broken)
    with weighing_with(on_card):
        found = draw(scored, rate=rate, draws=20, entropy=SeededEntropy(3))
    np.testing.assert_array_equal(found.queries, expected.queries)
    assert on_card.said == ["the GPU gave up; weights were added up on the processor"]


@pytest.mark.usefixtures("any_card")
@pytest.mark.parametrize("fails", [False, True])
def test_answers_of_replies_are_kept_on_the_card(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(2 + j % 4)))) for j in range(7)))
    literals = random_literals(domain, 3, 700, seed=1).groups[0]
    flipped = replace(literals, complement=np.arange(700) % 3 == 0)
    workload, rng, on_card = (
        Workload(domain, (literals, flipped), "both"),
        np.random.default_rng(0),
        CardWeights(),
    )
    found, expected = on_card.answers(workload), Answers(workload)
    assert isinstance(found, CardAnswers)
    for number in range(6):
        reply = rng.integers(0, domain.sizes).astype(np.int32)
        if fails and number == 4:
            monkeypatch.setattr(dualquery.privacy.cuda, "kernels", broken)
        found.add(reply)
        expected.add(reply)
        some = rng.integers(0, workload.size, 50)
        np.testing.assert_array_equal(found.of(some), expected.of(some))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    counts, rate = rng.integers(0, 1000, workload.size), Rate.below(1e-3, 40_000)
    both = [Scored(counts, 6, 1000, answers, 0, Candidates.SIGNED) for answers in (expected, found)]
    drawn = [draw(both[0], rate=rate, draws=40, entropy=SeededEntropy(4))]
    with weighing_with(on_card):
        drawn.append(draw(both[1], rate=rate, draws=40, entropy=SeededEntropy(4)))
    np.testing.assert_array_equal(drawn[0].queries, drawn[1].queries)
    assert bool(on_card.said) == fails
