"""Chance for an audit: the system's, or for tests a seed, a stream of its own for every sample."""

from __future__ import annotations

import hashlib

from dualquery.randomness import Entropy, SeededEntropy, SystemEntropy


def stream(seed: int | None, *names: str) -> Entropy:
    """System entropy; or with a seed a stream that nothing else of another name draws from."""
    if seed is None:
        return SystemEntropy()
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return SeededEntropy(int.from_bytes(digest[:16]))
