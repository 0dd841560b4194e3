"""Families of queries that are drawn: random conjunctions, random ranges, and questions of every kind.

The seed is public, and means the same queries on every machine: the raw stream of PCG64 is one that numpy promises
to keep, unlike the methods of its generators. Queries are kept as drawn: where one comes twice, it is asked twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualquery.errors import QueryError
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import NONE, Predicates, concatenated, equalities, equality_literal
from dualquery.queries.language import attribute_named, ranked_codes
from dualquery.queries.language.formula import Literal, Query, canonical
from dualquery.queries.views import Counted
from dualquery.queries.workload import Workload, check_count, check_order
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.types import Flags, Integers, Words

_LONGEST_LOOKUP = 1 << 22


class Stream:
    """Public chance that is the same on every machine and with every version of numpy."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise QueryError(f"the seed of a workload must not be negative, and {seed} is")
        self._bits = np.random.PCG64(seed)

    def below(self, bounds: NDArray[np.integer]) -> Integers:
        """Integers in [0, bound), uniform up to bound / 2^53."""
        raw: Words = self._bits.random_raw(bounds.size).reshape(bounds.shape)
        return ((raw >> np.uint64(11)) * 2.0**-53 * bounds).astype(np.int64)

    def coins(self, shape: tuple[int, ...]) -> Flags:
        words = -(-int(np.prod(shape)) // 64)
        raw: Words = self._bits.random_raw(words).astype("<u8")
        return np.unpackbits(raw.view(np.uint8), count=int(np.prod(shape))).reshape(shape).view(np.bool_)


def range_pairs(
    stream: Stream, steps: int, count: int, *, whole: bool
) -> tuple[Integers, Integers, Integers]:
    """Uniform pairs first <= last below `steps`: the distinct firsts and lasts, and the place of each draw.

    Without `whole`, the pair (0, steps − 1) is not drawn.
    """
    # Pair (first, last) has the number last·(last + 1)/2 + first.
    begins = np.arange(steps) * np.arange(1, steps + 1) // 2
    longest = int(begins[-1])
    pair = stream.below(np.full(count, longest + steps - (not whole)))
    if not whole:
        pair += pair >= longest
    distinct, which = np.unique(pair, return_inverse=True)
    last = np.searchsorted(begins, distinct, side="right") - 1
    return distinct - begins[last], last, which


class Urn:
    """Attributes drawn in proportion to integer weights, without replacement and without rejection.

    Attribute j owns `weight` integers in a row. A later draw is a number below what is left; it is
    pushed past the integers of each attribute already drawn that it has reached.
    """

    def __init__(self, weights: Integers) -> None:
        self._weights = weights
        self._ends = np.cumsum(weights)
        self._owner = (
            np.repeat(np.arange(len(weights), dtype=np.int32), weights)
            if self._ends[-1] <= _LONGEST_LOOKUP
            else None
        )

    def draw(self, stream: Stream, k: int, count: int) -> Integers:
        """k attributes for each of `count` queries, increasing: one column per query."""
        drawn = np.empty((k, count), np.int64)
        left = np.full(count, self._ends[-1])
        for i in range(k):
            ball = stream.below(left)
            for earlier in drawn[:i]:
                weight = self._weights[earlier]
                ball += np.where(ball >= self._ends[earlier] - weight, weight, 0)
            drawn[i] = (
                self._owner[ball] if self._owner is not None else np.searchsorted(self._ends, ball, "right")
            )
            left -= self._weights[drawn[i]]
            for j in range(i):  # keep the attributes sorted
                drawn[j], drawn[i] = np.minimum(drawn[j], drawn[i]), np.maximum(drawn[j], drawn[i])
        return drawn


MOST_RANGE_VALUES = 200_000_000
_CELLS_AT_ONCE = 1 << 22
_CHUNK = 1 << 17  # queries drawn at a time; part of what a seed means


def random_conjunctions(domain: Domain, k: int, count: int, seed: int = 0) -> Workload:
    """Conjunctions of k literals, as the program of the DualQuery papers drew them.

    First k attributes, uniform over all sets of k that can be asked about; then a value of each, uniform;
    then each literal is negated by the flip of a coin.
    """
    # Two balls an attribute, as a binary one has in `random_literals`: the two draw alike where all are binary.
    weights = np.where(domain.sizes > 1, 2, 0).astype(np.int64)
    group = _drawn_conjunctions(domain, k, count, seed, weights)
    return Workload(domain, (group,), f"random:{k}:{count}:{seed}")


def random_literals(domain: Domain, k: int, count: int, seed: int = 0) -> Workload:
    """Conjunctions of k literals, each uniform over the attribute-value pairs, whatever the attribute.

    A literal is drawn from all pairs of the attributes that the query does not have yet (so an attribute is
    drawn in proportion to its number of values), and negated by the flip of a coin. Attributes of many values
    are asked about more often than by `random_conjunctions`, and answers are nearer to 0 and 1.
    """
    weights = np.where(domain.sizes > 1, domain.sizes, 0).astype(np.int64)
    group = _drawn_conjunctions(domain, k, count, seed, weights)
    return Workload(domain, (group,), f"random-literals:{k}:{count}:{seed}")


def weighted_conjunctions(domain: Domain, k: int, count: int, seed: int, popularity: ArrayLike) -> Workload:
    """Conjunctions of k literals on attributes drawn in proportion to a *public* popularity.

    The value is uniform over the attribute's values, and the literal negated by the flip of a coin.
    """
    given = np.asarray(popularity, dtype=np.float64)
    if given.shape != (domain.width,):
        raise QueryError(f"the popularity needs one number for each of the {domain.width} attributes")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.any()):
        raise QueryError("the popularity must be finite, nowhere negative, and somewhere positive")
    # Integer weights make drawing without replacement exact; their sum stays below 2^53.
    scaled = np.ceil(given / given.max() * 2**32).astype(np.int64)
    group = _drawn_conjunctions(domain, k, count, seed, np.where(domain.sizes > 1, scaled, 0))
    return Workload(domain, (group,), f"weighted:{k}:{count}:{seed}")


def _drawn_conjunctions(domain: Domain, k: int, count: int, seed: int, weights: Integers) -> Conjunctions:
    check_order(domain, k, "conjunctions")
    check_count(count)
    eligible = int(np.count_nonzero(weights))
    if k > eligible:
        raise QueryError(
            f"conjunctions of {k} attributes cannot be drawn: only {eligible} can be asked about"
        )
    attributes = np.arange(domain.width, dtype=np.int32)
    predicates, first = equalities(domain, attributes)
    stream = Stream(seed)
    urn = Urn(weights)
    literals = np.empty((count, k), np.int32)
    for begin in range(0, count, _CHUNK):
        size = min(_CHUNK, count - begin)
        chosen = urn.draw(stream, k, size)
        sizes = domain.sizes[chosen]
        codes = stream.below(sizes)
        literal = equality_literal(first[chosen], sizes, codes) ^ stream.coins(chosen.shape)
        literals[begin : begin + size] = literal.T
    return Conjunctions(domain, predicates, literals)


def ranges(domain: Domain, attributes: str | Sequence[str], count: int, seed: int = 0) -> Workload:
    """Random ranges over an ordered attribute, or boxes over several.

    First and last are a uniform pair first <= last of the attribute's ranked values. The range of all
    values is not drawn where it would hold for every record.
    """
    names = [attributes] if isinstance(attributes, str) else list(attributes)
    check_count(count)
    numbers = sorted(_ordered_attribute(domain, name) for name in names)
    if not numbers or len(set(numbers)) < len(numbers):
        raise QueryError("a range needs at least one attribute, and each only once")
    stream = Stream(seed)
    tables: list[Predicates] = []
    columns: list[Integers] = []
    for attribute in numbers:
        predicates, literals = _drawn_ranges(domain, attribute, count, stream)
        columns.append(literals + 2 * sum(map(len, tables)))
        tables.append(predicates)
    group = Conjunctions(domain, concatenated(tables), np.column_stack(columns).astype(np.int32))
    return Workload(domain, (group,), f"ranges:{'*'.join(names)}:{count}:{seed}")


def _ordered_attribute(domain: Domain, name: str) -> int:
    attribute = attribute_named(domain, name)
    ranked = ranked_codes(domain.column_of(attribute)[1])
    if ranked is None:
        raise QueryError(f"attribute '{name}' has no order, so it has no ranges; declare it as ordered")
    if len(ranked) < 1 or domain.sizes[attribute] < 2:
        raise QueryError(f"attribute '{name}' has too few values for a range")
    return attribute


def _drawn_ranges(domain: Domain, attribute: int, count: int, stream: Stream) -> tuple[Predicates, Integers]:
    """The distinct ranges that were drawn, and the literal of each draw."""
    ranked = np.array(ranked_codes(domain.column_of(attribute)[1]), np.int64)
    size, steps = int(domain.sizes[attribute]), len(ranked)
    first, last, which = range_pairs(stream, steps, count, whole=steps < size)
    length = last - first + 1
    if np.minimum(length, size - length).sum() > MOST_RANGE_VALUES:
        raise QueryError(
            f"{count:,} ranges over the {size:,} values of '{domain.name(attribute)}' are too many"
        )
    negated = (2 * length > size) | ((2 * length == size) & (ranked[first] == 0))
    rank = np.full(size, NONE)
    rank[ranked] = np.arange(steps)
    values = []
    many = max(1, _CELLS_AT_ONCE // size)
    for begin in range(0, len(first), many):
        rows = slice(begin, begin + many)
        inside = ((rank >= first[rows, None]) & (rank <= last[rows, None])) ^ negated[rows, None]
        values.append(np.nonzero(inside)[1].astype(np.int32))
    predicates = Predicates(
        np.full(len(first), attribute, np.int32),
        np.concatenate([[0], np.cumsum(np.where(negated, size - length, length))]).astype(np.int64),
        np.concatenate(values),
    )
    return predicates, (2 * np.arange(len(first)) + negated)[which]


PREDICATES = 6  # at most, of an attribute


def mixed_questions(domain: Domain, attributes: Integers, orders: Integers, stream: Stream) -> Conjunctions:
    """Conjunctions about orders[q] of the attributes given, each of which has two values or more."""
    pairs: list[tuple[int, list[int]]] = []
    starts = [0]
    for attribute in attributes.tolist():
        pairs += [(attribute, each) for each in _accepted(int(domain.sizes[attribute]), stream)]
        starts.append(len(pairs))
    first, choices = np.array(starts[:-1]), np.diff(starts)
    most = int(orders.max())
    tickets = stream.below(np.full((len(orders), len(attributes)), 1 << 40))
    chosen = np.argsort(tickets, axis=1, kind="stable")[:, :most]
    predicate = first[chosen] + stream.below(choices[chosen])
    literals = 2 * predicate + stream.coins(predicate.shape)
    literals[np.arange(most) >= orders[:, None]] = NONE
    return Conjunctions(domain, Predicates.of(pairs), literals.astype(np.int32))


def hanging_questions(
    database: Database, child: str, orders: Integers, stream: Stream
) -> list[tuple[Query, tuple[Counted, ...]]]:
    """any, all, and two and more in turn, of such questions about a row of a child table."""
    own = database.width + np.flatnonzero(database.child(child).domain.sizes > 1)
    drawn = mixed_questions(database.view_domain(child), own, orders, stream)
    known, asked = drawn.predicates, list[tuple[Query, tuple[Counted, ...]]]()
    for place, literals in enumerate(drawn.literals.tolist()):
        held = [(each >> 1, bool(each & 1)) for each in literals if each != NONE]
        of_row = (Literal(int(known.attribute[p]), tuple(known.accepted(p).tolist()), no) for p, no in held)
        number = Counted.of(database, child, Query(tuple(sorted(of_row))))
        some = [Literal(database.width, (0,), True), Literal(database.width, (0,), False)]
        if (most := len(number.values)) > 2:
            some.append(Literal(database.width, *canonical((1 << most) - 4, most)))
        asked.append((Query((some[place % len(some)],)), (number,)))
    return asked


def _accepted(size: int, stream: Stream) -> list[list[int]]:
    """Values, ranges of codes and sets: proper subsets of the values, none of them empty."""
    if size == 2:
        return [[1]]
    values = stream.below(np.full(PREDICATES // 3, size)).tolist()
    ends = np.sort(stream.below(np.full((PREDICATES // 3, 2), size)), axis=1).tolist()
    sets = [np.flatnonzero(held).tolist() for held in stream.coins((PREDICATES // 3, size))]
    ranges = [list(range(low, high + 1)) for low, high in ends]
    return [[value] for value in values] + [each for each in (*ranges, *sets) if 0 < len(each) < size]
