"""Numbers inside their bins, drawn: a release knows bins, and of where inside them numbers lie only what it measured.

Of every bin a mean place m in (0, 1) is drawn, and how far the numbers lie apart. Where nothing was measured,
m ~ Beta(a, 1 − a), whose mean a is that of the released rows: between all at one end and all at the other, with
deviation √(a(1 − a)/2). Where the sum of the places was measured, released rows have their posterior mean, and m has
a normal law around it (`fitting.inside`). Numbers keep their order: the one at rank u goes to T(u), the quantile of
the uniform law tilted exponentially until its mean is m,

    T(u) = log(1 + u (e^λ − 1)) / λ,    then    m + s (T(u) − m),

where s ~ U(0, 1) draws them together: heaps, or none. The variance s²·var is between that of a heap and of no heap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.inside import inside as inside_bins
from dualquery.fitting.measured import Measured
from dualquery.table.domain import Categorical, Column, Numeric
from dualquery.table.numbers import OF_BIN
from dualquery.types import Reals

NEAREST = 0.02  # to an end of a bin
STEEPEST = 60.0  # λ
_LAMBDA = np.linspace(-STEEPEST, STEEPEST, 2401)


def _mean_of(slope: Reals) -> Reals:
    """The mean of the uniform law tilted by e^(λx): 1/(1 − e^−λ) − 1/λ."""
    safe = np.where(np.abs(slope) < 1e-4, 1e-4, slope)
    found: Reals = np.where(np.abs(slope) < 1e-4, 0.5 + slope / 12, 1 / -np.expm1(-safe) - 1 / safe)
    return found


_MEANS = _mean_of(_LAMBDA)


def tilted(quantiles: Reals, means: Reals) -> Reals:
    """The quantile of the law with such a mean, number by number."""
    slope = np.interp(np.clip(means, NEAREST, 1 - NEAREST), _MEANS, _LAMBDA)
    flat = np.abs(slope) < 1e-3
    safe = np.where(flat, 1.0, slope)
    # log(1 + u (e^λ − 1)) without overflow: λ + log(u + (1 − u) e^−λ) for λ > 0
    up = np.maximum(safe, 0) + np.log(
        np.where(
            safe > 0,
            quantiles + (1 - quantiles) * np.exp(-np.abs(safe)),
            1 + quantiles * np.expm1(safe * (safe < 0)),
        )
    )
    found: Reals = np.where(flat, quantiles, np.clip(up / safe, 0.0, 1.0))
    return found


class Placed(NamedTuple):
    """The numbers of a column over some rows: bins, ranks in them from 0 to 1, and the mean place of each bin."""

    column: Numeric
    codes: NDArray[np.int64]
    ranks: Reals
    numbers: Reals  # as released, in units where there are some
    means: Reals  # of the place in each bin
    deviations: Reals | None  # of those where they were measured


def placed(
    column: Numeric, codes: NDArray[np.int64], numbers: Reals, measured: Measured | None, records: float
) -> Placed:
    """From all released rows, of a table of so many records: `measured` are the sums inside bins."""
    counts = np.bincount(codes, minlength=column.bins + 1)
    order = np.lexsort((numbers, codes))
    ranks = np.empty(len(codes))
    ranks[order] = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes[order]]
    ranks = (ranks + 0.5) / counts[codes]
    low, high = _ends(column)
    known = codes < column.bins
    inside = np.zeros(len(codes))
    inside[known] = _place(column, numbers[known], codes[known], low, high)
    means = np.bincount(codes[known], inside[known], minlength=column.bins) / np.maximum(counts[:-1], 1)
    means = np.where(counts[:-1] > 0, means, 0.5)
    means = np.clip(means, NEAREST, 1 - NEAREST)
    if measured is None:
        return Placed(column, codes, ranks, numbers, means, None)
    off = inside_bins(column, counts[: column.bins] * (records / max(1, len(codes))), measured).mean
    return Placed(column, codes, ranks, numbers, means, off * 10 ** (column.decimals or 0) / (high - low))


def drawn_numbers(of: Placed, rows: NDArray[np.int64], rng: np.random.Generator) -> Reals:
    """Numbers for some of the rows, in bins that are drawn anew."""
    column, codes = of.column, of.codes[rows]
    low, high = _ends(column)
    if of.deviations is None:
        means = rng.beta(of.means, 1 - of.means)
    else:
        means = of.means + rng.standard_normal(column.bins) * of.deviations
    means = np.clip(means, NEAREST, 1 - NEAREST)
    together = rng.random(column.bins)
    found = of.numbers[rows].copy()
    at = np.flatnonzero(codes < column.bins)
    here = codes[at]
    place = tilted(of.ranks[rows][at], means[here])
    place = means[here] + together[here] * (place - means[here])
    moved = low[here] + place * (high[here] - low[here])
    least, most = column.bounds()
    if column.in_units:
        moved = np.floor(moved)
    found[at] = np.clip(moved, least[here], most[here])
    return found


def _ends(column: Numeric) -> tuple[Reals, Reals]:
    """Where each bin begins and ends; a unit stands for the numbers from it to the next one."""
    low, high = column.bounds()
    return low, high + 1.0 if column.in_units else high


def _place(column: Numeric, numbers: Reals, codes: NDArray[np.int64], low: Reals, high: Reals) -> Reals:
    middle = 0.5 if column.in_units else 0.0
    found: Reals = (numbers + middle - low[codes]) / np.maximum(high[codes] - low[codes], 1e-300)
    return np.clip(found, 0.0, 1.0)


def least_of_quantiles(column: Column, values: Reals) -> Reals:
    """How far off quantiles of plain numbers may be at least: about half a bin, or half the way to the next value."""
    if isinstance(column, Numeric):
        return column.half_bins(values)
    if not isinstance(column, Categorical) or not column.numeric:
        return np.zeros(len(values))
    known = column.numbers[~np.isnan(column.numbers)]
    apart = np.diff(known, append=known[-1] + (known[-1] - known[-2] if len(known) > 1 else 0.0))
    found: Reals = OF_BIN * apart[np.clip(np.searchsorted(known, values, "right") - 1, 0, None)]
    return found
