"""What a measured pair says of smooth dependence: a weak prior for which low degrees are likelier than high ones.

The deviation of a pair from independence, in orthonormal contrasts, is N(0, τ² Σ_i ⊗ Σ_j), seen through the noise,
where Σ_i = G Λ Gᵀ in functions that are orthonormal under the one-way table. For a numeric attribute these are
polynomials of degree r with Λ_r = r⁻³, for another its values with Λ = 1: a correlation of degree (r, s) is N(0, τ²
r⁻³ s⁻³) beforehand. That is weak on purpose: the prior that rows are fitted with is learned from all pairs, and too
sure of a single one. τ is .5, or more where the pair itself says so: of coefficients with Λ = λ, seen as z with noise
t, maximum likelihood has it τ² = (Σ w (z² − t)/λ + .25)/(Σ w + 1), w = (τ²λ/(τ²λ + t))². What bends, as weight over
the weeks of a pregnancy, would else be taken for the line of the many.

Rows fall short of it. Shrinking works cell by cell, and a slope that lies in many cells, none of which is clear, is
taken for noise; a temperature takes some of the rest. So rows are told slopes apart (`Slopes`): of every two ordered
attributes the mean product of their places x, as it is likely to be. Once rows are warm they lean to
exp(λ x_a x_b + α_a + β_b), of all factors that give a slope and keep the margins the one that changes a table least.

A table of many cells says little of its slope, and a pair without a table nothing. Where products of scores were
heard (`mechanisms.means`), slopes are those of both, seen as normal; where scores leave less than half of what was
unknown, rows lean by scores, and all the way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dualquery.fitting.measured import LEAST, PRODUCTS, SCORES, MeasuredTables
from dualquery.fitting.posteriors import LEAST_PAIRS, MOST_VALUES, contrasts, turn_into
from dualquery.loops import in_shares, njit, plain_algebra
from dualquery.queries.tables import centred
from dualquery.table.domain import Categorical, Column, Domain, Numeric
from dualquery.types import Cells, Integers, Reals, Set

UNMEASURED = 0.2  # deviation of a correlation that nobody measured
STRENGTH = 0.5  # τ: of a correlation beforehand. .1 is too sure: .82 to .90 of intervals hold
STEEPNESS = 3.0  # how fast the prior falls with the degree
TOLD = 0.5  # of what is unknown of a slope: where scores leave less, rows lean by scores
STEPS = 20  # of τ and the weights that follow from it
FOLLOWED = 0.5  # of a lean: as rows move, what was measured pulls them back about as hard
MOST_TILT, CLOSE = 0.3, 1e-3
MOST_LEAN = 1.0  # a logarithm: rare cells of long tails would else be all that a slope is made of
LOOSE = 0.1  # of a table, that is as if independent: rows may go where none is
RAKED = 4  # times that margins are mended


def number_codes(column: Column) -> Integers | None:
    """The codes of a column that are numbers, in their order; None where its values are no numbers."""
    if isinstance(column, Numeric):
        return np.arange(column.bins)
    if isinstance(column, Categorical) and column.numeric:
        return np.flatnonzero(~np.isnan(column.numbers))
    return None


def ordered(domain: Domain, attribute: int) -> bool:
    """Whether a line goes through more than two of the values of an attribute."""
    line = _line(domain, attribute)
    return line is not None and int(np.isfinite(line).sum()) > 2


def scores_of(domain: Domain, attribute: int, ones: Cells) -> Reals:
    """Of each value twice the share of the records before its middle, less one; 0 where it is no number."""
    line = _line(domain, attribute)
    assert line is not None
    place, known = np.argsort(line), np.isfinite(line)
    share = np.where(known, ones, 0.0)[place] / max(LEAST, float(ones[known].sum()))
    scores = np.zeros(len(line))
    scores[place] = 2 * np.cumsum(share) - share - 1
    return np.where(known, np.clip(scores, -1.0, 1.0), 0.0)


class Eigen(NamedTuple):
    """Of the covariance Σ of an attribute's contrasts: eigenvalues, and eigenvectors in cells."""

    values: Reals
    turned: Reals


def eigen(domain: Domain, attribute: int, ones: Cells, places: Reals, steepness: float = STEEPNESS) -> Eigen:
    """Σ = G Λ Gᵀ with G = Bᵀ diag(p) Φ, of functions Φ that are orthonormal under p."""
    share = np.maximum(ones, 1e-6)
    share = share / share.sum()
    size = len(share)
    ranked = number_codes(domain.column_of(attribute)[1])
    weights = np.ones(size - 1)
    if ranked is not None:
        most = len(ranked) - 1  # the highest degree; a missing number stands apart
        functions = np.zeros((size, size - 1))
        line = np.linspace(-1.0, 1.0, len(ranked))
        functions[ranked, :most] = np.polynomial.legendre.legvander(line, most)[:, 1:]
        if most > 0:  # the first is the place itself, wherever edges are: what correlations are about
            functions[ranked, 0] = (places[ranked] - places[ranked].min()) / max(
                np.ptp(places[ranked]), 1e-300
            )
        absent = np.setdiff1d(np.arange(size), ranked)
        functions[absent, most + np.arange(len(absent))] = 1.0
        weights[:most] = np.arange(1.0, len(ranked)) ** -steepness
    else:
        functions = np.eye(size)[:, np.argsort(-share, kind="stable")[: size - 1]]
    root = np.sqrt(share)[:, None]
    orthonormal = np.linalg.qr(root * np.column_stack([np.ones(size), functions]))[0][:, 1:] / root
    basis = contrasts(size)
    inner = basis.T @ (share[:, None] * orthonormal)
    covariance = (inner * weights) @ inner.T
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return Eigen(np.maximum(values, LEAST * max(values.max(initial=0.0), LEAST)), basis @ vectors)


class Smooth(NamedTuple):
    """Of the contrasts of a pair, turned: mean and variance, cell by cell in the eigenvectors of both sides."""

    mean: Cells
    variance: Cells


def smoothed(
    measured: MeasuredTables, members: Set, ones: Mapping[int, Cells], left: Eigen, right: Eigen
) -> Smooth:
    """Prior variance a, noise t: mean · a/(a + t), at/(a + t)."""
    expected = np.multiply.outer(*(ones[k] for k in members))
    deviation = measured.interactions[members] / measured.total - centred(expected)
    noise = float(measured.variance[members]) / measured.total**2
    sides = (np.ascontiguousarray(left.turned), np.ascontiguousarray(right.turned), left.values, right.values)
    return Smooth(*smoothly(np.ascontiguousarray(deviation), *sides, noise))


@njit(cache=True)
def smoothly(deviation, left, right, over, under, noise):  # type: ignore[no-untyped-def]
    """Mean and variance of a pair, of sides that have these eigenvalues."""
    (k, p), (m, q) = left.shape, right.shape
    half, mean, variance = np.empty((p, m)), np.empty((p, q)), np.empty((p, q))
    turn_into(deviation, left, right, (k, m, p, q), half, mean)
    square = _strength(mean, over, under, noise)
    for a in range(p):
        for b in range(q):
            prior = square * (over[a] * under[b])
            shrunk = prior / (prior + noise)
            mean[a, b] *= shrunk
            variance[a, b] = noise * shrunk
    return mean, variance


@njit(cache=True)
def _strength(seen, over, under, noise):  # type: ignore[no-untyped-def]
    """τ² of a pair."""
    square = STRENGTH**2
    for _ in range(STEPS):
        total, all_weight = STRENGTH**2, 1.0
        for a in range(seen.shape[0]):
            for b in range(seen.shape[1]):
                falling = over[a] * under[b]
                prior = square * falling
                weight = (prior / (prior + noise)) ** 2
                total += weight * (seen[a, b] ** 2 - noise) / falling
                all_weight += weight
        square = max(STRENGTH**2, total / all_weight)
    return square


@njit(cache=True)
def slopes_of(  # type: ignore[no-untyped-def]
    lower, upper, sides, edges, cells, starts, noise, shares, places, first, values, turned, likely, variance
):
    """The mean product of places of these pairs, and its variance. Attribute j has its shares and places from
    edges[j], its eigenvalues and eigenvectors (turned) from first[j].
    """
    for n in range(lower, upper):
        i, j = sides[n]
        k, m = edges[i + 1] - edges[i], edges[j + 1] - edges[j]
        one, other = shares[edges[i] : edges[i + 1]], shares[edges[j] : edges[j + 1]]
        deviation = cells[starts[n] : starts[n + 1]].copy().reshape((k, m))
        for a in range(k):
            for b in range(m):  # constants, which centring takes away, are nothing to a contrast
                deviation[a, b] -= one[a] * other[b]
        left = turned[first[i] : first[i] + k * (k - 1)].reshape((k, k - 1))
        right = turned[first[j] : first[j] + m * (m - 1)].reshape((m, m - 1))
        over, under = values[edges[i] : edges[i + 1] - 1], values[edges[j] : edges[j + 1] - 1]
        mean, spread = smoothly(deviation, left, right, over, under, noise[n])
        begin, end = np.zeros(k - 1), np.zeros(m - 1)
        for c in range(k):
            begin += places[edges[i] + c] * left[c]
        for c in range(m):
            end += places[edges[j] + c] * right[c]
        likely[n], variance[n] = 0.0, 0.0
        for a in range(k - 1):
            for b in range(m - 1):
                likely[n] += begin[a] * mean[a, b] * end[b]
                variance[n] += begin[a] ** 2 * spread[a, b] * end[b] ** 2


@dataclass(frozen=True)
class Slopes:
    """Of every two ordered attributes that were measured: the mean product of their places, as it is likely to be.

    Places have mean 0 and variance 1 under the one-way tables. Two values each have one number together, which lies
    in few cells: nothing is lost there.
    """

    places: Mapping[int, Reals]
    likely: Mapping[Set, float]
    variance: Mapping[Set, float]  # of these
    scores: Mapping[int, Reals]
    by_scores: Collection[Set] = ()  # pairs whose products of scores say more than their tables
    free: Collection[Set] = ()  # pairs without a table, which pulls rows back

    @staticmethod
    def of(measured: MeasuredTables, ones: Mapping[int, Cells]) -> Slopes:
        domain, heard = measured.domain, heard_of(measured)
        pairs = [members for members in measured.of_order(2) if all(j in ones for j in members)]
        lines = {
            j: line
            for j in {j for pair in (*pairs, *heard.products) for j in pair}
            if (line := _line(domain, j)) is not None
        }
        places, spectra, alone = {}, {}, measured.ones()
        with plain_algebra():
            for j, line in lines.items():
                share = ones[j] / ones[j].sum()
                moved = np.where(
                    np.isnan(line), 0.0, line - np.nansum(share * line) / share[~np.isnan(line)].sum()
                )
                spread = float(np.sqrt(share @ moved**2))
                if spread > 0:
                    places[j] = moved / spread
                    spectra[j] = eigen(domain, j, share, np.nan_to_num(line))
        pairs = [(i, j) for i, j in pairs if i in places and j in places]
        pairs = [(i, j) for i, j in pairs if max(len(places[i]), len(places[j])) > 2]
        likely, variance = np.empty(len(pairs)), np.empty(len(pairs))
        if pairs:
            where = {j: number for number, j in enumerate(places)}
            sides = np.array([[where[i], where[j]] for i, j in pairs], np.int64)
            edges = np.cumsum([0, *map(len, places.values())])
            first = np.cumsum([0, *(each.turned.size for each in spectra.values())])
            tables = [measured.interactions[members].ravel() for members in pairs]
            starts = np.cumsum([0, *map(len, tables)])
            noise = np.array([measured.variance[members] for members in pairs]) / measured.total**2
            of_cells = (np.concatenate(tables) / measured.total, starts, noise)
            values = [np.append(each.values, 0.0) for each in spectra.values()]
            alike = ([alone[j] for j in places], list(places.values()))
            turned = np.concatenate([each.turned.ravel() for each in spectra.values()])
            known = (*map(np.concatenate, alike), first, np.concatenate(values), turned)
            in_shares(
                slopes_of, len(pairs), sides, edges, *of_cells, *known, likely, variance, least=LEAST_PAIRS
            )
        mean, doubt = (dict(zip(pairs, each.tolist(), strict=True)) for each in (likely, variance))
        return Slopes(places, mean, doubt, heard.scores)._given(heard, measured, spectra, alone)

    def _given(
        self,
        heard: HeardProducts,
        measured: MeasuredTables,
        spectra: Mapping[int, Eigen],
        ones: Mapping[int, Cells],
    ) -> Slopes:
        """With the products that were heard, each seen with a slope as two normal numbers."""
        likely, variance, by_scores, free = dict(self.likely), dict(self.variance), set(), set()
        for i, j in heard.products:
            if i not in self.places or j not in self.places:
                continue
            mean, covariance = np.zeros(2), np.full((2, 2), heard.prior)
            if (i, j) in measured.interactions:
                with plain_algebra():
                    known = smoothed(measured, (i, j), ones, spectra[i], spectra[j])
                    left, right = (
                        np.stack([self.places[k], heard.scores[k]]) @ spectra[k].turned for k in (i, j)
                    )
                    mean = np.einsum("xa,ab,xb->x", left, known.mean, right)
                    both = (left[:, None] * left, right[:, None] * right)
                    covariance = np.einsum("xya,ab,xyb->xy", both[0], known.variance, both[1])
            else:
                free.add((i, j))
                alike = (heard.alike(k, ones[k], self.places[k]) for k in (i, j))
                covariance[0, 1] = covariance[1, 0] = heard.prior * math.prod(alike)
            seen = covariance[1] / (covariance[1, 1] + heard.variance[i, j])
            after = mean + seen * (heard.products[i, j] - mean[1])
            left_over = covariance.diagonal() - seen * covariance[1]
            best = int(left_over[0] < TOLD * covariance[0, 0])
            likely[i, j], variance[i, j] = float(after[best]), float(left_over[best])
            if best:
                by_scores.add((i, j))
        return replace(self, likely=likely, variance=variance, by_scores=by_scores, free=free)

    def leans(self, answers: Mapping[Set, Cells]) -> dict[Set, Cells]:
        """Logarithms that bring rows, which answer so, to tables of these slopes and their own margins.

        Where tables tell a slope, only as far as rows are farther off than it is uncertain (James and Stein 1961).
        """
        pairs = list(self.likely)
        if not pairs:
            return {}
        tables = [answers[members] for members in pairs]
        starts = np.cumsum([0, *(table.size for table in tables)])
        orders = (self.places, self.scores)
        lines = {(j, by): line for by, each in enumerate(orders) for j, line in each.items()}
        where = {key: number for number, key in enumerate(lines)}
        edges = np.cumsum([0, *map(len, lines.values())])
        sides = np.array([[where[j, pair in self.by_scores] for j in pair] for pair in pairs], np.int64)
        cells = np.concatenate([table.ravel() for table in tables]).astype(np.float64)
        likely, variance = (
            np.array([known[members] for members in pairs]) for known in (self.likely, self.variance)
        )
        places = np.concatenate(list(lines.values()))
        free = np.array([members in self.free for members in pairs])
        heard = free | np.array([members in self.by_scores for members in pairs])
        told = (likely, np.where(heard, 0.0, variance), np.where(free, 1.0, FOLLOWED))
        in_shares(lean_tables, len(pairs), cells, starts, sides, places, edges, *told, least=LEAST_PAIRS)
        return {
            members: part.reshape(table.shape)
            for members, table, part in zip(pairs, tables, np.split(cells, starts[1:-1]), strict=True)
        }


@njit(cache=True)
def lean_tables(lower, upper, cells, starts, sides, places, edges, likely, doubt, followed):  # type: ignore[no-untyped-def]
    """Tables lower to upper become the logarithms that they lack."""
    for n in range(lower, upper):
        i, j = sides[n, 0], sides[n, 1]
        left, right = places[edges[i] : edges[i + 1]], places[edges[j] : edges[j + 1]]
        products = np.empty((len(left), len(right)))
        table = cells[starts[n] : starts[n + 1]].reshape((len(left), len(right)))
        found = 0.0
        for a in range(len(left)):
            for b in range(len(right)):
                products[a, b] = left[a] * right[b]
                found += table[a, b] * products[a, b]
        far = (likely[n] - found) ** 2
        clear = max(0.0, far - doubt[n]) / max(far, LEAST)
        factor = tilted(table, products, found + clear * (likely[n] - found))
        for a in range(len(left)):
            for b in range(len(right)):
                table[a, b] = min(max(math.log(factor[a, b]) / followed[n], -MOST_LEAN), MOST_LEAN)


@njit(cache=True)
def tilted(table, products, wanted):  # type: ignore[no-untyped-def]
    """The factors e^(λ products + α + β) of a table's cells that keep its margins, with the λ for which the mean
    product is as wanted, if that is within ± MOST_TILT. Cells that are empty may be called for a little.
    """
    left, right = table.shape
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    factor, weighed = np.empty(table.shape), np.empty(table.shape)
    alpha, beta, sums = np.ones(left), np.ones(right), np.empty(right)  # e^α, e^β
    low, high = -MOST_TILT, MOST_TILT
    while high - low > CLOSE:
        middle = (low + high) / 2
        for a in range(left):
            for b in range(right):
                factor[a, b] = math.exp(min(max(middle * products[a, b], -MOST_LEAN), MOST_LEAN))
                weighed[a, b] = factor[a, b] * ((1 - LOOSE) * table[a, b] + LOOSE * rows[a] * columns[b])
        alpha[:] = 1.0
        beta[:] = 1.0
        for _ in range(RAKED):
            sums[:] = 0.0
            for a in range(left):
                for b in range(right):
                    sums[b] += alpha[a] * weighed[a, b]
            for b in range(right):
                beta[b] *= _ratio(columns[b], beta[b] * sums[b])
            for a in range(left):
                total = 0.0
                for b in range(right):
                    total += beta[b] * weighed[a, b]
                alpha[a] *= _ratio(rows[a], alpha[a] * total)
        mean = 0.0
        for a in range(left):
            for b in range(right):
                mean += alpha[a] * beta[b] * weighed[a, b] * products[a, b]
        if mean < wanted:
            low = middle
        else:
            high = middle
    return factor * alpha.reshape((left, 1)) * beta


@njit(cache=True)
def _ratio(wanted, found):  # type: ignore[no-untyped-def]
    return max(wanted, LEAST) / max(found, LEAST) if found > 0 else 1.0


class HeardProducts(NamedTuple):
    """The products of scores that were measured: scores and products such that each score has variance 1."""

    scores: Mapping[int, Reals]
    products: Mapping[Set, float]
    variance: Mapping[Set, float]
    prior: float  # τ² of a correlation that no table tells

    def alike(self, attribute: int, ones: Cells, places: Reals) -> float:
        """How far places go with scores."""
        found: Reals = ones @ (self.scores.get(attribute, places) * places)
        return float(found / ones.sum())


def heard_of(measured: MeasuredTables) -> HeardProducts:
    """What was measured of products, in fractions. τ² = (.2² + Σ (z² − t))/(1 + number), as products say."""
    scores: dict[int, Reals] = {}
    products: dict[Set, float] = {}
    variance: dict[Set, float] = {}
    scale: dict[int, float] = {}
    ones = measured.ones() if measured.inside else {}
    for each in measured.inside:
        if each.what.kind == SCORES:
            (j,) = each.what.attributes
            scale[j] = max(LEAST, math.sqrt(float(ones[j] @ each.values**2)))
            scores[j] = each.values / scale[j]
        if each.what.kind == PRODUCTS:
            for (i, j), value in zip(
                combinations(each.what.attributes, 2), each.values.tolist(), strict=True
            ):
                by = scale[i] * scale[j] * measured.total
                if each.variance < (UNMEASURED * by) ** 2:  # of a column that hardly varies it is but noise
                    products[i, j], variance[i, j] = value / by, each.variance / by**2
    excess = sum(products[pair] ** 2 - variance[pair] for pair in products)
    prior = (UNMEASURED**2 + max(0.0, excess)) / (1 + len(products))
    return HeardProducts(scores, products, variance, prior)


def _line(domain: Domain, attribute: int) -> Reals | None:
    """Where the values of an ordered attribute lie, NaN where they are missing; two values are always ordered."""
    column = domain.column_of(attribute)[1]
    size = int(domain.sizes[attribute])
    if size > MOST_VALUES or size < 2:
        return None
    if isinstance(column, Numeric):
        low, high = column.bounds()
        middle = (np.asarray(low, np.float64) + high) / 2
        return np.append(middle, np.full(size - len(middle), np.nan))
    if isinstance(column, Categorical) and column.numeric:
        return np.asarray(column.numbers, np.float64)
    return np.arange(2.0) if size == 2 else None
