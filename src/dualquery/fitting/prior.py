"""Rows that are public already, believed as far as the noisy tables bear them out. All of it is post-processing.

1. *Support*: the public rows P; *mutants*, rows of P in which some attributes are drawn again; independent rows.
   Their masses are 1 − λ_m − λ_p, λ_m and λ_p, together the distribution q(λ).
2. *Trust*: that P speaks for so many records, N, is as likely as the noisy cells y are around those of q:
   log L = −½ Σ_c [log v_c + (y_c − Cq_c)²/v_c], v_c = s_S² Π(k − 1)/k + q_c/N, with s_S² the variance of the noise.
   Posterior means of λ and log N over a grid, under exp(−8 (λ_m + λ_p)) · N.
3. *Margins first*: weights of least relative entropy to q whose one-way tables come near to the measured ones
   (`reweighting`, penalty N₁ s_S²); then trust is learned again, from pairs; then everything with penalty N₀ s_S²,
   the margins held where they are.
4. *Gate*: y′ = y + √τ g and y″ = y − g/√τ with g of the noise's own law are two independent measurements out of one
   ("thinning"), variances (1 + τ) and (1 + 1/τ) times as large. Both fits, A with P and B without it, are made from
   y′; y″ says which share α of A does best, and so how much of A is released. A prior that is wrong is left.
5. *Rows*: weights times the number of rows, rounded such that measured tables stay as they are (`rounded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fitter import Effort, Refit, Rows
from dualquery.fitting.measured import Measured, MeasuredTables, onto_simplex
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.reweighting import WeighedRows, joined, reweighted
from dualquery.fitting.shrink import RATIOS, relative_posterior
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.types import Cells, Done, Integers, Reals, Set, no_progress

NEW_ROWS = 20_000  # mutants, and as many independent rows
MUTATION = (0.02, 0.9)  # the least and the largest chance that an attribute of a mutant is drawn again
CLOSE = np.concatenate([[0.004, 0.008, 0.015], RATIOS])  # one-way cells of P are nearer than independence is
SHARES_OF_MUTANTS = (0.0, 0.03, 0.1, 0.3, 0.6, 1.0)
SHARES_OF_INDEPENDENT = (0.0, 0.03, 0.1, 0.3, 0.6, 0.9, 1.0)
NUMBERS = np.geomspace(30, 3e6, 36)  # of records that P may speak for
AGAINST_SHARES = 8.0  # by which a share of rows that are not P's counts against itself, in log likelihood
LEAST_SHARES = np.array(
    [0.0, 0.03, 0.01]
)  # of P, mutants and independent rows: something new must be possible
LEAST_CELL = 1e-7
STEPS = 60  # of a fit; 2/3 of it for margins, half for the gate
THINNED = 1 / 3  # τ
THINNINGS = 3  # at most
BELIEF = 0.5  # deviation of α around 1 before anything is seen
SURE = 1.5  # deviations within which α is rounded to 0 or 1
LEAST_SLOPE = 0.5  # of measured dependence on that of public rows,
CLEAR_SLOPE = 2.5  # and how many of its deviations it must be above 0


@dataclass(frozen=True)
class Trust:
    """How far public rows were believed: the records that they count as (their one-way tables by themselves as
    `of_ones`), and the share of the release they have.
    """

    records: float
    share: float
    of_ones: float = 0.0

    @property
    def words(self) -> str:
        if self.share == 0:
            return "the prior was not borne out by what was measured, and is not used"
        part = "" if self.share == 1 else f"; it has {self.share:.0%} of the release"
        return f"the prior counts as {self.records:,.0f} records{part}"


NO_TRUST = Trust(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Reweighted:
    """Rows and how much each counts, together one."""

    codes: NDArray[np.int32]
    weights: Reals

    def drawn(self, number: int, rng: np.random.Generator, tables: Tables) -> Rows:
        """So many rows, each as often as its weight says, up to one, with these tables; in random order."""
        shares = self.weights / self.weights.sum()
        times = WeighedRows.of(self.codes, tables).rounded(number * shares, rng.permutation(len(shares)))
        # rounding leaves a few rows too many or too few
        more = rng.choice(len(shares), max(0, number - int(times.sum())), p=shares)
        found = self.codes[np.concatenate([np.repeat(np.arange(len(shares)), times), more])]
        return found[rng.permutation(len(found))[:number]]

    def mixed(self, share: float, other: Rows) -> Reweighted:
        """A share of these, and the rest of rows that count alike."""
        rest = np.full(len(other), (1 - share) / len(other))
        return Reweighted(
            np.concatenate([self.codes, other.astype(np.int32)]),
            np.concatenate([share * self.weights / self.weights.sum(), rest]),
        )

    def tables(self, tables: Tables) -> list[Cells]:
        """What they say of each cell that others leave open."""
        held = WeighedRows.of(self.codes, tables).answers(self.weights / self.weights.sum())
        return [centred(each) for each in held]


def fit_with_prior(
    known: MeasuredTables,
    public: PublicRows,
    effort: Effort,
    rng: np.random.Generator,
    progress: Done,
    refit: Refit,
) -> tuple[Rows, Trust]:
    """Rows fitted to what was measured, by public rows where they are borne out."""
    public = public.sampled(rng)
    share = public.share
    if share is None:
        share = share_borne_out(known, public, effort, rng, partial(progress, 1, 4), refit)
    progress(2, 4)
    if share == 0:
        return refit(known, effort, rng, no_progress), NO_TRUST
    found, of_ones, records = around(known, public, rng, STEPS)
    progress(3, 4)
    if share < 1:
        found = found.mixed(share, refit(known, effort, rng, no_progress))
    progress(4, 4)
    tables = Tables(known.domain, tuple(known.of_order(2) or known.of_order(1)))
    return found.drawn(effort.rows, rng, tables), Trust(records, share, of_ones)


def thinned(
    known: MeasuredTables, rng: np.random.Generator, part: float = THINNED
) -> tuple[MeasuredTables, MeasuredTables]:
    """Two independent measurements out of one; the number of records stands in both."""
    first, second = dict(known.interactions), dict(known.interactions)
    wide, wider = dict(known.variance), dict(known.variance)
    for members, cells in known.interactions.items():
        if members:
            noise = centred(rng.normal(0.0, math.sqrt(known.variance[members]), cells.shape))
            first[members], wide[members] = (
                cells + math.sqrt(part) * noise,
                known.variance[members] * (1 + part),
            )
            second[members] = cells - noise / math.sqrt(part)
            wider[members] = known.variance[members] * (1 + 1 / part)
    return (
        replace(known, interactions=first, variance=wide),
        replace(known, interactions=second, variance=wider),
    )


def share_borne_out(
    known: MeasuredTables,
    public: PublicRows,
    effort: Effort,
    rng: np.random.Generator,
    tell: Callable[[], None],
    refit: Refit,
) -> float:
    """α of least Σ_S ‖y″_S − (α A_S + (1 − α) B_S)‖²/s_S², drawn to 1 as by a belief N(1, ½²); 0 or 1 if near.

    Where it is neither, noise is thinned again: the mean over K times has (1 + 1/Kτ) of the (1 + 1/τ) that the noise
    of one y″ is larger than that of y.
    """

    def halves(times: int) -> tuple[float, float, float]:
        first, second = thinned(known, rng)
        held, *_ = around(first, public, rng, STEPS // 2)
        tell()
        return *_agreement(second, held, refit(first, effort, rng, no_progress)), 1.0

    return borne_out(halves)


def borne_out(halves: Callable[[int], tuple[float, float, float]]) -> float:
    """α from Σ ⟨y″ − B, A − B⟩/s² and Σ ‖A − B‖²/s² of some halves of the noise, and what it is believed to be."""
    above = below = share = 0.0
    for times in range(1, THINNINGS + 1):
        more, larger, belief = halves(times)
        above, below = above + more, below + larger
        known_by = (1 + 1 / THINNED) / (times + 1 / THINNED)  # 1/K of it, over the noise that is left
        share = (known_by * above + belief / BELIEF**2) / (known_by * below + 1 / BELIEF**2)
        off = SURE / math.sqrt(max(known_by * below, LEAST_CELL))
        if belief >= 0.5 and share + off >= 1:
            return 1.0
        if share <= off:
            return 0.0
    return share


def _agreement(second: MeasuredTables, held: Reweighted, without: Rows) -> tuple[float, float]:
    """Σ ⟨y″ − B, A − B⟩/s² and Σ ‖A − B‖²/s², of which α is the ratio."""
    sets = [members for members in second.interactions if members]
    tables = Tables(second.domain, tuple(sets))
    alone = Reweighted(without.astype(np.int32), np.ones(len(without)))
    above = below = 0.0
    for members, a, b in zip(sets, held.tables(tables), alone.tables(tables), strict=True):
        precision = second.total**2 / second.variance[members]
        above += precision * float(((second.interactions[members] / second.total - b) * (a - b)).sum())
        below += precision * float(((a - b) ** 2).sum())
    return above, below


def around(
    known: MeasuredTables, public: PublicRows, rng: np.random.Generator, steps: int
) -> tuple[Reweighted, float, float]:
    """The likeliest weights around public rows, and the number of records that these count as: by one-way tables,
    and by pairs.
    """
    most = 1 / (1 / known.total + 1 / public.number)
    ones = _likely_ones(known, public, rng)
    support = Support.of(public, ones, known.domain, rng)
    margins, others = known.of_order(1), [s for s in known.interactions if len(s) > 1]
    tables = Tables(known.domain, tuple(margins))
    rows = WeighedRows.of(support.codes, tables)
    parts, of_ones = _trust(known, margins, support.tables(rows, support.base), most, public)
    start = support.mixed(support.base, parts)
    weights = reweighted(
        rows, start, _target(known, margins), of_ones * _penalty(known, tables), steps * 2 // 3
    )
    pairs = known.of_order(2)
    if not pairs:
        return Reweighted(support.codes, weights), of_ones, of_ones
    base = support.base * weights / np.maximum(start, np.finfo(np.float64).tiny)
    rows = WeighedRows.of(support.codes, Tables(known.domain, tuple(pairs)))
    parts, number = _trust(known, pairs, support.tables(rows, base), most, public)
    tables = Tables(known.domain, (*margins, *others))
    rows = WeighedRows.of(support.codes, tables)
    held = rows.answers(weights)
    target = joined([centred(held[n]) for n in range(len(margins))])
    target = np.concatenate([target, _target(known, others)])
    weights = reweighted(rows, support.mixed(base, parts), target, number * _penalty(known, tables), steps)
    return Reweighted(support.codes, weights), of_ones, number


def _target(known: MeasuredTables, sets: Sequence[Set]) -> Reals:
    return joined([known.interactions[members] / known.total for members in sets])


def _penalty(known: MeasuredTables, tables: Tables) -> Reals:
    variance = np.array([known.variance[members] for members in tables.sets]) / known.total**2
    return np.repeat(variance, np.diff(tables.starts))


def _likely_ones(known: MeasuredTables, public: PublicRows, rng: np.random.Generator) -> dict[int, Cells]:
    """One-way tables drawn towards those of the public rows as far as all of them together say."""
    sets = known.of_order(1)
    tables = Tables(known.domain, tuple(sets))
    held = WeighedRows.of(np.maximum(public.codes, 0), tables).answers(public.weights / public.weights.sum())
    seen = [known.table(members) for members in sets]
    mean = [
        np.maximum(own if public.known_for(s) else 1 / own.size, 1e-6)
        for s, own in zip(sets, held, strict=True)
    ]
    mean = [np.broadcast_to(each, own.shape) for each, own in zip(mean, seen, strict=True)]
    deviation = [np.full(own.size, known.deviation(s)) for s, own in zip(sets, seen, strict=True)]
    residual = joined(seen) - joined(mean)
    cells = relative_posterior(joined(mean), residual, np.concatenate(deviation), rng, CLOSE)
    return {s[0]: onto_simplex(each, 1.0) for s, each in zip(sets, tables.split(cells), strict=True)}


@dataclass(frozen=True, eq=False)
class Dependence:
    """How pairs depend by public rows, raked to the measured one-way tables: d, what they lie from independence."""

    ones: Mapping[int, Cells]
    apart: Mapping[Set, Cells]

    @staticmethod
    def of(
        known: MeasuredTables, pairs: Sequence[Set], public: PublicRows, rng: np.random.Generator
    ) -> Dependence:
        """Of the pairs of which all public rows know both attributes."""
        public = public.sampled(rng)
        ones = _likely_ones(known, public, rng)
        codes = Support.of(public, ones, known.domain, rng).codes[: len(public.codes)]
        margins = Tables(known.domain, tuple(known.of_order(1)))
        target = joined([centred(ones[j]) for (j,) in margins.sets])
        weights = reweighted(
            WeighedRows.of(codes, margins), public.weights, target, _penalty(known, margins), STEPS * 2 // 3
        )
        tables = Tables(known.domain, tuple(each for each in pairs if public.known_for(each)))
        held = WeighedRows.of(codes, tables).answers(weights)
        apart = {
            s: centred(cells) - centred(np.outer(*(ones[j] for j in s)))
            for s, cells in zip(tables.sets, held, strict=True)
        }
        return Dependence(ones, apart)

    @property
    def shares(self) -> dict[Set, float]:
        """Of what tests it, in proportion to ‖d‖: where there is more to see, less noise hides it."""
        return {members: float(np.linalg.norm(d)) + LEAST_CELL for members, d in self.apart.items()}

    def borne_out_by(self, tested: Sequence[Measured], total: float) -> bool:
        """Whether noisy pairs depend alike, so that to measure all of them pays.

        With noise of variance V, the slope of the measured deviations y on d is b = Σ⟨y, d⟩/V / Σ⟨d, d⟩/V: near 1 of
        the same population, near 0 of rows that have nothing to do with it.
        """
        above = below = 0.0
        for each in tested:
            d, precision = self.apart[each.what], total**2 / each.variance
            independent = centred(np.outer(*(self.ones[j] for j in each.what)))
            above += precision * float(((each.values / total - independent) * d).sum())
            below += precision * float((d**2).sum())
        return above >= max(LEAST_SLOPE * below, CLEAR_SLOPE * math.sqrt(below))


@dataclass(frozen=True, eq=False)
class Support:
    """Public rows (part 0), mutants of them (1) and independent rows (2); the weights of each part sum to one."""

    codes: NDArray[np.int32]
    part: NDArray[np.int64]
    base: Reals

    @staticmethod
    def of(
        public: PublicRows, ones: Mapping[int, Cells], domain: Domain, rng: np.random.Generator
    ) -> Support:
        """An attribute of a mutant is drawn again with the chance by which P's own table of it is wrong."""
        weights = public.weights / public.weights.sum()
        codes = public.codes.copy()
        for j in sorted(public.lacks):
            drawn = _drawn_from(ones, j, domain, len(codes), rng)
            codes[:, j] = np.where(codes[:, j] < 0, drawn, codes[:, j])
        mutants = codes[rng.choice(len(codes), NEW_ROWS, p=weights)]
        independent = np.empty_like(mutants)
        for j in range(domain.width):
            again = _drawn_from(ones, j, domain, NEW_ROWS, rng)
            independent[:, j] = _drawn_from(ones, j, domain, NEW_ROWS, rng)
            if j in ones:
                held = np.bincount(codes[:, j], weights, minlength=len(ones[j]))
                chance = np.clip(0.5 * np.abs(held - ones[j]).sum(), *MUTATION)
                mutants[:, j] = np.where(rng.random(NEW_ROWS) < chance, again, mutants[:, j])
        number = [len(codes), NEW_ROWS, NEW_ROWS]
        alike = np.full(NEW_ROWS, 1 / NEW_ROWS)
        return Support(
            np.concatenate([codes, mutants, independent]),
            np.repeat(np.arange(3), number),
            np.concatenate([weights, alike, alike]),
        )

    def tables(self, rows: WeighedRows, weights: Reals) -> list[list[Cells]]:
        """Those of each part by itself."""
        return [rows.answers(np.where(self.part == each, weights, 0.0)) for each in range(3)]

    def mixed(self, weights: Reals, parts: Reals) -> Reals:
        """The weights, such that the parts have these masses."""
        return remixed(weights, self.part, parts)


def remixed(weights: Reals, part: Integers, masses: Reals) -> Reals:
    """Weights, such that the parts they belong to have these masses."""
    mass = np.bincount(part, weights, minlength=3)
    return weights * (masses / mass)[part]


def _drawn_from(
    ones: Mapping[int, Cells], j: int, domain: Domain, number: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    if j not in ones:
        return rng.integers(0, int(domain.sizes[j]), number).astype(np.int32)
    edges = np.cumsum(ones[j])
    found = np.searchsorted(edges, rng.random(number) * edges[-1], side="right")
    return np.minimum(found, len(edges) - 1).astype(np.int32)


def _trust(
    known: MeasuredTables,
    sets: Sequence[Set],
    parts: Sequence[Sequence[Cells]],
    most: float,
    public: PublicRows,
) -> tuple[Reals, float]:
    """The masses of the three parts, and the number of records that their mixture counts as."""
    told = [n for n, members in enumerate(sets) if public.known_for(members)]
    if not told:
        return np.array([0.0, 0.0, 1.0]) + LEAST_SHARES, float(NUMBERS[0])
    seen = joined([known.interactions[sets[n]] / known.total for n in told])
    kept = [
        np.full(parts[0][n].size, known.variance[sets[n]] / known.total**2 * kept_by_centring(parts[0][n]))
        for n in told
    ]
    noise = np.concatenate(kept)
    raw = np.array([joined([each[n] for n in told]) for each in parts])
    cells = np.array([joined([centred(each[n]) for n in told]) for each in parts])
    return believed(seen, noise, cells, raw, most)


def believed(seen: Reals, noise: Reals, cells: Cells, raw: Cells, most: float) -> tuple[Reals, float]:
    """The same of cells that were seen with noise of these variances: what parts say of them, and their variances."""
    numbers = np.append(NUMBERS[most > NUMBERS], most)
    points = []
    for mutants in SHARES_OF_MUTANTS:
        for independent in SHARES_OF_INDEPENDENT:
            if mutants + independent > 1:
                continue
            masses = np.array([1 - mutants - independent, mutants, independent])
            held, squares = np.maximum(masses @ raw, LEAST_CELL), (seen - masses @ cells) ** 2
            for number in numbers:
                variance = noise + held / number
                value = -0.5 * float((np.log(variance) + squares / variance).sum())
                value += math.log(number / most) - AGAINST_SHARES * (mutants + independent)
                points.append((value, mutants, independent, math.log(number)))
    found = np.array(points)
    chance = np.exp(found[:, 0] - found[:, 0].max())
    mutants, independent, logarithm = (chance / chance.sum()) @ found[:, 1:]
    masses = np.maximum([1 - mutants - independent, mutants, independent], LEAST_SHARES)
    return masses / masses.sum(), math.exp(logarithm)


def kept_by_centring(cells: Cells) -> float:
    """What centring leaves of a cell's variance."""
    return math.prod((k - 1) / k for k in cells.shape)
