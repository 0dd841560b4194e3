"""What replicas cannot see of an error, from what a release has measured: all of it is public.

*Noise of one-way tables.* Rows are fitted to tables that are shrunk and have no negative cells, and replicas to those
again, so that their errors are smaller than the noise that was drawn. Of a question about one attribute that noise is
known: m of k values, of an interaction with variance v a cell, have the variance v·m(k − m)/k, and the noise of the
number of records, which they are divided by, adds (p − m/k)² times its variance. A bar is nowhere narrower; and where
rows say something else than what was measured (y, with deviation σ), as shrinking has it, the truth still lies about
y, beyond y ± 1.64σ on either side in one of twenty cases: a bar about m is |m − y| + 1.64σ at least. Where public
rows that count as N₁ records have a share α of the release (`fitting.prior`), the share p that they say is off by
√(p(1 − p)/N₁) before anything is measured: with both, the deviation is less than σ, and the truth lies about m. Of
the narrowest bar this makes the part α.

*Pairs that were never measured together.* Rows make them as independent as what was measured allows, and so do
replicas, of those rows. How far they lie from it nobody knows. As prior, the cells of a pair over the product of its
one-way tables are D_cd ~ N(0, τ² p_c p_d), centred. A question that accepts the share a of one attribute and b of the
other is then off by τ√(a(1 − a)b(1 − b)), times what it accepts of the rest, and E Σ|D| = τ w, w = .8 s_i s_j with
s = Σ_c √(p_c(1 − p_c)). Pairs of few values depend more in each cell, those of many in more of them: τ² = t²/w, at
most 1, with t² the mean over pairs: over those whose misfit was heard and that were left (`projection.small`), less
what noise adds; over those that were measured, as rows have them, for a pair that nobody asked about. Before anything
is seen t = .2, which counts as one pair (`benchmarks/bars.py`).

What such a question multiplies was measured one by one. Its bar is at least √(Σ_a σ_a² Π_b (p_b² + σ_b²)) over the
attributes that were measured with none of the others, with the noise σ of each share p; where p is small beside its
noise, p(1 − p) + σ² stands for p(1 − p) above.

*Items of baskets.* Noise is larger than what most pairs of rare items have in common. So rows take such items as
independent, and replicas, of those rows, err little where the rows err most. As for pairs of tables the prior of what
two items have in common beyond chance is D_ij ~ N(0, τ² v_i v_j), v_i = p_i(1 − p_i), and τ is learned from all pairs
that were counted: with noise σ, d² − σ² has the mean τ² v_i v_j, and weighs as maximum likelihood has it,

    τ² = Σ w (d² − σ²)/(v_i v_j) / Σ w,    w = (τ² v_i v_j / (σ² + τ² v_i v_j))²,

so that a thousand middling pairs count more than the few of the most frequent items. Before anything is seen τ = .2,
which counts as one pair. A counted pair then has the variance τ² v_i v_j σ²/(τ² v_i v_j + σ²), another τ² v_i v_j.

Three items may have more in common than their pairs tell, by N(0, τ² v_i v_j v_k): where a kind of baskets, a share π
of all, holds three items more often, two of them have a correlation c, and three c^(3/2)/√π in the same units, which
is about c where kinds are as rare as their items are tied.

The error of a question is that of each of its items, of each two and three, times what it accepts of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import HALF_NORMAL, LEAST, Measured, Numbers
from dualquery.fitting.prior import NO_TRUST, Trust
from dualquery.mechanisms.error_bars import BAR, LEVEL
from dualquery.queries.group import NONE, Group, Predicates, equalities
from dualquery.queries.language.formula import Literal
from dualquery.queries.tables import Tables, attribute_codes
from dualquery.queries.views import Counted, OverUnits
from dualquery.table.domain import Domain
from dualquery.table.records import Records, item_counts
from dualquery.types import Cells, Fractions, Integers, Reals, Set

ITEMS, PAIRS = "items", "pairs of items"
UNSEEN = 0.2  # τ, and t, where nothing was counted
STEPS = 30  # of the weights that follow from τ, and τ from them


@dataclass(frozen=True)
class Baskets:
    """What was counted of items, in shares of the records."""

    shares: Reals  # of each item: at least what its noise may hide
    alone: Reals  # the deviation of its error in the rows
    rank: NDArray[np.int64]  # of each item; pairs of the first `paired` were counted
    paired: int
    noise: float  # of a pair
    tau: float

    @staticmethod
    def of(measured: Sequence[Measured], alone: Reals, records: int) -> Baskets:
        """Where items were counted, and perhaps pairs of them."""
        by_kind = {each.what.kind: each for each in measured if isinstance(each.what, Numbers)}
        counted, pairs = by_kind[ITEMS], by_kind.get(PAIRS)
        ranked = list(counted.what.attributes)
        rank = np.empty(len(alone), np.int64)
        rank[ranked] = np.arange(len(ranked))
        shares = np.empty(len(alone))
        shares[ranked] = np.clip(counted.values / records, HALF_NORMAL * counted.deviation / records, 1.0)
        if pairs is None:
            return Baskets(shares, alone, rank, 0, 0.0, UNSEEN)
        paired, noise = len(pairs.what.attributes), pairs.deviation / records
        first = shares[list(pairs.what.attributes)]
        above = np.triu_indices(paired, 1)
        apart = pairs.values / records - np.outer(first, first)[above]
        spread = first * (1 - first)
        return Baskets(
            shares, alone, rank, paired, noise, _tau(apart, np.outer(spread, spread)[above], noise)
        )

    def errors(self, predicates: Predicates, literals: NDArray[np.int32]) -> Reals:
        """The deviation of these products."""
        item = np.append(predicates.attribute, 0)[literals >> 1]
        there = literals != NONE
        held = self.shares[item]
        spread = np.where(there, held * (1 - held), 0.0)
        accepted = np.where(there, np.where(literals & 1 == 1, 1 - held, held), 1.0)
        alone = np.where(there, self.alone[item], 0.0)
        number = literals.shape[1]

        def others(*members: int) -> Reals:
            found: Reals = np.delete(accepted, members, axis=1).prod(axis=1)
            return found

        squares = np.zeros(len(literals))
        for a in range(number):
            squares += (alone[:, a] * others(a)) ** 2
        for a, b in combinations(range(number), 2):
            prior = self.tau**2 * spread[:, a] * spread[:, b]
            told = (self.rank[item[:, [a, b]]] < self.paired).all(axis=1)
            known = prior * self.noise**2 / np.maximum(prior + self.noise**2, LEAST**2)
            squares += np.where(told, known, prior) * others(a, b) ** 2
        for a, b, c in combinations(range(number), 3):
            squares += self.tau**2 * spread[:, [a, b, c]].prod(axis=1) * others(a, b, c) ** 2
        return np.sqrt(squares)


def _tau(apart: Reals, spread: Reals, noise: float) -> float:
    """τ of pairs that lie so far from chance, seen with so much noise."""
    square, spread = UNSEEN**2, np.maximum(spread, LEAST)
    seen = (apart**2 - noise**2) / spread
    for _ in range(STEPS):
        weight = (square * spread / (noise**2 + square * spread)) ** 2
        square = max(LEAST, float(weight @ seen + UNSEEN**2) / float(weight.sum() + 1))
    return float(np.sqrt(square))


ON_ONE_SIDE = NormalDist().inv_cdf(LEVEL)
COUNTED = ("totals", ITEMS)  # binary attributes that were counted one by one
MISFITS = "misfits"  # of pairs, less what chance brings; the attributes of one pair after those of the other
HANGING = "hanging"  # of a child table, how far units that had not heard of tallies were off (`hanging_more`)
LEFT = 0.5  # of that, once tallies were heard
MOST_SEEN = 300  # measured pairs that rows are asked about


def hanging_more(group: OverUnits, answers: Fractions, measured: Sequence[Measured]) -> Fractions:
    """A half-width that is added, in squares, to the bars of questions about how many rows of a unit satisfy
    something: of what tallies showed units to be off by, b √(p(1 − p)), half is taken to be left; half of that where
    a condition is one value of one attribute, which was tallied, and of questions about two rows and more.
    """
    told = max((float(each.values.max()) for each in measured if _is(each, HANGING)), default=0.0)
    left = LEFT * np.array([max(map(_left, each), default=0.0) for each in group.numbers])
    more: Fractions = BAR * left * told * np.sqrt(np.maximum(answers * (1 - answers), 0.0))
    return more


def _left(asked: tuple[Counted, Literal]) -> float:
    number, literal = asked
    if not number.query.literals or number.database is None:
        return 0.0
    sizes = number.database.view_domain(number.child).sizes
    one, *others = number.query.literals
    accepted = int(sizes[one.attribute]) - len(one.values) if one.negated else len(one.values)
    part = 1.0 if others or accepted > 1 else 0.5
    return part if literal.values == (0,) else part / 2


class Floors(NamedTuple):
    """Of each question: what its bar is at least, and a half-width that is added to it in squares."""

    least: Fractions
    more: Fractions


def floors(
    group: Group,
    answers: Fractions,
    measured: Sequence[Measured],
    released: Records,
    records: int,
    trust: Trust = NO_TRUST,
) -> Floors:
    """Of questions that have these answers in rows that were fitted to measurements of so many records."""
    rows = group.products(np.arange(group.size, dtype=np.int64))
    least, more = np.zeros(group.size), np.zeros(group.size)
    about = (rows.literals != NONE).sum(axis=1)
    single, several = about == 1, about > 1
    if single.any():
        asked, place = rows.literals[single].max(axis=1), rows.positions[single]
        negated = (asked & 1 == 1) != rows.complement[single]
        share = np.where(negated, 1 - answers[place], answers[place])
        least[place] = _alone(rows.predicates, asked >> 1, share, measured, released.domain, records, trust)
    if not several.any():
        return Floors(least, more)
    place, literals = rows.positions[several], rows.literals[several]
    unmeasured = _Unmeasured.of(measured, released, records)
    if unmeasured is not None:
        share = _accepted(rows.predicates, released)
        each = np.arange(len(share), dtype=np.int64)
        noise = _alone(rows.predicates, each, share, measured, released.domain, records, trust) / BAR
        apart, alone = unmeasured.errors(rows.predicates, literals, share, noise)
        more[place], least[place] = BAR * apart, BAR * np.hypot(apart, alone)
    if any(_is(each, ITEMS) for each in measured):
        baskets = Baskets.of(measured, _items_alone(measured, released, records), records)
        least[place] = BAR * baskets.errors(rows.predicates, literals)
    return Floors(least, more)


def _is(measured: Measured, *kinds: str) -> bool:
    return isinstance(measured.what, Numbers) and measured.what.kind in kinds


def _alone(
    predicates: Predicates,
    asked: Integers,
    share: Fractions,
    measured: Sequence[Measured],
    domain: Domain,
    records: int,
    trust: Trust = NO_TRUST,
) -> Reals:
    """The least bars of these predicates, which have such shares in the rows; 0 where nobody knows it."""
    told, noise = _told(predicates, asked, share, measured, domain)
    apart = np.abs(share * records - np.clip(told, 0.0, records))
    usual = np.maximum(BAR * noise, apart + ON_ONE_SIDE * noise)
    by_prior = trust.of_ones * noise**2 / np.maximum(records**2 * share * (1 - share), LEAST)
    believed = BAR * noise / np.sqrt(1 + by_prior)
    known: Reals = np.where(noise > 0, (1 - trust.share) * usual + trust.share * believed, 0.0)
    return known / records


def _told(
    predicates: Predicates, asked: Integers, share: Fractions, measured: Sequence[Measured], domain: Domain
) -> tuple[Reals, Reals]:
    """What was measured of these predicates, in records, and the deviation of its noise; 0 where nobody knows it."""
    precision, sums = np.zeros(domain.width), np.zeros(domain.width)
    variance, number = np.zeros(domain.width), Measured((), np.zeros(()), 0.0)
    cells = np.zeros(int(domain.sizes.sum()))
    begin = np.cumsum(domain.sizes) - domain.sizes
    for each in measured:
        if _is(each, *COUNTED):
            attributes = list(each.what.attributes)
            precision[attributes] += 1 / each.variance
            sums[attributes] += each.values / each.variance
        elif isinstance(each.what, tuple) and len(each.what) == 1:
            (j,) = each.what
            variance[j] = each.variance
            cells[begin[j] : begin[j] + domain.sizes[j]] = each.values
        elif each.what == ():
            number = each
    accepted = np.diff(predicates.start)
    of = np.repeat(np.arange(len(predicates)), accepted)
    inside = np.bincount(of, cells[begin[predicates.attribute[of]] + predicates.values], len(predicates))
    attribute = predicates.attribute[asked]
    of_all = accepted[asked] / domain.sizes[attribute]
    once = precision[attribute]
    noise = np.where(
        once > 0,
        1 / np.maximum(once, LEAST),
        variance[attribute] * domain.sizes[attribute] * of_all * (1 - of_all),
    )
    told = np.where(
        once > 0, sums[attribute] / np.maximum(once, LEAST), float(number.values) * of_all + inside[asked]
    )
    return told, np.sqrt(np.where(noise > 0, noise + number.variance * (share - of_all) ** 2, 0.0))


def _items_alone(measured: Sequence[Measured], released: Records, records: int) -> Reals:
    """How far off rows may be about each item: a deviation, as a share of the records."""
    every = np.arange(released.domain.width)
    share = item_counts(released.columns[0], len(every)) / released.rows
    held, _ = equalities(released.domain, every)
    return _alone(held, every, share, measured, released.domain, records) / BAR


@dataclass(frozen=True)
class _Unmeasured:
    """τ of every pair that was not measured, and 0 of all others."""

    released: Records
    tau: Reals  # attributes × attributes, symmetric

    @staticmethod
    def of(measured: Sequence[Measured], released: Records, records: int) -> _Unmeasured | None:
        """None where all pairs were measured, or where it was not tables that were measured."""
        domain = released.domain
        sets = [each.what for each in measured if isinstance(each.what, tuple)]
        varied = np.flatnonzero(domain.sizes > 1)
        seen = [members for members in sets if len(members) == 2]
        if not any(len(members) == 1 for members in sets) or 2 * len(seen) == len(varied) * (len(varied) - 1):
            return None
        ones = _one_way(released, varied)
        spread = np.zeros(domain.width)
        for j, shares in ones.items():
            spread[j] = np.sqrt(shares * (1 - shares)).sum()
        measured_pairs = set(seen)
        weight = np.maximum(HALF_NORMAL * np.outer(spread, spread), LEAST)
        tau = _as_seen(seen, released, ones, spread) / np.sqrt(weight)
        for each in measured:
            if isinstance(each.what, Numbers) and each.what.kind == MISFITS:
                pairs = np.array(each.what.attributes).reshape(-1, 2)
                left = np.array([pair not in measured_pairs for pair in map(tuple, pairs.tolist())])
                of_pairs = weight[pairs[:, 0], pairs[:, 1]]
                found = _heard(each.values[left], each.variance, records**2 * of_pairs[left])
                _put(tau, pairs, found / np.sqrt(of_pairs))
        _put(tau, np.array(seen, np.int64).reshape(-1, 2), 0.0)
        return _Unmeasured(released, np.minimum(tau, 1.0))

    def errors(
        self, predicates: Predicates, literals: NDArray[np.int32], accepted: Fractions, noise: Reals
    ) -> tuple[Reals, Reals]:
        """Deviations of these products: of each two of their attributes, times the shares of all others; and of the
        noise of those that were measured with none of the others, times the same.

        A share p in the rows with noise σ is p² + σ² squared, which counts where rows say hardly anything.
        """
        attribute = np.append(predicates.attribute, 0)[literals >> 1]
        given = literals != NONE
        share, off = np.append(accepted, 1.0)[literals >> 1], np.append(noise, 0.0)[literals >> 1]
        share = np.where(given, np.where(literals & 1 == 1, 1 - share, share), 1.0)
        off = np.where(given, off, 0.0) ** 2
        size, spread = share**2 + off, np.where(given, share * (1 - share) + off, 0.0)
        relative, whole = spread / np.maximum(size, LEAST), size.prod(axis=1)
        apart, alone = np.zeros(len(literals)), np.zeros(len(literals))
        for a in range(literals.shape[1]):
            tau = np.where(given, self.tau[attribute[:, [a]], attribute], 0.0)
            strange = (tau > 0) | ~given
            strange[:, a] = True
            alone += np.where(strange.all(axis=1), whole * off[:, a] / np.maximum(size[:, a], LEAST), 0.0)
            apart += whole * relative[:, a] * (tau[:, :a] ** 2 * relative[:, :a]).sum(axis=1)
        return np.sqrt(apart), np.sqrt(alone)


def _one_way(released: Records, attributes: NDArray[np.integer]) -> dict[int, Cells]:
    """The shares of the values of each; no compiled loop, since a question must not wait for numba."""
    members = attributes.tolist()
    if not members:
        return {}
    sizes = released.domain.sizes[members].tolist()
    codes = attribute_codes(released, members)
    shares = (
        np.bincount(row, minlength=size) / released.rows for row, size in zip(codes, sizes, strict=True)
    )
    return dict(zip(members, shares, strict=True))


def _accepted(predicates: Predicates, released: Records) -> Fractions:
    """The share of the rows that each predicate accepts."""
    ones = _one_way(released, np.unique(predicates.attribute))
    shares = [ones[int(j)][predicates.accepted(p)].sum() for p, j in enumerate(predicates.attribute)]
    return np.array(shares, np.float64)


def _as_seen(seen: Sequence[Set], released: Records, ones: Mapping[int, Cells], spread: Reals) -> float:
    """t over the pairs that were measured, as rows have them; of very many over some, evenly spread."""
    some = seen[:: max(1, len(seen) // MOST_SEEN)]
    if not some:
        return UNSEEN
    tables = Tables(released.domain, tuple(some))
    parts = np.split(tables.counts(released) / released.rows, tables.starts[1:-1])
    expected = (np.outer(ones[i], ones[j]).ravel() for i, j in some)
    apart = np.array([np.abs(cells - e).sum() for cells, e in zip(parts, expected, strict=True)])
    weight = HALF_NORMAL * spread[np.array(some)].prod(axis=1)
    one = max(LEAST, float(weight.mean()))
    return math.sqrt((float((apart**2).sum()) + UNSEEN**2 * one) / (float(weight.sum()) + one))


def _heard(misfits: Reals, variance: float, weight: Reals) -> float:
    """t over the pairs that were heard and left: what noise adds to squares is taken off, but for one deviation of
    its own, as far as t was .2 before.
    """
    weights, number = max(LEAST, float(weight.sum())), len(misfits)
    found = max(0.0, float((misfits**2).sum()) - number * variance) / weights
    return math.sqrt(found + min(math.sqrt(2 * number) * variance / weights, UNSEEN**2))


def _put(tau: Reals, pairs: NDArray[np.integer], value: float | Reals) -> None:
    tau[pairs[:, 0], pairs[:, 1]] = tau[pairs[:, 1], pairs[:, 0]] = value
