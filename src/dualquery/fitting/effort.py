"""How long rows are fitted, how many there are and how hot: public numbers, fixed before the first move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.game.moves import Residual, Transcript
from dualquery.table.records import Records
from dualquery.types import Done

Chains = NDArray[np.unsignedinteger]  # chain, row, attribute
Rows = NDArray[np.unsignedinteger]

REPLICAS = 4  # of a release, from which its errors are seen (`mechanisms.error_bars`)
CHAINS = 2
CHAIN_ROWS = 20_000
SNAPSHOTS = 3
WARM_UP = (4.0, 2.0, 1.0)  # temperatures before the first snapshot, in units of the last one
REPLICA_ROWS = 12_000  # of a replica, at most ...
SHORT_WARM_UP = (
    2.0,
    1.0,
)  # ... which is as good with more, to one part in twenty; also of rows that were fitted
COLD = 5e-4  # noise of a cell, as a fraction of the table, below which a replica needs more rows and a whole warm-up
TEMPERATURE = 0.6  # standard deviations of the noise in a cell of a pair's table
LEAST_TEMPERATURE = 1e-5  # of the rows: below it a chain freezes before it has mixed
VISIT_SECONDS = 2.5e-9  # per value looked at
COUNT_SECONDS = 2e-9  # per record and table, two cores
INTERPRETER_BYTES = 200_000_000


@dataclass(frozen=True)
class Effort:
    """How many rows, in how many chains, and how often they are looked at. Public."""

    chains: int
    chain_rows: int
    snapshots: int
    rows: int
    warm_up: tuple[float, ...] = field(default=WARM_UP, metadata={"hidden": True})

    @staticmethod
    def of(rows: int | None) -> Effort:
        """Up to a limit a chain holds CHAIN_ROWS; then more snapshots are kept, then longer chains."""
        if rows is None:
            rows = CHAINS * CHAIN_ROWS * SNAPSHOTS
        if rows < 1:
            raise DualQueryError("--synthetic-rows must be at least 1")
        chains = min(CHAINS, rows)
        chain_rows = min(-(-rows // chains), CHAIN_ROWS)
        snapshots = min(SNAPSHOTS, -(-rows // (chains * chain_rows)))
        return Effort(chains, -(-rows // (chains * snapshots)), snapshots, rows)

    def shorter(self, noise: float) -> Effort:
        """Of a replica (`mechanisms.error_bars`), given the noise of a cell: the less, the longer it takes."""
        if noise < COLD:
            return Effort.of(min(self.rows, CHAIN_ROWS))
        return replace(Effort.of(min(self.rows, REPLICA_ROWS)), warm_up=SHORT_WARM_UP)

    @property
    def rounds(self) -> int:
        return len(self.warm_up) + self.snapshots

    @property
    def work(self) -> int:
        """How often a row is looked at."""
        return self.chains * self.chain_rows * self.rounds

    def seconds(self, visits: float, noise: float) -> float:
        """The time of a fit and of its replicas, on two cores, where a row looks at so many values."""
        work = self.work + REPLICAS * self.shorter(noise).work
        return work * (visits * VISIT_SECONDS + 2e-6) / 2

    def bytes(self, width: int, cells: float) -> int:
        """Residuals of all chains, the rows of all rounds, and what counting and the interpreter take."""
        rows = self.chains * self.chain_rows * width * (4 + self.rounds)
        return int(4 * self.chains * cells + 8 * cells + rows + INTERPRETER_BYTES)

    def temperatures(self, noise: float, times: float = TEMPERATURE) -> list[float]:
        """One a round, in rows: so many times the noise of a cell, which is a fraction of the table."""
        last = self.chain_rows * max(times * noise, LEAST_TEMPERATURE)
        return [last * factor for factor in self.warm_up] + [last] * self.snapshots

    def released(self, transcript: Transcript[Residual, Chains]) -> NDArray[np.unsignedinteger]:
        """The rows of the last rounds, of all chains, cut to the number asked for."""
        return self.cut(np.concatenate(transcript.replies[-self.snapshots :], axis=1))

    def cut(self, chains: Chains) -> NDArray[np.unsignedinteger]:
        """As many rows as were asked for, the same number from every chain."""
        return np.concatenate(list(chains.transpose(1, 0, 2)))[: self.rows]


@dataclass(frozen=True)
class Fitting:
    """How rows are fitted to a measurement, and become records."""

    fit: Callable[[Effort, np.random.Generator, Done], Rows]
    records: Callable[[Rows, np.random.Generator], Records]
    settled: Any = None  # the way, with what was chosen on it fixed; None where nothing was


SCOUT = Effort(1, 5_000, 2, 5_000, warm_up=())  # of rows that are refitted after every measurement
