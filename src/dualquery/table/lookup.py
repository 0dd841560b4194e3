"""From cells to codes for whole columns at once, in the fewest passes over the rows that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW_BINS = 64  # a pass over the numbers for each edge is faster than a bisection for each number


def looked_up(codes: NDArray[np.int64], index: NDArray[np.integer]) -> NDArray[np.signedinteger]:
    """codes[index], in the smallest type that holds the codes and the reasons why a cell has none."""
    small = codes.astype(_signed(int(codes.max(initial=0))))
    if index.dtype != np.uint8 or small.dtype != np.int8 or int(index.max(initial=0)) >= len(codes):
        return np.take(small, index)
    # Bytes to bytes: the fastest loop that Python has for it.
    table = small.tobytes().ljust(256, b"\0")
    return np.frombuffer(index.tobytes().translate(table), np.int8)


def bins_of(edges: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.signedinteger]:
    """The bin of each number, those beyond the ends in the nearest: how many inner edges are at most the number.

    What NaN gets is for the caller to replace.
    """
    bins = len(edges) - 1
    if bins > FEW_BINS:
        return np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, bins - 1)
    codes = np.zeros(len(numbers), np.int8)
    for edge in edges[1:-1]:
        codes += numbers >= edge
    return codes


def _signed(largest: int) -> Any:
    return next(kind for kind in (np.int8, np.int16, np.int64) if largest <= np.iinfo(kind).max)
