"""Chance for an audit: the system's, or for tests a seed, a stream of its own for every sample."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from numpy.typing import NDArray

from dualquery.randomness import Entropy, SeededEntropy, SystemEntropy


class OwnSampler:
    """The system's entropy for many single draws: by the samplers of `noise`, where OpenDP takes longer.

    (`noise` hands few draws to OpenDP where it is given `SystemEntropy` itself. The audit of few draws is.)
    """

    statement = SystemEntropy.statement
    private = True

    def __init__(self) -> None:
        self._system = SystemEntropy()
        self._left = b""

    def below(self, bound: int, count: int) -> list[int]:
        return self._system.below(bound, count)

    def words(self, count: int) -> NDArray[np.uint64]:
        size = 8 * count
        if len(self._left) < size:
            self._left = os.urandom(max(size, 1 << 14))
        taken, self._left = self._left[:size], self._left[size:]
        return np.frombuffer(taken, dtype=np.uint64)

    def public_generator(self) -> np.random.Generator:
        return self._system.public_generator()


def own_sampler(entropy: Entropy) -> Entropy:
    """The same kind of chance, by our own samplers."""
    return OwnSampler() if isinstance(entropy, SystemEntropy) else entropy


def stream(seed: int | None, *names: str) -> Entropy:
    """System entropy; or with a seed a stream that nothing else of another name draws from."""
    if seed is None:
        return SystemEntropy()
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return SeededEntropy(int.from_bytes(digest[:16]))
