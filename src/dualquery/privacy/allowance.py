"""A measurement that is paid for before it is known what will be measured."""

from __future__ import annotations

from threading import Lock

from dualquery.errors import BudgetError
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement


class Allowance:
    """Gaussian noise of one variance on any numbers of at most one squared sensitivity: once, by whoever paid.

    *Why the sizes are fixed and the content is free.* The theorem on Gaussian releases (docs/privacy.md) adds up
    pairs (Δ², σ²) that are known before anything is drawn. What is measured within them may depend on everything that
    was said before. A smaller sensitivity at the same variance is no more than was paid for; another variance is
    something else, even where the ratio Δ²/σ² is the same: discrete noise of variance 1 tells more than discrete
    noise of variance 10⁴ on numbers that move 100 times as far.
    """

    def __init__(self, event: GaussianMeasurement, owner: object) -> None:
        self._event = event
        self._owner = owner
        self._used = Lock()  # held from the use on: of two threads one uses it

    @property
    def event(self) -> GaussianMeasurement:
        """What was paid for."""
        return self._event

    def use(self, event: GaussianMeasurement | LaplaceMeasurement, user: object) -> None:
        """Use it up for a measurement that costs no more; raise BudgetError, and change nothing, for any other."""
        _require(user is self._owner, "An allowance serves the curator who paid for it, and no other.")
        _require(
            isinstance(event, GaussianMeasurement) and event.variance == self._event.variance,
            f"This allowance paid for {self._event.words()}; a measurement within it adds noise of that variance.",
        )
        assert isinstance(event, GaussianMeasurement)
        _require(
            event.sensitivity_squared <= self._event.sensitivity_squared,
            f"This allowance paid for {self._event.words()}, and a squared sensitivity of "
            f"{float(event.sensitivity_squared):.6g} is more; measure less within it.",
        )
        _require(
            self._used.acquire(blocking=False), "This allowance has been used; one pays for one measurement."
        )


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
