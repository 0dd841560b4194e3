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
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.random_families import Stream, range_pairs
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.graph import Graph
from dualquery.types import Flags

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
    first = _set(domain, phrase, text)
    other = ~first
    if how == "from":
        phrase.word("to")
        other = _set(domain, phrase, text)
    phrase.end()
    return {"within": (first, first), "entering": (other, first)}.get(how, (first, other))


def _set(domain: Graph, phrase: Phrase, text: str) -> Flags:
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
