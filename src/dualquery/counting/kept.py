"""Counts that are asked for again and again are counted once."""

from __future__ import annotations

from collections.abc import Callable

from dualquery.counting.counter import Countable
from dualquery.types import Done, Integers


class KeptCounts:
    """What every counter does around its counting: it says that a pass begins and ends, and keeps the numbers."""

    def __init__(self, progress: Done) -> None:
        self._progress = progress
        # By identity, and with the countable itself, so that no other one can come to stand at its address.
        self._kept: dict[int, tuple[Countable, Integers]] = {}

    def of(self, countable: Countable, count: Callable[[Countable], Integers], *, kept: bool) -> Integers:
        if id(countable) in self._kept:
            return self._kept[id(countable)][1]
        # Begun and done, and nothing between: how far a pass has come by the record tells how many records there are.
        self._progress(0, 1)
        counts = count(countable)
        self._progress(1, 1)
        if kept:
            self._kept[id(countable)] = (countable, counts)
        return counts
