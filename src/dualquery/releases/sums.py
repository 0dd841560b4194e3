"""What the releases of several periods say together: noisy tables added up, and rows fitted to the sum.

What a release has measured is paid for and public, so the noisy tables of several periods may be added up: cells add,
and so do the variances of their noise. Rows fitted to such a sum are a release of all these periods, free of charge,
and the prior from which the next release starts (`fitting.prior`).

A set of attributes that only some of the periods have measured, y_S in n_S of the n records, is taken as (n/n_S) y_S,
with the variance (n/n_S)² V_S + r² (1/n_S + 1/r)/cells: the noise, and the chance by which the other r = n − n_S
records differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.fitting.fitter import Effort
from dualquery.fitting.inside import WITHIN
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.mechanisms.artefact import SyntheticRecords, usual_rows
from dualquery.mechanisms.mechanism import finished_records
from dualquery.privacy.accounting import rho_cap
from dualquery.privacy.budget import PARTS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import UNITS, epsilon_of, rho_units_of
from dualquery.releases.acceptance import doubts
from dualquery.releases.certificate import Certificate, PredictedError, RowsFrom
from dualquery.releases.frames import listed
from dualquery.releases.refit import fit_usual, measured_tables, with_bars
from dualquery.releases.release import Release
from dualquery.table.persons import Calendar, RunningSpan, Span
from dualquery.table.records import Records
from dualquery.types import Progress, silent

_ITS_OWN = ("book", "prior", "trust", "check", "accepted", "seal", "signature", "files")  # of one release


def shares_of(count: int, first: int, last: int) -> NDArray[np.float64]:
    """Of the noisy y_0 … of a running span, what makes the total of the periods from `first` to `last`.

    Σ_{t=first}^{last} (R_N⁻¹)_{t,·}, in records.
    """
    span = RunningSpan(Calendar("period", "day"), 0, count - 1, PARTS)
    column = np.array([span.weight(k) for k in range(count)], np.float64)
    matrix = np.array([[column[t - s] if t >= s else 0.0 for s in range(count)] for t in range(count)])
    wanted = np.zeros(count)
    wanted[first : last + 1] = 1.0
    return np.linalg.solve(matrix.T, wanted)


def is_running(release: Release) -> bool:
    return bool(release.certificate["budget"]["neighbours"] == Neighbours.IN_PARTS.value)


def weighed(parts: Sequence[MeasuredTables], shares: NDArray[np.float64]) -> MeasuredTables:
    """Σ_k c_k y_k of tables that all have measured, with the variances Σ_k c_k² V_k."""
    sets = [s for s in parts[0].interactions if all(s in each.interactions for each in parts)]
    told = [
        Measured(
            s,
            sum((c * each.interactions[s] for c, each in zip(shares, parts, strict=True)), np.zeros(())),
            float(sum(c * c * each.variance[s] for c, each in zip(shares, parts, strict=True))),
        )
        for s in sets
    ]
    return MeasuredTables.nothing(parts[0].domain).joined(told).counted()


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
    wanted: Span | None = None,
    bars: bool = True,
    progress: Progress | None = None,
) -> Release:
    """The release of all periods of several releases, fitted to the sum of what they have measured.

    Of running totals of all periods so far, it is that of the periods that are `wanted`.
    """
    domain, rng, tell = releases[0].domain, np.random.default_rng(0), progress or silent
    if any(each.domain != domain for each in releases):
        raise DualQueryError("the releases were made with different schemas, and do not add up")
    if len({each.certificate["budget"]["neighbours"] for each in releases}) > 1:
        raise DualQueryError("the releases hide different things (neighbours), and do not add up")
    spans = [calendar.span(each.certificate["period"]["periods"]) for each in releases]
    if wanted is None and len({c for each in spans for c in each.parts(1)}) < sum(
        each.length for each in spans
    ):
        raise DualQueryError("two of the releases read the same period, whose records would count twice")
    tables = [measured_tables(each) for each in releases]
    inside: tuple[Measured, ...] = ()
    if wanted is None:
        known, inside = added(tables), _added_inside(releases)
    else:
        first = spans[0].first
        known = weighed(tables, shares_of(len(releases), wanted.first - first, wanted.last - first))
    number = max(1, round(known.total))
    effort = Effort.of(usual_rows(number))
    rows = fit_usual(known, effort, rng, partial(tell, "fitting rows to the sum"))
    if bars:
        found = with_bars(known, rows, inside, number, effort, rng, tell)
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
    periods = _runs(spans) if wanted is None else str(wanted)
    certificate = _certificate(releases, periods, number, {**said, "measured": listed(domain, kept)})
    return Release(certificate, domain, artefact, replicas, kept)


def _runs(spans: Sequence[Span]) -> str:
    """Their periods in order: 2024-Q1..2024-Q3, 2025-Q1 where those between were charged and never released."""
    runs: list[Span] = []
    for each in sorted(spans, key=lambda span: span.first):
        if runs and runs[-1].last + 1 == each.first:
            runs[-1] = Span(each.calendar, runs[-1].first, each.last)
        else:
            runs.append(Span(each.calendar, each.first, each.last))
    return ", ".join(map(str, runs))


def _certificate(
    releases: Sequence[Release], periods: str, number: int, found: dict[str, Any]
) -> Certificate:
    """A record is in one of the periods, so the dearest release says what it may lose; of running totals, all do.

    A person may have had records in each of the periods, and pays for all of them.
    """
    told = [each.certificate for each in releases]
    dearest = max(told, key=lambda each: float(each["spent"]["epsilon"]))
    data = {name: value for name, value in dearest.plain().items() if name not in _ITS_OWN}
    seeded = next((each["entropy"] for each in told if not each["entropy"]["private"]), data["entropy"])
    known_from = {each["records"]["from"] for each in told}
    source = known_from.pop() if len(known_from) == 1 else RowsFrom.MEASURED.value
    warnings = [each for one in told for each in one["warnings"] if each not in doubts(one.get("accepted"))]
    note = (
        f"fitted to the sum of what the releases of {len(releases)} periods have measured, which is free; the costs "
        "are those of the dearest of them"
    )
    if is_running(releases[0]):
        note = f"made from {len(releases)} running totals; the costs are those of a record that was in all of them"
        data |= _cost_of_all(data, len(releases))
    elif len(releases) > 1 and data["budget"]["records_per_person"] is not None:
        note = (
            f"fitted to the sum of what the releases of {len(releases)} periods have measured; a person may have had "
            "records in each of them, so their costs add up"
        )
        data |= _cost_of_person(told)
    else:
        data |= _cost_of_dearest(data, told)
    return Certificate.of(
        {
            **data,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "entropy": seeded,
            "records": {"rows": number, "from": source},
            **found,
            "rows_for_people": number,
            "period": {**data["period"], "periods": periods},
            "schema_is_draft": any(each["schema_is_draft"] for each in told),
            "warnings": list(dict.fromkeys(warnings)),
            "notes": [note],
            "files": {},
        }
    )


def _cost_of_dearest(data: dict[str, Any], told: Sequence[Certificate]) -> dict[str, Any]:
    """(max ε_t, max δ_t); all of a budget where one of the releases had to measure its records."""
    budget, spent = data["budget"], data["spent"]
    delta = max(each["budget"]["delta"] for each in told)
    measured = any(each["records"]["from"] == RowsFrom.MEASURED.value for each in told)
    groups = {k: [each["several"][k] for each in told] for k in data["several"]}
    return {
        "budget": {**budget, "delta": delta},
        "spent": {**spent, "epsilon": budget["epsilon"] if measured else spent["epsilon"], "delta": delta},
        "several": {k: None if None in each else max(each) for k, each in groups.items()},
    }


def _cost_of_all(data: dict[str, Any], number: int) -> dict[str, Any]:
    """What so many running totals, each as dear as this one, cost a record of the first period."""
    weights = RunningSpan(Calendar("period", "day"), 0, number - 1, PARTS).weights().values()
    factor, delta = Fraction(sum(w * w for w in weights), PARTS**2), data["budget"]["delta"]
    cap = Budget(data["budget"]["epsilon"], delta, Neighbours.IN_PARTS, Accounting.ZCDP)
    return _of_rho(data, Fraction(rho_cap(cap), UNITS) * factor, delta)


def _cost_of_person(told: Sequence[Certificate]) -> dict[str, Any]:
    """What releases of several periods cost a person of whom each has read up to K records: all of them together."""
    data = told[0].plain()
    told_alike = {(each["budget"]["neighbours"], each["budget"]["records_per_person"]) for each in told}
    by = {each["budget"]["accounting"] for each in told}
    if len(told_alike) > 1 or not by <= {Accounting.ZCDP.value, Accounting.GAUSSIAN.value}:
        raise DualQueryError(
            "what releases cost a person adds up where all of them were accounted by zcdp or gaussian, for so many "
            "records each"
        )
    data["budget"]["accounting"] = Accounting.ZCDP.value  # what was accounted by gaussian has a ρ, too
    data["budget"]["accounting_words"] = Accounting.ZCDP.words()
    data["budget"]["accounting_reason"] = "what releases cost a person adds up as ρ"
    rho = sum((Fraction(each["spent"]["rho"]) for each in told), Fraction(0))
    found = _of_rho(data, rho, max(each["budget"]["delta"] for each in told))
    found["budget"]["neighbours_words"] += f"; so many in each of {len(told)} periods"
    return {**found, "events": [event for each in told for event in each.plain()["events"]]}


def _of_rho(data: dict[str, Any], rho: Fraction, delta: float) -> dict[str, Any]:
    """A promise of ρ, as a certificate writes it."""
    epsilon = epsilon_of(rho, delta=delta)
    while rho_units_of(epsilon=epsilon, delta=delta) < rho * UNITS:
        epsilon *= 1 + 1e-12
    return {
        "budget": {**data["budget"], "epsilon": epsilon, "delta": delta},
        "spent": {"epsilon": epsilon, "delta": delta, "rho": f"{math.ceil(rho * UNITS) / UNITS:.12f}"},
        "several": {k: epsilon_of(rho * int(k) ** 2, delta=delta) for k in data["several"]},
    }
