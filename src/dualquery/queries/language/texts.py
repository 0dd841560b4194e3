"""Products and parities in the words of the language, by the hundred thousand a second."""

from __future__ import annotations

import numpy as np

from dualquery.queries.group import ProductRows
from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.predicates import NONE
from dualquery.table.domain import Domain


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
