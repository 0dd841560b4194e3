"""Audits of questions asked one at a time: the hazard test under its cap, and the textbook's sparse vector.

A run is a session. The analyst asks until the budget ends, or so many times; what the adversary sees is which tests
spoke, and the answers that followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Case, Sampled, Sampler, Tell
from dualquery.audits.exact import exact_hazard
from dualquery.audits.pairs import ALONE, REPLACED, Pair
from dualquery.audits.verbs import OPPOSED
from dualquery.counting.counter import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator, ThresholdLaw
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.thresholds import Epochs, HazardTest, SparseVector
from dualquery.queries.countable import Countable
from dualquery.queries.derived import Multiplied
from dualquery.randomness import Entropy

NOTHING = -100.0  # stands for an answer that was not given


def _fires(pattern: str) -> int:
    return len(pattern) - pattern.count(".")


def _difference(pattern: str, half: int) -> float:
    return float(_fires(pattern[:half]) - _fires(pattern[half:]))


@dataclass(frozen=True)
class Session:
    """The analyst's questions, in order, until the budget ends: queries of `OPPOSED`, each with a hypothesis."""

    pair: Pair
    budget: Budget
    law: Callable[[], ThresholdLaw]
    noise: Noise
    questions: tuple[tuple[int, int], ...]

    def sampler(self) -> Sampler:
        asked: list[tuple[Countable, int]] = [  # each counted once: counting has no chance in it
            (Multiplied(OPPOSED.groups[0].take(np.array([query])), 1, kept=True), hypothesis)
            for query, hypothesis in self.questions
        ]

        def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
            counter, found, spent = MemoryCounter(self.pair.tables[side]), [], Claim(0.0)
            for _ in range(runs):
                ledger = Ledger(self.budget)
                found.append(self._held(Curator(counter, ledger, entropy), asked))
                paid = ledger.spent()
                spent = max(spent, Claim(paid.epsilon, paid.delta), key=lambda claim: claim.epsilon)
                tell(1)
            patterns, values = zip(*found, strict=True)
            half = len(asked) // 2
            seen = {
                "pattern": np.array(patterns),
                "fires": np.array([float(_fires(each)) for each in patterns]),
                "tests": np.array([float(len(each)) for each in patterns]),
                "fires, first half less second": np.array([_difference(each, half) for each in patterns]),
                "first answer": np.array(values),
            }
            return Sampled(seen, spent)

        return sample

    def _held(self, curator: Curator, asked: list[tuple[Countable, int]]) -> tuple[str, float]:
        """One session: a letter a test, a dot for silence; and the first answer."""
        law, said, value = self.law(), "", NOTHING
        for statistic, hypothesis in asked:
            try:
                surprise = curator.exceeds(statistic, hypothesis, law=law, noise=self.noise)
            except BudgetError:
                break
            said += "." if surprise is None else surprise.side.name[4:5] or surprise.side.name[0]
            if surprise is not None and value == NOTHING:
                value = float(surprise.noisy)
        return said, value


# A large δ, because with it the order is low, a single test may say much, and few questions decide.
HAZARD_BUDGET = Budget(epsilon=1.0, delta=0.3, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.RENYI)
TEST = HazardTest(Fraction(1, 2), threshold=4, order=2)
QUIET = Gaussian(Fraction(1000))  # what follows a fire tells next to nothing, and costs as little


def hazard_session(tests: int = 80) -> Session:
    """The same question over and over, one record beyond the threshold, where a test tells the most."""
    return Session(ALONE, HAZARD_BUDGET, lambda: TEST, QUIET, ((0, -5),) * tests)


VECTOR = SparseVector(Fraction(1), threshold=1)
ANSWER = Fraction(1, 4)  # ε of the measurement that ends an epoch


def epoch_budget(number: int, pair: Pair) -> Budget:
    """A pure budget for so many epochs and their answers."""
    return Budget(
        epsilon=float(number * (VECTOR.epsilon + ANSWER)),
        delta=0.0,
        neighbours=pair.neighbours,
        accounting=Accounting.PURE,
    )


def epochs() -> Epochs:
    """The epochs of one session."""
    return Epochs(VECTOR)


def epoch_session(pair: Pair, questions: tuple[tuple[int, int], ...], number: int) -> Session:
    return Session(pair, epoch_budget(number, pair), epochs, Laplace(1 / ANSWER), questions)


UP_AND_DOWN = ((0, 0), (1, 0))  # a record that falls from one query moves into the other


def cases() -> list[Case]:
    """The law of one test exactly, and whole sessions."""
    return [
        Case("exceeds: hazard test", "every count and its neighbours", exact=exact_hazard(TEST)),
        Case(
            "exceeds: hazard test, 80 questions",
            ALONE.words,
            hazard_session().sampler(),
            quick=1000,
            long=40_000,
        ),
        Case(
            "exceeds: sparse vector, one epoch",
            REPLACED.words,
            epoch_session(REPLACED, UP_AND_DOWN, 1).sampler(),
            quick=4000,
            long=100_000,
        ),
        Case(
            "exceeds: sparse vector, two epochs",
            ALONE.words,
            epoch_session(ALONE, ((0, 0),) * 12, 2).sampler(),
            quick=1500,
            long=30_000,
        ),
    ]
