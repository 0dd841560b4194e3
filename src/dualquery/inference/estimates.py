"""Estimates from draws, by Rubin's rules (1987), for the table and for the population that it was drawn from.

θ_1, …, θ_m are a number in m draws, b their variance, e_1, …, e_B its errors in the replicas of the release, u its
variance in a table of n records drawn from one of the draws. Then

    estimate           mean θ
    of the table       T = max((1 + 1/m) b, mean e²),     estimate ± t_{.975, m − 1} √T
    of the population  T + u,                             estimate ± t_{.975, (m − 1)(1 + u/T)²} √(T + u)

√(T/u) is the noise over the sampling error: where it is above `MOST_NOISE`, the release says nothing about the
number. Without measurements to draw around, the estimate is that of the rows, T = mean e², and the degrees of freedom
are B.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import atan, exp, isfinite, lgamma, log, pi, sqrt, tan

import numpy as np
import pyarrow as pa

from dualquery.types import Reals, halved

LEVEL = 0.95
MOST_NOISE = 10.0
MOST_ABSENT = 0.25  # of the draws: what fewer have cannot be told
MOST_FREEDOM = 200.0  # more is as good as normal
CONTRADICTED = 4.5  # F_.99 of 4 and 19 degrees of freedom
SAYS_NOTHING = "its noise is {:.0f} times its sampling error: this release says nothing about it"


def chance_below(t: float, freedom: float) -> float:
    """Student's law: with t = √ν tan φ the density is c cos^(ν − 1) φ, by Gauss and Legendre."""
    freedom = min(freedom, MOST_FREEDOM)
    nodes, weights = _legendre()
    end = atan(t / sqrt(freedom))
    angles = (nodes + 1) / 2 * end
    constant = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - 0.5 * log(pi))
    return float(0.5 + constant * end / 2 * (weights @ np.cos(angles) ** (freedom - 1)))


@lru_cache(maxsize=1)
def _legendre() -> tuple[Reals, Reals]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights


@lru_cache(maxsize=4096)
def student(freedom: float, level: float = LEVEL) -> float:
    """The quantile t for which |T| ≤ t with this chance, by bisection of the angle."""
    freedom = min(freedom, MOST_FREEDOM)

    def above(angle: float) -> bool:
        return chance_below(sqrt(freedom) * tan(angle), freedom) >= (1 + level) / 2

    return sqrt(freedom) * tan(halved(0.0, pi / 2 * (1 - 1e-9), 60, above)[0])


def combined(
    names: Sequence[str],
    draws: Reals | None,
    rows: Reals,
    errors: Reals,
    sampling: Reals,
    *,
    tested: bool = False,
) -> pa.Table:
    """One row a number. `draws` and `errors` have one row a draw and a replica, `sampling` is u, `rows` what rows
    say.

    With `tested`, also the chance p of so large an estimate where the population's number is 0.
    """
    out: list[dict[str, object]] = []
    for place, name in enumerate(names):
        own = float(np.mean(errors[:, place] ** 2)) if len(errors) else 0.0
        if draws is None:
            centre, table, freedom = float(rows[place]), own, float(max(1, len(errors)))
        else:
            m = len(draws)
            centre, freedom = float(draws[:, place].mean()), m - 1.0
            table = max((1 + 1 / m) * float(draws[:, place].var(ddof=1)), own if isfinite(own) else 0.0)
        out.append(_row(name, centre, table, float(sampling[place]), freedom, tested=tested))
    return pa.Table.from_pylist(out)


def half_width(errors: Reals, around: Reals, *, measured: bool) -> float:
    """The bar of a number that is printed as the rows give it, NaN where it is unknown.

    `around` is how far the draws lie from it, which counts what the rows miss of what was measured as well; `errors`
    are those of the replicas. Both mean squares, S of m − 1 and e² of B degrees of freedom, tell one variance: it is
    their mean by freedom, ((m − 1)S + B·e²)/(m − 1 + B), unless e² is so much the larger that chance would have it in
    one of a hundred cases (the F test): then e². Where nothing was measured it is their sum, for draws then only
    place numbers inside their bins.
    """
    known = around[np.isfinite(around)]
    if len(known) < (1 - MOST_ABSENT) * len(around):
        return float("nan")
    own = float(np.mean(errors**2)) if len(errors) else float("nan")
    spread = (1 + 1 / len(known)) * float(np.mean(known**2)) if len(known) else 0.0
    if not measured:
        return student(float(max(1, len(errors)))) * sqrt(own + spread) if isfinite(own) else float("nan")
    freedom, told = len(around) - 1.0, len(errors) if isfinite(own) else 0
    if not told:
        return student(freedom) * sqrt(spread)
    if own > CONTRADICTED * spread:
        return student(freedom) * sqrt(own)
    return student(freedom + told) * sqrt((freedom * spread + told * own) / (freedom + told))


def _row(
    name: str, centre: float, table: float, sampling: float, freedom: float, *, tested: bool
) -> dict[str, object]:
    blank = ["estimate", "se", "low", "high", "population_se", "population_low", "population_high", "noise"]
    row: dict[str, object] = {"name": name, **dict.fromkeys(blank)}
    if tested:
        row["p"] = None
    noise = sqrt(table / sampling) if sampling > 0 else None
    if not all(map(isfinite, (centre, table, sampling))):
        return {**row, "note": "some of the draws give no number for it"}
    if noise is not None and noise > MOST_NOISE:
        return {**row, "noise": noise, "note": SAYS_NOTHING.format(noise)}
    wide = student(freedom) * sqrt(table)
    of_population = min(MOST_FREEDOM, freedom * (1 + sampling / table) ** 2) if table > 0 else MOST_FREEDOM
    both = sqrt(table + sampling)
    wider = student(of_population) * both
    row |= {"estimate": centre, "se": sqrt(table), "low": centre - wide, "high": centre + wide}
    row |= {"population_se": both, "population_low": centre - wider, "population_high": centre + wider}
    row |= {"noise": noise}
    if tested and both > 0:
        row["p"] = min(1.0, max(0.0, 2 * (1 - chance_below(abs(centre) / both, of_population))))
    return {**row, "note": None}
