"""How long rows are fitted, how many there are and how hot: public numbers, fixed before the first move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.game.moves import Transcript
from dualquery.game.row_players import Chains, Residual

CHAINS = 2
CHAIN_ROWS = 20_000
SNAPSHOTS = 3
WARM_UP = (4.0, 2.0, 1.0)  # temperatures before the first snapshot, in units of the last one
TEMPERATURE = 0.6  # standard deviations of the noise in a cell of a pair's table
LEAST_TEMPERATURE = 5e-5  # of the rows: below it a chain freezes before it has mixed


@dataclass(frozen=True)
class Pace:
    """How many rows, in how many chains, and how often they are looked at. Public."""

    chains: int
    chain_rows: int
    snapshots: int
    rows: int

    @staticmethod
    def of(rows: int | None) -> Pace:
        """Up to a limit a chain holds CHAIN_ROWS; then more snapshots are kept, then longer chains."""
        if rows is None:
            rows = CHAINS * CHAIN_ROWS * SNAPSHOTS
        if rows < 1:
            raise DualQueryError("--rows must be at least 1")
        chains = min(CHAINS, rows)
        chain_rows = min(-(-rows // chains), CHAIN_ROWS)
        snapshots = min(SNAPSHOTS, -(-rows // (chains * chain_rows)))
        return Pace(chains, -(-rows // (chains * snapshots)), snapshots, rows)

    def temperatures(self, noise: float) -> list[float]:
        """One a round, in rows, given the noise of a cell as a fraction of the table."""
        last = self.chain_rows * max(TEMPERATURE * noise, LEAST_TEMPERATURE)
        return [last * factor for factor in WARM_UP] + [last] * self.snapshots

    def released(self, transcript: Transcript[Residual, Chains]) -> NDArray[np.unsignedinteger]:
        """The rows of the last rounds, of all chains, cut to the number asked for."""
        kept = np.concatenate(transcript.replies[-self.snapshots :], axis=1)
        together = np.concatenate(list(kept.transpose(1, 0, 2)))  # a cut takes the same from every chain
        return together[: self.rows]
