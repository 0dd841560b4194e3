"""Fitting rows to what was measured: the residual challenges, and rows answer it one after another.

Rows are fitted to one-way tables and pairs first. Where larger sets were measured, they are then shrunk
around what these rows say of them, and the rows, joined to long chains, are fitted once more. Nothing here
knows of privacy: measurements are public by the time they are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from dualquery.fitting.cpu import COMPILED
from dualquery.fitting.fitter import (
    LEAST_TEMPERATURE,
    SCOUT,
    SHORT_WARM_UP,
    TEMPERATURE,
    Chains,
    Effort,
    Fitter,
    ItemTargets,
    Rows,
    Targets,
    usual_fitter,
)
from dualquery.fitting.measured import Measured, MeasuredTables, interactions_told
from dualquery.fitting.posteriors import denoised, likely_larger, likely_pairs, tree_lean, tree_of
from dualquery.fitting.smooth import Slopes, heard_of
from dualquery.game import Transcript
from dualquery.queries.rules import structural_zeros, zeros_of
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.table.records import Records, smallest_type
from dualquery.types import Cells, Done, Set

Tick = Callable[[], None]  # after every pass

LIKELY = 0.6  # of a pair's target: where signed tables tell pairs
MORE_LIKELY = 0.8  # where all pairs are measured by themselves; all of it where few are
CERTAIN = (
    40.0  # of a cell of so many deviations half as much is what it is likely to be: shrinking holds it back
)
LEANING = 1.5  # temperature of a fit that leans to a tree, or to nothing, in units of a cell's noise
AT_ONCE = 0.25  # temperature of a fit to everything at once, in units of how noise pulls at it
NEVER = -40.0  # the logarithm of how likely a combination is that a rule of the schema excludes
MOST_MEMBERS, MOST_ZEROS = 3, 200_000  # attributes and cells of a rule that rows are told; others are mended
LARGE = 30.0  # a cell of so many deviations gets half of what the temperature took from it back


@dataclass(frozen=True)
class PairTargets:
    """What rows should answer: one-way tables, pairs as they are likely to be, and the noise (τ) of a pair's cell."""

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
        targets = Targets(self.measured.domain.sizes, self.ones)
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

    def added_back(self, pairs: Mapping[Set, Cells], answers: Mapping[Set, Cells]) -> dict[Set, Cells]:
        """Targets raised where rows fall short of them: a temperature, and targets below zero that no rows can
        reach, hold rows back, and large cells notice.

        Half of the shortfall is added to a cell of `LARGE` deviations, nearly all to larger ones, little to
        small ones.
        """
        out = {}
        for members, target in pairs.items():
            likely = self.likely[members]
            part = likely / (likely + LARGE * self.measured.deviation(members))
            out[members] = target + part * (target - answers[members])
        return out

    def lean_to_slopes(self, targets: Targets, answers: Mapping[Set, Cells], times: float) -> None:
        """Let rows that answer so lean to the likely slopes, at a temperature of so many times the noise."""
        leans = Slopes.of(self.measured, self.ones).leans(answers)
        for members, logarithms in leans.items():
            targets.add_lean(members, logarithms, self.heat(times))


def without_zeros(domain: Domain, members: Set, cells: Cells) -> Cells:
    """A table without what it says of combinations that no record can have: that is all noise."""
    zeros = zeros_of(domain, members) if domain.rules else None
    return cells if zeros is None else np.where(zeros, 0.0, cells)


def passes(
    fitter: Fitter | None,
    targets: Targets | ItemTargets,
    start: Chains,
    heat: Sequence[float],
    rng: np.random.Generator,
    tick: Tick = lambda: None,
) -> list[Chains]:
    """The rows after each pass of a fit, by whoever fits; None: by the usual fitter."""
    out, who = [], fitter or usual_fitter() or COMPILED
    for rows in who.fit(targets, start, heat, rng.integers(0, 1 << 63, len(start), dtype=np.uint64)):
        out.append(rows)
        tick()
    return out


def told(progress: Done, total: int) -> Tick:
    """Say how many passes of so many are done."""
    done = count(1)
    return lambda: progress(next(done), total)


def product_start(
    domain: Domain, ones: Mapping[int, Cells], effort: Effort, rng: np.random.Generator
) -> Chains:
    """Rows whose attributes are independent; an attribute that was not measured is uniform."""
    kind = smallest_type(int(domain.sizes.max()))
    out = np.empty((effort.chains, effort.chain_rows, domain.width), kind)
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
    measured: MeasuredTables,
    effort: Effort,
    rng: np.random.Generator,
    progress: Done,
    *,
    at_once: bool,
    likely: float = LIKELY,
    fitter: Fitter | None = None,
) -> Rows:
    """Fit rows to a measurement: to all of it `at_once`, or to pairs first and then to larger sets as well.

    At once is right for small tables that are all measured: there is nothing that rows could add to them, and
    where attributes have two values, nothing that a tree could. `likely` is the part of a pair's target that is
    what it is likely to be; the rest is what was measured.
    """
    wanted = PairTargets.of(denoised(measured), rng, likely)
    start = product_start(measured.domain, wanted.ones, effort, rng)
    larger = measured.larger()
    if at_once and (larger or wanted.single_numbers):
        heat = effort.temperatures(wanted.noise, AT_ONCE * wanted.pull())
        tick = told(progress, effort.rounds)
        return effort.released(passes(fitter, wanted.at_once(), start, heat, rng, tick))
    again = replace(
        effort, chain_rows=effort.chain_rows * effort.snapshots, snapshots=1, warm_up=SHORT_WARM_UP
    )
    tick = told(progress, effort.rounds + (again.rounds if larger else 0))
    first = fit_and_mend(wanted, leaning_to_tree(wanted), start, effort, LEANING, rng, tick, fitter)
    if not larger:
        return effort.released(first)
    joined = np.concatenate(first[-effort.snapshots :], axis=1)
    both = around_rows(wanted, joined, rng)
    return effort.cut(fit_and_mend(wanted, both, joined, again, TEMPERATURE, rng, tick, fitter)[-1])


PairsToTargets = Callable[[Mapping[Set, Cells]], Targets]


def leaning_to_tree(wanted: PairTargets) -> PairsToTargets:
    """Rows that lean to the tree of the pairs that say most."""
    tree = tree_of(wanted.likely, wanted.ones)

    def targets(pairs: Mapping[Set, Cells]) -> Targets:
        made = wanted.targets(pairs)
        for i, j in tree:
            lean = tree_lean(wanted.likely[i, j], wanted.ones[i], wanted.ones[j], wanted.noise)
            made.add_lean((i, j), lean, wanted.heat(LEANING))
        return made

    return targets


def around_rows(wanted: PairTargets, rows: Chains, rng: np.random.Generator) -> PairsToTargets:
    """Larger sets as well, each shrunk around what rows that were fitted to pairs say of it."""
    likely = likely_larger(wanted.measured, _as_records(wanted.measured.domain, rows), rng)

    def targets(pairs: Mapping[Set, Cells]) -> Targets:
        made = wanted.targets(pairs)
        wanted.add_larger(made, {members: centred(cells) for members, cells in likely.items()})
        return made

    return targets


def fit_and_mend(
    wanted: PairTargets,
    targets: PairsToTargets,
    start: Chains,
    effort: Effort,
    times: float,
    rng: np.random.Generator,
    tick: Tick,
    fitter: Fitter | None,
) -> list[Chains]:
    """Fit rows to pairs, and whatever else targets are made of; once they are warm, raise the pairs where rows fall
    short of them, lean to the slopes, and fit on. The temperature is so many times the noise.
    """
    pairs, heat = wanted.pairs(), effort.temperatures(wanted.noise, times)
    warm = len(effort.warm_up)
    rows = passes(fitter, targets(pairs), start, heat[:warm], rng, tick)[-1]
    asked = list(dict.fromkeys([*pairs, *heard_of(wanted.measured).products]))
    tables = Tables(wanted.measured.domain, tuple(asked))
    fractions = tables.counts(_as_records(wanted.measured.domain, rows)) / math.prod(rows.shape[:2])
    answers = dict(zip(asked, tables.split(fractions), strict=True))
    made = targets(wanted.added_back(pairs, answers))
    wanted.lean_to_slopes(made, answers, times)
    return passes(fitter, made, rows, heat[warm:], rng, tick)


def _as_records(domain: Domain, chains: Chains) -> Records:
    return Records.from_rows(domain, chains.reshape(-1, domain.width))


class RefittingDataPlayer:
    """Keeps one chain of rows, refitted to everything known so far after each signed table that is heard."""

    def __init__(
        self, known: MeasuredTables, start: Chains, rng: np.random.Generator, fitter: Fitter | None = None
    ) -> None:
        self.known = known
        self._rows = start
        self._rng = rng
        self._fitter = fitter

    def reply(self, transcript: Transcript[Measured, Chains], challenge: Measured) -> Chains:
        self.known = self.known.joined(interactions_told(challenge, self.known.domain)).counted()
        wanted = PairTargets.of(self.known, self._rng)
        heat = SCOUT.temperatures(wanted.noise)
        self._rows = passes(self._fitter, wanted.at_once(), self._rows, heat, self._rng)[-1]
        return self._rows
