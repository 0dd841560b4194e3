"""What the charges of a book come to where it keeps a calendar: releases of different periods do not add up.

A record belongs to one period c (`table.persons`). Its cost is spent(c), the sum of the charges that cover c, because
of the joint law of all releases only the factors that read c change with it: the whole sequence is (max ρ_c)-zCDP,
adaptively and for ever (docs/privacy.md). The cap is on the largest spent(c).

*Persons.* Where a person's records are protected, at most K of each release, one with records in at most L periods
costs at most the sum of the L largest spent(c); a release of all periods keeps K of them in all, and counts once.
Where one record is protected, a person with a record in each of several periods costs, in a release that reads them
all at u_c each, (Σ √u_c)² as ρ and Σ u_c as ε (group privacy); releases add up.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dualquery.errors import DataError, LedgerError
from dualquery.table.persons import Calendar

Parts: TypeAlias = Mapping[int, int]  # what a charge costs the records of each period


@dataclass(frozen=True)
class PeriodCost:
    """Units for the records of each period in `parts`, or `whole` for those of all periods there are."""

    whole: int
    parts: Parts

    @property
    def largest(self) -> int:
        return max(self.parts.values(), default=self.whole)

    def written(self, calendar: Calendar) -> str:
        """`2024-Q1..2024-Q3=500, 2024-Q4=1000`; nothing for all periods."""
        runs: list[list[int]] = []
        for period, units in sorted(self.parts.items()):
            if runs and runs[-1][1:] == [period - 1, units]:
                runs[-1][1] = period
            else:
                runs.append([period, period, units])
        ends = [(calendar.label(first), calendar.label(last), units) for first, last, units in runs]
        return ", ".join(f"{a if a == b else f'{a}..{b}'}={units}" for a, b, units in ends)

    @staticmethod
    def read(text: str, units: int, calendar: Calendar | None) -> PeriodCost:
        """The cost of a line; LedgerError where its periods mean nothing."""
        if not text:
            return PeriodCost(units, {})
        try:
            if calendar is None:
                raise ValueError("no calendar")
            parts: dict[int, int] = {}
            for each in text.split(", "):
                named, _, number = each.partition("=")
                parts.update(calendar.span(named).parts(int(number)))
            cost = PeriodCost(0, parts)
            if min(parts.values()) < 0 or cost.largest < 1 or cost.written(calendar) != text:
                raise ValueError("written by somebody else")
        except (ValueError, DataError):
            raise LedgerError(
                "a charge of this book names no period of its calendar; restore a copy"
            ) from None
        return cost


@dataclass
class PeriodsSpent:
    """What all charges so far cost whoever they cost most: a record, or a person in so many periods."""

    periods: int = 1  # L
    whole: int = 0
    cells: Counter[int] = field(default_factory=Counter)

    @property
    def most(self) -> int:
        largest = self.cells.values()
        return self.whole + (
            max(largest, default=0) if self.periods == 1 else sum(heapq.nlargest(self.periods, largest))
        )

    def add(self, cost: PeriodCost) -> int:
        """Charge; by how much the most grew."""
        before = self.most
        self.whole += cost.whole
        self.cells.update(cost.parts)
        return self.most - before


def of_person(costs: Sequence[PeriodCost], length: int, *, persons: bool, squared: bool) -> int:
    """What all charges cost a person with records in any `length` consecutive periods, rounded up.

    `persons`: a person is what the book protects. Otherwise each period has one record of theirs, and `squared` says
    that the units are ρ. The dearest window begins at the first period of a charge, or ends at a last one.
    """
    ends = {edge for each in costs if each.parts for edge in (min(each.parts), max(each.parts) - length + 1)}
    return max(_in_window(costs, start, length, persons, squared) for start in ends or {0})


def _in_window(costs: Iterable[PeriodCost], start: int, length: int, persons: bool, squared: bool) -> int:
    total = 0
    for cost in costs:
        if persons:
            inside = [u for c, u in cost.parts.items() if start <= c < start + length]
            total += cost.whole + max(inside, default=0)
            continue
        inside = [u for c, u in cost.parts.items() if start <= c < start + length] + [cost.whole] * length
        total += _root_sum_squared(inside) if squared else sum(inside)
    return total


def _root_sum_squared(units: Sequence[int]) -> int:
    """(Σ √u)², rounded up: equal ones exactly."""
    found = 0.0
    alike = Counter(unit for unit in units if unit)
    if len(alike) <= 1:
        return sum(unit * number**2 for unit, number in alike.items())
    found = sum(number * math.sqrt(unit) for unit, number in alike.items())
    return math.ceil(found**2 * (1 + 1e-12))
