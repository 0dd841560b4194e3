"""A mechanism: every column is measured by itself, and synthetic records have independent columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery import (
    Accounting,
    Curator,
    Mechanism,
    Noise,
    Outcome,
    Plan,
    Progress,
    Records,
    Step,
    SyntheticRecords,
    Task,
    hidden,
    least_noise,
    marginals,
    wish,
)


@dataclass(frozen=True, kw_only=True)
class OneWayWishes:
    """What a user may ask for: each field is a flag of the command line, and an argument in Python."""

    most_records: int | None = wish("The most synthetic records.", "N", least=1)


@dataclass(frozen=True, kw_only=True)
class OneWayParameters:
    """What a run goes by; the certificate shows it."""

    records: int
    noise: float
    law: Noise = hidden()


def plan(task: Task, wanted: OneWayWishes) -> Plan[OneWayParameters]:
    """From public things alone: one measurement for the whole budget."""
    bound = marginals(task.domain, 1).bound()
    law = least_noise(task.budget, bound)
    off = law.deviation / task.rows
    records = wanted.most_records or min(task.rows, 10_000)
    return Plan(
        task=task,
        reason="each column is measured by itself",
        parameters=OneWayParameters(records=records, noise=law.deviation, law=law),
        steps=(Step("measure every column", law.event(task.budget.neighbours.sensitivity(bound))),),
        mean_error=min(1.0, off),
        max_error=min(1.0, 4 * off),
        seconds=1.0,
        bytes=8 * task.domain.width * task.rows,
    )


def run(
    plan: Plan[OneWayParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Ask the curator, who charges the ledger; what comes back is public, and so is all that is made of it."""
    domain, chosen = plan.task.domain, plan.parameters
    noisy = curator.measure(marginals(domain, 1), noise=chosen.law)
    columns = []
    for counts in np.split(np.maximum(noisy, 0), np.cumsum(domain.sizes)[:-1]):
        chance = (counts + 1e-9) / (counts + 1e-9).sum()
        columns.append(rng.choice(len(counts), size=chosen.records, p=chance))
    records = Records.from_rows(domain, np.stack(columns, axis=1))
    return Outcome(artefact=SyntheticRecords(records))


ONE_WAY = Mechanism(
    "one-way",
    "every column measured by itself, records with independent columns",
    OneWayWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
)
