"""From measured views to units that answer them: what each view is likely to be, and whole units fitted to all.

Some margins of a view are not measured, because others tell them. Those of the unit's attributes among rows follow
from its attributes by the number of rows, since a unit with m rows weighs E(m) · w(m) there (`queries.views`); those
of one row of a pair follow from rows by the number of rows. What is measured of a view is then shrunk as tables of
records are (`fitting.fit.PairTargets`). Units start from records fitted to their own tables, with rows drawn by the
number of rows, and answer everything at once; once they are warm, targets are raised where they fall short of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fit import LARGE, LEANING, MORE_LIKELY, PairTargets, fit
from dualquery.fitting.fitter import LEAST_TEMPERATURE, RAREST, Effort
from dualquery.fitting.measured import LEAST, Measured, MeasuredTables
from dualquery.fitting.posteriors import tree_lean, tree_of
from dualquery.fitting.shrink import relative_posterior
from dualquery.fitting.units import TallyTarget, UnitTarget, counted, fit_units
from dualquery.queries.tables import centred
from dualquery.queries.views import WHOLE, Tallies, View
from dualquery.table.database import Database, Linked, starts_of
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.units import Members, Units, with_sizes
from dualquery.types import Cells, Done, Integers, Reals, no_progress

WARM_UP, WARM = (
    (4.0, 2.0, 1.0),
    2,
)  # passes before tallies count, by temperature, and from then on until units are warm
MORE = 2  # passes after targets were raised
SNAPSHOTS = 2  # of units, so many times as the fit holds
COVERED = 0.85  # of the rows: so many of each unit count in full


@dataclass(frozen=True)
class MeasuredViews:
    """Of one child table: interactions of rows and of pairs of rows, in flat records of weight one, and tallies."""

    rows: View
    pairs: View | None  # None where no unit has two rows
    of_rows: tuple[Measured, ...]
    of_pairs: tuple[Measured, ...]
    tallies: tuple[tuple[Tallies, Measured], ...]  # of one attribute each

    @property
    def table(self) -> Linked:
        return self.rows.database.child(self.rows.child)

    @property
    def size(self) -> int:
        """The attribute of a unit that says how many rows it has."""
        database = self.rows.database
        return len(database.root.columns) + database.place(self.rows.child)


def size_law(table: Linked) -> Reals:
    """How likely each number of rows is in each class of sizes, by m⁻² where a class has several."""
    law = np.zeros((len(table.size.labels), table.at_most + 1))
    for code in range(len(law)):
        inside = np.array(table.sizes_in(code))
        chance = np.maximum(inside, 1.0) ** -2
        law[code, inside] = chance / chance.sum()
    return law


def rows_in_full(table: Linked, sizes: Reals) -> int:
    """c: the fewest rows of a unit that cover `COVERED` of all rows, units having sizes by these chances."""
    numbers = np.arange(table.at_most + 1)
    chance = sizes @ size_law(table)
    kept = [float(chance @ np.minimum(numbers, c)) for c in numbers]
    return max(1, int(np.searchsorted(kept, COVERED * kept[-1] - LEAST)))


def in_full(view: View, rows: int) -> View:
    """The view, of which the flat records of a unit of so many rows count in full, of two rows at least."""
    least = 2 - view.chained if view.slots == 2 else 1
    return replace(view, c=max(least, int(view.number[rows])))


def mass_of(view: View) -> Reals:
    """What all flat records of a unit weigh, by its class of sizes."""
    return size_law(view.database.child(view.child)) @ (view.number * view.weights) / WHOLE


@dataclass(frozen=True)
class Likely:
    """A view (None: the units themselves) and its tables as they are likely to be."""

    view: View | None
    wanted: PairTargets

    @cached_property
    def pairs(self) -> dict[tuple[int, ...], Cells]:
        return self.wanted.pairs()

    def together(self, i: int, j: int) -> Cells:
        """The table of two attributes; of two that were not measured together as if they were independent."""
        found = self.pairs.get((i, j) if i < j else (j, i))
        if found is None:
            return np.outer(self.wanted.ones[i], self.wanted.ones[j])
        return np.maximum(found if i < j else found.T, 0.0)

    @staticmethod
    def of(
        view: View | None,
        domain: Domain,
        number: Measured,
        told: Sequence[Measured],
        rng: np.random.Generator,
    ) -> Likely:
        """Of what is known; attributes of one value say nothing and are known."""
        number = Measured((), np.maximum(number.values, 1.0), max(number.variance, LEAST))
        constant = [
            Measured((j,), np.zeros(1), number.variance) for j, size in enumerate(domain.sizes) if size == 1
        ]
        known = MeasuredTables.nothing(domain).joined([number, *told, *constant]).counted()
        return Likely(view, PairTargets.of(known, rng, MORE_LIKELY))


def _units(measured: MeasuredTables, rng: np.random.Generator) -> Likely:
    told = [Measured(s, cells, measured.variance[s]) for s, cells in measured.interactions.items() if s]
    number = Measured((), np.array(measured.total), measured.variance[()])
    return Likely.of(None, measured.domain, number, told, rng)


def _rows(units: Likely, given: MeasuredViews, rng: np.random.Generator) -> Likely:
    """The view of rows, with the margins of the unit's attributes as its own tables tell them."""
    view, ones, measured = given.rows, units.wanted.ones, units.wanted.measured
    mass, margins = mass_of(view), []
    for j, fractions in ones.items():
        table = np.diag(fractions) if j == given.size else units.together(j, given.size)
        margin = table @ mass / max(float(table.sum()), LEAST)
        margins.append(Measured((j,), centred(margin * measured.total), measured.variance[(j,)]))
    number = Measured((), np.array(measured.total * float(ones[given.size] @ mass)), measured.variance[()])
    return Likely.of(view, view.domain, number, [*given.of_rows, *margins], rng)


def _pairs(units: Likely, rows: Likely, given: MeasuredViews, rng: np.random.Generator) -> Likely:
    """The view of pairs, with the margins of a row's attributes as rows by sizes tell them; a table of an attribute
    with itself is made symmetric, which leaves (k + 1)/2k of its noise. Of a row and the next one neither holds.
    """
    assert given.pairs is not None
    width, own = given.rows.database.width, given.table.domain.width
    mass = mass_of(given.pairs)
    ratio = mass / np.maximum(mass_of(given.rows), LEAST)
    measured = units.wanted.measured
    number = measured.total * float(units.wanted.ones[given.size] @ mass)
    told = [*given.of_pairs]
    if not given.pairs.chained:
        told = [_symmetric(each) if each.what[1] - each.what[0] == own else each for each in told]
    for a in range(0 if given.pairs.chained else own):
        if (width + a,) in rows.wanted.measured.variance:
            margin = rows.together(width + a, given.size) @ ratio
            margin *= number / max(float(margin.sum()), LEAST)
            variance = rows.wanted.measured.variance[(width + a,)]
            told += [Measured((j,), centred(margin), variance) for j in (width + a, width + own + a)]
    return Likely.of(
        given.pairs, given.pairs.domain, Measured((), np.array(number), measured.variance[()]), told, rng
    )


def _symmetric(each: Measured) -> Measured:
    k = len(each.values)
    return Measured(each.what, (each.values + each.values.T) / 2, each.variance * (k + 1) / (2 * k))


@dataclass(frozen=True)
class _Asked:
    """A target, the deviation of a cell's noise, and what the cells are likely to be where they may be raised."""

    target: UnitTarget
    deviation: float
    likely: Cells | None

    def raised(self, fractions: Cells) -> _Asked:
        """With a higher target where units fall short of it (`fitting.fit.PairTargets.added_back`)."""
        if self.likely is None:
            return self
        part = self.likely / (self.likely + LARGE * self.deviation)
        short = self.target.target - fractions
        return replace(self, target=replace(self.target, target=self.target.target + part * short))


def _asked(likely: Likely, units: float, width: int) -> Iterator[_Asked]:
    """The tables of a view in numbers a unit, leaning in logarithms. One-way tables of a unit's attributes are asked
    of the units alone, and those of rows in the view of rows alone, where rows lean to a tree, too."""
    view, wanted = likely.view, likely.wanted
    measured = wanted.measured
    number, of_pairs = measured.total / units, view is not None and view.slots == 2
    alike = view is not None and view.slots == 2 and not view.chained
    sizes = measured.domain.sizes
    for j, cells in wanted.ones.items():
        if not of_pairs and sizes[j] > 1 and (view is None or j >= width):
            lean = np.log(np.maximum(cells, RAREST))
            yield _Asked(
                UnitTarget(view, (j,), cells * number, 1.0, lean), measured.deviation((j,)) * number, None
            )
    tree = [] if of_pairs else tree_of(wanted.likely, wanted.ones)
    for (i, j), cells in likely.pairs.items():
        lean = np.zeros(cells.shape)
        if (i, j) in tree:
            lean = tree_lean(wanted.likely[i, j], wanted.ones[i], wanted.ones[j], wanted.noise)
        if alike and j - i == (len(sizes) - width) // 2:
            cells = (cells + cells.T) / 2
        target = UnitTarget(view, (i, j), cells * number, 1.0, lean)
        yield _Asked(target, measured.deviation((i, j)) * number, np.maximum(cells, 0.0) * number)


@dataclass(frozen=True)
class Everything:
    """All that units are to answer, the noise (τ) of a cell of a pair, and how the rows of a unit start."""

    asked: tuple[_Asked, ...]
    tallies: tuple[tuple[Tallies, Measured], ...]
    noise: float
    total: float
    units: Likely
    rows: tuple[Likely, ...]

    @staticmethod
    def of(measured: MeasuredTables, views: Sequence[MeasuredViews], rng: np.random.Generator) -> Everything:
        units = _units(measured, rng)
        rows = tuple(_rows(units, given, rng) for given in views)
        pairs = [_pairs(units, by, given, rng) for by, given in zip(rows, views, strict=True) if given.pairs]
        width, total = measured.domain.width, units.wanted.measured.total
        asked = [each for part in (units, *rows, *pairs) for each in _asked(part, total, width)]
        wide = [each.deviation for each in asked if len(each.target.members) == 2]
        noise = float(1 / np.sqrt(np.mean(np.array(wide or [each.deviation for each in asked]) ** -2.0)))
        heat = heat_of(noise)
        weighed = tuple(
            replace(
                each,
                target=replace(
                    each.target, weight=(noise / each.deviation) ** 2, lean=heat * each.target.lean
                ),
            )
            for each in asked
        )
        return Everything(
            weighed, tuple(t for given in views for t in given.tallies), noise, total, units, rows
        )

    @property
    def targets(self) -> list[UnitTarget]:
        return [each.target for each in self.asked]

    def raised(self, units: Units) -> Everything:
        counts = counted(self.targets, units)
        raised = (each.raised(cells / units.rows) for each, cells in zip(self.asked, counts, strict=True))
        return replace(self, asked=tuple(raised))

    def tallied(self, units: Units, order: int, rng: np.random.Generator) -> list[TallyTarget]:
        """Tallies of sets of so many attributes as they are likely to be, around what fitted units say of them."""
        alike = [each for each in self.tallies if len(each[1].what) == order]
        return self._shrunk(alike, units, rng) if alike else []

    def misfits(self, units: Units) -> dict[str, float]:
        """By child table, how far units that have not heard of tallies are off about how many units have any row of a
        value: b² = Σ_v (d_v² − its noise) / Σ_v p_v (1 − p_v), with d_v the difference of the tallies of value v, and
        p_v the fraction of the units.
        """
        off, spread = defaultdict[str, float](float), defaultdict[str, float](float)
        for tallies, measured in self.tallies:
            if len(measured.what) == 1:
                weights = tallies.weights(measured.what)[units.members[_place(units, tallies)].sizes]
                weight = max(float(weights.mean()) / WHOLE, LEAST)
                told = measured.values.sum(axis=-1) / self.total
                apart = told - tallies.counts(units).reshape(measured.values.shape).sum(axis=-1) / (
                    WHOLE * units.rows
                )
                noise = measured.variance * measured.values.shape[-1] / self.total**2
                chance = np.clip(told / weight, 0.0, 1.0)
                off[tallies.child] += float((apart**2 - noise).sum()) / weight**2
                spread[tallies.child] += float((chance * (1 - chance)).sum())
        return {child: float(np.sqrt(max(0.0, off[child]) / max(spread[child], LEAST))) for child in off}

    def _shrunk(
        self, alike: Sequence[tuple[Tallies, Measured]], units: Units, rng: np.random.Generator
    ) -> list[TallyTarget]:
        means = [tallies.counts(units).ravel() / (WHOLE * units.rows) for tallies, _ in alike]
        noise = [max(measured.deviation / self.total, LEAST) for _, measured in alike]
        mean = np.concatenate(means)
        residual = np.concatenate([measured.values.ravel() / self.total for _, measured in alike]) - mean
        deviation = np.repeat(noise, [each.size for each in means])
        cells = relative_posterior(mean, residual, deviation, rng)
        parts = np.split(cells, np.cumsum([each.size for each in means])[:-1])
        return [
            TallyTarget(tallies, part.reshape(measured.values.shape), (self.noise / each) ** 2)
            for (tallies, measured), part, each in zip(alike, parts, noise, strict=True)
        ]


def _place(units: Units, tallies: Tallies) -> int:
    return units.database.place(tallies.child)


def heat_of(noise: float) -> float:
    """The temperature, in fractions of the units."""
    return max(LEANING * noise, LEAST_TEMPERATURE)


def fitted_units(
    measured: MeasuredTables,
    views: Sequence[MeasuredViews],
    rows: int,
    rng: np.random.Generator,
    progress: Done,
) -> tuple[Units, dict[str, float]]:
    """So many units that answer all that was measured, and what tallies had to mend (`Everything.misfits`)."""
    database = measured.domain
    assert isinstance(database, Database)
    wanted = Everything.of(measured, views, rng)
    number = -(-rows // SNAPSHOTS)
    heat = number * heat_of(wanted.noise)
    held = started(database, measured, views, wanted.rows, number, rng)
    stages = 3 + SNAPSHOTS
    held = fit_units(held, wanted.targets, (), [heat * each for each in WARM_UP], rng)
    progress(1, stages)
    misfits = wanted.misfits(held)
    tallies = wanted.tallied(held, 1, rng)
    held = fit_units(held, wanted.targets, tallies, [heat] * WARM, rng)
    progress(2, stages)
    tallies += wanted.tallied(held, 2, rng)  # around units that know the others already
    held = fit_units(held, wanted.targets, tallies, [heat], rng)
    progress(3, stages)
    wanted = wanted.raised(held)
    out = held = fit_units(held, wanted.targets, tallies, [heat] * MORE, rng)
    for snapshot in range(1, SNAPSHOTS):
        progress(3 + snapshot, stages)
        held = fit_units(held, wanted.targets, tallies, [heat], rng)
        out = out.with_more(held)
    progress(stages, stages)
    out = out.take(np.arange(rows))
    members = zip(database.children, out.members, strict=True)
    return replace(out, members=tuple(each.in_order(child.ordering) for child, each in members)), misfits


def started(
    database: Database,
    measured: MeasuredTables,
    views: Sequence[MeasuredViews],
    likely: Sequence[Likely],
    number: int,
    rng: np.random.Generator,
) -> Units:
    """Units from records fitted to their own tables, with rows drawn by the size of their unit."""
    codes = np.zeros((number, database.width), np.int64)
    if measured.of_order(1):
        codes[:] = fit(measured, Effort(1, number, 1, number), rng, no_progress, at_once=False)
    members = []
    for given, rows in zip(views, likely, strict=True):
        law, numbers = size_law(given.table), np.zeros(number, np.int64)
        for code in range(len(law)):
            mine = np.flatnonzero(codes[:, given.size] == code)
            numbers[mine] = rng.choice(law.shape[1], size=len(mine), p=law[code])
        by_size = np.repeat(codes[:, given.size], numbers)
        own = range(database.width, rows.wanted.measured.domain.width)
        columns = [_drawn(rows.together(given.size, j), by_size, rng) for j in own]
        hanging = Records.from_rows(given.table.domain, np.stack(columns, axis=1))
        members.append(Members(starts_of(numbers), hanging))
    flat = Records.from_rows(Domain(database.columns), codes).columns
    return with_sizes(database, number, flat[: len(database.root.columns)], tuple(members))


def _drawn(table: Cells, given: NDArray[np.integer], rng: np.random.Generator) -> Integers:
    """A code for each of the given ones, by the chances in its row of a table."""
    out = np.zeros(len(given), np.int64)
    for code, row in enumerate(np.maximum(table, 0.0) + LEAST):
        mine = np.flatnonzero(given == code)
        out[mine] = rng.choice(len(row), size=len(mine), p=row / row.sum())
    return out
