"""Rows with bars from noisy tables that others measured: a census office's, another program's, a friend's.

A measurement is the counts of a table over some attributes with white noise of a known variance in each cell. Summed
along the attributes outside of B and centred along those of B it is the interaction of B, with noise of the variance
v · Π_{j ∉ B} k_j before centring; the interactions of one table have uncorrelated noise, so that least squares over
all tables is the mean by inverse variance, interaction by interaction (`fitting.measured`). Rows are then fitted as
those of a release are, and replicas show how far off they may be (`releases.refit`). It reads nothing private, costs
nothing, and promises what the tables promise: nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from dualquery.errors import DataError, SchemaError
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.mechanisms.artefact import usual_rows
from dualquery.queries.language.vocabulary import unknown_name
from dualquery.queries.tables import centred
from dualquery.releases.arguments import GivenSchema, checked_rows, checked_seed, for_callers, schema_from
from dualquery.releases.certificate import FORMAT, Certificate, RowsFrom, versions
from dualquery.releases.measurements import INTERACTION, WITHIN, listed
from dualquery.releases.refit import fit_usual, with_bars
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.table.reading import AnyTable, read_table
from dualquery.table.schema import schema_text
from dualquery.types import Cells, Progress, Set, silent

MOST_ATTRIBUTES = 5  # of a table: it has as many interactions as subsets
MOST_CELLS = 20_000_000  # of all tables together
WRITTEN = {"columns", "cells", "variance"}
NOTHING_SPENT: dict[str, Any] = {
    "mechanism": "fit",
    "mechanism_words": "fits rows to noisy tables that others measured",
    "reason": "It was asked for.",
    "budget": {
        "epsilon": 0,
        "delta": 0,
        "neighbours": "replace",
        "neighbours_words": "none: nothing private was read",
        "records_per_person": None,
        "accounting": "pure",
        "accounting_words": "nothing was to be added up",
    },
    "several": {"2": 0, "5": 0, "10": 0},
    "spent": {"epsilon": 0, "delta": 0, "rho": None},
    "events": [],
    "entropy": {"statement": "public numbers", "private": True},
}


@for_callers
def fit(
    measurements: AnyTable | Sequence[Mapping[str, Any]],
    *,
    schema: GivenSchema,
    origin: str,
    records: int | None = None,
    synthetic_rows: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """Rows with bars from other people's noisy tables. Nothing private is read; it promises what the tables promise.

    `measurements` is a frame, a Parquet or JSON file, or a list of dicts, one row per table: `columns`, the names of
    its attributes; `cells`, its counts with their noise, the last attribute fastest; `variance`, that of the noise
    of one cell. (The measurements.parquet of a release will do.) `schema` gives the values of each attribute in the
    order of the cells, `origin` says in words where the tables come from, and `records` how many records there are,
    where that is public; otherwise the tables tell. The noise is taken as independent from cell to cell.
    """
    if not isinstance(origin, str) or not origin.strip() or not origin.isprintable():
        raise DataError("say in a few words where the tables come from: origin='tables of the census office'")
    described, tell = schema_from(schema), progress or silent
    domain = described.domain
    if domain.kind != "records":
        raise SchemaError(f"rows are fitted to tables of attributes, and this is a schema of [{domain.kind}]")
    rng, number = np.random.default_rng(checked_seed(seed)), checked_rows("records", records)
    given = list(_read(measurements))
    told = [each for place, row in enumerate(given, start=1) for each in _told(domain, row, f"table {place}")]
    if not any(isinstance(each.what, tuple) and each.what for each in told):
        raise DataError("there is no table to fit rows to; give at least one")
    known = _joined(domain, told, number)
    inside = [each for each in told if isinstance(each.what, Numbers)]
    size = max(1, round(known.total))
    effort = Effort.of(checked_rows("synthetic_rows", synthetic_rows) or usual_rows(size))
    rows = fit_usual(known, effort, rng, partial(tell, "fitting rows to what was measured"))

    found = with_bars(known, rows, inside, size, effort, rng, tell)
    kept = (*known.kept, *inside)
    untold = [domain.name(j) for j in range(domain.width) if (j,) not in known.interactions]
    certificate = Certificate.of(
        {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fitted": {"origin": origin, "tables": len(given)},
            **NOTHING_SPENT,
            "parameters": {"tables": len(given)},
            "measured": listed(domain, kept),
            "records": {
                "rows": size,
                "from": (RowsFrom.MEASURED if number is None else RowsFrom.DECLARED).value,
            },
            **found.to_json(),
            "workload": {"spec": f"the tables of {origin}", "queries": _cells(known), "digest": "none"},
            "warnings": list(described.doubts),
            "notes": [f"no table tells anything about '{name}': its values are uniform" for name in untold],
            "versions": versions(),
            "schema": schema_text(described),
            "schema_is_draft": described.draft,
            "files": {},
        }
    )
    return Release(certificate, domain, found.artefact, found.replicas, kept)


def _read(given: Any) -> Iterator[Mapping[str, Any]]:
    dicts = isinstance(given, Sequence) and not isinstance(given, str)
    for place, row in enumerate(given if dicts else read_table(given).to_pylist(), start=1):
        if not isinstance(row, Mapping) or not row.keys() >= WRITTEN:
            raise DataError(
                f"table {place} lacks one of columns, cells and variance: give the names of its attributes, its "
                "counts, and the variance of the noise of one cell"
            )
        yield row


def _told(domain: Domain, row: Mapping[str, Any], place: str) -> list[Measured]:
    """What one row says: all interactions of a table; of a row of our own files, what it is."""
    names, kind = row["columns"], row.get("kind") or "table"
    names = [names] if isinstance(names, str) else list(names)
    members = tuple(_attribute(domain, str(name), place) for name in names)
    cells, variance = _numbers(row["cells"], place), _variance(row["variance"], place, least=not members)
    if kind == WITHIN:
        return [Measured(Numbers(kind, members), cells, variance)]
    if kind not in (INTERACTION, "table"):
        return []  # queries and the like say nothing about tables
    shape = [int(domain.sizes[j]) for j in members]
    if len(set(members)) < len(members) or len(members) > MOST_ATTRIBUTES:
        raise DataError(f"{place}: a table is over 1 to {MOST_ATTRIBUTES} different attributes")
    if cells.size != prod(shape):
        raise DataError(
            f"{place} has {cells.size:,} cells, and its attributes have {prod(shape):,} combinations in the schema; "
            "give every cell, the last attribute fastest"
        )
    order = np.argsort(members)
    table, members = cells.reshape(shape).transpose(order), tuple(sorted(members))
    return (
        [Measured(members, table, variance)]
        if kind == INTERACTION
        else interactions(members, table, variance, domain)
    )


def interactions(members: Set, table: Cells, variance: float, domain: Domain) -> list[Measured]:
    """All interactions of a table of noisy counts, with the variance of each before centring: v · Π_{j ∉ B} k_j."""
    found = []
    for order in range(len(members) + 1):
        for subset in combinations(members, order):
            out = tuple(axis for axis, j in enumerate(members) if j not in subset)
            summed = prod(int(domain.sizes[members[axis]]) for axis in out)
            found.append(Measured(subset, centred(table.sum(axis=out)), variance * summed))
    return found


def _joined(domain: Domain, told: Sequence[Measured], number: int | None) -> MeasuredTables:
    """Everything together; the number of records as it is public, or as the tables have it."""
    tables = [each for each in told if isinstance(each.what, tuple)]
    if number is not None:
        start = MeasuredTables.rows(domain, number, 0.0)
        return start.joined([each for each in tables if each.what]).counted()
    totals = [each for each in tables if not each.what]
    if not totals:
        raise DataError("the tables do not tell how many records there are; declare it: records=…")
    best = min(totals, key=lambda each: float(each.variance))
    start = MeasuredTables.rows(domain, float(best.values), best.variance)
    return start.joined([each for each in tables if each is not best]).counted()


def _cells(known: MeasuredTables) -> int:
    """How many numbers the tables have, each set of attributes once."""
    return sum(int(np.size(cells)) for members, cells in known.interactions.items() if members)


def _attribute(domain: Domain, name: str, place: str) -> int:
    number = domain.find(name)
    if number is None:
        raise DataError(f"{place}: {unknown_name(domain, name)}")
    return number


def _numbers(given: Any, place: str) -> Cells:
    try:
        cells = np.asarray(given, np.float64).ravel()
    except (TypeError, ValueError):
        raise DataError(f"{place}: its cells are not all numbers") from None
    if not np.isfinite(cells).all() or cells.size > MOST_CELLS:
        raise DataError(f"{place}: its cells must be finite numbers, and at most {MOST_CELLS:,}")
    return cells


def _variance(given: Any, place: str, *, least: bool) -> float:
    """Above 0; of the number of records alone it may be 0, which says that this is public."""
    try:
        variance = float(given)
    except (TypeError, ValueError):
        variance = -1.0
    if not (variance >= 0 if least else variance > 0) or variance == math.inf:
        raise DataError(
            f"{place}: the variance must be one number above 0, that of the noise of one cell; tables without noise "
            "are public rows, for which there is --prior"
        )
    return variance
