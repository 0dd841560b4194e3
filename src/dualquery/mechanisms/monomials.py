"""Weights over signed monomials: the data player learns these, not weights over records, and answers disjunctions.

One of the mechanisms of "From Learning Algorithms to Differentially Private Algorithms" (Jonathan Ullman, 2013).
Thaler, Ullman and Vadhan (2012) and Chandrasekaran, Thaler, Ullman and Wan (2014): a table answers disjunctions of at
most k attributes as a combination of monomials of degree t and weight W does, up to α (below). Private
multiplicative weights then run over d^t monomials instead of 2^d records, with an error that grows by W:

    if n ≳ W · √(log F) · log|Q| / (α² ε), every disjunction is answered within α,       F about d-choose-t.

The game is MWEM's: find what is answered worst, measure it, learn (`rounds`).

*Polynomials that approximate OR*. A disjunction of at most k attributes is OR of at most k ones. A univariate
polynomial r with |r(m) − [m > 0]| ≤ α at m = 0, …, k makes r(y_1 + … + y_d) a combination of monomials of degree at
most t that is α-close to it. In the basis of binomials, r(m) = Σ_j c_j C(m, j) with c_j = Δ^j
r(0), and C(Σ y, j) is the sum of all monomials of degree j, so the combination weighs

    W = Σ_j |c_j| · C(d, j).

*Chebyshev* (Thaler, Ullman, Vadhan 2012): r(m) = 1 − T_t((k + 1 − 2m)/(k − 1)) / T_t((k + 1)/(k − 1)) is 0 at
0 and within 1/T_t(1 + 2/(k − 1)) of 1 on all of [1, k]; degree about √k · ln(1/α)/2.

*Minimax*: the best polynomial at the k + 1 points themselves, by Remez' exchange; a degree k is exact.

*Blocks* (Chandrasekaran, Thaler, Ullman, Wan 2014): of b blocks of attributes take OR within each exactly (its basis
functions are the disjunctions of a block's subsets, weight 1) and the polynomial over the b of them: W = Σ_j
|c_j| · C(b, j) with more basis functions. One block is weight 1 and all 2^d records; d blocks are the monomials.

*The basis*: with blocks B_1, …, B_b a basis function is a product over at most t blocks of disjunctions of subsets,

    φ(y) = Π_{j ∈ J} [A_j ∩ y ≠ ∅],        ∅ ≠ A_j ⊆ B_j,  |J| ≤ t,

y the attributes of a query. Blocks of one attribute make it a monomial. Functions are numbered as they are met.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import acosh, comb, cosh
from statistics import NormalDist

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from dualquery.beliefs.multiplicative_weights import Schedule, StepSize
from dualquery.beliefs.universes import BasisIncidence, SignedMonomials
from dualquery.errors import DualQueryError, QueryError
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.mechanism import NO_RECORDS, Outcome, Plan, Task, answers_only, last
from dualquery.mechanisms.mwem import PASSES
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced, usual_rounds
from dualquery.mechanisms.wishes import MonomialWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.families import attributes_of_disjunctions
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.types import Progress, Reals

WIDEST = 64  # attributes of a disjunction for which polynomials are looked for
ENOUGH = 0.01  # the error that a degree must reach
EXCHANGES = 400


@dataclass(frozen=True)
class Approximation:
    """A polynomial that is nearly OR at 0 to k: its values there, and how far off it is."""

    k: int
    degree: int
    values: tuple[float, ...]

    @property
    def error(self) -> float:
        return float(np.abs(np.array(self.values) - _or_of(self.k)).max())

    @property
    def coefficients(self) -> tuple[float, ...]:
        """c_j = Δ^j r(0), up to the degree."""
        differences, out = np.array(self.values), []
        for _ in range(self.degree + 1):
            out.append(float(differences[0]))
            differences = np.diff(differences)
        return tuple(out)

    def weight(self, variables: int) -> float:
        """W over so many attributes or blocks."""
        return float(sum(abs(c) * comb(variables, j) for j, c in enumerate(self.coefficients)))


def check_width(k: int) -> None:
    if not 1 <= k <= WIDEST:
        raise QueryError(
            f"polynomials are made for disjunctions of 1 to {WIDEST} attributes, and {k} is not between"
        )


def chebyshev_or(k: int, degree: int) -> Approximation:
    """The polynomial of the theorem."""
    check_width(k)
    if k == 1 or degree >= k:
        return minimax_or(k, k)
    points = (k + 1 - 2 * np.arange(k + 1)) / (k - 1)
    unit = np.zeros(degree + 1)
    unit[-1] = 1.0
    values = 1 - chebyshev.chebval(points, unit) / cosh(degree * acosh(float(points[0])))
    return Approximation(k, degree, tuple(values.tolist()))


@lru_cache(maxsize=1024)
def minimax_or(k: int, degree: int) -> Approximation:
    """The best polynomial of a degree at the points 0, …, k (Remez, one point a step, on finitely many points)."""
    check_width(k)
    target = _or_of(k)
    if degree >= k:
        return Approximation(k, k, tuple(target.tolist()))
    basis = chebyshev.chebvander(2 * np.arange(k + 1) / k - 1, degree)
    reference = np.unique(np.rint((1 - np.cos(np.pi * np.arange(degree + 2) / (degree + 1))) * k / 2)).astype(
        int
    )
    spare = [m for m in range(k + 1) if m not in reference]
    reference = np.sort(np.concatenate([reference, spare[: degree + 2 - len(reference)]])).astype(int)
    values: Reals = target
    for _ in range(EXCHANGES):
        signs = (-1.0) ** np.arange(degree + 2)
        solved = np.linalg.solve(np.column_stack([basis[reference], signs]), target[reference])
        values = np.asarray(basis @ solved[:-1], np.float64)
        wrong = target - values
        worst = int(np.abs(wrong).argmax())
        if abs(wrong[worst]) <= abs(solved[-1]) * (1 + 1e-9) + 1e-13:
            break
        reference = _exchanged(reference, wrong, worst)
    return Approximation(k, degree, tuple(values.tolist()))


def _exchanged(reference: NDArray[np.int_], wrong: Reals, worst: int) -> NDArray[np.int_]:
    """The reference with the worst point in it, signs still in turn."""
    place = int(np.searchsorted(reference, worst))
    same = [
        i for i in (place - 1, place) if 0 <= i < len(reference) and wrong[reference[i]] * wrong[worst] >= 0
    ]
    new = reference.copy()
    if same:
        new[same[0]] = worst
    elif place == 0:
        new = np.concatenate([[worst], reference[:-1]])
    else:
        new = np.concatenate([reference[1:], [worst]])
    return np.sort(new)


def least_degree(k: int, error: float = ENOUGH) -> Approximation:
    """The minimax polynomial of the least degree that is within an error."""
    return next(
        found for degree in range(1, k + 1) if (found := minimax_or(k, degree)).error <= error or degree == k
    )


def chebyshev_degree(k: int, error: float = ENOUGH) -> int:
    """The degree that the theorem gives."""
    return next(degree for degree in range(1, k + 1) if degree == k or chebyshev_or(k, degree).error <= error)


def _or_of(k: int) -> Reals:
    return (np.arange(k + 1) > 0).astype(np.float64)


MOST_PLACES = 50_000_000  # in all: how many functions are 1 on a query, summed over queries
MOST_FUNCTIONS = 20_000_000


def number_of_functions(attributes: int, blocks: int, degree: int) -> int:
    """Of b blocks of at most s attributes: Σ_j C(b, j) (2^s − 1)^j."""
    subsets = (1 << -(-attributes // blocks)) - 1
    return sum(comb(blocks, j) * subsets**j for j in range(1, degree + 1))


def check_basis(attributes: int, blocks: int, degree: int) -> None:
    """Refuse a basis that cannot be held, before anything is made."""
    if not 1 <= blocks <= attributes:
        raise QueryError(f"--blocks lies between 1 and the {attributes} attributes, and {blocks} does not")
    number = number_of_functions(attributes, blocks, degree)
    if number > MOST_FUNCTIONS:
        raise QueryError(
            f"a basis of degree {degree} over {blocks} blocks has {number:,} functions, more than "
            f"{MOST_FUNCTIONS:,}; use more blocks, a smaller --degree or fewer attributes"
        )


def incidence_of(queries: NDArray[np.int32], blocks: int, degree: int) -> BasisIncidence:
    """Which functions are 1 on each query; `queries` are rows of attributes, padded with -1."""
    used = np.unique(queries[queries != NONE])
    block_of = {int(j): place * blocks // len(used) for place, j in enumerate(used)}
    inside: dict[int, list[int]] = {}
    for j, block in block_of.items():
        inside.setdefault(block, []).append(j)
    subsets = {block: _subsets(members) for block, members in inside.items()}
    numbers: dict[tuple[int, ...], int] = {}
    start, places = [0], []
    for row in queries.tolist():
        asked = frozenset(j for j in row if j != NONE)
        touched = sorted({block_of[j] for j in asked})
        hit = {b: [key for key, members in subsets[b] if members & asked] for b in touched}
        for order in range(1, min(degree, len(touched)) + 1):
            for chosen in combinations(touched, order):
                for key in product(*(hit[b] for b in chosen)):
                    places.append(numbers.setdefault(key, len(numbers)))
        start.append(len(places))
        if len(places) > MOST_PLACES:
            raise QueryError(
                f"the queries meet more than {MOST_PLACES:,} basis functions; use more blocks or ask fewer queries"
            )
    return BasisIncidence(len(numbers), np.array(start, np.int64), np.array(places, np.int64))


def _subsets(members: list[int]) -> list[tuple[int, frozenset[int]]]:
    """Every subset of a block but the empty one, with a number that no other block's has."""
    found = []
    for mask in range(1, 1 << len(members)):
        chosen = frozenset(j for i, j in enumerate(members) if mask >> i & 1)
        found.append((members[0] << 32 | mask, chosen))
    return found


MOST_ROUNDS = 8_000  # by default: time grows with their square
LEARNING = 1 / 23  # times √W / T of the table are wrong after T rounds


@dataclass(frozen=True, kw_only=True)
class MonomialParameters(MeasuredRounds):
    """What a run goes by: the polynomial, the basis and the game."""

    widest: int
    degree: int
    blocks: int
    functions: int
    weight: float
    polynomial_error: float


def checked_width(workload: Workload, wanted: int | None) -> tuple[NDArray[np.int32], int]:
    """The attributes of each disjunction, and k; a QueryError where one is wider, or none."""
    queries = attributes_of_disjunctions(workload)
    widths = (queries != NONE).sum(axis=1)
    widest = int(widths.max()) if wanted is None else wanted
    if widths.max() > widest:
        place = int(np.argmax(widths))
        raise QueryError(
            f"'{workload.text(place)}' is a disjunction of {widths[place]} attributes, wider than {widest}; "
            "leave it out, or allow wider ones (--widest)"
        )
    return queries, widest


def _degrees(widest: int, attributes: int, blocks: int, wanted: int | None) -> list[int]:
    """The degree that is asked for, or all whose basis can be held."""
    check_width(widest)
    if wanted is not None and not 1 <= wanted <= widest:
        raise DualQueryError(f"--degree lies between 1 and the {widest} attributes of a disjunction")
    check_basis(attributes, blocks, wanted or 1)
    functions = {degree: number_of_functions(attributes, blocks, degree) for degree in range(1, widest + 1)}
    return [wanted] if wanted else [degree for degree, many in functions.items() if many <= MOST_FUNCTIONS]


def plan(task: Task, wanted: MonomialWishes) -> Plan[MonomialParameters]:
    """Degree (with it α and W) and rounds by the least error to expect; half a round's price chooses, half measures.

    A polynomial off by α at its worst point is off by about α/2 on a table, and what remains to be learned after T
    rounds is about √W / (23 T): a higher degree has less of the first and more of the second.
    """
    queries, widest = checked_width(task.workload, wanted.widest)
    attributes = len(np.unique(queries[queries != NONE]))
    blocks = attributes if wanted.blocks is None else wanted.blocks
    tried = []
    for degree in _degrees(widest, attributes, blocks, wanted.degree):
        polynomial = minimax_or(widest, degree)
        wrong = LEARNING * math.sqrt(max(2.0, polynomial.weight(blocks)))
        rounds = wanted.rounds
        if rounds is None:
            rounds = usual_rounds(task, wrong=wrong, most=MOST_ROUNDS)
        game = priced(task, rounds)
        noise, left = game.noise / task.rows, polynomial.error / 2 + wrong / rounds
        tried.append((3 * noise + 1.7 * left, 0.5 * noise + 0.45 * left, game, polynomial))
    largest, typical, game, polynomial = min(tried, key=lambda each: each[0])
    functions = number_of_functions(attributes, blocks, polynomial.degree)
    chosen = MonomialParameters(
        **vars(game),
        widest=widest,
        degree=polynomial.degree,
        blocks=blocks,
        functions=functions,
        weight=max(2.0, polynomial.weight(blocks)),
        polynomial_error=round(polynomial.error, 6),
    )
    return Plan(
        task=task,
        reason=(
            f"{functions:,} signed monomials of degree {polynomial.degree} and weight {chosen.weight:,.0f}, "
            f"{chosen.rounds} rounds"
        ),
        parameters=chosen,
        steps=chosen.steps(task, "choose what the weights get wrong"),
        mean_error=min(0.5, typical),
        max_error=min(1.0, largest),
        seconds=2.0 + chosen.rounds * (task.workload.size * 1e-7 + chosen.rounds * 1e-6),
        bytes=200 * functions + 200 * task.workload.size,
        notes=(NO_RECORDS,),
        records=False,
    )


def _belief(plan: Plan[MonomialParameters], curator: Curator) -> SignedMonomials:
    chosen, task = plan.parameters, plan.task
    incidence = incidence_of(attributes_of_disjunctions(task.workload), chosen.blocks, chosen.degree)
    schedule = Schedule(StepSize.FULL, PASSES, chosen.noise / task.rows)
    return SignedMonomials(incidence, weight=chosen.weight, schedule=schedule)


def _outcome(
    plan: Plan[MonomialParameters],
    replied: Iterator[SignedMonomials],
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    workload = plan.task.workload
    size = BAR * plan.mean_error / NormalDist().inv_cdf(0.75)
    bars = np.full(workload.size, size)  # a guess: what was not measured may be anything
    return answers_only(workload, last(replied).answers(workload), bars)


WORDS = "multiplicative weights over signed monomials, for disjunctions (Thaler, Ullman, Vadhan 2012)"
MONOMIALS = learner("monomials", WORDS, MonomialWishes, plan, _belief, _outcome)
