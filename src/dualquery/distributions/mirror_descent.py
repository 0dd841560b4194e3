"""Mirror descent over a distribution that is written out: how it hears, for any mirror map.

A step is Newton's, in the dual, for q(w) = m: η = (m − q(w)) / slope, how fast the answer follows a step by the map;
it is halved as long as it would leave the answer farther off than it was. After each new measurement the learner
goes over all of them, as MWEM's does. Nothing here knows of privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.distributions.factored import Factored
from dualquery.distributions.mirror_maps import MirrorMap
from dualquery.distributions.multiplicative_weights import Schedule, feasible
from dualquery.game.moves import Heard
from dualquery.table.domain import Domain

Reals = NDArray[np.float64]

HALVINGS = 20  # of a step that goes too far
NOTHING = 1e-15  # a query that the distribution could not follow at all


class MirrorDescent:
    """A distribution over every cell of a domain, moved by a mirror map."""

    def __init__(self, domain: Domain, mirror: MirrorMap, *, schedule: Schedule, floor: float) -> None:
        self._domain = domain
        self._sizes = tuple(domain.sizes.tolist())
        self._mirror = mirror
        self._schedule = schedule
        self._floor = floor
        self._weights: Reals = np.full(self._sizes, 1 / np.prod(domain.sizes.astype(float))).ravel()
        self._heard: dict[object, list[Heard]] = {}
        self._changes = 0

    def hear(self, challenge: Heard) -> None:
        """Take in the answer to one query; the same one again is averaged with what was heard before."""
        assert challenge.query is not None, "whole tables are not played by mirror descent"
        self._heard.setdefault(challenge.key, []).append(challenge)
        self._changes += 1
        for _ in range(self._schedule.passes):
            gaps = [self._step(repeats) for repeats in self._heard.values()]
            if max(gaps) <= self._schedule.tolerance:
                return

    def snapshot(self) -> Factored:
        return Factored.of_weights(self._domain, self._weights.reshape(self._sizes), self._changes)

    def _step(self, repeats: list[Heard]) -> float:
        """One step towards a measurement; how far off the distribution was before."""
        mean = Heard(
            repeats[0].members,
            repeats[0].query,
            np.array(np.mean([float(each.value) for each in repeats])),
        )
        value = float(feasible(mean, self._floor).value)
        query = self._on_cells(repeats[0])
        gap = value - float(query @ self._weights)
        if abs(gap) <= NOTHING:
            return abs(gap)
        slope = self._mirror.slope(self._weights, query)
        if slope <= NOTHING:  # the query is the same wherever there is weight: let all cells have some
            self._weights = self._weights + NOTHING
            self._weights /= self._weights.sum()
            slope = NOTHING
        step, dual = gap / slope, self._mirror.dual(self._weights)
        for _ in range(HALVINGS):
            weights = self._mirror.primal(dual + step * query)
            if abs(value - float(query @ weights)) < abs(gap):
                self._weights = weights
                break
            step /= 2
        return abs(gap)

    def _on_cells(self, heard: Heard) -> Reals:
        """The query's value on every cell of the domain."""
        assert heard.query is not None
        shape = [size if j in heard.members else 1 for j, size in enumerate(self._sizes)]
        return np.broadcast_to(heard.query.reshape(shape), self._sizes).ravel()
