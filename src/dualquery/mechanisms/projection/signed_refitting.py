"""The data player of pure projection's rounds: rows that answer the residual of all signed tables heard so far.

Nothing here knows of privacy: what is heard was measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualquery.game.moves import Cells, Transcript
from dualquery.game.residual import Chains
from dualquery.mechanisms.projection.fit import Wanted, play_residual, product_start
from dualquery.mechanisms.projection.pace import LEAST_TEMPERATURE, TEMPERATURE
from dualquery.mechanisms.projection.refitting import SCOUT, SCOUT_PASSES, SCOUT_ROWS
from dualquery.mechanisms.projection.signed_interactions import Combination, SignedTable
from dualquery.table.domain import Domain


def scouts_of(domain: Domain, ones: Mapping[int, Cells], rng: np.random.Generator) -> Chains:
    """Rows whose attributes are independent, as the one-way tables say: the public start."""
    return product_start(domain, ones, SCOUT, rng)


class SignedRefittingDataPlayer:
    """Keeps one chain of rows, refitted after each signed table that is heard."""

    def __init__(self, combination: Combination, start: Chains, rng: np.random.Generator) -> None:
        self._combination = combination
        self._rows = start
        self._rng = rng

    def reply(self, transcript: Transcript[SignedTable, Chains], challenge: SignedTable) -> Chains:
        self._combination.hear(challenge)
        wanted = Wanted.of(self._combination.measured(), self._rng)
        heat = [SCOUT_ROWS * max(TEMPERATURE * wanted.noise, LEAST_TEMPERATURE)] * SCOUT_PASSES
        fit = play_residual(
            wanted.at_once(), wanted.ones, self._rows, heat, self._rng, lambda done, total: None
        )
        self._rows = fit.last_reply()
        return self._rows
