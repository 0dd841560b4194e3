"""What follows from the journal: the ledger, the hypothesis, what was measured, and how much was spent.

`replay` makes the state of a journal, entry by entry. While questions are asked the ledger pays first, then the
journal is written, and then `apply` changes the rest, so that both ways lead to the same state.

What a question would cost, in numbers and in words. Nothing here looks at data.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from dualquery.beliefs.weighted_rows import MeasuredQuestion, WeightedRows
from dualquery.errors import LedgerError
from dualquery.interactive.answers import FREE, Badge, Cost, Left, Quote, percent
from dualquery.interactive.journal import (
    Answered,
    Bought,
    Burned,
    Charged,
    Entry,
    Fired,
    Opened,
    Planned,
    Prepaid,
    Serving,
)
from dualquery.interactive.rule import MOST_ERROR, OnlineRule, gaussian_bound, rounded_up, variance_of
from dualquery.privacy.conversion import UNITS, units
from dualquery.privacy.events import EarlierRelease, GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.thresholds import HazardTest, Slot
from dualquery.queries.question import Question, QuestionReader

MOST_TESTED = 100_000  # questions that are remembered as tested, some 100 bytes each


@dataclass(frozen=True)
class Known:
    """What was measured of a question: counts with noise of a variance, and by which badge."""

    noisy: tuple[int, ...]
    variance: Fraction
    badge: Badge


class State:
    """Changes by entries only."""

    def __init__(self, rule: OnlineRule, hypothesis: WeightedRows, reader: QuestionReader) -> None:
        self.rule = rule
        self.hypothesis = hypothesis
        self.ledger = Ledger(rule.budget)
        self.known: dict[str, Known] = {}
        self.answers: Counter[str] = Counter()
        self.slot: Slot | None = None
        self.spent = 0
        self.updates = 0
        self.slots = 0
        self.purchases = 0
        self.serving = False  # whether a test may be under way, by what is on disk or about to be
        self._reader = reader
        self._charged: dict[int, Charged] = {}
        self._tested: dict[bytes, float] = {}  # by digest of a question: the bound of a test that was silent

    @property
    def open_slot(self) -> Slot | None:
        """The slot that a test may use."""
        return self.slot if self.slot is not None and not self.slot.closed else None

    def left(self) -> Left:
        units = self.rule.cap - self.spent
        fires = units // self.rule.price + (self.open_slot is not None)
        return Left(units, units / self.rule.cap, fires)

    def new_slot(self) -> Slot:
        """A slot, paid by the ledger; BudgetError where there is too little left."""
        return Slot(self.ledger, self.rule.test.event, self.rule.measured)

    def known_within(self, question: Question, variance: Fraction) -> Known | None:
        """What was measured of a question, at least as precisely as this."""
        known = self.known.get(question.text)
        return known if known is not None and known.variance <= variance else None

    def credit(self, question: Question, variance: Fraction, buyer: str) -> Charged | None:
        """A purchase of this very kind that was paid for and not delivered, because something stopped in between.

        It may be measured again: one of two draws is told, and how long a count and its noise take does not depend on
        the truth, so that the stop says nothing about the other.
        """
        wanted = (question.text, str(variance), buyer)
        open_ones = self._charged.values()
        return next(
            (each for each in open_ones if (each.question, each.variance, each.buyer) == wanted), None
        )

    def tested_within(self, question: Question) -> float | None:
        """The bound within which a test did not contradict the hypothesis as it stands; None where none was made.

        It follows from what was told. To test again would tell more, for the chance of another fire.
        """
        return self._tested.get(_digest(question.text))

    def purchase(self, question: Question, variance: Fraction) -> GaussianMeasurement:
        moved = self.rule.budget.neighbours.sensitivity(question.group.bound())
        return GaussianMeasurement(Fraction(moved.l2_squared), variance)

    def replay(self, entry: Entry) -> None:
        """What an entry of an earlier life did, the ledger's part included."""
        if isinstance(entry, Planned | Opened):
            self.pay_release(entry)
        elif isinstance(entry, Prepaid):
            _require(entry.units == self.rule.price and self.open_slot is None, "a slot")
            self.slot = self.new_slot()
        elif isinstance(entry, Fired | Burned):
            _require(self.slot is not None and entry.slot == self.slots, "a fire")
            assert self.slot is not None
            self.slot.close()
        elif isinstance(entry, Charged):
            event = self.purchase(self._reader.read(entry.question), Fraction(entry.variance))
            self.ledger.charge(event)
        self.apply(entry)

    def pay_release(self, entry: Planned | Opened) -> None:
        """The ledger pays for the release; the units of the entry are those of its order."""
        if entry.units:
            self.ledger.charge(EarlierRelease(Fraction(entry.units, UNITS * self.rule.order)))

    def apply(self, entry: Entry) -> None:
        """Everything but the ledger."""
        if not isinstance(entry, Answered | Fired | Prepaid | Charged | Bought):
            self.serving = isinstance(entry, Serving)
        if isinstance(entry, Planned | Opened):
            self.spent += entry.units
        elif isinstance(entry, Prepaid):
            self.spent += entry.units
            self.slots = entry.slot
        elif isinstance(entry, Answered):
            self.answers[entry.badge] += 1
            if entry.badge == Badge.NOT_CONTRADICTED.value and entry.bound is not None:
                self._keep_tested(_digest(entry.question), entry.bound)
        elif isinstance(entry, Fired):
            self.answers[Badge.MEASURED.value] += 1
            question = self._reader.read(entry.question)
            self._hear(question, Known(entry.noisy, self.rule.noise(question).variance, Badge.MEASURED))
        elif isinstance(entry, Charged):
            self.spent += entry.units
            self.purchases = entry.purchase
            self._charged[entry.purchase] = entry
        elif isinstance(entry, Bought):
            self.answers[Badge.BOUGHT.value] += 1
            variance = Fraction(self._charged.pop(entry.purchase).variance)
            self._hear(self._reader.read(entry.question), Known(entry.noisy, variance, Badge.BOUGHT))

    def _hear(self, question: Question, known: Known) -> None:
        """The hypothesis moves, and the more precise answer to the question is kept."""
        before = self.known.get(question.text)
        if before is None or known.variance <= before.variance:
            self.known[question.text] = known
        self.hypothesis.hear(
            MeasuredQuestion(
                question, known.noisy, self.rule.rows, known.variance, threshold=self.rule.test.threshold
            )
        )
        self.updates += 1
        self._tested.clear()

    def _keep_tested(self, digest: bytes, bound: float) -> None:
        """The strictest test counts; of very many questions the latest are kept."""
        self._tested[digest] = min(bound, self._tested.pop(digest, bound))
        if len(self._tested) > MOST_TESTED:
            del self._tested[next(iter(self._tested))]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise LedgerError(f"the journal does not follow from itself: {what} was not paid for as it says")


def quote_of(state: State, question: Question, test: HazardTest) -> Quote:
    """Of a question that is tested, known already, or beyond what is left."""
    rule, known = state.rule, state.known.get(question.text)
    if known is not None:
        return _measured(state, question, known)
    tested, bound = state.tested_within(question), rule.bound(test)
    if tested is not None and (state.open_slot is None or tested <= bound):
        return Quote(question.text, FREE, FREE, tested, "free: it has been checked")
    if state.open_slot is None:
        words = "free, and not checked: nothing is left to check it with"
        return Quote(question.text, FREE, FREE, None, words)
    most = Cost.of(rule.price, rule.cap)
    words = f"usually free, at most {percent(most.share)} of the budget"
    return Quote(question.text, FREE, most, bound, words, rule.tolerances_of(question.cells))


def purchase_quote(state: State, question: Question, error: float, buyer: str) -> Quote:
    """Of a question that is measured with this standard error."""
    rule = state.rule
    variance = variance_of(error, rule.rows)
    if (known := state.known_within(question, variance)) is not None:
        return _measured(state, question, known)
    bound = min(1.0, gaussian_bound(float(variance) ** 0.5, question.cells) / rule.rows)
    if state.credit(question, variance, buyer) is not None:
        return Quote(question.text, FREE, FREE, bound, "free: it was paid for, and not delivered")
    cost = Cost.of(units(state.purchase(question, variance).renyi(rule.order)), rule.cap)
    return Quote(question.text, cost, cost, bound, f"{percent(cost.share)} of the budget")


def _measured(state: State, question: Question, known: Known) -> Quote:
    width = gaussian_bound(float(known.variance) ** 0.5, question.cells) / state.rule.rows
    return Quote(question.text, FREE, FREE, min(width, 1.0), "free: it has been measured")


def too_dear(state: State, question: Question, price: int) -> str:
    """What to say of a purchase that is not affordable."""
    rule, left = state.rule, state.left()
    if left.units <= 0:
        return "nothing is left of the budget; ask, which is free while the hypothesis is good"
    dearest = state.purchase(question, variance_of(MOST_ERROR, rule.rows))
    least = MOST_ERROR * (units(dearest.renyi(rule.order)) / left.units) ** 0.5
    within = (
        f"an error of {rounded_up(least)} is within it"
        if least < MOST_ERROR
        else "ask, which is usually free"
    )
    cost, rest = percent(price / rule.cap), percent(left.share)
    return f"this purchase costs {cost} of the budget, and {rest} is left; {within}"
