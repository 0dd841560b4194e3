"""Audits of whole tables that are asked one at a time, each test paid for by a slot.

A session asks the same table over and over, one record beyond the threshold in a cell that a record moves, until no
slot can be paid for. What the adversary sees is which tests spoke and what followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Case, Sampled, Sampler, Tell
from dualquery.audits.pairs import ALONE, BITS, REPLACED, Pair
from dualquery.audits.thresholds import NOTHING
from dualquery.counting.counter import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.thresholds import HazardTest, Slot
from dualquery.queries.countable import Countable
from dualquery.queries.derived import Multiplied
from dualquery.queries.tables import Tables
from dualquery.randomness import Entropy
from dualquery.types import Integers

TEST = HazardTest(Fraction(1, 2), threshold=12, order=2)
QUIET = Fraction(1000)  # the variance for a squared sensitivity of 1: what follows tells next to nothing


@dataclass(frozen=True)
class SlotSession:
    """One table, asked so many times at the most."""

    pair: Pair
    off: int = 13  # by how much the hypothesis of the second cell is off, in records
    tests: int = 60
    test: HazardTest = TEST

    @property
    def budget(self) -> Budget:
        """A large δ: with it the order is low, a single test may say much, and few questions decide."""
        return Budget(epsilon=1.0, delta=0.3, neighbours=self.pair.neighbours, accounting=Accounting.RENYI)

    def sampler(self) -> Sampler:
        counts = Tables(BITS, ((0,),))
        hypotheses = counts.counts(self.pair.tables[0]) - np.array([0, self.off])
        moved = self.pair.neighbours.sensitivity(counts.bound())
        noise = Gaussian(QUIET * moved.l2_squared)

        def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
            found, counter = [], MemoryCounter(self.pair.tables[side])
            table = Multiplied(counts, 1, kept=True)  # counted once: counting has no chance in it
            for _ in range(runs):
                curator = Curator(counter, Ledger(self.budget), entropy)
                found.append(self._held(curator, table, hypotheses, noise))
                tell(1)
            patterns, values = zip(*found, strict=True)
            numbers = np.array(
                [[len(p) - p.count("."), p.count("0"), p.count("1"), len(p)] for p in patterns]
            )
            seen = {
                "pattern": np.array([pattern[:12] for pattern in patterns]),
                "fires": numbers[:, 0].astype(np.float64),
                "fires of the first cell": numbers[:, 1].astype(np.float64),
                "fires of the second cell": numbers[:, 2].astype(np.float64),
                "tests": numbers[:, 3].astype(np.float64),
                "first answer": np.array(values),
            }
            return Sampled(seen, Claim(self.budget.epsilon, self.budget.delta))

        return sample

    def _held(
        self, curator: Curator, table: Countable, hypotheses: Integers, noise: Gaussian
    ) -> tuple[str, float]:
        """One session: for every test the cell that fired, or a dot; and the first answer."""
        said, value, slot = "", NOTHING, None
        follow_up = GaussianMeasurement(Fraction(1), QUIET)
        while len(said) < self.tests:
            try:
                if slot is None or slot.closed:
                    slot = Slot(curator.ledger, self.test.event, follow_up)
                law = slot.law(self.test)
                surprise = curator.exceeds_anywhere(table, hypotheses, law=law, noise=noise)
            except BudgetError:
                break
            said += "." if surprise is None else str(surprise.found.cell)
            if surprise is not None and value == NOTHING:
                value = float(surprise.noisy[0] - surprise.noisy[-1])
        return said, value


def cases() -> list[Case]:
    """A record that is there or not, and one that moves from one cell to another."""
    return [
        Case("exceeds: whole table", pair.words, SlotSession(pair).sampler(), quick=600, long=20_000)
        for pair in (ALONE, REPLACED)
    ]
