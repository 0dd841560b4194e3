"""The arrays of compiled code, by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]  # random bits, or 64 coefficients each
