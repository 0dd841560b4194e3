"""Fitting rows to what was measured: the residual challenges, and rows answer it one after another.

Nothing here knows of privacy: measurements are public by the time they are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dualquery.game.best_response_data_player import RowDataPlayer
from dualquery.game.moves import Cells, Residual, Transcript
from dualquery.game.play import play
from dualquery.game.residual import Chains, ResidualQueryPlayer, Set, Targets, TargetsMaker
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.shrinkage import shrunk
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.table.domain import Domain
from dualquery.table.records import smallest_type

Progress = Callable[[int, int], None]  # rounds done, of how many


def targets_of(
    measured: MeasuredTables, ones: Mapping[int, Cells], rng: np.random.Generator
) -> tuple[Targets, float]:
    """What the rows should answer, and the noise of a cell (τ) that weights and temperature are relative to.

    Pairs are shrunk around independence, all of them together; weights are inverse variances.
    """
    sizes = measured.domain.sizes.astype(np.int64)
    pairs: list[Set] = [members for members in measured.interactions if len(members) == 2]
    base: list[Set] = pairs or [(j,) for j in ones]
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
    measured: MeasuredTables, pairs: list[Set], ones: Mapping[int, Cells], rng: np.random.Generator
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
    measured: MeasuredTables, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Fit rows to a measurement."""
    ones = measured.ones()
    targets, noise = targets_of(measured, ones, rng)
    start = product_start(measured.domain, ones, pace, rng)
    return play_residual(targets, ones, start, pace.temperatures(noise), rng, progress)


def play_residual(
    targets: Targets,
    ones: Mapping[int, Cells],
    start: Chains,
    temperatures: Sequence[float],
    rng: np.random.Generator,
    progress: Progress,
) -> Transcript[Residual, Chains]:
    """Play the residual of some targets against chains of rows, one round a temperature."""
    return play(
        ResidualQueryPlayer(temperatures),
        RowDataPlayer(targets, ones, start, rng),
        rounds=len(temperatures),
        progress=progress,
    )
