"""Uniform integers of any size, from the system or from a seed."""

import numpy as np
import pytest
from scipy.stats import chisquare

from dualquery.randomness import SeededEntropy, SystemEntropy, entropy_from


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(1)])
@pytest.mark.parametrize("bound", [1, 2, 3, 7, 256, 257])
def test_integers_are_uniform_below_the_bound(entropy, bound):
    drawn = np.array(entropy.below(bound, 20_000))
    assert drawn.min() >= 0
    assert drawn.max() < bound
    if bound > 1:
        assert chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-12


def test_big_bounds_reach_their_top():
    bound = 3 << 500
    drawn = SystemEntropy().below(bound, 2000)
    assert all(0 <= x < bound for x in drawn)
    assert max(drawn) > bound * 95 // 100


def test_a_seed_repeats_and_confesses():
    first, second = SeededEntropy(5), SeededEntropy(5)
    assert first.below(10**30, 5) == second.below(10**30, 5)
    assert np.array_equal(first.words(10), second.words(10))
    assert not first.private
    assert "not private" in first.statement
    assert entropy_from(None).private
    assert not np.array_equal(SystemEntropy().words(10), SystemEntropy().words(10))
