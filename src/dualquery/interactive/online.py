"""A table that answers one question at a time.

A question is answered by a public hypothesis. A test against the table stays silent, and costs nothing, unless the
hypothesis is far off; then the count is measured with fresh noise, and the hypothesis hears it. One slot holds a
fire and its measurement, paid for before any test (`privacy/thresholds.py`), and what follows is in the journal
before it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from threading import Lock
from typing import Any

import numpy as np

from dualquery.errors import BudgetError, LedgerError, QueryError
from dualquery.interactive import (
    LONGEST_NOTE,
    Bought,
    Charged,
    Closed,
    Fired,
    Journal,
    JournalEntry,
    Prepaid,
    Rested,
    Serving,
)
from dualquery.interactive.answers import (
    FREE,
    AnswerBars,
    Badge,
    Cost,
    Json,
    Left,
    OnlineAnswer,
    Published,
    Quote,
    Status,
    in_records,
)
from dualquery.interactive.rule import (
    Known,
    OnlineRule,
    State,
    purchase_quote,
    quote_of,
    too_dear,
    variance_of,
)
from dualquery.privacy.conversion import units
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.thresholds import Slot, Test
from dualquery.queries.question import MOST_CELLS, Question, mean_text, numbers_of
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.types import Reals

PREPARED = 48  # tables of tests that are kept ready
MOST_TABLE_ROWS = 50_000  # of all that are made before anybody asks: about three seconds
MOST_WIDTH = 100  # attributes whose tables are thought of then
STOPPED = "this table has been closed; open it again to ask"
BROKEN = "the journal could not be written, so nothing more is answered; open the table again when it can be"


class Online:
    """Asks, buys and quotes; from many threads, if need be. Made by `dualquery.online`."""

    def __init__(
        self,
        state: State,
        curator: Curator,
        journal: Journal,
        release: Release | None,
        *,
        published: Mapping[str, Release] | None = None,
        certificate: Mapping[str, Json] | None = None,
    ) -> None:
        self._state = state
        self._curator = curator
        self._certificate = certificate or {}
        # Held while counting, drawing and appending; never while waiting for the disk, but to pay.
        self._lock = Lock()
        self._stopped: str | None = None
        # Whether, since a request began, the table was looked at, the ledger charged or a line written.
        self._touched = False
        self._published = Published(published or {})
        self._prepared: tuple[Test, ...] = ()
        self._bars = AnswerBars(release)
        self.journal = journal
        self.release = release
        with self._unbroken():
            if state.open_slot is None:
                self._prepay()

    @property
    def domain(self) -> Domain:
        return self._state.reader.domain

    @property
    def published(self) -> Mapping[str, Release]:
        """The releases that may be asked for by name."""
        return self._published.releases

    @property
    def rule(self) -> OnlineRule:
        return self._state.rule

    @property
    def left(self) -> Left:
        with self._lock:
            return self._state.left()

    @property
    def price(self) -> Cost:
        """Of a fire with its measurement: the most that a question can cost."""
        return Cost.of(self.rule.price, self.rule.cap)

    def ask(
        self,
        text: str,
        *,
        tolerance: float | None = None,
        release: str | None = None,
        test: bool = True,
        note: str = "",
    ) -> OnlineAnswer:
        """The answer to a question, tested as far as there is budget; of a published release where one is named.

        Without a test nothing is looked at and nothing can be charged: what was measured, or the hypothesis, answers.
        A question that a test did not contradict is told again without another test, while the hypothesis stays.
        """
        _check_note(note)
        question = self._read(text, release)
        law = self.rule.test_of(question, tolerance) if release is None else None
        with self._lock, self._unbroken():
            slot = self._state.open_slot if test else None
            if (
                law is None
                or slot is None
                or self._answered_within(question, self.rule.bound(law, question.off))
            ):
                answer = self._untested(question, release)
                position = self._append(answer.entry(self._state.updates, note))
            else:
                answer, position = self._test(question, law, slot, note)
        self._sync(position)
        return answer

    def expect(
        self,
        function: Callable[..., Any],
        columns: Sequence[str] | None = None,
        *,
        tolerance: float | None = None,
        test: bool = True,
        note: str = "",
    ) -> OnlineAnswer:
        """The mean over all records of a function from 0 to 1, a statistical query: a question like any other.

        The function is public. It is called once, with an array for each column that its arguments (or `columns`)
        name: one entry for every combination of their values in the schema, of a number the middle of its bin.
        """
        members, numbers = numbers_of(self.domain, function, columns, most=MOST_CELLS)
        text = mean_text(self.domain, members, numbers)
        return self.ask(text, tolerance=tolerance, test=test, note=note)

    def untested(self, text: str, *, release: str | None = None) -> OnlineAnswer:
        """What `ask` would say without a test; nobody is told yet, and nothing is written."""
        question = self._read(text, release)
        with self._lock:
            return self._untested(question, release)

    def unprepared(self, text: str, *, tolerance: float | None = None) -> Test | None:
        """The test of a question, where its table is still to be made (`prepare`), which may take seconds."""
        test = self.rule.test_of(self._state.reader.read(text), tolerance)
        return None if test in self._prepared or not test.rows else test

    def prepare(self, test: Test) -> None:
        """Make the table of a test. Looks at no data; on any thread, one at a time."""
        test.prepare()
        self._prepared = (*self._prepared[-PREPARED + 1 :], test)

    def prepare_all(self) -> None:
        """The tables that are asked for first, as many as a few seconds allow."""
        sizes = [int(size) for size in self.domain.sizes[:MOST_WIDTH]]
        pairs = {one * other for one, other in combinations(sizes, 2)} | set(sizes)
        left = MOST_TABLE_ROWS
        for test in self.rule.menus(sorted(cells for cells in pairs if cells <= MOST_CELLS)):
            left -= test.rows
            if left < 0 or len(self._prepared) == PREPARED:
                break
            self.prepare(test)

    def buy(self, text: str, *, error: float, note: str = "", buyer: str = "") -> OnlineAnswer:
        """A question measured with a standard error, a fraction of the table, for its price: Δ²/(2σ²) of ρ.

        What has been measured at least as precisely is told again, free. What the same buyer has paid for, and was
        not told because something stopped, is measured without another charge.
        """
        _check_note(note)
        self._refuse_sale()
        question = self._state.reader.read(text)
        variance = variance_of(error, self.rule.rows)
        with self._lock, self._unbroken():
            state = self._state
            if (before := state.known_within(question, variance)) is not None:
                answer = self._of_known(question, before, FREE)
                self._sync(self._append(answer.entry(state.updates, note)))
                return answer
            event = state.purchase(question, variance)
            price = units(event.renyi(self.rule.order))
            charged = state.credit(question, variance, buyer)
            if charged is not None:
                paid = Allowance(event, self._curator)  # by the ledger, when the journal was replayed
            else:
                if not state.ledger.affords(event):
                    raise BudgetError(too_dear(state, question, price))
                charged = Charged(
                    state.account.purchases + 1, question.text, str(variance), price, note, buyer
                )
                self._sync(self._append(charged))
                (paid,) = self._curator.allow(event)
            noisy = self._looking().measure(question.counted, noise=Gaussian(variance), within=paid)
            bought = Bought(charged.purchase, question.text, tuple(noisy.tolist()), note)
            position = self._append(bought)
            known = Known(bought.noisy, variance, Badge.BOUGHT)
            answer = self._of_known(question, known, Cost.of(charged.units, self.rule.cap))
        self._sync(position)
        return answer

    def quote(
        self, text: str, *, tolerance: float | None = None, error: float | None = None, buyer: str = ""
    ) -> Quote:
        """What a question would cost; what it would cost to buy, where an error is named. Looks at no data."""
        question = self._state.reader.read(text)
        if error is None:
            test = self.rule.test_of(question, tolerance)
            with self._lock:
                return quote_of(self._state, question, test)
        if tolerance is not None:
            raise QueryError("a purchase has an error and no tolerance; name one of them")
        self._refuse_sale()
        return purchase_quote(self._state, question, error, buyer)

    def _refuse_sale(self) -> None:
        if self.rule.accuracy is not None:
            raise BudgetError(
                "nothing is for sale here: the whole budget stands behind the promise of this table; ask instead"
            )

    @property
    def stopped(self) -> bool:
        """Whether nothing can be asked any more: closed, or broken half-way."""
        return self._stopped is not None

    def status(self) -> Status:
        """Where the budget stands."""
        rule, state = self.rule, self._state
        with self._lock:
            return Status(
                epsilon=rule.budget.epsilon,
                delta=rule.budget.delta,
                neighbours=str(rule.budget.neighbours),
                order=rule.order,
                rows=rule.rows,
                cap=rule.cap,
                spent=state.account.spent,
                left=state.left(),
                price=self.price,
                bound=rule.bound(rule.test),
                tolerances=rule.tolerances(),
                updates=state.updates,
                answers=dict(state.account.answers),
                accuracy=None if rule.accuracy is None else rule.accuracy.words(),
            )

    def certificate(self) -> dict[str, Json]:
        """The promise, the rule and the release, all public. It states the cap, never what was charged so far."""
        return dict(self._certificate)

    def fingerprint(self) -> str:
        with self._lock:
            return self._state.hypothesis.fingerprint()

    def rest(self) -> None:
        """Nothing waits: until the next test an unclean stop burns nothing. Durable with whatever is synced next."""
        with self._lock:
            if self._state.account.serving and self._stopped is None:
                self._append(Rested())

    def close(self) -> None:
        """A clean stop: the slot that is paid for serves again when the table is opened again."""
        with self._lock, self._unbroken():
            position = self._append(Closed())
            self._stopped = STOPPED
        self.journal.sync(position)

    def _test(self, question: Question, test: Test, slot: Slot, note: str) -> tuple[OnlineAnswer, int]:
        """One test, and where it fires what was measured; the slot behind it is paid for before anybody goes on."""
        state = self._state
        mass, total = state.hypothesis.mass(question), state.hypothesis.total
        hypotheses = in_records(mass, total, self.rule.rows)
        if not state.account.serving:
            self._sync(self._append(Serving()))
        surprise = self._looking().exceeds(
            question.counted, hypotheses, test=test, slot=slot, noise=self.rule.noise(question)
        )
        if surprise is None:
            answer = self._of_values(
                question, Badge.NOT_CONTRADICTED, mass / total, self.rule.bound(test, question.off)
            )
            return answer, self._append(answer.entry(state.updates, note))
        found, noisy = surprise.found, tuple(surprise.noisy.tolist())
        fired = Fired(state.account.slot, question.text, found.cell, found.side.value, noisy, note)
        position = self._append(fired)
        position = self._prepay() or position
        known = Known(fired.noisy, self.rule.noise(question).variance, Badge.MEASURED)
        return self._of_known(question, known, self.price), position

    def _prepay(self) -> int | None:
        """A new slot, on disk before it is used, and where it is written; none where too little is left."""
        self._touched = True
        try:
            slot = self._state.new_slot()
        except BudgetError:
            self._state.slot = None
            return None
        position = self._append(Prepaid(self._state.account.slot + 1, self.rule.price))
        self._sync(position)
        self._state.slot = slot
        return position

    def _append(self, *entries: JournalEntry) -> int:
        self._touched = True
        position = self.journal.append(*entries)
        for entry in entries:
            self._state.apply(entry)
        return position

    def _looking(self) -> Curator:
        """The table. From here on nobody knows what was seen, if something goes wrong."""
        self._touched = True
        return self._curator

    def _sync(self, position: int) -> None:
        try:
            self.journal.sync(position)
        except BaseException:
            self._stopped = BROKEN
            raise

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Whatever goes wrong half-way leaves nobody who goes on from there; what is refused leaves all as it was.

        So does a defect before the table was looked at and anything was paid or written: it is of one question.
        """
        if self._stopped is not None:
            raise LedgerError(self._stopped)
        self._touched = False
        try:
            yield
        except (BudgetError, QueryError):
            raise
        except BaseException:
            if self._touched:
                self._stopped = BROKEN
            raise

    def _read(self, text: str, release: str | None) -> Question:
        return self._state.reader.read(text) if release is None else self._published.read(release, text)

    def _answered_within(self, question: Question, bound: float) -> bool:
        """Whether it was measured, or tested as strictly since the hypothesis moved last."""
        tested = self._state.tested_within(question)
        return question.text in self._state.known or (tested is not None and tested <= bound)

    def _untested(self, question: Question, release: str | None = None) -> OnlineAnswer:
        """What a release says; or what was measured, or the hypothesis, which a test may not have contradicted."""
        if release is not None:
            return self._published.answer(release, question, self._state.left())
        known = self._state.known.get(question.text)
        if known is not None:
            return self._of_known(question, known, FREE)
        tested = self._state.tested_within(question)
        badge = Badge.NOT_CHECKED if tested is None else Badge.NOT_CONTRADICTED
        return self._of_values(question, badge, self._state.hypothesis.fractions(question), tested)

    def _of_values(
        self, question: Question, badge: Badge, values: Reals, bound: float | None
    ) -> OnlineAnswer:
        bars = self._bars.of(question, values)
        return OnlineAnswer.of(question, badge, values, bars, bound, self._state.left())

    def _of_known(self, question: Question, known: Known, cost: Cost) -> OnlineAnswer:
        values = np.clip(np.array(known.noisy) / self.rule.rows, 0.0, 1.0)
        bars = (self.rule.within(known.variance, off=question.off),) * len(values)
        bound = self.rule.within(known.variance, question.cells, question.off)
        return OnlineAnswer.of(question, known.badge, values, bars, bound, self._state.left(), cost)


def _check_note(note: str) -> None:
    if len(note) > LONGEST_NOTE:
        raise QueryError(f"a note has at most {LONGEST_NOTE} characters")
