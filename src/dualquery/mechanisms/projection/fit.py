"""Fitting rows to what was measured: the residual challenges, and rows answer it one after another.

Rows are fitted to one-way tables and pairs first. Where larger sets were measured, they are then shrunk
around what these rows say of them, and the rows, joined to long chains, are fitted once more. Nothing here
knows of privacy: measurements are public by the time they are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.game.binary_rows import row_data_player
from dualquery.game.moves import Cells, Residual, Transcript
from dualquery.game.play import play
from dualquery.game.residual import Chains, ResidualQueryPlayer, Set, Targets, TargetsMaker
from dualquery.mechanisms.projection.likely import likely_larger, likely_pairs
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.mechanisms.projection.tree import tree_lean, tree_of
from dualquery.queries.rules import structural_zeros, zeros_of
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.table.records import Records, smallest_type

Progress = Callable[[int, int], None]  # rounds done, of how many
Rows = NDArray[np.unsignedinteger]

LIKELY = 0.6  # of a pair's target: what it is likely to be; the rest is what was measured
LEANING = 1.5  # temperature of a fit that leans to a tree, or to nothing, in units of a cell's noise
LONG = 0.6  # the same for long chains that are fitted to larger sets as well
LONG_ROUNDS = (2.0, 1.0, 1.0)  # their temperatures
LEAST_TEMPERATURE = 1e-5  # of the rows
NEVER = -40.0  # the logarithm of how likely a combination is that a rule of the schema excludes
MOST_MEMBERS, MOST_ZEROS = 3, 200_000  # attributes and cells of a rule that rows are told; others are mended
LARGE = 10.0  # a cell of so many deviations gets half of what the temperature took from it back


@dataclass(frozen=True)
class Wanted:
    """What rows should answer: one-way tables, pairs as they are likely to be, and the noise (τ) of a pair's
    cell.
    """

    measured: MeasuredTables
    ones: Mapping[int, Cells]
    likely: Mapping[Set, Cells]
    noise: float

    @staticmethod
    def of(measured: MeasuredTables, rng: np.random.Generator) -> Wanted:
        ones = {j: without_zeros(measured.domain, (j,), cells) for j, cells in measured.ones().items()}
        base: list[Set] = measured.of_order(2) or measured.of_order(1)
        noise = 1 / math.sqrt(float(np.mean([measured.deviation(members) ** -2 for members in base])))
        likely = likely_pairs(measured, ones, rng)
        return Wanted(
            measured,
            ones,
            {s: without_zeros(measured.domain, s, cells) for s, cells in likely.items()},
            noise,
        )

    def pairs(self) -> dict[Set, Cells]:
        """The target of each pair."""
        measured = {s: without_zeros(self.measured.domain, s, self.measured.table(s)) for s in self.likely}
        return {s: LIKELY * cells + (1 - LIKELY) * measured[s] for s, cells in self.likely.items()}

    def maker(self, pairs: Mapping[Set, Cells]) -> TargetsMaker:
        """One-way tables and these pairs; weights are inverse variances."""
        maker = TargetsMaker(self.measured.domain.sizes.astype(np.int64))
        for j, target in self.ones.items():
            maker.add_table((j,), target, (self.noise / self.measured.deviation((j,))) ** 2)
        for members, target in pairs.items():
            maker.add_table(members, target, (self.noise / self.measured.deviation(members)) ** 2)
        for zeros in structural_zeros(self.measured.domain):
            if len(zeros.members) <= MOST_MEMBERS and zeros.impossible.size <= MOST_ZEROS:
                maker.add_lean(zeros.members, np.where(zeros.impossible, NEVER, 0.0), self.heat(LEANING))
        return maker

    def add_larger(self, maker: TargetsMaker, interactions: Mapping[Set, Cells]) -> None:
        """Interactions of three and more attributes, in fractions."""
        for members, cells in interactions.items():
            deviation = math.sqrt(self.measured.variance[members]) / self.measured.total
            maker.add_interaction(members, cells, (self.noise / deviation) ** 2)

    def at_once(self) -> Targets:
        """Everything that was measured, larger sets as they came."""
        maker, measured = self.maker(self.pairs()), self.measured
        self.add_larger(maker, {s: measured.interactions[s] / measured.total for s in measured.larger()})
        return maker.targets()

    def heat(self, times: float) -> float:
        """A temperature, in fractions of the rows."""
        return max(times * self.noise, LEAST_TEMPERATURE)

    def added_back(self, pairs: Mapping[Set, Cells], rows: Records) -> dict[Set, Cells]:
        """Targets raised where rows fall short of them: a temperature holds rows back, and large cells
        notice.

        Half of the shortfall is added to a cell of `LARGE` deviations, nearly all to larger ones, little to
        small ones.
        """
        tables = Tables(self.measured.domain, tuple(pairs))
        fractions = tables.counts(rows) / rows.rows
        out = {}
        for t, (members, target) in enumerate(pairs.items()):
            answer = fractions[tables.cells_of(t)].reshape(tables.shape_of(t))
            likely = self.likely[members]
            part = likely / (likely + LARGE * self.measured.deviation(members))
            out[members] = target + part * (target - answer)
        return out


def without_zeros(domain: Domain, members: Set, cells: Cells) -> Cells:
    """A table without what it says of combinations that no record can have: that is all noise."""
    zeros = zeros_of(domain, members) if domain.rules else None
    return cells if zeros is None else np.where(zeros, 0.0, cells)


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
    measured: MeasuredTables, pace: Pace, rng: np.random.Generator, progress: Progress, *, at_once: bool
) -> Rows:
    """Fit rows to a measurement: to all of it `at_once`, or to pairs first and then to larger sets as well.

    At once is right for small tables that are all measured: there is nothing that rows could add to them.
    """
    wanted = Wanted.of(measured, rng)
    start = product_start(measured.domain, wanted.ones, pace, rng)
    larger = measured.larger()
    if larger and at_once:
        last = pace.chain_rows * wanted.heat(LEANING)
        heat = [last * factor for factor in pace.warm_up] + [last] * pace.snapshots
        return pace.released(play_residual(wanted.at_once(), wanted.ones, start, heat, rng, progress))
    rounds = pace.rounds + (len(LONG_ROUNDS) if larger else 0)
    first = fit_pairs(wanted, start, pace, rng, lambda done, _: progress(done, rounds))
    if not larger:
        return pace.released(first)
    joined = np.concatenate(first.replies[-pace.snapshots :], axis=1)
    return pace.cut(
        fit_larger(wanted, joined, rng, lambda done, _: progress(pace.rounds + done, rounds)).last_reply()
    )


def fit_pairs(
    wanted: Wanted, start: Chains, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Rows that lean to the tree of the pairs that say most; once they are warm, large cells are mended."""
    heat = wanted.heat(LEANING)
    tree, pairs, last = tree_of(wanted.likely, wanted.ones), wanted.pairs(), pace.chain_rows * heat

    def targets(pairs: Mapping[Set, Cells]) -> Targets:
        maker = wanted.maker(pairs)
        for i, j in tree:
            lean = tree_lean(wanted.likely[i, j], wanted.ones[i], wanted.ones[j], wanted.noise)
            maker.add_lean((i, j), lean, heat)
        return maker.targets()

    warm = play_residual(
        targets(pairs), wanted.ones, start, [last * factor for factor in pace.warm_up], rng, progress
    )
    rows = warm.last_reply()
    if pairs:
        pairs = wanted.added_back(pairs, _as_records(wanted.measured.domain, rows))
    return play_residual(
        targets(pairs),
        wanted.ones,
        rows,
        [last] * pace.snapshots,
        rng,
        lambda done, _: progress(len(pace.warm_up) + done, pace.rounds),
    )


def fit_larger(
    wanted: Wanted, start: Chains, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Rows that were fitted to pairs, fitted to larger sets as well, each shrunk around what the rows say of
    it.
    """
    likely = likely_larger(wanted.measured, _as_records(wanted.measured.domain, start), rng)
    maker = wanted.maker(wanted.pairs())
    wanted.add_larger(maker, {members: centred(cells) for members, cells in likely.items()})
    last = start.shape[1] * wanted.heat(LONG)
    heat = [last * factor for factor in LONG_ROUNDS]
    return play_residual(maker.targets(), wanted.ones, start, heat, rng, progress)


def _as_records(domain: Domain, chains: Chains) -> Records:
    return Records.from_rows(domain, chains.reshape(-1, domain.width))


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
        row_data_player(targets, ones, start, rng),
        rounds=len(temperatures),
        progress=progress,
    )
