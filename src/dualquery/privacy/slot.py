"""A fire and its measurement, paid once, that serve every silent test until one fires.

A test that stays silent returns its reservation (`reservation`), and the next one would reserve the same units again.
A slot leaves them where they are: one reservation, one test in flight, and the first fire settles it. So the ledger
pays for each test before it is drawn, as ever, and writes nothing down for a silent one. What matters is what is
never done: two tests at a time against one slot, and a test after its fire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from dualquery.errors import BudgetError
from dualquery.privacy.events import Concentrated, Fire
from dualquery.privacy.hazard import Found, HazardTest, Integers
from dualquery.privacy.ledger import Ledger
from dualquery.randomness import Entropy


class Slot:
    """Made by `reserve`, which pays; closed by the first fire, or by whoever cannot tell whether one happened."""

    def __init__(self, ledger: Ledger, fire: Fire, follow_up: Concentrated) -> None:
        self._reservation = ledger.reserve(
            fire, follow_up
        )  # BudgetError where it is too much: then there is no slot
        self._ledger = ledger
        self._closed = False
        self._busy = Lock()  # held by the test in flight

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Count the fire as happened. It stays paid."""
        if not self._closed:
            self._closed = True
            self._reservation.settle(fired=True)

    def law(self, test: HazardTest) -> SlotTest:
        """A test that this slot has paid for, for the curator."""
        return SlotTest(self, test)

    def pay(
        self, test: HazardTest, ledger: Ledger, entropy: Entropy, follow_up: Concentrated
    ) -> Callable[[Integers], Found | None]:
        """The one test in flight, or BudgetError where this slot does not pay for it."""
        paid = self._reservation
        _require(ledger is self._ledger, "This slot was paid for by another ledger.")
        _require(test.event == paid.fire, "This slot was paid for another test.")
        dearest = max(event.rho for event in paid.follow_up)
        _require(follow_up.rho <= dearest, "This slot pays for a cheaper measurement only.")
        _require(not self._closed, "The test of this slot has fired; pay for another slot.")
        _require(self._busy.acquire(blocking=False), "A test of this slot is under way; one slot, one test.")

        def drawn(x: Integers) -> Found | None:
            found = test.draw_first(x, entropy)
            if found is not None:
                self.close()
            self._busy.release()
            return found

        return drawn


@dataclass(frozen=True)
class SlotTest:
    """A hazard test that is paid for by a slot: a law for the curator's `exceeds_anywhere`."""

    slot: Slot
    test: HazardTest

    @property
    def sensitivity(self) -> int:
        return self.test.sensitivity

    def pay(
        self, ledger: Ledger, entropy: Entropy, follow_up: Concentrated
    ) -> Callable[[Integers], Found | None]:
        return self.slot.pay(self.test, ledger, entropy, follow_up)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
