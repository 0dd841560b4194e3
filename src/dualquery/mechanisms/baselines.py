"""What to compare with: independent noise, the Hadamard transform, the uniform guess, zeros.

Independent noise answers the workload and makes no synthetic data. The Hadamard transform (Barak et al.
2007) measures every parity that the workload's tables are made of, so that the tables are consistent; its
measurements are combined by multiplicative weights, as in the comparison of Hardt, Ligett and McSherry.
"""

from __future__ import annotations

import math
from fractions import Fraction
from math import prod

import numpy as np

from dualquery.distributions.factored import Factored
from dualquery.distributions.histogram import check_cells
from dualquery.distributions.products import Products
from dualquery.errors import BudgetError
from dualquery.game.learner import Measurement, Step, feasible, update
from dualquery.mechanisms.measured import Measured, measured_workload
from dualquery.mechanisms.mwem import noise_of
from dualquery.mechanisms.outcomes import released, synthetic_rows
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.privacy.budget import Accounting, decimal
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.curator import Curator, Gaussian, Laplace, changed_queries
from dualquery.privacy.events import GaussianNoise
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.query_selection import ChoosingCurator, equal_prices
from dualquery.table.records import Records

HADAMARD_PASSES = 100  # gentle ones, at most
NO_RECORDS = "this mechanism answers the workload and makes no synthetic records"


def _changed(shape: Shape) -> int:
    return sum(changed_queries(group, shape.budget.neighbours) for group in shape.workload.groups)


def _laplace_scale(shape: Shape) -> Fraction:
    """b = Δ₁/ε, and a little more for the ledger's rounding up of each group's charge."""
    if shape.budget.accounting is not Accounting.PURE:
        raise BudgetError(
            "independent Laplace noise is paid for by pure accounting; ask for that, or gaussian"
        )
    left = decimal(shape.budget.epsilon) - Fraction(len(shape.workload.groups), UNITS)
    return _changed(shape) / left


def _gaussian_variance(shape: Shape) -> Fraction:
    """The least σ² at which every group can be measured, by ρ or by the Gaussian's own accounting."""
    if shape.budget.accounting not in (Accounting.ZCDP, Accounting.GAUSSIAN):
        raise BudgetError(
            "independent Gaussian noise is paid for by zcdp or gaussian accounting; ask for one"
        )
    events = [
        GaussianNoise(Fraction(changed_queries(group, shape.budget.neighbours)), Fraction(1))
        for group in shape.workload.groups
    ]
    return smallest_gaussian_scale(shape.budget, events)


def _noise(shape: Shape, name: str) -> Gaussian | Laplace:
    return Laplace(_laplace_scale(shape)) if name == "laplace" else Gaussian(_gaussian_variance(shape))


def _plan_noise(shape: Shape, name: str) -> Plan:
    noise = _noise(shape, name)
    if isinstance(noise, Laplace):
        size, worst = float(noise.scale), float(noise.scale) * math.log(2 * shape.workload.size)
    else:
        sigma = math.sqrt(noise.variance)
        size, worst = math.sqrt(2 / math.pi) * sigma, sigma * math.sqrt(2 * math.log(2 * shape.workload.size))
    return Plan(
        mechanism=name,
        reason="every query is measured with noise of its own, and clamped",
        parameters={"noise": size},
        mean_error=min(1.0, size / shape.rows),
        max_error=min(1.0, worst / shape.rows),
        seconds=1.0 + shape.workload.size * 2e-6,
        bytes=32 * shape.workload.size,
        notes=(NO_RECORDS,),
    )


def _run_noise(shape: Shape, curator: Curator, name: str) -> Outcome:
    noise = _noise(shape, name)
    noisy = np.concatenate([curator.measure(group, noise=noise) for group in shape.workload.groups])
    return Outcome(records=None, answers=np.clip(noisy / shape.rows, 0.0, 1.0), notes=(NO_RECORDS,))


def _plan_hadamard(shape: Shape, options: Options) -> Plan:
    check_cells(prod(shape.domain.sizes.tolist()))
    parities = measured_workload(shape.workload, Measured.PARITIES)
    noise = noise_of(equal_prices(shape.budget, parities.size), shape, Measured.PARITIES) / shape.rows
    return Plan(
        mechanism="hadamard",
        reason=f"all {parities.size:,} parities of the workload's tables are measured",
        parameters={"parities": parities.size, "synthetic_rows": synthetic_rows(shape, options)},
        mean_error=min(0.5, noise),
        max_error=min(1.0, noise * math.log(2 * parities.size)),
        seconds=1.0 + HADAMARD_PASSES * parities.size * prod(shape.domain.sizes.tolist()) * 4e-9,
        bytes=24 * prod(shape.domain.sizes.tolist()) + 64 * parities.size,
    )


def hadamard(curator: Curator, shape: Shape, progress: Progress) -> Factored:
    """The distribution that multiplicative weights make of all parities, each measured with equal noise."""
    parities = measured_workload(shape.workload, Measured.PARITIES)
    choosing, products = ChoosingCurator.of(curator, parities), Products.of(parities)
    price = equal_prices(shape.budget, parities.size)
    measurements = []
    for query in range(parities.size):
        noisy = choosing.measure_query(query, public_rows=shape.rows, price=price)
        asked = Measurement(products.attributes_of(query), products.table_of(query), np.array(noisy))
        measurements.append(feasible(asked, 0.5 / shape.rows))
        progress("measuring", query + 1, parities.size)
    distribution = Factored.explicit(shape.domain)
    # Measurements this noisy contradict each other: stop when they are fitted as well as their noise deserves.
    expected = noise_of(price, shape, Measured.PARITIES) / shape.rows
    for _ in range(HADAMARD_PASSES):
        gaps = [update(distribution, each, Step.PAPER) for each in measurements]
        if np.mean(gaps) <= expected:
            break
    return distribution


def _run_hadamard(
    plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    distribution = hadamard(curator, shape, progress)
    return released(distribution, shape.workload, int(plan.parameters["synthetic_rows"]), rng)


def _plan_guess(shape: Shape, options: Options, name: str) -> Plan:
    return Plan(
        mechanism=name,
        reason="it looks at no data and costs nothing",
        parameters={"synthetic_rows": synthetic_rows(shape, options)},
        mean_error=0.25,
        max_error=1.0,
        seconds=1.0,
        bytes=8 * synthetic_rows(shape, options) * shape.domain.width,
    )


def _run_uniform(
    plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    uniform = Factored(shape.domain, part_cells=1)
    return released(uniform, shape.workload, int(plan.parameters["synthetic_rows"]), rng)


def _run_zeros(
    plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    rows = np.zeros((int(plan.parameters["synthetic_rows"]), shape.domain.width), np.int32)
    return Outcome(records=Records.from_rows(shape.domain, rows))


LAPLACE = Mechanism(
    name="laplace",
    words="independent Laplace noise on every query: answers only",
    accepts=frozenset(),
    plan=lambda shape, options: _plan_noise(shape, "laplace"),
    run=lambda plan, shape, curator, rng, progress: _run_noise(shape, curator, "laplace"),
)
GAUSSIAN = Mechanism(
    name="gaussian",
    words="independent Gaussian noise on every query: answers only",
    accepts=frozenset(),
    plan=lambda shape, options: _plan_noise(shape, "gaussian"),
    run=lambda plan, shape, curator, rng, progress: _run_noise(shape, curator, "gaussian"),
)
HADAMARD = Mechanism(
    name="hadamard",
    words="every parity of the workload's binary tables, joined by multiplicative weights (Barak et al. 2007)",
    accepts=frozenset({"synthetic_rows"}),
    plan=_plan_hadamard,
    run=_run_hadamard,
)
UNIFORM = Mechanism(
    name="uniform",
    words="the uniform guess: every value as likely as any other",
    accepts=frozenset({"synthetic_rows"}),
    plan=lambda shape, options: _plan_guess(shape, options, "uniform"),
    run=_run_uniform,
)
ZEROS = Mechanism(
    name="zeros",
    words="the first value of every attribute, in every record",
    accepts=frozenset({"synthetic_rows"}),
    plan=lambda shape, options: _plan_guess(shape, options, "zeros"),
    run=_run_zeros,
)
