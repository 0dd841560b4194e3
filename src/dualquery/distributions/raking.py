"""A distribution that is scaled to what it hears: inside a query and outside, each by its own factor.

    A(x) · m/q(A) where q(x) = 1,      A(x) · (1 − m)/(1 − q(A)) where q(x) = 0

The full step of multiplicative weights for one query: it lands on the measurement, noise and all.
"""

from __future__ import annotations

import numpy as np

from dualquery.distributions.factored import Factored
from dualquery.distributions.multiplicative_weights import TINY, feasible
from dualquery.game.moves import Heard


class RakedWeights:
    """Hears noisy answers to single queries, each once."""

    def __init__(self, distribution: Factored, *, floor: float) -> None:
        self._distribution = distribution
        self._floor = floor

    def hear(self, challenge: Heard) -> None:
        measured = feasible(challenge, self._floor)
        assert measured.query is not None, "single queries are raked"
        value = float(measured.value)
        table = self._distribution.glimpse(measured.members)
        inside = min(max(float((measured.query * table).sum()), TINY), 1 - 2**-53)
        factors = measured.query * (value / inside) + (1 - measured.query) * ((1 - value) / (1 - inside))
        mass = float((table * factors).sum())
        self._distribution.multiply(measured.members, np.asarray(factors), mass=mass)

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()
