"""How wrong public tables are: a statistic that is no sum over records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.queries.tables import Tables
from dualquery.types import Integers


@dataclass(frozen=True, eq=False)
class Misfits:
    """How far each of several tables lies from public whole numbers: Σ_cells max(0, |count − expected| − slack).

    One number a table. The hinge is 1-Lipschitz, and a record lies in one cell of a table: adding it moves each sum
    by at most 1, exchanging it for another, which leaves one cell and enters one, by at most 2. Of m tables that is m
    and 2m in L1, m and 4m in squared L2; K records of a person move a sum at most K times as far, step by step. (Of a
    table with a single cell the price exceeds the truth.)
    """

    tables: Tables
    expected: Integers  # of every cell
    slack: Integers  # of every table

    def of(self, counter: Counter) -> Integers:
        wrong = np.abs(counter.true_counts(self.tables, kept=True) - self.expected)
        wrong -= np.repeat(self.slack, np.diff(self.tables.starts))
        misfits: Integers = np.add.reduceat(np.maximum(wrong, 0), self.tables.starts[:-1])
        return misfits

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return misfit_sensitivity(len(self.tables.sets), neighbours)


def misfit_sensitivity(tables: int, neighbours: Neighbours) -> Sensitivity:
    """Of the misfits of so many tables, whatever they are."""
    return neighbours.sensitivity(
        alone=Sensitivity(tables, tables), apart=Sensitivity(2 * tables, 4 * tables)
    )
