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

from dualquery.queries.counting import true_counts
from dualquery.queries.query import Conjunctions, Group, Parities, Tables
from dualquery.queries.workload import Workload
from dualquery.table.records import Records

SAMPLE = 40_000  # queries that the curve is learned from
POINTS = 40  # of the curve
MOST_CELLS = 2_000_000  # of tables in the sample


def answers_of(records: Records, workload: Workload) -> NDArray[np.float64]:
    """The fraction of public rows that satisfy each query."""
    parts = [true_counts(group, records) for group in workload.groups]
    return np.concatenate(parts) / records.rows


def predicted_error(
    workload: Workload, released: Records, again: Records, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The root-mean-square error to expect of each query's answer, given a second release made from the first."""
    sample = [_sampled(group, rng) for group in workload.groups]
    first = np.concatenate([true_counts(group, released) for group in sample]) / released.rows
    second = np.concatenate([true_counts(group, again) for group in sample]) / again.rows
    curve = error_curve(first, second - first)
    return curve(answers_of(released, workload))


def error_curve(
    answers: NDArray[np.float64], differences: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Root-mean-square difference as a function of the answer, from groups of queries of alike answer."""
    order = np.argsort(answers, kind="stable")
    parts = np.array_split(order, max(1, min(POINTS, len(order) // 10)))
    places = np.array([answers[part].mean() for part in parts])
    errors = np.array([np.sqrt(np.mean(differences[part] ** 2)) for part in parts])
    return lambda wanted: np.interp(wanted, places, errors)


def _sampled(group: Group, rng: np.random.Generator) -> Group:
    if isinstance(group, Tables):
        cells = np.diff(group.starts)
        order = rng.permutation(len(group.sets))
        kept = order[np.cumsum(cells[order]) <= MOST_CELLS]
        chosen = kept if len(kept) else order[:1]
        return Tables(group.domain, tuple(group.sets[t] for t in sorted(chosen.tolist())))
    if group.size <= SAMPLE:
        return group
    chosen = np.sort(rng.choice(group.size, SAMPLE, replace=False))
    if isinstance(group, Parities):
        return Parities(group.domain, group.attributes[chosen])
    assert isinstance(group, Conjunctions)
    complement = None if group.complement is None else group.complement[chosen]
    return Conjunctions(group.domain, group.predicates, group.literals[chosen], complement)
