"""Degrees, blocks, pairs and the number of edges fitted together into one weighted graph, each by its precision.

    W_uv = w_uv for the pairs that were seen to differ, leaves_u · enters_v · B_{class(u) class(v)} for all others,

a block model with degrees, and heavy (or light) pairs in its place. Nearest to what was measured, by squares:

    Σ_m (z_m − W(m))² / σ_m²  +  Σ_uv (W_uv − before_uv)² / v_uv,    v = σ² of a seen pair, LOOSE · W elsewhere,

over the measured sums m: what leaves a vertex, what enters it, a block without its loops, all loops, all edges. The
multipliers are found one kind of sum after the other (coordinate ascent of the dual): λ_m grows by

    (z_m − W(m) − σ_m² λ_m) / (σ_m² + Σ_m v),

and each cell of m moves by v times that; the block model by a factor, so that it keeps its form and its sign. All are
sums over classes, vertices and seen pairs, never over all pairs.

Which vertices belong together follows from public things (`classes_of`): the questions, what is public about
vertices, noisy degrees. Vertices that the workload never tells apart are one class: cuts of the workload are then
unions of blocks. Where there are too many such classes, they are joined by weighted k-means on a random sketch of
their memberships, so that vertices that are in the same sets most of the time stay together, and heavy vertices
count more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.cuts import Cuts
from dualquery.queries.workload import Workload
from dualquery.table.graph import Graph
from dualquery.table.records import unpack_bits

Array = NDArray[np.float64]
ROUNDS = 40
LOOSE = 4.0  # variance of what the block model says of a pair, as a multiple of it: edges fall in bunches
FARTHEST = 1.5  # by which the logarithm of a factor moves at once
LEAST = 1e-3  # of a row that is taken to be left when all of its pairs were seen


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of vertices, and what each has on top of the block model."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    extra: Array

    @staticmethod
    def none() -> Pairs:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The parts of W."""

    classes: NDArray[np.int64]
    leaves: Array
    enters: Array
    blocks: Array
    pairs: Pairs

    def expected(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> Array:
        """The block model between all of some vertices and all of some others."""
        between = self.blocks[self.classes[source][:, None], self.classes[target][None, :]]
        return self.leaves[source][:, None] * self.enters[target][None, :] * between

    def between(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> Array:
        """The block model of some pairs."""
        return (
            self.leaves[source]
            * self.enters[target]
            * self.blocks[self.classes[source], self.classes[target]]
        )


@dataclass(frozen=True, eq=False)
class MeasuredGraph:
    """What was measured: degrees, blocks, all edges; the variance of each kind, and of a seen pair."""

    leaving: Array
    entering: Array
    blocks: Array  # without loops
    loops: float
    total: float
    degree_variance: float
    block_variance: float
    total_variance: float
    pair_variance: float


def product_model(measured: MeasuredGraph, classes: NDArray[np.int64]) -> Fitted:
    """Where to begin: as if ends were chosen apart from each other."""
    leaves, enters = (np.maximum(each, 1e-6) for each in (measured.leaving, measured.entering))
    many = len(measured.blocks)
    even = np.full((many, many), measured.total / (leaves.sum() * enters.sum()))
    return Fitted(classes, leaves, enters, even, Pairs.none())


def fit(measured: MeasuredGraph, before: Fitted, pairs: Pairs) -> Fitted:
    """The graph nearest to what was measured, in which seen pairs begin as `before` and their extra."""
    return _Fit(measured, before, pairs).done()


class _Fit:
    """The seen pairs and all loops with their weights, the block model for all others; and the multipliers."""

    def __init__(self, measured: MeasuredGraph, before: Fitted, pairs: Pairs) -> None:
        self.measured, self.classes = measured, before.classes
        self.leaves, self.enters, self.blocks = (
            each.copy() for each in (before.leaves, before.enters, before.blocks)
        )
        number, many = len(self.classes), len(self.blocks)
        alone = np.setdiff1d(np.arange(number), pairs.source[pairs.source == pairs.target])
        self.source, self.target = (np.concatenate([each, alone]) for each in (pairs.source, pairs.target))
        seen = np.maximum(before.between(pairs.source, pairs.target) + pairs.extra, 0.0)
        usual = before.between(alone, alone)
        usual *= max(0.0, measured.loops) / max(float(usual.sum()), measured.loops, 1e-9)
        self.weight = np.concatenate([seen, usual])
        self.variance = np.concatenate([np.full(len(seen), measured.pair_variance), LOOSE * usual])
        block = self.classes[self.source] * many + self.classes[self.target]
        loop = self.source == self.target
        self.block = block
        self.places = (
            self.source,
            self.target,
            np.where(loop, many * many, block),  # the last is all loops
            np.zeros(len(block), np.int64),
        )

    def done(self) -> Fitted:
        known = self.measured
        wanted = (
            known.leaving,
            known.entering,
            np.append(known.blocks, known.loops),
            np.array([known.total]),
        )
        variances = known.degree_variance, known.degree_variance, known.block_variance, known.total_variance
        told = [np.zeros(len(each)) for each in wanted]
        for _ in range(ROUNDS):
            for kind, variance in enumerate(variances):
                told[kind] += self._move(kind, wanted[kind] - variance * told[kind], variance)
        fitted = Fitted(self.classes, self.leaves, self.enters, self.blocks, Pairs.none())
        extra = self.weight - fitted.between(self.source, self.target)
        return replace(fitted, pairs=Pairs(self.source, self.target, extra))

    def _move(self, kind: int, wanted: Array, variance: float) -> Array:
        """One step of the multipliers of one kind of sums; what they moved by."""
        size, place = len(wanted), self.places[kind]
        whole = self._model(kind)
        hole = np.bincount(self._holes(kind), weights=self._seen(), minlength=size)
        model = np.maximum(whole - hole, LEAST * whole)
        held = np.bincount(place, weights=self.weight, minlength=size)
        seen = np.bincount(place, weights=self.variance, minlength=size)
        step = (wanted - model - held) / (variance + LOOSE * model + seen + 1e-12)
        step = np.clip(step, -FARTHEST / LOOSE, FARTHEST / LOOSE)
        self._multiply(kind, np.exp(LOOSE * step))
        self.weight = np.maximum(self.weight + self.variance * step[place], 0.0)
        return step

    def _holes(self, kind: int) -> NDArray[np.int64]:
        """Where the block model has a hole: also in its blocks, at loops."""
        return self.block if kind == 2 else self.places[kind]

    def _seen(self) -> Array:
        between = self.blocks.ravel()[self.block]
        return self.leaves[self.source] * self.enters[self.target] * between

    def _model(self, kind: int) -> Array:
        """The sums of the block model, pairs that were seen among them."""
        many = len(self.blocks)
        out = np.bincount(self.classes, weights=self.leaves, minlength=many)
        into = np.bincount(self.classes, weights=self.enters, minlength=many)
        if kind == 0:
            return np.asarray(self.leaves * (self.blocks @ into)[self.classes])
        if kind == 1:
            return np.asarray(self.enters * (out @ self.blocks)[self.classes])
        mass = self.blocks * np.outer(out, into)
        return np.append(mass, 0.0) if kind == 2 else np.array([mass.sum()])

    def _multiply(self, kind: int, factor: Array) -> None:
        if kind == 0:
            self.leaves *= factor
        elif kind == 1:
            self.enters *= factor
        else:
            self.blocks *= factor[:-1].reshape(self.blocks.shape) if kind == 2 else factor


SKETCH = 64
MEANS_ROUNDS = 12
STARTS = 6  # of which the best is kept
AT_ONCE = 512  # sets


def classes_of(
    domain: Graph, workload: Workload, weights: Array, most: int, rng: np.random.Generator
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


def _sketch(domain: Graph, workload: Workload, rng: np.random.Generator) -> Array:
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
    points: Array, mass: Array, number: int, rng: np.random.Generator
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
    for _ in range(MEANS_ROUNDS):
        apart = (centres**2).sum(axis=1)[None, :] - 2 * points @ centres.T
        which = apart.argmin(axis=1)
        far = float(mass @ apart[np.arange(len(points)), which])
        total = np.bincount(which, weights=mass, minlength=len(centres))
        for k in range(points.shape[1]):
            sums = np.bincount(which, weights=mass * points[:, k], minlength=len(centres))
            centres[:, k] = np.where(total > 0, sums / np.maximum(total, 1e-300), centres[:, k])
    return which, far
