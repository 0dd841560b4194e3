"""Drawn frequencies against exact probabilities, and a wrong rate shown to be rejected."""

import numpy as np
import pytest
from scipy.stats import chi2

from dualquery.privacy.selection import Candidates, Rate, Scored, draw
from dualquery.randomness import SeededEntropy, SystemEntropy

DRAWS = 200_000


def p_value(observed, probabilities):
    expected = DRAWS * probabilities
    kept = expected >= 5
    statistic = np.sum((observed[kept] - expected[kept]) ** 2 / expected[kept])
    return chi2.sf(statistic, kept.sum() - 1)


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(7)])
@pytest.mark.parametrize("kind", list(Candidates))
def test_frequencies_follow_the_exponential_mechanism(entropy, kind):
    rng = np.random.default_rng(11)
    queries, rows, repeats, nats = 60, 1000, 10, 0.3 / 1000
    counts = rng.integers(0, rows, queries)
    offsets = rng.integers(0, repeats + 1, queries).astype(np.int32)
    scored = Scored(counts, repeats, rows, offsets, 0, kind)
    drawn = draw(scored, rate=Rate.below(nats, 20_000), draws=DRAWS, entropy=entropy)
    plain = repeats * counts - rows * offsets.astype(np.int64)
    logs = np.concatenate([plain, -plain]) if kind is Candidates.SIGNED else np.abs(plain)
    observed = np.bincount(drawn.queries + queries * drawn.negated, minlength=len(logs))

    def probabilities(rate):
        weights = np.exp(rate * (logs - logs.max()))
        return weights / weights.sum()

    assert p_value(observed, probabilities(nats)) > 1e-12
    assert p_value(observed, probabilities(nats * 1.05)) < 1e-12  # the negative controls
    assert p_value(observed, probabilities(nats * 0.95)) < 1e-12
