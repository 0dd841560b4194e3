"""From numbers to what an analyst is told, and to what the journal writes of it."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dualquery.asking.answers import FREE, Badge, Cost, Left, OnlineAnswer
from dualquery.asking.journal import Answered, Fired
from dualquery.mechanisms.error_bars import STUDENT, bar_from_mean, narrowest
from dualquery.privacy.curator import Surprise
from dualquery.queries.question import Question
from dualquery.releases.release import Release


class AnswerBars:
    """The 95% bars of what rows that began as a release answer: t · curve(q), as if replicas erred as the curve says.

    Replicas of the release say nothing of a hypothesis that has moved since; its curves are what there is.
    """

    def __init__(self, release: Release) -> None:
        self._predicted = release.certificate.predicted_error
        self._least = narrowest(release.certificate["records"]["rows"], release.artefact.rows or 1)

    def of(self, question: Question, values: NDArray[np.float64]) -> tuple[float | None, ...]:
        if not self._predicted.curves.curves:
            mean = self._predicted.mean
            return (None if mean is None else bar_from_mean(mean),) * len(values)
        order = np.full(len(values), int((question.group.scope() >= 0).sum(axis=1).max()))
        widths = STUDENT * self._predicted.curves.at(values, order)[0]
        return tuple(np.clip(widths, self._least, 1.0).tolist())


def answer_of(
    question: Question,
    badge: Badge,
    values: NDArray[np.float64],
    bars_95: tuple[float | None, ...],
    bound: float | None,
    left: Left,
    cost: Cost = FREE,
) -> OnlineAnswer:
    return OnlineAnswer(
        question.text,
        badge,
        tuple(values.tolist()),
        bars_95,
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


def fired_of(surprise: Surprise, slot: int, question: Question, note: str) -> Fired:
    """A fire, as the journal has it."""
    found, noisy = surprise.found, tuple(surprise.noisy.tolist())
    return Fired(slot, question.text, found.cell, found.side.value, noisy, note)


def in_records(mass: NDArray[np.int64], total: int, rows: int) -> NDArray[np.int64]:
    """round(n h) of each, halves upwards, in whole numbers of any size."""
    return np.array([(2 * rows * each + total) // (2 * total) for each in mass.tolist()], np.int64)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"
