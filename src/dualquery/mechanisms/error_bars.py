"""How far off an answer may be, from errors that were seen on replicas. All of it is public.

A replica is a table whose every answer is known, and what was released of it (`replicas`); e_b(q) is the error of the
b-th of B = 4. Four errors say little about the size of a fifth, so they are pooled with the errors of other questions
like this one: `curve(q)` is the root-mean-square error of questions about as many attributes that have about the same
answer, and counts as four more:

    σ(q)² = (4 · curve(q)² + Σ_b e_b(q)²) / 8,      bar(q) = t_{.975, 8} · σ(q).

The bar holds the truth for 95 of 100 questions (`experiments/coverage.py`). It is nowhere zero: nothing is known
better than to one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import Fractions
from dualquery.queries.draws import Stream
from dualquery.queries.group import Group
from dualquery.queries.mixtures import mixed_questions
from dualquery.table.records import Records, SparseItems

REPLICAS = 4
LEVEL = 0.95
STUDENT = 2.306004135204166  # t_{.975, 8}: the quantile of Student's law with 2 · REPLICAS degrees of freedom
MOST_ATTRIBUTES = 5  # a question about more is taken as one about so many
QUESTIONS = 1_000  # of each number of attributes, that a curve is learned from
POINTS = 16  # of a curve
ASKED_ABOUT = 100  # attributes at most

Orders = NDArray[np.int64]  # of each question, the number of attributes that it asks about


@dataclass(frozen=True, eq=False)
class Replica:
    """A table drawn from the released rows, and the rows that were released of it."""

    table: Records
    rows: Records

    def errors(self, group: Group) -> Fractions:
        """e(q) of each question of a group."""
        found = group.counts(self.rows) / (group.unit * self.rows.rows)
        return found - group.counts(self.table) / (group.unit * self.table.rows)


@dataclass(frozen=True)
class ErrorCurves:
    """Root-mean-square errors by answer: for each number of attributes from 1 on (answer, error) points.

    Answers p and 1 − p are as good as each other and stand at the smaller. Without curves nothing is predicted.
    """

    curves: tuple[tuple[tuple[float, float], ...], ...] = ()

    def at(self, answers: Fractions, orders: Orders) -> Fractions:
        """The error to expect of questions with these answers about so many attributes."""
        out = np.empty(len(answers))
        place = np.clip(orders, 1, len(self.curves)) - 1
        for number, curve in enumerate(self.curves):
            mine = place == number
            known, errors = zip(*curve, strict=True)
            out[mine] = np.interp(_folded(answers[mine]), known, errors)
        return out


def bars(expected: Fractions, errors: Sequence[Fractions]) -> Fractions:
    """The half-width of a 95% interval: t √((B · expected² + Σ e_b²) / 2B)."""
    seen = np.sum(np.square(errors), axis=0)
    variance: Fractions = (len(errors) * expected**2 + seen) / (2 * len(errors))
    return STUDENT * np.sqrt(variance)


def learned_curves(
    released: Records, replicas: Sequence[Replica], least: float, stream: Stream
) -> ErrorCurves:
    """The curves of many questions of every kind; no error is taken to be less than `least`."""
    attributes = _asked_about(released, stream)
    orders = np.repeat(np.arange(1, min(MOST_ATTRIBUTES, len(attributes)) + 1), QUESTIONS)
    group = mixed_questions(released.domain, attributes, orders, stream)
    seen = [
        (group.counts(each.rows) / each.rows.rows, group.counts(each.table) / each.table.rows)
        for each in replicas
    ]
    answers = _folded(np.mean([table for _, table in seen], axis=0))
    squares = np.mean([(rows - table) ** 2 for rows, table in seen], axis=0)
    return ErrorCurves(
        tuple(_curve(answers[orders == k], squares[orders == k], least) for k in np.unique(orders))
    )


def _curve(answers: Fractions, squares: Fractions, least: float) -> tuple[tuple[float, float], ...]:
    parts = np.array_split(np.argsort(answers, kind="stable"), POINTS)
    return tuple(
        (float(answers[part].mean()), max(least, float(np.sqrt(squares[part].mean())))) for part in parts
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
