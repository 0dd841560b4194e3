"""The samplers bit by bit: enclosures, a kernel that agrees with big integers, words at the edge."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dualquery.errors import BudgetError
from dualquery.loops import limited
from dualquery.privacy import noise
from dualquery.privacy.budget import Sensitivity
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.noise import (
    BLOCK_BITS,
    Gaussian,
    Laplace,
    Law,
    decide,
    discrete_gaussian,
    discrete_laplace,
    enclose,
    exp_minus,
    settle,
    thresholds,
)
from dualquery.randomness import SeededEntropy, SystemEntropy

LAWS = [
    Law.gaussian(Fraction(1, 100)),
    Law.gaussian(Fraction(2, 3)),
    Law.gaussian(Fraction(37, 10)),
    Law.gaussian(Fraction(4550)),
    Law.gaussian(Fraction(10**5, 3)),
    Law.gaussian(Fraction(10**9)),
    Law.gaussian(Fraction(2**62)),
    Law.laplace(Fraction(1, 10)),
    Law.laplace(Fraction(7, 3)),
    Law.laplace(Fraction(128)),
    Law.laplace(Fraction(10**4, 3)),
    Law.laplace(Fraction(2**31)),
]


class Scripted:
    """Extra bits that are all zeros or all ones."""

    statement = "scripted"
    private = False

    def __init__(self, ones: bool) -> None:
        self.ones = ones
        self.asked = 0

    def below(self, bound: int, count: int) -> list[int]:
        self.asked += 1
        return [bound - 1 if self.ones else 0] * count

    def words(self, count: int) -> NDArray[np.uint64]:
        raise AssertionError("only single draws are expected")

    def public_generator(self) -> np.random.Generator:
        raise AssertionError("noise needs no public chance")


# Enclosures


@settings(max_examples=100, deadline=None)
@given(st.fractions(min_value=0, max_value=400), st.integers(32, 400))
def test_exponentials_are_enclosed_within_a_few_units(x: Fraction, precision: int) -> None:
    low, high = exp_minus(x, precision)
    with mpmath.workdps(400):
        exact = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** precision
        assert low <= exact <= high
    assert 0 <= high - low <= 3


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("precision", [96, 224])
def test_cumulative_weights_are_enclosed(law: Law, precision: int) -> None:
    enclosure = enclose(law, precision)
    width = 1 << law.place_bits
    every = max(1, len(enclosure.lower) // 100)  # all partial sums are formed, and a hundred compared
    with mpmath.workdps(90):
        linear, square = (mpmath.mpf(f.numerator) / f.denominator for f in (law.linear, law.square))
        ratio, bend = mpmath.exp(-linear * width - square * width**2), mpmath.exp(-2 * square * width**2)
        partial, weight, partials = mpmath.mpf(0), mpmath.mpf(1), []
        while weight > mpmath.mpf(10) ** -85:
            partial += weight
            partials.append(partial)
            weight, ratio = weight * ratio, ratio * bend
        for j in range(0, min(len(enclosure.lower), len(partials)), every):
            exact = partials[j] / partial
            assert mpmath.mpf(enclosure.lower[j]) / enclosure.above <= exact
            assert exact <= mpmath.mpf(enclosure.upper[j]) / enclosure.below
        assert mpmath.mpf(enclosure.upper[-1]) / enclosure.below - 1 < mpmath.mpf(2) ** (40 - precision)
        assert 1 - mpmath.mpf(enclosure.lower[-1]) / enclosure.above < mpmath.mpf(2) ** (40 - precision)


def test_blocks_span_the_law() -> None:
    for law in LAWS:
        blocks = len(thresholds(law).floor)
        assert blocks < 128 * 23  # e^−23 < 2^−32
        width = 1 << law.place_bits
        if width > 1:  # and not fewer than 64 blocks to the scale, so that few words are dropped
            assert law.linear * width * 64 < 1
            assert 2 * law.square * (width * 64) ** 2 < 1


# The kernel against big integers


def values_of(law: Law, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], set[int], set[int]]:
    out = np.full(len(words), np.iinfo(np.int64).min)
    dropped, undecided = decide(law, words, np.arange(len(words)), out)
    return out, set(dropped.tolist()), set(undecided.tolist())


def edge_words(law: Law, count: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Words whose block bits lie on or beside a threshold, and whose chance bits are small."""
    floor = thresholds(law).floor
    block = rng.choice(floor, count) + rng.integers(-2, 3, count)
    block = np.clip(block, 0, 2**BLOCK_BITS - 1).astype(np.uint64)
    rest = rng.integers(0, 2**32, count, dtype=np.uint64) >> rng.integers(0, 12, count, dtype=np.uint64)
    return (block << np.uint64(32)) | rest


@pytest.mark.parametrize("law", LAWS)
def test_kernel_says_what_big_integers_say(law: Law) -> None:
    rng = np.random.default_rng(5)
    words = np.concatenate([rng.integers(0, 2**64, 600, dtype=np.uint64), edge_words(law, 600, rng)])
    out, dropped, undecided = values_of(law, words)
    for position, word in enumerate(words.tolist()):
        if position in undecided:
            continue
        entropy = Scripted(ones=False)
        settled = settle(law, word, entropy)
        assert entropy.asked == 0  # what the kernel decides needs no further bit
        assert (settled is None) == (position in dropped)
        assert settled is None or settled == out[position]


@pytest.mark.parametrize("law", LAWS)
def test_almost_every_word_decides(law: Law) -> None:
    words = SeededEntropy(3).words(200_000)
    _, dropped, undecided = values_of(law, words)
    coarse = law.place_bits > 16  # few chance bits are left in the word
    assert len(undecided) <= (8000 if coarse else 20)
    if law.place_bits > 0:
        assert len(dropped) < 0.02 * len(words)


@pytest.mark.parametrize("law", LAWS)
def test_a_word_on_a_threshold_is_decided_by_the_bits_that_follow(law: Law) -> None:
    """F(j) · 2^32 is never an integer here, so zeros fall below it and ones above."""
    floor = thresholds(law).floor
    for j in range(min(len(floor) - 1, 20)):
        if floor[j + 1] - floor[j] < 2:  # the bracket holds several thresholds
            continue
        word = (int(floor[j]) << 32) | (0x7FFFFFFF >> law.place_bits << 1 + law.place_bits)  # place 0, sign +
        below, above = Scripted(ones=False), Scripted(ones=True)
        assert settle(law, word, below) == j << law.place_bits
        assert settle(law, word, above) == (j + 1) << law.place_bits
        assert below.asked == above.asked == 1


def test_the_far_tail_is_reached() -> None:
    """A word of ones, followed by more ones, means a value far beyond the tables."""
    law = Law.gaussian(Fraction(100))

    class ManyOnes(Scripted):
        def below(self, bound: int, count: int) -> list[int]:
            self.asked += 1
            return [bound - 1 if self.asked <= 4 else 0] * count

    deep = settle(law, (2**64 - 1) & ~1, ManyOnes(ones=True))
    # P(|x| > k) ≈ 2^−(32 + 4·64)
    assert deep is not None
    assert deep == pytest.approx(10 * math.sqrt(2 * math.log(2) * 288), rel=0.02)


def test_negative_zero_is_dropped() -> None:
    law = Law.gaussian(Fraction(5))
    assert settle(law, 1, Scripted(ones=False)) is None
    assert settle(law, 0, Scripted(ones=False)) == 0


# The functions


@pytest.mark.parametrize("count", [0, 1, 7, 3 * noise._BATCH + 11])
def test_a_seed_repeats_the_noise_on_any_number_of_threads(count: int) -> None:
    draws = []
    for number in (1, 3):
        with limited(number):
            entropy = SeededEntropy(11)
            gaussian = discrete_gaussian(count, variance=Fraction(10**5), entropy=entropy)
            laplace = discrete_laplace(count, scale=Fraction(5, 2), entropy=entropy)
            draws.append((gaussian, laplace))
    for one, other in zip(*draws, strict=True):
        assert one.dtype == np.int64
        assert len(one) == count
        np.testing.assert_array_equal(one, other)
    if count > 1:
        other_seed = discrete_gaussian(count, variance=Fraction(10**5), entropy=SeededEntropy(12))
        assert (other_seed != draws[0][0]).any()


@pytest.mark.parametrize("law", LAWS)
def test_few_words_and_many_are_worth_the_same(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed gives the same noise by big integers alone and by compiled loops, and leaves the same bits behind."""
    draws, left, most = [], [], noise.FEW
    for few in (0, most):
        monkeypatch.setattr(noise, "FEW", few)
        entropy = SeededEntropy(5)
        draws.append(np.concatenate([noise._draw(law, most, entropy) for _ in range(100)]))
        left.append(entropy.below(1 << 64, 1))
    np.testing.assert_array_equal(*draws)
    assert left[0] == left[1]


def test_few_draws_need_no_compiled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("tables are built for many draws")

    monkeypatch.setattr(noise, "decide", refuse)
    for entropy in (SystemEntropy(), SeededEntropy(1)):
        assert discrete_gaussian(noise.FEW, variance=Fraction(4), entropy=entropy).shape == (noise.FEW,)
        with pytest.raises(AssertionError, match="many"):
            discrete_laplace(noise.FEW + 1, scale=Fraction(4), entropy=entropy)


def test_system_entropy_few_and_many() -> None:
    for count in (0, 1, 500, 5000):
        assert discrete_gaussian(count, variance=Fraction(9), entropy=SystemEntropy()).shape == (count,)
        assert discrete_laplace(count, scale=Fraction(9), entropy=SystemEntropy()).shape == (count,)


@pytest.mark.parametrize("size", [0, -1])
def test_noise_must_be_positive(size: int) -> None:
    with pytest.raises(BudgetError, match="positive"):
        discrete_gaussian(5, variance=Fraction(size), entropy=SystemEntropy())
    with pytest.raises(BudgetError, match="positive"):
        discrete_laplace(5, scale=Fraction(size), entropy=SystemEntropy())


def test_absurd_noise_is_refused_in_one_sentence() -> None:
    with pytest.raises(BudgetError, match="drowns"):
        discrete_gaussian(5, variance=Fraction(10) ** 30, entropy=SeededEntropy(1))
    with pytest.raises(BudgetError, match="drowns"):
        discrete_laplace(5, scale=Fraction(10) ** 30, entropy=SystemEntropy())


# The laws as objects


def test_a_law_knows_its_price_and_draws_itself() -> None:
    moved = Sensitivity(l1=3, l2_squared=5)
    gaussian, laplace = Gaussian(Fraction(7, 2)), Laplace(Fraction(9, 4))
    assert gaussian.event(moved) == GaussianMeasurement(Fraction(5), Fraction(7, 2))
    assert laplace.event(moved) == LaplaceMeasurement(Fraction(3), Fraction(9, 4))
    np.testing.assert_array_equal(
        gaussian.draw(50, SeededEntropy(4)),
        discrete_gaussian(50, variance=Fraction(7, 2), entropy=SeededEntropy(4)),
    )
    np.testing.assert_array_equal(
        laplace.draw(50, SeededEntropy(4)),
        discrete_laplace(50, scale=Fraction(9, 4), entropy=SeededEntropy(4)),
    )


@pytest.mark.parametrize("law", [Gaussian(Fraction(900)), Laplace(Fraction(30))])
def test_what_a_law_says_about_its_size_is_what_it_draws(law: Gaussian | Laplace) -> None:
    drawn = law.draw(400_000, SeededEntropy(5)).astype(float)
    assert drawn.std() == pytest.approx(law.deviation, rel=0.01)
    assert np.abs(drawn).mean() == pytest.approx(law.mean_size, rel=0.01)
    largest = np.abs(drawn).reshape(1000, 400).max(axis=1)
    assert largest.mean() == pytest.approx(law.size_of_largest(400), rel=0.15)
