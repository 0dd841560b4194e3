"""From cells to codes for whole columns at once, in the fewest passes over the rows that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit

FEW_BINS = 64  # a comparison with each edge is faster than a bisection for each number
AT_ONCE = 2048  # numbers that stay in the nearest cache
FEW = 1 << 18  # cells that numpy looks up in less time than it takes to load compiled loops


def looked_up(codes: NDArray[np.int64], index: NDArray[np.integer]) -> NDArray[np.signedinteger]:
    """codes[index], in the smallest type that holds the codes and the reasons why a cell has none."""
    small = codes.astype(_signed(int(codes.max(initial=0))))
    if (
        len(index) <= FEW
        or index.dtype != np.uint8
        or small.dtype != np.int8
        or int(index.max(initial=0)) >= len(codes)
    ):
        return np.take(small, index)
    table = np.zeros(256, np.int8)
    table[: len(small)] = small[:256]
    found = np.empty(len(index), np.int8)
    _take_bytes(table, index, found)
    return found


def bins_of(edges: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.signedinteger]:
    """The bin of each number, those beyond the ends in the nearest: how many inner edges are at most the number.

    What NaN gets is for the caller to replace.
    """
    bins = len(edges) - 1
    if bins > FEW_BINS or len(numbers) <= FEW:
        return np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, bins - 1)
    codes = np.zeros(len(numbers), np.int8)
    _add_passed(edges[1:-1], numbers, codes)
    return codes


@njit(cache=True, nogil=True)
def _take_bytes(table, index, found):  # type: ignore[no-untyped-def]
    for i in range(len(index)):
        found[i] = table[index[i]]


@njit(cache=True, nogil=True)
def _add_passed(edges, numbers, codes):  # type: ignore[no-untyped-def]
    """To each code the number of edges that its number has passed."""
    for first in range(0, len(numbers), AT_ONCE):
        some, found = numbers[first : first + AT_ONCE], codes[first : first + AT_ONCE]
        for edge in edges:
            for i in range(len(some)):
                found[i] += some[i] >= edge


def _signed(largest: int) -> Any:
    return np.int8 if largest < 1 << 7 else np.int16 if largest < 1 << 15 else np.int64
