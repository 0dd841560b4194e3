"""A table that grows: one release for each period of a calendar, and what all of them say together.

What a release has measured is paid for and public, so the noisy tables of several periods may be added up: cells add,
and so do the variances of their noise. Rows fitted to such a sum are a release of all these periods, free of charge,
and the prior from which the next release starts (`fitting.prior`).

A set of attributes that only some of the periods have measured, y_S in n_S of the n records, is taken as (n/n_S) y_S,
with the variance (n/n_S)² V_S + r² (1/n_S + 1/r)/cells: the noise, and the chance by which the other r = n − n_S
records differ.

Releases lie in one folder, one folder each, by the names of their periods. A release is charged to the book before it
is drawn, and stands in its place whole or not at all: whatever is killed at any moment leaves the others as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualquery.errors import DataError, DualQueryError, ReleaseError
from dualquery.fitting.fitter import Effort, Rows
from dualquery.fitting.inside import WITHIN
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.ledger.book import Place
from dualquery.ledger.books import Books
from dualquery.mechanisms.artefact import SyntheticRecords, usual_rows
from dualquery.mechanisms.outcomes import finished_records
from dualquery.privacy.budget import Budget
from dualquery.releases.arguments import GivenSchema, GivenWorkload, schema_from
from dualquery.releases.certificate import Certificate, PredictedError, RowsFrom
from dualquery.releases.folder import load, read_certificate, refuse_occupied, save
from dualquery.releases.make import release
from dualquery.releases.measurements import listed
from dualquery.releases.refit import fit_usual, measured_tables, with_bars
from dualquery.releases.release import Release
from dualquery.releases.seal import CERTIFICATE
from dualquery.table.periods import Calendar, Span
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.types import Progress, no_progress, silent

try:
    import fcntl
except ImportError:  # not posix: the book alone says who came first
    fcntl = None  # type: ignore[assignment]

_ITS_OWN = ("book", "prior", "trust", "check", "accepted", "seal", "signature", "files")  # of one release


class Series:
    """The releases of a table that grows.

    `ledger` is a ledger with a book for the dataset, `schema` has a `period` and a `calendar`, and `folder` is where
    the releases lie (by default beside the ledger). Without a ledger (None) nothing can be appended.
    """

    def __init__(
        self,
        ledger: Place | None,
        schema: GivenSchema,
        folder: str | os.PathLike[str] | None = None,
        *,
        dataset: str | None = None,
        workload: GivenWorkload = "marginals:2",
    ) -> None:
        self.schema = schema_from(schema)
        self._calendar = _calendar_of(self.schema.calendar)
        self._ledger, self._dataset, self._workload = ledger, dataset, workload
        if folder is None and (ledger is None or "://" in os.fspath(ledger)):
            raise DataError("name the folder of the series: only a ledger in a file has one beside it")
        self.folder = Path(f"{os.fspath(ledger or '')}.series" if folder is None else folder)

    @staticmethod
    def opened(folder: str | os.PathLike[str]) -> Series:
        """The series in a folder, to be asked."""
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
        if self._ledger is None:
            raise DataError("name the ledger that is charged with the release of each period")
        span, tell = self._next(period, self._ledger), progress or silent
        place = self.folder / str(span)
        with _alone(place):
            refuse_occupied(place)
            before = [load(self.folder / str(each)) for each in self._spans() if each != span]
            made = release(
                table,
                schema=self.schema,
                workload=self._workload,
                budget=budget,
                ledger=self._ledger,
                dataset=self._dataset,
                period=str(span),
                prior=summed(before, span.calendar, bars=False) if before else None,
                progress=tell,
                **options,
            )
            save(made, place)
        return made

    @property
    def current(self) -> Release:
        """The release of the last period."""
        return load(self.folder / str(self._some()[-1]))

    def between(self, first: str, last: str | None = None, *, progress: Progress | None = None) -> Release:
        """What the releases from one period to another say together: a release of all of them. Free."""
        wanted = self._calendar.span(first if last is None else f"{first}..{last}")
        spans = [each for each in self._spans() if wanted.first <= each.first and each.last <= wanted.last]
        if sum(each.length for each in spans) < wanted.length:
            raise DataError(f"not all of {wanted} has been released; there is {self._listed()}")
        return summed([load(self.folder / str(each)) for each in spans], self._calendar, progress=progress)

    def so_far(self, *, bars: bool = True, progress: Progress | None = None) -> Release:
        """The same of all periods that have been released; rows come sooner without `bars`."""
        loaded = [load(self.folder / str(each)) for each in self._some()]
        return summed(loaded, self._calendar, bars=bars, progress=progress)

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

    def _listed(self) -> str:
        return ", ".join(self.periods) or "nothing yet"

    def _next(self, period: str | None, ledger: Place) -> Span:
        """The period that is named; otherwise that after the last one that was charged, released or not."""
        if period is not None:
            return self._calendar.span(period)
        charged = Books(ledger).read(self._dataset).costs
        ends = [max(each.parts) for each in charged if each.parts] + [each.last for each in self._spans()]
        if not ends:
            raise DataError("name the first period of the series, like 2024-Q1")
        return Span(self._calendar, max(ends) + 1, max(ends) + 1)


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
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ReleaseError(f"{place.name} is being appended already; nothing was charged") from None
            yield
    except OSError as error:
        raise ReleaseError(f"'{place}' cannot be written: {error.strerror}; look at its folder") from None


def added(parts: Sequence[MeasuredTables]) -> MeasuredTables:
    """The noisy tables of different records as those of all."""
    domain = parts[0].domain
    total = sum(float(each.interactions[()]) for each in parts)
    whole = MeasuredTables.rows(domain, total, sum(each.variance[()] for each in parts))
    told = []
    for members in dict.fromkeys(s for each in parts for s in each.interactions if s):
        mine = [each for each in parts if members in each.interactions]
        cells = sum((each.interactions[members] for each in mine), np.zeros(()))
        variance = sum(each.variance[members] for each in mine)
        here = sum(each.total for each in mine)
        if (rest := max(0.0, whole.total - here)) and len(mine) < len(parts):
            cells, variance = cells * (whole.total / here), variance * (whole.total / here) ** 2
            variance += rest**2 * (1 / here + 1 / rest) / cells.size
        told.append(Measured(members, cells, variance))
    return whole.joined(told)


def _added_inside(releases: Sequence[Release]) -> tuple[Measured, ...]:
    """Sums inside bins, of columns that all releases have measured."""
    found: dict[Numbers, list[Measured]] = {}
    for each in releases:
        for one in each.measured:
            if isinstance(one.what, Numbers) and one.what.kind == WITHIN:
                found.setdefault(one.what, []).append(one)
    return tuple(
        Measured(what, sum((e.values for e in each), np.zeros(())), sum(e.variance for e in each))
        for what, each in found.items()
        if len(each) == len(releases)
    )


def summed(
    releases: Sequence[Release],
    calendar: Calendar,
    *,
    bars: bool = True,
    progress: Progress | None = None,
) -> Release:
    """The release of all periods of several releases, fitted to the sum of what they have measured."""
    domain, rng, tell = releases[0].domain, np.random.default_rng(0), progress or silent
    if any(each.domain != domain for each in releases):
        raise DualQueryError("the releases were made with different schemas, and do not add up")
    known, inside = added([measured_tables(each) for each in releases]), _added_inside(releases)
    number = max(1, round(known.total))
    effort = Effort.of(usual_rows(number))
    rows = fit_usual(known, effort, rng, partial(tell, "fitting rows to the sum"))
    if bars:

        def again(other: MeasuredTables, short: Effort) -> Rows:
            return fit_usual(other, short, rng, no_progress)

        found = with_bars(known, rows, inside, number, effort, rng, tell, again)
        artefact, replicas, said = found.artefact, found.replicas, found.to_json()
    else:
        records = finished_records(Records.from_rows(domain, rows), inside, number, rng)
        artefact, replicas = SyntheticRecords(records), ()
        said = {
            "synthetic_rows": records.rows,
            "replicas": {"number": 0, "records": number, "seed": 0},
            "predicted_error": PredictedError(None, None).to_json(),
        }
    kept = (*known.kept, *inside)
    certificate = _certificate(releases, calendar, number, {**said, "measured": listed(domain, kept)})
    return Release(certificate, domain, artefact, replicas, kept)


def _certificate(
    releases: Sequence[Release], calendar: Calendar, number: int, found: dict[str, Any]
) -> Certificate:
    """A record is in one of the periods, so the dearest release says what it may lose."""
    dearest = max(releases, key=lambda each: float(each.certificate["spent"]["epsilon"])).certificate
    data = {name: value for name, value in json.loads(dearest.to_json()).items() if name not in _ITS_OWN}
    spans = [calendar.span(each.certificate["period"]["periods"]) for each in releases]
    whole = Span(calendar, min(each.first for each in spans), max(each.last for each in spans))
    private = all(each.certificate.private for each in releases)
    seeded = next((each.certificate["entropy"] for each in releases if not each.certificate.private), None)
    return Certificate.of(
        {
            **data,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **({} if private or seeded is None else {"entropy": seeded}),
            "records": {"rows": number, "from": RowsFrom.MEASURED.value},
            **found,
            "rows_for_people": number,
            "period": {**data["period"], "periods": str(whole)},
            "notes": [
                f"fitted to the sum of what the releases of {len(releases)} periods have measured, which is free; "
                "the costs are those of the dearest of them"
            ],
            "files": {},
        }
    )
