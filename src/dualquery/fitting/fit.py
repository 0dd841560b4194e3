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

from dualquery.fitting.effort import (
    LEAST_TEMPERATURE,
    SCOUT,
    SHORT_WARM_UP,
    TEMPERATURE,
    Chains,
    Effort,
    Rows,
)
from dualquery.fitting.measured import Measured, MeasuredTables, interactions_told
from dualquery.fitting.posteriors import likely_larger, likely_pairs, tree_lean, tree_of
from dualquery.fitting.rows import Targets, play_residual, product_start
from dualquery.game.moves import Residual, Transcript
from dualquery.queries.rules import structural_zeros, zeros_of
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Cells, Done, Set

LIKELY = 0.6  # of a pair's target, where all pairs are measured
CERTAIN = (
    40.0  # a cell of so many deviations is half as much what it is likely to be: shrinking holds it back
)
LEANING = 1.5  # temperature of a fit that leans to a tree, or to nothing, in units of a cell's noise
AT_ONCE = 0.25  # temperature of a fit to everything at once, in units of how noise pulls at it
NEVER = -40.0  # the logarithm of how likely a combination is that a rule of the schema excludes
MOST_MEMBERS, MOST_ZEROS = 3, 200_000  # attributes and cells of a rule that rows are told; others are mended
LARGE = 30.0  # a cell of so many deviations gets half of what the temperature took from it back


@dataclass(frozen=True)
class PairTargets:
    """What rows should answer: one-way tables, pairs as they are likely to be, and the noise (τ) of a pair's
    cell.
    """

    measured: MeasuredTables
    ones: Mapping[int, Cells]
    likely: Mapping[Set, Cells]
    noise: float
    part: float = LIKELY

    @staticmethod
    def of(measured: MeasuredTables, rng: np.random.Generator, part: float = LIKELY) -> PairTargets:
        ones = {j: without_zeros(measured.domain, (j,), cells) for j, cells in measured.ones().items()}
        base: list[Set] = measured.of_order(2) or measured.of_order(1)
        noise = 1 / math.sqrt(float(np.mean([measured.deviation(members) ** -2 for members in base])))
        return PairTargets(measured, ones, likely_pairs(measured, ones, rng), noise, part)

    def pairs(self) -> dict[Set, Cells]:
        """The target of each pair; the larger a cell is, the more it is left as it was measured."""
        out = {}
        for members, cells in self.likely.items():
            part = self.part * (1 - cells / (cells + CERTAIN * self.measured.deviation(members)))
            target = part * cells + (1 - part) * self.measured.table(members)
            out[members] = without_zeros(self.measured.domain, members, target)
        return out

    def targets(self, pairs: Mapping[Set, Cells]) -> Targets:
        """One-way tables and these pairs; weights are inverse variances."""
        targets = Targets(self.measured.domain.sizes.astype(np.int64))
        for j, target in self.ones.items():
            targets.add_table((j,), target, (self.noise / self.measured.deviation((j,))) ** 2)
        for members, target in pairs.items():
            targets.add_table(members, target, (self.noise / self.measured.deviation(members)) ** 2)
        for zeros in structural_zeros(self.measured.domain):
            if len(zeros.members) <= MOST_MEMBERS and zeros.impossible.size <= MOST_ZEROS:
                targets.add_lean(zeros.members, np.where(zeros.impossible, NEVER, 0.0), self.heat(LEANING))
        return targets

    def add_larger(self, targets: Targets, interactions: Mapping[Set, Cells]) -> None:
        """Interactions of three and more attributes, in fractions."""
        for members, cells in interactions.items():
            deviation = math.sqrt(self.measured.variance[members]) / self.measured.total
            targets.add_interaction(members, cells, (self.noise / deviation) ** 2)

    def pull(self) -> float:
        """By how much noise pulls at a value of a row, in units of τ: √(mean_j Σ_{S ∋ j} w_S).

        Every measured set S moves the loss of a value by w_S times its noise, of deviation τ/√w_S.
        """
        measured, weight = self.measured, 0.0
        for members, variance in measured.variance.items():
            if not members:
                continue  # the number of records
            of_cell = (
                measured.deviation(members) if len(members) < 3 else math.sqrt(variance) / measured.total
            )
            weight += len(members) * (self.noise / of_cell) ** 2
        return math.sqrt(weight / len(self.ones))

    @property
    def single_numbers(self) -> bool:
        """Whether pairs of attributes of two values are all there is: each interaction is a single number."""
        return bool((self.measured.domain.sizes == 2).all()) and not self.measured.larger()

    def at_once(self) -> Targets:
        """Everything that was measured, larger sets as they came, and pairs where they are single numbers: no
        other cell tells anything about those, and to shrink them is only to bias them.
        """
        measured = self.measured
        pairs = {s: measured.table(s) for s in self.likely} if self.single_numbers else self.pairs()
        targets = self.targets(pairs)
        self.add_larger(targets, {s: measured.interactions[s] / measured.total for s in measured.larger()})
        return targets

    def heat(self, times: float) -> float:
        """A temperature, in fractions of the rows."""
        return max(times * self.noise, LEAST_TEMPERATURE)

    def added_back(self, pairs: Mapping[Set, Cells], rows: Records) -> dict[Set, Cells]:
        """Targets raised where rows fall short of them: a temperature, and targets below zero that no rows can
        reach, hold rows back, and large cells notice.

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


def fit(
    measured: MeasuredTables,
    effort: Effort,
    rng: np.random.Generator,
    progress: Done,
    *,
    at_once: bool,
    likely: float = LIKELY,
) -> Rows:
    """Fit rows to a measurement: to all of it `at_once`, or to pairs first and then to larger sets as well.

    At once is right for small tables that are all measured: there is nothing that rows could add to them, and
    where attributes have two values, nothing that a tree could. `likely` is the part of a pair's target that is
    what it is likely to be; the rest is what was measured.
    """
    wanted = PairTargets.of(measured, rng, likely)
    start = product_start(measured.domain, wanted.ones, effort, rng)
    larger = measured.larger()
    if at_once and (larger or wanted.single_numbers):
        last = effort.chain_rows * wanted.heat(AT_ONCE * wanted.pull())
        heat = [last * factor for factor in effort.warm_up] + [last] * effort.snapshots
        return effort.released(play_residual(wanted.at_once(), wanted.ones, start, heat, rng, progress))
    rounds = effort.rounds + (len(SHORT_WARM_UP) + 1 if larger else 0)
    first = fit_pairs(wanted, start, effort, rng, lambda done, _: progress(done, rounds))
    if not larger:
        return effort.released(first)
    joined = np.concatenate(first.replies[-effort.snapshots :], axis=1)
    return effort.cut(
        fit_larger(wanted, joined, rng, lambda done, _: progress(effort.rounds + done, rounds)).last_reply()
    )


def fit_pairs(
    wanted: PairTargets, start: Chains, effort: Effort, rng: np.random.Generator, progress: Done
) -> Transcript[Residual, Chains]:
    """Rows that lean to the tree of the pairs that say most."""
    heat = wanted.heat(LEANING)
    tree, last = tree_of(wanted.likely, wanted.ones), effort.chain_rows * heat

    def targets(pairs: Mapping[Set, Cells]) -> Targets:
        made = wanted.targets(pairs)
        for i, j in tree:
            lean = tree_lean(wanted.likely[i, j], wanted.ones[i], wanted.ones[j], wanted.noise)
            made.add_lean((i, j), lean, heat)
        return made

    warm = [last * factor for factor in effort.warm_up]
    return fit_and_mend(wanted, targets, start, (warm, [last] * effort.snapshots), rng, progress)


def fit_larger(
    wanted: PairTargets, start: Chains, rng: np.random.Generator, progress: Done
) -> Transcript[Residual, Chains]:
    """Rows that were fitted to pairs, fitted to larger sets as well, each shrunk around what the rows say of
    it.
    """
    likely = likely_larger(wanted.measured, _as_records(wanted.measured.domain, start), rng)
    last = start.shape[1] * wanted.heat(TEMPERATURE)

    def targets(pairs: Mapping[Set, Cells]) -> Targets:
        made = wanted.targets(pairs)
        wanted.add_larger(made, {members: centred(cells) for members, cells in likely.items()})
        return made

    warm = [last * factor for factor in SHORT_WARM_UP]
    return fit_and_mend(wanted, targets, start, (warm, [last]), rng, progress)


def fit_and_mend(
    wanted: PairTargets,
    targets: Callable[[Mapping[Set, Cells]], Targets],
    start: Chains,
    temperatures: tuple[Sequence[float], Sequence[float]],
    rng: np.random.Generator,
    progress: Done,
) -> Transcript[Residual, Chains]:
    """Fit rows to pairs, and whatever else targets are made of; once they are warm, raise the pairs where rows fall
    short of them, and fit on.
    """
    pairs, (warm, last) = wanted.pairs(), temperatures
    rounds = len(warm) + len(last)
    rows = play_residual(
        targets(pairs), wanted.ones, start, warm, rng, lambda done, _: progress(done, rounds)
    ).last_reply()
    if pairs:
        pairs = wanted.added_back(pairs, _as_records(wanted.measured.domain, rows))
    return play_residual(
        targets(pairs), wanted.ones, rows, last, rng, lambda done, _: progress(len(warm) + done, rounds)
    )


def _as_records(domain: Domain, chains: Chains) -> Records:
    return Records.from_rows(domain, chains.reshape(-1, domain.width))


class RefittingDataPlayer:
    """Keeps one chain of rows, refitted to everything known so far after each signed table that is heard."""

    def __init__(self, known: MeasuredTables, start: Chains, rng: np.random.Generator) -> None:
        self.known = known
        self._rows = start
        self._rng = rng

    def reply(self, transcript: Transcript[Measured, Chains], challenge: Measured) -> Chains:
        self.known = self.known.joined(interactions_told(challenge, self.known.domain)).counted()
        wanted = PairTargets.of(self.known, self._rng)
        heat = [SCOUT.rows * wanted.heat(TEMPERATURE)] * SCOUT.rounds
        played = play_residual(
            wanted.at_once(), wanted.ones, self._rows, heat, self._rng, lambda done, total: None
        )
        self._rows = played.last_reply()
        return self._rows
