"""A release made again from what it measured, with rows that are public by now. Free: nothing private is read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.fit import MORE_LIKELY, fit
from dualquery.fitting.fitter import REPLICAS, Effort, Rows
from dualquery.fitting.inside import measured_inside
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.fitting.prior import Trust, fit_with_prior
from dualquery.fitting.public_rows import PublicRows
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.error_bars import MOST_SEEDS, Draw, Replica, learned_curves, tables_drawn
from dualquery.mechanisms.outcomes import finished_records
from dualquery.mechanisms.projection.tables import all_small
from dualquery.privacy.budget import Accounting
from dualquery.queries.random_families import Stream
from dualquery.queries.tables import Tables, centred
from dualquery.releases.acceptance import doubts
from dualquery.releases.arguments import checked_seed, for_callers
from dualquery.releases.certificate import Certificate, PredictedError, versions
from dualquery.releases.public import lacking, public_rows
from dualquery.releases.release import Release
from dualquery.table.records import Records
from dualquery.types import Done, Progress, no_progress, silent


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
        return fit(known, effort, rng, tell, at_once=False, likely=1.0)
    return fit(known, effort, rng, tell, at_once=all_small(larger, known), likely=MORE_LIKELY)


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
