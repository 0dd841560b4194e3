"""Graphs that nobody's edges are behind: fitted weights, or a sum of rectangles. Any cut of them is free.

Which vertices belong together follows from public things (`classes_of`): the questions, what is public about
vertices, noisy degrees. Vertices that the workload never tells apart are one class: cuts of the workload are then
unions of blocks. Where there are too many such classes, they are joined by weighted k-means on a random sketch of
their memberships, so that vertices that are in the same sets most of the time stay together, and heavy vertices
count more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.beliefs.graphs import Fitted, Pairs, Rectangles, crossing
from dualquery.errors import DualQueryError, QueryError
from dualquery.mechanisms.error_bars import BAR, bar_from_mean
from dualquery.queries.cuts import Cuts
from dualquery.queries.group import Group
from dualquery.queries.workload import Workload
from dualquery.table.graph import Graph
from dualquery.table.records import pack_bits, unpack_bits
from dualquery.types import Fractions, Reals

EDGES, VERTICES, BLOCKS, PAIRS = "edges.parquet", "vertices.parquet", "blocks.parquet", "pairs.parquet"
MOST_PAIRS = 2_250_000  # of vertices that are all listed; of larger graphs so many edges at most


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """W as it was fitted, the public number of edges, and the noise of a block and of a degree."""

    domain: Graph
    fitted: Fitted
    edges: float
    block_deviation: float
    degree_deviation: float

    rows = None

    @property
    def words(self) -> str:
        return f"A weighted graph over {len(self.domain.vertices):,} vertices"

    def fractions(self, group: Group) -> Fractions:
        return np.clip(self._answers(group)[0] / (self.domain.heaviest * self.edges), 0.0, 1.0)

    def bars(self, group: Group) -> Fractions:
        return BAR * self._answers(group)[1] / (self.domain.heaviest * self.edges)

    def _answers(self, group: Group) -> tuple[Reals, Reals]:
        """What crosses each cut, and its deviation: the noise of blocks and degrees, and what chance does to edges
        that are only known by their block."""
        if not isinstance(group, Cuts):
            raise QueryError("this release is a graph, which answers cuts and nothing else")
        weight, variance = np.empty(group.size), np.empty(group.size)
        for first, from_, to in group.unpacked():
            rows = slice(first, first + len(from_))
            weight[rows], variance[rows] = self._crossing(from_, to)
            if not self.domain.directed:
                again, more = self._crossing(to, from_)
                twice, less = self._crossing(from_ & to, from_ & to)
                weight[rows] += again - twice
                variance[rows] += more + less
        return weight, np.sqrt(variance)

    def _crossing(self, from_: NDArray[np.uint8], to: NDArray[np.uint8]) -> tuple[Reals, Reals]:
        fitted = self.fitted
        leaves, enters = (
            self._by_class(sets, by) for sets, by in ((from_, fitted.leaves), (to, fitted.enters))
        )
        weight = np.einsum("qa,ab,qb->q", leaves, fitted.blocks, enters, optimize=True)
        pairs = fitted.pairs
        if len(pairs.extra):
            weight += ((from_[:, pairs.source] & to[:, pairs.target]) * pairs.extra).sum(axis=1)
        s, t = (
            part / np.maximum(self._by_class(np.ones_like(from_[:1]), by), 1e-300)
            for part, by in ((leaves, fitted.leaves), (enters, fitted.enters))
        )
        inside = np.einsum("qa,ab,qb->q", s**2, np.ones_like(fitted.blocks), t**2, optimize=True)
        mass = fitted.blocks * np.outer(
            np.bincount(fitted.classes, weights=fitted.leaves, minlength=len(fitted.blocks)),
            np.bincount(fitted.classes, weights=fitted.enters, minlength=len(fitted.blocks)),
        )
        chance = np.einsum("qa,ab,qb->q", s * (1 - s), mass, t * (1 - t), optimize=True)
        number = np.bincount(fitted.classes, minlength=len(fitted.blocks))
        degrees = (s * (1 - s)) @ number * (t**2).mean(axis=1) + (t * (1 - t)) @ number * (s**2).mean(axis=1)
        noise = self.block_deviation**2 * inside + self.degree_deviation**2 * degrees
        return weight, noise + self.domain.heaviest * np.maximum(chance, 0.0)

    def _by_class(self, sets: NDArray[np.uint8], by: Reals) -> Reals:
        """Σ of a number over the members of each set, class by class."""
        order = np.argsort(self.fitted.classes, kind="stable")
        begins = np.searchsorted(self.fitted.classes[order], np.arange(len(self.fitted.blocks)))
        return np.add.reduceat(sets[:, order] * by[order], begins, axis=1)

    def to_arrow(self) -> pa.Table:
        """The edges with their weights: all pairs of a small graph, of a large one so many that stand for all."""
        number = len(self.domain.vertices)
        everything = np.arange(number)
        if number**2 <= MOST_PAIRS:
            weight = self.fitted.expected(everything, everything)
            np.add.at(weight, (self.fitted.pairs.source, self.fitted.pairs.target), self.fitted.pairs.extra)
            if not self.domain.directed:
                weight = np.triu(weight + weight.T) - np.diag(np.diag(weight))
            source, target = np.nonzero(weight > 0)
            return edge_table(self.domain, source, target, weight[source, target])
        return edge_table(self.domain, *self._standing_for_all())

    def _standing_for_all(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Reals]:
        """Heavy pairs, and edges of one weight, block by block, at even steps of both ends' weights."""
        fitted, pairs = self.fitted, self.fitted.pairs
        total = max(self.edges * self.domain.heaviest, 1.0)
        order = np.argsort(fitted.classes, kind="stable")
        begins = np.searchsorted(fitted.classes[order], np.arange(len(fitted.blocks) + 1))
        parts = [(pairs.source, pairs.target, pairs.extra)]
        for a, b in np.ndindex(*fitted.blocks.shape):
            here, there = order[begins[a] : begins[a + 1]], order[begins[b] : begins[b + 1]]
            down, across = np.cumsum(fitted.leaves[here]), np.cumsum(fitted.enters[there])
            mass = fitted.blocks[a, b] * down[-1] * across[-1]
            many = int(np.ceil(MOST_PAIRS / 2 * mass / total))
            if many:
                steps = (np.arange(many) + 0.5) / many
                turned = np.sort((np.arange(many) * 0.6180339887498949) % 1.0)[_shuffle(many)]
                source = here[np.minimum(np.searchsorted(down, steps * down[-1]), len(here) - 1)]
                target = there[np.minimum(np.searchsorted(across, turned * across[-1]), len(there) - 1)]
                parts.append((source, target, np.full(many, mass / many)))
        source, target, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        return source, target, weight

    def to_networkx(self) -> Any:
        return networkx_of(self.domain, self.to_arrow())

    def files(self) -> dict[str, pa.Table]:
        fitted, names = self.fitted, pa.array(self.domain.vertices, pa.string())
        vertices = {
            "vertex": names,
            "class": fitted.classes,
            "leaves": fitted.leaves,
            "enters": fitted.enters,
        }
        many = len(fitted.blocks)
        known = {"edges": self.edges, "block": self.block_deviation, "degree": self.degree_deviation}
        blocks = pa.table(
            {
                "from": np.repeat(np.arange(many), many),
                "to": np.tile(np.arange(many), many),
                "factor": fitted.blocks.ravel(),
            }
        ).replace_schema_metadata({name: repr(float(value)) for name, value in known.items()})
        pairs = {"source": fitted.pairs.source, "target": fitted.pairs.target, "extra": fitted.pairs.extra}
        return {EDGES: self.to_arrow(), VERTICES: pa.table(vertices), BLOCKS: blocks, PAIRS: pa.table(pairs)}

    @staticmethod
    def of_files(domain: Graph, tables: dict[str, pa.Table]) -> WeightedGraph:
        vertices, blocks, pairs = (tables[name] for name in (VERTICES, BLOCKS, PAIRS))
        factors = blocks["factor"].to_numpy()
        many = round(len(factors) ** 0.5)
        known = {
            name.decode(): float(value)
            for name, value in blocks.schema.metadata.items()
            if b"RROW" not in name
        }
        fitted = Fitted(
            vertices["class"].to_numpy(),
            vertices["leaves"].to_numpy(),
            vertices["enters"].to_numpy(),
            factors.reshape(many, many),
            Pairs(*(pairs[name].to_numpy() for name in ("source", "target", "extra"))),
        )
        return WeightedGraph(domain, fitted, known["edges"], known["block"], known["degree"])


def _shuffle(many: int) -> NDArray[np.int64]:
    """A public order that is far from sorted."""
    return np.random.default_rng(many).permutation(many)


def edge_table(domain: Graph, source: NDArray[Any], target: NDArray[Any], weight: Reals) -> pa.Table:
    """source, target, weight, vertices by their names."""
    names = pa.array(domain.vertices, pa.string())
    ends = {
        column.name: pa.DictionaryArray.from_arrays(pa.array(each.astype(np.int32)), names)
        for column, each in zip(domain.columns, (source, target), strict=False)
    }
    return pa.table({**ends, "weight": weight})


def networkx_of(domain: Graph, edges: pa.Table) -> Any:
    """The edges as a graph of networkx, each with its weight; all vertices are there, with their attributes."""
    try:
        import networkx  # type: ignore[import-untyped]
    except ImportError:
        raise DualQueryError("to_networkx() needs networkx; install dualquery[graphs]") from None
    graph = networkx.DiGraph() if domain.directed else networkx.Graph()
    if domain.held is None or domain.attributes is None:
        graph.add_nodes_from(domain.vertices)
    else:
        labels = [domain.attributes.labels(j) for j in range(domain.attributes.width)]
        for name, row in zip(domain.vertices, domain.held.to_rows().tolist(), strict=True):
            graph.add_node(name, **{domain.attributes.name(j): labels[j][v] for j, v in enumerate(row)})
    ends = [edges.column(i).to_pylist() for i in range(2)]
    graph.add_weighted_edges_from(zip(*ends, edges["weight"].to_pylist(), strict=True))
    return graph


RECTANGLES = "rectangles.parquet"


def _summed(from_: NDArray[np.uint8], to: NDArray[np.uint8], heights: Fractions) -> Fractions:
    """Σ_t d_t 1_{S_t} 1_{T_t}ᵀ, entry by entry."""
    summed: Fractions = (from_ * heights[:, None]).T @ to.astype(np.float64)
    return summed


@dataclass(frozen=True, eq=False)
class RectangleGraph:
    """Rectangles in fractions of all edges, the public number of edges, and the mean error that was predicted."""

    domain: Graph
    held: Rectangles
    edges: float
    mean_error: float

    rows = None

    @property
    def words(self) -> str:
        number, many = len(self.domain.vertices), len(self.held.heights)
        return f"A graph over {number:,} vertices, the sum of {many:,} rectangles"

    def fractions(self, group: Group) -> Fractions:
        if not isinstance(group, Cuts):
            raise QueryError("this release is a graph, which answers cuts and nothing else")
        return np.clip(crossing(self.held.sources, self.held.targets, self.held.heights, group), 0.0, 1.0)

    def bars(self, group: Group) -> Fractions:
        return np.full(group.size, bar_from_mean(self.mean_error))

    def to_arrow(self) -> pa.Table:
        """The edges with a positive weight, where there are not too many pairs of vertices to add up."""
        number = len(self.domain.vertices)
        weight = np.zeros((number, number) if number**2 <= MOST_PAIRS else (0, 0))
        if len(weight):
            from_, to = (unpack_bits(each, number) for each in (self.held.sources, self.held.targets))
            weight = _summed(from_, to, self.held.heights)
            if not self.domain.directed:  # S×T ∪ T×S, both of which have S∩T × S∩T; each pair stands once
                inner = from_ & to
                weight = np.triu(weight + weight.T - _summed(inner, inner, self.held.heights))
            weight *= self.edges * self.domain.heaviest
        source, target = np.nonzero(weight > 1e-9)
        return edge_table(self.domain, source, target, weight[source, target])

    def to_networkx(self) -> Any:
        return networkx_of(self.domain, self.to_arrow())

    def files(self) -> dict[str, pa.Table]:
        number = len(self.domain.vertices)
        sides = {
            name: pa.array(
                [np.flatnonzero(row).tolist() for row in unpack_bits(each, number)], pa.list_(pa.int32())
            )
            for name, each in (("from", self.held.sources), ("to", self.held.targets))
        }
        known = {"edges": repr(self.edges), "mean_error": repr(self.mean_error)}
        table = pa.table({"height": self.held.heights, **sides}).replace_schema_metadata(known)
        return {EDGES: self.to_arrow(), RECTANGLES: table}

    @staticmethod
    def of_files(domain: Graph, tables: dict[str, pa.Table]) -> RectangleGraph:
        table = tables[RECTANGLES]
        members = np.zeros((2, table.num_rows, len(domain.vertices)), np.bool_)
        for side, name in enumerate(("from", "to")):
            for row, held in enumerate(table[name].to_pylist()):
                members[side, row, held] = True
        heights = table["height"].to_numpy()
        held = Rectangles(pack_bits(members[0]), pack_bits(members[1]), heights, np.empty(0))
        known = table.schema.metadata
        return RectangleGraph(domain, held, float(known[b"edges"]), float(known[b"mean_error"]))


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
    for group in workload.all_of(Cuts):
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
