"""A belief as weighted rows: public records, each with a whole weight, moved towards what was measured.

    h(q) = (weight of the rows in q) / (weight of all rows)

It starts from the rows of a release, all weights equal. A measurement m of count(q), with noise of deviation σ, that
lies more than 3σ from n·h moves it a part of the way, because the noise is in m too:

    target = h + max(½, 1 − θ/|m − n h|) (m/n − h),
    weights in q times target/h, the others times (1 − target)/(1 − h).

A question that fewer than 50 rows hold for is given some more first: rows of the belief, changed where they must be.
A table is moved cell by cell likewise, and its cells then share what is left. A query that gives rows numbers q(x)
between 0 and 1 (a mean, a cut with weights, a distance) is moved by the same rule for all of them,

    weights times 1 + λ (q(x) − h),   λ = (target − h)/Var q,

which for 0 and 1 are the two factors above. Some weight may lie on no row at all: on records that nobody has named.

Weights are whole numbers, sums are exact, and a weight is changed by one multiplication and one rounding, so that the
same measurements make the same belief, byte for byte, on any machine. Nothing here sees private data.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.group import NotProducts
from dualquery.queries.kept_columns import KeptColumns, add_weights
from dualquery.queries.language.formula import Literal, Query
from dualquery.queries.question import Question
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits
from dualquery.types import Flags, Integers, Reals


def changed_to_hold(
    rows: NDArray[np.uint32], query: Query, domain: Domain, *, holds: bool
) -> NDArray[np.uint32]:
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


def changed_to_lie_in(rows: NDArray[np.uint32], table: Question, cells: Integers) -> NDArray[np.uint32]:
    """Row i, moved into the cell cells[i] of a table."""
    rows = rows.copy()
    for j, codes in zip(table.members, np.unravel_index(cells, table.shape), strict=True):
        rows[:, j] = codes
    return rows


def _truth(rows: NDArray[np.uint32], literal: Literal) -> Flags:
    return np.isin(rows[:, literal.attribute], literal.values) != literal.negated


def _make(
    rows: NDArray[np.uint32], places: NDArray[np.intp], literal: Literal, domain: Domain, holds: bool
) -> None:
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
MASK = (1 << 20) - 1
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

    def __init__(self, records: Records, weights: Integers | None = None, *, rest: int = 0) -> None:
        """Equal weights where none are given; `rest` lies on no row, and no question holds for it."""
        self._columns = KeptColumns(records)
        self._weights = np.full(records.rows, ONE, np.int64) if weights is None else weights
        self._rest = rest
        self._total = int(self._weights.sum()) + rest

    @property
    def rows(self) -> int:
        return len(self._weights)

    @property
    def total(self) -> int:
        return self._total

    def mass(self, question: Question) -> Integers:
        """The weight of the rows that a question, or each cell of its table, holds for, in part where it does."""
        if question.other is None:
            return self._columns.mass(question.group, self._weights)
        return np.array([self._sum(self._columns.given(question.group)) // question.group.unit], np.int64)

    def _sum(self, numbers: Integers) -> int:
        """Σ weight · number, exactly, of numbers below 2²¹: weights have up to 60 bits, of which 20 at a time."""
        parts = [int(((self._weights >> shift) & MASK) @ numbers) << shift for shift in (0, 20, 40)]
        return sum(parts)

    def fractions(self, question: Question) -> Reals:
        return self.mass(question) / self._total

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._weights.astype("<i8").tobytes())
        if self._rest:
            digest.update(b"%d" % self._rest)
        for codes in self._columns.records.columns:
            if isinstance(codes, SparseItems):
                digest.update(codes.start.astype("<i8").tobytes() + codes.ids.astype("<i8").tobytes())
            elif isinstance(codes, BitItems):
                digest.update(unpack_bits(codes.words, self.rows).tobytes())
            else:
                digest.update(codes.astype("<i8").tobytes())
        return digest.hexdigest()

    def hear(self, measured: MeasuredQuestion) -> None:
        if measured.question.is_table:
            self._hear_table(measured)
        elif measured.question.other is not None:
            self._hear_numbers(measured, measured.question.other)
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
        chosen = self._columns.given(measured.question.group) == 1
        self._multiply(np.where(chosen, inside, outside))

    def _hear_numbers(self, measured: MeasuredQuestion, query: NotProducts) -> None:
        """1 + λ(q − h) for all rows, with Var q = E q² − h² in whole numbers."""
        mass = int(self.mass(measured.question)[0])
        target = self._target(mass, measured, measured.noisy[0])
        if target is None:
            return
        self._support_numbers(query, target, more=target * self._total > mass)
        numbers, unit, total = self._columns.given(query), query.unit, self._total
        believed = Fraction(self._sum(numbers), unit * total)
        high, low = np.divmod(numbers * numbers, MASK + 1)
        squares = Fraction((self._sum(high) << 20) + self._sum(low), unit**2 * total)
        spread = squares - believed**2
        if spread <= 0:
            return
        rate = (target - believed) / spread
        factors = float(1 - rate * believed) + float(rate / unit) * numbers
        self._rest = max(round(self._rest * max(float(1 - rate * believed), 0.0)), min(self._rest, 1))
        self._multiply(np.maximum(factors, 0.0))

    def _support_numbers(self, query: NotProducts, target: Fraction, *, more: bool) -> None:
        """Enough rows on the side that is to grow, of those that the query itself can name."""
        numbers, level = self._columns.given(query), query.unit * float(target)
        beyond = int(((numbers > level) if more else (numbers < level)).sum())
        if beyond < SUPPORT and query.domain.width * SUPPORT <= _WIDEST:
            self._append(query.changed(self._columns.records.take(self._places(SUPPORT)), more=more))

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

    def _multiply(self, factors: Reals) -> None:
        """Each weight times its factor, rounded; no row is lost for ever."""
        self._weights = np.maximum(np.rint(self._weights * factors), 1).astype(np.int64)
        self._total = int(self._weights.sum()) + self._rest

    def _support_query(self, question: Question, *, holds: bool) -> None:
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
        return self._columns.records.take(self._places(number)).to_rows()

    def _places(self, number: int) -> Integers:
        """Rows of the belief, evenly spaced in weight."""
        held = self._total - self._rest
        steps = (2 * np.arange(number if self.rows else 0, dtype=np.int64) + 1) * (held // (2 * number))
        return np.searchsorted(np.cumsum(self._weights), steps, side="right")

    def _add(self, rows: NDArray[np.uint32]) -> None:
        self._append(Records.from_rows(self._columns.records.domain, rows))

    def _append(self, more: Records) -> None:
        self._columns = KeptColumns(self._columns.records.with_more(more))
        self._weights = np.concatenate([self._weights, np.full(more.rows, ONE, np.int64)])
        self._total = int(self._weights.sum()) + self._rest


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
        numbers, unit = self._numbers(measured.question, measured.cell), measured.question.group.unit
        levels, which = (np.arange(2), numbers) if unit == 1 else np.unique(numbers, return_inverse=True)
        held = np.zeros(len(levels), np.int64)
        add_weights(which, self._weights, held)
        losses = levels.tolist() if too_high else (unit - levels).tolist()
        # Powers in decimals are the same on any machine.
        factors = [float(Decimal(self._factor) ** (Decimal(loss) / unit)) for loss in losses]
        scale = WHOLE / math.fsum(
            weight * factor for weight, factor in zip(held.tolist(), factors, strict=True)
        )
        self._multiply((np.array(factors) * scale)[which])

    def _numbers(self, question: Question, cell: int) -> Integers:
        if question.is_table:
            return (self._columns.cells(question.group) == cell).astype(np.int64)  # type: ignore[arg-type]
        return self._columns.given(question.group)
