"""What samples prove about a probability: the bounds of Clopper and Pearson, and the privacy loss they imply.

(ε, δ)-differential privacy says P(S) ≤ e^ε Q(S) + δ for every event S. So an event that was fixed before the samples
were looked at gives, with confidence 1 − 2α,

    ε ≥ ln((p − δ) / q),    p = lower bound of P(S), q = upper bound of Q(S), each with confidence 1 − α

(Jagielski, Ullman, Oprea 2020; Clopper, Pearson 1934). Nothing about the mechanism enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_STEPS = 60  # halvings: far below the error of counting
_MARGIN = 1e-9  # more than the rounding of a sum of logarithms


@dataclass(frozen=True)
class Claim:
    """What a ledger says was spent: (ε, δ)."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Hits:
    """How often an event happened: on the side that it favours, and on the other, of so many runs each."""

    likely: int
    unlikely: int
    runs: int


def proven_epsilon(hits: Hits, *, delta: float, failure: float) -> float:
    """The ε that these hits prove, but with chance `failure`; 0 where they prove nothing."""
    p = lower_bound(hits.likely, hits.runs, failure=failure / 2)
    q = upper_bound(hits.unlikely, hits.runs, failure=failure / 2)
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def lower_bound(hits: int, runs: int, *, failure: float) -> float:
    """The probability below which so many hits or more have less than this chance."""
    return 0.0 if hits == 0 else 1 - upper_bound(runs - hits, runs, failure=failure)


def upper_bound(hits: int, runs: int, *, failure: float) -> float:
    """The probability above which so few hits or fewer have less than this chance, rounded up."""
    if hits >= runs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_most(hits, runs, middle) > failure:
            low = middle
        else:
            high = middle
    return min(1.0, high * (1 + _MARGIN) + _MARGIN / runs)


def _at_most(hits: int, runs: int, p: float) -> float:
    """P(X ≤ hits) of a binomial distribution, summed by logarithms."""
    if not 0 < p < 1:
        return 1.0 if p <= 0 else 0.0
    k = np.arange(hits + 1)
    logs = _log_choices(runs)[: hits + 1] + k * math.log(p) + (runs - k) * math.log1p(-p)
    largest = float(logs.max())
    return math.exp(largest + math.log(float(np.exp(logs - largest).sum())))


@lru_cache(maxsize=8)
def _log_choices(runs: int) -> NDArray[np.float64]:
    """ln C(runs, k) for every k."""
    k = np.arange(runs, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(np.log(runs - k) - np.log1p(k))])


def about_epsilon(
    likely: NDArray[np.int64], unlikely: NDArray[np.int64], runs: int, *, delta: float, strict: float
) -> NDArray[np.float64]:
    """Roughly what `proven_epsilon` will say of many events, by Wilson's interval: good enough to choose by."""
    p, _ = _wilson(likely, runs, strict)
    _, q = _wilson(unlikely, runs, strict)
    return np.where(p > delta, np.log(np.maximum(p - delta, 1e-300) / q), -np.inf)


def _wilson(hits: NDArray[np.int64], runs: int, z: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    share = hits / runs
    middle = share + z * z / (2 * runs)
    half = z * np.sqrt(share * (1 - share) / runs + (z / (2 * runs)) ** 2)
    scale = 1 + z * z / runs
    return (middle - half) / scale, (middle + half) / scale
