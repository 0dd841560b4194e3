"""How far a release is from the truth, and several mechanisms side by side. Internal: nothing here is private.

Errors are absolute differences of fractions, |q(D) − q(release)|, over the queries of a workload as they stand (the
error of a negated query is the same), every cell of a table being a query. Where mechanisms are compared, each gets
the whole budget, as if it were the only one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import combinations, combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dualquery import plots
from dualquery.counting import Counter, MemoryCounter, SpilledUnits
from dualquery.counting.opening import open_counter
from dualquery.errors import DualQueryError, QueryError, ReleaseError
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.plots import Figure
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.language import condition_text
from dualquery.queries.views import View, ViewTables
from dualquery.queries.workload import Workload
from dualquery.releases.arguments import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    for_callers,
    workload_from,
)
from dualquery.releases.frames import as_frame
from dualquery.releases.make import counting, public_schema, release
from dualquery.releases.plan import check_mechanism, shared_rows
from dualquery.releases.release import Release
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.units import AnyDatabase, Units
from dualquery.types import Progress, Reals, silent

STAMP = "not private: internal, do not publish"
WORST = 5
_CELLS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class L1Errors:
    """Errors of whole tables: the sum over its cells of the absolute differences of fractions (L1)."""

    tables: int
    mean_l1: float
    max_l1: float

    @staticmethod
    def of(sums: Reals) -> L1Errors:
        return L1Errors(len(sums), float(sums.mean()), float(sums.max()))


@dataclass(frozen=True)
class WorstQuery:
    query: str
    truth: float
    answer: float


@dataclass(frozen=True)
class HangingErrors:
    """Errors of what is asked of the rows that hang on units: L1 of tables, of questions shares of the units."""

    what: str
    number: int
    mean: float
    largest: float


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
    hanging: tuple[HangingErrors, ...] = ()
    stamp: str = STAMP

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@for_callers
def evaluate(
    release: Release,
    table: AnyTable | AnyDatabase | Records | Counter,
    workload: GivenWorkload | None = None,
    *,
    of: str | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Compare a release with the table that it was made from, over its own workload or another.

    Of a database `of` names the table whose rows are asked about, and without a workload tables of rows, of pairs of
    rows of one unit, and any, all and count are compared, too.
    """
    if not isinstance(release, Release):
        raise ReleaseError("give the release first, and the table that it was made from second")
    counter = _counter(table, release.certificate.schema_read, progress)
    hanging: tuple[HangingErrors, ...] = ()
    if of is not None:
        release, counter = release.of(of), _joined(counter, of)
    if release.domain.inner and workload is None:
        hanging = hanging_errors(release, counter)
    asked = workload_of(release, workload)
    errors = np.empty(asked.size, np.float64)
    per_table: list[Reals] = []
    worst: list[tuple[float, int, float, float]] = []
    begin = 0
    for group in (part for each in asked.groups for part in each.in_parts(_CELLS_AT_ONCE)):
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
        tables=L1Errors.of(np.concatenate(per_table)) if per_table else None,
        worst=tuple(WorstQuery(asked.text(i), truth, answer) for _, i, truth, answer in worst[:WORST]),
        hanging=hanging,
    )


def _joined(counter: Counter, child: str) -> Counter:
    """A counter of the rows of a child table, each with what is known of its unit."""
    assert isinstance(counter, MemoryCounter | SpilledUnits), "a database is here"
    assert isinstance(counter.records, Units), "and consists of units"
    return MemoryCounter(counter.records.joined(child))


def hanging_errors(release: Release, counter: Counter) -> tuple[HangingErrors, ...]:
    """Of each child table: tables of its rows and their units, tables of two rows of one unit, any, all and count."""
    database, found = release.domain, []
    assert isinstance(database, Database), "of a database"
    for child in database.children:
        own = range(database.width, database.width + len(child.columns))
        beside = [*range(len(database.root.columns)), *own]
        single, double = View(database, child.name, 1, child.at_most), View(database, child.name, 2, 1)
        double = replace(double, c=max(1, int(double.number.max())))
        of_two = product(own, own) if double.chained else combinations_with_replacement(own, 2)
        among = [(a, b + len(own)) for a, b in of_two]
        both = "a row and the next one" if double.chained else "two rows"
        pairs = f"{both} of '{child.name}' of one unit"
        for what, view, sets in (
            (f"rows of '{child.name}', 1-way tables", single, [(j,) for j in beside]),
            (f"rows of '{child.name}', 2-way tables", single, list(combinations(beside, 2))),
            (pairs, double, among),
        ):
            if sets:
                found.append(_of_tables(what, ViewTables(view, tuple(sets)), release, counter))
        conditions = [
            condition_text(single.domain, j, 1 << code)
            for j in own
            if (size := int(single.domain.sizes[j])) > 1
            for code in range(size)
        ]
        asked = {"any({})": "any", "all({})": "all", f"count({child.name} where {{}}) >= 2": "two or more"}
        for text, word in asked.items():
            if conditions and (word != "two or more" or child.at_most > 1):
                texts = [text.format(each) for each in conditions]
                off = _off(from_texts(database, texts), release, counter)
                found.append(_summed(f"{word} of '{child.name}', questions", off))
    return tuple(found)


def _of_tables(what: str, tables: ViewTables, release: Release, counter: Counter) -> HangingErrors:
    """L1 between tables of shares of all rows, or of all pairs of rows."""
    assert release.records is not None, "a database is released as units"
    counts = counter.true_counts(tables), tables.counts(release.records)
    truth, told = ([cells / max(1, cells.sum()) for cells in tables.tables.split(each)] for each in counts)
    return _summed(what, np.array([np.abs(a - b).sum() for a, b in zip(truth, told, strict=True)]))


def _off(asked: Workload, release: Release, counter: Counter) -> Reals:
    truth = counter.true_counts(asked) / max(1, counter.true_rows)
    told = np.concatenate([release.artefact.fractions(group) for group in asked.groups])
    return np.abs(truth - told)


def _summed(what: str, off: Reals) -> HangingErrors:
    return HangingErrors(what, len(off), float(off.mean()), float(off.max()))


def _counter(
    table: AnyTable | AnyDatabase | Records | Counter, schema: Schema, progress: Progress
) -> Counter:
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
    remedy = "name the ones to evaluate with --queries"
    try:
        again = from_spec(release.domain, written["spec"])
    except QueryError:
        raise ReleaseError(
            f"the queries of the release ({written['spec']}) cannot be made again here; {remedy}"
        ) from None
    if again.digest() != written["digest"]:
        raise ReleaseError(
            f"'{written['spec']}' no longer holds the queries that the release was made for; {remedy}"
        )
    return again


USUAL = ("projection", "dualquery", "mwem", "gaussian", "laplace", "uniform")


class Comparison(NamedTuple):
    """A frame with one row per mechanism, and a picture of their mean errors."""

    frame: Any
    picture: Figure

    def _repr_html_(self) -> str:
        table = self.frame._repr_html_() if hasattr(self.frame, "_repr_html_") else escape(str(self.frame))
        return f"<p>{escape(STAMP)}</p>{table}{self.picture._repr_html_()}"


@for_callers
def compare(
    table: AnyTable | AnyDatabase | Records | Counter,
    *,
    budget: GivenBudget,
    workload: GivenWorkload,
    mechanisms: Sequence[str] | Mapping[str, Mapping[str, object]] = USUAL,
    domain: Domain | None = None,
    schema: GivenSchema | None = None,
    runs: int = 1,
    frame: str = "pandas",
    progress: Progress | None = None,
) -> Comparison:
    """Release a table by each of some mechanisms and compare the errors. **Not private: internal, do not publish.**

    `mechanisms` are names, or a dict of names with options of their own: `{"mwem": {"rounds": 10}}`. The other
    arguments are those of `release`. Errors are means over `runs`, fractions of the table; a mechanism that cannot be
    had for this budget or workload has no errors and says why.
    """
    tell = silent if progress is None else progress
    wanted = _wanted(mechanisms)
    if not isinstance(runs, int) or runs < 1:
        raise DualQueryError("runs must be a whole number, and at least 1")
    described = public_schema(table, domain, schema)
    asked = workload_from(described.domain, workload)
    relation = budget_from(budget, lambda: 2).neighbours
    counter = counting(table, described, relation, None, tell)
    paid = budget_from(budget, lambda: shared_rows(counter, relation) or 0)
    rows = []
    for number, (name, options) in enumerate(wanted.items()):
        tell("comparing mechanisms", number, len(wanted))
        rows.append(_row(name, options, counter, runs, schema=described, workload=asked, budget=paid))
    tell("comparing mechanisms", len(wanted), len(wanted))
    return Comparison(as_frame(pa.Table.from_pylist(rows, schema=_SHAPE), frame), _picture(rows))


_NUMBERS = ("mean_error", "rms_error", "max_error", "predicted_mean_error", "seconds")
_SHAPE = pa.schema(
    {"mechanism": pa.string(), **dict.fromkeys(_NUMBERS, pa.float64()), "refused": pa.string()}
)


def _wanted(
    mechanisms: Sequence[str] | Mapping[str, Mapping[str, object]],
) -> dict[str, Mapping[str, object]]:
    if isinstance(mechanisms, str) or not isinstance(mechanisms, Sequence | Mapping) or not mechanisms:
        raise DualQueryError(f"name mechanisms in a list; there are {', '.join(MECHANISMS)}")
    found = dict(mechanisms) if isinstance(mechanisms, Mapping) else {name: {} for name in mechanisms}
    for name, options in found.items():
        check_mechanism(name)
        if not isinstance(options, Mapping):
            raise DualQueryError(f"the options of '{name}' are a dict, like {{'rounds': 10}}")
    return found


def _row(name: str, options: Mapping[str, Any], counter: Counter, runs: int, **given: Any) -> dict[str, Any]:
    errors, began = [], time.process_time()
    try:
        for _ in range(runs):
            made = release(counter, mechanism=name, **given, **options)
            errors.append(evaluate(made, counter, given["workload"]))
    except DualQueryError as refusal:
        return {"mechanism": name, "refused": str(refusal)}
    return {
        "mechanism": name,
        "mean_error": float(np.mean([each.mean_error for each in errors])),
        "rms_error": float(np.sqrt(np.mean([each.rms_error**2 for each in errors]))),
        "max_error": float(np.max([each.max_error for each in errors])),
        "predicted_mean_error": errors[0].predicted_mean_error,
        "seconds": (time.process_time() - began) / runs,
    }


def _picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    known = [row for row in rows if "mean_error" in row]
    errors = np.array([row["mean_error"] for row in known])
    svg = plots.histogram(
        [row["mechanism"] for row in known], errors, name="mean errors", written=lambda x: f"{x:.2g}"
    )
    return Figure(f"Mean error of a query, as a fraction of the table ({STAMP})", svg)
