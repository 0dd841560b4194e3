"""A measurement that is paid for before it is known what will be measured."""

from __future__ import annotations

from threading import Lock

from dualquery.errors import BudgetError
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement


class Allowance:
    """Noise of one law on any numbers of at most one sensitivity: once, by whoever paid.

    *Why the sizes are fixed and the content is free.* The theorem on Gaussian releases (docs/privacy.md) adds up
    pairs (Δ², σ²) that are known before anything is drawn. What is measured within them may depend on everything that
    was said before. A smaller sensitivity at the same variance is no more than was paid for; another variance is
    something else, even where the ratio Δ²/σ² is the same: discrete noise of variance 1 tells more than discrete
    noise of variance 10⁴ on numbers that move 100 times as far.
    """

    def __init__(self, event: GaussianMeasurement | LaplaceMeasurement, owner: object) -> None:
        self._event = event
        self._owner = owner
        self._used = Lock()  # held from the use on: of two threads one uses it

    @property
    def event(self) -> GaussianMeasurement | LaplaceMeasurement:
        """What was paid for."""
        return self._event

    def use(self, event: GaussianMeasurement | LaplaceMeasurement, user: object) -> None:
        """Use it up for a measurement that costs no more; raise BudgetError, and change nothing, for any other."""
        paid = self._event.words()
        _require(user is self._owner, "An allowance serves the curator who paid for it, and no other.")
        _require(
            event.same_noise(self._event),
            f"This allowance paid for {paid}; a measurement within it adds noise of that law.",
        )
        _require(
            event.moved <= self._event.moved,
            f"This allowance paid for {paid}; measure less within it than that.",
        )
        _require(
            self._used.acquire(blocking=False), "This allowance has been used; one pays for one measurement."
        )


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
