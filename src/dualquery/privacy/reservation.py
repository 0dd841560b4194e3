"""Paid before the test, returned if it stays silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from dualquery.errors import BudgetError
from dualquery.privacy.events import Concentrated, Event, Fire


class Reservation:
    """A fire and what is measured after it, paid for before the test is drawn; settled once.

    *Why money can come back here and nowhere else.* The inequality (∗) of docs/privacy.md, "Threshold tests",
    says that a hazard test with its price e^−(α−1)D on the fires alone keeps the moment at most 1: silence is
    free. What follows a fire does not happen without one. Every other event costs whatever comes out of it, so
    `Ledger.charge` has no inverse: only a reservation can return units, only `Ledger.reserve` hands out one that
    reaches the ledger, and it begins with a `Fire`. One that is never settled stays paid, as it must after a crash.
    """

    def __init__(
        self, fire: Fire, follow_up: Sequence[Concentrated], settle: Callable[[Sequence[Event], bool], None]
    ) -> None:
        self._fire = fire
        self._follow_up = tuple(follow_up)
        self._settle = settle
        self._settled = Lock()  # held from the settlement on: of two threads one settles

    @property
    def fire(self) -> Fire:
        return self._fire

    @property
    def follow_up(self) -> tuple[Concentrated, ...]:
        """What may be measured after the fire, at no further charge."""
        return self._follow_up

    def settle(self, *, fired: bool) -> None:
        """Say what the test said. Silence returns everything; a fire and its follow-up stay paid, as events."""
        if not self._settled.acquire(blocking=False):
            raise BudgetError("This reservation has been settled; reserve again before the next test.")
        self._settle((self._fire, *self._follow_up), fired)
