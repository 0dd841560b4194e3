"""Audits of questions asked one at a time: the hazard test under its cap, and the textbook's sparse vector.

A run is a session: the analyst asks until the budget ends, or so many times. What the adversary sees is which tests
spoke, and the answers that followed. Numbers are asked one by one, each against a hypothesis; a whole table is asked
over and over, each test paid for by a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualquery.audits.case import ALONE, BITS, REPLACED, Case, Pair, Sampler, Shown, repeated
from dualquery.audits.curator import OPPOSED, exact_hazard, pure
from dualquery.counting.counter import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator, ThresholdLaw
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.thresholds import Epochs, HazardTest, Slot, SparseVector
from dualquery.queries.countable import Countable
from dualquery.queries.derived import Multiplied
from dualquery.queries.group import Group
from dualquery.queries.tables import Tables
from dualquery.randomness import Entropy
from dualquery.types import Integers

NOTHING = -100.0  # stands for an answer that was not given
# σ² for a squared sensitivity of 1: what follows a fire tells next to nothing, for as little.
LOUD = Fraction(1000)


def remembered(counts: Group) -> Countable:
    """Counts that are counted once for every table: counting has no chance in it."""
    return Multiplied(counts, 1, kept=True)


def _shown(said: str, answer: float, /, **more: float | str) -> Shown:
    """What a session shows: a letter a test, a dot for silence; and the first answer."""
    usual = {"pattern": said, "fires": _fires(said), "tests": float(len(said)), "first answer": answer}
    return {**usual, **more}


def _fires(pattern: str) -> float:
    return float(len(pattern) - pattern.count("."))


@dataclass(frozen=True)
class Session:
    """The analyst's questions, in order, until the budget ends: queries of `OPPOSED`, each with a hypothesis."""

    pair: Pair
    budget: Budget
    law: Callable[[], ThresholdLaw]
    noise: Noise
    questions: tuple[tuple[int, int], ...]

    def sampler(self) -> Sampler:
        asked = [
            (remembered(OPPOSED.groups[0].take(np.array([query]))), hypothesis)
            for query, hypothesis in self.questions
        ]

        def begin(side: int, entropy: Entropy) -> Callable[[Ledger], Shown]:
            counter = MemoryCounter(self.pair.tables[side])
            return lambda ledger: self._held(Curator(counter, ledger, entropy), asked)

        return repeated(self.budget, begin)

    def _held(self, curator: Curator, asked: list[tuple[Countable, int]]) -> Shown:
        law, said, value, half = self.law(), "", NOTHING, len(asked) // 2
        for statistic, hypothesis in asked:
            try:
                surprise = curator.exceeds(statistic, hypothesis, law=law, noise=self.noise)
            except BudgetError:
                break
            said += "." if surprise is None else surprise.found.side.name[4:5] or surprise.found.side.name[0]
            if surprise is not None and value == NOTHING:
                value = float(surprise.noisy[0])
        turned = _fires(said[:half]) - _fires(said[half:])
        return _shown(said, value, **{"fires, first half less second": turned})


TABLE = remembered(Tables(BITS, ((0,),)))


@dataclass(frozen=True)
class SlotSession:
    """One table, asked so many times at the most, one record beyond the threshold in a cell that a record moves."""

    pair: Pair
    off: int = 13  # by how much the hypothesis of the second cell is off, in records
    tests: int = 60
    test: HazardTest | SparseVector = HazardTest(Fraction(1, 2), threshold=12, order=2)

    def sampler(self) -> Sampler:
        def begin(side: int, entropy: Entropy) -> Callable[[Ledger], Shown]:
            counter = MemoryCounter(self.pair.tables[side])
            hypotheses = TABLE.counts(self.pair.tables[0]) - np.array([0, self.off])
            return lambda ledger: self._held(Curator(counter, ledger, entropy), hypotheses)

        return repeated(hazard_budget(self.pair.neighbours), begin)

    def _held(self, curator: Curator, hypotheses: Integers) -> Shown:
        said, value, slot = "", NOTHING, None
        noise = Gaussian(LOUD * curator.neighbours.sensitivity(TABLE.bound()).l2_squared)
        while len(said) < self.tests:
            try:
                if slot is None or slot.closed:
                    slot = Slot(curator.ledger, self.test.event, GaussianMeasurement(Fraction(1), LOUD))
                law = slot.law(self.test)
                surprise = curator.exceeds(TABLE, hypotheses, law=law, noise=noise)
            except BudgetError:
                break
            said += "." if surprise is None else str(surprise.found.cell)
            if surprise is not None and value == NOTHING:
                value = float(surprise.noisy[0] - surprise.noisy[-1])
        cells = {"fires of the first cell": said.count("0"), "fires of the second cell": said.count("1")}
        return _shown(said, value, pattern=said[:12], **{name: float(each) for name, each in cells.items()})


def hazard_budget(neighbours: Neighbours) -> Budget:
    """A large δ: with it the order is low, a single test may say much, and few questions decide."""
    return Budget(epsilon=1.0, delta=0.3, neighbours=neighbours, accounting=Accounting.RENYI)


HAZARD_BUDGET = hazard_budget(Neighbours.ADD_REMOVE)
TEST = HazardTest(Fraction(1, 2), threshold=4, order=2)


def hazard_session(tests: int = 80) -> Session:
    """The same question over and over, one record beyond the threshold, where a test tells the most."""
    return Session(ALONE, HAZARD_BUDGET, lambda: TEST, Gaussian(LOUD), ((0, -5),) * tests)


VECTOR = SparseVector(Fraction(1), threshold=1)
ANSWER = Fraction(1, 4)  # ε of the measurement that ends an epoch
UP_AND_DOWN = ((0, 0), (1, 0))  # a record that falls from one query moves into the other


def epoch_session(pair: Pair, questions: tuple[tuple[int, int], ...], number: int) -> Session:
    """A pure budget for so many epochs and their answers."""
    budget = pure(pair, number * (VECTOR.epsilon + ANSWER))
    return Session(pair, budget, lambda: Epochs(VECTOR), Laplace(1 / ANSWER), questions)


def cases() -> list[Case]:
    """The law of one test exactly, and whole sessions; a record that is there or not, and one that moves."""
    sessions = {
        "hazard test, 80 questions": (hazard_session(), 1000, 40_000),
        "sparse vector, one epoch": (epoch_session(REPLACED, UP_AND_DOWN, 1), 4000, 100_000),
        "sparse vector, two epochs": (epoch_session(ALONE, ((0, 0),) * 12, 2), 1500, 30_000),
    }
    return [
        Case("exceeds: hazard test", "every count and its neighbours", exact=exact_hazard(TEST)),
        *(
            Case(f"exceeds: {name}", each.pair.words, each.sampler(), quick=quick, long=long)
            for name, (each, quick, long) in sessions.items()
        ),
        *(
            Case("exceeds: whole table", pair.words, SlotSession(pair).sampler(), quick=600, long=20_000)
            for pair in (ALONE, REPLACED)
        ),
        Case(
            "exceeds: whole table, sparse vector",
            REPLACED.words,
            SlotSession(REPLACED, off=3, test=SparseVector(Fraction(1, 2), threshold=2)).sampler(),
            quick=600,
            long=20_000,
        ),
    ]
