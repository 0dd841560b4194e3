"""What an analyst is told: the answer with its badge, its two errors, what it cost and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dualquery.privacy.conversion import UNITS
from dualquery.releases.release import with_bar

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

    def to_json(self) -> dict[str, Json]:
        return {"units": self.units, "share": self.share}


FREE = Cost(0, 0.0)


@dataclass(frozen=True)
class Left:
    """What is left of the cap, and how many fires it still pays for, the one that is paid for included."""

    units: int
    share: float
    fires: int

    def to_json(self) -> dict[str, Json]:
        return {"units": self.units, "share": self.share, "fires": self.fires}


@dataclass(frozen=True)
class OnlineAnswer:
    """Fractions of the table. A single question has one value and no labels; a table has both for each cell.

    `bars_95` is the ± of each value: it is off by at most that, 19 times of 20; predicted for an estimate, known for
    a measurement. `bound` is guaranteed: with the stated confidence no value is off by more, all cells at once; None
    where nothing is guaranteed.
    """

    question: str
    badge: Badge
    values: tuple[float, ...]
    bars_95: tuple[float | None, ...]
    bound: float | None
    cost: Cost
    left: Left
    attributes: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    confidence: float = CONFIDENCE

    @property
    def value(self) -> float:
        """The value of a single question."""
        (value,) = self.values
        return value

    def __str__(self) -> str:
        """`0.142 ± 0.006 (95%); not contradicted, guaranteed within 0.015 (95%)`."""
        head = f"{self.question}: {len(self.values)} cells" if self.labels else self._with_bar()
        sure = "" if self.bound is None else f", guaranteed within {self.bound:.2g} ({self.confidence:.0%})"
        return f"{head}; {self.badge.value}{sure}"

    def _with_bar(self) -> str:
        (bar,) = self.bars_95
        return with_bar(self.value, bar) + (f" ({CONFIDENCE:.0%})" if bar else "")

    def to_json(self) -> dict[str, Json]:
        return {
            "question": self.question,
            "badge": self.badge.value,
            "values": list(self.values),
            "bars_95": list(self.bars_95),
            "bound": self.bound,
            "confidence": self.confidence,
            "attributes": list(self.attributes),
            "labels": [list(labels) for labels in self.labels],
            "cost": self.cost.to_json(),
            "left": self.left.to_json(),
        }


@dataclass(frozen=True)
class Quote:
    """What a question would cost, said before it is asked and without looking at the table."""

    question: str
    least: Cost
    most: Cost
    bound: (
        float | None
    )  # that an answer would be guaranteed within; None where there is nothing left to test with
    words: str
    tolerances: tuple[float, ...] = ()  # that may be named for this question, where it would be tested

    def to_json(self) -> dict[str, Json]:
        return {
            "question": self.question,
            "least": self.least.to_json(),
            "most": self.most.to_json(),
            "bound": self.bound,
            "words": self.words,
            "tolerances": list(self.tolerances),
        }


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

    @property
    def fires_left(self) -> int:
        return self.left.fires

    def to_json(self) -> dict[str, Json]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "order": self.order,
            "rows": self.rows,
            "cap": self.cap,
            "cap_divergence": self.cap / UNITS,
            "spent": self.spent,
            "left": self.left.to_json(),
            "price": self.price.to_json(),
            "bound": self.bound,
            "tolerances": list(self.tolerances),
            "updates": self.updates,
            "answers": dict(self.answers),
        }
