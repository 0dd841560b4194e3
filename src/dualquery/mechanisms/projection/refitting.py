"""The data player of adaptive projection: rows that answer the residual of everything heard so far.

Nothing here knows of privacy: what is heard was measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualquery.game.moves import Cells, Heard, Transcript
from dualquery.game.residual import Chains, Set, Targets, TargetsMaker
from dualquery.mechanisms.projection.fit import Progress, play_residual, product_start
from dualquery.mechanisms.projection.pace import TEMPERATURE, Pace
from dualquery.mechanisms.projection.shrinkage import shrunk
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.table.records import Records

SCOUT_ROWS = 5_000  # of the single chain that is refitted after every measurement
SCOUT_PASSES = 2
SCOUT = Pace(1, SCOUT_ROWS, 1, SCOUT_ROWS)


class Known:
    """The one-way tables that were measured first, and the noise of a cell of every later table, in fractions."""

    def __init__(self, measured: MeasuredTables, noise: float) -> None:
        self.domain = measured.domain
        self.ones = measured.ones()
        self.deviations = {j: measured.deviation((j,)) for j in self.ones}
        self.noise = noise

    def targets(self, noisy: Mapping[Set, Cells], rng: np.random.Generator) -> Targets:
        """One-way tables and the chosen ones, shrunk around independence; weights are inverse variances."""
        maker = TargetsMaker(self.domain.sizes.astype(np.int64))
        for j, target in self.ones.items():
            maker.add_table((j,), target, (self.noise / self.deviations[j]) ** 2)
        for members, cells in noisy.items():
            mean = np.ones(())
            for j in members:
                mean = np.multiply.outer(mean, self.ones[j])
            target = shrunk(cells.ravel(), mean.ravel(), np.full(cells.size, self.noise), rng)
            maker.add_table(members, target.reshape(cells.shape), 1.0)
        return maker.targets()

    def fitted(
        self, noisy: Mapping[Set, Cells], pace: Pace, rng: np.random.Generator, progress: Progress
    ) -> Records:
        """Rows fitted to these tables at full length."""
        targets = self.targets(noisy, rng)
        start = product_start(self.domain, self.ones, pace, rng)
        transcript = play_residual(targets, self.ones, start, pace.temperatures(self.noise), rng, progress)
        return Records.from_rows(self.domain, pace.released(transcript))


class RefittingDataPlayer:
    """Keeps one chain of rows, refitted to all tables heard so far after each new one."""

    def __init__(self, known: Known, start: Chains, rng: np.random.Generator) -> None:
        self._known = known
        self._rows = start
        self._rng = rng
        self._heat = [SCOUT_ROWS * TEMPERATURE * known.noise] * SCOUT_PASSES

    def reply(self, transcript: Transcript[Heard, Chains], challenge: Heard) -> Chains:
        noisy = {each.members: each.value for each in (*transcript.challenges, challenge)}
        targets = self._known.targets(noisy, self._rng)
        fit = play_residual(
            targets, self._known.ones, self._rows, self._heat, self._rng, lambda done, total: None
        )
        self._rows = fit.last_reply()
        return self._rows
