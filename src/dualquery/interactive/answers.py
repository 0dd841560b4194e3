"""What an analyst is told: the answer with its badge, its two errors, what it cost and what is left.

Releases that are published beside a table are asked here, too: that is free, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from dualquery.errors import BudgetError, QueryError
from dualquery.interactive import Answered
from dualquery.mechanisms.error_bars import STUDENT, bar_from_mean, narrowest
from dualquery.privacy.conversion import UNITS
from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.question import Question, QuestionReader
from dualquery.releases.release import Release, with_bar
from dualquery.releases.sentences import why_not_private
from dualquery.types import Integers, Reals

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

CONFIDENCE = 0.95  # of every guaranteed bound


class Badge(Enum):
    """Where an answer comes from, and so what stands behind it."""

    RELEASE = "release"  # a published release said so; nothing was tested
    NOT_CONTRADICTED = "not contradicted"  # the hypothesis said so, and the test against it stayed silent
    MEASURED = "measured"  # the test fired, and the count was measured with fresh noise
    BOUGHT = "bought"  # measured at a precision that the analyst named and paid for
    NOT_CHECKED = "not checked"  # the hypothesis said so, and no test was wanted, or nothing was left for one

    def words(self) -> str:
        return _BADGE_WORDS[self]


_BADGE_WORDS = {
    Badge.RELEASE: "from a published release: free, and not checked",
    Badge.NOT_CONTRADICTED: "an estimate that a check against the table did not contradict: free",
    Badge.MEASURED: "measured with fresh noise, because the estimate was far off",
    Badge.BOUGHT: "measured with the precision that was paid for",
    Badge.NOT_CHECKED: "an estimate that was not checked against the table: free",
}


@dataclass(frozen=True)
class Cost:
    """Units of 10⁻¹² of Rényi divergence at the ledger's order, and the same as a share of the cap."""

    units: int
    share: float

    @staticmethod
    def of(units: int, cap: int) -> Cost:
        return Cost(units, units / cap)


FREE = Cost(0, 0.0)


@dataclass(frozen=True)
class Left:
    """What is left of the cap, and how many fires it still pays for, the one that is paid for included."""

    units: int
    share: float
    fires: int


@dataclass(frozen=True, kw_only=True)
class OnlineAnswer:
    """Fractions of the table. A single question has one value and no labels; a table has both for each cell.

    `bars_95` is the ± of each value: it is off by at most that in 19 of 20 cases; predicted for an estimate, known
    for a measurement. `bound` is guaranteed: with the stated confidence no value is off by more, all cells at
    once; None where nothing is guaranteed.
    """

    question: str
    badge: Badge
    values: tuple[float, ...]
    bars_95: tuple[float | None, ...]
    bound: float | None
    confidence: float = CONFIDENCE
    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    cost: Cost = FREE
    left: Left

    @staticmethod
    def of(
        question: Question,
        badge: Badge,
        values: Reals,
        bars: tuple[float | None, ...],
        bound: float | None,
        left: Left,
        cost: Cost = FREE,
    ) -> OnlineAnswer:
        return OnlineAnswer(
            question=question.text,
            badge=badge,
            values=tuple(values.tolist()),
            bars_95=bars,
            bound=bound,
            attributes=question.attributes,
            labels=question.labels,
            cost=cost,
            left=left,
        )

    @property
    def value(self) -> float:
        (value,) = self.values
        return value

    def __str__(self) -> str:
        """`0.142 ± 0.006 (95%); not contradicted, guaranteed within 0.015 (95%)`."""
        head = f"{self.question}: {len(self.values)} cells"
        if not self.labels:
            (bar,) = self.bars_95
            head = with_bar(self.value, bar) + (f" ({CONFIDENCE:.0%})" if bar else "")
        sure = "" if self.bound is None else f", guaranteed within {self.bound:.2g} ({self.confidence:.0%})"
        return f"{head}; {self.badge.value}{sure}"

    def to_json(self) -> dict[str, Json]:
        return {
            **vars(self),
            "badge": self.badge.value,
            "cost": vars(self.cost),
            "left": vars(self.left),
        }

    def entry(self, version: int, note: str) -> Answered:
        digest = hashlib.sha256(np.array(self.values).tobytes()).hexdigest()
        return Answered(self.question, self.badge.value, digest, self.bound, version, note)


@dataclass(frozen=True)
class Quote:
    """What a question would cost, said before it is asked and without looking at the table."""

    question: str
    least: Cost
    most: Cost
    bound: float | None  # that an answer would be guaranteed within; None where nothing is left to test with
    words: str
    tolerances: tuple[float, ...] = ()  # that may be named for this question, where it would be tested

    @staticmethod
    def free(question: Question, bound: float | None, words: str) -> Quote:
        return Quote(question.text, FREE, FREE, bound, words)

    def to_json(self) -> dict[str, Json]:
        return {**vars(self), "least": vars(self.least), "most": vars(self.most)}


@dataclass(frozen=True)
class Status:
    """Where the budget stands. All of it is public: it follows from the answers that were given."""

    epsilon: float
    delta: float
    neighbours: str
    order: int
    rows: int
    cap: int  # units
    spent: int
    left: Left
    price: Cost  # of a fire with its measurement
    bound: float  # of an answer that is not contradicted, at the tolerance that is used where none is named
    tolerances: tuple[float, ...]  # that may be named
    updates: int  # of the hypothesis
    answers: dict[str, int]  # given so far, by badge
    accuracy: str | None  # of all answers together, as it is promised, in words; None where nothing is

    @property
    def fires_left(self) -> int:
        return self.left.fires

    def to_json(self) -> dict[str, Json]:
        more = {
            "cap_divergence": self.cap / UNITS,
            "left": vars(self.left),
            "price": vars(self.price),
        }
        return {**vars(self), **more}


class AnswerBars:
    """The 95% bars of what rows that began as a release answer: t · curve(q), as if replicas erred as the curve says.

    Replicas of the release say nothing of a hypothesis that has moved since; its curves are what there is.
    """

    def __init__(self, release: Release | None) -> None:
        self._predicted = None if release is None else release.certificate.predicted_error
        if release is not None:
            self._least = narrowest(release.certificate["records"]["rows"], release.artefact.rows or 1)

    def of(self, question: Question, values: Reals) -> tuple[float | None, ...]:
        if self._predicted is None:
            return (None,) * len(values)
        if not self._predicted.curves.curves:
            mean = self._predicted.mean
            return (None if mean is None else bar_from_mean(mean),) * len(values)
        order = np.full(len(values), int((question.group.scope() >= 0).sum(axis=1).max()))
        widths = STUDENT * self._predicted.curves.at(values, order)[0]
        return tuple(np.clip(widths, self._least, 1.0).tolist())


def in_records(mass: Integers, total: int, rows: int) -> Integers:
    """round(n h) of each, halves upwards, in whole numbers of any size."""
    return np.array([(2 * rows * each + total) // (2 * total) for each in mass.tolist()], np.int64)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def refuse_not_private(published: Mapping[str, Release]) -> None:
    """A promise about a table is worth nothing beside a release of it that promises nothing."""
    for name, release in published.items():
        if not release.certificate.private:
            raise BudgetError(
                f"the release '{name}' is not private ({why_not_private(release.certificate)}), and nothing that is "
                "published beside it could be; publish only private releases"
            )


def named(published: Mapping[str, Release], start: Release | None) -> list[dict[str, Json]]:
    """What is published beside a table, each with its own promise, and whether the table's promise covers it.

    The release that the table starts from is paid for out of its cap. Any other has a promise of its own, and if it
    is about the same people the two add up.
    """
    found: list[dict[str, Json]] = []
    for name, release in published.items():
        promise = {each: release.certificate["budget"][each] for each in ("epsilon", "delta", "neighbours")}
        covered = start is not None and release.certificate == start.certificate
        found.append({"name": name, **promise, "covered": covered})
    return found


def words_of(published: Sequence[Mapping[str, Json]]) -> str:
    """What the promise does not cover, in a sentence; nothing where it covers all."""
    others = ", ".join(
        f"{each['name']} (ε = {each['epsilon']:g}, δ = {each['delta']:g})"
        for each in published
        if not each["covered"]
    )
    return others and f"; not covered, and to be added where they are about the same people: {others}"


class Published:
    """Releases by name. Each has a schema of its own."""

    def __init__(self, releases: Mapping[str, Release]) -> None:
        self.releases = dict(releases)
        self._readers = {name: QuestionReader(release.domain) for name, release in releases.items()}
        self._columns = {
            name: KeptColumns(each.records)
            for name, each in releases.items()
            if each.records is not None and not each.domain.inner
        }

    def read(self, name: str, text: str) -> Question:
        if name not in self.releases:
            names = ", ".join(self.releases) or "none"
            raise QueryError(f"no release '{name}' is published beside this table; there are: {names}")
        return self._readers[name].read(text)

    def answer(self, name: str, question: Question, left: Left) -> OnlineAnswer:
        """What a release says. Not for several threads at once."""
        release, columns = self.releases[name], self._columns.get(name)
        values = (
            release.artefact.fractions(question.group)
            if columns is None
            else columns.counts(question.group) / columns.records.rows
        )
        bars = AnswerBars(release).of(question, values)
        return OnlineAnswer.of(question, Badge.RELEASE, values, bars, None, left)
