"""Numbers inside their bins: placed by the means that were measured there, and how far off they may be.

Of a bin with n records let m = ½ + S/n be the mean place, S the measured sum (`Numbers("within", …)`) with noise of
deviation σ. It is trusted as far as its noise allows, against the mean m₀ of the law that the bin has otherwise:

    m̂ = m₀ + (m − m₀) · τ²/(τ² + (σ/n)²),        τ = t · min(m₀, 1 − m₀),

with the t of all bins of the column under which their measured means are the most likely (empirical Bayes), and ½
for bins that say little about each other: the first, the last, and those that are far wider than most. The law
follows the neighbouring bins (`table.numbers`). It is *tilted*, its quantiles u weighed by e^{θu}, with the θ for
which the mean place is m̂. Which record has which quantile is said by the copula (`fitting.copula`). Codes stay as
they are, and so do all tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.copula import hidden_normals
from dualquery.fitting.measured import Measured, Numbers
from dualquery.loops import njit, together
from dualquery.queries.statistics import BinSums
from dualquery.table.domain import Domain
from dualquery.table.numbers import Numeric, quantiles_in_bins, shuffled, spread
from dualquery.table.records import MOST, Places, Records, has_places, places_of, widths_of
from dualquery.types import Integers, Reals

WITHIN = "within"
FAR = 0.5  # t of the first bin, the last one, and of bins wider than WIDER times the usual width
WIDER = 2.0
SPREADS = np.geomspace(0.02, 1.0, 18)  # t: how far mean places may lie from those of the law
UNMEASURED = (
    0.25  # of a bin's width: the deviation of its mean, and of a quantile in it, where nothing was measured
)
SHAPE = 0.125  # of a quantile, where the mean of its bin is known
POINTS = 400  # at which a law is looked at
STEEPEST = 2000.0  # θ
TILT_EXACT, MOST_STEPS = 1e-9, 60


@dataclass(frozen=True)
class Inside:
    """How well it is known where in each bin numbers lie: standard deviations in units of the column, one a bin."""

    mean: Reals  # of the mean of the records of the bin
    quantile: Reals  # of a single number at a rank that is known
    together: bool  # whether the errors of all bins may have one sign: add them up, else their squares


def inside(column: Numeric, records: NDArray[np.floating], measured: Measured | None = None) -> Inside:
    """Of bins that hold about so many records, with or without the measured means of this column.

    What a bar must include: of a mean Σ_b p_b · mean_b where `together`, else √Σ (p_b mean_b)², with p_b the share of
    the records in the bin; of a quantile, `quantile` of the bin that it lies in.
    """
    widths = widths_of(column)
    if measured is None:
        return Inside(UNMEASURED * widths, UNMEASURED * widths, together=True)
    held = np.maximum(np.rint(np.asarray(records, np.float64)[: column.bins]), 0).astype(np.int64)
    laws, off = _laws(column, held, measured, 1.0), np.full(column.bins, UNMEASURED)
    off[laws.bins] = laws.off
    return Inside(off * widths, np.hypot(SHAPE, off) * widths, together=False)


def means_of(domain: Domain, measured: Iterable[Measured]) -> dict[int, Measured]:
    """What was measured inside the bins of each column, by its place in the domain."""
    found = {}
    for each in measured:
        if isinstance(each.what, Numbers) and each.what.kind == WITHIN:
            (attribute,) = each.what.attributes
            found[int(np.searchsorted(domain.starts, attribute, side="right")) - 1] = each
    return found


def measured_inside(
    table: Records, like: Iterable[Measured], total: float, rng: np.random.Generator
) -> tuple[Measured, ...]:
    """The sums inside bins of public rows that stand for so many records, with noise as these have it."""
    found = []
    for i, each in means_of(table.domain, like).items():
        sums = BinSums(table.domain, (i,)).counts(table) / MOST * (total / max(1, table.rows))
        noisy = sums + rng.normal(0.0, each.deviation, len(sums))
        found.append(Measured(each.what, noisy, each.variance))
    return tuple(found)


def placed(records: Records, measured: Iterable[Measured], total: float, rng: np.random.Generator) -> Records:
    """Released records with a place for every number in a bin, of a table of about so many records."""
    domain, known = records.domain, means_of(records.domain, measured)
    if not any(map(has_places, domain.columns)):
        return records
    hidden = hidden_normals(records, rng)

    def of_column(i: int) -> Places | None:
        column = domain.columns[i]
        if not has_places(column):
            return None
        rank = hidden[i] if i in hidden else shuffled(column.name, records.rows)
        codes = np.asarray(records.columns[i]).astype(np.int64)
        return _placed(column, codes, rank, known.get(i), total)

    places = together(of_column, range(len(domain.columns)))
    return Records(domain, records.rows, records.columns, records.records_per_person, tuple(places))


def _placed(column: Numeric, codes: Integers, rank: Reals, measured: Measured | None, total: float) -> Places:
    here = np.flatnonzero(codes < column.bins)
    bins = codes[here]
    counts = np.bincount(bins, minlength=column.bins)
    quantiles = quantiles_in_bins(bins, column.bins, rank[here])
    if measured is not None:
        theta = _tilts(column, counts, measured, total / max(1, len(codes)))
        quantiles = tilted(quantiles, theta[bins])
    places = np.full(len(codes), MOST // 2, np.uint16)
    places[here] = places_of(column, bins, spread(column, bins, quantiles, counts))
    return places


@dataclass(frozen=True)
class _Laws:
    """The laws of some bins at points of their quantiles, and what was seen of their means."""

    bins: Integers
    place: Reals  # one row a bin, one column a point
    usual: Reals
    wanted: Reals
    off: Reals  # the deviation of the mean wanted


def _laws(column: Numeric, counts: Integers, measured: Measured, per_row: float) -> _Laws:
    """Of the bins that have rows, each of which stands for so many records."""
    bins = np.flatnonzero(counts)
    points, weights = _grid()
    law = spread(column, np.repeat(bins, POINTS), np.tile(points, len(bins)), counts)
    place = places_of(column, np.repeat(bins, POINTS), law).reshape(len(bins), POINTS) / MOST
    usual = place @ weights
    records = counts[bins] * per_row
    noise = float(measured.deviation) / records
    apart = np.clip(0.5 + measured.values[bins] / records, 0.0, 1.0) - usual
    reach = np.minimum(usual, 1 - usual)
    widths = widths_of(column)
    usual_width = float(np.median(widths[widths > 0]))
    alone = (bins == 0) | (bins == column.bins - 1) | (widths[bins] > WIDER * usual_width)
    alike = ~alone & (reach > 0) & (widths[bins] > 0)
    prior = np.where(alone, FAR, likeliest_spread(apart[alike], noise[alike], reach[alike])) * reach
    trust = prior**2 / np.maximum(prior**2 + noise**2, 1e-300)
    return _Laws(bins, place, usual, usual + apart * trust, np.sqrt(trust) * noise)


def likeliest_spread(apart: Reals, noise: Reals, reach: Reals) -> float:
    """The t under which numbers with deviations √((t·reach)² + noise²) are the most likely."""
    variance = np.maximum((SPREADS[:, None] * reach) ** 2 + noise**2, 1e-18)
    return float(SPREADS[np.argmin((np.log(variance) + apart**2 / variance).sum(axis=1))])


def _tilts(column: Numeric, counts: Integers, measured: Measured, per_row: float) -> Reals:
    """θ of each bin that has rows; 0 of all others."""
    laws, theta = _laws(column, counts, measured, per_row), np.zeros(column.bins)
    points, weights = _grid()
    theta[laws.bins] = solved(laws.place, points, np.log(weights), laws.wanted)
    return theta


def _grid() -> tuple[Reals, Reals]:
    """Quantiles, closer together near the ends, and the share that each stands for."""
    angle = math.pi * (np.arange(POINTS) + 0.5) / POINTS
    weights = np.sin(angle)
    return np.sin(angle / 2) ** 2, weights / weights.sum()


@njit(cache=True)
def solved(place, points, logs, wanted):  # type: ignore[no-untyped-def]
    """The tilt of each bin with which its mean place is the one wanted: the mean grows with it, by the covariance of
    points and places. A step of Newton's, or half the way between what is too little and too much.
    """
    found, weights = np.empty(len(place)), np.empty(len(points))
    for n in range(len(place)):
        low, high, theta = -STEEPEST, STEEPEST, 0.0
        for _ in range(MOST_STEPS):
            most = -np.inf
            for i in range(len(points)):
                weights[i] = logs[i] + theta * points[i]
                most = max(most, weights[i])
            total = mean = middle = product = 0.0
            for i in range(len(points)):
                weight = math.exp(weights[i] - most)
                total += weight
                mean += weight * place[n, i]
                middle += weight * points[i]
                product += weight * points[i] * place[n, i]
            mean, slope = mean / total, product / total - mean / total * (middle / total)
            if mean < wanted[n]:
                low = theta
            else:
                high = theta
            before, theta = theta, (low + high) / 2
            if slope > 0.0 and low <= before + (wanted[n] - mean) / slope <= high:
                theta = before + (wanted[n] - mean) / slope
            if abs(theta - before) <= TILT_EXACT:
                break
        found[n] = theta
    return found


def tilted(quantiles: Reals, theta: Reals) -> Reals:
    """Quantiles of the density ∝ e^{θu} on (0, 1)."""
    found = quantiles.copy()
    up, down = theta > 1e-9, theta < -1e-9
    q, t = quantiles[up], theta[up]
    found[up] = 1 + np.log(q + (1 - q) * np.exp(-t)) / t
    q, t = quantiles[down], theta[down]
    found[down] = np.log1p(q * np.expm1(t)) / t
    clipped: Reals = np.clip(found, 0.0, np.nextafter(1.0, 0.0))
    return clipped
