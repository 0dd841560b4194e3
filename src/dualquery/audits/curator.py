"""Audits of what the curator says: every statistic measured, every score drawn by.

Runs come in batches: one call measures so many copies of a statistic, or draws so many times, and each copy has
noise of its own. So every copy is a release by itself, and what the ledger charged for all of them is divided by
their number.

*Without samples*: the code is a function of one uniform integer, whose steps are found by bisection.

`select` reads a single integer below a bound, and every candidate owns one stretch of them. So asking the code itself
at a few hundred places tells the probability of every candidate, as a fraction; the loss is the largest
|ln p/p′| over candidates. A hazard test reads 128 bits, likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dualquery.audits.case import (
    ALONE,
    AT_AN_END,
    BITS,
    DUPLICATES,
    EXTREMES,
    FROM_END_TO_END,
    FULL_BASKET,
    GRADES,
    HEIGHTS,
    MANY,
    REPLACED,
    Case,
    Claim,
    Computed,
    Feature,
    Pair,
    Sampled,
    Sampler,
    Tell,
    pair_of,
)
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.distances import factored
from dualquery.privacy.budget import Accounting, Budget, Neighbours, Sensitivity
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Event, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger, Price, least_gaussian, smallest_gaussian_scale
from dualquery.privacy.noise import FEW, Gaussian, Laplace, Noise
from dualquery.privacy.scores import Score, SignedErrors, TableErrors, rate_within
from dualquery.privacy.thresholds import HazardTest
from dualquery.queries.binary import HeldItems, HeldPairs
from dualquery.queries.derived import (
    FINE,
    WEIGHT,
    Balance,
    Errors,
    Interactions,
    SummedMisfits,
    TableCells,
    number_of_records,
)
from dualquery.queries.distances import Knots, distances_to
from dualquery.queries.families import from_texts
from dualquery.queries.statistics import (
    NOTHING,
    BinSums,
    Blocks,
    Bound,
    CoarseEdges,
    Countable,
    Derived,
    DistinctTexts,
    LikelyPairs,
    SortedCells,
    TextCounts,
    Together,
    degrees,
)
from dualquery.queries.tables import Tables
from dualquery.queries.views import Tallies, View, ViewTables
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy, SeededEntropy
from dualquery.releases.draft_columns import FORMS, forms_of
from dualquery.table.database import Linked, database_of
from dualquery.table.domain import Categorical, Domain
from dualquery.table.graph import codes_table, graph_of
from dualquery.table.points import GRID, STEPS, points_of
from dualquery.table.units import units_of
from dualquery.types import Integers, Reals, Words, first_whole

BLOCK = 20_000  # copies of one call
EPSILON = Fraction(2)

Asks = Callable[[Curator, int], dict[str, Feature]]


@dataclass(frozen=True)
class Copies(Derived):
    """A countable, so many times over."""

    statistic: Countable
    times: int

    def counted(self) -> Countable:
        return self.statistic

    def of(self, counts: Integers, rows: int) -> Integers:
        return np.tile(counts, self.times)

    def bound(self) -> Bound:
        return sum([self.statistic.bound()] * self.times, NOTHING)


def pure(pair: Pair, epsilon: Fraction = EPSILON) -> Budget:
    return Budget(epsilon=float(epsilon), delta=0.0, neighbours=pair.neighbours, accounting=Accounting.PURE)


def of_each(event: Event, copies: int) -> Event:
    """What one of many copies was charged."""
    if isinstance(event, Selection):
        return replace(event, draws=max(1, event.draws // copies))
    if isinstance(event, LaplaceMeasurement):
        return replace(event, sensitivity=event.sensitivity / copies)
    if isinstance(event, GaussianMeasurement):
        return replace(event, sensitivity_squared=event.sensitivity_squared / copies)
    return event


def claimed(budget: Budget, events: Sequence[Event], copies: int = 1) -> Claim:
    """What a ledger of this budget says of one copy of these events; where it does not pay, more than it holds."""
    ledger = Ledger(budget)
    for event in events:
        ledger.charge(of_each(event, copies))
    return Claim.of(ledger)


def batches(pair: Pair, budget: Budget, asked: Asks, block: int = BLOCK) -> Sampler:
    """A sampler that asks one curator for a block of copies at a time."""
    gaussian = budget.accounting is not Accounting.PURE
    wealthy = replace(
        budget,
        epsilon=1e9,
        delta=0.5 if gaussian else 0.0,
        accounting=Accounting.ZCDP if gaussian else Accounting.PURE,
    )

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        parts, claims = [], []
        for first in range(0, runs, block):
            copies = min(block, runs - first)
            ledger = Ledger(wealthy)
            parts.append(asked(Curator(MemoryCounter(pair.tables[side]), ledger, entropy), copies))
            claims.append(claimed(budget, ledger.events, copies))
            tell(copies)
        seen = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Sampled(seen, max(claims))

    return sample


def measured(
    pair: Pair,
    statistic: Countable,
    budget: Budget,
    noise_of: Callable[[Sensitivity], Noise],
    *,
    block: int = BLOCK,
) -> Sampler:
    """Measure a statistic; the adversary looks at the likelihood ratio, knowing both tables."""
    tables = [statistic.counts(table) for table in pair.tables]

    def asked(curator: Curator, copies: int) -> dict[str, Feature]:
        noise = noise_of(pair.neighbours.sensitivity(statistic.bound()))
        noisy = curator.measure(Copies(statistic, copies), noise=noise).reshape(copies, -1)
        return {"likelihood ratio": likelihood_ratio(noise, noisy, tables[0], tables[1])}

    return batches(pair, budget, asked, block)


def likelihood_ratio(noise: Noise, noisy: Integers, one: Integers, other: Integers) -> Reals:
    """ln P(noisy | one) − ln P(noisy | other), up to a factor: Σ|y − x′| − |y − x|, or Σ y(x − x′)."""
    if isinstance(noise, Laplace):
        return (np.abs(noisy - other) - np.abs(noisy - one)).sum(axis=1).astype(np.float64)
    return (noisy @ (one - other)).astype(np.float64)


def laplace(moved: Sensitivity) -> Noise:
    return Price(EPSILON, None).noise(moved)


def twice(pair: Pair, workload: Workload) -> Sampler:
    """Two measurements that a record moves apart: noise that were the same in both would show it."""

    def asked(curator: Curator, copies: int) -> dict[str, Feature]:
        noisy = []
        for query in (0, 1):
            statistic = Balance(workload, query)
            noise = Price(EPSILON / 2, None).noise(pair.neighbours.sensitivity(statistic.bound()))
            noisy.append(curator.measure(Copies(statistic, copies), noise=noise).astype(np.float64))
        return {"first": noisy[0], "second": noisy[1], "difference": noisy[0] - noisy[1]}

    return batches(pair, pure(pair), asked)


def drawn(pair: Pair, score: Score, epsilon: Fraction = EPSILON, draws: int = 1) -> Sampler:
    """Draw by a score; the adversary looks at what was drawn."""

    def asked(curator: Curator, copies: int) -> dict[str, Feature]:
        rate = rate_within(Price(epsilon / draws, None), score, pair.neighbours)
        found = curator.select(score, rate=rate, draws=draws * copies)
        names = (2 * found.queries + found.negated).reshape(copies, draws)
        return {"drawn": np.array([" ".join(map(str, sorted(row))) for row in names.tolist()])}

    return batches(pair, pure(pair, epsilon), asked)


TRIANGLE = graph_of(("a", "b", "c"))
EDGE = pair_of(
    "an edge more, in every cut", Neighbours.ADD_REMOVE, [[0, 0]] * 9, [[0, 0]] * 9 + [[1, 2]], TRIANGLE
)
OTHER_EDGE = pair_of("an edge and another", Neighbours.REPLACE, [[0, 1]], [[2, 0]], TRIANGLE)
SQUARE = points_of({"x": (0.0, 1.0), "y": (0.0, 1.0)})
FAR = pair_of(
    "a point more, as far as can be",
    Neighbours.ADD_REMOVE,
    [[0, 0]] * 9,
    [[0, 0]] * 9 + [[GRID, GRID]],
    SQUARE,
)
CORNERS = pair_of("a point and the opposite corner", Neighbours.REPLACE, [[0, 0]], [[GRID, GRID]], SQUARE)
CODES = codes_table({"code": (0, 9)})
LISTED = pair_of("a record more, in every list", Neighbours.ADD_REMOVE, [[0]] * 9, [[0]] * 9 + [[7]], CODES)

HOUSES = database_of(
    [
        Linked("house", (Categorical("region", ("east", "west")),), key="hh"),
        Linked(
            "person",
            (Categorical("age", ("young", "old")),),
            parent="house",
            link="hh",
            at_most=4,
            at_least=0,
        ),
    ],
    "house",
)


def household(words: str, *ages: int) -> Pair:
    """Nine houses with a young person each, and one more."""
    persons, one = np.array([[0]] * 9 + [[age] for age in ages]), np.ones(9, np.int64)
    without = units_of(HOUSES, np.zeros((9, 1), np.int64), [(one, persons[:9])])
    regions, sizes = np.array([[0]] * 9 + [[1]]), np.append(one, len(ages))
    return Pair(words, Neighbours.ADD_REMOVE, (without, units_of(HOUSES, regions, [(sizes, persons)])), 10)


HOUSEHOLD = household("a household more, with as many persons as can be", 1, 1, 1, 1)
MIXED_HOUSEHOLD = household("a household more, with persons of all ages", 0, 0, 1, 1)
HOUSE_TABLES = Workload(HOUSES, (Tables(HOUSES, ((0, 1),)),), "houses by size")

CUTS = from_texts(TRIANGLE, ["edges leaving {b}", "edges entering {c}", "edges from {b} to {c}"])
PLACES = Workload(SQUARE, (distances_to(SQUARE, np.array([[0, 0], [0, GRID], [GRID, 0]])),), "corners")
LOOK_UPS = from_texts(CODES, ["code = 7", "code = 0", "code = 3"])
QUERIES = from_texts(BITS, ["a = 1", "b = 1", "a = 1 & b = 1"])
OPPOSED = from_texts(BITS, ["a = 1", "a = 0", "b = 1", "b = 0"])
SINGLE = from_texts(BITS, ["a = 1"])
SAME = from_texts(BITS, ["a = 1"] * 64)  # a record that alone satisfies all of them


def signed_errors(pair: Pair, workload: Workload) -> SignedErrors:
    """The score of MWEM, PMW and DualQuery, against answers of nothing."""
    among = np.arange(workload.size, dtype=np.int64)
    return SignedErrors.of_answers(workload, pair.public_rows, np.zeros(workload.size), among)


def table_errors(pair: Pair) -> TableErrors:
    """The score of whole tables, of which one record makes the first worse and the second better."""
    tables = Tables(pair.domain, ((0,), (1,)))
    answers = np.array([1.0, 0.0, 0.0, 1.0])
    return TableErrors(tables, pair.public_rows, np.zeros(2)).told(answers, np.arange(2))


def eight_draws() -> Sampler:
    """Eight draws of one query or its negation: a record and its opposite make the one or the other likely."""
    offsets = SignedErrors.of_answers(SINGLE, 1, np.array([0.5]), np.zeros(1, np.int64))
    return drawn(REPLACED, offsets, epsilon=2 * EPSILON, draws=8)


def gaussian_case(pair: Pair, accounting: Accounting) -> Case:
    budget = Budget(epsilon=1.0, delta=0.05, neighbours=pair.neighbours, accounting=accounting)

    def noise_of(moved: Sensitivity) -> Noise:
        return Gaussian(smallest_gaussian_scale(budget, [Gaussian(Fraction(1)).event(moved)]))

    sampler = measured(pair, SAME.groups[0], budget, noise_of, block=2000)
    name = f"measure: counts, Gaussian by {accounting}"
    return Case(name, pair.words, sampler, quick=20_000, long=1_000_000)


# What checks a release: the sum over two tables, and the larger one, of rows that are wrong about everything.
MISFITS = SummedMisfits(
    Tables(BITS, ((0,), (0, 1))),
    FINE * np.array([1, 0, 1, 0, 0, 0]),
    (Errors(0, 2), Errors(0, 2, largest=True)),
)


# How far off a mean within groups is: b is the number, and the mean of the rows is that of its lower value.
FAR_MEANS = SummedMisfits(
    Tables(BITS, ((0, 1),)),
    np.zeros(4, np.int64),
    (Errors(0, 1, weights=np.array([0, WEIGHT, 0, WEIGHT]), groups=np.array([0, 0, 1, 1])),),
)


def written_pair(words: str, neighbours: Neighbours, one: Sequence[int], other: Sequence[int]) -> Pair:
    """Tables of cells as they are written."""
    return pair_of(words, neighbours, [[x] for x in one], [[x] for x in other], WRITTEN)


WRITTEN = Domain((Categorical("cell", ("", "1.5", "common", "mine")),))
NEW_TEXT = written_pair(
    "a record more, with a text of its own", Neighbours.ADD_REMOVE, [2] * 9, [2] * 9 + [3]
)
OTHER_TEXT = written_pair(
    "a number replaced by a text that is there", Neighbours.REPLACE, [2] * 9 + [1], [2] * 10
)
FORMS_OF_CELLS = SortedCells("cell", len(FORMS), forms_of)


def shown_texts(pair: Pair) -> Sampler:
    """The texts above the threshold: a text that one table alone holds is shown as seldom as was charged."""
    failure = Fraction(1, 50)
    budget = Budget(epsilon=1.0, delta=0.05, neighbours=pair.neighbours, accounting=Accounting.GAUSSIAN)
    noise = least_gaussian(budget, [pair.neighbours.sensitivity(TextCounts("cell").bound())])

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        said, mine = [], []
        for _ in range(runs):
            ledger = Ledger(budget, failure=failure)
            curator = Curator(MemoryCounter(pair.tables[side]), ledger, entropy)
            found = curator.frequent("cell", noise=noise, times=1, failure=failure)
            said.append(" ".join(found))
            mine.append(float(found.get("mine", 0)))
            tell(1)
        spent = ledger.spent()
        seen: dict[str, Feature] = {"texts": np.array(said), "number": np.array(mine)}
        return Sampled(seen, Claim(spent.epsilon, spent.delta + float(failure)))

    return sample


def _measurements() -> list[tuple[str, Pair, Countable]]:
    rank = np.arange(6)
    tables = (Blocks(np.array([0, 1, 1]), 2), LikelyPairs(np.array([3, 0, 1]), np.array([1, 0, 2])))
    right = factored(64).right[:1]
    return [
        ("counts", MANY, QUERIES.groups[0]),
        ("counts", REPLACED, OPPOSED.groups[0]),
        ("counts", DUPLICATES, Tables(BITS, ((0, 1),))),
        ("number of records", ALONE, number_of_records(BITS)),
        ("balance", REPLACED, Balance(QUERIES, 0)),
        ("table", REPLACED, TableCells(Tables(BITS, ((0,), (0, 1))), 1)),
        ("misfits, summed", ALONE, MISFITS),
        ("misfits, summed", REPLACED, MISFITS),
        ("misfits, of means", ALONE, FAR_MEANS),
        ("sums inside bins", AT_AN_END, BinSums.of(HEIGHTS)),
        ("sums inside bins", FROM_END_TO_END, BinSums.of(HEIGHTS)),
        ("interactions", EXTREMES, Interactions(GRADES, ((0,), (0, 1)), (1, 1))),
        ("interactions", MANY, Interactions(BITS, ((0,), (0, 1)), (1, 2))),
        ("items", FULL_BASKET, HeldItems(0, rank, 6, 3)),
        ("pairs of items", FULL_BASKET, HeldPairs(0, rank, 6, 3)),
        ("cuts", EDGE, CUTS.groups[0]),
        ("degrees", EDGE, CoarseEdges(TRIANGLE, degrees(3), (2, 2))),
        ("blocks and pairs", OTHER_EDGE, CoarseEdges(TRIANGLE, tables, (3, 1))),
        ("distances", FAR, PLACES.groups[0].take(np.zeros(1, np.int64))),
        ("knots", CORNERS, Knots((0, 1), (right, right), STEPS)),
        ("lists", LISTED, from_texts(CODES, ["code = 7"]).groups[0]),
        ("forms of cells", NEW_TEXT, FORMS_OF_CELLS),
        ("forms of cells", OTHER_TEXT, FORMS_OF_CELLS),
        ("forms and texts", OTHER_TEXT, Together((FORMS_OF_CELLS, DistinctTexts("cell")))),
        ("rows of units", HOUSEHOLD, ViewTables(View(HOUSES, "person", 1, 3), ((2,),))),
        ("pairs of rows", HOUSEHOLD, ViewTables(View(HOUSES, "person", 2, 6), ((2, 3),))),
        ("tallies", MIXED_HOUSEHOLD, Tallies(HOUSES, "person", ((0,),), (1,), 3)),
    ]


def cases() -> list[Case]:
    """Every statistic and every score, each between the neighbours that move it most."""
    quick, long = 20_000, 1_000_000
    found = [
        Case(
            f"measure: {name}", pair.words, measured(pair, each, pure(pair), laplace), quick=quick, long=long
        )
        for name, pair, each in _measurements()
    ]
    few = measured(ALONE, number_of_records(BITS), pure(ALONE), laplace, block=FEW)
    found += [
        Case("measure: number of records, few draws", ALONE.words, few, quick=20_000, long=400_000),
        Case("measure: two in a row", REPLACED.words, twice(REPLACED, OPPOSED), quick=quick, long=long),
        gaussian_case(ALONE, Accounting.GAUSSIAN),
        gaussian_case(ALONE, Accounting.ZCDP),
    ]
    for pair in (REPLACED, ALONE, MANY):
        score = signed_errors(pair, OPPOSED)
        found.append(Case("select: queries", pair.words, exact=exact_selection(pair, score, EPSILON)))
        found.append(Case("select: queries", pair.words, drawn(pair, score), quick=20_000, long=400_000))
    for pair in (REPLACED, MANY):
        tables = table_errors(pair)
        found.append(Case("select: tables", pair.words, exact=exact_selection(pair, tables, EPSILON)))
    found += [
        Case("frequent: texts", pair.words, shown_texts(pair), quick=4_000, long=200_000)
        for pair in (NEW_TEXT, OTHER_TEXT)
    ]
    found.append(Case("select: eight draws", REPLACED.words, eight_draws(), quick=20_000, long=400_000))
    return found


class FixedChance(SeededEntropy):
    """Chance that says what it is told to, and remembers below which bound it was asked."""

    def __init__(self) -> None:
        super().__init__(0)
        self.value = 0
        self.bound = 1

    def below(self, bound: int, count: int) -> list[int]:
        assert count == 1, "one draw reads one integer"
        self.bound = bound
        return [self.value]

    def words(self, count: int) -> Words:
        self.bound = 1 << 64 * count
        return np.array(
            [self.value >> 64 * place & (1 << 64) - 1 for place in reversed(range(count))], np.uint64
        )


def law_of(draw: Callable[[FixedChance], str]) -> dict[str, Fraction]:
    """The probability of every outcome of a draw that reads one uniform integer, in stretches."""
    chance = FixedChance()

    def at(value: int) -> str:
        chance.value = value
        return draw(chance)

    at(0)
    bound, law, first = chance.bound, {}, 0
    last = at(bound - 1)
    while True:
        outcome = at(first)
        assert outcome not in law, "an outcome owns one stretch"
        if outcome == last:
            law[outcome] = Fraction(bound - first, bound)
            return law
        past = first_whole(first, bound, lambda value, outcome=outcome: at(value) != outcome)  # type: ignore[misc]
        law[outcome] = Fraction(past - first, bound)
        first = past


def largest_loss(one: dict[str, Fraction], other: dict[str, Fraction]) -> float:
    """max |ln p/p′| over outcomes; infinite where one of them cannot happen."""
    if one.keys() != other.keys():
        return math.inf
    return max(abs(_log(one[outcome] / other[outcome])) for outcome in one)


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def exact_selection(pair: Pair, score: Score, epsilon: Fraction) -> Callable[[], Computed]:
    def computed() -> Computed:
        budget = pure(pair, epsilon)
        rate = rate_within(Price(epsilon, None), score, pair.neighbours)
        laws, claims = [], []
        for table in pair.tables:
            counter, ledger = MemoryCounter(table), Ledger(budget)
            Curator(counter, ledger, SeededEntropy(0)).select(score, rate=rate)
            claims.append(ledger.spent().epsilon)

            def draw(chance: FixedChance, counter: MemoryCounter = counter) -> str:
                found = Curator(counter, Ledger(budget), chance).select(score, rate=rate)
                return f"{found.queries[0]} {found.negated[0]}"

            laws.append(law_of(draw))
        return Computed(largest_loss(laws[0], laws[1]), Claim(max(claims)))

    return computed


def exact_hazard(test: HazardTest) -> Callable[[], Computed]:
    """The least price of a fire with which (∗) of docs/privacy.md holds between neighbours, beside the price paid.

    ln(Σ_fires p^α p′^{1−α} / (1 − p₀^α p′₀^{1−α})) / (α − 1), the largest over x and x′ at most K apart.
    """

    def computed() -> Computed:
        order, reach = test.order, 2 * test.threshold + math.ceil(8 / test.epsilon)
        laws = {
            x: law_of(lambda chance, x=x: str(test.draw(np.array([x]), chance)))  # type: ignore[misc]
            for x in range(-reach, reach + 1)
        }
        worst = max(
            least_price(laws[x], laws[y], order)
            for x in laws
            for y in range(max(-reach, x - test.sensitivity), min(reach, x + test.sensitivity) + 1)
            if x != y
        )
        return Computed(worst, Claim(float(test.event.cost)), f"exact, Rényi order {order}")

    return computed


def least_price(one: dict[str, Fraction], other: dict[str, Fraction], order: int) -> float:
    """The D with which silence^α silence′^{1−α} + e^{−(α−1)D} Σ_fires p^α p′^{1−α} = 1.

    Infinite where something can happen on one side only.
    """
    if one.keys() != other.keys():
        return math.inf

    def moment(outcome: str) -> Fraction:
        p, q = one[outcome], other[outcome]
        return p * (p / q) ** (order - 1)

    silence = moment(str(None)) if str(None) in one else Fraction(0)
    fires = sum((moment(outcome) for outcome in one if outcome != str(None)), Fraction(0))
    if silence >= 1:
        return math.inf if fires else 0.0
    return _log(fires / (1 - silence)) / (order - 1)
