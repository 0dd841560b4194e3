"""Draws from a seed, written down once: the sampler is the same function on every machine.

A change here changes what a seed means, and must be meant.
"""

import hashlib

import numpy as np

from dualquery.privacy import selection
from dualquery.privacy.selection import Candidates, Rate, Scored, draw
from dualquery.randomness import SeededEntropy


def test_the_table_of_powers():
    digest = hashlib.sha256(selection.POWERS.astype("<f8").tobytes()).hexdigest()
    assert digest == "64225751067bd0cef5da5e73ce631c3ab229a5775a0ccec2e4b7587e2d25e5c7"
    assert np.allclose(selection.POWERS, 2 ** (np.arange(2048) / 2048), rtol=1e-15, atol=0)


def test_draws_from_a_seed():
    counts = (np.arange(20_000) * 7919) % 1000
    offsets = ((np.arange(20_000) * 104_729) % 11).astype(np.int32)
    scored = Scored(counts, 10, 1000, offsets, 0, Candidates.SIGNED)
    rate = Rate.below(0.5 / 1000, 40_000)
    drawn = draw(scored, rate=rate, draws=8, entropy=SeededEntropy(2026))
    assert drawn.queries.tolist() == [4330, 276, 15610, 4300, 8926, 154, 16819, 17283]
    assert drawn.negated.tolist() == [True, True, True, False, False, False, False, True]
