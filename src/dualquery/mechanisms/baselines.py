"""What to compare with: independent noise, the Hadamard transform, the uniform guess, zeros.

Independent noise answers the workload and makes no synthetic data. The Hadamard transform (Barak et al.
2007) measures every parity that the workload's tables are made of, so that the tables are consistent; its
measurements are combined by multiplicative weights, as in the comparison of Hardt, Ligett and McSherry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import log, prod

import numpy as np

from dualquery.distributions.factored import Factored
from dualquery.distributions.histogram import check_cells
from dualquery.distributions.multiplicative_weights import StepSize, feasible, update
from dualquery.distributions.products import Products
from dualquery.errors import BudgetError
from dualquery.game.moves import Heard
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Run, Step, Task, hidden
from dualquery.mechanisms.mwem.questions import AskedQueries, Kind, asked_of
from dualquery.mechanisms.outcomes import released, synthetic_rows
from dualquery.mechanisms.wishes import NoWishes, RowsWishes
from dualquery.privacy.budget import Accounting, decimal
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.curator import Curator, measured_at_once
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.gaussian_filter import fine_multiplier
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.statistics import Balance, GroupCounts, Multiplied, Statistic
from dualquery.queries.group import Group
from dualquery.table.domain import Domain
from dualquery.table.records import Records

HADAMARD_PASSES = 100  # gentle ones, at most
LEAST_GAIN = 0.05  # of a pass: by how much of the noise the mean gap must shrink
NO_RECORDS = "this mechanism answers the workload and makes no synthetic records"


@dataclass(frozen=True, kw_only=True)
class IndependentParameters:
    """Noise of its own on every query."""

    noise: float  # expected size, in records
    law: Noise = hidden()
    times: int = hidden()  # by which the counts are multiplied, so that noise is finer than a record

    def asked(self, group: Group) -> Statistic:
        counts = GroupCounts(group)
        return counts if self.times == 1 else Multiplied(counts, self.times)


def _laplace(task: Task) -> IndependentParameters:
    """b = Δ₁/ε, and a little more for the ledger's rounding up of each group's charge."""
    if task.budget.accounting is not Accounting.PURE:
        raise BudgetError(
            "independent Laplace noise is paid for by pure accounting; ask for that, or gaussian"
        )
    moved = [GroupCounts(group).sensitivity(task.budget.neighbours).l1 for group in task.workload.groups]
    law = Laplace(sum(moved) / (decimal(task.budget.epsilon) - Fraction(len(moved), UNITS)))
    return IndependentParameters(noise=law.mean_size, law=law, times=1)


def _gaussian(task: Task) -> IndependentParameters:
    """The least σ² at which every group can be measured, by ρ or by the Gaussian's own accounting."""
    if task.budget.accounting not in (Accounting.ZCDP, Accounting.GAUSSIAN):
        raise BudgetError(
            "independent Gaussian noise is paid for by zcdp or gaussian accounting; ask for one"
        )
    moved = [GroupCounts(group).sensitivity(task.budget.neighbours) for group in task.workload.groups]
    planned = [Gaussian(Fraction(1)).event(each) for each in moved]
    times = fine_multiplier(task.budget, planned)
    fine = [GaussianMeasurement(times**2 * each.sensitivity_squared, each.variance) for each in planned]
    law = Gaussian(smallest_gaussian_scale(task.budget, fine))
    return IndependentParameters(noise=law.mean_size / times, law=law, times=times)


def _plan_noise(name: str, task: Task, wanted: NoWishes) -> Plan[IndependentParameters]:
    chosen = _laplace(task) if name == "laplace" else _gaussian(task)
    law = chosen.law
    neighbours, groups = task.budget.neighbours, task.workload.groups
    typical = sum(group.size / group.unit for group in groups) / task.workload.size
    largest = 1 / min(group.unit for group in groups)
    return Plan(
        mechanism=name,
        task=task,
        reason="every query is measured with noise of its own, and clamped",
        parameters=chosen,
        steps=tuple(
            Step("measure every query", law.event(chosen.asked(group).sensitivity(neighbours)))
            for group in groups
        ),
        mean_error=min(1.0, typical * chosen.noise / task.rows),
        max_error=min(1.0, largest * law.size_of_largest(task.workload.size) / (chosen.times * task.rows)),
        seconds=1.0 + task.workload.size * 2e-6,
        bytes=32 * task.workload.size,
        notes=(NO_RECORDS,),
    )


def _run_noise(
    plan: Plan[IndependentParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    task, chosen = plan.task, plan.parameters
    groups = task.workload.groups
    parts = [
        noisy / (chosen.times * group.unit * task.rows)
        for group, noisy in zip(
            groups,
            measured_at_once(curator, [chosen.asked(group) for group in groups], chosen.law),
            strict=True,
        )
    ]
    answers = np.clip(np.concatenate(parts), 0.0, 1.0)
    size = chosen.law.size_within(LEVEL) / chosen.times
    added = np.concatenate([np.full(group.size, size / group.unit) for group in groups])
    divided = answers * Gaussian(Fraction(task.rows_variance or 0)).size_within(LEVEL)
    bars = np.hypot(added, divided) / task.rows  # of the count, and of the number that it is divided by
    progress("writing out the queries", 0, task.workload.size)
    texts = list(task.workload.texts())
    progress("writing out the queries", task.workload.size, task.workload.size)
    return Outcome(artefact=BareAnswers(texts, answers, bars), answers=answers, notes=(NO_RECORDS,))


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
    asked = asked_of(task.workload, Kind.PARITIES, task.rows)
    assert isinstance(asked, AskedQueries), "parities are queries"
    moved = asked.statistic.sensitivity(task.budget.neighbours)
    law = _hadamard_law(task, moved, asked.size)
    noise = asked.noise_in_records(law) / task.rows
    return Plan(
        mechanism="hadamard",
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


def _hadamard_law(task: Task, moved: Sensitivity, parities: int) -> Noise:
    """Noise for all parities, which share the budget equally."""
    if task.budget.accounting is not Accounting.GAUSSIAN:
        return equal_prices(task.budget, parities).noise(moved)
    planned = [Gaussian(Fraction(1)).event(moved)] * parities
    return Gaussian(smallest_gaussian_scale(task.budget, planned))


def hadamard(plan: Plan[HadamardParameters], curator: Curator, progress: Progress) -> Factored:
    """The distribution that multiplicative weights make of all parities, each measured with equal noise."""
    parities, rows, law = plan.parameters.asked.workload, plan.task.rows, plan.parameters.law
    products = Products.of(parities)
    heard = []
    balances = measured_at_once(curator, [Balance(parities, query) for query in range(parities.size)], law)
    for query, (balance,) in enumerate(balances):
        value = np.array((rows + balance) / (2 * rows))
        asked = Heard(products.attributes_of(query), products.table_of(query), value)
        heard.append(feasible(asked, 0.5 / rows))
        progress("measuring", query + 1, parities.size)
    return joined(plan.task.domain, heard, plan.parameters.asked.noise_in_records(law) / rows)


def joined(domain: Domain, heard: Sequence[Heard], noise: float) -> Factored:
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
    return released(hadamard(plan, curator, progress), plan.parameters.synthetic_rows, rng)


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


_WORDS = {
    "laplace": "independent Laplace noise on every query: answers only",
    "gaussian": "independent Gaussian noise on every query: answers only",
    "hadamard": "every parity of the workload's binary tables, joined by multiplicative weights (Barak et al. 2007)",
    "uniform": "the uniform guess: every value as likely as any other",
    "zeros": "the first value of every attribute, in every record",
}


_ANY = (Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.THEOREM_4_3, Accounting.PURE)  # nothing is spent


def _independent(name: str) -> Mechanism[NoWishes, IndependentParameters]:
    paid_by = (Accounting.PURE,) if name == "laplace" else (Accounting.GAUSSIAN, Accounting.ZCDP)
    return Mechanism(
        name, _WORDS[name], NoWishes, partial(_plan_noise, name), _run_noise, paid_by, plays=None
    )


def _guess(name: str, run: Run[GuessParameters]) -> Mechanism[RowsWishes, GuessParameters]:
    return Mechanism(name, _WORDS[name], RowsWishes, partial(_plan_guess, name), run, _ANY)


INDEPENDENT_LAPLACE, INDEPENDENT_GAUSSIAN = _independent("laplace"), _independent("gaussian")
HADAMARD = Mechanism(
    "hadamard",
    _WORDS["hadamard"],
    RowsWishes,
    _plan_hadamard,
    _run_hadamard,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
)
UNIFORM, ZEROS = _guess("uniform", _run_uniform), _guess("zeros", _run_zeros)
