"""Wide tables of binary attributes: what is measured where there are too many of them for tables.

One block of items may be baskets, of which a record holds few, or dense. Baskets are declared
(`--items-per-record`), or it is measured how many items records hold and then decided; nothing is ever cut off a
record that was neither. Both go through the same shares of the budget, paid for before anything is known.

Of a dense table, one-way counts of d attributes cost Δ² = d/4, and of centred, clipped vectors about Σ p(1 − p): a
sum within classes, which partition the records, costs no more. So 500 public random attributes say, through their
noisy second moments, along which axes records spread and around which centres they lie; every attribute is then
summed up within the classes, once to centre it there and once more around those centres, where vectors are shorter.
Where records spread without classes, each attribute's covariances with the axes are measured instead; where nothing
stands out, its total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.fitter import INTERPRETER_BYTES, Effort, Fitting
from dualquery.fitting.measured import Measured, Numbers
from dualquery.fitting.wide import (
    TAIL,
    Around,
    Centres,
    CentreTotals,
    Mixture,
    NoisySums,
    Spectrum,
    consistent,
    latent_places,
    length_edges,
    matched,
    mixture_records,
    on_grid,
    settled,
    shrunk_by_axis,
    shrunk_towards,
    spectrum_of,
    upper_quantile,
)
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.baskets import WORDS as ITEM_WORDS
from dualquery.mechanisms.projection.baskets import (
    ByItems,
    Limits,
    Spending,
    asks_about_pairs,
    measured_items,
    measured_lengths,
    measured_total,
    of_items,
    plan_baskets,
)
from dualquery.mechanisms.shares import (
    SHARE_OF_TOTAL,
    TOO_SMALL,
    FitCost,
    Purse,
    Shares,
    built,
    measures_total,
    per_query,
    plainer,
    shares_of,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.binary import (
    GRID,
    SLAB_BYTES,
    Balances,
    Binary,
    Centred,
    CentreSums,
    Classes,
    ClassSums,
    Clip,
    CrossSums,
    Lengths,
    SecondMoments,
)
from dualquery.queries.statistics import Countable
from dualquery.table.domain import Domain, is_transactions
from dualquery.types import Done, Reals, Words

FEW = 500  # public random attributes on which structure is looked for
ROUNDS = 8  # of noisy k-means; the later half of them are averaged
LEAST_CENTRES = 16
MOST_WEIGHT = 64  # F, where the room allows it
PURE = 1.3  # of the attributes' own chance: up to there, what is left within classes is nothing else
SURE = (
    2.0  # deviations of its noise, beyond which it must be: classes that are given up cost more than others
)
COUNT_PART = 0.3  # length of a class's count beside its vector, in k-means. Halved: classes +3.7%
CLASS_COUNT_PART = 0.12  # and where all attributes are summed up
LATENT_CLASSES = 1024  # draws of a place, where there are no classes
LATENT_CELLS = 1 << 26  # chances held at once

CENTRES = tuple(f"centres {i + 1}" for i in range(ROUNDS))
PARTS = {
    "ones": 0.05,
    "some lengths": 0.002,
    "moments": 0.12,
    **dict.fromkeys(CENTRES, 0.006),
    "lengths": 0.0015,
    "first sums": 0.07,
    "class lengths": 0.0015,
    "totals": 0.19,
    "sums": 0.507,
}
WORDS = {
    "ones": "measure every attribute",
    "some lengths": f"measure how long records are over {FEW} attributes",
    "moments": "measure their second moments",
    **{name: f"measure sums around centres, round {i + 1}" for i, name in enumerate(CENTRES)},
    "lengths": "measure how long records are",
    "first sums": "measure every attribute within classes",
    "class lengths": "measure how far records lie from their class",
    "totals": "measure every attribute around its class",
    "sums": "measure every attribute within classes, around them",
}


@dataclass(frozen=True)
class Measuring:
    """One run through the shares of a budget."""

    purse: Purse
    binary: Binary
    total: float
    rng: np.random.Generator
    kept: list[Measured]  # what the release keeps, in records

    def mixture(self) -> Mixture:
        """What was found, as classes of rows."""
        ones = self._ones()
        likely = settled(ones)
        places = np.sort(self.rng.choice(self.binary.width, min(FEW, self.binary.width), replace=False))
        few = Binary(self.binary.domain, self.binary.attributes[places])
        spectrum = self._spectrum(few, likely[places])
        if spectrum is None or spectrum.axes == 0:
            return self._independent(ones)
        around = Around(few, places, likely[places], spectrum)
        centres, within = self._centres(around)
        kept = centres.merged(around.length, around.own)
        unsure = SURE * centres.unsure / self.total
        if len(kept) and within <= PURE * around.own.sum() + unsure:
            return self._by_classes(ones, Classes(around.axes, on_grid(centres.places[kept])))
        return self._by_axes(ones, around, centres)

    def _ones(self) -> Measured:
        noisy = self.purse.measure(Balances(self.binary), "ones")
        variance = np.asarray((noisy.deviation / (2 * self.total)) ** 2)
        return self._keep(Measured("ones", (noisy.values / self.total + 1) / 2, variance))

    def _keep(self, fractions: Measured) -> Measured:
        """The fractions, of which the release keeps the totals."""
        what = Numbers("totals", tuple(self.binary.attributes.tolist()))
        variance = float(fractions.variance) * self.total**2
        self.kept.append(Measured(what, fractions.values * self.total, variance))
        return fractions

    def _longest(self, centred: Centred, fractions: Reals, name: str) -> int:
        """B²: squared lengths that all but about 2% of the records stay below."""
        steps = centred.centre.mean(axis=0)
        squares = (centred.centre.astype(np.float64) ** 2).mean(axis=0)
        expected = float((GRID**2 * fractions - 2 * GRID * fractions * steps + squares).sum())
        edges = length_edges(expected, centred.longest)
        noisy = self.purse.measure(Lengths(centred, edges), name)
        found = upper_quantile(noisy.values, noisy.deviation, edges, self.total, TAIL)
        return centred.longest if found is None else found

    def _fitting(self, make: Callable[[int], Countable]) -> tuple[Countable, int]:
        """A statistic with the largest weights that there is room for."""
        weight = MOST_WEIGHT
        while weight:
            statistic = make(weight)
            if self.purse.fits(statistic):
                return statistic, weight
            weight //= 2
        raise BudgetError(TOO_SMALL)

    def _spectrum(self, few: Binary, fractions: Reals) -> Spectrum | None:
        """Axes of the second moments; None where the neighbours leave no room to measure them."""
        centre = on_grid(fractions)
        centred = Centred(few, centre[None])
        longest = self._longest(centred, fractions, "some lengths")
        try:
            statistic, most = self._fitting(lambda most: SecondMoments(centred, Clip(most, longest)))
        except BudgetError:
            return None
        noisy = self.purse.measure(statistic, "moments")
        unit = (most * GRID) ** 2 * self.total
        off = fractions - centre / GRID
        above = np.triu_indices(few.width, 1)
        covariances = noisy.values / unit - off[above[0]] * off[above[1]]
        return spectrum_of(covariances, noisy.deviation / unit, fractions * (1 - fractions), self.total)

    def _centres(self, around: Around) -> tuple[Centres, float]:
        """Noisy k-means (Lloyd's rounds on noisy sums), and the mean square within the classes.

        At first centres without records are moved; the rounds after that are averaged.
        """
        spread = np.sqrt(around.variances)
        number = max(LEAST_CENTRES, 4 * (len(spread) + 1))
        places = self.rng.standard_normal((number, len(spread))) * spread
        late: list[CentreTotals] = []
        for i, name in enumerate(CENTRES):
            late = [*late, self._round(around, Classes(around.axes, on_grid(places)), name)]
            late = late[-1:] if i <= ROUNDS // 2 else late
            centres = Centres.of(late, places, around.length)
            searching = i < ROUNDS // 2
            places = centres.reseeded(around.length, spread, self.rng) if searching else centres.places
        return centres, centres.squares / self.total - centres.between(around.length)

    def _round(self, around: Around, classes: Classes, name: str) -> CentreTotals:
        count_factor = max(1, round(COUNT_PART * math.sqrt(around.longest)))

        def sums(most: int) -> CentreSums:
            divisor = max(1, math.ceil(most * math.sqrt(around.longest) / COUNT_PART))
            return CentreSums(classes, Clip(most, around.longest), count_factor, divisor)

        statistic, most = self._fitting(sums)
        noisy = self.purse.measure(statistic, name)
        table = noisy.values[:-1].reshape(classes.number, -1)
        return CentreTotals(
            table[:, 0] / (most * count_factor),
            table[:, 1:] / (most * GRID),
            float(noisy.values[-1]) * sums(most).divisor / (most * GRID) ** 2,
            noisy.deviation / (most * count_factor),
            noisy.deviation / (most * GRID),
            noisy.deviation * sums(most).divisor / (most * GRID) ** 2,
        )

    def _sums(self, centred: Centred, longest: int, *names: str, together: bool = False) -> NoisySums:
        """Every attribute, summed up around the centres."""
        factor = 0 if together else max(1, round(CLASS_COUNT_PART * math.sqrt(longest)))
        statistic, most = self._fitting(
            lambda most: ClassSums(centred, Clip(most, longest), factor, together)
        )
        noisy = self.purse.measure(statistic, *names)
        classes = 1 if together else len(centred.centre)
        return NoisySums.of(noisy.values, noisy.deviation, classes, most, factor)

    def _totals(self, ones: Measured, *names: str) -> Measured:
        """One-way fractions, measured again around what they seem to be."""
        likely = settled(ones)
        centre = on_grid(likely)
        centred = Centred(self.binary, centre[None])
        longest = self._longest(centred, likely, "lengths")
        sums = self._sums(centred, longest, *names, together=True)
        again = sums.means(centre[None] / GRID, np.array([self.total]))
        return ones.joined(self._keep(Measured("totals", again.values[0], again.variance[0])))

    def _independent(self, ones: Measured) -> Mixture:
        spare = ("first sums", "class lengths", "totals", "sums", *CENTRES)
        totals = self._totals(ones, *spare)
        return self._made(np.ones(1), settled(totals)[:, None])

    def _by_classes(self, ones: Measured, classes: Classes) -> Mixture:
        likely = settled(ones)
        centre = np.repeat(on_grid(likely)[None], classes.number, axis=0)
        longest = self._longest(Centred(self.binary, centre[:1]), likely, "lengths")
        first = self._sums(Centred(self.binary, centre, classes), longest, "first sums").means(centre / GRID)
        near = np.clip(likely + shrunk_towards(likely, first), 0.0, 1.0)
        centred = Centred(self.binary, on_grid(near), classes)
        longest = self._longest(centred, likely, "class lengths")
        sums = self._sums(centred, longest, "sums")
        shares = sums.weights / sums.weights.sum()
        totals = self._sums(centred, longest, "totals", together=True).means(
            (shares @ (centred.centre / GRID))[None], sums.weights.sum(keepdims=True)
        )
        others = ones.joined(self._keep(Measured("totals", totals.values[0], totals.variance[0])))
        means = first.joined(sums.means(centred.centre / GRID))
        return self._made(shares, consistent(shares, means, others).T)

    def _by_axes(self, ones: Measured, around: Around, centres: Centres) -> Mixture:
        totals = self._totals(ones, "first sums", "class lengths", "totals")
        likely, fractions = settled(ones), settled(totals)
        centre = on_grid(likely)
        centred = Centred(self.binary, centre[None])
        # within the clip of the totals a vector may be as long as independent attributes make it, and a fifth more
        longest = int(1.2 * GRID**2 * (likely * (1 - likely) + 1 / (4 * GRID**2)).sum()) + 1
        statistic, most = self._fitting(
            lambda most: CrossSums(
                centred, Clip(most, longest), around.axes, Clip(max(1, most // 4), around.longest)
            )
        )
        noisy = self.purse.measure(statistic, "sums")
        unit = most * max(1, most // 4) * GRID**2 * self.total
        covariances = noisy.values.reshape(self.binary.width, -1) / unit
        covariances -= (fractions - centre / GRID)[:, None] * around.mean
        own = fractions[around.places] * (1 - fractions[around.places])
        covariances[around.places] -= around.spectrum.scaled * own[:, None]
        covariances = shrunk_by_axis(covariances, noisy.deviation / unit)
        number = int(np.clip(LATENT_CELLS // self.binary.width, 128, LATENT_CLASSES))
        t = latent_places(around.spectrum, centres, number, self.rng)
        return self._made(np.full(number, 1 / number), matched(fractions, covariances, t))

    def _made(self, shares: Reals, means: NDArray[np.floating]) -> Mixture:
        return Mixture(self.binary.attributes, shares, np.ascontiguousarray(means, np.float32))


MANY = (
    20_000  # attributes, of which only those asked about are measured; sets of them that tables can deal with
)
PREFERRED = 1.5  # tables find any structure: they may be predicted to be this much worse
SHARE_OF_LENGTHS = 0.005  # where it is not declared how many items records hold
MOST_BYTES = 1_000_000_000  # that the released rows, or tables instead of classes, may take
SAMPLING = 0.135  # mean error of a 3-way conjunction by chance alone, times √records (benchmarks/wide.py)
NOISE = 0.54  # and by noise, in units of that of the totals
LARGEST = 8.0  # the largest of 100,000 errors, in means
SPREAD_BYTES = 100_000_000  # vectors that are spread out at once
CELL_SECONDS = 8e-9  # per record and attribute, two cores, counting and drawing together
NOT_TOGETHER = (
    "alone are measured (hardly two that could matter are asked about together: pairs would not help)"
)
UNASKED = (
    "only attributes that some query asks about are measured; all others are 0 in every synthetic record, and "
    "questions about them are not answered"
)


@dataclass(frozen=True, kw_only=True)
class ByClasses:
    """Every attribute within classes of records; or items and pairs, where lengths say that records are baskets."""

    measured: str
    attributes: int
    cell_noise: float  # of a total
    effort: Effort
    shares: Shares = hidden()
    # What of a record counts, once its lengths have said that it is a basket.
    limits: Limits | None = field(default=None, repr=False, metadata={"hidden": True})

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        purse = self.shares.purse(curator)
        known, limits = measured_total(purse, task), self.limits
        total = float(known.values)
        if limits is None and "held" in self.shares.stages:
            lengths = measured_lengths(purse, task.domain, total)
            limits = lengths.limits() if lengths.sparse else None
        if limits is not None:
            measured = measured_items(purse, task, known, rng, paid_by(task), limits)
            return of_items(task.domain, measured, settled=replace(self, limits=limits))
        binary = Binary(task.domain, measured_attributes(task))
        measuring = Measuring(purse, binary, total, rng, [known])
        return of_mixture(task.domain, measuring.mixture(), tuple(measuring.kept))


def of_mixture(domain: Domain, mixture: Mixture, measured: tuple[Measured, ...] = ()) -> Fitting:
    """Rows are kept in bits, an attribute a row of words."""

    def fit(effort: Effort, rng: np.random.Generator, tell: Done) -> Words:
        tell(0, 1)
        words = mixture.rows(effort.rows, rng)
        tell(1, 1)
        return words

    return Fitting(fit, lambda words, rng: mixture_records(domain, mixture, words), measured=measured)


def paid_by(task: Task) -> Spending:
    """How shares that were made for classes pay for baskets."""
    light = ("moments", "some lengths", "lengths", "class lengths", "first sums", "totals", *CENTRES)
    if asks_about_pairs(task.workload):
        return Spending(("ones",), light, ("sums",))
    return Spending((), ("ones", *light, "sums"), ())


def measured_attributes(task: Task) -> NDArray[np.int64]:
    """All of them, where at least half are asked about and they are not too many; else those asked about."""
    asked, width = task.workload.attributes, task.domain.width
    return np.arange(width, dtype=np.int64) if width <= min(MANY, 2 * len(asked)) else asked


def plan_wide(task: Task, wanted: ProjectionWishes) -> Plan[Any] | None:
    """The plan for a wide binary table; None where it is none."""
    if wanted.items_per_record is not None and is_transactions(task.domain):
        return plan_baskets(task, wanted, wanted.items_per_record)
    return _plan_for_classes(task, wanted)


def better_of(wide: Plan[Any], tables: Callable[[], Plan[Any]]) -> Plan[Any]:
    """The plan for a wide table, or that for tables, which measures few sets best, whatever their structure."""
    if isinstance(wide.parameters, ByItems) or len(wide.task.workload.scope) > MANY:
        return wide
    try:
        other = tables()
    except DualQueryError:
        return wide
    good = other.bytes <= MOST_BYTES and other.mean_error <= PREFERRED * wide.mean_error
    if not good:
        return wide
    notes = plainer(wide.task, wide.parameters.shares, other.mean_error)
    return replace(other, notes=(*other.notes, *notes))


def _plan_for_classes(task: Task, wanted: ProjectionWishes) -> Plan[Any]:
    if wanted.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    undecided = is_transactions(task.domain)
    asked = len(measured_attributes(task))
    rows = wanted.synthetic_rows or min(Effort.of(None).rows, max(1000, 8 * MOST_BYTES // asked))
    effort = Effort.of(rows)
    parts = {"total": SHARE_OF_TOTAL} if measures_total(task) else {}
    parts |= {"held": SHARE_OF_LENGTHS} if undecided else {}
    shares = shares_of(task.budget, parts | PARTS, {**WORDS, **ITEM_WORDS})
    moved = task.budget.neighbours.largest_squared(alone=asked, apart=4 * asked)
    noise = shares.deviation(moved / 4, "totals") / task.rows
    mean = math.hypot(SAMPLING * math.sqrt(1 / task.rows + 1 / rows), NOISE * noise)
    measured = "classes, or items and pairs" if undecided else "classes"
    return built(
        task,
        ByClasses(measured=measured, attributes=asked, cell_noise=noise, effort=effort, shares=shares),
        reason=(
            f"{asked:,} attributes are too many for tables: structure is looked for on {min(FEW, asked)} of them and "
            f"all are measured within the classes found (noise {noise:.2g}; one by one the queries would have "
            f"{per_query(task, shares):.2g})"
        ),
        steps=shares.steps(),
        errors=(mean, LARGEST * mean),
        cost=FitCost(
            5.0 + (task.rows + effort.rows) * asked * CELL_SECONDS, _class_bytes(task, effort, asked)
        ),
        memory=wanted.memory,
        notes=(*_notes(task, undecided, asked, rows, wanted), *plainer(task, shares, mean)),
    )


def _class_bytes(task: Task, effort: Effort, asked: int) -> int:
    """The bits of the table and of the rows, slabs of the table, numbers a record or attribute, the interpreter."""
    table, rows = task.rows * task.domain.width // 8, effort.rows * asked // 8
    slabs = 2 * min(SLAB_BYTES, task.rows * asked // 8) + SPREAD_BYTES
    return table + rows + slabs + 300 * task.rows + 1000 * asked + INTERPRETER_BYTES


def _notes(task: Task, undecided: bool, asked: int, rows: int, wanted: ProjectionWishes) -> tuple[str, ...]:
    notes = []
    if undecided:
        how = "and their pairs are measured" if asks_about_pairs(task.workload) else NOT_TOGETHER
        notes.append(
            "nobody declared how many items records hold (--items-per-record), so 0.5% of the budget measures it: "
            f"where records hold few, items {how}, with less error than predicted here"
        )
    if asked < task.domain.width:
        notes.append(UNASKED)
    if wanted.synthetic_rows is None and rows < Effort.of(None).rows:
        notes.append(
            f"{rows:,} synthetic records, so that {asked:,} attributes fit into memory (--synthetic-rows)"
        )
    return tuple(notes)
