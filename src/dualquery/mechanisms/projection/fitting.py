"""What every way of projection ends in: rows that are fitted, and the records that they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.projection.pace import Pace
from dualquery.table.records import Records

Progress = Callable[[int, int], None]  # rounds done, of how many
Rows = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Fitting:
    """How rows are fitted to a measurement, and become records."""

    fit: Callable[[Pace, np.random.Generator, Progress], Rows]
    records: Callable[[Rows, np.random.Generator], Records]
    settled: Any = None  # the way, with what was chosen on it fixed; None where nothing was


def too_noisy(noise: float) -> tuple[str, ...]:
    """What a plan notes where the noise of a cell, as a fraction of the table, leaves little to be learned."""
    if noise < 0.1:
        return ()
    return (
        f"the budget is so small that the noise of a cell is {noise:.0%} of the table; expect little of the answers",
    )
