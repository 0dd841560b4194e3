"""Which vertices belong together, from public things: the questions, what is public about vertices, noisy degrees.

Vertices that the workload never tells apart are one class: cuts of the workload are then unions of blocks. Where
there are too many such classes, they are joined by weighted k-means on a random sketch of their memberships, so
that vertices that are in the same sets most of the time stay together, and heavy vertices count more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.cuts import Cuts
from dualquery.queries.workload import Workload
from dualquery.table.graph import Graph
from dualquery.table.records import unpack_bits
from dualquery.types import Reals

SKETCH = 64
ROUNDS = 12
STARTS = 6  # of which the best is kept
AT_ONCE = 512  # sets


def classes_of(
    domain: Graph, workload: Workload, weights: Reals, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The class of each vertex, numbered from 0, at most so many classes."""
    sketch = _sketch(domain, workload, rng)
    ways, which = np.unique(np.round(sketch, 6), axis=0, return_inverse=True)
    which = which.ravel()
    if len(ways) <= most:
        return which.astype(np.int64)
    mass = np.bincount(which, weights=weights, minlength=len(ways))
    mass = mass + 1e-9 * mass.sum() + 1e-12
    tries = [_k_means(ways, mass, most, rng) for _ in range(STARTS)]
    joined = min(tries, key=lambda found: found[1])[0][which]
    return np.unique(joined, return_inverse=True)[1].ravel().astype(np.int64)


def _sketch(domain: Graph, workload: Workload, rng: np.random.Generator) -> Reals:
    """A random projection of the memberships of each vertex: equal where all memberships are."""
    number = len(domain.vertices)
    out = np.zeros((number, SKETCH))
    for group in workload.groups:
        assert isinstance(group, Cuts), "of graphs only cuts can be asked"
        for sets in (group.sources, group.targets):
            for first in range(0, len(sets), AT_ONCE):
                members = unpack_bits(sets[first : first + AT_ONCE], number).astype(np.float32)
                out += members.T @ rng.normal(size=(len(members), SKETCH)).astype(np.float32)
    scale = max(float(np.abs(out).max()), 1e-9)
    if domain.held is not None:
        rows = domain.held.to_rows()
        for j, size in enumerate(domain.held.domain.sizes.tolist()):
            out += 0.3 * scale * rng.normal(size=(size, SKETCH))[rows[:, j]]
    return out / scale


def _k_means(
    points: Reals, mass: Reals, number: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """The nearest of so many centres, which began far from each other; and how far from them everything is."""
    centres = points[[int(rng.choice(len(points), p=mass / mass.sum()))]]
    nearest = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < number:
        chance = mass * nearest
        if chance.sum() <= 0:
            break
        chosen = points[int(rng.choice(len(points), p=chance / chance.sum()))]
        centres = np.vstack([centres, chosen])
        nearest = np.minimum(nearest, ((points - chosen) ** 2).sum(axis=1))
    which, far = np.zeros(len(points), np.int64), 0.0
    for _ in range(ROUNDS):
        apart = (centres**2).sum(axis=1)[None, :] - 2 * points @ centres.T
        which = apart.argmin(axis=1)
        far = float(mass @ apart[np.arange(len(points)), which])
        total = np.bincount(which, weights=mass, minlength=len(centres))
        for k in range(points.shape[1]):
            sums = np.bincount(which, weights=mass * points[:, k], minlength=len(centres))
            centres[:, k] = np.where(total > 0, sums / np.maximum(total, 1e-300), centres[:, k])
    return which, far
