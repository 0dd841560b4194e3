"""Edges for the numbers of a draft: bins of about equal share, and what many records share in a bin of its own.

Everything here looks at the numbers, so that an edge is as private as they are (`table.draft` says so, line by line).

*How many*: k = (n μ)^⅓, at least 6 and at most 32, of n records and a budget of Gaussian DP μ. More bins show more of
how numbers lie, and their noise hides more of it; the minimum is flat (docs/how_it_works.md, "Numbers inside bins").

*Where*: a number that a k-th of the records share is *heaped* and stands alone, with an edge on either side. Between
heaped numbers edges stand at quantiles, each at the roundest number near by. A last bin that reaches much farther
than nearly all numbers is cut once more, so that its few records are not spread over all of it.

Where the numbers of a column lie, from a tree of noisy counts, when no range is known.

Level 0 has one interval for each sign and octave: 0, ±u, ±2u, ±4u, … of the unit u, or ±2^e from 2⁻¹⁴ on where
numbers have many decimals. Below, a node has up to 16 equal parts, and there are 3 such levels, none finer than one
unit. All counts of a level have the same noise, and a node is opened where its count exceeds 4σ (5σ at level 0):
a reading of a tree whose noise is fixed, so post-processing.

The counts of a node and of its parts are made to agree: bottom-up an average weighted by variance, top-down the
difference shared by variance (Hay et al. 2010), then the parts are projected onto the simplex of the node's mass.
Ends are where all that lies beyond is no more than noise could be: outer leaves are cut off while their mass together
is below 2.5σ of its noise, and octaves next to what was seen are kept where theirs is above 3σ. One more bin on
either side takes what was not seen, and what lies farther out is clamped. Edges need no evidence: the heaviest bin is
halved until there are enough, and the release measures what is in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dualquery.types import Reals, halved

LEAST_BINS, MOST_BINS = 6, 32
USUAL_EPSILON, USUAL_DELTA = 1.0, 1e-6  # of the release to come, where nobody says
SLACK = 0.2  # of a bin's share, that an edge may be off its quantile to be a round number
TAIL = 0.005  # of the records, beyond which a long tail has a bin of its own
LONG = 1.5  # times the range of nine in ten numbers: an outer bin that is wider has a long tail


def number_of_bins(rows: int, epsilon: float | None = None) -> int:
    """clip(round((n μ)^⅓), 6, 32)."""
    mu = gaussian_mu(USUAL_EPSILON if epsilon is None else epsilon, USUAL_DELTA)
    return min(MOST_BINS, max(LEAST_BINS, round((rows * mu) ** (1 / 3))))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ (Dong, Roth, Su 2022), by bisection."""

    def exceeds(mu: float) -> bool:
        tail = 0.5 * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2))
        second = math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0
        return 0.5 * math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) - second > delta

    low, high = 1e-9, 1.0
    while not exceeds(high) and high < 1e6:
        high *= 2
    return halved(low, high, 60, exceeds)[0]


def shared_edges(
    values: Reals, weights: NDArray[np.int64], bins: int, unit: Fraction | None
) -> tuple[float, ...]:
    """Edges for distinct numbers and how often each occurs; `unit` is what numbers are multiples of."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    target = weights.sum() / bins
    cuts: list[float] = []  # an edge before which a bin ends and the next begins
    start = 0
    for place in np.append(np.flatnonzero(weights >= target), len(values)).tolist():
        if place > start:
            cuts += _at_quantiles(values[start:place], weights[start:place], target, unit)
        if place == len(values):
            break
        if place:
            cuts.append(float(values[place]))
        if place + 1 < len(values):
            cuts.append(_after(values, place, unit))
        start = place + 1
    cuts = sorted({*cuts, *_tails(values, weights, cuts, unit)})
    return _between_ends(values, weights >= target, cuts, unit)


def _at_quantiles(
    values: Reals, weights: NDArray[np.int64], target: float, unit: Fraction | None
) -> list[float]:
    """Round edges that cut these numbers into parts of about the share wanted."""
    shares = np.cumsum(weights) / weights.sum()
    parts = max(1, round(weights.sum() / target))
    found = []
    for wanted in np.arange(1, parts) / parts:
        ends = (wanted - SLACK / parts, wanted + SLACK / parts)
        found.append(_near_share(values, shares, float(wanted), ends, unit))
    return [edge for edge in found if values[0] < edge <= values[-1]]


def _near_share(
    values: Reals, shares: Reals, wanted: float, ends: tuple[float, float], unit: Fraction | None
) -> float:
    """The roundest number below which lies a share between these ends, or else the share nearest to `wanted`."""
    last = len(values) - 1
    below = min(int(np.argmin(np.abs(shares - wanted))), max(0, last - 1))
    inside = np.flatnonzero((shares >= ends[0]) & (shares <= ends[1]))
    first, final = (int(inside[0]), int(inside[-1])) if len(inside) else (below, below)
    middle = float(values[min(below + 1, last)])
    return roundest(float(values[first]), float(values[min(final + 1, last)]), middle, unit)


def _after(values: Reals, place: int, unit: Fraction | None) -> float:
    """An edge behind a number and before the next."""
    value, following = float(values[place]), float(values[place + 1])
    return float(_exact(value) + unit) if unit else roundest(value, following, value, None)


def _tails(
    values: Reals, weights: NDArray[np.int64], cuts: list[float], unit: Fraction | None
) -> list[float]:
    """A further edge at either end where the outer bin reaches much farther than nearly all numbers."""
    shares = np.cumsum(weights) / weights.sum()
    most = values[np.searchsorted(shares, 0.95)] - values[np.searchsorted(shares, 0.05)]
    if not cuts or most <= 0:
        return []
    found = []
    if values[-1] - max(cuts) > LONG * most:
        found.append(_near_share(values, shares, 1 - TAIL, (1 - 1.5 * TAIL, 1 - 0.5 * TAIL), unit))
    if min(cuts) - values[0] > LONG * most:
        found.append(_near_share(values, shares, TAIL, (0.5 * TAIL, 1.5 * TAIL), unit))
    return found


def _between_ends(
    values: Reals, heaped: NDArray[np.bool_], cuts: list[float], unit: Fraction | None
) -> tuple[float, ...]:
    """The edges with round ends: not far beyond the numbers, and none beyond a heaped one."""
    least, most = float(values[0]), float(values[-1])
    step = float(unit) if unit else max(most - least, abs(most) * 1e-6, 1e-9)
    first, last = (cuts[0], cuts[-1]) if cuts else (most, least)
    low = least
    if not heaped[0]:
        low = roundest(least - max(first - least, step) / 4, least, least, unit, closed=True)
    if heaped[-1]:  # the last bin is closed: half a unit keeps its neighbour out
        high = float(_exact(most) + unit / 2) if unit else most + step / 1000
    else:
        high = roundest(most, most + max(most - last, step) / 4, most, unit, closed=True)
    if low == high:
        high = float(_exact(low) + unit) if unit else low + step
    return (low, *(edge for edge in cuts if low < edge < high), high)


def roundest(
    above: float, most: float, wanted: float, unit: Fraction | None, *, closed: bool = False
) -> float:
    """Of the numbers x with above < x ≤ most (or above ≤ x) the roundest, and of equally round ones the nearest to
    `wanted`: a multiple of 5, 2 or 1 times the largest power of ten. With a unit, one of its multiples."""
    low, high, middle = _exact(above), _exact(most), min(max(_exact(wanted), _exact(above)), _exact(most))
    if low == high:
        return most
    power = math.floor(math.log10(max(abs(above), abs(most)))) + 1
    for exponent in range(power, power - 18, -1):
        for digit in (5, 2, 1):
            step = digit * Fraction(Decimal(1).scaleb(exponent))
            if unit is not None and step < unit:
                return float(math.floor(high / unit) * unit)
            near = round(middle / step)
            for times in sorted((near - 1, near, near + 1), key=lambda t: abs(t * step - middle)):
                if (low <= times * step if closed else low < times * step) and times * step <= high:
                    return float(times * step)
    return most


def _exact(x: float) -> Fraction:
    """The decimal that a float prints as."""
    return Fraction(repr(float(x)))


LEVELS = 4  # of counts: octaves, and three below
FAN = 16  # parts of a node
OPENS, OPENS_OCTAVE = 4.0, 5.0  # σ
SEEN = 4.0  # σ, of an octave
ENDS, BEYOND = 2.5, 3.0  # σ: of leaves that are cut off, of octaves that are kept beside those that were seen
LEAST_MASS = 6.0  # σ, of a bin
ALONE, UNIT_ALONE = 1.2, 0.4  # of a bin's mass: from there on a leaf, or a single number, stands alone
LEAST_HALVED = 12
UNITS = 24  # whole numbers between ends no farther apart have a bin each
OUTSIDE = (
    0.25  # of the range between the ends: how wide one more bin is on either side, for what was not seen
)
FINEST = 1e-9  # a unit, where numbers have many decimals
FIRST_OCTAVE, LAST_OCTAVE = -14, 44  # powers of two
_FEW = 64  # units in a node: from there on parts are whole units
_FIGURES = 10  # behind the point, of an edge


@dataclass(eq=False)
class Node:
    """An interval [low, high) with its noisy count and σ; the mass and its variance once the tree agrees."""

    low: float
    high: float
    noisy: float = 0.0
    sigma: float = 0.0
    parts: list[Node] = field(default_factory=list)
    mass: float = 0.0
    variance: float = 1.0


@dataclass(eq=False)
class Tree:
    """The nodes so far; `edges` are those of the next level to be counted, and `fill` takes the counts."""

    unit: float
    roots: list[Node] = field(default_factory=list)
    _next: list[Node] = field(default_factory=list)  # to be counted
    _counted: int = 0  # levels

    def __post_init__(self) -> None:
        first = self.unit if self.unit > FINEST else 2.0**FIRST_OCTAVE
        octaves = first * 2.0 ** np.arange(math.ceil(LAST_OCTAVE - math.log2(first)) + 1)
        ends = [*(-octaves[::-1]).tolist(), 0.0, *octaves.tolist()]
        self.roots = self._next = [Node(a, b) for a, b in pairwise(ends)]

    @property
    def edges(self) -> Reals:
        """Of all that is to be counted; between nodes that are not opened lie intervals that nobody reads."""
        return np.unique(np.array([edge for node in self._next for edge in (node.low, node.high)]))

    def fill(self, counts: Reals, sigma: float) -> None:
        """The counts of the intervals between `edges`; then the nodes that hold enough are opened."""
        edges = self.edges
        for node in self._next:
            node.noisy, node.sigma = float(counts[int(np.searchsorted(edges, node.low))]), sigma
        enough = (OPENS_OCTAVE if self._counted == 0 else OPENS) * sigma
        self._counted += 1
        opened = [node for node in self._next if node.noisy > enough and not self.single(node)]
        if self._counted < LEVELS:
            for node in opened:
                node.parts = self._parts(node)
        self._next = [part for node in opened for part in node.parts]

    @property
    def done(self) -> bool:
        return not self._next

    def single(self, node: Node) -> bool:
        """Whether one number lies in it."""
        return node.high - node.low <= self.unit * 1.0001

    def _parts(self, node: Node) -> list[Node]:
        units = (node.high - node.low) / self.unit
        edges = np.linspace(node.low, node.high, min(FAN, max(1, round(units))) + 1)
        if units < _FEW:
            edges = node.low + np.round((edges - node.low) / self.unit) * self.unit
        edges = np.unique(np.round(edges, _FIGURES))
        edges[0], edges[-1] = node.low, node.high
        return [Node(a, b) for a, b in pairwise(edges.tolist())]

    def live(self) -> list[Node]:
        """The leaves between the ends that hold something, with masses that agree."""
        for root in self.roots:
            _agree(root)
        limits = [SEEN * root.sigma * (0.5 if root.parts else 1.0) for root in self.roots]
        seen = [place for place, root in enumerate(self.roots) if root.mass > limits[place]]
        if not seen:
            return []
        above, below = self.roots[seen[-1] + 1 :], self.roots[: seen[0]][::-1]
        if self.roots[seen[-1]].high <= 0:  # what was not seen is looked for on the same side of zero
            above = [root for root in above if root.high <= 0]
        if self.roots[seen[0]].low >= 0:
            below = [root for root in below if root.low >= 0]
        kept = self.roots[seen[0] - _beyond(below) : seen[-1] + 1 + _beyond(above)]
        masses = onto_simplex(np.array([root.mass for root in kept]), sum(root.mass for root in kept))
        held: list[Node] = []
        for root, mass in zip(kept, masses.tolist(), strict=True):
            root.mass = mass
            _share(root, held)
        held = [leaf for leaf in held if leaf.mass > 0]
        for _ in range(2):  # from below, then from above
            mass = np.cumsum([leaf.mass for leaf in held])
            noise = np.sqrt(np.cumsum([leaf.sigma**2 for leaf in held]))
            enough = np.flatnonzero(mass >= ENDS * noise)
            held = held[int(enough[0]) if len(enough) else len(held) :][::-1]
        return held


def _beyond(roots: Sequence[Node]) -> int:
    """How many octaves, going outwards, are kept: up to the farthest at which their mass is more than noise."""
    mass = np.cumsum([root.mass for root in roots])
    noise = np.sqrt(np.cumsum([root.sigma**2 for root in roots]))
    enough = np.flatnonzero(mass > BEYOND * noise)
    return int(enough[-1]) + 1 if len(enough) else 0


def _agree(node: Node) -> None:
    """Bottom-up: the best of the node's own count and of the sum of its parts."""
    node.mass, node.variance = node.noisy, node.sigma**2
    if not node.parts:
        return
    for part in node.parts:
        _agree(part)
    total = sum(part.mass for part in node.parts)
    variance = sum(part.variance for part in node.parts)
    weight = variance / (node.variance + variance)
    node.mass, node.variance = weight * node.noisy + (1.0 - weight) * total, weight * node.variance


def _share(node: Node, found: list[Node]) -> None:
    """Top-down: the difference is shared by variance, and the parts keep the node's mass without a negative one."""
    if not node.parts:
        found.append(node)
        return
    masses = np.array([part.mass for part in node.parts])
    variances = np.array([part.variance for part in node.parts])
    kept = onto_simplex(masses + (node.mass - masses.sum()) * variances / variances.sum(), node.mass)
    for part, mass in zip(node.parts, kept.tolist(), strict=True):
        part.mass = mass
        _share(part, found)


def onto_simplex(masses: Reals, total: float) -> Reals:
    """The nearest masses that are not negative and add up to `total` > 0: all less the same, but not below 0."""
    if total <= 0:
        return np.zeros(len(masses))
    ordered = np.sort(masses)[::-1]
    less = (np.cumsum(ordered) - total) / np.arange(1, len(masses) + 1)
    last = int(np.flatnonzero(ordered > less)[-1])
    return np.maximum(masses - less[last], 0.0)


def edges_of(tree: Tree, bins: int, outside: float = OUTSIDE) -> tuple[float, ...]:
    """Edges of bins of about equal share; nothing where no number was found.

    A leaf that holds much more than a bin should, or a single number that holds nearly half as much, stands alone.
    """
    live = tree.live()
    if not live:
        return ()
    target = max(sum(leaf.mass for leaf in live) / bins, LEAST_MASS * max(leaf.sigma for leaf in live))
    edges, held = [live[0].low], 0.0
    for leaf in live:
        if leaf.mass >= ALONE * target or (tree.single(leaf) and leaf.mass >= UNIT_ALONE * target):
            edges += ([leaf.low] if held >= 0.3 * target else []) + [leaf.high]
            held = 0.0
            continue
        if held + leaf.mass / 2 >= target:
            edges.append(leaf.low)
            held = 0.0
        held += leaf.mass
    found = np.unique([*edges, live[-1].high])
    return _whole_units(_halved(found, live, tree.unit, min(LEAST_HALVED, max(bins, 2))), tree.unit, outside)


def _halved(edges: Reals, live: list[Node], unit: float, bins: int) -> Reals:
    """The edges, with the heaviest bin that is no single number halved until there are so many."""
    wide = [leaf for leaf in live if leaf.high - leaf.low > 1.5 * unit]
    low, high = np.array([leaf.low for leaf in wide]), np.array([leaf.high for leaf in wide])
    mass = np.array([leaf.mass for leaf in wide])
    while len(edges) - 1 < bins:
        inside = np.minimum(edges[1:, None], high) - np.maximum(edges[:-1, None], low)
        held = (np.maximum(inside, 0.0) / (high - low) * mass).sum(axis=1) * (np.diff(edges) > 1.5 * unit)
        heaviest = int(np.argmax(held)) if len(held) else 0
        a, b = edges[heaviest], edges[heaviest + 1]
        middle = a + round((b - a) / (2 * unit)) * unit
        if not len(wide) or held[heaviest] <= 0 or not a < middle < b:
            break
        edges = np.insert(edges, heaviest + 1, middle)
    return edges


def _widened(edges: Reals, share: float) -> Reals:
    """With one more bin on either side, a part of the whole range wide, but on the same side of zero."""
    low, high = edges[0], edges[-1]
    more = share * (high - low)
    below = max(low - more, 0.0) if low >= 0 else low - more
    above = min(high + more, 0.0) if high <= 0 else high + more
    return np.unique([below, *edges, above])


def _whole_units(edges: Reals, unit: float, share: float) -> tuple[float, ...]:
    """Edges at whole units, of which few have a bin each; at least two bins."""
    if unit > FINEST:
        decimals = max(0, round(-math.log10(unit)))
        numbers = np.unique(np.ceil(edges / unit - 1e-6)).astype(np.int64)
        if numbers[-1] - numbers[0] <= UNITS and unit == 1.0:
            numbers = np.arange(numbers[0], numbers[-1] + 1)
        else:
            numbers = np.unique(np.rint(_widened(numbers.astype(np.float64), share))).astype(np.int64)
        while len(numbers) < 3:
            numbers = np.append(numbers, numbers[-1] + 1)
        return tuple(round(float(x * unit), decimals) for x in numbers)
    edges = _widened(edges, share)
    if len(edges) == 2:
        edges = np.insert(edges, 1, (edges[0] + edges[1]) / 2)
    return tuple(map(float, edges))
