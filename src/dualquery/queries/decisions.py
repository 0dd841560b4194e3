"""How much there is to decide: the public size of a workload as its attributes see it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.query import Conjunctions, Parities
from dualquery.queries.workload import Workload


def touched_attributes(workload: Workload) -> NDArray[np.int64]:
    """The attributes that some query of the workload mentions."""
    touched = np.zeros(workload.domain.width, np.bool_)
    for group in workload.groups:
        if isinstance(group, Conjunctions):
            used = np.zeros(len(group.predicates) + 1, np.bool_)  # the last entry takes the padding
            used[group.literals >> 1] = True
            touched[group.predicates.attribute[used[:-1]]] = True
        elif isinstance(group, Parities):
            touched[group.attributes[group.attributes >= 0]] = True
        else:
            touched[np.unique([j for members in group.sets for j in members]).astype(np.int64)] = True
    return np.flatnonzero(touched)


def decisions(workload: Workload) -> int:
    """Σ (values − 1) over the attributes that the workload mentions: the yes-or-no questions of a record."""
    sizes = workload.domain.sizes[touched_attributes(workload)].astype(np.int64)
    return int(np.sum(sizes - 1))
