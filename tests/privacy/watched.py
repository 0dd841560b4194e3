"""A counter, a ledger and a source of chance that write into one diary what was done, and in which order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.counting import MemoryCounter
from dualquery.privacy.budget import Budget
from dualquery.privacy.curator import Curator, Surprise
from dualquery.privacy.events import Event
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Noise
from dualquery.privacy.thresholds import Slot, Test
from dualquery.queries.statistics import Countable
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Integers

Diary = list[str]  # "pay", "read", "draw", in the order in which they happened


class WatchedCounter:
    """Says when the truth is read."""

    def __init__(self, records: Records, diary: Diary) -> None:
        self._inner = MemoryCounter(records)
        self._diary = diary

    @property
    def domain(self) -> Domain:
        return self._inner.domain

    @property
    def true_rows(self) -> int:
        self._diary.append("read")
        return self._inner.true_rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        self._diary.append("read")
        return self._inner.true_counts(countable, kept=kept)


class WatchedLedger(Ledger):
    """Says when it has paid; a refusal leaves no entry."""

    def __init__(self, budget: Budget, diary: Diary) -> None:
        super().__init__(budget)
        self._diary = diary

    def charge(self, *events: Event) -> None:
        super().charge(*events)
        self._diary.append("pay")


class WatchedEntropy(SeededEntropy):
    """Says when chance is asked for."""

    def __init__(self, diary: Diary, seed: int = 1) -> None:
        super().__init__(seed)
        self._diary = diary

    def below(self, bound: int, count: int) -> list[int]:
        self._diary.append("draw")
        return super().below(bound, count)

    def words(self, count: int) -> NDArray[np.uint64]:
        self._diary.append("draw")
        return super().words(count)


def in_order(diary: Diary) -> Diary:
    """The diary without repetitions of one and the same entry in a row."""
    return [entry for i, entry in enumerate(diary) if i == 0 or diary[i - 1] != entry]


class Asking:
    """A threshold test of a curator as whoever asks makes it: one slot after another, each paid when it is needed."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self.slot: Slot | None = None

    def __call__(
        self, question: Countable, hypotheses: Integers | int, test: Test, noise: Noise
    ) -> Surprise | None:
        if self.slot is None or self.slot.closed:
            moved = self._curator.neighbours.sensitivity(question.bound())
            self.slot = Slot(self._curator.ledger, test.event, noise.event(moved))
        return self._curator.exceeds(question, hypotheses, test=test, slot=self.slot, noise=noise)
