"""The paper's synthetic data: a bias per attribute, drawn uniformly, and independent records."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, Records

PRECISION = 12  # bits of a bias


@njit(cache=True, parallel=True)
def _fill(words: np.ndarray, rows: int, levels: np.ndarray, seed: int) -> None:
    """Bit columns whose bits are one with probability level / 2^12: one AND or OR a binary digit."""
    for j in prange(words.shape[0]):
        state = np.uint64(seed) + np.uint64(j) * np.uint64(0xD1B54A32D192ED03)
        for w in range(words.shape[1]):
            word = np.uint64(0)
            for digit in range(PRECISION):
                state += np.uint64(0x9E3779B97F4A7C15)
                z = state
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z ^= z >> np.uint64(31)
                word = word | z if (levels[j] >> digit) & 1 else word & z
            words[j, w] = word
        if rows & 63:
            words[j, -1] &= (np.uint64(1) << np.uint64(rows & 63)) - np.uint64(1)


def biased_records(width: int, rows: int, seed: int) -> Records:
    """`rows` records of `width` binary attributes, attribute i being 1 with its own probability p_i."""
    levels = np.random.default_rng(seed).integers(0, 1 << PRECISION, width)
    words = np.zeros((width, -(-rows // 64)), np.uint64)
    _fill(words, rows, levels, seed)
    return Records(Domain((Items("attribute", width),)), rows, (BitItems(words),))
