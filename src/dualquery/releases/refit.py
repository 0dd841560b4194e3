"""A release made again from what it measured, with rows that are public by now. Free: nothing private is read.

Rows with bars from noisy tables that others measured: a census office's, another program's, a friend's.

A measurement is the counts of a table over some attributes with white noise of a known variance in each cell. Summed
along the attributes outside of B and centred along those of B it is the interaction of B, with noise of the variance
v · Π_{j ∉ B} k_j before centring; the interactions of one table have uncorrelated noise, so that least squares over
all tables is the mean by inverse variance, interaction by interaction (`fitting.measured`). Rows are then fitted as
those of a release are, and replicas show how far off they may be (`releases.refit`). It reads nothing private, costs
nothing, and promises what the tables promise: nothing more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from dualquery.errors import DataError, DualQueryError, SchemaError
from dualquery.fitting.fit import MORE_LIKELY
from dualquery.fitting.fit import fit as fit_rows
from dualquery.fitting.fitter import REPLICAS, Effort, Rows
from dualquery.fitting.inside import measured_inside
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.fitting.prior import Trust, fit_with_prior
from dualquery.fitting.public_rows import PublicRows
from dualquery.mechanisms.artefact import SyntheticRecords, usual_rows
from dualquery.mechanisms.error_bars import MOST_SEEDS, Draw, Replica, learned_curves, tables_drawn
from dualquery.mechanisms.mechanism import finished_records
from dualquery.mechanisms.projection.tables import all_small
from dualquery.privacy.budget import Accounting
from dualquery.queries.language import unknown_name
from dualquery.queries.random_families import Stream
from dualquery.queries.tables import Tables, centred
from dualquery.releases.acceptance import doubts
from dualquery.releases.arguments import GivenSchema, checked_rows, checked_seed, for_callers, schema_from
from dualquery.releases.certificate import FORMAT, Certificate, PredictedError, RowsFrom, versions
from dualquery.releases.frames import INTERACTION, WITHIN, listed
from dualquery.releases.public import lacking, public_rows
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.table.reading import AnyTable, read_table
from dualquery.table.records import Records
from dualquery.table.schema import schema_text
from dualquery.types import Cells, Done, Progress, Set, no_progress, silent


@for_callers
def refit(
    release: Release | str | os.PathLike[str],
    *,
    prior: Any,
    prior_origin: str | None = None,
    prior_key: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """The release again, its rows fitted to what it measured (`Release.measured`) from a prior. Nothing is charged.

    `release` is one, or its folder; `prior`, `prior_origin` and `prior_key` are as in `dualquery.release`. What was
    spent, on what, and by which promise stays as the certificate said.
    """
    release = release if isinstance(release, Release) else Release.load(release)
    if release.domain.kind == "database":
        raise DualQueryError(
            "a release of a database cannot be fitted again; release the database with that prior"
        )
    measured, said = measured_tables(release), release.certificate
    if "totals" in said:
        raise DualQueryError(
            "the release meets public totals, which rows that are fitted again would not; release again"
        )
    public, entries = public_rows(prior, prior_origin, said.schema, None, prior_key)
    if not isinstance(public, PublicRows):
        raise DualQueryError("name the prior that the release is to be fitted with")
    tell, rng = progress or silent, np.random.default_rng(checked_seed(seed))
    effort = Effort.of(said["synthetic_rows"]).shared_out(_cell_noise(measured))
    domain = release.domain
    telling = partial(tell, "fitting rows to what was measured and is public")
    rows, trust = fit_with_prior(measured, public, effort, rng, telling, fit_usual)
    settled = replace(public, share=trust.share)

    def again(known: MeasuredTables, short: Effort) -> Rows:
        return fit_with_prior(known, settled, short, rng, no_progress, fit_usual)[0]

    number = int(said["records"]["rows"])
    found = with_bars(measured, rows, release.measured, number, effort, rng, tell, again, trust)
    certificate = _certificate(said, entries, trust, found)
    return Release(certificate, domain, found.artefact, found.replicas, release.measured)


ITS_OWN = ("seal", "signature", "check", "accepted")  # what is said of the rows that there were


@dataclass(frozen=True, eq=False)
class WithBars:
    """Rows that were fitted outside a release, and what tells how far off they may be."""

    artefact: SyntheticRecords
    draw: Draw
    replicas: tuple[Replica, ...]
    error: PredictedError

    def to_json(self) -> dict[str, Any]:
        return {
            "synthetic_rows": self.artefact.rows,
            "replicas": {"number": len(self.replicas), **self.draw.to_json()},
            "predicted_error": self.error.to_json(),
        }


def with_bars(
    measured: MeasuredTables,
    rows: Rows,
    told: Sequence[Measured],
    number: int,
    effort: Effort,
    rng: np.random.Generator,
    tell: Progress,
    again: Callable[[MeasuredTables, Effort], Rows] | None = None,
    trust: Trust | None = None,
) -> WithBars:
    """Rows of a table of so many records, and replicas of them: each a table drawn from them, measured and fitted
    `again` as they were (without a prior). `told` is all that was measured, means inside bins among it.
    """
    domain = measured.domain
    records = finished_records(Records.from_rows(domain, rows), told, number, rng)
    artefact = SyntheticRecords(records)
    draw, replicas = Draw.of(artefact, number, int(rng.integers(MOST_SEEDS)), trust), []
    for done, table in enumerate(tables_drawn(records, draw)):
        tell("estimating errors", done, REPLICAS)
        other, short = remeasured(measured, table, rng), effort.shorter(_cell_noise(measured))
        rows = fit_usual(other, short, rng, no_progress) if again is None else again(other, short)
        means = measured_inside(table, told, number, rng)
        made = finished_records(Records.from_rows(domain, rows), means, number, rng)
        replicas.append(Replica.of(table, made))
    curves = learned_curves(records, number, replicas, Stream(draw.seed + len(replicas)))
    return WithBars(artefact, draw, tuple(replicas), PredictedError(None, None, curves))


def measured_tables(release: Release) -> MeasuredTables:
    """The tables that a release has kept; an error where it has none."""
    if not any(isinstance(each.what, tuple) and each.what for each in release.measured):
        raise DualQueryError(
            f"the release was made by '{release.certificate['mechanism']}', and kept no tables that rows could be "
            "fitted to; make one by projection"
        )
    if release.certificate["budget"]["accounting"] == Accounting.PURE.value:
        raise DualQueryError(
            "a prior is tested on Gaussian noise, and the release has Laplace noise (pure ε); make one with δ above 0"
        )
    return MeasuredTables.of(release.domain, release.measured)


def remeasured(measured: MeasuredTables, table: Records, rng: np.random.Generator) -> MeasuredTables:
    """The same tables of other records, with noise of the same variances; as many records as were measured."""
    sets = tuple(members for members in measured.interactions if members)
    tables = Tables(measured.domain, sets)
    counts = tables.counts(table) * (measured.total / table.rows)
    told = []
    for members, cells in zip(sets, tables.split(counts.astype(np.float64)), strict=True):
        variance = measured.variance[members]
        noise = rng.normal(0.0, math.sqrt(variance), cells.shape)
        told.append(Measured(members, centred(cells + noise), variance))
    return MeasuredTables.rows(measured.domain, measured.total, measured.variance[()]).joined(told)


def fit_usual(known: MeasuredTables, effort: Effort, rng: np.random.Generator, tell: Done) -> Rows:
    """The fit without a prior, as projection has it: of all pairs, or of few that were chosen."""
    ones, larger = len(known.of_order(1)), tuple(known.larger())
    if 2 * len(known.of_order(2)) < ones * (ones - 1):
        return fit_rows(known, effort, rng, tell, at_once=False, likely=1.0)
    return fit_rows(known, effort, rng, tell, at_once=all_small(larger, known), likely=MORE_LIKELY)


def _cell_noise(measured: MeasuredTables) -> float:
    sets = measured.of_order(2) or measured.of_order(1)
    return 1 / math.sqrt(float(np.mean([measured.deviation(members) ** -2 for members in sets])))


def _certificate(
    said: Certificate, prior: list[dict[str, Any]], trust: Trust, found: WithBars
) -> Certificate:
    """What the release said of its promise, and what is new: a verdict was on the rows that there were."""
    data = said.plain()
    judged = doubts(data.get("accepted"))
    kept = {key: value for key, value in data.items() if key not in ITS_OWN}
    return Certificate.of(
        {
            **kept,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "prior": prior,
            "trust": asdict(trust),
            **found.to_json(),
            "warnings": [each for each in data["warnings"] if each not in judged],
            "versions": versions(),
            "notes": [
                *data["notes"],
                f"fitted again to what was measured on {data['created'][:10]}: {trust.words}",
                *lacking(prior, said.schema),
            ],
            "files": {},
        }
    )


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
