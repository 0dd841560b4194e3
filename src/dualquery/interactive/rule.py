"""The public rule: how a budget becomes a release, fires and thresholds, before the table is looked at.

    release     90% of the cap, or what an earlier release has cost
    a fire      at most 1% of the cap for the test and 1% for the measurement after it, σ² = Δ²/(2 · 1% of ρ)
    bound τ     the larger of the owner's tolerance and what such a test can guarantee
    test        θ = ln(2k)/ε and ε = (ln 2k + ln ln 20)/(τ − ½): one false fire in k questions, and a
                hypothesis that is off by more than τ stays unnoticed with probability 5% at the most
    table       of c cells: θ + ln(c)/ε, so that all of its cells together fire falsely as often as one question

With a tolerance of the owner above what 1% buys, tests are cheaper and fires are more. Who asks may name a tolerance:
θ is then one of a few multiples, at the same ε and so at the same price.

*Online private multiplicative weights* is the other rule (`promised`): no release, a hypothesis over all records that
the schema allows, the textbook's sparse vector as the test, and all of the budget for B updates. It keeps a promise.

What follows from the journal by that rule is the `State`; what a question would cost follows from the state, and
nobody looks at data for it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist

from dualquery.beliefs.weighted_rows import MeasuredQuestion, WeightedRows
from dualquery.errors import BudgetError, LedgerError, QueryError
from dualquery.interactive import (
    Account,
    Answered,
    Bought,
    Burned,
    Charged,
    Fired,
    JournalEntry,
    Opened,
    Planned,
    Prepaid,
)
from dualquery.interactive.answers import CONFIDENCE, FREE, Badge, Cost, Left, Quote, percent
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import (
    UNITS,
    best_order,
    epsilon_of,
    exp_minus,
    renyi_cap,
    rho_units_of,
    units,
)
from dualquery.privacy.events import EarlierRelease, GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.thresholds import HazardTest, Slot, SparseVector, Test
from dualquery.queries.question import Question, QuestionReader
from dualquery.queries.statistics import ONE_CELL
from dualquery.table.domain import Domain
from dualquery.types import first_whole

TESTS: dict[str, type[Test]] = {"hazard": HazardTest, "sparse-vector": SparseVector}
PROMISED = "sparse-vector"  # the test of online private multiplicative weights
SHARE = Fraction(9, 10)  # of the cap, for the release
EACH = Fraction(1, 100)  # of the cap, for a test that fires, and for what is measured then
QUESTIONS = 2000
BETA = 1 - CONFIDENCE
MENU = (Fraction(1, 2), Fraction(3, 4), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(5))
LEAST_ERROR, MOST_ERROR = 1e-12, 0.5  # of a purchase: a smaller one costs more than any budget has
MOST_UNIVERSE = 1 << 22  # records that a promised hypothesis weighs
WHOLE_WEIGHTS = 0.001  # what rounding to whole weights may add to a relative entropy, by far
ROUNDED = 2  # records: hypothesis, count and threshold are whole numbers
LEAST_BOUND, MOST_BOUND = 3, 20_000  # records; a larger one would need a table that takes minutes to make


def of_questions(budget: Budget) -> Budget:
    """A budget that names no accounting is added up by the one that can pay for questions."""
    if budget.accounting is Accounting.TIGHTEST:
        return replace(budget, accounting=Accounting.RENYI)
    return budget


@dataclass(frozen=True)
class Accuracy:
    """Of online private multiplicative weights: but for a chance of β each of k questions is answered within α."""

    error: float  # α, a fraction of the table
    failure: float  # β
    updates: int  # B: the hypothesis is never wrong by more than α/2 more often
    questions: int  # k; each cell of a table counts
    universe: int  # |X|: the records that the schema allows

    @property
    def factor(self) -> float:
        """e^−η, η = 2α, the same on any machine."""
        return exp_minus(2 * Fraction(self.error), 64)[0] / 2.0**64

    @staticmethod
    def said(rule: str) -> str | None:
        """In words, of a rule as the journal has it (`OnlineRule.to_json`)."""
        found = json.loads(rule).get("accuracy")
        return None if found is None else Accuracy(**found).words()

    def words(self) -> str:
        return (
            f"each of {self.questions:,} answers is within {rounded_up(self.error)} of the truth, all of them "
            f"together with probability {1 - self.failure:.0%}, after at most {self.updates:,} updates"
        )


@dataclass(frozen=True)
class OnlineRule:
    """Everything that a question goes by. Public, and fixed when the table is opened."""

    budget: Budget
    rows: int
    questions: int
    test: Test  # of a single question, where no tolerance is named
    measurement: Fraction  # ρ of what follows a fire
    accuracy: Accuracy | None = None

    @staticmethod
    def of(
        budget: Budget,
        *,
        rows: int,
        questions: int = QUESTIONS,
        tolerance: float | None = None,
        test: str = "hazard",
        domain: Domain | None = None,
    ) -> OnlineRule:
        """The rule of a test; of a `PROMISED` one for a domain, over which its hypothesis is held."""
        check_wishes(budget, share=None, questions=questions, tolerance=tolerance, test=test)
        if test == PROMISED:
            assert domain is not None, "a promise is about a universe"
            return promised(budget, rows=rows, questions=questions, tolerance=tolerance, domain=domain)
        order, moved = order_of(budget), budget.neighbours.largest(alone=1, apart=1)
        share = Fraction(cap_of(budget)) * EACH

        def of_bound(bound: int) -> HazardTest:
            return HazardTest.for_bound(bound, beta=BETA, questions=questions, order=order, sensitivity=moved)

        wanted = 0 if tolerance is None else math.floor(tolerance * rows)
        bound = min(max(_least(of_bound, share, order), wanted), MOST_BOUND)
        return OnlineRule(
            budget, rows, questions, of_bound(bound), Fraction(math.floor(share / order), UNITS)
        )

    @cached_property
    def cap(self) -> int:
        return cap_of(self.budget)

    @cached_property
    def order(self) -> int:
        return order_of(self.budget)

    @property
    def test_name(self) -> str:
        return next(name for name, kind in TESTS.items() if isinstance(self.test, kind))

    @cached_property
    def measured(self) -> GaussianMeasurement:
        """What follows a fire, as the ledger pays for it; a table is measured with more noise for the same ρ."""
        return GaussianMeasurement(Fraction(1), 1 / (2 * self.measurement))

    @cached_property
    def price(self) -> int:
        return units(self.test.event.renyi(self.order)) + units(self.measured.renyi(self.order))

    def noise(self, question: Question) -> Gaussian:
        """Of the measurement after a fire: Δ²/(2ρ)."""
        moved = self.budget.neighbours.sensitivity(question.counted.bound())
        return Gaussian(moved.l2_squared / (2 * self.measurement))

    def test_of(self, question: Question, tolerance: float | None) -> Test:
        """The test of a question: of all on the menu the one of the largest threshold within the tolerance."""
        if tolerance is None:
            return self.usual(question.cells)
        within = [test for test in self.menu(question.cells) if self.bound(test, question.off) <= tolerance]
        if not (within and 0 < tolerance <= 1):
            least = self.bound(self.menu(question.cells)[0], question.off)
            raise QueryError(
                f"a tolerance of this question lies between {rounded_up(least)} and 1; buy the answer at a precision "
                "instead, or leave the tolerance out"
            )
        return within[-1]

    def menus(self, cells: Iterable[int]) -> Iterator[Test]:
        """Tests to be asked for: all of single questions, and the usual one of tables of so many cells."""
        single = [test for test in self.menu(1) if self.bound(test) <= 1]
        yield from sorted(single, key=lambda test: test != self.test)  # the usual one first
        yield from map(self.usual, cells)

    def menu(self, cells: int) -> tuple[Test, ...]:
        """What may be asked for of a question of so many cells, by the price of one test: rising thresholds.

        A promise holds at one threshold, and its cells are questions.
        """
        return (self.test,) if self.accuracy else _menu(self.test, cells)

    def usual(self, cells: int) -> Test:
        """Of the menu: where nobody names a tolerance."""
        return self.test if self.accuracy else _menu(self.test, cells)[MENU.index(Fraction(1))]

    def bound(self, test: Test, off: float = 0.0) -> float:
        """What a silent test guarantees, as a fraction of the table; counts may be `off` by rounding, in records."""
        return (test.bound(BETA) + off) / self.rows

    def within(self, variance: Fraction, cells: int = 1, off: float = 0.0) -> float:
        """With 95% confidence no one of so many counts is off by more, as a fraction of the table.

        A discrete Gaussian exceeds m with a smaller probability than a continuous one exceeds m − 1 (Canonne, Kamath,
        Steinke 2020, Proposition 25); z is the quantile of BETA/(2 cells).
        """
        records = NormalDist().inv_cdf(1 - BETA / (2 * cells)) * float(variance) ** 0.5 + 1 + off
        return min(1.0, records / self.rows)

    def tolerances(self, cells: int = 1, off: float = 0.0) -> tuple[float, ...]:
        return tuple(self.bound(test, off) for test in self.menu(cells))

    def to_json(self) -> str:
        """The rule as the journal writes it. The hazard test has no name there: once it was the only one."""
        named: dict[str, object] = {} if self.test_name == "hazard" else {"test": self.test_name}
        if self.accuracy is not None:
            named["accuracy"] = vars(self.accuracy)
        return json.dumps(
            {
                **named,
                "questions": self.questions,
                "epsilon": str(self.test.epsilon),
                "threshold": self.test.threshold,
                "sensitivity": self.test.sensitivity,
                "measurement": str(self.measurement),
                "price": self.price,
                "menu": [str(multiple) for multiple in MENU],
            },
            sort_keys=True,
            separators=(",", ":"),
        )


@lru_cache(maxsize=1024)
def _menu(test: Test, cells: int) -> tuple[Test, ...]:
    more = math.ceil(math.log(cells) / test.sharpness)
    return tuple(replace(test, threshold=math.ceil(test.threshold * each) + more) for each in MENU)


def order_of(budget: Budget) -> int:
    return best_order(epsilon=budget.epsilon, delta=budget.delta)


def cap_of(budget: Budget) -> int:
    return renyi_cap(epsilon=budget.epsilon, delta=budget.delta, order=order_of(budget))


def budget_of_release(budget: Budget, share: Fraction) -> Budget:
    """The zCDP budget of the first release: the largest ε at the same δ whose ρ is within a share of the cap."""
    if not 0 < share < 1:
        raise BudgetError(f"the share of the release lies between 0 and 1, and {float(share):g} does not")
    most = math.floor(cap_of(budget) * share / order_of(budget))
    if most < 1:
        raise BudgetError("the budget is too small for a release; use a larger epsilon")
    epsilon = epsilon_of(Fraction(most, UNITS), delta=budget.delta)
    while rho_units_of(epsilon=epsilon, delta=budget.delta) > most:
        epsilon *= 1 - 1e-9
    return replace(budget, epsilon=epsilon, accounting=Accounting.ZCDP)


def check_wishes(
    budget: Budget, *, share: float | None, questions: int, tolerance: float | None, test: str
) -> None:
    """Refuse what no rule can be made of, before a release is paid for. Without a share, none is made."""
    if test not in TESTS:
        raise BudgetError(f"the test of questions must be {' or '.join(TESTS)}, got '{test}'")
    if budget.accounting is not Accounting.RENYI:
        raise BudgetError(
            f"questions one at a time are paid for by renyi accounting, not by {budget.accounting.value}; "
            "make the budget with Accounting.RENYI"
        )
    if tolerance is not None and not 0 < tolerance <= 1:
        raise BudgetError(f"a tolerance is a fraction between 0 and 1, got {tolerance:g}")
    if questions < 1:
        raise BudgetError("the expected number of questions is at least 1")
    if share is not None:
        budget_of_release(budget, decimal(share))


def promised(
    budget: Budget, *, rows: int, questions: int, tolerance: float | None, domain: Domain
) -> OnlineRule:
    """The rule of online private multiplicative weights, at the smallest α that it can promise.

        D₁ uniform.  FOR each question q:   IF |q(D_t) − q(D)| ≤ α  THEN answer q(D_t)
                                            ELSE answer q(D) with noise,  D_{t+1} ∝ D_t exp(∓η q)

    (Hardt and Rothblum 2010; Ullman's tutorial.) Let both noises of every test stay below αn/4, and that of every
    measurement below αn/2, but for a chance of β.

        a test      fires at ¾αn: silent means a gap of at most αn, a fire means a gap of at least αn/2
        its side    the measurement has the sign of the gap, and is itself within αn
        a step      with η = 2α lowers KL(D, D_t) by at least η·α/2 − η²/8 = α²/2 (Hoeffding's lemma)
        so          KL(D, uniform) ≤ ln|X| allows for B = 2 ln|X|/α² fires, and every answer is within α
        budget      each epoch with its measurement costs a B-th of the cap, nine tenths of it the epoch

    A larger tolerance of the owner is promised instead. The textbook's step 1 − ηq would need 16 ln|X|/α² updates.
    """
    universe = math.prod(domain.sizes.tolist())
    if universe > MOST_UNIVERSE:
        allowed = Decimal(2) ** Decimal(domain.log2_size)
        raise BudgetError(
            f"the sparse vector's hypothesis has a weight for each of the {allowed:,.3g} records that the "
            f"schema allows, and {MOST_UNIVERSE:,} is the most; leave columns out of the schema, or take the hazard "
            "test"
        )
    order, cap, neighbours = order_of(budget), cap_of(budget), budget.neighbours
    moved, in_table = neighbours.largest(alone=1, apart=1), neighbours.sensitivity(ONE_CELL).l2_squared
    found = None
    for step in range(1, 900):
        alpha = max(0.99**step, tolerance or 0.0)
        updates = math.ceil(2 * (math.log(universe) + WHOLE_WEIGHTS) / alpha**2)
        pays = [math.floor(part * cap / updates) - 1 for part in (Fraction(9, 10), Fraction(1, 10))]
        if min(pays) < 1:
            break
        # The ledger has whole units: an epoch is ε²/2, and floats are rounded down.
        epsilon = Fraction(math.floor(math.sqrt(2 * pays[0] / (order * UNITS)) * 10**9 * (1 - 1e-12)), 10**9)
        measurement = Fraction(pays[1], UNITS * order)
        if not epsilon:
            break
        chances = (2, 4 * min(updates, questions) / BETA), (4, 4 * questions / BETA)
        quiet = sum(math.ceil(scale * moved / float(epsilon) * math.log(odds)) for scale, odds in chances)
        noise = Gaussian(in_table / (2 * measurement)).size_within(1 - BETA / (2 * questions)) + 1
        if quiet + ROUNDED > alpha * rows / 4 or noise + ROUNDED > alpha * rows / 2:
            break
        accuracy = Accuracy(alpha, round(BETA, 9), updates, questions, universe)
        test = SparseVector(epsilon, math.floor(3 / 4 * alpha * rows), moved)
        found = OnlineRule(budget, rows, questions, test, measurement, accuracy)
        if alpha == tolerance:
            break
    if found is None:
        raise BudgetError(
            f"the sparse vector can promise nothing of {rows:,} records, {universe:,} values and this budget: use a "
            "larger epsilon, fewer questions or the hazard test"
        )
    return found


def variance_of(error: float, rows: int) -> Fraction:
    """σ² in records of a standard error that was named as a fraction of the table."""
    if not LEAST_ERROR <= error <= MOST_ERROR:
        raise QueryError(
            f"the error of a purchase is a fraction of the table between {LEAST_ERROR:g} and {MOST_ERROR:g}"
        )
    return (decimal(error) * rows) ** 2


def _least(test_of_bound: Callable[[int], HazardTest], share: Fraction, order: int) -> int:
    """The smallest bound, in records, whose test costs at most a share of the cap."""

    def affordable(bound: int) -> bool:
        try:
            return bool(test_of_bound(bound).event.renyi(order) * UNITS <= share)
        except BudgetError:  # a test so fine has no price at this order
            return False

    low, high = LEAST_BOUND - 1, LEAST_BOUND
    while not affordable(high):
        low, high = high, 2 * high
        if high > MOST_BOUND:
            raise BudgetError("the budget is too small to test a question; use a larger epsilon")
    return first_whole(low, high, affordable)


def rounded_up(error: float) -> str:
    """Three digits, rounded up: what is named must be allowed."""
    step = 10.0 ** (math.floor(math.log10(error)) - 2)
    return f"{math.ceil(error / step) * step:.3g}"


MOST_TESTED = 100_000  # questions that are remembered as tested, some 100 bytes each


@dataclass(frozen=True)
class Known:
    """What was measured of a question: counts with noise of a variance, and by which badge."""

    noisy: tuple[int, ...]
    variance: Fraction
    badge: Badge


class State:
    """What follows from the journal: the ledger, the hypothesis, what was measured, and what is left.

    `replay` makes the state of a journal, entry by entry. While questions are asked the ledger pays first, then the
    journal is written, and then `apply` changes the rest, so that both ways lead to the same state.
    """

    def __init__(self, rule: OnlineRule, hypothesis: WeightedRows, reader: QuestionReader) -> None:
        self.rule = rule
        self.hypothesis = hypothesis
        self.ledger = Ledger(rule.budget)
        self.account = Account(rule.cap)
        self.known: dict[str, Known] = {}
        self.slot: Slot | None = None
        self.updates = 0
        self.reader = reader
        self._charged: dict[int, Charged] = {}
        self._tested: dict[bytes, float] = {}  # by digest of a question: the bound of a test that was silent

    @property
    def open_slot(self) -> Slot | None:
        return self.slot if self.slot is not None and not self.slot.closed else None

    def left(self) -> Left:
        units = self.account.left
        return Left(units, units / self.rule.cap, self.account.fires_left)

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
        for each in self._charged.values():
            if (each.question, each.variance, each.buyer) == (question.text, str(variance), buyer):
                return each
        return None

    def tested_within(self, question: Question) -> float | None:
        """The bound within which a test did not contradict the hypothesis as it stands; None where none was made.

        It follows from what was told. To test again would tell more, for the chance of another fire.
        """
        return self._tested.get(_digest(question.text))

    def purchase(self, question: Question, variance: Fraction) -> GaussianMeasurement:
        moved = self.rule.budget.neighbours.sensitivity(question.counted.bound())
        return GaussianMeasurement(Fraction(moved.l2_squared), variance)

    def replay(self, entry: JournalEntry) -> None:
        """What an entry of an earlier life did, the ledger's part included."""
        if isinstance(entry, Planned | Opened):
            self.pay_release(entry)
        elif isinstance(entry, Prepaid):
            if entry.units != self.rule.price or self.open_slot is not None:
                raise _inconsistent("a slot")
            self.slot = self.new_slot()
        elif isinstance(entry, Fired | Burned):
            if self.slot is None or entry.slot != self.account.slot:
                raise _inconsistent("a fire")
            self.slot.close()
        elif isinstance(entry, Charged):
            event = self.purchase(self.reader.read(entry.question), Fraction(entry.variance))
            self.ledger.charge(event)
        self.apply(entry)

    def pay_release(self, entry: Planned | Opened) -> None:
        """The ledger pays for the release; the units of the entry are those of its order."""
        if entry.units:
            self.ledger.charge(EarlierRelease(Fraction(entry.units, UNITS * self.rule.order)))

    def apply(self, entry: JournalEntry) -> None:
        """Everything but the ledger."""
        self.account.hear(entry)
        if isinstance(entry, Answered):
            if entry.badge == Badge.NOT_CONTRADICTED.value and entry.bound is not None:
                self._keep_tested(_digest(entry.question), entry.bound)
        elif isinstance(entry, Fired):
            question = self.reader.read(entry.question)
            known = Known(entry.noisy, self.rule.noise(question).variance, Badge.MEASURED)
            self._hear(question, known, entry.cell)
        elif isinstance(entry, Charged):
            self._charged[entry.purchase] = entry
        elif isinstance(entry, Bought):
            variance = Fraction(self._charged.pop(entry.purchase).variance)
            self._hear(self.reader.read(entry.question), Known(entry.noisy, variance, Badge.BOUGHT), 0)

    def _hear(self, question: Question, known: Known, cell: int) -> None:
        """The hypothesis moves, and the more precise answer to the question is kept."""
        before = self.known.get(question.text)
        if before is None or known.variance <= before.variance:
            self.known[question.text] = known
        self.hypothesis.hear(
            MeasuredQuestion(
                question, known.noisy, self.rule.rows, known.variance, self.rule.test.threshold, cell
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


def _inconsistent(what: str) -> LedgerError:
    return LedgerError(f"the journal does not follow from itself: {what} was not paid for as it says")


def quote_of(state: State, question: Question, test: Test) -> Quote:
    """Of a question that is tested, known already, or beyond what is left."""
    rule, known = state.rule, state.known.get(question.text)
    if known is not None:
        return _measured(state, question, known)
    tested, bound = state.tested_within(question), rule.bound(test, question.off)
    if tested is not None and (state.open_slot is None or tested <= bound):
        return Quote.free(question, tested, "free: it has been checked")
    if state.open_slot is None:
        words = "free, and not checked: nothing is left to check it with"
        return Quote.free(question, None, words)
    most = Cost.of(rule.price, rule.cap)
    words = f"usually free, at most {percent(most.share)} of the budget"
    return Quote(question.text, FREE, most, bound, words, rule.tolerances(question.cells, question.off))


def purchase_quote(state: State, question: Question, error: float, buyer: str) -> Quote:
    rule = state.rule
    variance = variance_of(error, rule.rows)
    if (known := state.known_within(question, variance)) is not None:
        return _measured(state, question, known)
    bound = rule.within(variance, question.cells, question.off)
    if state.credit(question, variance, buyer) is not None:
        return Quote.free(question, bound, "free: it was paid for, and not delivered")
    cost = Cost.of(units(state.purchase(question, variance).renyi(rule.order)), rule.cap)
    return Quote(question.text, cost, cost, bound, f"{percent(cost.share)} of the budget")


def _measured(state: State, question: Question, known: Known) -> Quote:
    return Quote.free(
        question,
        state.rule.within(known.variance, question.cells, question.off),
        "free: it has been measured",
    )


def too_dear(state: State, question: Question, price: int) -> str:
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
