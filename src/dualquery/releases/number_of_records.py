"""The number of records, as the public knows it: the table's own, declared, or measured and paid for.

Where it is measured, everything that comes after follows it, sizes and all. So the budget is `adaptive` from the
start, its accounting is a filter, and what is left of it is again a budget of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dualquery.counting.counter import Counter
from dualquery.errors import BudgetError, DataError
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Portion, portion
from dualquery.queries.derived import Multiplied, number_of_records
from dualquery.queries.statistics import Bound, Countable
from dualquery.queries.workload import Workload
from dualquery.releases.certificate import RowsFrom
from dualquery.table.domain import Domain

SHARE_FOR_ROWS = Fraction(1, 100)  # of the budget, where the number of records must be measured
TOO_SMALL = "the budget is too small to measure the number of records; declare it as public (--records)"


@dataclass(frozen=True)
class KnownRows:
    """The number of records as the public knows it, how, and the budget left for the mechanism."""

    rows: int
    source: RowsFrom
    left: Budget
    variance: float | None = None  # of the noise with which it was measured

    def task(self, workload: Workload, *, places: bool) -> Task:
        """What is left to do; `places` as the task has it."""
        return Task(workload, self.rows, self.left, self.variance, places)


@dataclass(frozen=True)
class PricedRows(Portion):
    """Noise for so many times the number of records, and the budget that is left after it."""

    def statistic(self, domain: Domain) -> Countable:
        rows = number_of_records(domain)
        return rows if self.times == 1 else Multiplied(rows, self.times)

    def step(self, domain: Domain) -> Step:
        moved = self.left.neighbours.sensitivity(self.statistic(domain).bound())
        return Step("measure the number of records", self.noise.event(moved))

    def known(self, rows: int) -> KnownRows:
        """What the public knows when so many were measured."""
        return KnownRows(max(1, rows), RowsFrom.MEASURED, self.left, (self.noise.deviation / self.times) ** 2)


def measures_rows(budget: Budget, declared: int | None) -> bool:
    """Whether the number of records is to be measured: it is no public number, and nobody declared one."""
    return declared is None and not budget.neighbours.size_is_public


def known_rows(curator: Curator, counter: Counter, declared: int | None) -> KnownRows:
    """Under replacement the length of the table is public; otherwise declared, or measured and paid for."""
    budget = curator.ledger.budget
    if budget.neighbours.size_is_public:
        # Between these neighbours the length is no secret, so an error may depend on it.
        if declared is not None and declared != counter.true_rows:
            raise DataError("the declared number of records is not that of the table; leave it out")
        if counter.true_rows == 0:
            raise DataError("the table has no rows")
        return KnownRows(counter.true_rows, RowsFrom.TABLE, budget)
    if declared is not None:
        if declared < 1:
            raise BudgetError("the declared number of records must be at least 1")
        return KnownRows(declared, RowsFrom.DECLARED, budget)
    priced = price_of_rows(budget)
    measured = curator.measure(priced.statistic(counter.domain), noise=priced.noise)
    return priced.known(round(int(measured[0]) / priced.times))


def price_of_rows(budget: Budget) -> PricedRows:
    """Noise for the number of records that costs `SHARE_FOR_ROWS` of a budget, and what is left of it.

    One count, changed by at most Δ between neighbours: 1, or K where a person's K records move together.
    """
    if not budget.adaptive:
        raise BudgetError(
            "what follows a measured number of records has sizes that follow it; the budget must say that (adaptive)"
        )
    # As `number_of_records` has it, of any domain: a record counts as one, and two records count alike.
    moved = budget.neighbours.sensitivity(Bound((1, 1), (0, 0)))
    return PricedRows(**vars(portion(budget, SHARE_FOR_ROWS, moved, TOO_SMALL)))


def shared_rows(counter: Counter, neighbours: Neighbours) -> int | None:
    return counter.true_rows if neighbours.size_is_public else None
