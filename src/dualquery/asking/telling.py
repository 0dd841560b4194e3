"""From numbers to what an analyst is told, and to what the journal writes of it."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dualquery.asking.answers import FREE, Badge, Cost, Left, OnlineAnswer
from dualquery.asking.journal import Answered, Fired
from dualquery.privacy.curator import TableSurprise
from dualquery.queries.question import Question
from dualquery.releases.prediction import PredictedError


class Typical:
    """The predicted error of answers, for many of them at once."""

    def __init__(self, predicted: PredictedError) -> None:
        self._predicted = predicted

    def of(self, question: Question, values: NDArray[np.float64]) -> tuple[float | None, ...]:
        if not self._predicted.curves.curves:
            return (self._predicted.mean,) * len(values)
        order = np.full(len(values), int((question.group.scope() >= 0).sum(axis=1).max()))
        return tuple(self._predicted.curves.at(values, order)[0].tolist())


def answer_of(
    question: Question,
    badge: Badge,
    values: NDArray[np.float64],
    typical: tuple[float | None, ...],
    bound: float | None,
    left: Left,
    cost: Cost = FREE,
) -> OnlineAnswer:
    return OnlineAnswer(
        question.text,
        badge,
        tuple(values.tolist()),
        typical,
        bound,
        cost,
        left,
        question.attributes,
        question.labels,
    )


def entry_of(answer: OnlineAnswer, version: int, note: str) -> Answered:
    """An answer that cost nothing, as the journal has it."""
    digest = hashlib.sha256(np.array(answer.values).tobytes()).hexdigest()
    return Answered(answer.question, answer.badge.value, digest, answer.bound, version, note)


def fired_of(surprise: TableSurprise, slot: int, question: Question, note: str) -> Fired:
    """A fire, as the journal has it."""
    found, noisy = surprise.found, tuple(surprise.noisy.tolist())
    return Fired(slot, question.text, found.cell, found.side.value, noisy, note)


def in_records(mass: NDArray[np.int64], total: int, rows: int) -> NDArray[np.int64]:
    """round(n h) of each, halves upwards, in whole numbers of any size."""
    return np.array([(2 * rows * each + total) // (2 * total) for each in mass.tolist()], np.int64)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"
