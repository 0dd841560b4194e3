"""A release measures its own error: a share of the budget is set aside for it, and spent once there are rows.

For k = 1, 2, 3 the mean over some hundred tables of k attributes of Σ_cells |count − n·rows| is one number, which a
record moves by 1 at most, two by 2, however many tables there are (`queries.derived`). The tables are drawn by public
chance among what the workload asks about. Of a database so are tables of two attributes over rows of each child
table with their unit, and over pairs of rows, each flat record with its weight (`queries.views`): a unit moves such
an error by 1 at most, too, and it is given as a share of all that flat records weigh. The allowance is paid for
before anything is drawn; what is measured within it, rows and tables, follows from what was released.

The same numbers of replicas, whose errors error bars are made of, say what they should have been. With λ_k the
measured error over that of the replicas, the bars of questions about k ≥ 2 attributes are multiplied by λ + ½ sd(λ),
where (λ_2, λ_3) have the prior mean 1, standard deviation `PRIOR`, of which `OWN` is each order's own; by less than 1
only where λ + 2 sd(λ) is less, too. (One attribute has bars by known noise.) Rows of a database have a λ of their
own; any, all and count have the largest there is of rows and pairs, or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.fitter import REPLICAS
from dualquery.fitting.measured import Measured, Numbers
from dualquery.fitting.views import in_full, rows_in_full
from dualquery.loops import together
from dualquery.mechanisms.error_bars import LEVEL, ErrorCurves, Replica, asked_about
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance, Portion, portion
from dualquery.privacy.noise import Gaussian, Laplace, Law
from dualquery.queries.derived import FINE, REACH, Errors, Multiplied, SummedMisfits, misfit_bound
from dualquery.queries.random_families import Stream
from dualquery.queries.statistics import Together
from dualquery.queries.tables import Tables
from dualquery.queries.views import WHOLE, View, ViewTables
from dualquery.queries.workload import Workload
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Fractions, Integers, Progress, Set

SHARE = 0.01  # of the budget, by default
MOST_SHARE = 0.5
ORDERS, OF_VIEWS = 3, 2  # tables of one, two and three attributes; of rows and pairs of rows of two
MOST_TABLES, FEWEST_TABLES = 256, 32  # of each
MOST_COUNTED = 3 * 10**7  # records times tables of an order, from where on there are fewer of these
MOST_CELLS = 50_000  # of a table
MOST_RECORDS = 10**12  # whose misfits, finely counted, fit into 64 bits
FAINT = 0.06  # of the records: with more noise than this nothing is checked
PRIOR, OWN = 0.25, 0.15
# Times, equally likely: where structure was missed, errors are several times those of replicas.
WIDER = (1, 4, 16)
LEAST_SCALE = 0.7  # of a bar, whatever is measured
PORTIONED = (Accounting.PURE, Accounting.ZCDP, Accounting.GAUSSIAN)


@dataclass(frozen=True)
class Reserved:
    """A check that is set aside for: its noise, in shares of the records too, and the task that is left."""

    portion: Portion
    numbers: int  # that are measured
    share: float
    task: Task  # with the rest of the budget

    @property
    def event(self) -> Any:
        moved = misfit_bound([self.portion.times * REACH] * self.numbers)
        return self.portion.noise.event(self.task.budget.neighbours.sensitivity(moved))

    @property
    def unit(self) -> float:
        """One of the noise, as an error: a share of the records."""
        return 1 / (self.portion.times * REACH * self.task.rows)

    @property
    def bar(self) -> float:
        """How far off a measured error may be, in 19 of 20 cases."""
        return self.portion.noise.size_within(LEVEL) * self.unit

    def step(self) -> Step:
        return Step(f"check the release ({self.share:.2g} of the budget)", self.event)

    def words(self) -> str:
        """What it will show."""
        return (
            f"with {self.share * 100:.2g}% of the budget the release measures its own error: the mean error of "
            f"tables of one, two and three attributes, each to ± {self.bar:.2g} (95%){_and_rows(self.task.domain)}"
        )


def _and_rows(domain: Domain) -> str:
    words = " and of ".join(view.words for view in hanging(domain))
    return words and f"; and, less surely, of two attributes of {words}"


class Asking(Protocol):
    """Who says what is measured: a check, with criteria or without."""

    def asked(self, task: Task, released: Records, seed: int) -> Asked: ...


class Unchecked(NamedTuple):
    """Why a release is not checked."""

    why: str

    def words(self) -> str:
        return f"none: {self.why}"


def set_aside(task: Task, share: float, more: int = 0) -> Reserved | Unchecked:
    """What a check of this share of the budget would be, with so many numbers more than its own; all of it public."""
    if share == 0:
        return Unchecked("it was left out (--check 0)")
    if task.domain.kind not in ("records", "database"):
        return Unchecked("its tables are not tables of records")
    if task.budget.accounting not in PORTIONED:
        return Unchecked(f"{task.budget.accounting.value} accounting knows no shares of a budget")
    beside = hanging(task.domain)
    if task.rows > (most := MOST_RECORDS // (WHOLE if beside else 1)):
        return Unchecked(f"it counts at most {most:,} records")
    orders = min(ORDERS, len(varied(task.workload)))
    if orders == 0:
        return Unchecked("every attribute is constant")
    numbers = orders + len(beside) + more
    moved = task.budget.neighbours.sensitivity(misfit_bound([REACH] * numbers))
    why = "the budget is too small for a check of it"
    try:
        kept = portion(task.budget, Fraction(share).limit_denominator(10**6), moved, why)
    except BudgetError:
        return Unchecked(why)
    reserved = Reserved(kept, numbers, share, replace(task, budget=kept.left))
    if kept.noise.deviation * reserved.unit > FAINT:
        return Unchecked(
            f"with so few records at so small a budget a check would show errors to ± {reserved.bar:.2g} only"
        )
    try:  # what could not be drawn is refused
        if isinstance(kept.noise, Gaussian):
            Law.gaussian(kept.noise.variance)
        elif isinstance(kept.noise, Laplace):
            Law.laplace(kept.noise.scale)
    except BudgetError:
        return Unchecked(why)
    return reserved


def checked_share(share: object) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= MOST_SHARE:
        raise DualQueryError(
            f"the check takes a share of the budget from 0 (none) to {MOST_SHARE:g}, and {share} is not one (--check)"
        )
    if 0 < share < 1e-4:
        raise DualQueryError(
            "a check with less than 0.0001 of the budget would show nothing; leave it out (--check 0)"
        )
    return float(share)


def varied(workload: Workload) -> NDArray[np.int64]:
    """The attributes that are asked about and have several values."""
    asked = workload.attributes
    return asked[workload.domain.sizes[asked] > 1]


def hanging(domain: Domain) -> list[View]:
    """Of a database what its tables are about besides units: rows of each child table, and pairs of rows."""
    if not isinstance(domain, Database):
        return []
    views = [View(domain, child.name, slots, 1) for child in domain.children for slots in (1, 2)]
    return [view for view in views if view.number.max()]


def as_released(view: View, released: Records) -> View:
    """The view, of which as many count in full as released units say."""
    sizes, child = view.members(released).sizes, view.database.child(view.child)
    chances = np.bincount(child.size_codes(sizes), minlength=len(child.size.labels)) / max(1, len(sizes))
    return in_full(view, rows_in_full(child, chances))


def tables_drawn(
    task: Task, released: Records, order: int, stream: Stream, view: View | None = None
) -> list[Set]:
    """All sets of so many attributes, or some hundred of them at random; none that has very many cells. Of a view
    they are those that have an attribute of each of its rows, and of two alike the one way round.
    """
    domain, among, counted = task.domain, varied(task.workload), float(task.rows)
    if view is not None:
        domain, counted = view.domain, counted * float(view.number[view.members(released).sizes].mean())
        among = np.flatnonzero(domain.sizes > 1)
    most = max(FEWEST_TABLES, min(MOST_TABLES, int(MOST_COUNTED / max(1.0, counted))))
    among, sizes = asked_about(released, stream, among), domain.sizes
    if math.comb(len(among), order) <= most:
        chosen = list(combinations(among.tolist(), order))
    else:
        tickets = stream.below(np.full((8 * most, len(among)), 1 << 40))
        drawn = np.sort(among[np.argsort(tickets, axis=1, kind="stable")[:, :order]], axis=1)
        chosen = list(dict.fromkeys(map(tuple, drawn.tolist())))
    small = [s for s in chosen if math.prod(int(sizes[j]) for j in s) <= MOST_CELLS]
    return [s for s in small if view is None or _of_each_row(s, view)][:most]


def _of_each_row(members: Set, view: View) -> bool:
    width, own = view.database.width, len(view.database.child(view.child).columns)
    one, other = ([(j - width) % own for j in members if (j - width) // own == row] for row in (0, 1))
    return bool(one) and (view.slots == 1 or (bool(other) and (view.chained or one <= other)))


def tables_over(domain: Domain, view: View | None, sets: Sequence[Set]) -> Tables | ViewTables:
    return Tables(domain, tuple(sets)) if view is None else ViewTables(view, tuple(sets))


def errors_of(view: View | None, released: Records, first: int, number: int) -> Errors:
    """The mean error of so many tables."""
    if view is None:
        return Errors(first, number)
    return Errors(first, number, whole=WHOLE, mass=view.mass(released))


@dataclass(frozen=True, eq=False)
class Asked:
    """What is measured: tables, and the numbers that are made of their errors; the mean of each order first.

    `places` says which number each criterion is about; None where the tables that it is about are too large.
    """

    tables: Tables | Together
    about: tuple[tuple[View | None, Set], ...]  # what each table is about
    parts: tuple[Errors, ...]
    means: int
    places: tuple[int | None, ...] = ()

    @staticmethod
    def of(
        domain: Domain,
        about: Sequence[tuple[View | None, Set]],
        parts: Sequence[Errors],
        means: int,
        places: Sequence[int | None] = (),
    ) -> Asked:
        found = [
            tables_over(domain, view, [members for _, members in some])
            for view, some in groupby(about, key=lambda each: each[0])
        ]
        alone = len(found) == 1 and isinstance(found[0], Tables)
        tables = found[0] if alone else Together(tuple(found))
        return Asked(tables, tuple(about), tuple(parts), means, tuple(places))  # type: ignore[arg-type]

    def what(self, part: Errors) -> tuple[str, int]:
        """What tables are about, and how many attributes they have."""
        view, members = self.about[part.first]
        return "" if view is None else view.words, len(members)

    def statistic(self, rows: Records, total: float) -> SummedMisfits:
        expected = np.rint(self.tables.counts(rows) * (FINE * total / rows.rows)).astype(np.int64)
        return SummedMisfits(self.tables, expected, self.parts)

    def shares(self, numbers: Integers | Fractions, total: float) -> Fractions:
        """The numbers as shares of the records."""
        reaches = np.array([part.reach * part.mass for part in self.parts], np.float64)
        shares: Fractions = numbers / (reaches * total)
        return shares

    def of_replicas(self, replicas: Sequence[Replica]) -> Fractions:
        """The same of each replica: a row each."""

        def seen(replica: Replica) -> Fractions:
            counts = sum(self.tables.counts(half) for half in replica.halves)
            total = replica.table.rows
            expected = np.rint(counts * (FINE * total / replica.rows)).astype(np.int64)
            numbers = SummedMisfits(self.tables, expected, self.parts).counts(replica.table)
            return self.shares(numbers, total)

        return np.array(together(seen, replicas))


def asked(task: Task, released: Records, seed: int) -> Asked:
    """The tables of the orders that there are, by public chance, and the mean error of each."""
    about: list[tuple[View | None, Set]] = []
    stream, parts = Stream(seed), []
    wanted: list[tuple[View | None, int]] = [
        (None, order) for order in range(1, min(ORDERS, len(varied(task.workload))) + 1)
    ]
    wanted += [(as_released(view, released), OF_VIEWS) for view in hanging(task.domain)]
    for view, order in wanted:
        drawn = tables_drawn(task, released, order, stream, view)
        if drawn and (view is None or view.mass(released)):
            parts.append(errors_of(view, released, len(about), len(drawn)))
            about += [(view, members) for members in drawn]
    return Asked.of(task.domain, about, parts, len(parts))


@dataclass(frozen=True, eq=False)
class Check:
    """What was found: the numbers as shares of the records, and of what."""

    reserved: Reserved
    asked: Asked
    shares: Fractions

    @property
    def units(self) -> Fractions:
        """One of the noise, as an error."""
        ones = np.full(len(self.shares), 1 / self.reserved.portion.times)
        return self.asked.shares(ones, self.reserved.task.rows)

    @property
    def bars(self) -> Fractions:
        """How far off each number may be, in 19 of 20 cases."""
        return self.reserved.portion.noise.size_within(LEVEL) * self.units

    @property
    def deviations(self) -> Fractions:
        return self.reserved.portion.noise.deviation * self.units

    @property
    def order_of(self) -> list[tuple[str, int]]:
        """What the tables of each mean are about, and how many attributes they have; the means come first."""
        return [self.asked.what(part) for part in self.asked.parts[: self.asked.means]]

    def measured(self) -> Measured:
        """As the release keeps it, in records."""
        words = ", ".join(f"{n} of {of}" if of else f"{n}" for of, n in self.order_of)
        rows = self.reserved.task.rows
        means = self.asked.means
        variance = float((self.deviations[:means] * rows).max()) ** 2
        text = f"mean error of tables of {words} attributes"
        return Measured(Numbers("check", text=text), self.shares[:means] * rows, variance)


def measured_check(
    reserved: Reserved, curator: Curator, within: Allowance, released: Records, wanted: Asked
) -> Check:
    total, portion_of = reserved.task.rows, reserved.portion
    statistic = Multiplied(wanted.statistic(released, total), portion_of.times)
    noisy = curator.measure(statistic, noise=portion_of.noise, within=within)
    return Check(reserved, wanted, wanted.shares(noisy / portion_of.times, total))


def scales_of(check: Check, curves: ErrorCurves, replicas: Sequence[Replica]) -> dict[tuple[str, int], float]:
    """By what bars of questions about so many attributes are multiplied: λ + ½ sd."""
    if not replicas or not curves.curves:
        return {}
    seen = check.asked.of_replicas(replicas)
    ratios, variances, orders = [], [], []
    for place, (of, order) in enumerate(check.order_of):
        part = curves.part(order)
        usual = part * float(seen[:, place].mean())
        if order < 2 or usual <= 0:
            continue
        orders.append((of, order))
        ratios.append(max(0.0, float(check.shares[place])) / usual)
        own = float(seen[:, place].var(ddof=1)) * part**2 / len(replicas)
        variances.append((float(check.deviations[place]) ** 2 + own) / usual**2)
    return dict(zip(orders, pooled(np.array(ratios), np.array(variances)), strict=True))


def pooled(ratios: Fractions, variances: Fractions) -> list[float]:
    """λ + ½ sd of each, by its posterior: all share most of their prior, which may be `WIDER`.

    Noise alone makes no bar narrower.
    """
    if not len(ratios):
        return []
    usual = np.full((len(ratios),) * 2, PRIOR**2 - OWN**2) + OWN**2 * np.eye(len(ratios))
    likely, means, squares = [], [], []
    for times in WIDER:
        prior = times**2 * usual
        seen = prior + np.diag(variances)
        gain = prior @ np.linalg.inv(seen)
        means.append(1 + gain @ (ratios - 1))
        squares.append(np.diag(prior - gain @ prior) + means[-1] ** 2)
        exponent = (ratios - 1) @ np.linalg.solve(seen, ratios - 1)
        likely.append(-(exponent + np.linalg.slogdet(seen)[1]) / 2)
    weight = np.exp(np.array(likely) - max(likely))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    variance = weight @ np.array(squares) - mean**2
    spread = np.sqrt(np.maximum(0.0, variance))
    wide = np.maximum(mean + spread / 2, np.minimum(1.0, mean + 2 * spread))
    return [max(LEAST_SCALE, each) for each in wide.tolist()]


def certified(
    check: Check | Unchecked, scales: Mapping[tuple[str, int], float], share: float
) -> dict[str, Any]:
    if isinstance(check, Unchecked):
        return {"share": 0.0, "why_not": check.why, "orders": []}
    keys, orders = ("attributes", "tables", "error", "bar", "scale"), []
    found = zip(check.order_of, check.asked.parts, check.shares, check.bars, strict=False)
    for (of, order), part, error, bar in found:
        said = (order, part.number, max(0.0, float(error)), float(bar), scales.get((of, order)))
        orders.append(dict(zip(keys, said, strict=True)) | ({"of": of} if of else {}))
    return {"share": share, "why_not": None, "orders": orders}


def checked(
    reserved: Reserved | Unchecked,
    curator: Curator,
    allowed: Sequence[Allowance],
    released: Records | None,
    asking: Asking,
    seed: int,
    tell: Progress,
) -> Check | Unchecked:
    """Spend what was set aside on rows that are there."""
    if isinstance(reserved, Unchecked):
        return reserved
    if released is None:
        return Unchecked("no synthetic records left, and what was set aside for a check was not used")
    tell("checking", 0, 1)
    (within,) = allowed
    # Another stream than those of replicas.
    wanted = asking.asked(reserved.task, released, seed + REPLICAS + 1)
    found = measured_check(reserved, curator, within, released, wanted)
    tell("checking", 1, 1)
    return found
