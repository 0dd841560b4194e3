"""What to compare with: the Hadamard transform, independent noise, the uniform guess, zeros.

*Hadamard* (Barak et al. 2007) measures every parity that the workload's tables are made of, so that the tables are
consistent; multiplicative weights combine them, as Hardt, Ligett and McSherry do.

*Independent noise* on every query gives answers and no synthetic data.

Two things make this noise as good as it can be. *Incidence*: a group of queries is charged the most of them that one
record satisfies, not their number (`queries.conjunctions`). *Balances*: where a record is added or removed, 2c − n
moves by 1 as c does, and tells c with half the noise; it moves whether or not the record satisfies the query, so that
K queries have noise σ√K/2 instead of σ√r: less, where more than a quarter of them can hold at once. Both are public,
and the smaller one is taken, group by group. Where n itself is measured, balances need it well: n is measured again,
with a share of 1/(√K + 1), so that the noise of a count is σ(√K + 1)/2 at most.

The least squares mechanism: noisy answers, and the mixture of records nearest to them.

Nikolov, Talwar and Zhang (*The Geometry of Differential Privacy*, 2013) add Gaussian noise to every query and
project the noisy answers ỹ = y + w in L2 onto the hull K of what records can answer; Dwork, Nikolov and Talwar
(*Efficient Algorithms for Privately Releasing Marginals via Convex Relaxations*, 2014) do it by Frank-Wolfe, with a
relaxation of K where its maximum is hard to find. Here an oracle finds it, as in DualQuery, and K is K itself
(`beliefs.euclidean`).

    ‖ŷ − y‖² ≤ ⟨w, ŷ − y⟩ ≤ max_x ⟨w, a_x − c⟩ − ⟨w, y − c⟩          (y lies in K; any fixed c)
    E‖ŷ − y‖² ≤ σ √(2 ln|X| · min(r, |Q|/4))                      (c = 0 or ½: ‖a_x − c‖² ≤ r or = |Q|/4)

with r the most queries that one record satisfies, and ‖ŷ − y‖ ≤ ‖w‖ besides. So the mean squared error is at most
min(σ², σ √(2 r ln|X|)/|Q|), which is the promise. What gap Frank-Wolfe ends with comes on top of ‖ŷ − y‖².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import log, prod
from typing import NamedTuple

import numpy as np

from dualquery.beliefs.euclidean import RecordMixture
from dualquery.beliefs.factored import Factored, Products
from dualquery.beliefs.histogram import check_cells
from dualquery.beliefs.multiplicative_weights import StepSize, feasible, update
from dualquery.errors import BudgetError
from dualquery.fitting.measured import Measured, Numbers
from dualquery.game import Challenge, Heard, TableQuery
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.dual_query import clauses_of
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.mechanism import (
    NO_RECORDS,
    Mechanism,
    Outcome,
    Plan,
    Run,
    Step,
    Task,
    answers_only,
    hidden,
    joined_rows,
    released,
    synthetic_rows,
)
from dualquery.mechanisms.rounds import AskedQueries, QuestionKind, asked_of
from dualquery.mechanisms.wishes import NoWishes, RowsAndRoundsWishes, RowsWishes
from dualquery.oracles.local_search import best_response
from dualquery.privacy.accounting import fine_multiplier
from dualquery.privacy.budget import Accounting, decimal
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.curator import Curator, measured_at_once
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import equal_prices, least_gaussian, smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.queries.derived import Balance, GroupBalances, Multiplied, number_of_records
from dualquery.queries.group import Group
from dualquery.queries.statistics import Bound, Countable
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Fractions, Progress

HADAMARD_PASSES = 100  # gentle ones, at most
LEAST_GAIN = 0.05  # of a pass: by how much of the noise the mean gap must shrink


@dataclass(frozen=True, kw_only=True)
class HadamardParameters:
    """Every parity, with equal noise."""

    parities: int
    synthetic_rows: int
    asked: AskedQueries = hidden()
    law: Noise = hidden()


def _plan_hadamard(task: Task, wanted: RowsWishes) -> Plan[HadamardParameters]:
    cells = prod(task.domain.sizes.tolist())
    check_cells(cells)
    asked = asked_of(task.workload, QuestionKind.PARITIES, task.rows)
    assert isinstance(asked, AskedQueries), "parities are queries"
    moved = task.budget.neighbours.sensitivity(asked.statistic.bound())
    if task.budget.accounting is Accounting.GAUSSIAN:
        law: Noise = least_gaussian(task.budget, [moved] * asked.size)
    else:
        law = equal_prices(task.budget, asked.size).noise(moved)
    noise = asked.noise_in_records(law) / task.rows
    return Plan(
        task=task,
        reason=f"all {asked.size:,} parities of the workload's tables are measured",
        parameters=HadamardParameters(
            parities=asked.size,
            synthetic_rows=synthetic_rows(task, wanted.synthetic_rows),
            asked=asked,
            law=law,
        ),
        steps=(Step("measure a parity", law.event(moved), asked.size),),
        mean_error=min(0.5, noise),
        max_error=min(1.0, noise * log(2 * asked.size)),
        seconds=1.0 + HADAMARD_PASSES * asked.size * cells * 4e-9,
        bytes=24 * cells + 64 * asked.size,
    )


def hadamard(
    plan: Plan[HadamardParameters], curator: Curator, progress: Progress
) -> tuple[Factored, tuple[Measured, ...]]:
    """The distribution that multiplicative weights make of all parities, and these, measured with equal noise."""
    parities, rows, law = plan.parameters.asked.workload, plan.task.rows, plan.parameters.law
    products = Products.of(parities)
    heard = []
    balances = measured_at_once(curator, [Balance(parities, query) for query in range(parities.size)], law)
    for query, (balance,) in enumerate(balances):
        asked = TableQuery(products.attributes_of(query), products.table_of(query))
        heard.append(Heard(asked, (rows + balance) / (2 * rows)))
        progress("measuring", query + 1, parities.size)
    told = plan.parameters.asked.kept(((query, each.value) for query, each in enumerate(heard)), law)
    possible = [feasible(each, 0.5 / rows) for each in heard]
    return joined(plan.task.domain, possible, plan.parameters.asked.noise_in_records(law) / rows), told


def joined(domain: Domain, heard: Sequence[Heard[TableQuery]], noise: float) -> Factored:
    """What multiplicative weights make of measurements with this noise, which contradict each other.

    Passes end when the measurements are fitted as well as their noise deserves. Sometimes no distribution fits them
    that well: the mean gap then stands still, and every further pass would push the weights by the same
    contradiction, without end. So they end also when a pass gains next to nothing.
    """
    distribution = Factored.explicit(domain)
    before = math.inf
    for _ in range(HADAMARD_PASSES):
        gap = float(np.mean([update(distribution, each, StepSize.PAPER) for each in heard]))
        if gap <= noise or before - gap < LEAST_GAIN * noise:
            break
        before = gap
    return distribution


def _run_hadamard(
    plan: Plan[HadamardParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    distribution, measured = hadamard(plan, curator, progress)
    return replace(released(distribution, plan.parameters.synthetic_rows, rng), measured=measured)


@dataclass(frozen=True, kw_only=True)
class GuessParameters:
    """Rows that know nothing."""

    synthetic_rows: int


def _plan_guess(name: str, task: Task, wanted: RowsWishes) -> Plan[GuessParameters]:
    rows = synthetic_rows(task, wanted.synthetic_rows)
    return Plan(
        mechanism=name,
        task=task,
        reason="it looks at no data and costs nothing",
        parameters=GuessParameters(synthetic_rows=rows),
        steps=(),
        mean_error=0.25,
        max_error=1.0,
        seconds=1.0,
        bytes=8 * rows * task.domain.width,
    )


def _run_uniform(
    plan: Plan[GuessParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    return released(Factored(plan.task.domain, part_cells=1), plan.parameters.synthetic_rows, rng)


def _run_zeros(
    plan: Plan[GuessParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    rows = np.zeros((plan.parameters.synthetic_rows, plan.task.domain.width), np.int32)
    return Outcome(artefact=SyntheticRecords(Records.from_rows(plan.task.domain, rows)))


HADAMARD = Mechanism(
    "hadamard",
    "every parity of the workload's binary tables, joined by multiplicative weights (Barak et al. 2007)",
    RowsWishes,
    _plan_hadamard,
    _run_hadamard,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
)


def _guess(name: str, words: str, run: Run[GuessParameters]) -> Mechanism[RowsWishes, GuessParameters]:
    nothing_spent = (Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.THEOREM_4_3, Accounting.PURE)
    return Mechanism(name, words, RowsWishes, partial(_plan_guess, name), run, nothing_spent)


UNIFORM = _guess("uniform", "the uniform guess: every value as likely as any other", _run_uniform)
ZEROS = _guess("zeros", "the first value of every attribute, in every record", _run_zeros)


@dataclass(frozen=True, kw_only=True)
class IndependentParameters:
    """Noise of its own on every query."""

    noise: float  # expected size, in records
    law: Noise = hidden()
    asked: tuple[Countable, ...] = hidden()  # one a group; and the number of records, if it is measured again
    balanced: tuple[bool, ...] = hidden()  # one a group: whether balances are measured instead of counts
    times: int = hidden()  # by which everything is multiplied, so that noise is finer than a record
    rows_times: int = hidden()  # by which the number of records is, before that; 0: it is not measured again

    def per_record(self, group: Group, balanced: bool) -> float:
        """By how much the numbers of a group are larger than its counts in records."""
        return self.times * group.unit * (2 if balanced else 1)


def _asked(task: Task, pure: bool) -> tuple[tuple[Countable, ...], tuple[bool, ...], int]:
    """What is measured of each group, whether as balances, and how finely the number of records is."""

    def size(bound: Bound) -> int:
        moved = task.budget.neighbours.sensitivity(bound)
        return moved.l1 if pure else moved.l2_squared

    groups = task.workload.groups
    balanced = tuple(size(GroupBalances(group).bound()) < size(group.bound().times(2)) for group in groups)
    chosen = [GroupBalances(each) if half else each for each, half in zip(groups, balanced, strict=True)]
    if task.rows_variance is None or not any(balanced):
        return tuple(chosen), balanced, 0
    number = number_of_records(task.domain)
    share = 1 / (math.sqrt(task.workload.size) + 1)
    wanted = sum(size(each.bound()) for each in chosen) * share / (1 - share) / size(number.bound())
    times = max(1, round(wanted if pure else math.sqrt(wanted)))
    return (*chosen, Multiplied(number, times)), balanced, times


def _independent_parameters(name: str, task: Task) -> IndependentParameters:
    """Laplace noise of scale Δ₁/ε, and a little more for the ledger's rounding up of each group's charge.

    Or Gaussian noise of the least σ² at which every group can be measured, by ρ or by the Gaussian's own accounting.
    """
    pure = name == "laplace"
    asked, balanced, rows_times = _asked(task, pure)
    moved = [task.budget.neighbours.sensitivity(each.bound()) for each in asked]
    times = 1
    if pure:
        left = decimal(task.budget.epsilon) - Fraction(len(moved), UNITS)
        if left <= 0:
            raise BudgetError("the budget is too small for so many tables; use a larger epsilon")
        law: Noise = Laplace(sum(each.l1 for each in moved) / left)
    else:
        planned = [Gaussian(Fraction(1)).event(each) for each in moved]
        times = fine_multiplier(task.budget, planned)
        fine = [GaussianMeasurement(times**2 * each.sensitivity_squared, each.variance) for each in planned]
        law = Gaussian(smallest_gaussian_scale(task.budget, fine))
    sizes = zip(task.workload.groups, balanced, strict=True)
    halves = sum(group.size / (2 if half else 1) for group, half in sizes)
    return IndependentParameters(
        noise=law.mean_size / times * halves / task.workload.size,
        law=law,
        asked=tuple(Multiplied(each, times) for each in asked) if times > 1 else asked,
        balanced=balanced,
        times=times,
        rows_times=rows_times,
    )


def independent_plan(name: str, task: Task, wanted: NoWishes | None = None) -> Plan[IndependentParameters]:
    chosen = _independent_parameters(name, task)
    law, groups = chosen.law, task.workload.groups
    scales = [chosen.per_record(group, half) for group, half in zip(groups, chosen.balanced, strict=True)]
    typical = (
        sum(group.size / scale for group, scale in zip(groups, scales, strict=True)) / task.workload.size
    )
    halved = any(chosen.balanced)
    return Plan(
        mechanism=name,
        task=task,
        reason="every query is measured with noise of its own, "
        f"{'as the balance of those for and against, ' if halved else ''}and clamped",
        parameters=chosen,
        steps=tuple(
            Step("measure every query", law.event(task.budget.neighbours.sensitivity(each.bound())))
            for each in chosen.asked
        ),
        mean_error=min(1.0, typical * law.mean_size / task.rows),
        max_error=min(1.0, law.size_of_largest(task.workload.size) / (min(scales) * task.rows)),
        seconds=1.0 + task.workload.size * 2e-6,
        bytes=32 * task.workload.size,
        notes=(NO_RECORDS,),
        records=False,
    )


class NoisyAnswers(NamedTuple):
    """Every query with noise of its own, which may take it below 0 and above 1; and how far off each may be."""

    answers: Fractions
    bars: Fractions
    measured: tuple[Measured, ...]  # the same in records, one a group


def noisy_answers(task: Task, chosen: IndependentParameters, curator: Curator) -> NoisyAnswers:
    """All groups of the workload, paid for before the first is drawn."""
    noisy = list(measured_at_once(curator, list(chosen.asked), chosen.law))
    times = chosen.rows_times * chosen.times
    again = float(noisy[-1][0]) / times if times else None
    rows, variance = joined_rows(task, again, (chosen.law.deviation / max(1, times)) ** 2)
    rows_bar = Gaussian(Fraction(variance)).size_within(LEVEL) if variance else 0.0
    size = chosen.law.size_within(LEVEL)
    answers, bars, measured = [], [], []
    for group, half, part in zip(task.workload.groups, chosen.balanced, noisy, strict=False):
        scale = chosen.per_record(group, half)
        offset = 0.5 if half else 0.0
        values = offset + part / (scale * rows)
        answers.append(values)
        first = 1 + sum(len(each) for each in answers[:-1])
        what = Numbers("queries", text=f"{first} to {first + group.size - 1} of the workload")
        measured.append(Measured(what, values * rows, (chosen.law.deviation / scale) ** 2))
        # Of the count, and of the number that it is divided by.
        off = np.abs(np.clip(values, 0.0, 1.0) - offset)
        bars.append(np.hypot(size / scale, off * rows_bar) / rows)
    return NoisyAnswers(np.concatenate(answers), np.concatenate(bars), tuple(measured))


def _run(
    plan: Plan[IndependentParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    task = plan.task
    noisy = noisy_answers(task, plan.parameters, curator)
    progress("writing out the queries", 0, task.workload.size)
    outcome = answers_only(task.workload, noisy.answers, noisy.bars)
    progress("writing out the queries", task.workload.size, task.workload.size)
    return replace(outcome, measured=noisy.measured)


def _independent(name: str, words: str, *paid_by: Accounting) -> Mechanism[NoWishes, IndependentParameters]:
    return Mechanism(name, words, NoWishes, partial(independent_plan, name), _run, paid_by, plays=None)


INDEPENDENT_LAPLACE = _independent(
    "laplace", "independent Laplace noise on every query: answers only", Accounting.PURE
)
INDEPENDENT_GAUSSIAN = _independent(
    "gaussian",
    "independent Gaussian noise on every query: answers only",
    Accounting.GAUSSIAN,
    Accounting.ZCDP,
)


MOST_ROUNDS = 1000
FLIPS = 300  # of a search, which begins at a record that is good already
CONTENT = 0.1  # Frank-Wolfe ends where its gap is below this share of what noise does
FINE = 40  # bits of the sum of all weights of a challenge
MOST_CELLS = 1 << 28  # of the rows that are released by default


@dataclass(frozen=True, kw_only=True)
class LeastSquaresParameters(IndependentParameters):
    """What a run goes by: independent noise, and how it is projected."""

    rounds: int  # of Frank-Wolfe, at most
    synthetic_rows: int
    promised_error: float  # the root of the mean squared error that is expected, at most


def squared_error(task: Task, chosen: IndependentParameters) -> tuple[float, float]:
    """Of all answers together: E‖w‖², and E max_x ⟨w, a_x − c⟩ by its bound."""
    groups = zip(task.workload.groups, chosen.balanced, strict=True)
    sigmas = [
        (chosen.law.deviation / (chosen.per_record(group, half) * task.rows), group.size)
        for group, half in groups
    ]
    universe = float(np.log(task.domain.sizes[task.workload.attributes]).sum())
    longest = min(_most_satisfied(task), task.workload.size / 4)
    noise = sum(sigma**2 * size for sigma, size in sigmas)
    return noise, max(sigma for sigma, _ in sigmas) * math.sqrt(2 * universe * longest)


def _most_satisfied(task: Task) -> int:
    """r: the most queries that one record satisfies."""
    return task.workload.bound().alone[0]


def plan(task: Task, wanted: RowsAndRoundsWishes) -> Plan[LeastSquaresParameters]:
    """The plan of independent noise, and a number of rounds after which Frank-Wolfe's own error is below its."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what an oracle could not read
    measured = independent_plan("gaussian", task)
    noise, hull = squared_error(task, measured.parameters)
    size, width = task.workload.size, task.domain.width
    rounds = wanted.rounds or min(MOST_ROUNDS, max(10, math.ceil(_most_satisfied(task) / hull)))
    rows = synthetic_rows(task, wanted.synthetic_rows)
    if wanted.synthetic_rows is None:
        rows = min(rows, max(rounds, MOST_CELLS // width))
    promised = math.sqrt(min(noise, hull) / size)
    return Plan(
        task=task,
        reason=f"every query is measured, and at most {rounds} records are mixed to answer alike",
        parameters=LeastSquaresParameters(
            **vars(measured.parameters), rounds=rounds, synthetic_rows=rows, promised_error=promised
        ),
        steps=measured.steps,
        mean_error=min(measured.mean_error, promised),
        max_error=measured.max_error,
        seconds=measured.seconds + rounds * size * (3e-6 + rounds * 1e-9),
        bytes=measured.bytes + rounds * (size + 4 * width) + 4 * rows * width,
        notes=(
            f"Nikolov, Talwar and Zhang: the root of the mean squared error is expected to be at most {promised:.2g}",
        ),
    )


def run(
    plan: Plan[LeastSquaresParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Measure, then mix records until no other would come much nearer; all after the measurement is public."""
    task, chosen = plan.task, plan.parameters
    noisy = noisy_answers(task, chosen, curator)
    mixture = RecordMixture(task.workload, noisy.answers)
    enough = CONTENT * min(squared_error(task, chosen))
    queries = np.arange(task.workload.size)
    played = 0
    while played < chosen.rounds and mixture.gap > enough:
        residual = mixture.residual
        size = np.abs(residual).sum() or 1.0  # nothing is left where all answers are met
        weights = np.rint(residual * (2.0**FINE / size)).astype(np.int64)
        clauses = clauses_of(task.workload, Challenge(queries, weights))
        begin = mixture.nearest(np.zeros(task.domain.width, np.int32))
        mixture.add(best_response(clauses, begin, rng=rng, flips=FLIPS).record)
        played += 1
        progress("mixing records", played, chosen.rounds)
    off = math.sqrt(mixture.gap / task.workload.size)
    return Outcome(
        artefact=SyntheticRecords(Records.from_rows(task.domain, mixture.rows(chosen.synthetic_rows))),
        belief=mixture,
        measured=noisy.measured,
        notes=(
            f"{len(mixture.weights)} records were mixed; as far as the search sees, the nearest mixture "
            f"lies within {off:.2g} of theirs (root of the mean square)",
        ),
    )


LEAST_SQUARES = Mechanism(
    "least-squares",
    "Gaussian answers to all queries, projected onto mixtures of records by Frank-Wolfe (Nikolov et al. 2013)",
    RowsAndRoundsWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP),
)
