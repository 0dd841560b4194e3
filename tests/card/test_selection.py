"""A card draws what the processor draws from the same uniform integers."""

from __future__ import annotations

import numpy as np
import pytest

import dualquery.privacy.cuda
from dualquery.loops import CardError
from dualquery.privacy.cuda import CardWeights
from dualquery.privacy.selection import CHUNK, Candidates, Rate, Scored, draw, weighing_with
from dualquery.randomness import SeededEntropy


def some_scores(number: int, spread: int, candidates: Candidates, seed: int = 0) -> Scored:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, spread, number)
    offsets = rng.integers(0, 20, number).astype(np.int32)
    return Scored(counts, 20, spread, offsets, int(rng.integers(-3, 4)), candidates)


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

    def broken(*given: object) -> None:
        raise CardError("the GPU gave up")

    monkeypatch.setattr(dualquery.privacy.cuda, "kernels", broken)
    with weighing_with(on_card):
        found = draw(scored, rate=rate, draws=20, entropy=SeededEntropy(3))
    np.testing.assert_array_equal(found.queries, expected.queries)
    assert on_card.said == ["the GPU gave up; weights were added up on the processor"]
