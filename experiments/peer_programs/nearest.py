"""What independent noise is made of: the distribution nearest to a noisy table."""

from __future__ import annotations

import numpy as np


def nearest_distribution(noisy: np.ndarray) -> np.ndarray:
    """Of least squares: as much is taken off every cell as makes what stays above 0 sum to 1."""
    falling = np.sort(noisy)[::-1]
    excess = np.cumsum(falling) - 1
    held = np.count_nonzero(falling * np.arange(1, len(noisy) + 1) > excess)
    return np.maximum(noisy - excess[held - 1] / held, 0.0)
