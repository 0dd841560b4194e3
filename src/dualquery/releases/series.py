"""A table that grows: one release for each period of a calendar, and what all of them say together.

What they say together is in `releases.sums`.

Releases lie in one folder, one folder each, by the names of their periods. A release is charged to the book before it
is drawn, and stands in its place whole or not at all: whatever is killed at any moment leaves the others as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dualquery.errors import BudgetError, DataError, ReleaseError
from dualquery.ledger.book import Place
from dualquery.ledger.books import Books
from dualquery.privacy.accounting import rho_cap
from dualquery.privacy.budget import PARTS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import UNITS, epsilon_of, rho_units_of
from dualquery.releases.arguments import GivenSchema, GivenWorkload, schema_from
from dualquery.releases.folder import load, locked, read_certificate, refuse_occupied, save
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.releases.seal import CERTIFICATE
from dualquery.releases.sums import is_running, summed
from dualquery.table.persons import Calendar, RunningSpan, Span
from dualquery.table.reading import AnyTable
from dualquery.types import Progress, silent

MOST_KNOWN = 1_000  # periods


class Series:
    """The releases of a table that grows.

    `ledger` is a ledger with a book for the dataset, `schema` has a `period` and a `calendar`, and `folder` is where
    the releases lie (by default beside the ledger). Without a ledger (None) nothing can be appended. With a known
    number of `periods` running totals are more exact, and single periods less (`table.persons.RunningSpan`); the
    budget of each `append` is then that of all of them together.
    """

    def __init__(
        self,
        ledger: Place | None,
        schema: GivenSchema,
        folder: str | os.PathLike[str] | None = None,
        *,
        dataset: str | None = None,
        workload: GivenWorkload = "marginals:2",
        periods: int | None = None,
    ) -> None:
        self.schema = schema_from(schema)
        self._calendar = _calendar_of(self.schema.calendar)
        self._ledger, self._dataset, self._workload = ledger, dataset, workload
        if periods is not None and not 2 <= periods <= MOST_KNOWN:
            raise DataError(f"a known number of periods is a whole number from 2 to {MOST_KNOWN}")
        if periods is not None and (self.schema.unit is not None or self.schema.drops_rows):
            raise DataError(
                "with a known number of periods one record is protected: remove unit from the schema"
            )
        self._known = periods
        if folder is None and (ledger is None or "://" in os.fspath(ledger)):
            raise DataError("name the folder of the series: only a ledger in a file has one beside it")
        self.folder = Path(f"{os.fspath(ledger or '')}.series" if folder is None else folder)

    @staticmethod
    def opened(folder: str | os.PathLike[str]) -> Series:
        known = sorted(Path(folder).glob(f"*/{CERTIFICATE}"))
        if not known:
            raise ReleaseError(
                f"'{folder}' is no series; it is a folder that `dualquery series append` wrote"
            )
        return Series(None, read_certificate(known[0].parent).schema, folder)

    @property
    def periods(self) -> tuple[str, ...]:
        """The periods that have been released, in their order."""
        return tuple(str(span) for span in self._spans())

    def append(
        self,
        table: AnyTable,
        budget: Budget,
        *,
        period: str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Release:
        """Release one more period, by default that after the last: charged first, then drawn, then written.

        Only records of the period are read, whatever the table holds. The release starts from what those before it
        have measured. `options` are those of `dualquery.release`.
        """
        if options.get("totals") is not None:
            raise DataError("totals are for a single release: sums over periods would not meet them")
        if budget.delta == 0:
            raise BudgetError("a series adds up Gaussian noise; use a delta above 0")
        if self._ledger is None:
            raise DataError("name the ledger that is charged with the release of each period")
        span, tell = self._next(period, self._ledger), progress or silent
        place = self.folder / self._calendar.label(span.last)
        with _alone(place):
            refuse_occupied(place)
            before = self._loaded()
            running = isinstance(span, RunningSpan)
            budget = step_budget(budget, self._known or 0) if running else budget
            _refuse_another_way(before, budget)
            prior = self._summed(before, bars=False) if before and not running else None
            if running:
                options = {"check": 0, "mechanism": "projection", "shares": "fixed", **options}
            elif (
                before and options.get("mechanism", "projection") == "projection"
            ):  # of all pairs, for the sum
                options = {"mechanism": "projection", "shares": "pairs", **options}
            asked: dict[str, Any] = {"schema": self.schema, "workload": self._workload, "prior": prior}
            asked |= {"ledger": self._ledger, "dataset": self._dataset, "period": span}
            made = release(table, budget=budget, progress=tell, **asked, **options)
            save(made, place)
        return made

    @property
    def current(self) -> Release:
        """The release of the last period."""
        last = self._some()[-1]
        found = self._loaded()[-1]
        return self.between(str(last)) if is_running(found) else found

    def between(
        self, first: str, last: str | None = None, *, bars: bool = True, progress: Progress | None = None
    ) -> Release:
        """What the releases from one period to another say together: a release of all of them. Free.

        Rows come sooner without `bars`.
        """
        wanted, there = self._calendar.span(first if last is None else f"{first}..{last}"), self._some()
        inside = [each for each in there if wanted.first <= each.first and each.last <= wanted.last]
        if sum(each.length for each in inside) < wanted.length:
            raise DataError(f"not all of {wanted} has been released; there is {', '.join(self.periods)}")
        found = self._loaded()
        if is_running(found[0]):
            return self._summed(found, wanted, bars=bars, progress=progress)
        some = [each for each, span in zip(found, there, strict=True) if span in inside]
        return self._summed(some, bars=bars, progress=progress)

    def so_far(self, *, bars: bool = True, progress: Progress | None = None) -> Release:
        """The same of all periods that have been released; what was killed after its charge leaves a gap."""
        there, found = self._some(), self._loaded()
        if not is_running(found[0]):
            return self._summed(found, bars=bars, progress=progress)
        ends = self._calendar.label(there[0].first), self._calendar.label(there[-1].last)
        return self.between(*ends, bars=bars, progress=progress)

    def _loaded(self) -> list[Release]:
        return [load(self.folder / str(each)) for each in self._spans()]

    def _summed(
        self,
        releases: Sequence[Release],
        wanted: Span | None = None,
        *,
        bars: bool = True,
        progress: Progress | None = None,
    ) -> Release:
        return summed(releases, self._calendar, wanted=wanted, bars=bars, progress=progress)

    def _spans(self) -> list[Span]:
        found = []
        if self.folder.is_dir():
            for each in self.folder.iterdir():
                with suppress(DataError):
                    if (each / CERTIFICATE).is_file():
                        found.append(self._calendar.span(each.name))
        return sorted(found, key=lambda span: (span.first, span.last))

    def _some(self) -> list[Span]:
        if not (found := self._spans()):
            raise ReleaseError(f"nothing has been released in '{self.folder}' yet; append a period")
        return found

    def _next(self, period: str | None, ledger: Place) -> Span:
        """The period that is named; otherwise the first after the last of the series that was not charged yet."""
        if self._known is not None:
            return self._next_known(period, self._known)
        if period is not None:
            return _single(self._calendar.span(period))
        charged = {part for each in Books(ledger).read(self._dataset).costs for part in each.parts}
        if not (there := {each.last for each in self._spans()} or charged):
            raise DataError("name the first period of the series, like 2024-Q1")
        after = max(there) + 1
        while after in charged:
            after += 1
        return Span(self._calendar, after, after)

    def _next_known(self, period: str | None, number: int) -> RunningSpan:
        """One after the other, from the first to the last of a known number: each total needs those before it."""
        there = self._spans()
        named = None if period is None else self._calendar.span(period)
        if not there and named is None:
            raise DataError("name the first period of the series, like 2024-Q1")
        if named is not None:
            _single(named)
        first = there[0].first if there else named.first if named is not None else 0
        last = there[-1].last + 1 if there else first
        if named is not None and named.last != last:
            raise DataError(f"the next period of this series is {self._calendar.label(last)}")
        if last - first >= number:
            raise DataError(f"this series has {number} periods, and all have been released; begin another")
        return RunningSpan(self._calendar, first, last, PARTS)


def _refuse_another_way(before: Sequence[Release], step: Budget) -> None:
    """A known number of periods is known from the first on, and so is what each of them costs."""
    running = step.neighbours == Neighbours.IN_PARTS
    for each in before[-1:]:
        if is_running(each) != running or (running and each.certificate["budget"]["epsilon"] != step.epsilon):
            raise DataError(
                "this series was begun with another number of periods, or another budget for all of them; give the "
                "same --periods and --epsilon every time"
            )


def _single(span: Span) -> Span:
    if span.length > 1:
        raise DataError(f"the periods of a series come one by one; name a single {span.calendar.by}")
    return span


def step_budget(budget: Budget, periods: int) -> Budget:
    """What each of so many running totals may cost, such that all together cost a record no more than the budget.

    A record of the first period pays Σ_k (R_k/N)² times what a step pays, every other less.
    """
    if budget.neighbours != Neighbours.ADD_REMOVE or budget.delta == 0:
        raise BudgetError("with a known number of periods use --neighbours add-remove, and a delta above 0")
    whole = rho_cap(replace(budget, accounting=Accounting.ZCDP)) - periods  # a unit a step, for rounding up
    weights = RunningSpan(Calendar("period", "day"), 0, periods - 1, PARTS).weights().values()
    units = whole * PARTS**2 // sum(w * w for w in weights)
    if units < 1:
        raise BudgetError("the budget is too small for so many periods")
    epsilon = epsilon_of(Fraction(units, UNITS), delta=budget.delta)
    while rho_units_of(epsilon=epsilon, delta=budget.delta) > units:
        epsilon *= 1 - 1e-9
    return Budget(epsilon, budget.delta, Neighbours.IN_PARTS, Accounting.ZCDP)


def _calendar_of(calendar: Calendar | None) -> Calendar:
    if calendar is None:
        raise DataError(
            'a series needs a schema with a calendar: period = "received" and calendar = "quarter" in [table]'
        )
    return calendar


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Nobody else appends this period meanwhile; the lock goes with the process, however it ends."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with (place.parent / f".{place.name}.lock").open("w") as file:
            if locked(file.fileno()) is False:
                raise ReleaseError(f"{place.name} is being appended already; nothing was charged")
            yield  # where there are no locks, the book alone says who came first
    except OSError as error:
        raise ReleaseError(f"'{place}' cannot be written: {error.strerror}; look at its folder") from None
