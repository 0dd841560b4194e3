"""Where chance comes from: the operating system, or a seed that forfeits the guarantee.

Two kinds of chance are kept apart. *Private* chance stands between the data and the output and
is consumed as integers (`below`, `words`). *Public* chance breaks ties, starts searches and
shuffles rows; it may come from an ordinary fast generator (`public_generator`), because nothing
private depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Entropy(Protocol):
    """A source of independent uniform integers."""

    @property
    def statement(self) -> str:
        """One line for the certificate."""

    @property
    def private(self) -> bool:
        """Whether a release drawn from this source may claim differential privacy."""

    def below(self, bound: int, count: int) -> list[int]:
        """`count` independent uniform integers in [0, bound), of any size."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` independent uniform 64-bit words."""

    def public_generator(self) -> np.random.Generator:
        """A fresh fast generator for choices that touch no private value."""


class SystemEntropy:
    """The operating system's generator: the default, and the only private one."""

    statement = "system entropy"
    private = True

    def below(self, bound: int, count: int) -> list[int]:
        return _below(bound, count, os.urandom)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def public_generator(self) -> np.random.Generator:
        return np.random.default_rng()


class SeededEntropy:
    """A repeatable source for tests and experiments. Whoever knows the seed can undo the noise."""

    private = False

    def __init__(self, seed: int) -> None:
        self.statement = f"seed {seed}: repeatable, not private"
        self._random = Random(seed)

    def below(self, bound: int, count: int) -> list[int]:
        return _below(bound, count, self._random.randbytes)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._random.randbytes(8 * count), dtype=np.uint64)

    def public_generator(self) -> np.random.Generator:
        return np.random.default_rng(self._random.getrandbits(128))


def _below(bound: int, count: int, random_bytes: Callable[[int], bytes]) -> list[int]:
    """Uniform integers by rejection: as many random bits as the bound has, drawn again where they reach it."""
    bits = (bound - 1).bit_length()
    size = -(-bits // 8)
    excess = 8 * size - bits
    found: list[int] = []
    while len(found) < count:
        data = random_bytes(size * (count - len(found)))
        drawn = (
            [int.from_bytes(data[i : i + size]) >> excess for i in range(0, len(data), size)] if size else [0]
        )
        found += [value for value in drawn if value < bound]
    return found


def entropy_from(seed: int | None) -> Entropy:
    """System entropy, unless a seed was asked for by name."""
    return SystemEntropy() if seed is None else SeededEntropy(seed)
