"""Public rows, changed as little as it takes to make a question true of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.question import Question
from dualquery.table.domain import Domain

Rows = NDArray[np.uint32]


def changed_to_hold(rows: Rows, query: Query, domain: Domain, *, holds: bool) -> Rows:
    """The rows, changed so that the query holds for all of them, or for none."""
    rows = rows.copy()
    if query.parity:
        odd = rows[:, list(query.parity)].sum(axis=1) % 2 == 1
        wrong = odd if holds else ~odd
        first = query.parity[0]
        rows[wrong, first] = 1 - rows[wrong, first]
        return rows
    if holds != query.complement:  # every literal must hold
        for literal in query.literals:
            _make(rows, np.arange(len(rows)), literal, domain, True)
        return rows
    satisfied = np.all([_truth(rows, literal) for literal in query.literals], axis=0)
    for turn, literal in enumerate(query.literals):  # one must fail: they take turns
        mine = np.flatnonzero(satisfied & (np.arange(len(rows)) % len(query.literals) == turn))
        _make(rows, mine, literal, domain, False)
    return rows


def changed_to_lie_in(rows: Rows, table: Question, cells: NDArray[np.int64]) -> Rows:
    """Row i, moved into the cell cells[i] of a table."""
    rows = rows.copy()
    for j, codes in zip(table.members, np.unravel_index(cells, table.shape), strict=True):
        rows[:, j] = codes
    return rows


def _truth(rows: Rows, literal: Literal) -> NDArray[np.bool_]:
    return np.isin(rows[:, literal.attribute], literal.values) != literal.negated


def _make(rows: Rows, places: NDArray[np.intp], literal: Literal, domain: Domain, holds: bool) -> None:
    """Where a literal is not as it should be, one of the values that make it so, in turn."""
    size = int(domain.sizes[literal.attribute])
    accepted = np.isin(np.arange(size), literal.values) != literal.negated
    values = np.flatnonzero(accepted == holds)
    wrong = places[_truth(rows, literal)[places] != holds]
    rows[wrong, literal.attribute] = values[np.arange(len(wrong)) % len(values)]
