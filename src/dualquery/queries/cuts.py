"""Cuts: how much of a graph goes from one set of vertices to another.

A query is a pair of sets (S, T) of public vertices; it gives an edge (u, v) its weight where u ∈ S and v ∈ T, else 0.
In a graph without directions the edge counts where it goes from one set to the other either way, and once. Sets are
kept as bits, 64 vertices a word.

edges from {region = North} to {region = South}     sets by what is public about vertices
edges leaving {a, b, c}                             from these to all others
edges entering {a .. c}                             from all others to those from a to c in the schema's order
edges within {everything}                           all of them

cuts:random:COUNT[:SEED]     from a random half of the vertices to the other half
cuts:ranges:COUNT[:SEED]     from a random range of the vertices, in their order, to another
cuts:ATTRIBUTE               from each value of a public attribute of the vertices to each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.loops import njit
from dualquery.queries.group import Digest, NotProducts
from dualquery.queries.language import quoted_where_needed
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.random_families import Stream, range_pairs
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.graph import Graph
from dualquery.table.records import Records, pack_bits, unpack_bits
from dualquery.types import Flags, Integers, Words

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
        """Some cuts at a time, one byte per vertex: the number of the first, and both sets of each."""
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

    def take(self, indices: Integers) -> Cuts:
        return Cuts(self.domain, self.sources[indices], self.targets[indices])

    def describe(self, digest: Digest) -> None:
        digest.add_text("directed", str(self.domain.directed))
        digest.add("cuts from", self.sources.astype("<u8").tobytes(), self.sources.shape)
        digest.add("cuts to", self.targets.astype("<u8").tobytes(), self.targets.shape)

    def texts(self, indices: Integers) -> list[str]:
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


def cuts_of(domain: Graph, sources: Flags, targets: Flags) -> Cuts:
    return Cuts(domain, pack_bits(sources), pack_bits(targets))


def _name(name: str) -> str:
    return f"'{name}'" if name in ("everything", "..") else quoted_where_needed(name)


def _ones(weights: Integers | None) -> Integers:
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


EXAMPLE = "edges from {a, b} to {c}, or edges leaving {region = North}"
_CONDITION = {"=", "!=", "<", ">", "<=", ">=", "&", "|", "!"}


def groups_of(domain: Graph, texts: Sequence[str], places: Sequence[str]) -> tuple[Cuts, ...]:
    sources, targets = zip(*read_each(texts, places, lambda text: _read(domain, text)), strict=True)
    return (cuts_of(domain, np.stack(sources), np.stack(targets)),)


def example_of(domain: Graph) -> str:
    members = np.zeros((1, len(domain.vertices)), np.bool_)
    members[0, :2] = True
    return cuts_of(domain, members, ~members).texts(np.zeros(1, np.int64))[0]


def family_of(domain: Graph, spec: str) -> Workload | None:
    """The workload of `cuts:…`, or None where the SPEC is something else."""
    family, colon, rest = spec.partition(":")
    if not colon or family != "cuts":
        return None
    name, _, numbers = rest.partition(":")
    fields = numbers.split(":")
    if name in ("random", "ranges") and len(fields) in (1, 2) and all(each.isdecimal() for each in fields):
        count, seed = int(fields[0]), int(fields[1]) if fields[1:] else 0
        check_count(count)
        drawn = _random_halves if name == "random" else _ranges
        return Workload(domain, (drawn(domain, count, Stream(seed)),), spec)
    if domain.attributes is not None and domain.attributes.find(rest) is not None:
        return Workload(domain, (_by_attribute(domain, rest),), spec)
    raise QueryError(
        f"'{spec}' should read cuts:random:COUNT, cuts:ranges:COUNT or cuts:ATTRIBUTE, with a public attribute "
        "of the vertices"
    )


CUTS = Grammar(
    "cuts", "cuts:random:COUNT, cuts:ranges:COUNT, cuts:ATTRIBUTE", example_of, groups_of, family_of
)


def _random_halves(domain: Graph, count: int, stream: Stream) -> Cuts:
    number = len(domain.vertices)
    members = np.zeros((count, number), np.bool_)
    for row in members:
        tickets = stream.below(np.full(number, 1 << 31))
        row[np.argsort(tickets, kind="stable")[: number // 2]] = True
    return cuts_of(domain, members, ~members)


def _ranges(domain: Graph, count: int, stream: Stream) -> Cuts:
    number = len(domain.vertices)
    place, sides = np.arange(number), []
    for _ in range(2):
        first, last, which = range_pairs(stream, number, count, whole=False)
        first, last = first[which], last[which]
        sides.append((place >= first[:, None]) & (place <= last[:, None]))
    return cuts_of(domain, *sides)


def _by_attribute(domain: Graph, name: str) -> Cuts:
    assert domain.attributes is not None
    attribute = domain.attributes.find(name)
    assert attribute is not None
    assert domain.held is not None
    codes = domain.held.to_rows()[:, attribute]
    values = codes[None, :] == np.arange(int(domain.attributes.sizes[attribute]))[:, None]
    return cuts_of(domain, np.repeat(values, len(values), axis=0), np.tile(values, (len(values), 1)))


def _read(domain: Graph, text: str) -> tuple[Flags, Flags]:
    """The vertices that a cut goes from, and those that it goes to."""
    phrase = Phrase(text, f"a question about edges reads like {EXAMPLE}")
    phrase.word("edges")
    how = phrase.word("from", "leaving", "entering", "within")
    first = _vertices(domain, phrase, text)
    other = ~first
    if how == "from":
        phrase.word("to")
        other = _vertices(domain, phrase, text)
    phrase.end()
    return {"within": (first, first), "entering": (other, first)}.get(how, (first, other))


def _vertices(domain: Graph, phrase: Phrase, text: str) -> Flags:
    opening, depth = phrase.take("{"), 1
    inner: list[Token] = []
    while depth:
        token = phrase.take()
        if token.kind == "end":
            raise Fault(opening.column, "this brace is not closed")
        depth += {"{": 1, "}": -1}.get(token.kind, 0)
        inner.append(token)
    closing = inner.pop()
    if not inner:
        raise Fault(closing.column, "this set is empty; name vertices, or a condition on them")
    if any(token.kind in _CONDITION or (token.kind, token.text) == ("word", "in") for token in inner):
        return _condition(domain, text[opening.column + 1 : closing.column], opening)
    return _listed(domain, inner)


def _condition(graph: Graph, text: str, opening: Token) -> Flags:
    domain, held = graph.attributes, graph.held
    if domain is None or held is None:
        raise Fault(opening.column, "the schema says nothing about vertices but their names; list them")
    query = Reader(domain).read(text, place="the set of vertices")
    (group,) = to_groups(domain, [query])
    rows, which = np.unique(held.to_rows(), axis=0, return_inverse=True)
    holds = np.zeros((len(rows), 1), np.int32)
    for row, answer in zip(rows, holds, strict=True):
        group.add_answers(row.astype(np.int32), answer)
    return np.asarray(holds[which.ravel(), 0] > 0)


def _listed(domain: Graph, tokens: list[Token]) -> Flags:
    members = np.zeros(len(domain.vertices), np.bool_)
    if len(tokens) == 1 and (tokens[0].kind, tokens[0].text.lower()) == ("word", "everything"):
        return ~members
    place = 0
    while place < len(tokens):
        first = last = _vertex(domain, tokens[place])
        if place + 2 < len(tokens) and (tokens[place + 1].kind, tokens[place + 1].text) == ("word", ".."):
            last = _vertex(domain, tokens[place + 2])
            place += 2
        if last < first:
            raise Fault(tokens[place].column, "this vertex stands before the first of its range")
        members[first : last + 1] = True
        place += 1
        if place < len(tokens) and tokens[place].kind != ",":
            raise Fault(tokens[place].column, "vertices are parted by commas")
        place += 1
    return members


def _vertex(domain: Graph, token: Token) -> int:
    if token.kind not in ("word", "quoted"):
        raise Fault(token.column, "the name of a vertex should stand here")
    place = domain.place.get(token.text)
    if place is None:
        raise Fault(token.column, f"'{token.text}' is not among the vertices that the schema declares")
    return place
