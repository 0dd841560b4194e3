"""What to compare with: the Hadamard transform, the uniform guess, zeros (and `independent` noise).

The Hadamard transform (Barak et al.
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
from dualquery.game.moves import Heard
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Run, Step, Task, hidden
from dualquery.mechanisms.mwem.questions import AskedQueries, QuestionKind, asked_of
from dualquery.mechanisms.outcomes import released, synthetic_rows
from dualquery.mechanisms.wishes import RowsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator, measured_at_once
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Noise
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.statistics import Balance
from dualquery.table.domain import Domain
from dualquery.table.records import Records

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
    "hadamard": "every parity of the workload's binary tables, joined by multiplicative weights (Barak et al. 2007)",
    "uniform": "the uniform guess: every value as likely as any other",
    "zeros": "the first value of every attribute, in every record",
}


_ANY = (Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.THEOREM_4_3, Accounting.PURE)  # nothing is spent


def _guess(name: str, run: Run[GuessParameters]) -> Mechanism[RowsWishes, GuessParameters]:
    return Mechanism(name, _WORDS[name], RowsWishes, partial(_plan_guess, name), run, _ANY)


HADAMARD = Mechanism(
    "hadamard",
    _WORDS["hadamard"],
    RowsWishes,
    _plan_hadamard,
    _run_hadamard,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
)
UNIFORM, ZEROS = _guess("uniform", _run_uniform), _guess("zeros", _run_zeros)
