"""Values that no sampled query decides: zero, random, or by a privately estimated density.

The first two are the paper's (section 7, "Setting free attributes"); the third is its footnote, "the
sparsity of the dataset could be estimated at a small additional cost to privacy", taken attribute by
attribute: noisy one-way counts, from which each free value is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.game.data_players import Fallback
from dualquery.game.moves import Record
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator, Gaussian, Laplace, changed_queries
from dualquery.privacy.events import GaussianNoise, LaplaceNoise
from dualquery.queries.query import Conjunctions, Group, Predicates, Tables
from dualquery.table.domain import Domain


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


def one_way_groups(domain: Domain) -> tuple[Group, ...]:
    """The one-way counts of every attribute: a query `= 1` where it is binary, a table where it is not.

    (Of the two cells of a binary attribute one tells the other, and moves half as much.)
    """
    binary = np.flatnonzero(domain.sizes == 2)
    wider = np.flatnonzero(domain.sizes > 2)
    groups: list[Group] = []
    if len(binary):
        predicates = Predicates(
            binary.astype(np.int32),
            np.arange(len(binary) + 1, dtype=np.int64),
            np.ones(len(binary), np.int32),
        )
        literals = 2 * np.arange(len(binary), dtype=np.int32)[:, None]
        groups.append(Conjunctions(domain, predicates, literals))
    if len(wider):
        groups.append(Tables(domain, tuple((int(j),) for j in wider)))
    return tuple(groups)


def density_noise(domain: Domain, budget: Budget, share: float) -> Gaussian | Laplace:
    """The noise with which all one-way counts together cost `share` of the budget.

    Gaussian under zCDP: σ² = Δ₂² / (2 · share · ρ). Laplace under pure DP: b = Δ₁ / (share · ε).
    """
    changed = sum(changed_queries(group, budget.neighbours) for group in one_way_groups(domain))
    part = Fraction(share).limit_denominator(10_000)
    if budget.accounting is Accounting.PURE:
        return Laplace(changed / (part * Fraction(budget.epsilon)))
    return Gaussian(changed / (2 * part * rho_of(epsilon=budget.epsilon, delta=budget.delta)))


def noise_deviation(noise: Gaussian | Laplace) -> float:
    """The standard deviation of the noise, to the accuracy that a rule of thumb needs."""
    return math.sqrt(noise.variance) if isinstance(noise, Gaussian) else math.sqrt(2) * float(noise.scale)


def density_events(domain: Domain, budget: Budget, share: float) -> list[GaussianNoise | LaplaceNoise]:
    """What `measured_density` will charge."""
    noise = density_noise(domain, budget, share)
    changes = [Fraction(changed_queries(group, budget.neighbours)) for group in one_way_groups(domain)]
    if isinstance(noise, Laplace):
        return [LaplaceNoise(sensitivity=changed, scale=noise.scale) for changed in changes]
    return [GaussianNoise(sensitivity_squared=changed, variance=noise.variance) for changed in changes]


def measured_density(curator: Curator, domain: Domain, budget: Budget, share: float, rows: int) -> Fallback:
    """Values drawn from one-way counts that the curator measures."""
    noise = density_noise(domain, budget, share)
    noisy = [curator.measure(group, noise=noise) for group in one_way_groups(domain)]
    return density(domain, noisy, rows=rows, deviation=noise_deviation(noise))


def density(
    domain: Domain, noisy: Sequence[NDArray[np.integer | np.floating]], *, rows: int, deviation: float
) -> Fallback:
    """Values drawn, attribute by attribute, from noisy counts of the one-way groups.

    A count within two standard deviations of the noise of nothing is taken for nothing, and of everything for
    everything: among thousands of rare items the noise alone would otherwise fill the records.
    """
    blur = 2 * deviation
    ones: NDArray[np.float64] = np.zeros(domain.width)
    tables: list[tuple[int, NDArray[np.float64]]] = []
    for group, counts in zip(one_way_groups(domain), noisy, strict=True):
        if isinstance(group, Tables):
            for (attribute,), first, last in zip(
                group.sets, group.starts[:-1], group.starts[1:], strict=True
            ):
                cells = np.where(counts[first:last] > blur, counts[first:last], 0) + 1e-9
                tables.append((attribute, np.cumsum(cells / cells.sum())))
        elif isinstance(group, Conjunctions):
            likely = np.where(counts > blur, np.where(counts < rows - blur, counts / rows, 1.0), 0.0)
            ones[group.predicates.attribute] = likely

    def drawn(rng: np.random.Generator) -> Record:
        chance = rng.random(domain.width)
        record = (chance < ones).astype(np.int32)
        for attribute, ends in tables:
            record[attribute] = min(int(np.searchsorted(ends, chance[attribute])), len(ends) - 1)
        return record

    return drawn
