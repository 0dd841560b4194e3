"""Slots and sparse vectors with one fault each: an audit of questions one at a time must find every one of them.

Six faults of the hazard test as slots pay for it, and two of the sparse vector; its other two, no cutoff and no query
noise, are in twins.py.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from dualquery import audits as auditing
from dualquery.audits import audit, slot_session
from dualquery.audits.case import ALONE, REPLACED, Case, Verdict
from dualquery.audits.curator import exact_hazard
from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator, Surprise
from dualquery.privacy.noise import Laplace
from dualquery.privacy.thresholds import (
    FarSide,
    Found,
    HazardTest,
    Slot,
    Table,
    tabulate,
)
from tests.audits.twins import Patch, Twin, no_cap_on_fires, nothing, sampled

SEED = 2013


def serves_after_the_fire(patch: Patch) -> None:
    """The slot goes on serving after its first fire."""
    patch.setattr(Slot, "close", lambda self: None)


def ten_in_flight(patch: Patch) -> None:
    """A slot notices a fire only when ten tests have been drawn: as if they had been under way together."""
    honest = Slot.begin

    def begin(self: Slot, *arguments: Any) -> Any:
        test = honest(self, *arguments)

        def drawn(x: Any, entropy: Any) -> Any:
            self._drawn = getattr(self, "_drawn", 0) + 1
            found = test(x, entropy)
            self._fired = getattr(self, "_fired", False) or found is not None
            self._closed = self._fired and self._drawn % 10 == 0
            return found

        return drawn

    def close(self: Slot) -> None:
        pass

    patch.setattr(Slot, "begin", begin)
    patch.setattr(Slot, "close", close)


def the_tested_value_is_the_answer(patch: Patch) -> None:
    honest = Curator.exceeds

    def exceeds(self: Curator, questions: Any, hypotheses: Any, **asked: Any) -> Any:
        surprise = honest(self, questions, hypotheses, **asked)
        return surprise and Surprise(surprise.found, self._counter.true_counts(questions))

    patch.setattr(Curator, "exceeds", exceeds)


@cache
def _table(epsilon: Fraction, threshold: int, fastest: int) -> Table:
    return tabulate(epsilon, threshold, fastest=fastest)


class _Drawn(HazardTest):
    """Draws by a table of its own."""

    def table(self) -> Table:
        raise NotImplementedError

    def draw(self, x: Any, entropy: Any) -> Found | None:
        sides = [self.side(each, entropy) for each in np.asarray(x).tolist()]
        return next((Found(cell, side) for cell, side in enumerate(sides) if side is not None), None)

    def side(self, x: int, entropy: Any) -> FarSide | None:
        table = self.table()
        row = min(abs(x), table.last)
        chance = entropy.below(1 << 128, 1)[0]
        if chance >= table.fires[row]:
            return None
        return FarSide.TOO_LOW if (chance < table.nearer[row]) == (x >= 0) else FarSide.TOO_HIGH


class Unclipped(_Drawn):
    """Rates up to 256: silence becomes impossible at some counts and stays possible at their neighbours."""

    def table(self) -> Table:
        return _table(self.epsilon, self.threshold, 8)


class Doubled(_Drawn):
    """Twice the ε that it is charged for."""

    def table(self) -> Table:
        return _table(2 * self.epsilon, self.threshold, 6)


def not_scaled_with_the_cutoff(patch: Patch) -> None:
    """An epoch that closes after a hundred "above", with the noise and at the price of one that closes after one."""

    def close(self: Slot) -> None:
        self._above = getattr(self, "_above", 0) + 1
        self._closed = self._above == 100

    patch.setattr(Slot, "close", close)


def kept_threshold(patch: Patch) -> None:
    """The next epoch goes on with the last one's noisy threshold and pays for its measurement only.

    (Paying for every epoch as well it would be private: the noise of the threshold hides all tests "below", and what
    each "above" costs is half of an epoch.)
    """

    def close(self: Slot) -> None:
        try:
            self._ledger.charge(self._follow_up)
        except BudgetError:
            self._closed = True

    patch.setattr(Slot, "close", close)


SLOTTED = sampled(slot_session(ALONE).sampler)
FLIGHT = HazardTest(Fraction(3, 10), threshold=20, order=2)  # cheap enough for eight slots
# Answers so rough that a session could have two hundred of them, if only one epoch were paid for.
MANY_ANSWERS = auditing.Session(
    REPLACED,
    Budget(epsilon=1.2, delta=0.0, neighbours=REPLACED.neighbours, accounting=Accounting.PURE),
    auditing.VECTOR,
    Laplace(Fraction(1000)),
    auditing.queries(*((0, 0),) * 80 + ((1, 0),) * 80),
)
OPPOSED = ((0, 0),) * 80 + ((1, 0),) * 80
UNENDING = sampled(auditing.epoch_session(REPLACED, OPPOSED, 1).sampler)
TWINS = [
    Twin("no cap on fires", no_cap_on_fires, SLOTTED, 200),
    Twin("tests after the fire", serves_after_the_fire, SLOTTED, 200),
    Twin("ten tests in flight", ten_in_flight, sampled(slot_session(ALONE, 20, 100, FLIGHT).sampler), 700),
    Twin(
        "the tested value is the answer",
        the_tested_value_is_the_answer,
        sampled(slot_session(REPLACED).sampler),
        200,
    ),
    Twin(
        "rates that are not clipped",
        nothing,
        lambda: Case("a twin", "its pair", exact=exact_hazard(Unclipped(Fraction(1, 2), 4, 2))),
        0,
    ),
    Twin(
        "epsilon of the test doubled",
        nothing,
        lambda: Case("a twin", "its pair", exact=exact_hazard(Doubled(Fraction(1, 5), 4, 2))),
        0,
    ),
    Twin("noise not scaled with the cutoff", not_scaled_with_the_cutoff, UNENDING, 500),
    Twin("threshold noise kept across epochs", kept_threshold, sampled(MANY_ANSWERS.sampler), 400),
]


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_broken_twin_is_caught(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    twin.breaks(monkeypatch)
    (finding,) = audit([twin.case()], runs=twin.runs or None, seed=SEED).findings
    print(f"{twin}: claimed {finding.claim.epsilon:.3g}, proven {finding.found:.3g}, by {finding.event}")
    assert finding.verdict is Verdict.BROKEN, finding


@pytest.mark.parametrize("twin", [each for each in TWINS if each.runs], ids=str)
def test_without_the_fault_nothing_is_found(twin: Twin) -> None:
    (finding,) = audit([twin.case()], runs=twin.runs, seed=SEED).findings
    assert finding.verdict is not Verdict.BROKEN, finding
