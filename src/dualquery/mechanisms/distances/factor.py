"""The kernel |x − y| of one column as a product of two matrices, one measured, one applied afterwards.

With positions as fractions of the width, on knots x and y from 0 to 1, the kernel is centred at the middle of its
range, which the number of records alone decides:

    |x − y| = c(y) + W(y, x),   c(y) = (max_x |x − y| + min_x |x − y|) / 2 = max(y, 1 − y) / 2.

W = U S Vᵀ is split evenly: R = √S Vᵀ is rounded to whole numbers and measured, and L = W R⁺ turns what was measured
into distances, exactly, whatever the rounding was. With noise of deviation σ·√(max_k ‖R_k‖²) the answer at y has
deviation σ·‖L_y‖·max_k ‖R_k‖: 0.55 σ on average over y and 0.61 σ at most, with 257 knots as with 33. (The trivial
factorisation R = Id has 3.5 σ and more, and so has a histogram that one adds up by hand.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.distances import Factor
from dualquery.table.points import KNOTS

FINEST, COARSEST = 4096, 64  # the largest whole number in R: of the widest column, and at least
Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KernelFactors:
    """R in whole numbers and L in fractions, W = L R."""

    right: Factor
    left: Matrix


def knots() -> Matrix:
    """The knots, as fractions of the width."""
    return np.arange(KNOTS + 1) / KNOTS


def middle() -> Matrix:
    """c(y) at the knots."""
    y = knots()
    return np.maximum(y, 1 - y) / 2


@lru_cache(maxsize=64)
def factored(scale: int) -> KernelFactors:
    """The factors of the centred kernel, whole numbers of R up to `scale`."""
    y = knots()
    kernel = np.abs(y[:, None] - y[None, :]) - middle()[:, None]
    _, strength, axes = np.linalg.svd(kernel)
    strong = strength > 1e-9 * strength[0]
    root = np.sqrt(strength[strong])[:, None] * axes[strong]
    right = np.rint(scale * root / np.abs(root).max()).astype(np.int64)
    return KernelFactors(right, kernel @ np.linalg.pinv(right.astype(np.float64)))


def scales(importance: Matrix) -> list[int]:
    """The scale of each column, by the root of how much its distances count: the least noise in the sum.

    Σ_j (a_j σ/m_j)² is least, at a given Σ_j m_j², where m_j² ∝ a_j. Few different scales are made, a quarter apart.
    """
    ideal = FINEST * np.sqrt(importance / importance.max())
    steps = np.rint(4 * np.log2(FINEST / np.maximum(ideal, COARSEST)))
    return [round(FINEST / 2 ** (float(each) / 4)) for each in steps]
