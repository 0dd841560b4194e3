"""The way of projection under pure ε: signed tables with Laplace noise, at once, or where the rows are wrong.

A public rule, from workload, domain, budget and n alone, says which and how precisely. For P pairs of on average q
entries each,

    x = Δ · P · q / (n ε)        Δ: how far a neighbour moves a signed table (1; 2 where a record is replaced)

is the noise of all pairs, summed over an entry's table, in units of n. Where x is small, tables are measured at once,
with the shares of ε that leave the least predicted error in the tables of the workload (`allocation.Overlaps`):
triples alone where they can be known well, pairs alone where they cannot; in between a few of many triples are chosen
where the rows are most wrong, for an eighth of ε. Where x is not small, one-way tables get
the share .5 x^.15 of ε, within .25 and .75, and T pairs are chosen, one a round, and measured with the noise of T
instead of P: the exponential mechanism chooses the pair whose signed table the rows get most wrong, less half of the
noise that measuring it would bring; it is measured, and the rows answer the residual of everything heard so far.
docs/how_it_works.md, "Pure ε", has the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.allocation import DEPENDENCE, Curves, Overlaps, predicted_curves
from dualquery.fitting.fit import LIKELY, RefittingDataPlayer, product_start
from dualquery.fitting.fitter import COUNT_SECONDS, SCOUT, VISIT_SECONDS, Chains, Effort, Fitting
from dualquery.fitting.measured import (
    Measured,
    MeasuredTables,
    cell_variance,
    determined,
    interactions_told,
    variance_told,
)
from dualquery.game import play
from dualquery.game.query_players import BestResponseQueryPlayer
from dualquery.mechanisms.mechanism import Plan, Step, Task, hidden
from dualquery.mechanisms.projection.predicted import predicted_errors
from dualquery.mechanisms.projection.tables import (
    MOST_CELLS,
    all_small,
    assumed_ones,
    cells_within,
    of_tables,
)
from dualquery.mechanisms.shares import (
    MAX_ERROR,
    MEAN_ERROR,
    NOTHING,
    SHARE_OF_TOTAL,
    TOO_SMALL,
    FitCost,
    built,
    cost_of_fit,
    laplace_at_once,
    measures_total,
    tables_of,
    varied_sets,
    work_of,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import decimal
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import LaplaceMeasurement, Selection
from dualquery.privacy.ledger import equal_prices
from dualquery.privacy.noise import Laplace, Law
from dualquery.privacy.scores import MOST_PUBLIC_ROWS, SignedTableErrors, rate_within, selection_event
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.derived import SignedTables
from dualquery.queries.tables import Tables, signed_entries
from dualquery.table.records import Records
from dualquery.types import Cells, Integers, Set

ONES_POWER = 0.5  # ε_S ∝ entries^power, of one-way tables where pairs are chosen
PRECISE = 0.12  # x up to which tables are measured at once
LARGER_DEPENDENCE = 0.05  # θ of sets of three and more (`allocation`)
CHOSEN_TRIPLES = 8  # where they are chosen, of at least five times as many
SHARE_OF_TRIPLES = Fraction(12, 100)
LARGER_PAY = 0.3  # the share from which on larger sets are all measured at once rather than few chosen
SOME_NOISE = 0.015  # of all triples' entries, in parts of the records: up to here a few are worth choosing
SHARE_OF_CHOOSING = Fraction(15, 100)  # of what a round costs
LEAST_RECORDS = 50  # per round, in units of Δ/ε: a chosen pair should not drown
MOST_CANDIDATE_CELLS = 20_000_000


@dataclass(frozen=True)
class Rounds:
    """Signed tables of which one a round is chosen where the rows are most wrong, and measured."""

    number: int
    candidates: Tables
    rate: Rate
    noise: Laplace

    @property
    def statistic(self) -> SignedTables:
        """What is measured of any candidate: all move alike."""
        return SignedTables(self.candidates.domain, self.candidates.sets[:1], (1,))


@dataclass(frozen=True)
class SignedPlan:
    """Signed tables that are measured at once, all with noise of one scale, and the rounds that follow, if any."""

    first: SignedTables
    noise: Laplace
    rounds: Rounds | None

    def variances(self) -> dict[Set, float]:
        """The variance of the noise of an entry of each table that is measured at once, in records."""
        return {
            members: (self.noise.deviation / multiplier) ** 2
            for members, multiplier in zip(self.first.sets, self.first.multipliers, strict=True)
        }

    def expected_variances(self) -> dict[Set, float]:
        """The same, with as many candidates as will be chosen, evenly spread."""
        if self.rounds is None:
            return self.variances()
        sets, number = self.rounds.candidates.sets, self.rounds.number
        chosen = [sets[i] for i in np.linspace(0, len(sets) - 1, number).astype(int)]
        return self.variances() | dict.fromkeys(chosen, self.rounds.noise.deviation**2)


@dataclass(frozen=True)
class Shape:
    """What the rule looks at."""

    orders: Mapping[int, list[Set]]  # the sets of the workload and their subsets, without constant attributes
    entries: Mapping[Set, int]
    records: float  # n ε / Δ: in these units noise of scale one is what the whole budget buys one table

    @staticmethod
    def of(task: Task) -> Shape:
        sizes, orders = task.domain.sizes.tolist(), varied_sets(task)
        if not orders.get(1):
            raise DualQueryError(NOTHING)
        entries = {
            members: signed_entries([sizes[j] for j in members])
            for sets in orders.values()
            for members in sets
        }
        moved = task.budget.neighbours.largest(alone=1, apart=2)
        return Shape(orders, entries, task.rows * task.budget.epsilon / moved)

    @property
    def pairs(self) -> list[Set]:
        return self.orders.get(2, [])

    @property
    def noise_of_pairs(self) -> float:
        """x of the module's description."""
        return sum(self.entries[members] for members in self.pairs) / self.records

    @property
    def share_of_ones(self) -> float:
        return min(max(0.5 * self.noise_of_pairs**0.15, 0.25), 0.75) if self.pairs else 1.0

    @property
    def chosen_pairs(self) -> int:
        """T, or 0 where all pairs are measured at once."""
        pairs, x = len(self.pairs), self.noise_of_pairs
        if pairs < 2 or x <= PRECISE:
            return 0
        wanted = min(0.15 * pairs / math.sqrt(x), 2 * len(self.orders[1]), self.records / LEAST_RECORDS)
        return max(1, round(wanted))

    @property
    def may_choose_triples(self) -> bool:
        triples = self.orders.get(3, [])
        entries = sum(self.entries[members] for members in triples)
        return len(triples) >= 5 * CHOSEN_TRIPLES and entries <= SOME_NOISE * self.records

    def best_shares(self, task: Task, most_cells: int) -> dict[Set, float]:
        """The shares of tables that are measured at once; 0 cells: of pairs and one-way tables alone."""
        overlaps = self.overlaps(task, most_cells)
        best = zip(overlaps.curves.sets, overlaps.best().tolist(), strict=True)
        return {members: share for members, share in best if share}

    def candidates(self, most_cells: int, sizes: list[int]) -> list[Set]:
        """What may be measured at once: larger sets only where, measured like all of their order, a table holds more
        than its noise, and within so many cells.
        """
        kept = [*self.orders[1], *self.pairs]
        for order in sorted(self.orders):
            smaller, sets = set(kept), self.orders[order]
            fine = [
                s
                for s in sorted(sets, key=lambda s: (self.entries[s], s))
                if order > 2
                and len(sets) * self.entries[s] <= self.records
                and smaller.issuperset(combinations(s, order - 1))
            ]
            cells = accumulate(math.prod(sizes[j] for j in s) for s in fine)
            kept += sorted(s for s, total in zip(fine, cells, strict=True) if total <= most_cells)
        return kept

    def overlaps(self, task: Task, most_cells: int) -> Overlaps:
        """The tables that may be measured at once, and what they tell."""
        domain, sizes = task.domain, task.domain.sizes.tolist()
        sets = self.candidates(most_cells, sizes)
        unit = 2 * (task.rows / self.records) ** 2  # of Laplace noise of scale Δ/ε: a share of one
        told = [
            (each, place, 1 / variance_told(members, each, unit, domain))
            for place, members in enumerate(sets)
            for each in determined(members, domain)
            if each
        ]
        alike = [
            (len(s), sum(sizes[j] == 2 for j in s), math.floor(math.log2(self.entries[s]) / 2)) for s in sets
        ]
        thetas = np.array([{1: 1.0, 2: DEPENDENCE}.get(len(s), LARGER_DEPENDENCE) for s in sets])
        curves = predicted_curves(sets, assumed_ones(task), task.rows, np.ones(len(sets)), thetas)
        # centring takes the same part of what sampling makes of a cell and of its noise
        centred = np.sqrt([math.prod((sizes[j] - 1) / sizes[j] for j in s) for s in sets])
        curves = Curves(curves.sets, curves.shares, centred[:, None] * curves.errors)
        return Overlaps.of(curves, tables_of(task), told, alike)


def plan_signed(task: Task, most_cells: int = MOST_CELLS) -> SignedPlan:
    """Shares of ε by the rule, then integer multipliers and the one scale of noise that costs them."""
    shape, rounds = Shape.of(task), None
    if shape.chosen_pairs:
        share_of_rounds = 1 - Fraction(shape.share_of_ones).limit_denominator(100)
        rounds = _rounds(shape.pairs, shape.chosen_pairs, share_of_rounds, task)
        powers = {members: shape.entries[members] ** ONES_POWER for members in shape.orders[1]}
        shares = {members: power / sum(powers.values()) for members, power in powers.items()}
    else:
        shares = shape.best_shares(task, most_cells)
        of_larger = sum(share for members, share in shares.items() if len(members) > 2)
        if shape.may_choose_triples and of_larger < LARGER_PAY:
            rounds = _rounds(shape.orders[3], CHOSEN_TRIPLES, SHARE_OF_TRIPLES, task)
            shares = shape.best_shares(task, 0)
    if measures_total(task):
        shares = {(): SHARE_OF_TOTAL, **{s: (1 - SHARE_OF_TOTAL) * part for s, part in shares.items()}}
    epsilon = _left_for_first(rounds, task)
    return SignedPlan(*laplace_at_once(shares, epsilon, task.domain, task.budget.neighbours), rounds)


def _rounds(sets: list[Set], number: int, share: Fraction, task: Task) -> Rounds:
    """Rounds that cost a share of ε, each the same; of very many sets the smallest may be chosen."""
    sizes, neighbours = task.domain.sizes.tolist(), task.budget.neighbours
    smallest = sorted(sets, key=lambda members: (math.prod(sizes[j] for j in members), members))
    cells = np.cumsum([math.prod(sizes[j] for j in members) for members in smallest])
    most = int(np.searchsorted(cells, MOST_CANDIDATE_CELLS, side="right"))
    candidates = Tables(task.domain, tuple(sorted(smallest[: max(1, most)])))
    number = min(number, len(candidates.sets))
    measuring = equal_prices(task.budget, number, share * (1 - SHARE_OF_CHOOSING))
    choosing = equal_prices(task.budget, number, share * SHARE_OF_CHOOSING)
    one = neighbours.sensitivity(SignedTables(task.domain, candidates.sets[:1], (1,)).bound())
    noise = measuring.noise(one)
    assert isinstance(noise, Laplace), "pure accounting"
    Law.laplace(noise.scale)  # refuses what could not be drawn
    rate = rate_within(choosing, errors_of(candidates, task.rows), neighbours)
    return Rounds(number, candidates, rate, noise)


def errors_of(candidates: Tables, rows: int, penalties: np.ndarray | None = None) -> SignedTableErrors:
    """The score of a choice. Penalties are at most half of the records, which is what a plan knows of them."""
    public = min(rows, MOST_PUBLIC_ROWS)
    if penalties is None:
        penalties = np.zeros(len(candidates.sets))
        penalties[0] = public / 2
    return SignedTableErrors(candidates, public, penalties)


def events_of(rounds: Rounds, task: Task) -> tuple[Selection, LaplaceMeasurement]:
    """A choice, and the measurement of what was chosen."""
    neighbours, errors = task.budget.neighbours, errors_of(rounds.candidates, task.rows)
    selection = selection_event(errors, neighbours, rate=rounds.rate, draws=1)
    assert selection is not None, "errors can move"
    return selection, rounds.noise.event(neighbours.sensitivity(rounds.statistic.bound()))


def _left_for_first(rounds: Rounds | None, task: Task) -> Fraction:
    """ε less what the rounds cost, to the last unit."""
    left = math.floor(decimal(task.budget.epsilon) * UNITS)
    if rounds is not None:
        left -= rounds.number * sum(math.ceil(event.pure * UNITS) for event in events_of(rounds, task))
    if left < 1:
        raise BudgetError(TOO_SMALL)
    return Fraction(left, UNITS)


ROUGHLY = 0.05  # the relative deviation of a declared number of records


@dataclass(frozen=True, kw_only=True)
class BySignedTables:
    """Signed tables with Laplace noise, where the budget is pure ε."""

    measured: str = "signed tables"
    sets: int
    rounds: int
    cell_noise: float
    tables: SignedPlan = hidden()
    effort: Effort

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        measured = measure(self.tables, curator, task, rng)
        larger = [s for order, sets in varied_sets(task).items() if order > 2 for s in sets]
        return of_tables(
            measured, at_once=not measured.larger() or all_small(larger, measured), likely=LIKELY
        )


def plan_by_signed_tables(task: Task, wanted: ProjectionWishes, effort: Effort) -> Plan[BySignedTables]:
    """Signed tables at once, or one after another where few can be afforded."""
    if wanted.items_per_record is not None:
        raise DualQueryError(
            "--items-per-record needs Gaussian noise; leave it out, or ask for zcdp accounting"
        )
    planned = plan_signed(task, cells_within(task, effort, wanted.memory))
    told, rounds = variances_told(planned, task), planned.rounds
    noise = cell_noise(told, task)
    effort = effort.shared_out(noise)
    words = f"measure {len(planned.first.sets):,} signed tables at once"
    steps = [Step(words, planned.noise.event(task.budget.neighbours.sensitivity(planned.first.bound())))]
    if rounds is not None:
        choice, measurement = events_of(rounds, task)
        steps += [
            Step("choose a signed table on which the rows are wrong", choice, rounds.number),
            Step("measure it", measurement, rounds.number),
        ]
    return built(
        task,
        BySignedTables(
            sets=len(planned.first.sets),
            rounds=0 if rounds is None else rounds.number,
            cell_noise=noise,
            tables=planned,
            effort=effort,
        ),
        reason=reason_of(planned),
        steps=tuple(steps),
        errors=predicted_errors(task, told, MEAN_ERROR * noise, MAX_ERROR * noise),
        cost=cost_of(planned, task, effort, noise),
        memory=wanted.memory,
    )


def measure(plan: SignedPlan, curator: Curator, task: Task, rng: np.random.Generator) -> MeasuredTables:
    """Everything that the plan asks of the curator, as interactions."""
    known = MeasuredTables.rows(task.domain, float(task.rows), _variance_of_rows(task))
    noisy = plan.first.in_records(curator.measure(plan.first, noise=plan.noise))
    variances = plan.variances()
    heard = (Measured(members, entries, variances[members]) for members, entries in noisy.items())
    known = known.joined(told for each in heard for told in interactions_told(each, task.domain)).counted()
    return known if plan.rounds is None else _play(plan.rounds, known, curator, rng)


def _variance_of_rows(task: Task) -> float:
    """How well the number of records is known: exactly, as it was measured, or as somebody declared it, roughly."""
    if task.budget.neighbours.size_is_public:
        return 0.0
    return task.rows_variance or (ROUGHLY * task.rows) ** 2


def _play(
    rounds: Rounds, before: MeasuredTables, curator: Curator, rng: np.random.Generator
) -> MeasuredTables:
    """Choose, measure, refit, repeat; the data player hears of every table."""
    rows = min(max(1, round(before.total)), MOST_PUBLIC_ROWS)
    scouts = product_start(before.domain, before.ones(), SCOUT, rng)
    questions = SignedQuestions(rounds, rows, before.ones(), scouts)
    query_player: BestResponseQueryPlayer[Measured, Chains]
    query_player = BestResponseQueryPlayer(curator, questions, rate=rounds.rate, noise=rounds.noise)
    data_player = RefittingDataPlayer(before, scouts, rng)
    play(query_player, data_player, rounds=rounds.number, remembers=1)
    return data_player.known


def penalties_of(rounds: Rounds, rows: int, ones: dict[int, Cells]) -> NDArray[np.float64]:
    """½ Σ_cells min(b / 2^binary, n Π p_j): half of the noise of a table, but no more than half of its cells hold.

    Where a cell is smaller than its noise, the fit keeps to what independence says.
    """
    sizes, scale = rounds.candidates.domain.sizes, rounds.noise.mean_size
    out = []
    for members in rounds.candidates.sets:
        expected: Cells = np.array(float(rows))
        for j in members:
            expected = np.multiply.outer(expected, ones[j])
        binary = sum(int(sizes[j]) == 2 for j in members)
        out.append(0.5 * float(np.minimum(scale / 2**binary, expected).sum()))
    return np.array(out)


class SignedQuestions:
    """Signed tables that rows may get wrong; each is measured at most once."""

    def __init__(self, rounds: Rounds, rows: int, ones: dict[int, Cells], start: Chains) -> None:
        self._tables = rounds.candidates
        self._noise = rounds.noise
        self._errors = errors_of(rounds.candidates, rows, penalties_of(rounds, rows, ones))
        self._start = start
        self._left = np.arange(len(self._tables.sets), dtype=np.int64)

    def score(self, reply: Chains | None) -> SignedTableErrors:
        rows = Records.from_rows(self._tables.domain, (self._start if reply is None else reply)[0])
        answers = self._tables.counts(rows) / rows.rows
        return self._errors.told(answers, self._left)  # type: ignore[return-value]

    def statistic(self, chosen: Selected) -> SignedTables:
        return SignedTables(self._tables.domain, (self._members(chosen),), (1,))

    def heard(self, chosen: Selected, noisy: Integers) -> Measured:
        ((members, entries),) = self.statistic(chosen).in_records(noisy).items()
        self._left = self._left[self._left != self._left[chosen.queries[0]]]
        return Measured(members, entries, self._noise.deviation**2)

    def _members(self, chosen: Selected) -> tuple[int, ...]:
        return self._tables.sets[int(self._left[chosen.queries[0]])]


def reason_of(plan: SignedPlan) -> str:
    """Which tables, in words."""
    counts: dict[int, int] = {}
    for members in plan.first.sets:
        if members:
            counts[len(members)] = counts.get(len(members), 0) + 1
    first = ", ".join(f"{count:,} of order {order}" for order, count in sorted(counts.items()))
    chosen = ""
    if plan.rounds is not None:
        order = len(plan.rounds.candidates.sets[0])
        chosen = (
            f", then {plan.rounds.number:,} of {len(plan.rounds.candidates.sets):,} of order {order} where the "
            "rows are most wrong"
        )
    return (
        f"the workload falls into tables of few attributes, so their signed tables are measured with Laplace noise "
        f"({first}){chosen}, and rows are fitted to them"
    )


def variances_told(plan: SignedPlan, task: Task) -> dict[Set, float]:
    """Of the noise of every interaction that some signed table tells."""
    known: dict[Set, float] = {(): math.inf}
    for members, variance in plan.expected_variances().items():
        for each in determined(members, task.domain):
            precision = 1 / variance_told(members, each, variance, task.domain)
            known[each] = known.get(each, 0.0) + precision
    return {each: 1 / precision for each, precision in known.items()}


def cell_noise(told: Mapping[Set, float], task: Task) -> float:
    """The standard deviation of a cell of a measured pair's table (of a one-way table where there are no pairs)."""
    base: list[Set] = [s for s in told if len(s) == 2] or [s for s in told if s]
    cells = [1 / cell_variance(s, told, task.domain.sizes) for s in base]
    return 1 / math.sqrt(float(np.mean(cells))) / task.rows


def cost_of(plan: SignedPlan, task: Task, effort: Effort, noise: float) -> FitCost:
    """Of the fit, its rehearsal, the counting and the rounds."""
    rounds, sets = plan.rounds, [s for s in plan.expected_variances() if s]
    if rounds is None:
        return cost_of_fit(task, sets, effort, noise)
    tables = rounds.candidates
    fit, visits = cost_of_fit(task, sets, effort, noise), float(work_of(task, sets).sum())
    refit = SCOUT.work * (visits * VISIT_SECONDS + 2e-6) + 0.1
    choosing = rounds.number * (refit + len(tables.sets) * (SCOUT.rows * COUNT_SECONDS + 3e-5))
    counting = task.rows * len(tables.sets) * COUNT_SECONDS
    return FitCost(fit.seconds + choosing + counting, fit.bytes + 32 * tables.size, fit.largest)
