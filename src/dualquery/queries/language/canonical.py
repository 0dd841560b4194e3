"""One query in canonical form, as data: what the language reads and prints, and groups are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.language import vocabulary
from dualquery.queries.language.wording import attribute_text, condition_text
from dualquery.queries.query import NONE, Conjunctions, Group, Parities, Predicates, negative, positive
from dualquery.table.domain import Domain


class Literal(NamedTuple):
    """[x_attribute ∈ values], or its negation. `values` are codes, increasing."""

    attribute: int
    values: tuple[int, ...]
    negated: bool


@dataclass(frozen=True)
class Query:
    """Π literals, its complement, or the parity of some binary attributes: 1 where an even number is 1.

    Canonical: one literal an attribute, by increasing attribute; of a predicate and its negation the
    shorter is stored; a product of one literal is never complemented.
    """

    literals: tuple[Literal, ...]
    complement: bool = False
    parity: tuple[int, ...] = ()

    def holds(self, record: Sequence[int]) -> bool:
        """Whether a record (one code an attribute) satisfies the query."""
        if self.parity:
            return sum(record[j] for j in self.parity) % 2 == 0
        return (
            all((record[j] in values) != negated for j, values, negated in self.literals) != self.complement
        )

    def text(self, domain: Domain) -> str:
        """The query in the language; `parse` reads it back as the same query."""
        if self.parity:
            return f"parity({', '.join(attribute_text(domain, j) for j in self.parity)})"
        conditions = []
        for attribute, values, negated in self.literals:
            accepted = vocabulary.bit_set(values)
            if negated != self.complement:  # ¬Π f = some ¬f
                accepted ^= vocabulary.everything(domain.column_of(attribute)[1])
            conditions.append(condition_text(domain, attribute, accepted))
        return (" | " if self.complement else " & ").join(conditions)


def canonical(accepted: int, size: int) -> tuple[tuple[int, ...], bool]:
    """The codes of a predicate and whether the literal negates it: of the two the shorter.

    Of two equally long, the one without code 0; so `= 0` of a binary attribute is the negated `= 1`.
    """
    count = accepted.bit_count()
    negated = 2 * count > size or (2 * count == size and bool(accepted & 1))
    return tuple(vocabulary.codes_in(accepted ^ ((1 << size) - 1) if negated else accepted)), negated


def to_groups(domain: Domain, queries: Iterable[Query]) -> tuple[Group, ...]:
    """The same queries as groups, in the same order: neighbours of one kind share a group."""
    groups: list[Group] = []
    for is_parity, run in groupby(queries, key=lambda query: bool(query.parity)):
        if is_parity:
            rows = [query.parity for query in run]
            groups.append(Parities(domain, _padded(rows)))
        else:
            groups.append(_conjunctions(domain, list(run)))
    return tuple(groups)


def _conjunctions(domain: Domain, queries: list[Query]) -> Conjunctions:
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    rows: list[tuple[int, ...]] = []
    for query in queries:
        row = []
        for attribute, values, negated in query.literals:
            number = numbers.setdefault((attribute, values), len(numbers))
            row.append(negative(number) if negated else positive(number))
        rows.append(tuple(row))
    complement = np.array([query.complement for query in queries])
    return Conjunctions(
        domain, Predicates.of(list(numbers)), _padded(rows), complement if complement.any() else None
    )


def _padded(rows: list[tuple[int, ...]]) -> NDArray[np.int32]:
    lengths = np.array([len(row) for row in rows])
    out = np.full((len(rows), int(lengths.max())), NONE, np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = [number for row in rows for number in row]
    return out
