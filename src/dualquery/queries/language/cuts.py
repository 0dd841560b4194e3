"""Cut queries, and families of them.

edges from {region = North} to {region = South}     sets by what is public about vertices
edges leaving {a, b, c}                             from these to all others
edges entering {a .. c}                             from all others to those from a to c in the schema's order
edges within {everything}                           all of them

cuts:random:COUNT[:SEED]     from a random half of the vertices to the other half
cuts:ranges:COUNT[:SEED]     from a random range of the vertices, in their order, to another
cuts:ATTRIBUTE               from each value of a public attribute of the vertices to each
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualquery.errors import QueryError
from dualquery.queries.cuts import Cuts, cuts_of
from dualquery.queries.language.formula import Fault, Token, pointing_at, tokens_of
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.random_families import Stream, range_pairs
from dualquery.queries.workload import Workload, check_count
from dualquery.table.domain import Domain
from dualquery.table.graph import Graph
from dualquery.types import Flags

EXAMPLE = "edges from {a, b} to {c}, or edges leaving {region = North}"
_CONDITION = {"=", "!=", "<", ">", "<=", ">=", "&", "|", "!"}


def groups_of(domain: Domain, texts: Sequence[str], places: Sequence[str]) -> tuple[Cuts, ...]:
    """The cuts of some texts, in their order."""
    assert isinstance(domain, Graph)
    pairs = [_read(domain, text, place) for text, place in zip(texts, places, strict=True)]
    return (cuts_of(domain, np.stack([s for s, _ in pairs]), np.stack([t for _, t in pairs])),)


def example_of(domain: Domain) -> str:
    """A question that this graph can be asked."""
    assert isinstance(domain, Graph)
    members = np.zeros((1, len(domain.vertices)), np.bool_)
    members[0, :2] = True
    return cuts_of(domain, members, ~members).texts(np.zeros(1, np.int64))[0]


def family_of(domain: Domain, spec: str) -> Workload | None:
    """The workload of `cuts:…`, or None where the SPEC is something else."""
    assert isinstance(domain, Graph)
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


def _read(domain: Graph, text: str, place: str) -> tuple[Flags, Flags]:
    try:
        return _Parser(domain, text).cut()
    except Fault as fault:
        raise QueryError(pointing_at(text, fault.column, str(fault), place)) from None


class _Parser:
    """Reads one cut."""

    def __init__(self, domain: Graph, text: str) -> None:
        self._domain = domain
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0

    def cut(self) -> tuple[Flags, Flags]:
        self._word("edges")
        token = self._take("word")
        how = token.text.lower()
        if how not in ("from", "leaving", "entering", "within"):
            raise Fault(token.column, f"a question about edges reads like {EXAMPLE}")
        first = self._set()
        other = ~first
        if how == "from":
            self._word("to")
            other = self._set()
        self._sign("end")
        sides = {"from": (first, other), "leaving": (first, other), "entering": (other, first)}
        return sides.get(how, (first, first))

    def _set(self) -> Flags:
        opening = self._sign("{")
        inner: list[Token] = []
        depth = 1
        while depth:
            token = self._tokens[self._next]
            if token.kind == "end":
                raise Fault(opening.column, "this brace is not closed")
            depth += {"{": 1, "}": -1}.get(token.kind, 0)
            self._next += 1
            inner.append(token)
        closing = inner.pop()
        if not inner:
            raise Fault(closing.column, "this set is empty; name vertices, or a condition on them")
        if any(token.kind in _CONDITION or (token.kind, token.text) == ("word", "in") for token in inner):
            return self._condition(self._text[opening.column + 1 : closing.column], opening)
        return self._listed(inner)

    def _condition(self, text: str, opening: Token) -> Flags:
        """The vertices whose public attributes satisfy a formula."""
        domain, held = self._domain.attributes, self._domain.held
        if domain is None or held is None:
            raise Fault(opening.column, "the schema says nothing about vertices but their names; list them")
        query = Reader(domain).read(text, place="the set of vertices")
        (group,) = to_groups(domain, [query])
        rows, which = np.unique(held.to_rows(), axis=0, return_inverse=True)
        holds = np.zeros((len(rows), 1), np.int32)
        for row, answer in zip(rows, holds, strict=True):
            group.add_answers(row.astype(np.int32), answer)
        return np.asarray(holds[which.ravel(), 0] > 0)

    def _listed(self, tokens: list[Token]) -> Flags:
        members = np.zeros(len(self._domain.vertices), np.bool_)
        if len(tokens) == 1 and (tokens[0].kind, tokens[0].text.lower()) == ("word", "everything"):
            return ~members
        place = 0
        while place < len(tokens):
            first = last = self._vertex(tokens[place])
            if place + 2 < len(tokens) and (tokens[place + 1].kind, tokens[place + 1].text) == ("word", ".."):
                last = self._vertex(tokens[place + 2])
                place += 2
            if last < first:
                raise Fault(tokens[place].column, "this vertex stands before the first of its range")
            members[first : last + 1] = True
            place += 1
            if place < len(tokens) and tokens[place].kind != ",":
                raise Fault(tokens[place].column, "vertices are parted by commas")
            place += 1
        return members

    def _vertex(self, token: Token) -> int:
        if token.kind not in ("word", "quoted"):
            raise Fault(token.column, "the name of a vertex should stand here")
        place = self._domain.place.get(token.text)
        if place is None:
            raise Fault(token.column, f"'{token.text}' is not among the vertices that the schema declares")
        return place

    def _word(self, word: str) -> None:
        token = self._take("word")
        if token.text.lower() != word:
            raise Fault(token.column, f"a question about edges reads like {EXAMPLE}")

    def _sign(self, sign: str) -> Token:
        return self._take(sign)

    def _take(self, kind: str) -> Token:
        token = self._tokens[self._next]
        if token.kind != kind:
            raise Fault(token.column, f"a question about edges reads like {EXAMPLE}")
        self._next += 1
        return token
