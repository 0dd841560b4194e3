"""Values that no sampled query decides: zero, random, or by a privately estimated density.

The first two are the paper's (section 7, "Setting free attributes"); the third is its footnote, "the sparsity of the
dataset could be estimated at a small additional cost to privacy", taken attribute by attribute: noisy one-way counts,
from which each free value is drawn. Where noise hides single counts, the mean over all binary attributes is left.

How many samples, how fast, how long: DualQuery's parameters from public quantities alone.

Three ways. From the theory: a target (α, β) fixes all of them (Algorithm 2). From the user: any of learning rate,
samples and rounds given, the rest fitted to the budget. From a rule.

The rule. ρ is as s η² T³, the largest error as 1 / (η T). By the theory s is in proportion to T (of Algorithm 2
both have 1 / α²), and so it is here, where the draws that count are those of all rounds that are recalled: together
half as many as rounds. Where free values follow a density, draws only have to correct it; where they do not, there
must be one for every decision. Constants are from runs on Adult, KDD99, Kosarak and biased data from ε = 0.05 to 5;
around its best the error is flat (docs/learners.md, `python -m experiments.dualquery_parameters`).

*What it costs*, in closed form (Gaboardi et al. 2014, Theorems 4.2 and 4.3, and ρ): in round t the log-weights of
the queries move within a range of w η (t − 1)/n between neighbours, where w = 2 if a record may be replaced (a count
rises or falls by one), and w = 1 if one may be added or removed (no count falls, if the negation of a query counts
the records that do not satisfy it, and n is a public constant), and K times that where a person's K records move
together. Round 1 is free: all weights are equal.

Where values come from that no sampled query decides: `density`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.game import Fallback, Record
from dualquery.mechanisms.mechanism import Step, Task, affordable, hidden, part_of
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.privacy.budget import Accounting, Budget, Neighbours, Sensitivity, decimal
from dualquery.privacy.conversion import UNITS, advanced_composition, rho_of, rho_units_of
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.scores import SignedErrors, selection_event, signed_range
from dualquery.privacy.selection import SLACK, Rate
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import Group, Predicates
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain
from dualquery.types import first_whole, halved

BLUR_MOST = 0.1  # more noise than this share of the table hides a count

OneWay = NDArray[np.integer] | NDArray[np.floating]


class Free(Enum):
    """Where the values come from that no sampled query decides."""

    ZEROS = "zeros"
    RANDOM = "random"
    DENSITY = "density"


def zeros(domain: Domain) -> Fallback:
    """The first value of every attribute; right for sparse binary data."""
    record = np.zeros(domain.width, np.int32)
    return lambda rng: record


def uniform(domain: Domain) -> Fallback:
    """Every value of an attribute with equal probability."""
    return lambda rng: (rng.random(domain.width) * domain.sizes).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Density:
    """The one-way counts of every attribute: a query `= 1` where it is binary, a table where it is not.

    (Of the two cells of a binary attribute one tells the other, and moves half as much.)
    """

    domain: Domain
    ones: Conjunctions
    tables: Tables

    @staticmethod
    def of(domain: Domain) -> Density:
        binary = np.flatnonzero(domain.sizes == 2)
        predicates = Predicates(
            binary.astype(np.int32),
            np.arange(len(binary) + 1, dtype=np.int64),
            np.ones(len(binary), np.int32),
        )
        literals = 2 * np.arange(len(binary), dtype=np.int32)[:, None]
        wider = tuple((int(j),) for j in np.flatnonzero(domain.sizes > 2))
        return Density(domain, Conjunctions(domain, predicates, literals), Tables(domain, wider))

    @property
    def statistics(self) -> tuple[Group, ...]:
        """What is measured: those of the two that ask for anything."""
        return tuple(group for group in (self.ones, self.tables) if group.size)

    def noise(self, budget: Budget, share: float) -> Noise:
        """The noise with which all one-way counts together cost `share` of the budget.

        Gaussian under zCDP: σ² = Δ₂² / (2 · share · ρ). Laplace under pure DP: b = Δ₁ / (share · ε).
        """
        moved = [budget.neighbours.sensitivity(each.bound()) for each in self.statistics]
        together = Sensitivity(sum(each.l1 for each in moved), sum(each.l2_squared for each in moved))
        if budget.accounting is Accounting.PURE:
            return Laplace(together.l1 / part_of(Fraction(budget.epsilon), share))
        return Gaussian(
            together.l2_squared / (2 * part_of(rho_of(epsilon=budget.epsilon, delta=budget.delta), share))
        )

    def fallback(self, noisy: list[OneWay], *, rows: int, deviation: float) -> Fallback:
        """Values drawn, attribute by attribute, from noisy counts (in the order of `statistics`)."""
        clear, left = self.clear(deviation, rows), list(noisy)
        ones: NDArray[np.float64] = np.zeros(self.domain.width)
        if self.ones.size:
            counts = left.pop(0)
            likely = _cut(counts, rows, deviation) if clear else _together(counts / rows, deviation / rows)
            ones[self.ones.predicates.attribute] = likely
        ends: list[tuple[int, NDArray[np.float64]]] = []
        for t, (attribute,) in enumerate(self.tables.sets):
            cells = left[0][self.tables.cells_of(t)]
            if clear:
                kept = np.where(cells > 2 * deviation, cells, 0)
            else:
                kept = _shrunk(cells / rows, deviation / rows, 1 / len(cells))
            kept = kept + 1e-9
            ends.append((attribute, np.cumsum(kept / kept.sum())))
        width = self.domain.width

        def drawn(rng: np.random.Generator) -> Record:
            chance = rng.random(width)
            record = (chance < ones).astype(np.int32)
            for attribute, cumulated in ends:
                place = int(np.searchsorted(cumulated, chance[attribute]))
                record[attribute] = min(place, len(cumulated) - 1)
            return record

        return drawn

    def clear(self, deviation: float, rows: int) -> bool:
        """Whether noise of this deviation leaves each count to be seen by itself."""
        return deviation <= BLUR_MOST * rows

    def guides(self, deviation: float, rows: int) -> bool:
        """Whether it leaves at least the mean of all counts of binary attributes, where most attributes are such."""
        together = self.ones.size if 2 * self.ones.size > self.domain.width else 1
        return self.clear(deviation / math.sqrt(together), rows)


def _cut(counts: OneWay, rows: int, deviation: float) -> NDArray[np.float64]:
    """A count within two deviations of nothing is taken for nothing, and of everything for everything.

    Among thousands of rare items the noise alone would otherwise fill the records.
    """
    blur = 2 * deviation
    return np.where(counts > blur, np.where(counts < rows - blur, counts / rows, 1.0), 0.0)


def _together(found: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Fractions that noise drowns one by one, drawn towards their mean, which many of them tell.

    The mean m is that of a normal law around the one found, cut off below nothing and above all.
    """
    law, middle = NormalDist(), float(found.mean())
    blur = deviation / math.sqrt(len(found))
    low, high = -middle / blur, (1 - middle) / blur
    inside = law.cdf(high) - law.cdf(low)
    if inside > 1e-12:
        middle += blur * (law.pdf(low) - law.pdf(high)) / inside
    mean = min(max(middle, 0.0), 1.0)
    return _shrunk(found - found.mean() + mean, deviation, mean)


def _shrunk(found: NDArray[np.float64], deviation: float, mean: float) -> NDArray[np.float64]:
    """m + v/(v + σ²) (x − m), by empirical Bayes: v is the spread that is not noise, at most m(1 − m)."""
    spread = float(np.mean((found - mean) ** 2)) - deviation**2
    real = min(max(0.0, spread), mean * (1 - mean))
    return np.clip(mean + real / (real + deviation**2) * (found - mean), 0.0, 1.0)


def density_share(accounting: Accounting) -> float:
    """The part of the budget that goes to one-way counts where free values follow a density."""
    return 0.1 if accounting is not Accounting.PURE else 0.2


NO_SLACK = Fraction(0)


class Learning(NamedTuple):
    """η, s and T of Algorithm 2."""

    learning_rate: float
    samples: int
    rounds: int


def dual_query_pure(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK
) -> Fraction:
    """Pure ε = w η T (T − 1) s / (2n). With w = 2: Theorem 4.2. `slack` is added to the range of all later draws."""
    step, rounds = _step(learning, rows, neighbours), learning.rounds
    return learning.samples * (step * _first_powers(rounds) + slack * (rounds - 1))


def dual_query_advanced(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK, *, delta: float
) -> float:
    """ε = ε' (√(2k ln(1/δ)) + k (e^ε' − 1)), ε' = w η (T − 1)/n, k = s (T − 1). With w = 2: Theorem 4.3."""
    step, later = _step(learning, rows, neighbours), learning.rounds - 1
    return advanced_composition(step * later + slack, learning.samples * later, delta=delta)


def dual_query_rho(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK
) -> Fraction:
    """ρ = Σ_t s (w η (t − 1)/n)² / 8. With w = 2: s η² T (T − 1)(2T − 1) / (12 n²)."""
    step, rounds = _step(learning, rows, neighbours), learning.rounds
    squares = step**2 * _second_powers(rounds) + 2 * step * slack * _first_powers(rounds)
    return learning.samples * (squares + slack**2 * (rounds - 1)) / 8


def pays_for(budget: Budget, learning: Learning, rows: int, slack: Fraction) -> bool:
    """Whether its rounds fit. The ledger rounds each of them up to a unit; two units a round leave room."""
    setting, room = (learning, rows, budget.neighbours, slack), 2 * learning.rounds
    if budget.accounting is Accounting.THEOREM_4_3:
        return dual_query_advanced(*setting, delta=budget.delta) * (1 + 1e-12) <= budget.epsilon
    if budget.accounting is Accounting.ZCDP:
        limit = rho_units_of(epsilon=budget.epsilon, delta=budget.delta)
        return dual_query_rho(*setting) * UNITS + room <= limit
    if budget.accounting is Accounting.PURE:
        return dual_query_pure(*setting) * UNITS + room <= decimal(budget.epsilon) * UNITS
    raise BudgetError("Gaussian accounting pays for Gaussian noise only; DualQuery draws, so use zcdp.")


def _largest(fits: Callable[[int], bool], enough: int, too_many: int) -> int:
    """The largest number that fits, between one that does and one that does not."""
    return first_whole(enough, too_many, lambda each: not fits(each)) - 1


def _step(learning: Learning, rows: int, neighbours: Neighbours) -> Fraction:
    """How much the range of the log-weights grows a round: w η / n."""
    if not learning.learning_rate > 0 or learning.samples < 1 or rows < 1:
        raise BudgetError("The learning rate, the samples and the number of records must be positive.")
    return signed_range(neighbours, 1) * decimal(learning.learning_rate) / rows


def _first_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)."""
    return rounds * (rounds - 1) // 2


def _second_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)²."""
    return rounds * (rounds - 1) * (2 * rounds - 1) // 6


LEARNING_RATE = 0.5
RATE_MOST = 1.0  # where rounds end before the budget
RECALL = 64
SAMPLES_A_ROUND = 0.5  # those of all rounds that are recalled together, in parts of the rounds
SAMPLES_A_DECISION = 3  # at most, in a round; without a density all that are recalled make one at least
SAMPLES_MOST = 50_000
ROUNDS_MOST = 4000  # a row each, and minutes
CELLS_MOST = 2 * 10**8  # of all rows: in wide tables rounds end earlier


@dataclass(frozen=True, kw_only=True)
class DualQueryParameters:
    """What a run of DualQuery goes by."""

    learning_rate: float
    samples: int
    rounds: int
    recall: int
    free: Free
    density_share: float
    oracle: str
    time_limit: float | None  # seconds a round, of an oracle other than the search
    density: Density = hidden()
    density_noise: Noise | None = hidden()
    rate: Rate = hidden()  # η / n, exactly


def from_theory(task: Task, *, alpha: float, beta: float) -> Learning:
    """T = 16 ln|Q| / α², η = α/4, s = 48 ln(2|X|T/β) / α² (Algorithm 2), for error α but with chance β."""
    if not 0 < alpha < 1 or not 0 < beta < 1:
        raise DualQueryError("--alpha and --beta must lie strictly between 0 and 1")
    closed = 2 * task.workload.size  # with the negations
    rounds = math.ceil(16 * math.log(closed) / alpha**2)
    log_universe = task.domain.log2_size * math.log(2)
    samples = math.ceil(48 * (log_universe + math.log(2 * rounds / beta)) / alpha**2)
    learning = Learning(alpha / 4, samples, rounds)
    # The closed form settles it in no time; what passes is listed step by step, and the ledger decides.
    if not pays_for(task.budget, learning, task.rows, SLACK):
        raise too_dear(task, learning, alpha)
    return learning


def too_dear(task: Task, learning: Learning, alpha: float) -> DualQueryError:
    return DualQueryError(
        f"error {alpha:g} by the theory needs {learning.rounds} rounds of {learning.samples} samples, more than "
        f"epsilon = {task.budget.epsilon:g} pays for on {task.rows} records; raise --alpha or epsilon"
    )


def from_budget(task: Task, wanted: DualQueryWishes, reserved: tuple[Step, ...]) -> Learning:
    """The given ones kept, the others by the rule; `reserved` steps are paid from the same budget.

    As many rounds as the budget pays for, if their samples grow with them. Where rounds end before the budget does,
    what is left buys a higher learning rate, and then samples.
    """
    if wanted.rounds is not None and wanted.rounds < 1:
        raise DualQueryError("--rounds must be at least 1")
    if wanted.samples is not None and wanted.samples < 1:
        raise DualQueryError("--samples must be at least 1")
    if wanted.recall is not None and wanted.recall < 1:
        raise DualQueryError("--recall must be at least 1")
    if wanted.learning_rate is not None and not 0 < wanted.learning_rate < math.inf:
        raise DualQueryError("--learning-rate must be a positive number")
    rate = wanted.learning_rate or LEARNING_RATE
    most = max(1, min(SAMPLES_MOST, SAMPLES_A_DECISION * task.workload.decisions))
    last = last_round(task)

    def usual(rounds: int) -> int:
        """Samples in proportion to the rounds; without a density those recalled must decide everything."""
        least = 0 if reserved else task.workload.decisions
        return min(most, math.ceil(max(SAMPLES_A_ROUND * rounds, least) / recalled(wanted)))

    def fits(rate: float, samples: int, rounds: int) -> bool:
        asked = Learning(rate, samples, rounds)
        # The closed form settles most of it in no time; the ledger, with what is reserved, the rest.
        return pays_for(task.budget, asked, task.rows, SLACK) and affordable(
            task.budget, (*reserved, *round_steps(task, asked))
        )

    def most_rounds(samples: Callable[[int], int], least: int) -> int:
        return _largest(lambda each: fits(rate, samples(each), each), least, last + 1)

    rounds = wanted.rounds or (1 if wanted.samples else most_rounds(usual, 1))
    samples = wanted.samples or usual(rounds)
    if wanted.rounds is None:  # whole samples leave a rest, which pays for some rounds more
        rounds = most_rounds(lambda _: samples, rounds)
    if wanted.rounds is None and rounds < 2:
        raise BudgetError(
            f"a budget of epsilon = {task.budget.epsilon:g} pays for no round of DualQuery beyond the free "
            f"first one with {samples} samples at learning rate {rate:g} on {task.rows} records; "
            "raise epsilon, or lower --samples or --learning-rate"
        )
    if wanted.learning_rate is None and rounds in (wanted.rounds, last):
        rate = _largest_rate(lambda each: fits(each, samples, rounds)) or rate
    if wanted.samples is None:
        samples = _largest(lambda each: fits(rate, each, rounds), 1, most + 1)
    if fits(rate, samples, rounds):
        return Learning(rate, samples, rounds)
    raise BudgetError(
        f"{rounds} rounds of {samples} samples at learning rate {rate:g} cost more than epsilon = "
        f"{task.budget.epsilon:g}; lower --rounds, --samples or --learning-rate, or raise epsilon"
    )


def last_round(task: Task) -> int:
    """Where rounds end by themselves."""
    return min(ROUNDS_MOST, max(2, CELLS_MOST // task.domain.width))


def recalled(wanted: DualQueryWishes) -> int:
    """How many rounds' draws a record answers."""
    return wanted.recall or RECALL


def _largest_rate(fits: Callable[[float], bool]) -> float:
    """The largest learning rate that fits, up to a public limit; 0 where none does."""
    if fits(RATE_MOST):
        return RATE_MOST
    return halved(0.0, RATE_MOST, 20, lambda rate: not fits(rate))[0]


def rate_of(learning_rate: float, rounds: int, rows: int) -> Rate:
    """η / n as an exact rate, rounded down. Scores reach (T − 1) · n; four times that leaves room for add-remove."""
    return Rate.below(learning_rate / rows, 4 * rounds * rows)


def round_steps(task: Task, learning: Learning) -> list[Step]:
    """What the rounds will ask of the curator; the first is free, since nothing has been heard."""
    rate = rate_of(learning.learning_rate, learning.rounds, task.rows)
    steps = []
    for heard in range(1, learning.rounds):
        score = SignedErrors(task.workload, task.rows, heard, task.rows, np.empty(0, np.int32))
        event = selection_event(score, task.budget.neighbours, rate=rate, draws=learning.samples)
        assert event is not None, "scores that were heard once can move"
        steps.append(Step("draw queries that the records so far get wrong", event))
    return steps
