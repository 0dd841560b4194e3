"""Cuts: how much of a graph goes from one set of vertices to another; and tables of edges.

A query is a pair of sets (S, T) of public vertices; it gives an edge (u, v) its weight where u ∈ S and v ∈ T, else 0.
In a graph without directions the edge counts where it goes from one set to the other either way, and once. Sets are
kept as bits, 64 vertices a word.

A coarsening puts every vertex into one class. The table of two coarsenings, one for each end, has a cell for each
pair of classes, and an edge adds its weight to one of them. Degrees are the table of (every vertex by itself, all
together), pairs that of (by itself, by itself).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.queries.countable import Bound
from dualquery.queries.group import (
    Digest,
    NotProducts,
)
from dualquery.queries.language.vocabulary import quoted_where_needed
from dualquery.table.graph import Graph
from dualquery.table.records import Records, pack_bits, unpack_bits
from dualquery.types import Integers, Words

MOST_WORK = 4e9  # multiplications for the exact incidence of cuts
AT_ONCE = 1 << 24  # vertices of all cuts that are unpacked at once


@dataclass(frozen=True, eq=False)
class Cuts(NotProducts):
    """Cut q goes from the vertices of row sources[q] to those of row targets[q]."""

    domain: Graph
    sources: Words
    targets: Words

    noun = "cuts"

    @property
    def size(self) -> int:
        return len(self.sources)

    @property
    def unit(self) -> int:
        return self.domain.heaviest

    def counts(self, records: Records) -> Integers:
        source, target, weights = self.domain.ends(records)
        out = np.zeros(self.size, np.int64)
        for first, from_, to in self.unpacked():
            last = first + len(from_)
            count_cuts(source, target, _ones(weights), from_, to, self.domain.directed, out[first:last])
        return out

    def given(self, records: Records) -> Integers:
        """What the only cut gives each of some public edges."""
        source, target, weights = self.domain.ends(records)
        ((_, (from_,), (to,)),) = self.unpacked()
        crosses = from_[source] & to[target]
        if not self.domain.directed:
            crosses |= to[source] & from_[target]
        return crosses * _ones(weights) if weights is not None else crosses.astype(np.int64)

    def changed(self, rows: Records, *, more: bool) -> Records:
        """Public edges, moved so that the only cut gives them all that it can, or nothing, if that can be."""
        ((_, (from_,), (to,)),) = self.unpacked()
        codes = rows.to_rows()
        here, there = (np.flatnonzero(each) for each in (from_, to))
        beside = np.flatnonzero(~(from_.astype(bool) & to.astype(bool)))
        if more and len(here) and len(there):
            codes[:, 0], codes[:, 1] = np.resize(here, len(codes)), np.resize(there, len(codes))
        elif not more and len(beside):
            codes[:, 0] = codes[:, 1] = np.resize(beside, len(codes))
        codes[:, 2:] = self.domain.heaviest if more else 0
        return Records.from_rows(self.domain, codes)

    def unpacked(self) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.uint8]]]:
        """Some cuts at a time, a byte a vertex: the number of the first, and both sets of each."""
        number = len(self.domain.vertices)
        step = max(1, AT_ONCE // number)
        for first in range(0, self.size, step):
            rows = slice(first, first + step)
            yield first, unpack_bits(self.sources[rows], number), unpack_bits(self.targets[rows], number)

    def most_satisfied(self) -> int:
        return self._incidence

    def most_differing(self) -> int:
        return min(self.size, 2 * self._incidence)

    @cached_property
    def _incidence(self) -> int:
        """The most cuts that one edge crosses: exact where the sets have few different members, else all of them."""
        from_, _ = _patterns(self.sources, len(self.domain.vertices))
        to, _ = _patterns(self.targets, len(self.domain.vertices))
        if float(len(from_)) * len(to) * self.size > MOST_WORK:
            return self.size
        crossed = from_.astype(np.float32) @ to.astype(np.float32).T
        if not self.domain.directed:
            return min(self.size, int(2 * crossed.max()))
        return int(crossed.max())

    def take(self, indices: NDArray[np.int64]) -> Cuts:
        return Cuts(self.domain, self.sources[indices], self.targets[indices])

    def describe(self, digest: Digest) -> None:
        digest.add_text("directed", str(self.domain.directed))
        digest.add("cuts from", self.sources.astype("<u8").tobytes(), self.sources.shape)
        digest.add("cuts to", self.targets.astype("<u8").tobytes(), self.targets.shape)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        number = len(self.domain.vertices)
        out = []
        for q in indices.tolist():
            from_, to = (unpack_bits(each[[q]], number)[0] for each in (self.sources, self.targets))
            if np.array_equal(to, 1 - from_):
                out.append(f"edges leaving {self._set(from_)}")
            else:
                out.append(f"edges from {self._set(from_)} to {self._set(to)}")
        return out

    def _set(self, members: NDArray[np.uint8]) -> str:
        held = np.flatnonzero(members)
        names = self.domain.vertices
        if len(held) == len(names):
            return "{everything}"
        if len(held) > 2 and held[-1] - held[0] == len(held) - 1:
            return "{" + f"{_name(names[held[0]])} .. {_name(names[held[-1]])}" + "}"
        return "{" + ", ".join(_name(names[i]) for i in held) + "}"


def cuts_of(domain: Graph, sources: NDArray[np.bool_], targets: NDArray[np.bool_]) -> Cuts:
    return Cuts(domain, pack_bits(sources), pack_bits(targets))


def _name(name: str) -> str:
    return f"'{name}'" if name in ("everything", "..") else quoted_where_needed(name)


def _ones(weights: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.empty(0, np.int64) if weights is None else weights


def _patterns(bits: Words, number: int) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """The ways in which vertices are members, one row per way, one column per set; and the way of each vertex."""
    members = np.packbits(unpack_bits(bits, number).T, axis=1)
    ways, which = np.unique(members, axis=0, return_inverse=True)
    return np.unpackbits(ways, axis=1, count=len(bits)), which.ravel()


@njit(cache=True)
def count_cuts(source, target, weights, from_, to, directed, out):  # type: ignore[no-untyped-def]
    """out[q] += what crosses cut q; no weights are ones."""
    plain = weights.shape[0] == 0
    for q in range(from_.shape[0]):
        s, t = from_[q], to[q]
        total = 0
        for e in range(source.shape[0]):
            crosses = s[source[e]] & t[target[e]]
            if not directed:
                crosses |= s[target[e]] & t[source[e]]
            if crosses:
                total += 1 if plain else weights[e]
        out[q] += total


@dataclass(frozen=True, eq=False)
class CoarseTable:
    """The classes of the vertices that edges leave, and of those that they enter."""

    source: Integers
    target: Integers
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def cells(self, source: Integers, target: Integers) -> Integers:
        return self.source[source] * self.shape[1] + self.target[target]


@dataclass(frozen=True, eq=False)
class LikelyPairs:
    """A cell for each of some pairs of vertices, and one for all others: of u with the first many[u] by `rank`."""

    many: Integers
    rank: Integers

    @property
    def starts(self) -> Integers:
        return np.concatenate([[0], np.cumsum(self.many)])

    @property
    def size(self) -> int:
        return int(self.many.sum()) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Integers, target: Integers) -> Integers:
        place = self.rank[target]
        return np.where(place < self.many[source], self.starts[source] + place, self.size - 1)

    def pairs(self) -> tuple[Integers, Integers]:
        source = np.repeat(np.arange(len(self.many)), self.many)
        place = np.arange(len(source)) - self.starts[source]
        return source, np.argsort(self.rank)[place]


def likely_pairs(leaving: NDArray[np.float64], entering: NDArray[np.float64], most: int) -> LikelyPairs:
    """About so many pairs with the largest leaving_u · entering_v: where edges are to be expected."""
    order = np.argsort(-entering, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if len(leaving) ** 2 <= most:
        return LikelyPairs(np.full(len(leaving), len(leaving)), rank)
    falling, low, high = -entering[order], 0.0, float(leaving.max() * entering.max()) + 1.0
    leaving = np.maximum(leaving, 1e-9)
    for _ in range(60):
        bound = (low + high) / 2
        few = np.searchsorted(falling, -bound / leaving, side="left").sum() <= most
        low, high = (low, bound) if few else (bound, high)
    return LikelyPairs(np.searchsorted(falling, -high / leaving, side="left").astype(np.int64), rank)


def degrees(number: int) -> tuple[CoarseTable, CoarseTable]:
    alone, together = np.arange(number), np.zeros(number, np.int64)
    return CoarseTable(alone, together, (number, 1)), CoarseTable(together, alone, (1, number))


@dataclass(frozen=True, eq=False)
class Blocks:
    """A cell for each pair of classes, and one for all loops: a loop is in no cut between a set and the rest."""

    classes: Integers
    number: int

    @property
    def size(self) -> int:
        return self.number**2 + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Integers, target: Integers) -> Integers:
        block = self.classes[source] * self.number + self.classes[target]
        return np.where(source == target, self.size - 1, block)


@dataclass(frozen=True, eq=False)
class CoarseEdges:
    """The cells of several such tables, one table behind the other, each times a whole number of its own."""

    domain: Graph
    tables: tuple[CoarseTable | LikelyPairs | Blocks, ...]
    multipliers: tuple[int, ...]

    def counts(self, records: Records) -> Integers:
        source, target, weights = self.domain.ends(records)
        parts = []
        for table, times in zip(self.tables, self.multipliers, strict=True):
            cell = table.cells(source, target)
            if weights is None:
                held = np.bincount(cell, minlength=table.size)
            else:
                held = np.zeros(table.size, np.int64)
                np.add.at(held, cell, weights)
            parts.append(times * held.astype(np.int64))
        return np.concatenate(parts)

    def bound(self) -> Bound:
        """An edge adds a weight of at most h to one cell of each table: m_t·h.

        Two edges differ in two cells of each table at most, 2·m_t·h in L1 and 2·(m_t·h)² in L2². (Of a table with a
        single cell the latter exceeds the truth.)
        """
        moved = [times * self.domain.heaviest for times in self.multipliers]
        l1, l2_squared = sum(moved), sum(each**2 for each in moved)
        return Bound((l1, l2_squared), (2 * l1, 2 * l2_squared))

    def split(self, numbers: Integers) -> list[NDArray[np.float64]]:
        ends = np.cumsum([0, *(table.size for table in self.tables)])
        return [
            numbers[a:b].reshape(table.shape) / times
            for a, b, table, times in zip(ends[:-1], ends[1:], self.tables, self.multipliers, strict=True)
        ]
