"""Fitting rows to one-way tables and a few chosen pairs, or to one-way tables alone.

Nothing here knows of privacy: measurements are public by the time they are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import Set, Targets, TargetsMaker
from dualquery.mechanisms.projection.fit import play_residual, product_start
from dualquery.mechanisms.projection.fitting import Rows
from dualquery.mechanisms.projection.pace import LEAST_TEMPERATURE, Pace
from dualquery.mechanisms.projection.shrinkage import shrunk
from dualquery.mechanisms.projection.tables import MeasuredTables

CELLS_OF_A_GROUP = 400  # that the law of shrinkage is learned from, at least
TEMPERATURE = (
    0.3  # standard deviations of the noise in a cell: few pairs, each known well, are followed closely
)

Progress = Callable[[int, int], None]


def fit_ones(measured: MeasuredTables, pace: Pace, rng: np.random.Generator, progress: Progress) -> Rows:
    """Rows whose attributes are independent."""
    wide = replace(pace, chains=1, chain_rows=pace.rows)
    rows = product_start(measured.domain, measured.ones(), wide, rng)[0]
    progress(1, 1)
    return rows


def fit_chosen(measured: MeasuredTables, pace: Pace, rng: np.random.Generator, progress: Progress) -> Rows:
    """Rows that answer the residual of one-way tables and the pairs that were chosen, and of no other."""
    ones = measured.ones()
    targets, noise = targets_of(measured, ones, rng)
    start = product_start(measured.domain, ones, pace, rng)
    return pace.released(play_residual(targets, ones, start, temperatures(pace, noise), rng, progress))


def temperatures(pace: Pace, noise: float) -> list[float]:
    """One a round, in rows, given the noise of a cell as a fraction of the table."""
    last = pace.chain_rows * max(TEMPERATURE * noise, LEAST_TEMPERATURE)
    return [last * factor for factor in pace.warm_up] + [last] * pace.snapshots


def targets_of(
    measured: MeasuredTables, ones: Mapping[int, Cells], rng: np.random.Generator
) -> tuple[Targets, float]:
    """What the rows should answer, and the noise of a cell; pairs are shrunk among those of alike strength."""
    pairs: list[Set] = [members for members in measured.interactions if len(members) == 2]
    deviation = {members: measured.deviation(members) for members in pairs}
    noise = 1 / math.sqrt(float(np.mean([deviation[members] ** -2 for members in pairs])))
    noisy = {members: measured.table(members) for members in pairs}
    mean: dict[Set, Cells] = {(i, j): np.outer(ones[i], ones[j]) for i, j in pairs}
    strength = {s: _strength(noisy[s], mean[s], deviation[s]) for s in pairs}
    maker = TargetsMaker(measured.domain.sizes.astype(np.int64))
    for j, target in ones.items():
        maker.add_table((j,), target, (noise / measured.deviation((j,))) ** 2)
    for group in _groups(sorted(pairs, key=lambda s: -strength[s]), noisy):
        tables = [noisy[members] for members in group]
        shrunken = shrunk(
            np.concatenate([table.ravel() for table in tables]),
            np.concatenate([mean[members].ravel() for members in group]),
            np.repeat([deviation[members] for members in group], [table.size for table in tables]),
            rng,
        )
        parts = np.split(shrunken, np.cumsum([table.size for table in tables])[:-1])
        for members, part in zip(group, parts, strict=True):
            target = part.reshape(noisy[members].shape)
            maker.add_table(members, target, (noise / deviation[members]) ** 2)
    return maker.targets(), noise


def _strength(noisy: Cells, mean: Cells, deviation: float) -> float:
    """By how many standard deviations a table is farther from independence than noise alone would put it."""
    return float(((noisy - mean) ** 2 / deviation**2 - 1).sum()) / math.sqrt(2 * noisy.size)


def _groups(pairs: Sequence[Set], tables: Mapping[Set, Cells]) -> list[list[Set]]:
    """Consecutive pairs, of at least so many cells together; what is left over joins the last."""
    groups: list[list[Set]] = [[]]
    cells = 0
    for members in pairs:
        if cells >= CELLS_OF_A_GROUP:
            groups.append([])
            cells = 0
        groups[-1].append(members)
        cells += tables[members].size
    if cells < CELLS_OF_A_GROUP and len(groups) > 1:
        last = groups.pop()
        groups[-1].extend(last)
    return groups
