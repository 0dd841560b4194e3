"""Values that no sampled query decides: zero, random, or by a privately estimated density.

The first two are the paper's (section 7, "Setting free attributes"); the third is its footnote, "the sparsity of the
dataset could be estimated at a small additional cost to privacy", taken attribute by attribute: noisy one-way counts,
from which each free value is drawn. Where noise hides single counts, the mean over all binary attributes is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dualquery.game.play import Fallback, Record
from dualquery.mechanisms.mechanism import part_of
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import Group, Predicates
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain

BLUR_MOST = 0.1  # more noise than this share of the table hides a count

OneWay = NDArray[np.integer] | NDArray[np.floating]


class Free(Enum):
    """Where the values come from that no sampled query decides."""

    ZEROS = "zeros"
    RANDOM = "random"
    DENSITY = "density"


def zeros(domain: Domain) -> Fallback:
    """The first value of every attribute; right for sparse binary data."""
    record = np.zeros(domain.width, np.int32)
    return lambda rng: record


def uniform(domain: Domain) -> Fallback:
    """Every value of an attribute with equal probability."""
    return lambda rng: (rng.random(domain.width) * domain.sizes).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Density:
    """The one-way counts of every attribute: a query `= 1` where it is binary, a table where it is not.

    (Of the two cells of a binary attribute one tells the other, and moves half as much.)
    """

    domain: Domain
    ones: Conjunctions
    tables: Tables

    @staticmethod
    def of(domain: Domain) -> Density:
        binary = np.flatnonzero(domain.sizes == 2)
        predicates = Predicates(
            binary.astype(np.int32),
            np.arange(len(binary) + 1, dtype=np.int64),
            np.ones(len(binary), np.int32),
        )
        literals = 2 * np.arange(len(binary), dtype=np.int32)[:, None]
        wider = tuple((int(j),) for j in np.flatnonzero(domain.sizes > 2))
        return Density(domain, Conjunctions(domain, predicates, literals), Tables(domain, wider))

    @property
    def statistics(self) -> tuple[Group, ...]:
        """What is measured: those of the two that ask for anything."""
        return tuple(group for group in (self.ones, self.tables) if group.size)

    def noise(self, budget: Budget, share: float) -> Noise:
        """The noise with which all one-way counts together cost `share` of the budget.

        Gaussian under zCDP: σ² = Δ₂² / (2 · share · ρ). Laplace under pure DP: b = Δ₁ / (share · ε).
        """
        moved = [budget.neighbours.sensitivity(each.bound()) for each in self.statistics]
        together = Sensitivity(sum(each.l1 for each in moved), sum(each.l2_squared for each in moved))
        if budget.accounting is Accounting.PURE:
            return Laplace(together.l1 / part_of(Fraction(budget.epsilon), share))
        return Gaussian(
            together.l2_squared / (2 * part_of(rho_of(epsilon=budget.epsilon, delta=budget.delta), share))
        )

    def fallback(self, noisy: list[OneWay], *, rows: int, deviation: float) -> Fallback:
        """Values drawn, attribute by attribute, from noisy counts (in the order of `statistics`)."""
        clear, left = self.clear(deviation, rows), list(noisy)
        ones: NDArray[np.float64] = np.zeros(self.domain.width)
        if self.ones.size:
            counts = left.pop(0)
            likely = _cut(counts, rows, deviation) if clear else _together(counts / rows, deviation / rows)
            ones[self.ones.predicates.attribute] = likely
        ends: list[tuple[int, NDArray[np.float64]]] = []
        for t, (attribute,) in enumerate(self.tables.sets):
            cells = left[0][self.tables.cells_of(t)]
            if clear:
                kept = np.where(cells > 2 * deviation, cells, 0)
            else:
                kept = _shrunk(cells / rows, deviation / rows, 1 / len(cells))
            kept = kept + 1e-9
            ends.append((attribute, np.cumsum(kept / kept.sum())))
        width = self.domain.width

        def drawn(rng: np.random.Generator) -> Record:
            chance = rng.random(width)
            record = (chance < ones).astype(np.int32)
            for attribute, cumulated in ends:
                place = int(np.searchsorted(cumulated, chance[attribute]))
                record[attribute] = min(place, len(cumulated) - 1)
            return record

        return drawn

    def clear(self, deviation: float, rows: int) -> bool:
        """Whether noise of this deviation leaves each count to be seen by itself."""
        return deviation <= BLUR_MOST * rows

    def guides(self, deviation: float, rows: int) -> bool:
        """Whether it leaves at least the mean of all counts of binary attributes, where most attributes are such."""
        together = self.ones.size if 2 * self.ones.size > self.domain.width else 1
        return self.clear(deviation / math.sqrt(together), rows)


def _cut(counts: OneWay, rows: int, deviation: float) -> NDArray[np.float64]:
    """A count within two deviations of nothing is taken for nothing, and of everything for everything.

    Among thousands of rare items the noise alone would otherwise fill the records.
    """
    blur = 2 * deviation
    return np.where(counts > blur, np.where(counts < rows - blur, counts / rows, 1.0), 0.0)


def _together(found: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Fractions that noise drowns one by one, drawn towards their mean, which many of them tell.

    The mean m is that of a normal law around the one found, cut off below nothing and above all.
    """
    law, middle = NormalDist(), float(found.mean())
    blur = deviation / math.sqrt(len(found))
    low, high = -middle / blur, (1 - middle) / blur
    inside = law.cdf(high) - law.cdf(low)
    if inside > 1e-12:
        middle += blur * (law.pdf(low) - law.pdf(high)) / inside
    mean = min(max(middle, 0.0), 1.0)
    return _shrunk(found - found.mean() + mean, deviation, mean)


def _shrunk(found: NDArray[np.float64], deviation: float, mean: float) -> NDArray[np.float64]:
    """m + v/(v + σ²) (x − m), by empirical Bayes: v is the spread that is not noise, at most m(1 − m)."""
    spread = float(np.mean((found - mean) ** 2)) - deviation**2
    real = min(max(0.0, spread), mean * (1 - mean))
    return np.clip(mean + real / (real + deviation**2) * (found - mean), 0.0, 1.0)


def density_share(accounting: Accounting) -> float:
    """The part of the budget that goes to one-way counts where free values follow a density."""
    return 0.1 if accounting is not Accounting.PURE else 0.2
