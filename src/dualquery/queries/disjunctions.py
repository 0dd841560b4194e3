"""Disjunctions of binary attributes, x_1 | x_2 | … | x_k: families of them, and which attributes one is about.

1 − Π (1 − x_j): the complement of a product of negated literals, so that they are `Conjunctions` like any other.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.draws import Stream, Urn
from dualquery.queries.limits import check_count, check_order, number_of_sets_up_to
from dualquery.queries.predicates import NONE, equalities
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain


def disjunctions(domain: Domain, k: int, count: int | None = None, seed: int = 0) -> Workload:
    """All disjunctions of k binary attributes, or so many of them at random (as drawn: one may come twice)."""
    check_order(domain, k, "disjunctions")
    binary = np.flatnonzero(domain.sizes == 2).astype(np.int32)
    if len(binary) < k:
        raise QueryError(
            f"disjunctions of {k} need as many binary attributes, and the schema has {len(binary)}"
        )
    if count is None:
        check_count(number_of_sets_up_to(len(binary), k) - number_of_sets_up_to(len(binary), k - 1))
        members = np.array(list(combinations(range(len(binary)), k)), np.int32)
        spec = f"disjunctions:{k}"
    else:
        check_count(count)
        drawn = Urn(np.ones(len(binary), np.int64)).draw(Stream(seed), k, count)
        members = np.sort(drawn.T, axis=1).astype(np.int32)
        spec = f"disjunctions:{k}:{count}:{seed}"
    predicates, _ = equalities(domain, binary)  # one a binary attribute: `= 1`
    literals = (2 * members + 1).astype(np.int32)
    group = Conjunctions(domain, predicates, literals, np.ones(len(literals), np.bool_))
    return Workload(domain, (group,), spec)


def attributes_of_disjunctions(workload: Workload) -> NDArray[np.int32]:
    """Of a workload of disjunctions of binary attributes, `x_1 | … | x_k`, the attributes of each, padded with -1.

    A QueryError where a query is none. (A single attribute is a disjunction of one.)
    """
    rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
    plain = len(rows.parity_positions) == 0
    sizes = workload.domain.sizes[rows.predicates.attribute]
    ones = np.array(
        [rows.predicates.accepted(p).tolist() == [1] for p in range(len(rows.predicates))], np.bool_
    )
    fitting = np.append((sizes == 2) & ones, True)  # the last place is that of the padding
    numbers = np.where(rows.literals == NONE, NONE, rows.literals >> 1)
    padding = rows.literals == NONE
    # 1 − Π ¬x, or x alone
    negated = (rows.literals & 1 == 1) | padding
    alone = (~padding).sum(axis=1) == 1
    good = fitting[numbers].all(axis=1) & (
        (rows.complement & negated.all(axis=1))
        | (~rows.complement & alone & (~negated | padding).all(axis=1))
    )
    if not plain or not good.all():
        place = (
            int(rows.positions[np.flatnonzero(~good)[0]]) if not good.all() else int(rows.parity_positions[0])
        )
        raise QueryError(
            f"this mechanism plays disjunctions of binary attributes alone, and '{workload.text(place)}' is none; "
            "use another mechanism, or leave --mechanism out"
        )
    out = np.full((workload.size, max(1, rows.literals.shape[1])), NONE, np.int32)
    attributes = np.append(rows.predicates.attribute, np.int32(NONE))[numbers]
    out[rows.positions] = np.where(padding, NONE, attributes)
    return out
