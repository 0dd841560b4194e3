"""Ours, on the same terms: a task in, rows out, whatever mechanism `release` chooses; and independent noise."""

from __future__ import annotations

import math

import numpy as np
from nearest import nearest_distribution
from protocol import Method, Task, serve

from dualquery import Budget, Categorical, Domain, Neighbours, Records, Workload
from dualquery.mechanisms.artefact import BareAnswers
from dualquery.queries.tables import Tables
from dualquery.releases.make import release  # imported here: the clock starts after imports
from dualquery.releases.release import Release


def released(task: Task, mechanism: str | None = None) -> Release:
    """A release; the number of rows is not declared, so 1% of the budget measures it."""
    domain = Domain(
        tuple(
            Categorical(name, tuple(map(str, range(size))))
            for name, size in zip(task.names, task.sizes, strict=True)
        )
    )
    tables = Tables(domain, tuple(map(tuple, task.tables)))
    return release(
        Records.from_rows(domain, task.rows),
        domain=domain,
        workload=Workload(domain, (tables,), "the task's tables"),
        budget=Budget(epsilon=task.epsilon, delta=task.delta, neighbours=Neighbours.ADD_REMOVE),
        mechanism=mechanism,
        seed=task.seed,
    )


def chosen(task: Task) -> np.ndarray:
    """The release of our own choosing."""
    made = released(task)
    assert made.records is not None, "tables of few attributes are released as rows"
    return made.records.to_rows()


def independent_noise(task: Task) -> np.ndarray:
    """Gaussian noise on every cell, for a row in one cell of each table; then the nearest distribution to each."""
    artefact = released(task, "gaussian").artefact
    assert isinstance(artefact, BareAnswers)
    ends = np.cumsum([math.prod(task.sizes[j] for j in table) for table in task.tables])
    return np.concatenate([nearest_distribution(table) for table in np.split(artefact.values, ends[:-1])])


METHODS: dict[str, Method] = {"release": chosen, "gaussian": independent_noise}

if __name__ == "__main__":
    serve(METHODS)
