"""From signed tables with noise to interactions: every measured set that determines one has its say.

The signed table of S, summed along some of its longer attributes and centred along the others, is the interaction
of B ⊆ S up to the factor ½ of each binary attribute, for every B that holds the binary attributes of S. White noise
falls apart into these parts without correlation, so that least squares over everything measured is the mean by
inverse variance, interaction by interaction. Everything here is post-processing of released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.table.domain import Domain


@dataclass(frozen=True)
class SignedTable:
    """What was heard of a set, in records, and the variance of the noise of an entry."""

    members: Set
    entries: Cells  # one axis an attribute; that of a binary one has the length one
    variance: float


def determined(members: Set, domain: Domain) -> list[Set]:
    """The sets whose interactions a signed table tells: its binary attributes with any of its longer ones."""
    binary = [j for j in members if domain.sizes[j] == 2]
    longer = [j for j in members if domain.sizes[j] != 2]
    return [
        tuple(sorted((*binary, *some)))
        for order in range(len(longer) + 1)
        for some in combinations(longer, order)
    ]


def variance_told(members: Set, subset: Set, variance: float, domain: Domain) -> float:
    """The variance, a cell and before centring, with which a signed table tells the interaction of a subset.

    Summing along an attribute adds up its noise. Halving along a binary one leaves v/4 in each of two opposite
    cells, as white noise of variance v/2 would after centring.
    """
    summed = np.prod([float(domain.sizes[j]) for j in members if j not in subset])
    binary = sum(int(domain.sizes[j]) == 2 for j in subset)
    return float(variance * summed / 2**binary)


def interaction_told(heard: SignedTable, subset: Set, domain: Domain) -> Cells:
    """The interaction of a determined set, in records."""
    cells: Cells = heard.entries.sum(axis=tuple(a for a, j in enumerate(heard.members) if j not in subset))
    for axis, j in enumerate(subset):
        if domain.sizes[j] == 2:
            cells = np.concatenate([cells, -cells], axis=axis) / 2
        else:
            cells = cells - cells.mean(axis=axis, keepdims=True)
    return cells


class Combination:
    """All interactions that some signed tables determine, by inverse variance.

    `variance` is that of the number of records as it is known before: 0 where it is public.
    """

    def __init__(self, domain: Domain, rows: float, variance: float) -> None:
        self._domain = domain
        self._exact = rows if variance == 0 else None
        self._weighted: dict[Set, Cells] = {}
        self._precision: dict[Set, float] = {}
        if variance:
            self._add((), np.array(float(rows)), variance)

    def hear(self, *tables: SignedTable) -> None:
        """Let some more tables have their say."""
        for each in tables:
            for subset in determined(each.members, self._domain):
                cells = interaction_told(each, subset, self._domain)
                self._add(subset, cells, variance_told(each.members, subset, each.variance, self._domain))

    def measured(self) -> MeasuredTables:
        """The interactions and the variances of their noise, by set."""
        interactions = {each: cells / self._precision[each] for each, cells in self._weighted.items()}
        variance = {each: 1 / precision for each, precision in self._precision.items()}
        if self._exact is not None:
            interactions[()], variance[()] = np.array(float(self._exact)), 0.0
        return MeasuredTables(self._domain, interactions, variance, max(1.0, float(interactions[()])))

    def _add(self, subset: Set, cells: Cells, variance: float) -> None:
        self._weighted[subset] = self._weighted.get(subset, 0.0) + cells / variance
        self._precision[subset] = self._precision.get(subset, 0.0) + 1 / variance
