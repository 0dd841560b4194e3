"""The curator of mechanisms that choose one query, or one table, a round and perhaps measure it.

Selection of a query
    Precondition   public answers of a hypothesis, in fractions of 2^-F of a record.
    Score          c_q = 2^F · count_q − offset_q for the query and −c_q for its negation, so that the larger
                   of the two is |c_q|: the score of MWEM, and the closure under negation of PMW.
    Range          of the log-weights between neighbours, per unit of rate and 2^F: a replaced record moves
                   a count by at most 1 either way, hence 2. An added record raises the query or its
                   negation by 1 and lowers neither, hence 1.

Selection of a table
    Score          s_t = Σ_cells |2^F · count − offset| − penalty_t, the penalty public.
    Range          |·| is 1-Lipschitz, and a neighbour moves `cells_moved` cells of each table by 1; the
                   score moves by at most that either way, hence 2 · cells_moved.

Measurement of a query
    Value          count(q) − count(¬q) = 2 · count_q − rows, to which every record contributes +1 or −1.
    Sensitivity    1 where a record is added or removed, 2 where it is replaced. Half of this difference
                   tells the count in a table of known length, and where a record is added or removed with
                   half the noise that the count itself would need.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, rho_of
from dualquery.privacy.curator import Curator, Gaussian, Laplace
from dualquery.privacy.events import GaussianNoise, LaplaceNoise, Selection
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import discrete_gaussian, discrete_laplace
from dualquery.privacy.selection import SLACK, Candidates, PublicScores, Rate, draw
from dualquery.queries.query import Tables
from dualquery.queries.workload import Workload

TOO_SMALL = "the budget is too small for this many rounds; use fewer rounds or a larger epsilon"
FRACTION_BITS = 10  # answers of a hypothesis are told to a thousandth of a record


@dataclass(frozen=True)
class Sensitivity:
    """How far neighbours can move some integers: the sum of the moves, and the sum of their squares."""

    l1: int
    l2_squared: int

    @staticmethod
    def of_query(neighbours: Neighbours) -> Sensitivity:
        """Of count(q) − count(¬q): one number."""
        moved = 1 if neighbours is Neighbours.ADD_REMOVE else 2
        return Sensitivity(moved, moved**2)

    @staticmethod
    def of_table(neighbours: Neighbours) -> Sensitivity:
        """Of the cells of one table, of which some move by one."""
        return Sensitivity(neighbours.cells_moved, neighbours.cells_moved)


@dataclass(frozen=True)
class Price:
    """What one selection and one measurement may cost each: pure ε, or ρ. One of them is given."""

    pure: Fraction | None
    rho: Fraction | None

    def selection_range(self) -> Fraction:
        """The range of log-weights that a selection may have: ε, or √(8ρ) rounded down."""
        if self.pure is not None:
            return self.pure
        assert self.rho is not None
        return _root_below(8 * self.rho)

    def noise(self, sensitivity: Sensitivity) -> Gaussian | Laplace:
        """Laplace noise of scale Δ₁/ε, or Gaussian noise of variance Δ₂²/(2ρ)."""
        if self.pure is not None:
            return Laplace(sensitivity.l1 / self.pure)
        assert self.rho is not None
        return Gaussian(sensitivity.l2_squared / (2 * self.rho))


def equal_prices(budget: Budget, events: int, share: Fraction = Fraction(1)) -> Price:
    """The price of each of `events` selections or measurements that together cost a share of the budget.

    The ledger rounds every charge up to a unit, so each price is a whole number of units, less one.
    """
    if budget.accounting is Accounting.PURE:
        return Price(_whole_units(decimal(budget.epsilon) * share / events), None)
    if budget.accounting is Accounting.ZCDP:
        total = rho_of(epsilon=budget.epsilon, delta=budget.delta)
        return Price(None, _whole_units(total * share / events))
    raise BudgetError(
        f"this mechanism is paid for by pure or by zcdp accounting, not by {budget.accounting.value}; "
        "choose one of these"
    )


class ChoosingCurator(Curator):
    """A curator of one workload whose queries are chosen and measured one by one."""

    @classmethod
    def of(cls, curator: Curator, workload: Workload) -> ChoosingCurator:
        """The same records, ledger and entropy, asked about another workload."""
        return cls(curator._records, workload, curator._ledger, curator._entropy, progress=curator._progress)

    def choose_query(
        self, answers: NDArray[np.float64], *, among: NDArray[np.int64], public_rows: int, price: Price
    ) -> tuple[int, bool]:
        """One of the queries `among`, preferably one that the public answers (fractions) get wrong.

        Says too whether its negation was drawn, which is likely where the answer is too high.
        """
        repeats = 1 << FRACTION_BITS
        width = 1 if self.neighbours is Neighbours.ADD_REMOVE else 2
        offsets = np.rint(repeats * public_rows * answers[among]).astype(np.int64)
        scores = PublicScores(repeats, 1, offsets, Candidates.SIGNED)
        rate = _rate(price, width * repeats, 4 * repeats * public_rows)
        self._ledger.charge(Selection(width * repeats * rate.nats + SLACK, 1))
        surplus = repeats * (self._records.rows - public_rows)
        drawn = draw(
            self._counts()[among], scores, rate=rate, surplus=surplus, draws=1, entropy=self._entropy
        )
        return int(among[drawn.queries[0]]), bool(drawn.negated[0])

    def choose_table(
        self,
        answers: NDArray[np.float64],
        *,
        among: NDArray[np.int64],
        penalties: NDArray[np.float64],
        public_rows: int,
        price: Price,
    ) -> int:
        """One of the tables `among`, by its summed absolute error less its penalty (in records)."""
        tables = self._tables()
        repeats = 1 << FRACTION_BITS
        offsets = np.rint(repeats * public_rows * answers).astype(np.int64)
        width = 2 * self.neighbours.cells_moved
        # A public constant makes every score positive; it changes no probability.
        fixed = np.rint(repeats * penalties).astype(np.int64)
        fixed -= fixed.max()
        rate = _rate(price, width * repeats, 4 * repeats * public_rows + int(-fixed.min()))
        self._ledger.charge(Selection(width * repeats * rate.nats + SLACK, 1))
        wrong = np.add.reduceat(np.abs(repeats * self._counts() - offsets), tables.starts[:-1])
        scores = PublicScores(1, 1, fixed, Candidates.ABSOLUTE)
        drawn = draw(wrong[among], scores, rate=rate, surplus=0, draws=1, entropy=self._entropy)
        return int(among[drawn.queries[0]])

    def measure_query(self, query: int, *, public_rows: int, price: Price) -> float:
        """The fraction of a query, from a noisy count(q) − count(¬q)."""
        fresh = self._noise(1, Sensitivity.of_query(self.neighbours), price)
        balance = 2 * int(self._counts()[query]) - self._records.rows + int(fresh[0])
        return (public_rows + balance) / (2 * public_rows)

    def measure_table(self, table: int, *, public_rows: int, price: Price) -> NDArray[np.float64]:
        """The fractions of all cells of a table, each with noise of its own."""
        starts = self._tables().starts
        cells = slice(int(starts[table]), int(starts[table + 1]))
        fresh = self._noise(cells.stop - cells.start, Sensitivity.of_table(self.neighbours), price)
        return (self._counts()[cells] + fresh) / public_rows

    def _noise(self, size: int, sensitivity: Sensitivity, price: Price) -> NDArray[np.int64]:
        """Fresh noise, paid for."""
        noise = price.noise(sensitivity)
        if isinstance(noise, Gaussian):
            self._ledger.charge(GaussianNoise(Fraction(sensitivity.l2_squared), noise.variance))
            return discrete_gaussian(size, variance=noise.variance, entropy=self._entropy)
        self._ledger.charge(LaplaceNoise(Fraction(sensitivity.l1), noise.scale))
        return discrete_laplace(size, scale=noise.scale, entropy=self._entropy)

    def _counts(self) -> NDArray[np.int64]:
        self.count()
        assert self._true_counts is not None
        return self._true_counts

    def _tables(self) -> Tables:
        (tables,) = self._workload.groups
        assert isinstance(tables, Tables)
        return tables


def _rate(price: Price, width: int, largest: int) -> Rate:
    """The finest rate at which a selection whose scores move by `width` stays within its price."""
    nats = (price.selection_range() - SLACK) / width
    rate = Rate.below(float(nats) * (1 - 1e-15), largest)
    if nats <= 0 or rate.multiplier == 0:
        raise BudgetError(TOO_SMALL)
    return rate


def _whole_units(cost: Fraction) -> Fraction:
    whole = cost * UNITS // 1 - 1
    if whole < 1:
        raise BudgetError(TOO_SMALL)
    return Fraction(int(whole), UNITS)


def _root_below(square: Fraction) -> Fraction:
    """A rational at most √square, to ten digits."""
    root = Fraction(float(square) ** 0.5) * (1 - Fraction(1, 10**10))
    assert root * root <= square
    return root
