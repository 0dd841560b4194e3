"""What arrays hold, sets of attributes, and how long work says how far it is: each name once."""

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
