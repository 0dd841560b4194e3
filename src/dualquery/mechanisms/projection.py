"""Projection by best responses: measure once, then let rows answer the residual one after another.

The query player asks the curator a single question, all planned tables with Gaussian noise, and from then on
plays the public residual; the data player best-responds row by row (`game.row_players`). Everything after the
measurement is post-processing. The projection mechanism is of Nikolov, Talwar and Zhang (2013) and Dwork,
Nikolov and Talwar (2014); playing it row by row gives the synthetic data as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Transcript
from dualquery.game.play import play
from dualquery.game.row_players import (
    Chains,
    Residual,
    ResidualQueryPlayer,
    RowDataPlayer,
    Targets,
    TargetsMaker,
)
from dualquery.mechanisms.measurement import TablePlan, plan_tables
from dualquery.mechanisms.pace import Pace
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.mechanisms.shrinkage import cell_variance, onto_simplex, reconstructed, shrunk
from dualquery.privacy.curator import Curator
from dualquery.privacy.interactions import measure_interactions
from dualquery.table.domain import Domain
from dualquery.table.records import Records, smallest_type

Set = tuple[int, ...]
Cells = NDArray[np.float64]

@dataclass(frozen=True)
class Measured:
    """What came back: interactions in records, the variance of their noise, and the number of records."""

    domain: Domain
    interactions: Mapping[Set, Cells]
    variance: Mapping[Set, float]
    total: float

    def table(self, members: Set) -> Cells:
        """The table over a set as fractions, with all its noise."""
        return reconstructed(members, self.interactions, self.domain.sizes) / self.total

    def deviation(self, members: Set) -> float:
        """The standard deviation of a cell of that table."""
        return math.sqrt(cell_variance(members, self.variance, self.domain.sizes)) / self.total


def measure(curator: Curator, plan: TablePlan, shape: Shape) -> Measured:
    """Ask the curator once for everything that is planned."""
    interactions = measure_interactions(curator, plan.interactions)
    variance = plan.noise(shape.domain.sizes)
    if () not in interactions:  # between tables of one length the length is public
        interactions[()] = np.array(float(shape.rows))
        variance[()] = 0.0
    return Measured(shape.domain, interactions, variance, max(1.0, float(interactions[()])))


def fractions_of_ones(measured: Measured) -> dict[int, Cells]:
    """The one-way tables as distributions."""
    return {
        members[0]: onto_simplex(measured.table(members), 1.0)
        for members in measured.interactions
        if len(members) == 1
    }


def targets_of(
    measured: Measured, ones: Mapping[int, Cells], rng: np.random.Generator
) -> tuple[Targets, float]:
    """What the rows should answer, and the noise of a cell (τ) that weights and temperature are relative to.

    Pairs are shrunk around independence, all of them together; weights are inverse variances.
    """
    sizes = measured.domain.sizes.astype(np.int64)
    pairs = [members for members in measured.interactions if len(members) == 2]
    base = pairs or [(j,) for j in ones]
    noise = 1 / math.sqrt(float(np.mean([measured.deviation(members) ** -2 for members in base])))
    maker = TargetsMaker(sizes)
    for j, target in ones.items():
        maker.add_table((j,), target, (noise / measured.deviation((j,))) ** 2)
    for members, target in _shrunk_pairs(measured, pairs, ones, rng).items():
        maker.add_table(members, target, (noise / measured.deviation(members)) ** 2)
    for members, cells in measured.interactions.items():
        if len(members) > 2:
            deviation = math.sqrt(measured.variance[members]) / measured.total
            maker.add_interaction(members, cells / measured.total, (noise / deviation) ** 2)
    return maker.targets(), noise


def _shrunk_pairs(
    measured: Measured, pairs: list[Set], ones: Mapping[int, Cells], rng: np.random.Generator
) -> dict[Set, Cells]:
    if not pairs:
        return {}
    tables = [measured.table(members) for members in pairs]
    noisy = np.concatenate([table.ravel() for table in tables])
    mean = np.concatenate([np.outer(ones[i], ones[j]).ravel() for i, j in pairs])
    deviations = [measured.deviation(members) for members in pairs]
    deviation = np.repeat(deviations, [table.size for table in tables])
    ends = np.cumsum([table.size for table in tables])[:-1]
    parts = np.split(shrunk(noisy, mean, deviation, rng), ends)
    return {
        members: part.reshape(table.shape) for members, part, table in zip(pairs, parts, tables, strict=True)
    }


def product_start(domain: Domain, ones: Mapping[int, Cells], pace: Pace, rng: np.random.Generator) -> Chains:
    """Rows whose attributes are independent; an attribute that was not measured is uniform."""
    kind = smallest_type(int(domain.sizes.max()))
    out = np.empty((pace.chains, pace.chain_rows, domain.width), kind)
    for j in range(domain.width):
        size = int(domain.sizes[j])
        if j in ones:
            edges = np.cumsum(ones[j])
            place = rng.random(out.shape[:2]) * edges[-1]
            out[:, :, j] = np.minimum(np.searchsorted(edges, place, side="right"), size - 1)
        else:
            out[:, :, j] = rng.integers(0, size, out.shape[:2])
    return out


def fit(
    measured: Measured, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Play the residual against chains of rows for a fixed number of rounds."""
    ones = fractions_of_ones(measured)
    targets, noise = targets_of(measured, ones, rng)
    temperatures = pace.temperatures(noise)
    query_player = ResidualQueryPlayer(temperatures)
    data_player = RowDataPlayer(targets, ones, product_start(measured.domain, ones, pace, rng), rng)
    return play(
        query_player,
        data_player,
        rounds=len(temperatures),
        progress=lambda done, total: progress("fitting rows", done, total),
    )
