"""The samplers against exact probabilities and against OpenDP: the true scale passes, ±5% is rejected."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray
from scipy import stats

from dualquery.privacy.noise import FEW, Law, discrete_gaussian, discrete_laplace, settle, thresholds
from dualquery.randomness import SeededEntropy, SystemEntropy

PASS = 1e-20  # a right sampler fails with this probability; a scale 5% off must fail
DRAWS = 400_000
MANY = 2_000_000  # beside the slower sampler's 10⁵, so that its own chance is all that matters

Draws = NDArray[np.int64]
Probabilities = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def gaussian_weights(variance: float) -> Probabilities:
    return lambda x: np.exp(-(x**2) / (2 * variance))


def laplace_weights(scale: float) -> Probabilities:
    return lambda x: np.exp(-np.abs(x) / scale)


def goodness_of_fit(draws: Draws, weights: Probabilities, reach: int) -> float:
    """The p-value of Pearson's statistic, neighbouring integers joined to a few thousand groups at most."""
    support = np.arange(-reach, reach + 1)
    probability = weights(support.astype(np.float64))
    probability /= probability.sum()
    assert np.abs(draws).max() <= reach
    observed = np.bincount(draws + reach, minlength=len(support))
    share = max(20 / len(draws), 1 / 1000)
    group = np.minimum((np.cumsum(probability) - probability / 2) // share, int(1 / share) - 1).astype(int)
    expected = np.bincount(group, probability) * len(draws)
    seen = np.bincount(group, observed, minlength=len(expected))
    full = expected > 5
    expected = np.append(expected[full], expected[~full].sum() + 1e-9)
    seen = np.append(seen[full], seen[~full].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1)).sum()
    return float(stats.chi2.sf(statistic, full.sum() - 1))


@pytest.mark.parametrize(
    "variance",
    [Fraction(1, 4), Fraction(1), Fraction(22, 7), Fraction(500), Fraction(16384), Fraction(123_457)],
)
def test_discrete_gaussian_has_its_probabilities(variance: Fraction) -> None:
    draws = discrete_gaussian(DRAWS, variance=variance, entropy=SystemEntropy())
    sigma = float(variance) ** 0.5
    reach = int(12 * sigma) + 12
    assert goodness_of_fit(draws, gaussian_weights(float(variance)), reach) > PASS
    for wrong in (0.95, 1.05):
        assert goodness_of_fit(draws, gaussian_weights((wrong * sigma) ** 2), reach) < PASS


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(1), Fraction(37, 5), Fraction(128), Fraction(1000)]
)
def test_discrete_laplace_has_its_probabilities(scale: Fraction) -> None:
    draws = discrete_laplace(DRAWS, scale=scale, entropy=SystemEntropy())
    reach = int(50 * scale) + 50
    assert goodness_of_fit(draws, laplace_weights(float(scale)), reach) > PASS
    for wrong in (0.95, 1.05):
        assert goodness_of_fit(draws, laplace_weights(wrong * float(scale)), reach) < PASS


def test_low_bits_are_as_they_should_be() -> None:
    """σ = 10,000: the place within a block of 128 is uniform to the eye; a skewed place would not be."""
    draws = discrete_gaussian(DRAWS, variance=Fraction(10**8), entropy=SystemEntropy())
    low = np.bincount(draws % 128, minlength=128)
    assert stats.chisquare(low).pvalue > PASS
    assert stats.chisquare(np.bincount((draws // 2 * 2) % 128, minlength=128)).pvalue < PASS


def two_samples(one: Draws, other: Draws, bins: int = 20) -> float:
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0, 1, bins + 1)).astype(np.int64))
    table = [np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1) for draws in (one, other)]
    used = np.array(table)[:, np.sum(table, axis=0) > 0]
    return float(stats.chi2_contingency(used).pvalue)


@pytest.mark.parametrize("sigma", [2.0, 300.0])
def test_discrete_gaussian_against_opendp(sigma: float) -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    theirs = np.array(dp.m.make_gaussian(*space, scale=sigma)([0] * 80_000))
    ours = discrete_gaussian(MANY, variance=Fraction(sigma) ** 2, entropy=SystemEntropy())
    wrong = discrete_gaussian(
        DRAWS, variance=(Fraction(sigma) * Fraction(21, 20)) ** 2, entropy=SystemEntropy()
    )
    assert two_samples(ours, theirs) > PASS
    assert two_samples(wrong, theirs) < PASS


@pytest.mark.parametrize("scale", [2.0, 300.0])
def test_discrete_laplace_against_opendp(scale: float) -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    theirs = np.array(dp.m.make_laplace(*space, scale=scale)([0] * 150_000))
    ours = discrete_laplace(MANY, scale=Fraction(scale), entropy=SystemEntropy())
    wrong = discrete_laplace(MANY, scale=Fraction(scale) * Fraction(21, 20), entropy=SystemEntropy())
    assert two_samples(np.abs(ours), np.abs(theirs)) > PASS
    assert two_samples(np.abs(wrong), np.abs(theirs)) < PASS
    assert two_samples(ours, theirs) > PASS


def few_at_a_time(draw: Callable[..., Draws], **law: Fraction) -> Draws:
    """40,000 draws, so few in each call that no compiled loop is called."""
    return np.concatenate([draw(FEW, entropy=SystemEntropy(), **law) for _ in range(40_000 // FEW)])


def test_few_draws_come_from_the_same_law() -> None:
    draws = few_at_a_time(discrete_gaussian, variance=Fraction(50))
    assert goodness_of_fit(draws, gaussian_weights(50.0), 100) > PASS
    assert goodness_of_fit(draws, gaussian_weights(50.0 * 1.15**2), 100) < PASS
    draws = few_at_a_time(discrete_laplace, scale=Fraction(7, 2))
    assert goodness_of_fit(draws, laplace_weights(3.5), 200) > PASS
    assert goodness_of_fit(draws, laplace_weights(3.5 * 1.15), 200) < PASS


def test_few_draws_against_opendp() -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    theirs = np.array(dp.m.make_gaussian(*space, scale=300.0)([0] * 80_000))
    assert two_samples(few_at_a_time(discrete_gaussian, variance=Fraction(300**2)), theirs) > PASS
    assert two_samples(few_at_a_time(discrete_gaussian, variance=Fraction(345**2)), theirs) < PASS


def test_a_word_on_a_threshold_falls_as_often_as_its_fraction_says() -> None:
    """The slow path alone: the bits after the word decide between neighbours with the chance left over."""
    variance = Fraction(50)
    law = Law.gaussian(variance)
    weights = np.exp(-(np.arange(200.0) ** 2) / 100)
    cumulative = np.cumsum(weights) / weights.sum() * 2**32
    floor = thresholds(law).floor
    entropy = SeededEntropy(2)
    for j in range(3):
        word = (int(floor[j]) << 32) | 0xFFFFFFFE
        low = sum(settle(law, word, entropy) == j for _ in range(4000))
        fraction = cumulative[j] - floor[j]  # 32 bits of a double's 53 are spent: good to 10⁻⁶
        assert stats.binomtest(low, 4000, float(fraction)).pvalue > PASS
        assert stats.binomtest(low, 4000, float((fraction + 0.25) % 1)).pvalue < PASS
