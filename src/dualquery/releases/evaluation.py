"""How far a release is from the truth. For the curator's eyes: nothing computed here is private.

Errors are absolute differences of fractions, |q(D) − q(release)|, over the queries of a workload as they
stand (the error of a negated query is the same), every cell of a table being a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Counter, MemoryCounter
from dualquery.counting.opening import open_counter
from dualquery.errors import QueryError, ReleaseError
from dualquery.queries.families import from_spec
from dualquery.queries.group import Group
from dualquery.queries.workload import Workload
from dualquery.releases.calling import GivenWorkload, for_callers, workload_from
from dualquery.releases.release import Release
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.source import Source

STAMP = "not private: internal, do not publish"
WORST = 5
_CELLS_AT_ONCE = 8_000_000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class L1Errors:
    """Errors of whole tables: the sum over its cells of the absolute differences of fractions (L1)."""

    tables: int
    mean_l1: float
    max_l1: float


@dataclass(frozen=True)
class WorstQuery:
    """A query with one of the largest errors."""

    query: str
    truth: float
    answer: float


@dataclass(frozen=True)
class Evaluation:
    """Errors of a release over a workload, as fractions of the table."""

    max_error: float
    mean_error: float
    rms_error: float
    median_error: float
    percentile_95_error: float
    queries: int
    rows: int
    synthetic_rows: int | None
    workload: str
    predicted_mean_error: float | None
    predicted_max_error: float | None
    tables: L1Errors | None
    worst: tuple[WorstQuery, ...]
    stamp: str = STAMP

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@for_callers
def evaluate(
    release: Release,
    table: Source | Records | Counter,
    workload: GivenWorkload | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
) -> Evaluation:
    """Compare a release with the table that it was made from, over its own workload or another."""
    if not isinstance(release, Release):
        raise ReleaseError("give the release first, and the table that it was made from second")
    asked = workload_of(release, workload)
    errors = np.empty(asked.size, np.float64)
    per_table: list[NDArray[np.float64]] = []
    worst: list[tuple[float, int, float, float]] = []
    begin = 0
    counter = _counter(table, release.certificate.schema, progress)
    for group in _in_parts(asked):
        progress("comparing", begin, asked.size)
        truth = counter.true_counts(group) / (group.unit * counter.true_rows)
        answers = release.artefact.fractions(group)
        part = np.abs(truth - answers)
        errors[begin : begin + group.size] = part
        tables = group.table_starts()
        if tables is not None:
            per_table.append(np.add.reduceat(part, tables[:-1]))
        for i in np.argsort(part)[::-1][:WORST].tolist():
            worst.append((float(part[i]), begin + i, float(truth[i]), float(answers[i])))
        begin += group.size
    progress("comparing", asked.size, asked.size)
    worst.sort(reverse=True)
    predicted = release.certificate.predicted_error
    return Evaluation(
        max_error=float(errors.max()),
        mean_error=float(errors.mean()),
        rms_error=float(np.sqrt(np.mean(errors**2))),
        median_error=float(np.median(errors)),
        percentile_95_error=float(np.quantile(errors, 0.95)),
        queries=asked.size,
        rows=counter.true_rows,
        synthetic_rows=release.artefact.rows,
        workload=asked.spec,
        predicted_mean_error=predicted.mean,
        predicted_max_error=predicted.maximum,
        tables=_table_errors(per_table),
        worst=tuple(WorstQuery(asked.text(i), truth, answer) for _, i, truth, answer in worst[:WORST]),
    )


def _counter(table: Source | Records | Counter, schema: Schema, progress: Progress) -> Counter:
    if isinstance(table, Records):
        return MemoryCounter(table)
    return table if isinstance(table, Counter) else open_counter(table, schema, tell=progress)


def workload_of(release: Release, workload: GivenWorkload | None) -> Workload:
    """The workload asked for, or that of the release, made again from its SPEC and checked by its digest."""
    if isinstance(workload, Workload):
        if workload.domain != release.domain:
            raise QueryError("the workload was made for another schema than the release")
        return workload
    written = release.certificate["workload"]
    if workload is not None:
        return workload_from(release.domain, workload)
    try:
        again = from_spec(release.domain, written["spec"])
    except QueryError:
        raise ReleaseError(
            f"the queries of the release ({written['spec']}) cannot be made again here; "
            "name the ones to evaluate with --queries"
        ) from None
    if again.digest() != written["digest"]:
        raise ReleaseError(
            f"'{written['spec']}' no longer holds the queries that the release was made for; "
            "name the ones to evaluate with --queries"
        )
    return again


def _in_parts(workload: Workload) -> Iterator[Group]:
    """The groups in order, long groups of tables cut so that the memory needed stays bounded."""
    for group in workload.groups:
        yield from group.in_parts(_CELLS_AT_ONCE)


def _table_errors(per_table: list[NDArray[np.float64]]) -> L1Errors | None:
    if not per_table:
        return None
    sums = np.concatenate(per_table)
    return L1Errors(tables=len(sums), mean_l1=float(sums.mean()), max_l1=float(sums.max()))
