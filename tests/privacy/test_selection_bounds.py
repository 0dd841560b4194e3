"""Selection is bounded by public numbers: memory, time, 64-bit arithmetic. And that costs no privacy."""

from __future__ import annotations

import math
import tracemalloc
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy import selection
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.ledger import Price
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.scores import (
    FINE,
    MOST_PUBLIC_ROWS,
    MOST_REPEATS,
    MOST_SCORE,
    SignedErrors,
    TableErrors,
    rate_within,
)
from dualquery.privacy.selection import CHUNK, SLACK, Candidates, Rate, Scored, draw, mantissa, most_bits
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain

DOMAIN = Domain((Categorical("a", ("x", "y")), Categorical("b", ("x", "y", "z"))))
TABLES = Tables(DOMAIN, ((0,), (1,), (0, 1)))
WORKLOAD = Workload(DOMAIN, (TABLES,), "tables")


# ── The reference: weights by big integers, from the definition ─────────────────────────────────────────────────


def candidate_scores(scored: Scored, rate: Rate) -> list[int]:
    """The scores of all candidates in Python integers: query, negation, query, … where they are signed."""
    plain = [
        scored.repeats * int(c) - scored.scale * int(o)
        for c, o in zip(scored.counts, scored.offsets, strict=True)
    ]
    if scored.candidates is Candidates.ABSOLUTE:
        every = [abs(c) for c in plain]
    else:
        every = [s for c in plain for s in (c, scored.surplus - c)]
    return [max(-rate.largest, min(rate.largest, c)) for c in every]


def log_weights(scores: list[int], rate: Rate, *, raised: bool) -> list[int]:
    """x_i, or y_i, in units of 2^-shift bits."""
    logs = [c * rate.multiplier for c in scores]
    floor = max(logs) - (most_bits(len(logs)) << rate.shift)
    return [max(x, floor) for x in logs] if raised else logs


def weights(logs: list[int], rate: Rate) -> list[int]:
    """Integer weights up to a common power of two."""
    least = min(logs) >> rate.shift
    parts = [int(mantissa(np.int64(x), rate.shift, selection.POWERS)) for x in logs]
    return [m << ((x >> rate.shift) - least) for m, x in zip(parts, logs, strict=True)]


class Points:
    """Entropy that plays given points below the total."""

    def __init__(self, points: list[int]) -> None:
        self.points = points
        self.total = 0

    def below(self, bound: int, count: int) -> list[int]:
        self.total = bound
        assert len(self.points) == count
        return [min(p, bound - 1) for p in self.points]


def drawn_at(scored: Scored, rate: Rate, points: list[int]) -> tuple[int, list[int]]:
    """The total, and the candidate at each point of the joined sum."""
    entropy = Points(points)
    got = draw(scored, rate=rate, draws=len(points), entropy=entropy)  # type: ignore[arg-type]
    step = 2 if scored.candidates is Candidates.SIGNED else 1
    return entropy.total, (step * got.queries + got.negated).tolist()


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 3000), min_size=1, max_size=7),
    signed=st.booleans(),
    surplus=st.integers(-50, 50),
    nats=st.sampled_from([0.001, 0.05, 0.7, 20.0]),
)
def test_probabilities_are_those_of_the_reference(
    counts: list[int], signed: bool, surplus: int, nats: float
) -> None:
    """Exact: every stretch of the joined sum begins and ends where big integers say, for any spread."""
    kind = Candidates.SIGNED if signed else Candidates.ABSOLUTE
    scored = Scored(np.array(counts), 1, 1, np.full(len(counts), 700), surplus, kind)
    rate = Rate.below(nats, 10_000)
    logs = log_weights(candidate_scores(scored, rate), rate, raised=True)
    expected = weights(logs, rate)
    order = sorted(range(len(logs)), key=lambda i: (logs[i] >> rate.shift, i))
    starts, at = {}, 0
    for i in order:
        starts[i] = at
        at += expected[i]
    points = [p for i in order for p in (starts[i], starts[i] + expected[i] - 1)]
    total, found = drawn_at(scored, rate, points)
    assert total == sum(expected)  # probability of i is exactly expected[i] / total
    assert found == [i for i in order for _ in range(2)]


@given(
    spread=st.integers(0, 60),
    scores=st.lists(st.integers(0, 60), min_size=1, max_size=20),
)
def test_below_the_bound_nothing_changes(spread: int, scores: list[int]) -> None:
    """Log-weights less than B bits apart are weighed as they always were, to the last bit."""
    rate = Rate(1 << 40, 40)  # a bit a unit
    logs = log_weights(scores, rate, raised=False)
    assert log_weights(scores, rate, raised=True) == logs


def test_from_the_bound_on_weights_are_raised() -> None:
    """Of two candidates B = 66 bits apart: exactly 2^-66; a bit more changes nothing any more."""
    rate = Rate(1 << 40, 40)
    assert most_bits(2) == 66
    for apart, total in ((65, 2**65 + 1), (66, 2**66 + 1), (67, 2**66 + 1), (10**5, 2**66 + 1)):
        scored = Scored(np.array([0, apart]), 1, 1, np.zeros(2, np.int64), 0, Candidates.ABSOLUTE)
        got, found = drawn_at(scored, rate, [0, (1 << 40) - 1, 1 << 40, total << 40])
        assert got == total << 40
        assert found == [0, 0, 1, 1]


@given(st.integers(1, 2**50))
def test_what_is_raised_is_hardly_ever_drawn(candidates: int) -> None:
    """All raised candidates together weigh at most 2^-64 of the largest."""
    assert candidates << 64 <= 1 << most_bits(candidates)
    assert most_bits(candidates) <= 65 + math.log2(candidates)


@pytest.mark.parametrize("signed", [False, True])
def test_many_draws_over_several_chunks_and_bands(signed: bool) -> None:
    """Every draw of two thousand, over four chunks, is the candidate at its point of the joined sum."""
    size = 3 * CHUNK + 7
    rng = np.random.default_rng(3)
    kind = Candidates.SIGNED if signed else Candidates.ABSOLUTE
    scored = Scored(rng.integers(0, 40, size), 1, 1, np.full(size, 20), 3, kind)
    rate = Rate.below(0.3, 100)
    logs = log_weights(candidate_scores(scored, rate), rate, raised=True)
    expected = weights(logs, rate)
    order = sorted(range(len(logs)), key=lambda i: (logs[i] >> rate.shift, i))
    ends = list(accumulate(expected[i] for i in order))
    points = SeededEntropy(9).below(ends[-1], 2000)
    total, found = drawn_at(scored, rate, points)
    assert total == ends[-1]
    assert found == [order[bisect_right(ends, point)] for point in points]


# ── The lemma: raising does not widen the range ─────────────────────────────────────────────────────────────────


def moved_range(one: list[int], other: list[int]) -> int:
    moves = [a - b for a, b in zip(one, other, strict=True)]
    return max(moves) - min(moves)


@pytest.mark.parametrize("moves", [(0, 1), (-1, 0), (-1, 0, 1), (-2, -1), (1, 3)])
@pytest.mark.parametrize("reach", [0, 1, 2, 5])
def test_raising_keeps_every_move_within_its_interval(moves: tuple[int, ...], reach: int) -> None:
    """Every table of three scores up to 4, every neighbour whose scores move by one of `moves`: all of them."""
    for scores in product(range(5), repeat=3):
        for step in product(moves, repeat=3):
            other = [s + d for s, d in zip(scores, step, strict=True)]
            raised = [
                max(new, max(other) - reach) - max(old, max(scores) - reach)
                for new, old in zip(other, scores, strict=True)
            ]
            assert min(moves) <= min(raised) <= max(raised) <= max(moves)


@settings(deadline=None)
@given(
    scores=st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6),
    data=st.data(),
    low=st.integers(-3, 0),
    width=st.integers(0, 4),
    nats=st.floats(1e-6, 30),
)
def test_the_range_that_is_charged_holds_for_raised_weights(
    scores: list[int], data: st.DataObject, low: int, width: int, nats: float
) -> None:
    """ln of the *actual* weights of neighbours moves within width · rate + slack, raised or not."""
    steps = [data.draw(st.integers(low, low + width)) for _ in scores]
    rate = Rate.below(nats, 4 * 10**6)
    one = log_weights(scores, rate, raised=True)
    other = log_weights([c + d for c, d in zip(scores, steps, strict=True)], rate, raised=True)
    assert moved_range(one, other) <= width * rate.multiplier
    plain = log_weights(scores, rate, raised=False)
    moved = log_weights([c + d for c, d in zip(scores, steps, strict=True)], rate, raised=False)
    assert moved_range(one, other) <= moved_range(plain, moved)
    if max(one) - min(one) < 200 << rate.shift and max(other) - min(other) < 200 << rate.shift:
        bits = [
            math.log2(Fraction(a, b)) for a, b in zip(weights(one, rate), weights(other, rate), strict=True)
        ]
        actual = (max(bits) - min(bits)) * math.log(2)
        assert actual <= float(width * rate.nats + SLACK) + 1e-13 * (1 + max(map(abs, bits)))


# ── Memory and time ─────────────────────────────────────────────────────────────────────────────────────────────


def peak_bytes(scored: Scored, rate: Rate, draws: int) -> int:
    draw(scored, rate=rate, draws=draws, entropy=SeededEntropy(0))  # compiled
    tracemalloc.start()
    draw(scored, rate=rate, draws=draws, entropy=SeededEntropy(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("kind", list(Candidates))
def test_memory_follows_the_shape_and_not_the_scores(kind: Candidates) -> None:
    """MWEM's shape, a million records: skewed counts once took ten times the memory of balanced ones, 2.8 GB."""
    queries, rows, draws = 40 * CHUNK, 10**6, 100
    rng = np.random.default_rng(0)
    balanced = (rows // 2 + rng.normal(0, rows / 100, queries)).astype(np.int64)
    skewed = rng.integers(0, rows // 100, queries)
    skewed[::1000] = rows
    rate = Rate.below(0.5 / (2 * FINE), 4 * FINE * rows)
    offsets = np.full(queries, FINE * rows // 2)
    bands = most_bits(2 * queries) + 1
    for counts in (balanced, skewed):
        peak = peak_bytes(Scored(counts, FINE, 1, offsets, 0, kind), rate, draws)
        assert peak < 3 * (8 * 40 * bands) + 1000 * draws + 200_000


def test_the_number_of_bands_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the scores: B + 1 bands, and a total of at most B + 42 + log2(2N) bits."""
    seen = []
    inner = selection._draw_bands

    def watched(sums, draws, entropy):  # type: ignore[no-untyped-def]
        seen.append(sums.shape[1])
        return inner(sums, draws, entropy)

    monkeypatch.setattr(selection, "_draw_bands", watched)
    rng = np.random.default_rng(1)
    for size, top in product((1, 3, 500), (0, 10, 10**6, 10**11)):
        scored = Scored(rng.integers(0, top + 1, size), 7, 1, np.zeros(size, np.int64), 0, Candidates.SIGNED)
        entropy = Points([0])
        draw(scored, rate=Rate.below(0.5, 10**12), draws=1, entropy=entropy)  # type: ignore[arg-type]
        assert seen[-1] <= most_bits(2 * size) + 1
        assert entropy.total.bit_length() <= most_bits(2 * size) + 42 + (2 * size).bit_length()


# ── 64 bits ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(nats=st.floats() | st.floats(0, 1e6), largest=st.integers(0, 2**70))
def test_a_rate_is_safe_or_refused(nats: float, largest: int) -> None:
    if not 0 <= nats * max(1, largest) / math.log(2) <= 2**50:
        with pytest.raises(BudgetError, match="lower learning rate"):
            Rate.below(nats * (1 + 1e-9), largest)
    elif nats * max(1, largest) / math.log(2) <= 2**50 * (1 - 1e-9):
        rate = Rate.below(nats, largest)
        assert 11 <= rate.shift <= 60
        assert rate.nats <= Fraction(nats)
        assert largest * rate.multiplier < 1 << 62
        assert rate.largest * rate.multiplier < 1 << 62


@pytest.mark.parametrize("rate", [(1, 10), (1, 61), (-1, 40), (1 << 62, 40)])
def test_a_rate_outside_the_lemma_cannot_be_made(rate: tuple[int, int]) -> None:
    with pytest.raises(BudgetError, match="drawn from exactly"):
        Rate(*rate)


def test_the_coarsest_and_the_finest_rate_draw_as_the_reference_says() -> None:
    for rate in (Rate(1, 11), Rate(1, 60), Rate((1 << 62) - 1, 60)):
        scored = Scored(np.array([0, 1, 0]), 1, 1, np.zeros(3, np.int64), 0, Candidates.ABSOLUTE)
        logs = log_weights(candidate_scores(scored, rate), rate, raised=True)
        assert drawn_at(scored, rate, [0])[0] == sum(weights(logs, rate))


def test_negative_rates_are_refused() -> None:
    with pytest.raises(BudgetError):
        Rate.below(-1e-9, 10)


def test_a_price_below_the_slack_buys_no_selection() -> None:
    score = SignedErrors.unheard(WORKLOAD, 100)
    for pure in (SLACK / 2, SLACK, SLACK + Fraction(1, 10**30)):
        with pytest.raises(BudgetError, match="too small"):
            rate_within(Price(pure, None), score, Neighbours.REPLACE)


def test_scores_at_the_bounds_do_not_wrap() -> None:
    """The largest public numbers, the largest table there may be: the drawn weights are the reference's."""
    rows = 1 << 40  # records that a table may have
    for repeats, public in ((MOST_REPEATS, rows), (FINE, MOST_PUBLIC_ROWS), (1, 1)):
        rate = Rate.below(1.0 / (repeats * public), 4 * repeats * public)
        counts = np.array([0, rows, rows // 3])
        for offset in (0, repeats * public):
            offsets = np.full(3, offset)
            surplus = repeats * (rows - public)
            for kind in Candidates:
                scored = Scored(counts, repeats, 1, offsets, surplus, kind)
                scores = candidate_scores(scored, rate)
                logs = log_weights(scores, rate, raised=True)
                assert drawn_at(scored, rate, [0])[0] == sum(weights(logs, rate))
                assert all(abs(repeats * int(c) - offset) < 1 << 62 for c in counts)
                assert all(abs(surplus - repeats * int(c) + offset) < 1 << 62 for c in counts)


def test_a_number_of_records_beyond_64_bits_is_refused_in_a_sentence() -> None:
    for rows in (MOST_PUBLIC_ROWS + 1, 10**16, 10**30, 10**400, -1):
        with pytest.raises(BudgetError, match="records"):
            SignedErrors.unheard(WORKLOAD, rows)
        with pytest.raises(BudgetError, match="records"):
            SignedErrors.of_answers(WORKLOAD, rows, np.full(WORKLOAD.size, 0.5), np.arange(WORKLOAD.size))
        with pytest.raises(BudgetError, match="records"):
            TableErrors(TABLES, rows, np.zeros(3))
    SignedErrors.unheard(WORKLOAD, MOST_PUBLIC_ROWS)
    assert TableErrors(TABLES, MOST_PUBLIC_ROWS, np.zeros(3)).largest == 4 * MOST_SCORE


def test_more_rounds_than_64_bits_hold_are_refused() -> None:
    offsets = np.zeros(WORKLOAD.size, np.int32)
    SignedErrors(WORKLOAD, 10, MOST_REPEATS, 10, offsets)
    with pytest.raises(BudgetError, match="fewer rounds"):
        SignedErrors(WORKLOAD, 10, MOST_REPEATS + 1, 10, offsets)
    with pytest.raises(BudgetError, match="fewer rounds"):
        SignedErrors(WORKLOAD, 2**45, 2**16, 2**45, offsets)


@pytest.mark.parametrize("penalty", [2.0**51, math.inf, math.nan, -1.0])
def test_noise_that_drowns_every_table_is_refused(penalty: float) -> None:
    with pytest.raises(BudgetError, match="larger budget"):
        TableErrors(TABLES, 100, np.array([0.0, 0.0, penalty]))
    TableErrors(TABLES, 100, np.array([0.0, 0.0, 2.0**50]))


@pytest.mark.parametrize("rows", [0, -1, MOST_PUBLIC_ROWS + 1, 10**16, 10**19, 10**400])
def test_a_task_of_so_many_records_is_refused(rows: int) -> None:
    """Before a plan is made, so before anything is charged."""
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    with pytest.raises(DualQueryError, match="--records"):
        Task(WORKLOAD, rows, budget)
    Task(WORKLOAD, MOST_PUBLIC_ROWS, budget)


def test_answers_outside_the_table_count_as_its_ends() -> None:
    """Answers are public; a belief's rounding must not push an offset over its bound."""
    answers = np.array([-0.5, 0.25, 1.0, 1.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    score = SignedErrors.of_answers(WORKLOAD, 10, answers, np.arange(4))
    assert score.offsets.tolist() == [0, 2560, 10240, 10240]


def test_noise_wraps_as_post_processing() -> None:
    """Counts and noise are added modulo 2^64: (truth mod 2^64) + noise is (truth + noise) mod 2^64."""
    noise = Gaussian(Fraction(100)).draw(3, SeededEntropy(1))
    truth = [2**63 - 1, -(2**63), 5]
    with np.errstate(over="ignore"):
        got = np.array(truth, np.int64) + noise
    for t, z, g in zip(truth, noise.tolist(), got.tolist(), strict=True):
        assert (t + z - g) % 2**64 == 0
