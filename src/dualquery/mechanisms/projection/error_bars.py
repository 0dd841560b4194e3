"""Error bars without budget: rehearse the whole release on its own synthetic rows.

The released rows are public. Taken as if they were the private table, they can be measured again with the
noise of the plan and fitted again, and the answers of that second release differ from those of the first
about as much as those of the first differ from the truth (a parametric bootstrap). The chains of the second
fit are other chains, so that their disagreement is part of it. The differences are smoothed over queries of
alike answer: one rehearsal then says how far off answers near p are likely to be.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.workload import Workload
from dualquery.table.records import Records

Fractions = NDArray[np.float64]

SAMPLE = 40_000  # queries that the curve is learned from
POINTS = 40  # of the curve
MOST_CELLS = 2_000_000  # of tables in the sample


def predicted_errors(
    workload: Workload, released: Records, again: Records, rng: np.random.Generator
) -> tuple[Fractions, Fractions]:
    """Each query's answer on the released rows, and the root-mean-square error to expect of it.

    `again` is a second release, made from the first.
    """
    answers = workload.fractions(released)
    first, second = [], []
    for group, start in zip(workload.groups, workload.starts, strict=False):
        sample = group.sampled(rng, queries=SAMPLE, cells=MOST_CELLS)
        first.append(answers[start + sample.indices])
        second.append(sample.group.counts(again) / (group.unit * again.rows))
    before = np.concatenate(first)
    curve = error_curve(before, np.concatenate(second) - before)
    return answers, curve(answers)


def error_curve(
    answers: Fractions, differences: Fractions
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Root-mean-square difference as a function of the answer, from groups of queries of alike answer."""
    order = np.argsort(answers, kind="stable")
    parts = np.array_split(order, max(1, min(POINTS, len(order) // 10)))
    places = np.array([answers[part].mean() for part in parts])
    errors = np.array([np.sqrt(np.mean(differences[part] ** 2)) for part in parts])
    return lambda wanted: np.interp(wanted, places, errors)
