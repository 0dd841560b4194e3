"""Graphs that a data player believes in: a sum of rectangles, learned cut by cut, or a block model fitted to sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dualquery.game import Heard
from dualquery.loops import njit, popcount
from dualquery.queries.cuts import Cuts
from dualquery.queries.workload import Workload
from dualquery.types import Integers, Reals, Words


@dataclass(frozen=True, eq=False)
class Rectangles:
    """D, and its answers to the workload that it learned from."""

    sources: Words
    targets: Words
    heights: Reals
    told: Reals
    workload: Workload | None = None

    def answers(self, workload: Workload) -> Reals:
        if workload is self.workload:
            return self.told
        cuts = workload.all_of(Cuts)
        return np.concatenate([crossing(self.sources, self.targets, self.heights, each) for each in cuts])

    def mean_of_second_half(self) -> Rectangles:
        """The mean of the beliefs after each of the last T/2 rectangles: the t-th counts in those that hold it."""
        many = len(self.heights)
        held = np.minimum(1.0, (many - np.arange(many)) / (many - many // 2))
        return Rectangles(self.sources, self.targets, self.heights * held, np.empty(0))


class CutMatrix:
    """The cut decomposition of Frieze and Kannan as a learner: a graph that is a sum of rectangles.

    From the empty graph on, the belief is a matrix D = Σ_t d_t 1_{S_t} 1_{T_t}ᵀ. A cut (S, T) with value v moves it
    the shortest way (in the Euclidean sense) to where the cut is answered right: d = (v − D(S, T)) / (|S| |T|).
    Nothing but sets is kept: rectangles meet in |S ∩ S'| · |T ∩ T'| entries, so that all answers move by d times two
    counts of bits (Gupta, Roth, Ullman 2012).

    Without directions an entry is a pair {u, v}, loops among them, and a rectangle is S×T ∪ T×S, each pair once. With
    P = S ∩ T its indicator over ordered pairs is 1_{S×T} + 1_{T×S} − 1_{P×P}. Two of them meet, by multiplying out,
    and by halving what is no loop, in

        |S ∩ S'| |T ∩ T'| + |S ∩ T'| |T ∩ S'| − |S ∩ P'| |T ∩ P'| − |P ∩ S'| |P ∩ T'| + m(m + 1)/2,   m = |P ∩ P'|

    pairs; with itself one meets in all of its |S||T| − |P|(|P| − 1)/2.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._cuts = cuts = _as_one(workload)
        self._answers = np.zeros(cuts.size)
        self._heard = 0
        # Rectangles are only ever added, so that what was seen of these stays as it was; twice as long when full.
        self._kept: tuple[Words, Words, Reals] = (
            cuts.sources[:1].copy(),
            cuts.targets[:1].copy(),
            np.zeros(1),
        )

    def hear(self, challenge: Heard[int]) -> None:
        q, told = challenge.what, min(1.0, max(0.0, challenge.value))
        met = met_by(
            self._cuts.sources[q],
            self._cuts.targets[q],
            self._cuts.sources,
            self._cuts.targets,
            self._cuts.domain.directed,
        )
        height = (told - self._answers[q]) / max(1.0, float(met[q]))
        self._answers += height * met
        if self._heard == len(self._kept[2]):
            sources, targets, heights = (np.concatenate([each, each]) for each in self._kept)
            self._kept = sources, targets, heights
        for each, value in zip(
            self._kept, (self._cuts.sources[q], self._cuts.targets[q], height), strict=True
        ):
            each[self._heard] = value
        self._heard += 1

    def snapshot(self) -> Rectangles:
        sources, targets, heights = self._kept
        held = slice(self._heard)
        return Rectangles(sources[held], targets[held], heights[held], self._answers.copy(), self._workload)


def _as_one(workload: Workload) -> Cuts:
    groups = workload.all_of(Cuts)
    sources, targets = (
        np.concatenate(each) for each in zip(*((g.sources, g.targets) for g in groups), strict=True)
    )
    return Cuts(groups[0].domain, sources, targets)


def crossing(sources: Words, targets: Words, heights: Reals, cuts: Cuts) -> Reals:
    """What a sum of rectangles sends across each cut."""
    out = np.zeros(cuts.size)
    for source, target, height in zip(sources, targets, heights.tolist(), strict=True):
        out += height * met_by(source, target, cuts.sources, cuts.targets, cuts.domain.directed)
    return out


@njit(cache=True)
def met_by(source, target, sources, targets, directed):  # type: ignore[no-untyped-def]
    """In how many entries a rectangle meets each of some rectangles; without directions, both as S×T ∪ T×S."""
    out = np.empty(sources.shape[0])
    for q in range(sources.shape[0]):
        out[q] = _product(source, target, sources[q], targets[q])
        if not directed:
            inner, others = source & target, sources[q] & targets[q]
            both = float(_common(inner, others))
            out[q] += _product(source, target, targets[q], sources[q]) + both * (both + 1) / 2
            out[q] -= _product(source, target, others, others) + _product(
                inner, inner, sources[q], targets[q]
            )
    return out


@njit(cache=True)
def _product(a, b, c, d):  # type: ignore[no-untyped-def]
    """|A ∩ C| · |B ∩ D|."""
    return float(_common(a, c)) * float(_common(b, d))


@njit(cache=True)
def _common(a, b):  # type: ignore[no-untyped-def]
    """|A ∩ B|."""
    found = np.int64(0)
    for w in range(a.shape[0]):
        found += np.int64(popcount(a[w] & b[w]))
    return found


ROUNDS = 40
LOOSE = 4.0  # variance of what the block model says of a pair, as a multiple of it: edges fall in bunches
FARTHEST = 1.5  # by which the logarithm of a factor moves at once
LEAST = 1e-3  # of a row that is taken to be left when all of its pairs were seen


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of vertices, and what each has on top of the block model."""

    source: Integers
    target: Integers
    extra: Reals

    @staticmethod
    def none() -> Pairs:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The parts of W."""

    classes: Integers
    leaves: Reals
    enters: Reals
    blocks: Reals
    pairs: Pairs

    def expected(self, source: Integers, target: Integers) -> Reals:
        """The block model between all of some vertices and all of some others."""
        between = self.blocks[self.classes[source][:, None], self.classes[target][None, :]]
        return self.leaves[source][:, None] * self.enters[target][None, :] * between

    def between(self, source: Integers, target: Integers) -> Reals:
        return (
            self.leaves[source]
            * self.enters[target]
            * self.blocks[self.classes[source], self.classes[target]]
        )


@dataclass(frozen=True, eq=False)
class MeasuredGraph:
    """What was measured: degrees, blocks, all edges; the variance of each kind, and of a seen pair."""

    leaving: Reals
    entering: Reals
    blocks: Reals  # without loops
    loops: float
    total: float
    degree_variance: float
    block_variance: float
    total_variance: float
    pair_variance: float


def product_model(measured: MeasuredGraph, classes: Integers) -> Fitted:
    """Where to begin: as if ends were chosen apart from each other."""
    leaves, enters = (np.maximum(each, 1e-6) for each in (measured.leaving, measured.entering))
    many = len(measured.blocks)
    even = np.full((many, many), measured.total / (leaves.sum() * enters.sum()))
    return Fitted(classes, leaves, enters, even, Pairs.none())


def fit(measured: MeasuredGraph, before: Fitted, pairs: Pairs) -> Fitted:
    """The graph nearest to what was measured, in which seen pairs begin as `before` and their extra.

    Degrees, blocks, pairs and the number of edges are fitted together, each by its precision:

        W_uv = w_uv for pairs that were seen to differ, leaves_u · enters_v · B_{class(u) class(v)} for all others,

    a block model with degrees, and heavy (or light) pairs in its place. Nearest to what was measured, by squares:

        Σ_m (z_m − W(m))² / σ_m²  +  Σ_uv (W_uv − before_uv)² / v_uv,    v = σ² of a seen pair, LOOSE · W elsewhere,

    over the measured sums m: what leaves a vertex, what enters it, a block without its loops, all loops, all edges.
    The multipliers are found one kind of sum after the other (coordinate ascent of the dual): λ_m grows by

        (z_m − W(m) − σ_m² λ_m) / (σ_m² + Σ_m v),

    and each cell of m moves by v times that; the block model by a factor, so that it keeps its form and its sign. All
    are sums over classes, vertices and seen pairs, never over all pairs.
    """
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

    def _move(self, kind: int, wanted: Reals, variance: float) -> Reals:
        """One step of the multipliers of one kind of sums; what they moved by."""
        size, place = len(wanted), self.places[kind]
        whole = self._model(kind)
        holes = self.block if kind == 2 else place  # the block model has them also in its blocks, at loops
        hole = np.bincount(holes, weights=self._seen(), minlength=size)
        model = np.maximum(whole - hole, LEAST * whole)
        held = np.bincount(place, weights=self.weight, minlength=size)
        seen = np.bincount(place, weights=self.variance, minlength=size)
        step = (wanted - model - held) / (variance + LOOSE * model + seen + 1e-12)
        step = np.clip(step, -FARTHEST / LOOSE, FARTHEST / LOOSE)
        self._multiply(kind, np.exp(LOOSE * step))
        self.weight = np.maximum(self.weight + self.variance * step[place], 0.0)
        return step

    def _seen(self) -> Reals:
        between = self.blocks.ravel()[self.block]
        return self.leaves[self.source] * self.enters[self.target] * between

    def _model(self, kind: int) -> Reals:
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

    def _multiply(self, kind: int, factor: Reals) -> None:
        if kind == 0:
            self.leaves *= factor
        elif kind == 1:
            self.enters *= factor
        else:
            self.blocks *= factor[:-1].reshape(self.blocks.shape) if kind == 2 else factor
