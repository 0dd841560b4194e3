"""Sparse vector: exact likelihood ratios of whole epochs on small streams, and the state of an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.events import Epoch, LaplaceMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.thresholds import FarSide, Found, Slot, SparseVector
from dualquery.randomness import SeededEntropy

NOTHING = LaplaceMeasurement(Fraction(0), Fraction(1))  # after a fire
REACH = 400  # of the threshold noise; what lies beyond weighs less than e⁻⁶⁰ here


def ledger(accounting: Accounting = Accounting.PURE, epsilon: float = 100.0) -> Ledger:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Ledger(Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=accounting))


def at_least(m: np.ndarray, scale: float) -> np.ndarray:
    """P(N ≥ m) for discrete Laplace noise: e^−m/b / (1 + e^−1/b) for m ≥ 1; scale 0 is no noise."""
    if scale == 0:
        return (m <= 0).astype(float)
    tail = np.exp(-np.maximum(m, 1 - m) / scale) / (1 + math.exp(-1 / scale))
    return np.where(m >= 1, tail, 1 - tail)


def epoch_law(law: SparseVector, stream: tuple[int, ...], *, query_noise: float = 1.0) -> np.ndarray:
    """The exact chance that the first "above" is the i-th answer, and last that there is none."""
    noise = np.arange(-REACH, REACH + 1)
    weights = np.exp(-np.abs(noise) / float(law.threshold_scale))
    alive, chances = weights / weights.sum(), []
    for x in stream:
        above = at_least(law.threshold + noise - abs(x), query_noise * float(law.query_scale))
        chances.append(float(np.sum(alive * above)))
        alive = alive * (1 - above)
    return np.array([*chances, float(np.sum(alive))])


def neighbouring_streams(law: SparseVector, length: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    moves = range(-law.sensitivity, law.sensitivity + 1)
    for stream in product((-3, 0, 1, 4), repeat=length):
        for move in product(moves, repeat=length):
            yield stream, tuple(x + step for x, step in zip(stream, move, strict=True))


def largest_loss(law: SparseVector, length: int, *, query_noise: float = 1.0) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(
            float(np.nanmax(np.abs(np.log(
                epoch_law(law, one, query_noise=query_noise) / epoch_law(law, other, query_noise=query_noise)
            ))))
            for one, other in neighbouring_streams(law, length)
        )  # fmt: skip


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(3)])
@pytest.mark.parametrize(("sensitivity", "length"), [(1, 1), (1, 3), (2, 2)])
def test_a_whole_epoch_is_private_on_every_small_stream(
    epsilon: Fraction, sensitivity: int, length: int
) -> None:
    loss = largest_loss(SparseVector(epsilon, 2, sensitivity), length)
    assert loss <= float(epsilon) * (1 + 1e-9)
    assert loss > float(epsilon) / 6


def test_long_streams_come_close_to_the_bound() -> None:
    law, length = SparseVector(Fraction(1), 5), 5000
    one, other = epoch_law(law, (1,) * length + (0,)), epoch_law(law, (0,) * length + (1,))
    losses = np.abs(np.log(one / other))
    assert 0.9 < losses[length] <= 1 + 1e-9  # "below" throughout, then "above"
    assert losses.max() <= 1 + 1e-9


def test_without_fresh_noise_for_each_query_it_is_not() -> None:
    law = SparseVector(Fraction(1), 2)
    assert largest_loss(law, 2, query_noise=0) > 1
    assert largest_loss(law, 3, query_noise=0.2) > 1


def test_the_exact_tail_of_the_noise() -> None:
    z = np.arange(-2000, 2001)
    weights = np.exp(-np.abs(z) / 7.0)
    for m in (-5, 0, 1, 2, 30):
        assert at_least(np.array(m), 7.0) == pytest.approx(weights[z >= m].sum() / weights.sum(), rel=1e-12)


@pytest.mark.parametrize("stream", [(0, 0, 0), (30, -45, 10), (-60, 5, 5)])
def test_epochs_follow_their_law_and_an_epsilon_30_percent_off_is_rejected(stream: tuple[int, ...]) -> None:
    law, entropy, draws = SparseVector(Fraction(1, 5), 25), SeededEntropy(5), 6000
    paid = ledger(epsilon=1e6)
    seen = np.zeros(len(stream) + 1)
    for _ in range(draws):
        slot, place = Slot(paid, law.event, NOTHING), 0
        while (
            place < len(stream) and slot.begin(law, paid, NOTHING)(np.array([stream[place]]), entropy) is None
        ):
            place += 1
        seen[place] += 1
        assert slot.closed == (place < len(stream))
    assert len(paid.events) == 2 * draws
    right = epoch_law(law, stream) * draws
    wrong = epoch_law(SparseVector(Fraction(1, 5) * Fraction(13, 10), 25), stream) * draws
    assert stats.chisquare(seen, right * seen.sum() / right.sum()).pvalue > 1e-10
    assert stats.chisquare(seen, wrong * seen.sum() / wrong.sum()).pvalue < 1e-10


def test_an_epoch_is_paid_when_it_opens_and_ends_with_its_first_above() -> None:
    law = SparseVector(Fraction(1, 2), 50)
    paid = ledger(Accounting.ZCDP, epsilon=5)
    slot = Slot(paid, law.event, NOTHING)
    assert paid.events == (Epoch(Fraction(1, 2)), NOTHING)
    assert not slot.closed
    assert slot.begin(law, paid, NOTHING)(np.array([-10_000]), SeededEntropy(2)) == Found(0, FarSide.FAR)
    assert slot.closed
    with pytest.raises(BudgetError, match="another slot"):
        slot.begin(law, paid, NOTHING)
    assert len(paid.events) == 2


class Overtaken:
    """The lock of a slot, whose rival ends its test just before we get the lock."""

    def __init__(self, slot: Slot, rival: Callable[[], Found | None]) -> None:
        self._lock, self._rival, slot._busy = slot._busy, rival, self  # type: ignore[assignment]

    def acquire(self, *, blocking: bool) -> bool:
        self._rival()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()


def test_a_test_that_waited_for_a_fire_is_refused() -> None:
    law, far, entropy = SparseVector(Fraction(1, 2), 50), np.array([10_000]), SeededEntropy(2)
    paid = ledger(Accounting.ZCDP, epsilon=5)
    slot = Slot(paid, law.event, NOTHING)
    first = slot.begin(law, paid, NOTHING)
    Overtaken(slot, lambda: first(far, entropy))
    with pytest.raises(BudgetError, match="another slot"):
        slot.begin(law, paid, NOTHING)


def test_a_refused_test_does_not_block_a_slot() -> None:
    law, far, entropy = SparseVector(Fraction(1, 2), 50), np.array([10_000]), SeededEntropy(2)
    paid = ledger(Accounting.ZCDP, epsilon=5)
    slot = Slot(paid, law.event, NOTHING)
    assert slot.begin(law, paid, NOTHING)(np.array([0]), entropy) is None
    with pytest.raises(BudgetError, match="equally far"):
        slot.begin(SparseVector(Fraction(1, 2), 50, sensitivity=2), paid, NOTHING)
    assert slot.begin(law, paid, NOTHING)(far, entropy) is not None


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP, Accounting.RENYI])
def test_an_epoch_that_cannot_be_paid_for_is_none(accounting: Accounting) -> None:
    poor = ledger(accounting, epsilon=0.3)
    with pytest.raises(BudgetError, match="does not pay"):
        Slot(poor, SparseVector(Fraction(1), 50).event, NOTHING)
    assert poor.events == ()


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)])
def test_impossible_epochs_are_refused(epsilon: Fraction, sensitivity: int) -> None:
    with pytest.raises(BudgetError):
        SparseVector(epsilon, 5, sensitivity)
