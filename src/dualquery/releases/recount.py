"""What a certificate claims to have spent, added up again from the events that it lists.

Anybody can do this: the events stand there in exact rationals, and the theorem by its name. A seal says that nothing
was changed since; this says that the claim followed in the first place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dualquery.errors import BudgetError, ReleaseError
from dualquery.privacy.budget import Accounting, Budget, Spent
from dualquery.privacy.events import (
    Epoch,
    Event,
    Fire,
    GaussianMeasurement,
    LaplaceMeasurement,
    Selection,
)
from dualquery.privacy.ledger import Ledger
from dualquery.releases.certificate import Certificate, RowsFrom
from dualquery.releases.sentences import relation

MOST_EVENTS = 1_000_000
LONGEST = 4000  # digits of a rational
ROOM = 1e-9  # for the logarithms of another machine


def recounted(certificate: Certificate) -> Spent:
    """What a fresh ledger says of the listed events; ReleaseError where the certificate claims less."""
    budget = _budget(certificate)
    ledger = Ledger(budget)
    try:
        ledger.charge(*_events(certificate))
    except BudgetError:
        raise ReleaseError(
            "the uses of the table that the certificate lists cost more than its budget: it is not to be believed"
        ) from None
    spent, told = ledger.spent(), certificate["spent"]
    several = {int(k): epsilon for k, epsilon in certificate["several"].items()}
    claims = [
        (told["epsilon"], spent.epsilon),
        (told["delta"], spent.delta),
        *((_finite(several[k]), ledger.epsilon_for(k)) for k in several),
    ]
    if any(claimed < found * (1 - ROOM) for claimed, found in claims):
        raise ReleaseError(
            "the certificate claims to have spent less than the uses of the table that it lists: it is not to be "
            "believed"
        )
    return spent


def _finite(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def _budget(certificate: Certificate) -> Budget:
    told = certificate["budget"]
    try:
        if Accounting(told["accounting"]) is Accounting.TIGHTEST:
            raise ValueError("settled before anything is drawn")
        return Budget(
            epsilon=told["epsilon"],
            delta=told["delta"],
            neighbours=relation(certificate),
            accounting=Accounting(told["accounting"]),
            adaptive=certificate["records"]["from"] == RowsFrom.MEASURED.value,
        )
    except (BudgetError, ValueError):
        raise ReleaseError("the budget on the certificate is none: it was changed by hand") from None


def _events(certificate: Certificate) -> list[Event]:
    listed = certificate["events"]
    if sum(each["times"] for each in listed) > MOST_EVENTS:
        raise ReleaseError("the certificate lists more uses of the table than any release has")
    try:
        return [event for each in listed for event in [_READ[each["event"]](each)] * each["times"]]
    except (KeyError, TypeError, ValueError, ZeroDivisionError, BudgetError):
        raise ReleaseError("the certificate lists a use of the table that there is not") from None


def _exact(text: Any) -> Fraction:
    if not isinstance(text, str) or len(text) > LONGEST or "e" in text.lower():
        raise ValueError("no rational")
    return Fraction(text)


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError("no whole number")
    return number


_READ: dict[str, Callable[[Mapping[str, Any]], Event]] = {
    Selection.kind: lambda each: Selection(_exact(each["range"]), _whole(each["draws"])),
    GaussianMeasurement.kind: lambda each: GaussianMeasurement(
        _exact(each["sensitivity_squared"]), _exact(each["variance"])
    ),
    LaplaceMeasurement.kind: lambda each: LaplaceMeasurement(
        _exact(each["sensitivity"]), _exact(each["scale"])
    ),
    Epoch.kind: lambda each: Epoch(_exact(each["epsilon"])),
    Fire.kind: lambda each: Fire(_exact(each["epsilon"]), _whole(each["sensitivity"]), _whole(each["order"])),
}
