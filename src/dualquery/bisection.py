"""Where a property begins to hold that, once won, stays won: by halving the distance between where it does not hold
and where it does."""

from __future__ import annotations

from collections.abc import Callable


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
