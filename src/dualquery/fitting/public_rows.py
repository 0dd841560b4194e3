"""Rows that are public already: their codes, how much each counts, and what they say of three attributes and more.

They are a sample, too, and a poor one of the many cells of three attributes. R, rows fitted to the pairs of public
rows P as to noisy ones, say nothing more than pairs do: between the two is what P's population is likely to be,
(1 − λ) P + λ R. Rows B that R was not made of tell λ: with R_A and P_A of one half of P, and P_B the other, over
tables of three attributes,

    λ' = Σ ⟨P_B − P_A, R_A − P_A⟩ / Σ ‖R_A − P_A‖²,   λ = λ'/(2 − λ')

(all of P is a sample of half the variance). Nothing private is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fit import fit
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.fitting.reweighting import WeighedRows
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.types import Reals, Set, no_progress

MOST_ROWS = 80_000  # of public rows that are looked at; more are drawn from by chance
MOST_FITTED = 40_000  # rows of R, and of those that it is mixed with
FEWEST = 100  # rows: halves of fewer say nothing
MOST_COLUMNS = 50  # whose pairs are fitted
MOST_CELLS = 4_000_000  # of these pairs, and of the tables of three that tell λ
TRIPLES = 100
NOISE = 0.5  # of R's targets, in deviations by which chance moves a mean cell of a pair


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Codes of rows that anybody may know, how much each counts, and how many records they speak for at most.

    A code of −1 is of an attribute that was not in the public rows: it is drawn from the one-way table. A `share`
    that stands already is not looked for again: that of a replica.
    """

    codes: NDArray[np.int32]  # row, attribute
    weights: Reals
    number: float
    share: float | None = None

    @staticmethod
    def of(codes: NDArray[np.integer]) -> PublicRows:
        """Rows that stand for themselves, one for one record."""
        return PublicRows(codes.astype(np.int32), np.ones(len(codes)), float(len(codes)))

    def sampled(self, rng: np.random.Generator, most: int = MOST_ROWS) -> PublicRows:
        """At most so many of them as fits have time for."""
        if len(self.codes) <= most:
            return self
        some = rng.choice(len(self.codes), most, replace=False)
        return replace(self, codes=self.codes[some], weights=self.weights[some])

    @cached_property
    def lacks(self) -> frozenset[int]:
        """Attributes that some of the public rows did not have."""
        return frozenset(np.flatnonzero((self.codes < 0).any(axis=0)).tolist())

    def known_for(self, members: Set) -> bool:
        """Whether all public rows had these attributes."""
        return self.lacks.isdisjoint(members)

    def smoothed(self, domain: Domain) -> PublicRows:
        """These, which count alike, and rows fitted to their pairs: as far as their own halves bear that out."""
        sizes = domain.sizes
        told = [j for j in range(domain.width) if sizes[j] > 1 and self.known_for((j,))]
        pairs = sum(int(sizes[i]) * int(sizes[j]) for i, j in combinations(told, 2))
        if len(self.codes) < FEWEST or not 2 < len(told) <= MOST_COLUMNS or pairs > MOST_CELLS:
            return self
        rng, columns = np.random.default_rng(0), Domain(tuple(domain.columns[j] for j in told))
        some = self.sampled(rng, MOST_FITTED)
        half = rng.permutation(len(some.codes)) < len(some.codes) // 2
        share = _share_of_fitted(some.codes[:, told], half, columns, rng)
        fitted = np.where(self.codes[0] < 0, -1, np.zeros((MOST_FITTED, domain.width), np.int32))
        fitted[:, told] = _fitted_to_pairs(self.codes[:, told], columns, rng)
        weights = np.repeat(
            [(1 - share) / len(some.codes), share / len(fitted)], [len(some.codes), len(fitted)]
        )
        return replace(self, codes=np.concatenate([some.codes, fitted]), weights=weights)


def _share_of_fitted(
    codes: NDArray[np.int32], half: NDArray[np.bool_], columns: Domain, rng: np.random.Generator
) -> float:
    """λ, by tables of three attributes of which chance picks some."""
    sets = list(combinations(range(columns.width), 3))
    picked = [sets[place] for place in rng.permutation(len(sets))[:TRIPLES].tolist()]
    within = MOST_CELLS // TRIPLES
    tables = Tables(columns, tuple(s for s in picked if prod(columns.sizes[list(s)].tolist()) <= within))
    one, other, fitted = (
        WeighedRows.of(each, tables).totals(np.full(len(each), 1 / len(each)))
        for each in (codes[half], codes[~half], _fitted_to_pairs(codes[half], columns, rng))
    )
    away = fitted - one
    share = float((other - one) @ away) / max(float(away @ away), np.finfo(np.float64).tiny)
    share = min(1.0, max(0.0, share))
    return share / (2 - share)


def _fitted_to_pairs(
    codes: NDArray[np.int32], columns: Domain, rng: np.random.Generator
) -> NDArray[np.int32]:
    """R: rows that have the tables of two attributes of these, and no more to say."""
    sets: list[Set] = [s for order in (1, 2) for s in combinations(range(columns.width), order)]
    tables = Tables(columns, tuple(sets))
    cells = np.mean([prod(columns.sizes[list(s)].tolist()) for s in sets if len(s) == 2])
    variance = NOISE**2 * len(codes) / float(cells)
    held = WeighedRows.of(codes, tables).answers(np.ones(len(codes)))
    told = [Measured(s, centred(each), variance) for s, each in zip(sets, held, strict=True)]
    known = MeasuredTables.rows(columns, len(codes), 0.0).joined(told)
    rows = fit(known, Effort.of(MOST_FITTED), rng, no_progress, at_once=False, likely=1.0)
    return rows.astype(np.int32)
