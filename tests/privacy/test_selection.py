"""The exact exponential mechanism: weights, rates, and where they must not break."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.privacy import selection
from dualquery.privacy.selection import CHUNK, SLACK, Candidates, Rate, Scored, draw
from dualquery.randomness import SeededEntropy


class Scripted:
    """Plays given fractions of the total, so that a test can walk through every candidate."""

    def __init__(self, share):
        self.share = share
        self.total = None

    def below(self, bound, count):
        self.total = bound
        return [min(bound - 1, int(bound * Fraction(self.share)))] * count


def raised(scores, rate):
    """Log-weights in units of 2^-shift bits, none farther than B bits below the largest."""
    logs = [c * rate.multiplier for c in scores]
    floor = max(logs) - (selection.most_bits(len(scores)) << rate.shift)
    return [max(x, floor) for x in logs]


def exact_weights(scores, rate):
    """Integer weights from the definition, with big rational arithmetic, over a common power of two."""
    logs = raised(scores, rate)
    exponents = [x >> rate.shift for x in logs]
    mantissas = [selection.mantissa(np.int64(x), rate.shift, selection.POWERS) for x in logs]
    least = min(exponents)
    return [int(m) << (e - least) for m, e in zip(mantissas, exponents, strict=True)]


@given(nats=st.floats(1e-12, 10), largest=st.integers(1, 10**12))
def test_a_rate_never_exceeds_what_was_asked(nats, largest):
    rate = Rate.below(nats, largest)
    assert rate.nats <= Fraction(nats)
    assert largest * rate.multiplier < 1 << 62
    assert rate.multiplier == 0 or float(rate.nats) >= nats * (1 - 1e-6) or rate.multiplier < 2**20


@given(fraction=st.integers(0, 2**52 - 1))
def test_the_mantissa_is_within_kappa(fraction):
    mantissa = int(selection.mantissa(np.int64(fraction), 52, selection.POWERS))
    ideal = Fraction(2 ** (fraction / 2**52))  # correct to about 2^-52
    assert 1 << 40 <= mantissa <= 1 << 41
    assert abs(math.log(mantissa / float(ideal * (1 << 40)))) <= 2**-38


def test_four_kappa_is_the_slack():
    assert Fraction(4, 2**38) == SLACK


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    repeats=st.integers(0, 6),
    share=st.fractions(0, 1),
    signed=st.booleans(),
    surplus=st.integers(-4, 4),
    seed=st.integers(0, 1000),
)
def test_every_point_below_the_total_finds_its_candidate(counts, repeats, share, signed, surplus, seed):
    """The drawn candidate is the one whose stretch of the big integer holds the drawn point."""
    rng = np.random.default_rng(seed)
    offsets = rng.integers(0, 5, len(counts)).astype(np.int32)
    kind = Candidates.SIGNED if signed else Candidates.ABSOLUTE
    scored = Scored(np.array(counts), repeats, 20, offsets, surplus, kind)
    rate = Rate.below(0.7, 10_000)
    entropy = Scripted(share)
    drawn = draw(scored, rate=rate, draws=1, entropy=entropy)
    plain = [repeats * c - 20 * int(o) for c, o in zip(counts, offsets, strict=True)]
    if signed:
        candidates = [(q, side, c) for q, s in enumerate(plain) for side, c in ((0, s), (1, surplus - s))]
    else:
        candidates = [(q, 0, abs(s)) for q, s in enumerate(plain)]
    weights = exact_weights([c for _, _, c in candidates], rate)
    assert entropy.total is not None
    assert Fraction(entropy.total, sum(weights)).numerator.bit_count() == 1  # equal up to a power of two
    # Walk the same order: bands from low to high, candidates in order within a band.
    exponents = [x >> rate.shift for x in raised([c for _, _, c in candidates], rate)]
    drawn_point = min(entropy.total - 1, int(entropy.total * Fraction(share)))
    point = Fraction(drawn_point, entropy.total) * sum(weights)
    for i in sorted(range(len(weights)), key=lambda i: exponents[i]):
        if point < weights[i]:
            break
        point -= weights[i]
    assert (drawn.queries[0], bool(drawn.negated[0])) == (candidates[i][0], bool(candidates[i][1]))


def test_a_far_better_candidate_never_underflows_the_rest():
    """Scores thousands of bits apart: the best is drawn always, and nothing overflows or divides by zero."""
    counts = np.array([0, 0, 10**9, 3])
    scored = Scored(counts, 1, 1, np.zeros(4, np.int64), 0, Candidates.ABSOLUTE)
    rate = Rate.below(1e-5, 10**9)
    drawn = draw(scored, rate=rate, draws=50, entropy=SeededEntropy(1))
    assert np.all(drawn.queries == 2)


def test_draws_cross_chunks():
    queries = 3 * CHUNK + 5
    zeros = np.zeros(queries, np.int64)
    scored = Scored(zeros, 0, 1, zeros.astype(np.int32), 0, Candidates.SIGNED)
    drawn = draw(scored, rate=Rate.below(1, 10), draws=20_000, entropy=SeededEntropy(2))
    assert drawn.queries.min() < CHUNK
    assert drawn.queries.max() > 3 * CHUNK
    assert abs(drawn.negated.mean() - 0.5) < 0.02


def test_more_weights_than_a_word_can_sum(monkeypatch):
    """With band totals beyond 64 bits the search goes on in big integers."""
    sums = np.full((40, 1), 2**60, np.uint64)
    bands, positions = selection._draw_bands(sums, 200, SeededEntropy(3))
    assert positions.dtype == object
    chunk, residue = selection._find_chunks(sums, bands, positions)
    assert set(chunk) <= set(range(40))
    assert len(set(chunk)) > 30
    assert all(int(c) * 2**60 + int(r) == p for c, r, p in zip(chunk, residue, positions, strict=True))


def test_scores_beyond_the_bound_are_clamped_to_it():
    """A declared number of records that is far too small must not make the arithmetic wrap around."""
    rate = Rate.below(0.5, 100)
    huge = np.array([10**12, 10**12 + 1, 0])
    for kind in Candidates:
        scored = Scored(huge, 1000, 1, np.zeros(3, np.int64), 10**15, kind)
        drawn = draw(scored, rate=rate, draws=200, entropy=SeededEntropy(4))
        at_bound = [0, 1] if kind is Candidates.ABSOLUTE else [0, 1, 2]  # the negation of the last one
        assert set(drawn.queries.tolist()) == set(at_bound)
