"""Whole-number sums at the knots of columns: what distance curves are made from.

A record at position x of a column lies between the knots k = ⌊x / s⌋ and k + 1, s positions apart, and splits s units
between them by nearness. Of the units h_k that all records give, R h is counted, where R is a public whole-number
matrix of the column (`mechanisms.distances.factor`); and at the end the number of records times `total`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.group import Integers, Progress, no_progress
from dualquery.table.records import Records

Factor = NDArray[np.int64]  # a row a number that is counted, a column a knot


@dataclass(frozen=True, eq=False)
class Knots:
    """R_j h_j of each of some columns, one behind the other, and total · rows where `total` is not 0."""

    columns: tuple[int, ...]
    factors: tuple[Factor, ...]  # one a column; columns may share one
    steps: int  # s: positions between two knots
    total: int = 0

    @property
    def size(self) -> int:
        return sum(len(factor) for factor in self.factors) + (self.total > 0)

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        parts = []
        for done, (j, factor) in enumerate(zip(self.columns, self.factors, strict=True)):
            codes = records.columns[j]
            assert isinstance(codes, np.ndarray), "a column of numbers is an array of codes"
            parts.append(factor @ units_at_knots(codes, factor.shape[1], self.steps))
            progress(done + 1, len(self.columns))
        if self.total:
            parts.append(np.array([self.total * records.rows]))
        return np.concatenate(parts)


def units_at_knots(codes: NDArray[np.unsignedinteger], knots: int, steps: int) -> Integers:
    """What all records give each knot: `steps` units a record."""
    held = np.bincount(codes, minlength=(knots - 1) * steps + 1).astype(np.int64)
    between = held[:-1].reshape(knots - 1, steps)
    past = np.arange(steps)
    units = np.zeros(knots, np.int64)
    units[:-1] += between @ (steps - past)
    units[1:] += between @ past
    units[-1] += steps * held[-1]
    return units
