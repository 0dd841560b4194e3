"""Scores: one whole number a candidate, together with the range in which neighbours can move them.

The exponential mechanism draws a candidate with probability ∝ exp(rate · score). What it costs depends on the range

    max_i (s_i(D) − s_i(D′)) − min_i (s_i(D) − s_i(D′))

over neighbours D, D′ alone. Each score states here, and nowhere else, that range for one record added (`alone`) and
for one record exchanged for another (`apart`); the relation picks (`neighbours`). Ranges of several steps add up, so
that K records of a person move scores within K times the range of one. Plan and curator ask the same object, and one
brute-force test checks them all (tests/privacy/test_statistics.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from dualquery.counting import Counter
from dualquery.errors import BudgetError
from dualquery.privacy.budget import Neighbours
from dualquery.privacy.events import Selection
from dualquery.privacy.ledger import TOO_SMALL, Price
from dualquery.privacy.selection import SLACK, Answers, Candidates, Rate, Scored
from dualquery.queries.tables import Tables, signed
from dualquery.queries.workload import Workload
from dualquery.types import Integers, Ints, Reals

FRACTION_BITS = 10  # answers of a hypothesis are told to a thousandth of a record
FINE = 1 << FRACTION_BITS

# Scores are computed in 64 bits, and one that wrapped around would move farther than its range says. These public
# bounds keep every score below 2^62 for tables of up to 2^40 records (docs/privacy.md, "Selection").
MOST_SCORE = 1 << 60  # of the public part of a score
MOST_REPEATS = 1 << 20  # by how much one record may move a score
MOST_PUBLIC_ROWS = MOST_SCORE >> FRACTION_BITS  # about 10^15


class Score(Protocol):
    """One whole number a candidate."""

    def of(self, counter: Counter) -> Scored:
        """The scores themselves, their private part apart from the public one."""

    def range(self, neighbours: Neighbours) -> int:
        """The range in which neighbours can move them."""

    @property
    def largest(self) -> int:
        """A public bound of the scores, beyond which they are clamped."""


def selection_event(score: Score, neighbours: Neighbours, *, rate: Rate, draws: int) -> Selection | None:
    """What drawing by a score costs: the range of its log-weights. Scores that cannot move are public, and free."""
    width = score.range(neighbours)
    return Selection(width * rate.nats + SLACK, draws) if width else None


def rate_within(price: Price, score: Score, neighbours: Neighbours) -> Rate:
    """The finest rate at which a selection by this score stays within a price."""
    nats = (price.selection_range() - SLACK) / score.range(neighbours)
    rate = Rate.below(max(0.0, float(nats)) * (1 - 1e-15), score.largest)
    if rate.multiplier == 0:
        raise BudgetError(TOO_SMALL)
    return rate


def signed_range(neighbours: Neighbours, moved: int) -> int:
    """The range of signed errors, where one record moves a count by at most `moved` (see `SignedErrors`)."""
    return neighbours.largest(alone=moved, apart=2 * moved)


@dataclass(frozen=True, eq=False)
class SignedErrors:
    """How far public answers lie below the truth (of a query) or above it (of its negation), in records.

    c_q = repeats · count(q) − scale · offset_q for the query. Its negation counts the records that do not satisfy
    it, so that it has the score repeats · (rows − public_rows) − c_q: where the number of records is public, −c_q.
    The larger of the two is |c_q|: the score of MWEM, the closure under negation of PMW, and for repeats = t − 1 the
    weights of DualQuery.

    An added record adds a value from 0 to the unit to a query and the rest of it to its negation, hence a range of
    one unit. An exchanged one moves either by a unit at most, up or down: two.
    """

    workload: Workload
    public_rows: int
    repeats: int
    scale: int
    offsets: Ints | Integers | Answers
    among: Integers | None = None  # the queries that may be drawn; None: all

    def __post_init__(self) -> None:
        _check_rows(self.repeats * self.workload.unit, self.public_rows)

    @classmethod
    def of_answers(cls, workload: Workload, public_rows: int, answers: Reals, among: Integers) -> Self:
        """Of answers in fractions of the table, told to a thousandth of a record."""
        fine = _fineness(workload)
        _check_rows(fine * workload.unit, public_rows)
        whole = fine * workload.unit * public_rows
        offsets = np.rint(whole * np.clip(answers[among], 0, 1)).astype(np.int64)
        return cls(workload, public_rows, fine, 1, offsets, among)

    @classmethod
    def unheard(cls, workload: Workload, public_rows: int) -> Self:
        """Before any answer is known: what a plan asks for the price."""
        return cls(workload, public_rows, _fineness(workload), 1, np.empty(0, np.int64))

    def of(self, counter: Counter) -> Scored:
        counts = counter.true_counts(self.workload, kept=True)
        surplus = self.repeats * self.workload.unit * (counter.true_rows - self.public_rows)
        return Scored(
            counts if self.among is None else counts[self.among],
            self.repeats,
            self.scale,
            self.offsets,
            surplus,
            Candidates.SIGNED,
        )

    def range(self, neighbours: Neighbours) -> int:
        return signed_range(neighbours, self.repeats * self.workload.unit)

    @property
    def largest(self) -> int:
        """Scores reach repeats · n; four times that leaves room where n is private."""
        return 4 * self.repeats * self.workload.unit * self.public_rows


@dataclass(frozen=True, eq=False)
class AbsoluteErrors(SignedErrors):
    """|c_q| of the queries alone, as Figure 1 of MWEM prints its score.

    An added record raises the score of a query that is answered too low by up to a unit and lowers that of one that
    is answered too high as far, hence a range of two units; an exchanged one moves no count farther: two again.
    """

    def of(self, counter: Counter) -> Scored:
        return replace(super().of(counter), candidates=Candidates.ABSOLUTE)

    def range(self, neighbours: Neighbours) -> int:
        twice = 2 * self.repeats * self.workload.unit
        return neighbours.largest(alone=twice, apart=twice)


@dataclass(frozen=True, eq=False)
class TableErrors:
    """How wrong public answers are on whole tables: s_t = Σ_cells |2^F · count − offset| − penalty_t.

    |·| is 1-Lipschitz. An added record moves one cell of each table by one, so that each score moves by at most one
    either way, hence a range of two; an exchanged one moves two cells, hence four. (Both are attained where some
    table is answered too low and another too high. Where all are answered too low the truth is less, and where
    there is one table only nothing is chosen.)
    """

    tables: Tables
    public_rows: int
    penalties: Reals  # of every table, in records
    answers: Reals | None = None  # of every cell, in fractions
    among: Integers | None = None  # the tables that may be drawn; None: all

    def __post_init__(self) -> None:
        _check_rows(FINE, self.public_rows)
        if not 0 <= FINE * self.penalties.min() <= FINE * self.penalties.max() <= MOST_SCORE:
            raise BudgetError(
                "the noise of a table this large would drown any count; use a larger budget, fewer rounds or "
                "smaller tables"
            )

    def told(self, answers: Reals, among: Integers) -> TableErrors:
        """The same score, of these answers and for a choice among these tables: at the same price."""
        return replace(self, answers=answers, among=among)

    def of(self, counter: Counter) -> Scored:
        assert self.answers is not None, "a score that was not told any answers has only a price"
        offsets = np.rint(FINE * self.public_rows * np.clip(self.answers, 0, 1)).astype(np.int64)
        wrong, starts = self._entries(FINE * counter.true_counts(self.tables, kept=True) - offsets)
        sums = np.add.reduceat(np.abs(wrong), starts[:-1])
        fixed = self._fixed
        if self.among is not None:
            sums, fixed = sums[self.among], fixed[self.among]
        return Scored(sums, 1, 1, fixed, 0, Candidates.ABSOLUTE)

    def _entries(self, cells: Integers) -> tuple[Integers, Integers]:
        """What is summed up, of every cell, and where each table begins."""
        return cells, self.tables.starts

    def range(self, neighbours: Neighbours) -> int:
        return neighbours.largest(alone=2 * FINE, apart=4 * FINE)

    @property
    def largest(self) -> int:
        return 4 * FINE * self.public_rows + int(-self._fixed.min())

    @property
    def _fixed(self) -> Integers:
        """The penalties less the largest of them: a public constant makes every score positive."""
        penalties = np.rint(FINE * self.penalties).astype(np.int64)
        return penalties - penalties.max()


@dataclass(frozen=True, eq=False)
class SignedTableErrors(TableErrors):
    """How wrong public answers are on whole signed tables: s_t = Σ_entries |2^F · entry − offset| − penalty_t.

    An added record moves one entry of each signed table by one, an exchanged one two by one or one by two: the range
    is that of `TableErrors`.
    """

    def _entries(self, cells: Integers) -> tuple[Integers, Integers]:
        parts = [signed(table).ravel() for table in self.tables.split(cells)]
        return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


def _fineness(workload: Workload) -> int:
    """Into how many parts a unit is cut: none where it is finer than a thousandth of a record already."""
    return FINE if workload.unit < FINE else 1


def _check_rows(repeats: int, public_rows: int) -> None:
    """Refuse, by public numbers alone, scores that 64 bits might not hold."""
    if public_rows < 0 or repeats * public_rows > MOST_SCORE:
        raise BudgetError(
            f"{public_rows} is not a number of records that can be weighed here; declare the number that the table "
            "has, roughly, or play fewer rounds"
        )
    if repeats > MOST_REPEATS:
        raise BudgetError(f"a score may count a record at most {MOST_REPEATS} times; play fewer rounds")
