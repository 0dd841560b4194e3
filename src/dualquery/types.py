"""What arrays hold, sets of attributes, and how long work says how far it is: each name once.

Where a property begins to hold that, once won, stays won: by halving the distance between where it does not hold
and where it does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Set = tuple[int, ...]  # of attributes
Cells = NDArray[np.float64]  # a table over some attributes, one axis for each
Reals = NDArray[np.float64]
Fractions = NDArray[np.float64]  # of the records
Integers = NDArray[np.int64]
Ints = NDArray[np.int32]
Words = NDArray[np.uint64]  # 64 bits each
Flags = NDArray[np.bool_]

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much
Done = Callable[[int, int], None]  # the same within one stage: how much is done, of how much


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody hears."""


def no_progress(done: int, total: int) -> None:
    """The same within one stage."""


def halved(low: float, high: float, times: int, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Both ends after so many halvings: of numbers, it begins to hold between them."""
    for _ in range(times):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def first_whole(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least whole number at which it holds, above `low` and at most `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
