"""The texts of all queries of a workload, by the hundred thousand a second."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.query import NONE
from dualquery.queries.workload import ProductRows, Workload

_AT_ONCE = 50_000


def query_texts(workload: Workload) -> Iterator[str]:
    """`workload.text(i)` for every i in turn; each condition is put into words once."""
    words: dict[int, str] = {}
    for first in range(0, workload.size, _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, workload.size), dtype=np.int64)
        yield from _some_texts(workload, workload.product_rows(numbers), words)


def _some_texts(workload: Workload, rows: ProductRows, words: dict[int, str]) -> list[str]:
    domain = workload.domain
    texts = [""] * (len(rows.positions) + len(rows.parity_positions))
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
