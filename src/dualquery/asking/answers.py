"""What an analyst is told: the answer with its badge, its two errors, what it cost and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dualquery.privacy.conversion import UNITS

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

CONFIDENCE = 0.95  # of every guaranteed bound


class Badge(Enum):
    """Where an answer comes from, and so what stands behind it."""

    RELEASE = "release"  # a published release said so; nothing was tested
    VERIFIED = "verified"  # the hypothesis said so, and the test against the table stayed silent
    MEASURED = "measured"  # the test fired, and the count was measured with fresh noise
    BOUGHT = "bought"  # measured at a precision that the analyst named and paid for
    UNVERIFIED = "unverified"  # the hypothesis said so, and nothing was left to test it

    def words(self) -> str:
        return _BADGE_WORDS[self]


_BADGE_WORDS = {
    Badge.RELEASE: "from a published release: free, and not tested",
    Badge.VERIFIED: "from the hypothesis, which a test against the table did not contradict: free",
    Badge.MEASURED: "measured with fresh noise, because the hypothesis was far off",
    Badge.BOUGHT: "measured with the precision that was paid for",
    Badge.UNVERIFIED: "from the hypothesis, with no budget left to test it",
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

    `typical` is about one standard error of each value. `bound` is guaranteed: with the stated confidence no value
    is off by more, all cells at once; None where nothing is guaranteed.
    """

    question: str
    badge: Badge
    values: tuple[float, ...]
    typical: tuple[float | None, ...]
    bound: float | None
    cost: Cost
    left: Left
    attributes: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    confidence: float = CONFIDENCE

    @property
    def repeatable(self) -> bool:
        """Whether asking again, without a test, says the same as long as nothing was measured since."""
        return self.cost.units == 0 and self.badge is not Badge.VERIFIED

    @property
    def value(self) -> float:
        """The value of a single question."""
        (value,) = self.values
        return value

    def __str__(self) -> str:
        """`0.142 ± 0.003 (verified; off by at most 0.015 with 95% confidence)`."""
        if self.labels:
            return f"{self.question}: {len(self.values)} cells ({self._behind()})"
        error = "" if self.typical[0] is None else f" ± {self.typical[0]:.2g}"
        return f"{self.value:.4f}{error} ({self._behind()})"

    def _behind(self) -> str:
        if self.bound is None:
            return self.badge.value
        return f"{self.badge.value}; off by at most {self.bound:.2g} with {self.confidence:.0%} confidence"

    def to_json(self) -> dict[str, Json]:
        return {
            "question": self.question,
            "badge": self.badge.value,
            "values": list(self.values),
            "typical": list(self.typical),
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

    def to_json(self) -> dict[str, Json]:
        return {
            "question": self.question,
            "least": self.least.to_json(),
            "most": self.most.to_json(),
            "bound": self.bound,
            "words": self.words,
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
    bound: float  # of a verified answer, at the tolerance that is used where none is named
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
