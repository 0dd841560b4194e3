"""One-way tables and moments of pairs, drawn around what was measured: all of it public.

A *feature* is one number per value: of a numeric attribute its place on the line, of another whether it is a certain
value; each has mean 0 and variance 1 over the released rows. A *moment* is the mean of a product of features of two
attributes (or of three). What a pair's measured interaction says about its moments follows from the prior of
`fitting.smooth`.

A pair that was never measured is drawn around what the rows say of it, with deviation `UNMEASURED`, a triple with
`UNMEASURED_TRIPLE`: what depends on it is then as uncertain as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import LEAST, MeasuredTables, cell_variance, onto_simplex
from dualquery.fitting.smooth import UNMEASURED, Eigen, HeardProducts, eigen, heard_of, number_codes, smoothed
from dualquery.table.domain import Domain
from dualquery.types import Cells, Reals, Set

UNMEASURED_TRIPLE = 0.04
TRIED = 100  # one-way tables, to know what cutting at zero adds
RARE = 3.0  # deviations of the noise, below which a value is rare
STEEPNESS = 1.25  # of the prior of a pair, less than where rows are fitted: a bar must hold where tails bend
MOST_FEATURES = 12  # of an attribute: its most frequent values


def features_of(domain: Domain, attribute: int, places: Reals, shares: Reals) -> Reals:
    """One column a feature, by value; `places` says where the values of a numeric attribute lie on the line."""
    ranked = number_codes(domain.column_of(attribute)[1])
    if ranked is not None:
        known = np.isin(np.arange(len(shares)), ranked)
        line = np.where(known, places, 0.0)
        mean = (shares * line)[known].sum() / max(shares[known].sum(), LEAST)
        wanted = [np.where(known, line - mean, 0.0)]
        if not known.all():
            wanted.append((~known).astype(np.float64))
    else:
        frequent = np.argsort(-shares, kind="stable")[1 : 1 + MOST_FEATURES]
        wanted = [(np.arange(len(shares)) == value).astype(np.float64) for value in frequent]
    columns = np.stack(wanted, axis=1) if wanted else np.zeros((len(shares), 0))
    columns = columns - shares @ columns
    spread = np.sqrt(shares @ columns**2)
    kept = spread > 1e-4  # what hardly any row has pulls at nothing
    return columns[:, kept] / spread[kept]


class Posterior(NamedTuple):
    """Of the contrasts of a pair, turned: mean and variance, and what turns them into moments of features; the
    product of scores that was heard of it, its noise, and what turns contrasts into that.
    """

    mean: Cells
    variance: Cells
    left: Reals
    right: Reals
    heard: tuple[float, float, Reals, Reals] | None

    def drawn(self, rng: np.random.Generator | None) -> Cells:
        """Contrasts; those that are drawn are moved to what was heard, with its noise (Matheron's rule)."""
        found: Cells = self.mean + _noise(rng, self.mean.shape) * np.sqrt(self.variance)
        if self.heard is None:
            return found
        product, noise, left, right = self.heard
        along = self.variance * np.outer(left, right)
        off = product + float(_noise(rng, ())) * noise - left @ found @ right
        return found + along * (off / (left @ along @ right + noise**2))


class Moment(NamedTuple):
    """Which features are multiplied: (attribute, feature) of each."""

    factors: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Moments:
    """What is known of some attributes together, and how it is drawn."""

    features: Mapping[int, Reals]
    ones: Mapping[int, Cells]  # as measured, not yet on the simplex
    noise: Mapping[int, float]  # their deviation a cell; 0 where rows alone tell
    pairs: Mapping[Set, Posterior | None]  # None where it was never measured
    unmeasured: Mapping[Set, Cells]  # deviations of the moments of such pairs
    triples: Mapping[Set, tuple[Cells, Cells]]  # of its moments: mean, and variance around it
    rows: Mapping[Set, Cells]  # moments of the released rows, for pairs that were never measured
    lines: Mapping[int, Reals]  # where the numbers of numeric attributes lie, NaN for values that are none

    @property
    def names(self) -> list[Moment]:
        """Every moment, in the order of `drawn`."""
        return [
            Moment(tuple(zip(members, numbers, strict=True)))
            for members in (*self.pairs, *self.triples)
            for numbers in np.ndindex(*[self.features[j].shape[1] for j in members])
        ]

    def variances(self) -> Reals:
        """Of each moment, roughly: how exactly rows should follow what is drawn."""
        found = []
        for members, known in self.pairs.items():
            if known is None:
                found.append(self.unmeasured[members] ** 2)
            else:
                found.append(known.left.T**2 @ known.variance @ known.right**2)
        found += [variance for _, variance in self.triples.values()]
        return np.concatenate([np.zeros(0), *(each.ravel() for each in found)])

    def drawn(self, rng: np.random.Generator | None) -> tuple[dict[int, Cells], Reals]:
        """One-way tables and moments; without chance the means."""
        ones = {j: self._one(j, rng) for j in self.ones}
        means = {j: ones[j] @ self.features[j] for j in ones}
        found = []
        for (i, j), known in self.pairs.items():
            if known is None:
                found.append(self.rows[i, j] + _noise(rng, self.rows[i, j].shape) * self.unmeasured[i, j])
                continue
            found.append(np.outer(means[i], means[j]) + known.left.T @ known.drawn(rng) @ known.right)
        for mean, variance in self.triples.values():
            found.append(mean + _noise(rng, mean.shape) * np.sqrt(variance))
        return ones, np.concatenate([np.zeros(0), *(each.ravel() for each in found)])

    def _one(self, attribute: int, rng: np.random.Generator | None) -> Cells:
        """What was measured with noise once more, on the simplex; less what cutting at zero adds to rare values.

        Where many values of a number are rare, cutting has moved its mean before: the mean of what was measured, with
        this noise, says how many they are.
        """
        likely = onto_simplex(self.ones[attribute], 1.0)
        if rng is None or self.noise[attribute] == 0.0:
            return likely
        noise = self._centred_noise(attribute, rng)
        drawn = np.maximum(onto_simplex(likely + noise, 1.0) - self.added[attribute], 0.0)
        drawn, line = drawn / drawn.sum(), self.lines.get(attribute)
        if line is None:
            return drawn
        return _rare_told(drawn, line, self.ones[attribute] + noise, self.noise[attribute])

    @cached_property
    def added(self) -> dict[int, Cells]:
        """By how much tables drawn around the likely one exceed it in the mean."""
        rng, found = np.random.default_rng(len(self.ones)), {}
        for j, cells in self.ones.items():
            likely = onto_simplex(cells, 1.0)
            tried = [onto_simplex(likely + self._centred_noise(j, rng), 1.0) for _ in range(TRIED)]
            found[j] = np.mean(tried, axis=0) - likely
        return found

    def _centred_noise(self, attribute: int, rng: np.random.Generator) -> Cells:
        noise = rng.standard_normal(self.ones[attribute].shape) * self.noise[attribute]
        return noise - noise.mean()


def _rare_told(cells: Cells, line: Reals, like: Cells, noise: float) -> Cells:
    """Cells of which the rare ones are f times as many, so that numbers have the mean of a table that was not cut.

    f = 1 + (m − m₀)D/(D² + s²), for the mean m wanted, that of the cells m₀, what rare cells add to it D, and its
    noise s.
    """
    known = np.isfinite(line)
    x, p, share = np.where(known, line, 0.0), np.where(known, cells, 0.0), float(like[known].sum())
    rare = known & (cells < RARE * noise)
    if share <= 0 or not rare.any() or p.sum() <= 0:
        return cells
    mean, wanted = float(x @ p / p.sum()), float(x @ np.where(known, like, 0.0)) / share
    adds = float((x - mean)[rare] @ p[rare] / p.sum())
    doubt = noise * math.sqrt(float(((x - mean)[known] ** 2).sum())) / share
    times = 1 + (wanted - mean) * adds / max(adds**2 + doubt**2, LEAST**2)
    found = np.where(rare, float(np.clip(times, 0.0, 2.0)), 1.0) * cells
    return found / found.sum()


def _noise(rng: np.random.Generator | None, shape: tuple[int, ...]) -> Cells:
    return np.zeros(shape) if rng is None else rng.standard_normal(shape)


def moments_of(
    measured: MeasuredTables,
    attributes: Sequence[int],
    triples: Sequence[Set],
    codes: Mapping[int, NDArray[np.int64]],
    places: Mapping[int, Reals],
) -> Moments:
    """What was measured of some attributes, their pairs and some triples; `codes` are those of released rows."""
    domain = measured.domain
    shares = {
        j: np.bincount(codes[j], minlength=int(domain.sizes[j])) / max(1, len(codes[j])) for j in attributes
    }
    features = {j: features_of(domain, j, places[j], shares[j]) for j in attributes}
    known = [j for j in attributes if (j,) in measured.interactions]
    ones = {j: measured.table((j,)) if j in known else shares[j] for j in attributes}
    noise = {j: np.sqrt(measured.variance[j,]) / measured.total if j in known else 0.0 for j in attributes}
    simple = {j: onto_simplex(ones[j], 1.0) for j in attributes}
    spectra = {j: eigen(domain, j, simple[j], places[j], STEEPNESS) for j in attributes}
    pairs: dict[Set, Posterior | None] = {}
    rows: dict[Set, Cells] = {}
    unmeasured: dict[Set, Cells] = {}
    heard = heard_of(measured)
    for i, j in combinations(sorted(attributes), 2):
        if (i, j) in measured.interactions:
            pairs[i, j] = _posterior(measured, (i, j), simple, spectra, features, heard)
        else:
            pairs[i, j] = None
            rows[i, j] = _seen((i, j), features, codes)
            unmeasured[i, j] = np.full(rows[i, j].shape, UNMEASURED)
            if (i, j) in heard.products:
                alike = math.prod(heard.alike(k, simple[k], features[k][:, 0]) ** 2 for k in (i, j))
                known_part = alike * heard.prior / (heard.prior + heard.variance[i, j])
                unmeasured[i, j][0, 0] = math.sqrt(heard.prior * max(0.0, 1 - known_part))
    lines = {j: _line(domain, j, places[j]) for j in attributes}
    return Moments(
        features,
        ones,
        noise,
        pairs,
        unmeasured,
        {members: _triple(measured, members, features, codes) for members in triples},
        rows,
        {j: line for j, line in lines.items() if line is not None},
    )


def _line(domain: Domain, attribute: int, places: Reals) -> Reals | None:
    ranked = number_codes(domain.column_of(attribute)[1])
    if ranked is None or not len(places):
        return None
    return np.where(np.isin(np.arange(len(places)), ranked), places, np.nan)


def _posterior(
    measured: MeasuredTables,
    members: Set,
    ones: Mapping[int, Cells],
    spectra: Mapping[int, Eigen],
    features: Mapping[int, Reals],
    heard: HeardProducts,
) -> Posterior:
    i, j = members
    known = smoothed(measured, members, ones, spectra[i], spectra[j])
    told = None
    if members in heard.products:
        left, right = (spectra[k].turned.T @ heard.scores[k] for k in members)
        told = (heard.products[members], math.sqrt(heard.variance[members]), left, right)
    return Posterior(*known, spectra[i].turned.T @ features[i], spectra[j].turned.T @ features[j], told)


def _triple(
    measured: MeasuredTables,
    members: Set,
    features: Mapping[int, Reals],
    codes: Mapping[int, NDArray[np.int64]],
) -> tuple[Cells, Cells]:
    """Moments of three: what rows say, with the deviation of what nobody measured, and the measurement if any."""
    rows = _seen(members, features, codes)
    prior = UNMEASURED_TRIPLE**2
    if members not in measured.interactions:
        return rows, np.full(rows.shape, prior)
    i, j, k = (features[each] for each in members)
    seen = np.einsum("abc,ax,by,cz->xyz", measured.table(members), i, j, k)
    cell = cell_variance(members, measured.variance, measured.domain.sizes) / measured.total**2
    noise = cell * np.einsum("ax,by,cz->xyz", i**2, j**2, k**2)
    return (rows / prior + seen / noise) / (1 / prior + 1 / noise), 1 / (1 / prior + 1 / noise)


def _seen(members: Set, features: Mapping[int, Reals], codes: Mapping[int, NDArray[np.int64]]) -> Cells:
    """Moments of the released rows."""
    made = [features[j][codes[j]] for j in members]
    letters = "xyz"[: len(members)]
    said = ",".join(f"r{letter}" for letter in letters)
    found: Cells = np.einsum(f"{said}->{letters}", *made, optimize=True) / max(1, len(made[0]))
    return found
