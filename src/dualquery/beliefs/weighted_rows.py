"""A belief as weighted rows: public records, each with a whole weight, moved towards what was measured.

    h(q) = (weight of the rows in q) / (weight of all rows)

It starts from the rows of a release, all weights equal. A measurement m of count(q), with noise of deviation σ, that
lies more than 3σ from n·h moves it a part of the way, because the noise is in m too:

    target = h + max(½, 1 − θ/|m − n h|) (m/n − h),
    weights in q times target/h, the others times (1 − target)/(1 − h).

A question that fewer than 50 rows hold for is given some more first: rows of the belief, changed where they must be.
A table is moved cell by cell likewise, and its cells then share what is left.

Weights are whole numbers, sums are exact, and a weight is changed by one multiplication and one rounding, so that the
same measurements make the same belief, byte for byte, on any machine. Nothing here sees private data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.question import Question
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits
from dualquery.types import Integers

Rows = NDArray[np.uint32]


def changed_to_hold(rows: Rows, query: Query, domain: Domain, *, holds: bool) -> Rows:
    """The rows, changed so that the query holds for all of them, or for none."""
    rows = rows.copy()
    if query.parity:
        odd = rows[:, list(query.parity)].sum(axis=1) % 2 == 1
        wrong = odd if holds else ~odd
        first = query.parity[0]
        rows[wrong, first] = 1 - rows[wrong, first]
        return rows
    if holds != query.complement:  # every literal must hold
        for literal in query.literals:
            _make(rows, np.arange(len(rows)), literal, domain, True)
        return rows
    satisfied = np.all([_truth(rows, literal) for literal in query.literals], axis=0)
    for turn, literal in enumerate(query.literals):  # one must fail: they take turns
        mine = np.flatnonzero(satisfied & (np.arange(len(rows)) % len(query.literals) == turn))
        _make(rows, mine, literal, domain, False)
    return rows


def changed_to_lie_in(rows: Rows, table: Question, cells: NDArray[np.int64]) -> Rows:
    """Row i, moved into the cell cells[i] of a table."""
    rows = rows.copy()
    for j, codes in zip(table.members, np.unravel_index(cells, table.shape), strict=True):
        rows[:, j] = codes
    return rows


def _truth(rows: Rows, literal: Literal) -> NDArray[np.bool_]:
    return np.isin(rows[:, literal.attribute], literal.values) != literal.negated


def _make(rows: Rows, places: NDArray[np.intp], literal: Literal, domain: Domain, holds: bool) -> None:
    """Where a literal is not as it should be, one of the values that make it so, in turn."""
    size = int(domain.sizes[literal.attribute])
    accepted = np.isin(np.arange(size), literal.values) != literal.negated
    values = np.flatnonzero(accepted == holds)
    wrong = places[_truth(rows, literal)[places] != holds]
    rows[wrong, literal.attribute] = values[np.arange(len(wrong)) % len(values)]


ONE = 1 << 24  # the weight of a row at the start
SUPPORT = 50  # rows that a question should have to be moved by
MOST_ADDED = 2000  # rows at once
_WIDEST = 20_000_000  # entries of a matrix of added rows
_SURE = 9  # squared standard deviations


@dataclass(frozen=True)
class MeasuredQuestion:
    """A count, or the counts of a table's cells, with noise of a variance, and the threshold of the test before."""

    question: Question
    noisy: tuple[int, ...]
    rows: int  # n, as the public knows it
    variance: Fraction
    threshold: int
    cell: int = 0  # that the test fired at


class WeightedRows:
    """Rows with weights: answers every question, and hears measurements."""

    def __init__(self, records: Records) -> None:
        self._columns = KeptColumns(records)
        self._weights = np.full(records.rows, ONE, np.int64)
        self._total = ONE * records.rows

    @property
    def rows(self) -> int:
        return len(self._weights)

    @property
    def total(self) -> int:
        return self._total

    def mass(self, question: Question) -> Integers:
        """The weight of the rows that a question, or each cell of its table, holds for."""
        return self._columns.mass(question.group, self._weights)

    def fractions(self, question: Question) -> NDArray[np.float64]:
        return self.mass(question) / self._total

    def fingerprint(self) -> str:
        """SHA-256 of rows and weights."""
        digest = hashlib.sha256(self._weights.astype("<i8").tobytes())
        for codes in self._columns.records.columns:
            if isinstance(codes, SparseItems):
                digest.update(codes.start.astype("<i8").tobytes() + codes.ids.astype("<i8").tobytes())
            elif isinstance(codes, BitItems):
                digest.update(unpack_bits(codes.words, self.rows).tobytes())
            else:
                digest.update(codes.astype("<i8").tobytes())
        return digest.hexdigest()

    def hear(self, measured: MeasuredQuestion) -> None:
        """Move towards a measurement."""
        if measured.question.is_table:
            self._hear_table(measured)
        else:
            self._hear_query(measured)

    def _hear_query(self, measured: MeasuredQuestion) -> None:
        mass = int(self.mass(measured.question)[0])
        target = self._target(mass, measured, measured.noisy[0])
        if target is None:
            return
        self._support_query(measured.question, holds=target * self._total > mass)
        mass = int(self.mass(measured.question)[0])
        if not 0 < mass < self._total:
            return
        inside = float(target * self._total / mass)
        outside = float((1 - target) * self._total / (self._total - mass))
        self._multiply(np.where(self._chosen(measured.question), inside, outside))

    def _chosen(self, question: Question) -> NDArray[np.bool_]:
        """The rows that a query holds for."""
        words = self._columns.mask(question.group)
        return np.unpackbits(words.view(np.uint8), count=self.rows, bitorder="little").astype(np.bool_)

    def _hear_table(self, measured: MeasuredQuestion) -> None:
        question = measured.question
        before = self.mass(question).tolist()
        targets = [self._target(mass, measured, m) for mass, m in zip(before, measured.noisy, strict=True)]
        if all(target is None for target in targets):
            return
        grown = [
            cell
            for cell, target in enumerate(targets)
            if target is not None and target * self._total > before[cell]
        ]
        self._support_cells(question, grown)
        masses = self.mass(question).tolist()
        total = self._total
        wanted = [
            Fraction(mass, total) if target is None else target
            for mass, target in zip(masses, targets, strict=True)
        ]
        together = sum((want for want, mass in zip(wanted, masses, strict=True) if mass), Fraction(0))
        if together == 0:
            return
        factors = np.array(
            [
                float(want * total / (mass * together)) if mass else 1.0
                for want, mass in zip(wanted, masses, strict=True)
            ]
        )
        self._multiply(factors[self._columns.cells(question.group)])  # type: ignore[arg-type]

    def _target(self, mass: int, measured: MeasuredQuestion, noisy: int) -> Fraction | None:
        """Where a measurement moves a fraction to; None where it may be noise."""
        believed = Fraction(mass, self._total)
        gap = noisy - measured.rows * believed
        if gap * gap <= _SURE * measured.variance:
            return None
        step = max(Fraction(1, 2), 1 - measured.threshold / abs(gap))
        return min(max(believed + step * gap / measured.rows, Fraction(0)), Fraction(1))

    def _multiply(self, factors: NDArray[np.float64]) -> None:
        """Each weight times its factor, rounded; no row is lost for ever."""
        self._weights = np.maximum(np.rint(self._weights * factors), 1).astype(np.int64)
        self._total = int(self._weights.sum())

    def _support_query(self, question: Question, *, holds: bool) -> None:
        """Enough rows on the side that is to grow."""
        words = self._columns.mask(question.group)
        inside = int(np.bitwise_count(words).sum())
        missing = SUPPORT - (inside if holds else self.rows - inside)
        if missing > 0 and question.query is not None and missing * question.domain.width <= _WIDEST:
            rows = changed_to_hold(self._donors(missing), question.query, question.domain, holds=holds)
            self._add(rows)

    def _support_cells(self, question: Question, cells: list[int]) -> None:
        have = self._columns.cell_counts(question.group)  # type: ignore[arg-type]
        missing = {cell: SUPPORT - int(have[cell]) for cell in cells if have[cell] < SUPPORT}
        wanted = np.repeat(list(missing.keys()), list(missing.values())).astype(np.int64)[:MOST_ADDED]
        if len(wanted) and len(wanted) * question.domain.width <= _WIDEST:
            self._add(changed_to_lie_in(self._donors(len(wanted)), question, wanted))

    def _donors(self, number: int) -> NDArray[np.uint32]:
        """Rows of the belief, evenly spaced in weight."""
        steps = (2 * np.arange(number, dtype=np.int64) + 1) * (self._total // (2 * number))
        places = np.searchsorted(np.cumsum(self._weights), steps, side="right")
        return self._columns.records.take(places).to_rows()

    def _add(self, rows: NDArray[np.uint32]) -> None:
        self._columns = KeptColumns(self._columns.records.with_more(rows))
        self._weights = np.concatenate([self._weights, np.full(len(rows), ONE, np.int64)])
        self._total = int(self._weights.sum())


WHOLE = 1 << 52  # the weight of all rows: products with a factor are exact to a unit


class WholeUniverse(WeightedRows):
    """A row for every record that the domain allows, all of the same weight at first: multiplicative weights.

        weight(x) ∝ weight(x) · exp(−η q(x)) where the hypothesis is too high, exp(η q(x)) where it is too low

    By Hoeffding's lemma a gap g between q(D) and the hypothesis lowers KL(D, hypothesis) by η g − η²/8 at least
    (`interactive.rule.promised`). Of a table q is the cell that the test fired at.
    """

    def __init__(self, domain: Domain, *, factor: float) -> None:
        """`factor` is e^−η."""
        codes = np.indices(domain.sizes.tolist(), np.uint32).reshape(domain.width, -1).T
        super().__init__(Records.from_rows(domain, codes))
        self._factor = factor
        self._weights = np.full(self.rows, WHOLE // self.rows, np.int64)
        self._total = int(self._weights.sum())

    def hear(self, measured: MeasuredQuestion) -> None:
        mass = int(self.mass(measured.question)[measured.cell])
        too_high = measured.noisy[measured.cell] * self._total < measured.rows * mass
        losing = self._holds(measured.question, measured.cell) == too_high
        lost = mass if too_high else self._total - mass
        scale = WHOLE / (self._total - lost + self._factor * lost)
        self._multiply(np.where(losing, self._factor * scale, scale))

    def _holds(self, question: Question, cell: int) -> NDArray[np.bool_]:
        if question.is_table:
            return np.asarray(self._columns.cells(question.group) == cell)  # type: ignore[arg-type]
        return self._chosen(question)
