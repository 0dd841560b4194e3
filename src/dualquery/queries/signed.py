"""Signed tables: along an attribute of two values the difference of both, along a longer one the counts.

A record lies in one cell of a table, so it moves one entry of the signed table, by one, up or down. The rest of
the table is what smaller sets say: the signed table of S determines the interaction of every B ⊆ S that holds
all binary attributes of S.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Numbers = TypeVar("Numbers", NDArray[np.int64], NDArray[np.float64])


def signed(table: Numbers) -> Numbers:
    """⊗_{k_j = 2} (1, −1) ⊗_{k_j ≠ 2} Id · table; a contracted axis keeps the length one."""
    for axis, size in enumerate(table.shape):
        if size == 2:
            first, second = np.split(table, 2, axis=axis)
            table = first - second
    return table


def signed_shape(sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of the signed table over attributes of these sizes."""
    return tuple(1 if size == 2 else int(size) for size in sizes)


def signed_entries(sizes: Sequence[int]) -> int:
    """How many numbers a signed table has."""
    return prod(signed_shape(sizes))
