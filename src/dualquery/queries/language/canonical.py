"""One query in canonical form, as data: what the language reads and prints, and groups are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualquery.queries.group import NONE, ProductRows
from dualquery.queries.language import vocabulary
from dualquery.queries.language.vocabulary import attribute_text, condition_text
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
        """Whether a record (one code per attribute) satisfies the query."""
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


def texts_of(domain: Domain, rows: ProductRows) -> list[str]:
    """The text of each query, in the order in which they were asked for; each condition is put into words once."""
    texts = [""] * (len(rows.positions) + len(rows.parity_positions))
    words: dict[int, str] = {}
    # ¬Π f = some ¬f: in a complement every literal is flipped, and "or" joins them.
    flipped = np.where(
        rows.literals == NONE, np.int32(NONE), rows.literals ^ rows.complement[:, None].astype(np.int32)
    )
    for position, literals, complement in zip(
        rows.positions.tolist(), flipped.tolist(), rows.complement.tolist(), strict=True
    ):
        conditions = []
        for literal in literals:
            if literal == NONE:
                continue
            text = words.get(literal)
            if text is None:
                predicate, negated = divmod(literal, 2)
                values = tuple(rows.predicates.accepted(predicate).tolist())
                attribute = int(rows.predicates.attribute[predicate])
                text = words[literal] = Query((Literal(attribute, values, bool(negated)),)).text(domain)
            conditions.append(text)
        texts[position] = (" | " if complement else " & ").join(conditions)
    for position, attributes in zip(rows.parity_positions.tolist(), rows.parities.tolist(), strict=True):
        members = tuple(attribute for attribute in attributes if attribute != NONE)
        texts[position] = Query((), parity=members).text(domain)
    return texts
