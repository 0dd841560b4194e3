"""Units that are public already, believed as far as noisy views and tallies bear them out. All is post-processing.

It is what `fitting.prior` does with rows. *Support*: the public units P, mutants of them (some attributes of a unit
and of its rows are drawn again), and independent units. *Trust*: a unit adds X_c to a cell of a view, a sum of
weights (`queries.views`), so that the mean of N units varies by E X_c²/N; the rest is `believed`. *Weights* of least
relative entropy to the support, whose tables come near to the measured ones, margins first. *Gate*: of two halves of
the noise one makes both fits, with P and without, and the other tells which share of the release P has; beforehand it
is believed to be N over what P might speak for. *Units*: each as often as its weight says, up to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fitter import RAREST
from dualquery.fitting.measured import LEAST, Measured, MeasuredTables, onto_simplex
from dualquery.fitting.prior import (
    CLOSE,
    MUTATION,
    NO_TRUST,
    STEPS,
    THINNED,
    THINNINGS,
    Trust,
    believed,
    borne_out,
    kept_by_centring,
    remixed,
    thinned,
)
from dualquery.fitting.reweighting import joined, reweighted
from dualquery.fitting.shrink import relative_posterior
from dualquery.fitting.views import Everything, Likely, MeasuredViews, fitted_units, size_law
from dualquery.loops import njit
from dualquery.queries.tables import centred
from dualquery.queries.views import WHOLE, Tallies, View
from dualquery.table.database import starts_of
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.units import Members, Units, with_sizes
from dualquery.types import Cells, Done, Integers, Reals, Set, no_progress

FEWEST, MOST = 2_000, 20_000  # public units that are looked at, and new ones of either kind
MOST_ENTRIES = 8_000_000  # cells that units add to, at about


@dataclass(frozen=True, eq=False)
class PublicUnits:
    """Units that anybody may know, how many they speak for at most, and the share of a replica (`PublicRows`)."""

    units: Units
    number: float
    share: float | None = None


@dataclass(frozen=True, eq=False)
class WeighedUnits:
    """What each of some units adds to the cells of measured tables and tallies (`reweighting.Weighed`)."""

    units: int
    unit: Integers
    cell: Integers
    adds: Reals
    told: Sequence[Measured]  # of (a view, tallies or None: the units themselves; a set), in numbers a unit

    @staticmethod
    def of(units: Units, told: Sequence[Measured]) -> WeighedUnits:
        flat: dict[Any, tuple[Integers, Sequence[Any], Reals]] = {
            None: (np.arange(units.rows), units.columns, np.ones(1))
        }
        parts, begin = [], 0
        for each in told:
            of, members = each.what
            size = each.values.size
            if isinstance(of, Tallies):
                unit, cell, adds = _tallied(of, units, members)
            else:
                if of not in flat:
                    flat[of] = _flat_records(of, units)
                unit, columns, weight = flat[of]
                code = np.ravel_multi_index(
                    tuple(np.asarray(columns[j], np.int64) for j in members), each.values.shape
                )
                both, at = np.unique(unit * size + code, return_inverse=True)
                adds = np.bincount(at, np.broadcast_to(weight, len(at)), len(both)).astype(np.float64)
                unit, cell = np.divmod(both, size)
            parts.append((unit, cell + begin, adds))
            begin += size
        unit, cell, adds = (np.concatenate(each) for each in zip(*parts, strict=True))
        return WeighedUnits(units.rows, unit, cell, adds, told)

    def totals(self, weights: Reals, power: int = 1) -> Reals:
        """Σ_u w_u X_uc of every cell, or of the squares of X."""
        return np.bincount(self.cell, weights[self.unit] * self.adds**power, self._ends[-1]).astype(
            np.float64
        )

    def said(self, numbers: Reals) -> Reals:
        """Of each unit the sum of the numbers in its cells, each as often as it adds to it."""
        return np.bincount(self.unit, numbers[self.cell] * self.adds, self.units).astype(np.float64)

    def rounded(self, wanted: Reals, order: Integers) -> Integers:
        """A whole number of each unit, next to the wanted one: cells hardly change (`WeighedRows.rounded`)."""
        by_unit, out = np.argsort(self.unit, kind="stable"), np.zeros(self.units, np.int64)
        start = np.searchsorted(self.unit[by_unit], np.arange(self.units + 1))
        over = np.zeros(self._ends[-1])
        deal(start, self.cell[by_unit], self.adds[by_unit], wanted, order, over, out)
        return out

    def centred(self, numbers: Reals) -> Reals:
        """Tables without what smaller sets say; tallies as they are."""
        parts = zip(np.split(numbers, self._ends[:-1]), self.told, strict=True)
        return joined([_centred(each, part.reshape(each.values.shape)) for part, each in parts])

    @property
    def _ends(self) -> Integers:
        return np.cumsum([each.values.size for each in self.told])


@njit(cache=True)
def deal(start, cell, adds, wanted, order, over, out):  # type: ignore[no-untyped-def]
    """out[u] = ⌊wanted[u]⌋ or one more; `over` is what each cell has been dealt beyond what was wanted."""
    for u in order:
        whole = int(np.floor(wanted[u]))
        part, total, squares = wanted[u] - whole, 0.0, 0.0
        for e in range(start[u], start[u + 1]):
            total += adds[e] * over[cell[e]]
            squares += adds[e] ** 2
        up = 1 if total < squares * (part - 0.5) else 0
        for e in range(start[u], start[u + 1]):
            over[cell[e]] += (up - part) * adds[e]
        out[u] = whole + up


def _centred(told: Measured, cells: Cells) -> Cells:
    return cells if isinstance(told.what[0], Tallies) else centred(cells)


def _flat_records(view: View, units: Units) -> tuple[Integers, Sequence[Any], Reals]:
    number = view.number[view.members(units).sizes]
    blocks = [(records.columns, weights) for records, weights in view.blocks(units)]
    columns = [np.concatenate(each) for each in zip(*(columns for columns, _ in blocks), strict=True)]
    weights = np.concatenate([weights for _, weights in blocks]) / WHOLE
    return np.repeat(np.arange(units.rows), number), columns, weights


def _tallied(tallies: Tallies, units: Units, members: Set) -> tuple[Integers, Integers, Reals]:
    unit, cell, weights = tallies.held(units, members)
    return unit, cell, weights / WHOLE


def evidence(known: MeasuredTables, views: Sequence[MeasuredViews]) -> list[Measured]:
    """All that was measured in numbers a unit; sets of one attribute first."""
    found: list[tuple[Any, Measured]] = [
        (None, Measured(s, cells, known.variance[s])) for s, cells in known.interactions.items() if s
    ]
    for given in views:
        found += [(given.rows, each) for each in given.of_rows]
        found += [(given.pairs, each) for each in given.of_pairs]
        found += list(given.tallies)
    told = [
        Measured((of, each.what), each.values / known.total, each.variance / known.total**2)
        for of, each in found
    ]
    return sorted(told, key=_margin, reverse=True)


def _margin(told: Measured) -> bool:
    return len(told.what[1]) == 1 and not isinstance(told.what[0], Tallies)


def _halves(
    known: MeasuredTables, views: Sequence[MeasuredViews], rng: np.random.Generator
) -> tuple[MeasuredTables, list[MeasuredViews], list[Measured]]:
    """One half of the noise, as it was measured, and the other as evidence (`fitting.prior.thinned`)."""

    def split(each: Measured, tallied: bool = False) -> tuple[Measured, Measured]:
        noise = rng.normal(0.0, sqrt(each.variance), each.values.shape)
        noise = noise if tallied else centred(noise)
        first = Measured(each.what, each.values + sqrt(THINNED) * noise, each.variance * (1 + THINNED))
        return first, Measured(
            each.what, each.values - noise / sqrt(THINNED), each.variance * (1 + 1 / THINNED)
        )

    first, second = thinned(known, rng)
    parts: tuple[list[MeasuredViews], list[MeasuredViews]] = [], []
    for given in views:
        of_rows, of_pairs = ([split(each) for each in some] for some in (given.of_rows, given.of_pairs))
        tallies = [(of, split(each, tallied=True)) for of, each in given.tallies]
        for half, part in enumerate(parts):
            part.append(
                replace(
                    given,
                    of_rows=tuple(each[half] for each in of_rows),
                    of_pairs=tuple(each[half] for each in of_pairs),
                    tallies=tuple((of, each[half]) for of, each in tallies),
                )
            )
    return first, parts[0], evidence(second, parts[1])


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Units and how much each counts, together one; and the units that they count as, by margins, and by all."""

    units: Units
    rows: WeighedUnits
    weights: Reals
    of_ones: float
    records: float

    def drawn(self, number: int, rng: np.random.Generator) -> Units:
        times = self.rows.rounded(number * self.weights, rng.permutation(self.units.rows))
        found = np.repeat(np.arange(self.units.rows), times)
        # rounding leaves a few too many or too few
        more = rng.choice(self.units.rows, max(0, number - len(found)), p=self.weights)
        return self.units.take(rng.permutation(np.concatenate([found, more]))[:number])


def fitted_with_public(
    known: MeasuredTables,
    views: Sequence[MeasuredViews],
    public: PublicUnits,
    rows: int,
    rng: np.random.Generator,
    progress: Done,
) -> tuple[Units, dict[str, float], Trust]:
    """So many units that answer all that was measured (`fitted_units`), by public units where they are borne out."""
    public, share = _sampled(public, known, views, rng), public.share
    if share is None:
        share = _share_borne_out(known, views, public, rows, rng, progress)
    progress(THINNINGS, THINNINGS + 1)
    if share == 0:
        units, misfits = fitted_units(known, views, rows, rng, no_progress)
        return units, misfits, NO_TRUST
    wanted = Everything.of(known, views, rng)
    found = _around(known, views, public, wanted, rng, STEPS)
    own = round(share * rows)
    made = found.drawn(own, rng)
    if own < rows:
        made = made.with_more(fitted_units(known, views, rows - own, rng, no_progress)[0])
        made = made.take(rng.permutation(rows))
    members = zip(made.database.children, made.members, strict=True)
    made = replace(made, members=tuple(each.in_order(child.ordering) for child, each in members))
    return made, wanted.misfits(made), Trust(found.records, share, found.of_ones)


def _sampled(
    public: PublicUnits, known: MeasuredTables, views: Sequence[MeasuredViews], rng: np.random.Generator
) -> PublicUnits:
    """As many as fits have time for."""
    each = float(len(known.interactions))
    for given in views:
        sizes = given.rows.members(public.units).sizes
        each += sizes.mean() * (len(given.of_rows) + len(given.tallies))
        each += 0.0 if given.pairs is None else given.pairs.number[sizes].mean() * len(given.of_pairs)
    most = max(FEWEST, min(MOST, int(MOST_ENTRIES / each)))
    if public.units.rows <= most:
        return public
    return replace(public, units=public.units.take(rng.choice(public.units.rows, most, replace=False)))


def _share_borne_out(
    known: MeasuredTables,
    views: Sequence[MeasuredViews],
    public: PublicUnits,
    rows: int,
    rng: np.random.Generator,
    progress: Done,
) -> float:
    def halves(times: int) -> tuple[float, float, float]:
        progress(times, THINNINGS + 1)
        first, of_views, second = _halves(known, views, rng)
        held = _around(first, of_views, public, Everything.of(first, of_views, rng), rng, STEPS // 2)
        without, _ = fitted_units(first, of_views, rows, rng, no_progress)
        a, b = (
            made.centred(made.totals(weights))
            for made, weights in (
                (WeighedUnits.of(held.units, second), held.weights),
                (WeighedUnits.of(without, second), np.full(rows, 1 / rows)),
            )
        )
        precision = _spread(second, [1 / each.variance for each in second])
        target = joined([each.values for each in second])
        above, below = (
            float((precision * (target - b) * (a - b)).sum()),
            float((precision * (a - b) ** 2).sum()),
        )
        return above, below, held.records * (1 / known.total + 1 / public.number)

    return borne_out(halves)


def _spread(told: Sequence[Measured], numbers: Sequence[float]) -> Reals:
    return np.repeat(numbers, [each.values.size for each in told])


def _around(
    known: MeasuredTables,
    views: Sequence[MeasuredViews],
    public: PublicUnits,
    wanted: Everything,
    rng: np.random.Generator,
    steps: int,
) -> _Weighed:
    """The likeliest weights around public units (`fitting.prior.around`)."""
    told, most = evidence(known, views), 1 / (1 / known.total + 1 / public.number)
    units, part = _support(public.units, wanted, rng)
    base = 1 / np.bincount(part)[part]
    ones = [each for each in told if _margin(each)]
    margins, others, rows = (WeighedUnits.of(units, some) for some in (ones, told[len(ones) :], told))
    masses, of_ones = _trust(margins, base, part, most)
    start = remixed(base, part, masses)
    penalty = _spread(told, [each.variance for each in told])
    size = sum(each.values.size for each in ones)
    target = joined([each.values for each in told])
    weights = reweighted(margins, start, target[:size], of_ones * penalty[:size], steps * 2 // 3)
    base = base * weights / np.maximum(start, np.finfo(np.float64).tiny)
    masses, number = _trust(others, base, part, most)
    target[:size] = margins.centred(margins.totals(weights))
    weights = reweighted(rows, remixed(base, part, masses), target, number * penalty, steps)
    return _Weighed(units, rows, weights, of_ones, number)


def _trust(rows: WeighedUnits, base: Reals, part: Integers, most: float) -> tuple[Reals, float]:
    parts = [np.where(part == each, base, 0.0) for each in range(3)]
    noise = [
        each.variance * (1.0 if isinstance(each.what[0], Tallies) else kept_by_centring(each.values))
        for each in rows.told
    ]
    return believed(
        joined([each.values for each in rows.told]),
        _spread(rows.told, noise),
        np.array([rows.centred(rows.totals(each)) for each in parts]),
        np.array([rows.totals(each, 2) for each in parts]),
        most,
    )


def _support(public: Units, wanted: Everything, rng: np.random.Generator) -> tuple[Units, Integers]:
    """Public units (part 0), mutants of them (1) and independent ones (2)."""
    number = max(FEWEST, public.rows)
    mutants = public.take(rng.integers(0, public.rows, number))
    ones = _likely_ones(wanted.units, public, rng)
    sizes = len(public.database.root.columns)
    of_rows = [_likely_ones(rows, public, rng) for rows in wanted.rows]
    alone = []
    for place, child in enumerate(public.database.children):
        law = ones[sizes + place] @ size_law(child)
        numbers = rng.choice(len(law), number, p=law / law.sum())
        rows = np.zeros((int(numbers.sum()), child.domain.width), np.int64)
        alone.append(Members(starts_of(numbers), Records.from_rows(child.domain, rows)))
    nobody = Records.from_rows(
        Domain(public.database.columns), np.zeros((number, public.domain.width), np.int64)
    )
    made = [
        with_sizes(
            public.database,
            number,
            [_again(codes, ones[j], rng, least) for j, codes in enumerate(columns[:sizes])],
            tuple(
                replace(each, records=_rows_again(each.records, told, rng, least))
                for each, told in zip(members, of_rows, strict=True)
            ),
        )
        for columns, members, least in (
            (mutants.columns, mutants.members, MUTATION[0]),
            (nobody.columns, alone, 1.0),
        )
    ]
    part = np.repeat(np.arange(3), [public.rows, number, number])
    return public.with_more(made[0]).with_more(made[1]), part


def _rows_again(rows: Records, ones: Sequence[Cells], rng: np.random.Generator, least: float) -> Records:
    own = ones[len(ones) - rows.domain.width :]
    columns = [_again(codes, told, rng, least) for codes, told in zip(rows.columns, own, strict=True)]
    return Records(rows.domain, rows.rows, tuple(columns))


def _again(codes: Any, likely: Cells, rng: np.random.Generator, least: float) -> NDArray[np.unsignedinteger]:
    """Codes of an attribute, some drawn again: by the chance that their own table is wrong, and by this at least."""
    held = np.bincount(codes, minlength=len(likely)) / max(1, len(codes))
    chance = max(least, min(MUTATION[1], 0.5 * float(np.abs(held - likely).sum())))
    drawn = rng.choice(len(likely), len(codes), p=likely / likely.sum())
    out: NDArray[np.unsignedinteger] = np.where(rng.random(len(codes)) < chance, drawn, codes).astype(
        codes.dtype
    )
    return out


def _likely_ones(likely: Likely, public: Units, rng: np.random.Generator) -> list[Cells]:
    """One-way tables of a view, drawn towards those of public units as far as all of them together say."""
    measured = likely.wanted.measured
    sets = [(j,) for j in range(measured.domain.width)]
    shapes = [Measured((likely.view, s), np.zeros(int(measured.domain.sizes[s[0]])), 0.0) for s in sets]
    totals = WeighedUnits.of(public, shapes).totals(np.ones(public.rows))
    ends = np.cumsum([each.values.size for each in shapes])[:-1]
    mean = [np.maximum(cells / max(cells.sum(), LEAST), RAREST) for cells in np.split(totals, ends)]
    seen = [measured.table(s) for s in sets]
    noise = _spread(shapes, [measured.deviation(s) for s in sets])
    cells = relative_posterior(joined(mean), joined(seen) - joined(mean), noise, rng, CLOSE)
    return [onto_simplex(each, 1.0) for each in np.split(cells, ends)]
