"""An adversary who knows two neighbouring tables, watches releases, and says how far they can be told apart.

All audits, one after another, at one confidence for all of them together.

Audits of questions asked one at a time: the hazard test under its cap, and the textbook's sparse vector.

A run is a session: the analyst asks until the budget ends, or so many times, and pays for one slot after another. The
adversary sees which tests spoke, and the answers that followed. Numbers are asked one by one, each against a
hypothesis; a whole table is asked over and over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualquery.audits import curator, releases
from dualquery.audits.case import (
    ALONE,
    BITS,
    REPLACED,
    AuditError,
    Case,
    Finding,
    Pair,
    Sampler,
    Shown,
    Verdict,
    judged,
    repeated,
    stream,
)
from dualquery.audits.curator import OPPOSED, exact_hazard, pure
from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.loops import limited
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.thresholds import FarSide, HazardTest, Slot, SparseVector, Test
from dualquery.queries.derived import Multiplied
from dualquery.queries.group import Group
from dualquery.queries.statistics import Countable
from dualquery.queries.tables import Tables
from dualquery.randomness import Entropy
from dualquery.types import Integers, Progress

CONFIDENCE = 0.999  # that no claim which holds is called broken, over all cases of an audit
FEWEST_RUNS = 40


@dataclass(frozen=True)
class Audit:
    findings: tuple[Finding, ...]
    confidence: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.verdict is Verdict.BROKEN)

    def to_json(self) -> dict[str, object]:
        return {
            "confidence": self.confidence,
            "broken": len(self.broken),
            "findings": [each.to_json() for each in self.findings],
        }


def all_cases() -> list[Case]:
    """Every case: what the curator says, what mechanisms release, what folders show."""
    return [
        *curator.cases(),
        *session_cases(),
        *releases.cases(),
    ]


def chosen_cases(names: Sequence[str]) -> list[Case]:
    """The cases whose mechanism is named: by all of its name, or by the words before its colon."""
    cases = all_cases()
    if not names:
        return cases
    known = dict.fromkeys(each.mechanism.partition(":")[0] for each in cases)
    for name in names:
        if not any(_named(case, name) for case in cases):
            raise AuditError(f"there is no audit of '{name}'; there are {', '.join(known)}")
    return [case for case in cases if any(_named(case, name) for name in names)]


def _named(case: Case, name: str) -> bool:
    return name in (case.mechanism, case.mechanism.partition(":")[0])


def audit(
    cases: Iterable[Case],
    *,
    quick: bool = False,
    runs: int | None = None,
    seed: int | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Audit:
    """Every case at the same share of the chance to be wrong (Bonferroni).

    `runs` on each table replaces the number of runs of every sampled case. With a seed every sample has a stream of
    its own; without one chance is the system's, as for a release.
    """
    listed = [case for case in cases if case.exact is not None or runs or case.runs(None, quick=quick)]
    if runs is not None and runs < FEWEST_RUNS:
        raise AuditError(
            f"an audit needs at least {FEWEST_RUNS} runs on each table, of which half choose an event"
        )
    failure = (1 - CONFIDENCE) / max(1, len(listed))
    planned = [case.runs(runs, quick=quick) for case in listed]
    findings = []
    with limited(1):  # tables of a few records are counted faster without a second thread to wait for
        for case, count in zip(listed, planned, strict=True):
            done = 0

            def tell(more: int, case: Case = case, count: int = count) -> None:
                nonlocal done
                done += more
                progress(f"{case.mechanism}, {case.pair}", done, 2 * count)

            entropies = tuple(stream(seed, case.mechanism, case.pair, str(side)) for side in (0, 1))
            findings.append(judged(case, runs=count, entropies=entropies, failure=failure, tell=tell))
    return Audit(tuple(findings), CONFIDENCE)


NOTHING = -100.0  # stands for an answer that was not given
# σ² for a squared sensitivity of 1: what follows a fire tells next to nothing, for as little.
LOUD = Fraction(1000)


def remembered(counts: Group) -> Countable:
    """Counts that are counted once for every table: counting has no chance in it."""
    return Multiplied(counts, 1, kept=True)


@dataclass(frozen=True)
class Session:
    """The analyst's questions, in order, until the budget ends, each with its hypotheses; one test for all."""

    pair: Pair
    budget: Budget
    test: Test
    noise: Noise
    questions: Sequence[tuple[Countable, Integers | int]]

    def sampler(self) -> Sampler:
        def begin(side: int, entropy: Entropy) -> Callable[[Ledger], Shown]:
            counter = MemoryCounter(self.pair.tables[side])
            return lambda ledger: self._held(Curator(counter, ledger, entropy))

        return repeated(self.budget, begin)

    def _held(self, curator: Curator) -> Shown:
        """One session: for every test a dot for silence, else which number fired and on which side; the answer."""
        slot, said, value, half = None, "", NOTHING, len(self.questions) // 2
        for statistic, hypotheses in self.questions:
            try:
                if slot is None or slot.closed:
                    moved = curator.neighbours.sensitivity(statistic.bound())
                    slot = Slot(curator.ledger, self.test.event, self.noise.event(moved))
            except BudgetError:
                break
            surprise = curator.exceeds(statistic, hypotheses, test=self.test, slot=slot, noise=self.noise)
            said += "." if surprise is None else _LETTERS[surprise.found.side][surprise.found.cell]
            if surprise is not None and value == NOTHING:
                value = float(surprise.noisy[0] - surprise.noisy[1:].sum())
        fires = [float(len(part) - part.count(".")) for part in (said[:half], said[half:])]
        second = float(sum(said.count(letters[1]) for letters in _LETTERS.values()))
        return {
            "pattern": said,
            "beginning": said[:12],
            "fires": sum(fires),
            "tests": float(len(said)),
            "fires, first half less second": fires[0] - fires[1],
            "fires of the first cell": sum(fires) - second,
            "fires of the second cell": second,
            "first answer": value,
        }


# Of the first cell, and of the second.
_LETTERS = {FarSide.TOO_LOW: "lL", FarSide.TOO_HIGH: "hH", FarSide.FAR: "fF"}


TABLE_TEST = HazardTest(Fraction(1, 2), threshold=12, order=2)


def slot_session(
    pair: Pair,
    off: int = 13,
    tests: int = 60,
    test: Test = TABLE_TEST,
) -> Session:
    """One table over and over, one record beyond the threshold in a cell that a record moves, paid for by slots."""
    table = remembered(Tables(BITS, ((0,),)))
    hypotheses = table.counts(pair.tables[0]) - np.array([0, off])
    noise = Gaussian(LOUD * pair.neighbours.sensitivity(table.bound()).l2_squared)
    budget = hazard_budget(pair.neighbours)
    return Session(pair, budget, test, noise, [(table, hypotheses)] * tests)


def queries(*asked: tuple[int, int]) -> list[tuple[Countable, Integers | int]]:
    known = {query: remembered(OPPOSED.groups[0].take(np.array([query]))) for query, _ in asked}
    return [(known[query], hypothesis) for query, hypothesis in asked]


def hazard_budget(neighbours: Neighbours) -> Budget:
    """A large δ: with it the order is low, a single test may say much, and few questions decide."""
    return Budget(epsilon=1.0, delta=0.3, neighbours=neighbours, accounting=Accounting.RENYI)


HAZARD_BUDGET = hazard_budget(Neighbours.ADD_REMOVE)
TEST = HazardTest(Fraction(1, 2), threshold=4, order=2)


def hazard_session(tests: int = 80) -> Session:
    """The same question over and over, one record beyond the threshold, where a test tells the most."""
    return Session(ALONE, HAZARD_BUDGET, TEST, Gaussian(LOUD), queries(*((0, -5),) * tests))


VECTOR = SparseVector(Fraction(1), threshold=1)
ANSWER = Fraction(1, 4)  # ε of the measurement that ends an epoch
UP_AND_DOWN = ((0, 0), (1, 0))  # a record that falls from one query moves into the other


def epoch_session(pair: Pair, questions: tuple[tuple[int, int], ...], number: int) -> Session:
    budget = pure(pair, number * (VECTOR.epsilon + ANSWER))
    return Session(pair, budget, VECTOR, Laplace(1 / ANSWER), queries(*questions))


def session_cases() -> list[Case]:
    """The law of one test exactly, and whole sessions; a record that is there or not, and one that moves."""
    half = SparseVector(Fraction(1, 2), threshold=2)
    listed = [
        ("hazard test, 80 questions", hazard_session(), 1000, 40_000),
        ("sparse vector, one epoch", epoch_session(REPLACED, UP_AND_DOWN, 1), 4000, 100_000),
        ("sparse vector, two epochs", epoch_session(ALONE, ((0, 0),) * 12, 2), 1500, 30_000),
        ("whole table", slot_session(ALONE), 600, 20_000),
        ("whole table", slot_session(REPLACED), 600, 20_000),
        ("whole table, sparse vector", slot_session(REPLACED, off=3, test=half), 600, 20_000),
    ]
    return [
        Case("exceeds: hazard test", "every count and its neighbours", exact=exact_hazard(TEST)),
        *(
            Case(f"exceeds: {name}", each.pair.words, each.sampler(), quick=quick, long=long)
            for name, each, quick, long in listed
        ),
    ]
