"""How far off an answer may be: replicas of a release, and the errors seen on them. All of it is public.

A *replica* is the whole release again, on a table drawn from its own rows. As many of them as the private table has
records, drawn without replacement where there are enough, are a table that could have been the private one: as uneven
as a table of that size is. (All rows together would be too smooth.) It is released as the private table was, by the
same mechanism and plan, through a curator of its own who knows public rows only, a fresh ledger of the same budget,
and seeded noise; what the release has chosen to measure is measured again, and only the rows are fewer. Its errors
are there to be seen, and they are about as large as those of the release (a parametric bootstrap). Nothing is read
but what was released, so replicas cost no privacy.

A replica shows the noise, the sampling of the table and the sampling of the rows. It cannot show what the release has
missed altogether. But its rows are few, and their sampling error is large exactly where nothing that was measured
holds an answer in place, which is where something can be missed: what is too much on the one side stands for what is
missing on the other (docs/how_it_works.md has the figures).

e_b(q) is the error of the b-th of B = 4 replicas. Four errors say little about the size of a fifth, so they are
pooled with the errors of other questions like this one: `curve(q)` is the root-mean-square error of questions about
as many attributes that have about the same answer, and counts as four more:

    σ(q)² = (4 · curve(q)² + Σ_b e_b(q)²) / 8,      bar(q) = t_{.975, 8} · σ(q).

where t is the quantile of Student's law. A replica has fewer rows than the release. What their sampling adds is seen
between its halves, which share nothing: h_b(q) = (q(one half) − q(other half)) / 2 has the variance that it adds to
e_b(q). It is counted as if the rows were as many as the table has records, or as the release has rows where these are
fewer: of e² there counts the part 1 − (1 − rows/more) Σh²/Σe², the sums over all questions about as many attributes.

Rows that hang on units, and any, all and count of them, err in ways of their own, and have curves of their own.

The bar holds the truth for 95 of 100 questions (`experiments/coverage.py`). It is nowhere zero: nothing is known
better than to one record, and what none of N rows has may be had by 3/N of the records (the rule of three).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.counting import Counter, counted_by
from dualquery.fitting.fitter import REPLICAS
from dualquery.fitting.prior import Trust
from dualquery.loops import plain_algebra, together
from dualquery.mechanisms.artefact import Artefact, SyntheticRecords
from dualquery.queries.group import Group
from dualquery.queries.random_families import Stream, hanging_questions, mixed_questions
from dualquery.queries.statistics import Countable
from dualquery.queries.views import over_units
from dualquery.table.records import Records, SparseItems
from dualquery.table.units import Units
from dualquery.types import Fractions, Integers, Progress, silent

LEVEL = 0.95
BAR = NormalDist().inv_cdf((1 + LEVEL) / 2)  # deviations of a normal error, that its bar is wide
STUDENT = 2.306004135204166  # t_{.975, 8}: the quantile of Student's law with 2 · REPLICAS degrees of freedom
MOST_ATTRIBUTES = 5  # a question about more is taken as one about so many
QUESTIONS = 1_000  # of each number of attributes, that a curve is learned from
QUESTIONS_OF_UNITS = 100  # the same with any, all and count
ANY = "any"  # their curves, beside those of tables: none has this name
POINTS = 16  # of a curve
ASKED_ABOUT = 100  # attributes at most

Orders = NDArray[np.int64]  # of each question, the number of attributes that it asks about


@dataclass(frozen=True, eq=False)
class Replica:
    """A table drawn from the released rows, and the rows that were released of it, every other row in one half; of
    units, which are fitted to the table as a whole and twice (`fitting.views.SNAPSHOTS`), those of one fit in each.
    """

    table: Records
    halves: tuple[Records, Records]

    @staticmethod
    def of(table: Records, rows: Records) -> Replica:
        number = np.arange(rows.rows)
        one, other = np.array_split(number, 2) if isinstance(rows, Units) else (number[::2], number[1::2])
        return Replica(table, (rows.take(one), rows.take(other)))

    @property
    def rows(self) -> int:
        return self.halves[0].rows + self.halves[1].rows

    def joined(self, child: str) -> Replica:
        """Of a database: the same of the rows of a child table."""
        table, one, other = (
            cast("Units", each).joined(child) for each in (self.table, self.halves[0], self.halves[1])
        )
        return Replica(table, (one, other))

    def seen(self, group: Group) -> Seen:
        """What it shows of each question of a group; where a table of a database has no rows, it answers 0."""
        counts = [group.counts(half) / group.unit for half in self.halves]
        table = group.counts(self.table) / (group.unit * max(1, self.table.rows))
        apart = counts[0] / max(1, self.halves[0].rows) - counts[1] / max(1, self.halves[1].rows)
        return Seen(table, (counts[0] + counts[1]) / max(1, self.rows) - table, apart / 2)


class Seen(NamedTuple):
    """What a replica shows of some questions: its table's answers, its errors, half of how its halves differ."""

    answers: Fractions
    errors: Fractions
    apart: Fractions


class CurvePoint(NamedTuple):
    """Questions with about this answer: their root-mean-square error, and the part of a replica's that counts."""

    answer: float
    error: float
    part: float


@dataclass(frozen=True)
class ErrorCurves:
    """Root-mean-square errors by answer: for each number of attributes from 1 on some points, by increasing answer.

    Answers p and 1 − p are as good as each other and stand at the smaller. Without curves nothing is predicted.
    """

    curves: tuple[tuple[CurvePoint, ...], ...] = ()

    def at(self, answers: Fractions, orders: Orders) -> tuple[Fractions, Fractions]:
        """The error to expect of questions with these answers about so many attributes, and the part that counts."""
        error, part = np.empty(len(answers)), np.empty(len(answers))
        place = np.clip(orders, 1, len(self.curves)) - 1
        for number, curve in enumerate(self.curves):
            mine = place == number
            known, errors, parts = zip(*curve, strict=True)
            error[mine] = np.interp(_folded(answers[mine]), known, errors)
            part[mine] = np.interp(_folded(answers[mine]), known, parts)
        return error, part

    def to_json(self) -> list[list[list[float]]]:
        return [[list(point) for point in curve] for curve in self.curves]

    @staticmethod
    def from_json(data: Sequence[Sequence[Sequence[float]]]) -> ErrorCurves:
        return ErrorCurves(tuple(tuple(CurvePoint(*point) for point in curve) for curve in data))

    def part(self, order: int) -> float:
        """Of a replica's errors on questions about so many attributes the part that counts."""
        return self.curves[min(order, len(self.curves)) - 1][0].part

    def scaled(self, scales: Mapping[int, float]) -> ErrorCurves:
        """With bars of questions about so many attributes so many times as wide; beyond the last as the last."""
        known = sorted(scales)
        factors = [
            scales[max(k for k in known if k <= order)] if known and order >= known[0] else 1.0
            for order in range(1, len(self.curves) + 1)
        ]
        return ErrorCurves(
            tuple(
                tuple(CurvePoint(p.answer, times * p.error, times * p.part) for p in curve)
                for times, curve in zip(factors, self.curves, strict=True)
            )
        )

    def bars(self, answers: Fractions, orders: Orders, errors: Sequence[Fractions]) -> Fractions:
        """The half-width of a 95% interval: t √((B · curve² + Σ e_b²) / 2B), of e_b the part that counts."""
        error, part = self.at(answers, orders)
        seen = np.sum(np.square(part * np.array(errors)), axis=0)
        widths: Fractions = STUDENT * np.sqrt((len(errors) * error**2 + seen) / (2 * len(errors)))
        return widths


def bar_from_mean(mean: float) -> float:
    """Where nothing but a mean error is predicted: the bar of normal errors of that mean, 1.96 √(π/2) · mean."""
    return min(1.0, BAR * math.sqrt(math.pi / 2) * mean)


def narrowest(records: int, rows: int) -> float:
    """What no bar is narrower than: one record, and the rule of three for what no row has."""
    return max(1 / records, 3 / rows)


def learned_curves(
    released: Records, records: int, replicas: Sequence[Replica], stream: Stream
) -> ErrorCurves:
    """The curves of many questions of every kind, where the table has so many records."""
    attributes = asked_about(released, stream)
    orders = np.repeat(np.arange(1, min(MOST_ATTRIBUTES, len(attributes)) + 1), QUESTIONS)
    group = mixed_questions(released.domain, attributes, orders, stream)
    return _curves_of(group, orders, released.rows, records, replicas)


def linked_curves(
    released: Units, records: int, replicas: Sequence[Replica], stream: Stream
) -> dict[str, ErrorCurves]:
    """Of a database the curves of questions about the rows of each child table, by its name, and those of any, all
    and count (`ANY`).
    """
    database, found, asked = released.database, dict[str, ErrorCurves](), []
    for child in database.children:
        joined = [each.joined(child.name) for each in replicas]
        rows = released.joined(child.name)
        found[child.name] = learned_curves(rows, rows.rows * records // max(1, released.rows), joined, stream)
        width = min(MOST_ATTRIBUTES, int((child.domain.sizes > 1).sum()))
        orders = np.repeat(np.arange(1, width + 1), QUESTIONS_OF_UNITS)
        asked += hanging_questions(database, child.name, orders, stream)
    group = over_units(database, asked)
    return found | {ANY: _curves_of(group, group.orders, released.rows, records, replicas)}


def _curves_of(
    group: Group, orders: Orders, released: int, records: int, replicas: Sequence[Replica]
) -> ErrorCurves:
    seen = together(lambda replica: replica.seen(group), replicas)
    answers = _folded(np.mean([each.answers for each in seen], axis=0))
    whole = np.mean([each.errors**2 for each in seen], axis=0)
    apart = np.mean([each.apart**2 for each in seen], axis=0)
    rows = replicas[0].rows
    less = rows / max(1, min(released, max(rows, records)))  # of the rows' sampling error counts so much
    return ErrorCurves(
        tuple(
            _curve(answers[mine], whole[mine], apart[mine], less)
            for mine in (orders == k for k in np.unique(orders))
        )
    )


def _curve(answers: Fractions, whole: Fractions, apart: Fractions, less: float) -> tuple[CurvePoint, ...]:
    """Points for questions of alike answer; one part that counts for all of them, so that few do not decide it."""
    parts = np.array_split(np.argsort(answers, kind="stable"), min(POINTS, len(answers)))
    squares, sampling = (np.array([each[part].mean() for part in parts]) for each in (whole, apart))
    # Of the sums: a mean of ratios would be that of rare answers, whose tiny errors are all sampling.
    counted = max(less, 1 - (1 - less) * float(sampling.sum() / squares.sum())) if squares.any() else 1.0
    # Means of equal answers differ in their last bit, and a curve goes up.
    places = np.maximum.accumulate([answers[part].mean() for part in parts])
    return tuple(
        CurvePoint(place, math.sqrt(counted * square), math.sqrt(counted))
        for place, square in zip(places.tolist(), squares.tolist(), strict=True)
    )


def asked_about(
    released: Records, stream: Stream, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Attributes that questions are drawn about: of very many some at random, and some items that rows do hold."""
    varied = np.flatnonzero(released.domain.sizes > 1) if among is None else among
    if len(varied) <= ASKED_ABOUT:
        return varied
    half = ASKED_ABOUT // 2
    some = varied[stream.below(np.full(half, len(varied)))]
    for position, codes in enumerate(released.columns):
        if isinstance(codes, SparseItems) and len(codes.ids):
            held = codes.ids[stream.below(np.full(half, len(codes.ids)))]
            some = np.concatenate([some, released.domain.starts[position] + held.astype(np.int64)])
    return np.intersect1d(some, varied)


def _folded(answers: Fractions) -> Fractions:
    return np.minimum(answers, 1 - answers)


if TYPE_CHECKING:  # a release that is read again needs the tables, and no mechanism
    from dualquery.fitting.measured import Measured
    from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan

MOST_DRAWN = 1_000_000  # rows, and bytes; of a larger table each row drawn stands for several records
MOST_BYTES = 100_000_000
MOST_SEEDS = 2**53  # whole numbers that every reader of JSON keeps


@dataclass(frozen=True)
class Draw:
    """How the tables of replicas are drawn from released rows: so many rows each, by public chance.

    Where public rows were believed (`fitting.prior`), the truth lies about the release as N₀ records of it would, and
    not as close as the noise alone says: its n records are then drawn from a of the rows only (`atoms`). Cells vary
    by 1/a + 1/n, which is to be 1/N₀: that n records differ from the next n by chance is counted there already.
    """

    records: int
    seed: int
    atoms: int | None = None

    @staticmethod
    def of(artefact: Artefact, records: int, seed: int, trust: Trust | None = None) -> Draw:
        """For a table of so many records, as far as memory allows."""
        if isinstance(artefact, SyntheticRecords):
            allowed = MOST_BYTES * artefact.records.rows // max(1, artefact.records.bytes)
            records = min(records, MOST_DRAWN, max(1, allowed))
        if trust is None or not trust.share or trust.records >= records:
            return Draw(records, seed)
        return Draw(records, seed, max(1, round(1 / (1 / trust.records - 1 / records))))

    def to_json(self) -> dict[str, int]:
        """As the certificate has it."""
        return {"records": self.records, "seed": self.seed, **({"atoms": self.atoms} if self.atoms else {})}


class Repeated(Counter):
    """A counter of rows that each stand for so many records. Rows of a release are nobody's."""

    def __init__(self, rows: Records, times: int) -> None:
        super().__init__(rows.domain)
        self._rows = rows
        self._times = times

    @property
    def true_rows(self) -> int:
        return self._times * self._rows.rows

    @property
    def knows_places(self) -> bool:
        return bool(self._rows.places)

    def _counted(self, what: Countable) -> Integers:
        return self._times * counted_by(self._engine, what, self._rows)


def made_replicas(
    mechanism: Mechanism[Any, Any], plan: Plan[Any], outcome: Outcome, draw: Draw, progress: Progress
) -> tuple[Replica, ...]:
    """The replicas of a release; none of a mechanism whose errors they would not show."""
    released = outcome.artefact
    if mechanism.replica is None or not isinstance(released, SyntheticRecords):
        return ()
    shorter, stage = mechanism.replica(outcome.settled or plan), "estimating errors"

    def made(number: int) -> Replica:
        table = _table_drawn(released.records, draw, number)
        return Replica.of(table, _released_again(mechanism, shorter, table, draw.seed + number))

    progress(stage, 0, REPLICAS)
    with plain_algebra():
        return tuple(together(made, range(REPLICAS), lambda done: progress(stage, done, REPLICAS)))


def tables_drawn(released: Records, draw: Draw) -> list[Records]:
    """The tables of the replicas."""
    return together(lambda number: _table_drawn(released, draw, number), range(REPLICAS))


def _table_drawn(released: Records, draw: Draw, number: int) -> Records:
    """The same one from the same rows and seed, on every machine."""
    stream = Stream(draw.seed + number)
    if draw.atoms is None or draw.atoms >= released.rows:
        return released.take(_drawn(released.rows, draw.records, stream))
    some = _drawn(released.rows, draw.atoms, stream)
    return released.take(np.sort(some[stream.below(np.full(draw.records, len(some)))]))


def _drawn(rows: int, wanted: int, stream: Stream) -> NDArray[np.int64]:
    """So many of the rows, in order: without replacement where there are enough."""
    if wanted > rows:
        return np.sort(stream.below(np.full(wanted, rows)))
    tickets = (stream.below(np.full(rows, 1 << 31)) << 31) + np.arange(rows)  # no two alike
    return np.sort(np.argpartition(tickets, wanted - 1)[:wanted])


def _released_again(mechanism: Mechanism[Any, Any], plan: Plan[Any], table: Records, seed: int) -> Records:
    """What the mechanism makes of a table drawn; its number of records is told as that of the private one was."""
    from dualquery.mechanisms.mechanism import finished_records
    from dualquery.privacy.curator import Curator
    from dualquery.privacy.ledger import Ledger
    from dualquery.privacy.scores import MOST_PUBLIC_ROWS
    from dualquery.randomness import SeededEntropy

    rng, task = np.random.default_rng([seed, REPLICAS]), plan.task  # another stream than the draw's
    times = -(-task.rows // table.rows)
    told = times * table.rows
    if task.rows_variance is not None:
        told = max(1, min(MOST_PUBLIC_ROWS, round(told + rng.normal(0.0, math.sqrt(task.rows_variance)))))
    curator = Curator(Repeated(table, times), Ledger(task.budget), SeededEntropy(seed))
    earlier = tuple(_measured_again(each, table, times, rng) for each in task.earlier)
    again = replace(plan, task=replace(task, rows=told, earlier=earlier))
    outcome = mechanism.run(again, curator, rng, silent)
    assert isinstance(outcome.artefact, SyntheticRecords), "a mechanism that has replicas releases records"
    totals = None if task.totals is None else task.totals.counted(table)
    return finished_records(outcome.artefact.records, outcome.measured, told, rng, totals)


def _measured_again(before: Measured, table: Records, times: int, rng: np.random.Generator) -> Measured:
    """What was measured before the release, of a table drawn."""
    from dualquery.queries.tables import attribute_codes

    sums = before.what
    held = np.bincount(attribute_codes(table, [sums.attribute])[0], minlength=sums.cells.shape[1])
    noise = rng.normal(0.0, np.sqrt(before.variance))
    return replace(before, values=sums.cells @ (times * held) + noise)
