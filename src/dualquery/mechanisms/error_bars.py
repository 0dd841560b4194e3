"""How far off an answer may be, from errors that were seen on replicas. All of it is public.

A replica is a table whose every answer is known, and what was released of it (`replicas`); e_b(q) is the error of the
b-th of B = 4. Four errors say little about the size of a fifth, so they are pooled with the errors of other questions
like this one: `curve(q)` is the root-mean-square error of questions about as many attributes that have about the same
answer, and counts as four more:

    σ(q)² = (4 · curve(q)² + Σ_b e_b(q)²) / 8,      bar(q) = t_{.975, 8} · σ(q).

where t is the quantile of Student's law. A replica has fewer rows than the release. What their sampling adds is seen
between its halves, which share nothing: h_b(q) = (q(one half) − q(other half)) / 2 has the variance that it adds to
e_b(q). It is counted as if the rows were as many as the table has records, or as the release has rows where these are
fewer: of e² there counts the part 1 − (1 − rows/more) Σh²/Σe², the sums over all questions about as many attributes.

The bar holds the truth for 95 of 100 questions (`experiments/coverage.py`). It is nowhere zero: nothing is known
better than to one record, and what none of N rows has may be had by 3/N of the records (the rule of three).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import Fractions
from dualquery.queries.group import Group
from dualquery.queries.random_families import Stream, mixed_questions
from dualquery.table.records import Records, SparseItems

LEVEL = 0.95
STUDENT = 2.306004135204166  # t_{.975, 8}: the quantile of Student's law with 2 · REPLICAS degrees of freedom
MOST_ATTRIBUTES = 5  # a question about more is taken as one about so many
QUESTIONS = 1_000  # of each number of attributes, that a curve is learned from
POINTS = 16  # of a curve
ASKED_ABOUT = 100  # attributes at most

Orders = NDArray[np.int64]  # of each question, the number of attributes that it asks about


@dataclass(frozen=True, eq=False)
class Replica:
    """A table drawn from the released rows, and the rows that were released of it, every other row in one half."""

    table: Records
    halves: tuple[Records, Records]

    @staticmethod
    def of(table: Records, rows: Records) -> Replica:
        number = np.arange(rows.rows)
        return Replica(table, (rows.take(number[::2]), rows.take(number[1::2])))

    @property
    def rows(self) -> int:
        return self.halves[0].rows + self.halves[1].rows

    def seen(self, group: Group) -> Seen:
        """What it shows of each question of a group."""
        counts = [group.counts(half) / group.unit for half in self.halves]
        table = group.counts(self.table) / (group.unit * self.table.rows)
        apart = counts[0] / self.halves[0].rows - counts[1] / max(1, self.halves[1].rows)
        return Seen(table, (counts[0] + counts[1]) / self.rows - table, apart / 2)


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

    def bars(self, answers: Fractions, orders: Orders, errors: Sequence[Fractions]) -> Fractions:
        """The half-width of a 95% interval: t √((B · curve² + Σ e_b²) / 2B), of e_b the part that counts."""
        error, part = self.at(answers, orders)
        seen = np.sum(np.square(part * np.array(errors)), axis=0)
        widths: Fractions = STUDENT * np.sqrt((len(errors) * error**2 + seen) / (2 * len(errors)))
        return widths


def bar_from_mean(mean: float) -> float:
    """Where nothing but a mean error is predicted: the bar of normal errors of that mean, 1.96 √(π/2) · mean."""
    return min(1.0, NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(math.pi / 2) * mean)


def narrowest(records: int, rows: int) -> float:
    """What no bar is narrower than: one record, and the rule of three for what no row has."""
    return max(1 / records, 3 / rows)


def learned_curves(
    released: Records, records: int, replicas: Sequence[Replica], stream: Stream
) -> ErrorCurves:
    """The curves of many questions of every kind, where the table has so many records."""
    attributes = _asked_about(released, stream)
    orders = np.repeat(np.arange(1, min(MOST_ATTRIBUTES, len(attributes)) + 1), QUESTIONS)
    group = mixed_questions(released.domain, attributes, orders, stream)
    seen = [replica.seen(group) for replica in replicas]
    answers = _folded(np.mean([each.answers for each in seen], axis=0))
    whole = np.mean([each.errors**2 for each in seen], axis=0)
    apart = np.mean([each.apart**2 for each in seen], axis=0)
    rows = replicas[0].rows
    less = rows / min(released.rows, max(rows, records))  # of the rows' sampling error counts so much
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
    return tuple(
        CurvePoint(float(answers[part].mean()), math.sqrt(counted * square), math.sqrt(counted))
        for part, square in zip(parts, squares.tolist(), strict=True)
    )


def _asked_about(released: Records, stream: Stream) -> NDArray[np.int64]:
    """Attributes that questions are drawn about: of very many some at random, and some items that rows do hold."""
    varied = np.flatnonzero(released.domain.sizes > 1)
    if len(varied) <= ASKED_ABOUT:
        return varied
    half = ASKED_ABOUT // 2
    some = varied[stream.below(np.full(half, len(varied)))]
    for position, codes in enumerate(released.columns):
        if isinstance(codes, SparseItems) and len(codes.ids):
            held = codes.ids[stream.below(np.full(half, len(codes.ids)))]
            some = np.concatenate([some, released.domain.starts[position] + held.astype(np.int64)])
    return np.unique(some)


def _folded(answers: Fractions) -> Fractions:
    return np.minimum(answers, 1 - answers)
