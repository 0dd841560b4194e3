"""Which sets are worth how much of the budget: shares that minimise the error that one-way tables let expect.

Of a set S with one-way tables p, a cell has the mean M = Π p_j. How far the truth lies from what smaller sets
say is taken to be t, t² = (θ M)² + min(M/n, (2M)²): a factor for pairs (θ = ½; they do depend), and what
sampling alone makes of a table. Measured with noise of deviation s = √(unit/x)/n, for a share x, and shrunk
towards its mean, the table is wrong by

    E_S(x) = .8 Σ_cells t s / √(t² + s²),        E_S(0) = .8 Σ_cells t,

convex and falling in x. A table over T of the workload is wrong by L_T = √(Σ_{B ⊆ T} E_B²) over its subsets of two
and more attributes, and Σ_T L_T is made small: w_B = Σ_{T ⊇ B} E_B/L_T, then x_B = argmin w_B E_B(x) + λ x with the λ
that spends the budget, and again. Only released and public numbers come in, so this is no business of the curator's.

Under pure ε the measured tables tell several interactions each, and a share is worth its square (`Overlaps`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import HALF_NORMAL, LEAST
from dualquery.loops import in_shares, njit, plain_algebra, together
from dualquery.types import Cells, Reals, Set

DEPENDENCE = 0.5  # θ of a pair; larger sets depend as sampling makes them. Doubled: adult +1.7%
WORTHWHILE = 0.75  # a larger set is measured where that lowers its error to this part at most
STEPS = 4  # of dropping larger sets that are not worth it, and of weights within each
BISECTIONS = 30
POWER = 1.3  # of L_T in the sum: a little more weight on the tables that are worst
BIN = 0.2  # of logarithms of fractions
AT_ONCE, LEAST_CURVES = 1024, 1024  # sets whose curves are worked out together, or read by a thread
_BINS = math.ceil(-math.log(LEAST) / BIN) + 1
_DEVIATIONS = np.geomspace(1e-9, 1.0, 181)[::-1]  # s, from large to small: shares then grow


@dataclass(frozen=True)
class Curves:
    """The error of each set (a row) at growing shares of the budget, from none on."""

    sets: tuple[Set, ...]
    shares: Reals
    errors: Reals

    def at(self, shares: Reals) -> Reals:
        """E_S(x), one share a set."""
        errors = np.empty(len(shares))
        in_shares(read_curves, len(shares), shares, self.shares, self.errors, errors, least=LEAST_CURVES)
        return errors

    def after(self, spent: Reals) -> Curves:
        """The same for shares that come on top of these."""
        now = self.at(spent)[:, None]
        later = self.shares > spent[:, None]
        errors = np.where(later, self.errors, now)
        return Curves(self.sets, np.where(later, self.shares - spent[:, None], 0.0), errors)

    def replaced(self, better: Mapping[Set, tuple[Reals, Reals]]) -> Curves:
        """With the curves (shares, errors) of some sets replaced, on as many points as the others have."""
        shares, errors = self.shares.copy(), self.errors.copy()
        for place, members in enumerate(self.sets):
            if members in better:
                xs, es = better[members]
                shares[place] = np.concatenate([[0.0], np.geomspace(xs[1], xs[-1], shares.shape[1] - 1)])
                errors[place] = np.interp(shares[place], xs, es)
        return Curves(self.sets, shares, errors)


@dataclass(frozen=True)
class Allocation:
    """A share for each set, the error that is left of it, and that of each table of the workload."""

    shares: Reals
    errors: Reals
    tables: Reals


def predicted_curves(
    sets: Sequence[Set],
    ones: Mapping[int, Cells],
    rows: float,
    units: Reals,
    dependence: Reals | None = None,
) -> Curves:
    """E_S of every set. units[S] is the variance, in records², of a cell of its interaction for the whole budget.

    `dependence` is θ, one a set; where none is given, that of pairs, and nothing for larger sets.
    """
    if dependence is None:
        usual = {1: 1.0, 2: DEPENDENCE}  # nothing is known of a one-way table beforehand
        dependence = np.array([usual.get(len(members), 0.0) for members in sets])
    used = set().union(*sets)
    histograms = np.zeros((1 + max(used), _BINS))
    for j in used:
        histograms[j] = _histogram(ones[j])
    widest = max(map(len, sets))
    length = widest * (_BINS - 1) + 1
    errors, none = np.empty((len(sets), len(_DEVIATIONS))), np.empty(len(sets))
    alike: dict[tuple[int, float], list[int]] = {}
    for place, (members, theta) in enumerate(zip(sets, dependence.tolist(), strict=True)):
        alike.setdefault((len(members), theta), []).append(place)
    means = np.exp(-BIN * np.arange(length))

    def predict(part: tuple[int, float, list[int]]) -> None:
        order, theta, places = part
        squared = (theta * means) ** 2 + np.minimum(means / rows, (2 * means) ** 2)
        apart = np.sqrt(squared)
        kernel = apart[:, None] * _DEVIATIONS / np.sqrt(squared[:, None] + _DEVIATIONS**2)
        cells = np.zeros((len(places), length))
        convolve(np.array([sets[place] for place in places], np.int64).reshape(-1, order), histograms, cells)
        errors[places] = HALF_NORMAL * cells @ kernel
        none[places] = HALF_NORMAL * cells @ apart

    with plain_algebra():  # and parts of one size: the same sums on any number of threads
        parts = [
            (*key, all[i : i + AT_ONCE]) for key, all in alike.items() for i in range(0, len(all), AT_ONCE)
        ]
        together(predict, parts)
    shares = units[:, None] / (rows * _DEVIATIONS[None, :]) ** 2
    return Curves(
        tuple(sets),
        np.concatenate([np.zeros((len(sets), 1)), shares], axis=1),
        np.concatenate([none[:, None], errors], axis=1),
    )


def _histogram(fractions: Cells) -> Reals:
    """How many values have −log p in each bin. Products of tables are convolutions of these."""
    place = np.rint(-np.log(np.maximum(fractions, LEAST)) / BIN).astype(np.int64)
    return np.bincount(place, minlength=_BINS).astype(np.float64)


@njit(cache=True)
def read_curves(lower, upper, at, shares, errors, out):  # type: ignore[no-untyped-def]
    """out[row] becomes the row's curve at that share."""
    for row in range(lower, upper):
        out[row] = np.interp(at[row], shares[row], errors[row])


@njit(cache=True)
def convolve(members, histograms, cells):  # type: ignore[no-untyped-def]
    """cells[row] becomes the convolution of the histograms of the row's members; all of it whole numbers."""
    bins = histograms.shape[1]
    before = np.empty(cells.shape[1])
    for row in range(len(cells)):
        mine = cells[row]
        for i in range(bins):
            mine[i] = histograms[members[row, 0], i]
        for k in range(1, members.shape[1]):
            reach = k * (bins - 1) + 1
            for i in range(cells.shape[1]):
                before[i] = mine[i]
                mine[i] = 0.0
            for step in range(bins):
                times = histograms[members[row, k], step]
                if times > 0.0:
                    for i in range(reach):
                        mine[step + i] += times * before[i]


class Workloads:
    """Which sets lie in which table of a workload."""

    def __init__(self, sets: Sequence[Set], tables: Sequence[Set]) -> None:
        where = {members: place for place, members in enumerate(sets)}
        inside = [
            (t, where[subset])
            for t, table in enumerate(tables)
            for order in range(1, len(table) + 1)
            for subset in combinations(table, order)
            if subset in where
        ]
        self._table, self._set = np.array(inside, np.int64).reshape(-1, 2).T
        self._tables, self._sets = len(tables), len(sets)

    def errors(self, of_sets: Reals) -> Reals:
        """L_T."""
        return np.sqrt(np.bincount(self._table, of_sets[self._set] ** 2, minlength=self._tables))

    def weights(self, of_sets: Reals) -> Reals:
        """w_B = Σ_{T ⊇ B} E_B L_T^(p−2)."""
        tables = np.maximum(self.errors(of_sets), np.finfo(np.float64).tiny) ** (POWER - 2)
        return np.bincount(self._set, of_sets[self._set] * tables[self._table], minlength=self._sets).astype(
            np.float64
        )


def allocate(
    curves: Curves,
    workload: Workloads,
    budget: float,
    *,
    allowed: NDArray[np.bool_] | None = None,
    unmeasured: Reals | None = None,
) -> Allocation:
    """Shares that sum to the budget. Larger sets that would gain too little are dropped, and the rest tried again.

    `unmeasured` is E_S(0), where the curves begin later.
    """
    larger = np.array([len(members) > 2 for members in curves.sets])
    kept = np.ones(len(larger), np.bool_) if allowed is None else allowed.copy()
    none = curves.errors[:, 0] if unmeasured is None else unmeasured
    for _ in range(STEPS):
        shares, errors = _optimum(curves, workload, budget, kept)
        poor = kept & larger & (errors > WORTHWHILE * none)
        if not poor.any():
            break
        kept &= ~poor
    return Allocation(shares, errors, workload.errors(errors))


def _optimum(
    curves: Curves, workload: Workloads, budget: float, kept: NDArray[np.bool_]
) -> tuple[Reals, Reals]:
    """Weights, then the shares that are best for them, some times over. Shares are points of the curves."""
    steps = np.diff(curves.shares, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.where(steps > 0, -np.diff(curves.errors, axis=1) / steps, np.inf)
    slopes = np.minimum.accumulate(slopes, axis=1)  # convex but for rounding
    rows = np.arange(len(kept))
    errors = np.where(kept, 0.3 * curves.errors[:, 0], curves.errors[:, 0])
    for _ in range(STEPS):
        gains = np.where(kept, workload.weights(errors), 0.0)
        place = _taken(slopes, gains, curves.shares, budget)
        errors = curves.errors[rows, place]
    shares = curves.shares[rows, place]
    return shares * (budget / max(float(shares.sum()), np.finfo(np.float64).tiny)), errors


@njit(cache=True)
def _taken(slopes, gains, shares, budget):  # type: ignore[no-untyped-def]
    """How far along its curve each set goes: as long as a step gains more than it costs. Slopes fall along a curve.

    What a step costs is found by bisection of its logarithm, so that the shares sum to no more than the budget.
    """
    place, least = np.zeros(len(gains), np.int64), np.zeros(len(gains), np.int64)
    most = np.full(len(gains), slopes.shape[1])
    low, high = -60.0, 60.0
    for step in range(BISECTIONS + 1):
        middle = (low + high) / 2 if step < BISECTIONS else high
        price, total = math.exp(middle), 0.0
        for row in range(len(gains)):
            begin, end = least[row], most[row]
            while begin < end:
                here = (begin + end) // 2
                if slopes[row, here] * gains[row] > price:
                    begin = here + 1
                else:
                    end = here
            place[row] = begin
            total += shares[row, begin]
        if total > budget:
            low, most[:] = middle, place
        else:
            high, least[:] = middle, place
    return place


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Tables that tell several interactions each, with noise whose deviation falls as one over a table's share.

    Table t tells interaction b with the precision c x_t²; precisions add up. Squares make it better to measure few
    tables well than many poorly: where triples are measured they tell the pairs too, and pairs often need no share
    of their own. So the error has many minima. Tables of one group (alike in order and size) have one share, and a
    search from each order on, doubling, halving and dropping groups, finds the best of them.
    """

    curves: Curves  # of all interactions, by their precision
    workload: Workloads
    told: NDArray[np.int64]  # b
    by: NDArray[np.int64]  # t, of which there are as many
    precision: Reals  # c
    group: NDArray[np.int64]  # of each table

    @staticmethod
    def of(
        curves: Curves,
        tables: Sequence[Set],
        told: Sequence[tuple[Set, int, float]],
        alike: Sequence[Hashable],
    ) -> Overlaps:
        """`told` are (interaction, place of the table that tells it, c)."""
        where = {members: place for place, members in enumerate(curves.sets)}
        groups: dict[Hashable, int] = {}
        return Overlaps(
            curves,
            Workloads(curves.sets, tables),
            np.array([where[members] for members, _, _ in told], np.int64),
            np.array([table for _, table, _ in told], np.int64),
            np.array([c for _, _, c in told]),
            np.array([groups.setdefault(each, len(groups)) for each in alike], np.int64),
        )

    @cached_property
    def _needs(self) -> NDArray[np.int64]:
        """Each interaction beside one of those that a table needs as well: its subsets without one attribute."""
        where = {members: place for place, members in enumerate(self.curves.sets)}
        found = [
            (place, where[subset])
            for members, place in where.items()
            if len(members) > 1
            for subset in combinations(members, len(members) - 1)
        ]
        return np.array(found, np.int64).reshape(-1, 2).T

    def precisions(self, shares: Reals) -> Reals:
        """Of every interaction."""
        return np.bincount(
            self.told, self.precision * shares[self.by] ** 2, minlength=len(self.curves.sets)
        ).astype(np.float64)

    def error(self, shares: Reals) -> float:
        """Of the tables of the workload; without bound where one could not be put together."""
        known = self.precisions(shares)
        larger, smaller = self._needs
        ones = np.array([len(members) == 1 for members in self.curves.sets])
        if (known[ones] <= 0).any() or ((known[larger] > 0) & (known[smaller] <= 0)).any():
            return math.inf
        grid, rows = self.curves.shares[0], np.arange(len(known))
        after = np.clip(np.searchsorted(grid, known), 1, len(grid) - 1)
        part = np.clip((known - grid[after - 1]) / (grid[after] - grid[after - 1]), 0.0, 1.0)
        errors = (1 - part) * self.curves.errors[rows, after - 1] + part * self.curves.errors[rows, after]
        return float((self.workload.errors(errors) ** POWER).mean())

    def best(self) -> Reals:
        """The share of every table, together one."""
        number = np.bincount(self.group)
        order = np.zeros(len(number), np.int64)
        order[self.group] = [len(members) for members in self.curves.sets]
        starts = [np.where(order == top, 1.0, 0.1 * (order < top)) for top in range(1, order.max() + 1)]

        def shares(weights: Reals) -> Reals:
            return (weights / (number @ weights))[self.group]

        def improved(weights: Reals) -> tuple[float, Reals]:
            least = self.error(shares(weights))
            for factor in (4.0, 2.0, 1.4):  # each change must gain a thousandth
                moved = True
                while moved:
                    moved = False
                    for place in range(len(weights)):
                        now = weights[place]
                        for tried in (0.0, now / factor, now * factor) if now else (0.5 * weights.max(),):
                            other = weights.copy()
                            other[place] = tried
                            if other.any() and (error := self.error(shares(other))) < 0.999 * least:
                                weights, least, moved = other, error, True
            return least, weights

        return shares(min((improved(start) for start in starts), key=lambda found: found[0])[1])
