"""Stages for the means of numbers inside their bins, and for how numbers correlate.

One sum a bin and column (`queries.statistics`), all of them with one noise, for `SHARE` of the budget. So few numbers
move so little that this buys them well: of K columns the noise is √K/(μ √SHARE) records between neighbours that
replace a record, half of it where one is added or removed. Where even so it would exceed the records of a bin,
nothing is measured. All of this follows from public things.

And one for how numbers correlate: Σ s_i s_j over the records for every two of them, of scores that noisy one-way
tables say (`queries.derived.ScoreProducts`). Of m scores the m(m − 1)/2 products move by no more than m in L2, and a
table of two attributes tells its slope worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.inside import WITHIN
from dualquery.fitting.measured import PRODUCTS, SCORES, Measured, MeasuredTables, Numbers
from dualquery.fitting.smooth import ordered, scores_of
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import (
    MOST_VARIANCE,
    SHARE_OF_ONES,
    Stage,
    Wanted,
    relative_sensitivity,
    unit_variance,
    varied_sets,
)
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.queries.derived import ScoreProducts, products_bound
from dualquery.queries.statistics import BinSums
from dualquery.table.records import MOST

SHARE = 0.02  # of the budget
MOST_SHARE = 0.5


@dataclass(frozen=True)
class Means:
    """The sums that will be measured, and their share of the budget."""

    sums: BinSums
    share: float

    def wanted(self, task: Task) -> Wanted:
        """The stage, among those that a budget is shared between."""
        number, moved = len(self.sums.columns), task.budget.neighbours.sensitivity(self.sums.bound())
        columns = "a column" if number == 1 else f"{number:,} columns"
        return f"measure means inside the bins of {columns}", self.share, moved.l2_squared

    def measured(self, curator: Curator, stage: Stage, within: Allowance) -> tuple[Measured, ...]:
        """Σ ((x − low)/width − ½) of each bin, in records: one measurement per column."""
        noisy = curator.measure(self.sums, noise=stage.noise, within=within) / MOST
        variance = float(stage.noise.variance) / MOST**2
        parts = zip(self.sums.attributes, self.sums.split(noisy), strict=True)
        return tuple(Measured(Numbers(WITHIN, (attribute,)), sums, variance) for attribute, sums in parts)


def means_for(task: Task, share: float | None) -> Means | None:
    """What to measure: nothing where it is not wanted, where there is nothing, or where it would drown in noise."""
    share = SHARE if share is None else share
    if not 0 <= share <= MOST_SHARE:
        raise DualQueryError(
            f"--means is the share of the budget for means inside bins, from 0 to {MOST_SHARE}, and {share:g} is not"
        )
    if share == 0 or not task.places:
        return None
    sums = BinSums.of(task.domain)
    if not sums.columns:
        return None
    moved = task.budget.neighbours.sensitivity(sums.bound()).l2_squared
    variance = unit_variance(task.budget) * moved / share
    drowned = math.sqrt(variance) / MOST * float(np.mean(sums.bins)) > task.rows
    return None if drowned or variance > MOST_VARIANCE / 4 else Means(sums, share)


PRODUCTS_SHARE = 0.02  # of the budget
MOST_NOISE = 0.06  # of a correlation: beyond, hardly anything is learned
CLEARER, ENOUGH = 1.25, 0.02  # times, than tables tell it; noise with which they tell it well


@dataclass(frozen=True)
class NumberPairs:
    """The products of scores of ordered attributes that will be measured, once one-way tables say which scores."""

    attributes: tuple[int, ...]
    share: float = PRODUCTS_SHARE

    def wanted(self, task: Task) -> Wanted:
        """The stage, among those that a budget is shared between."""
        moved = task.budget.neighbours.sensitivity(products_bound(len(self.attributes)))
        pairs = math.comb(len(self.attributes), 2)
        words = "two numbers correlate" if pairs == 1 else f"{pairs:,} pairs of numbers correlate"
        return f"measure how {words}", self.share, moved.l2_squared

    def measured(
        self, curator: Curator, stage: Stage, within: Allowance, known: MeasuredTables
    ) -> tuple[Measured, ...]:
        """Σ s_i s_j in records, and the scores: twice the share of the records below a value, less the whole."""
        ones, highest = known.ones(), ScoreProducts.HIGHEST
        scores = {
            j: np.rint(highest * scores_of(known.domain, j, ones[j])).astype(np.int64)
            for j in self.attributes
        }
        noisy = curator.measure(ScoreProducts(known.domain, scores), noise=stage.noise, within=within)
        variance = float(stage.noise.variance) / highest**4
        told = (Measured(Numbers(SCORES, (j,)), each / highest, 0.0) for j, each in scores.items())
        return (*told, Measured(Numbers(PRODUCTS, self.attributes), noisy / highest**2, variance))


def products_for(task: Task, *, all_pairs: bool) -> NumberPairs | None:
    """What to measure: nothing where it would drown in noise, or where tables of `all_pairs` tell it well enough.

    Scores of a level law have the variance 1/3, so that of m attributes a correlation has the noise 3·√v with v that
    of a product. Tables of k_i and k_j values, of variance w a cell, tell it with the noise √(w k_i k_j).
    """
    pairs, neighbours = varied_sets(task).get(2, []), task.budget.neighbours
    lines = tuple(j for j in sorted({j for s in pairs for j in s}) if ordered(task.domain, j))
    if len(lines) < 2:
        return None
    unit = unit_variance(task.budget)
    variance = unit * neighbours.sensitivity(products_bound(len(lines))).l2_squared / PRODUCTS_SHARE
    noise = 3 * math.sqrt(variance) / ScoreProducts.HIGHEST**2
    some = [s for s in pairs if set(s) <= set(lines)]
    cells = [
        relative_sensitivity(s, task.domain, neighbours) * math.prod(task.domain.sizes[list(s)].tolist())
        for s in some
    ]
    by_tables = math.sqrt(unit * len(pairs) / (1 - SHARE_OF_ONES) * float(np.mean(cells))) if cells else 0.0
    told = all_pairs and by_tables < max(CLEARER * noise, ENOUGH * task.rows)
    drowned = noise > MOST_NOISE * task.rows or variance > MOST_VARIANCE / 4
    return None if drowned or not some or told else NumberPairs(lines)
