"""The basis functions that a disjunction over blocks of attributes is made of, and which are 1 on a query.

With blocks B_1, …, B_b a basis function is a product over at most t blocks of disjunctions of subsets,

    φ(y) = Π_{j ∈ J} [A_j ∩ y ≠ ∅],        ∅ ≠ A_j ⊆ B_j,  |J| ≤ t,

y the attributes of a query. Blocks of one attribute make it a monomial. Functions are numbered as they are met.
"""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from dualquery.distributions.signed_monomials import BasisIncidence
from dualquery.errors import QueryError
from dualquery.queries.predicates import NONE

MOST_PLACES = 50_000_000  # in all: how many functions are 1 on a query, summed over queries
MOST_FUNCTIONS = 20_000_000


def number_of_functions(attributes: int, blocks: int, degree: int) -> int:
    """Of b blocks of at most s attributes: Σ_j C(b, j) (2^s − 1)^j."""
    subsets = (1 << -(-attributes // blocks)) - 1
    return sum(comb(blocks, j) * subsets**j for j in range(1, degree + 1))


def check_basis(attributes: int, blocks: int, degree: int) -> None:
    """Refuse a basis that cannot be held, before anything is made."""
    if not 1 <= blocks <= attributes:
        raise QueryError(f"--blocks lies between 1 and the {attributes} attributes, and {blocks} does not")
    number = number_of_functions(attributes, blocks, degree)
    if number > MOST_FUNCTIONS:
        raise QueryError(
            f"a basis of degree {degree} over {blocks} blocks has {number:,} functions, more than "
            f"{MOST_FUNCTIONS:,}; use more blocks, a smaller --degree or fewer attributes"
        )


def incidence_of(queries: NDArray[np.int32], blocks: int, degree: int) -> BasisIncidence:
    """Which functions are 1 on each query; `queries` are rows of attributes, padded with -1."""
    used = np.unique(queries[queries != NONE])
    block_of = {int(j): place * blocks // len(used) for place, j in enumerate(used)}
    inside: dict[int, list[int]] = {}
    for j, block in block_of.items():
        inside.setdefault(block, []).append(j)
    subsets = {block: _subsets(members) for block, members in inside.items()}
    numbers: dict[tuple[int, ...], int] = {}
    start, places = [0], []
    for row in queries.tolist():
        asked = frozenset(j for j in row if j != NONE)
        touched = sorted({block_of[j] for j in asked})
        hit = {b: [key for key, members in subsets[b] if members & asked] for b in touched}
        for order in range(1, min(degree, len(touched)) + 1):
            for chosen in combinations(touched, order):
                for key in product(*(hit[b] for b in chosen)):
                    places.append(numbers.setdefault(key, len(numbers)))
        start.append(len(places))
        if len(places) > MOST_PLACES:
            raise QueryError(
                f"the queries meet more than {MOST_PLACES:,} basis functions; use more blocks or ask fewer queries"
            )
    return BasisIncidence(len(numbers), np.array(start, np.int64), np.array(places, np.int64))


def _subsets(members: list[int]) -> list[tuple[int, frozenset[int]]]:
    """Every subset of a block but the empty one, with a number that no other block's has."""
    found = []
    for mask in range(1, 1 << len(members)):
        chosen = frozenset(j for i, j in enumerate(members) if mask >> i & 1)
        found.append((members[0] << 32 | mask, chosen))
    return found
