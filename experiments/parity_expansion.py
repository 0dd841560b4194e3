"""Marginals from parities (Barak et al. 2007; Theorem A.2 of the 2014 version of Dual Query).

With p_T(x) = +1 where an even number of the attributes in T is 1, and −1 otherwise, the cell of a table over
binary attributes S in which x_j = v_j for every j ∈ S is

    [x_S = v] = 2^−|S| Σ_{T ⊆ S} Π_{j ∈ T} s_j · p_T(x),      s_j = +1 if v_j = 0, else −1,

because [x_j = v_j] = (1 + s_j · p_{j}(x)) / 2 and parities multiply. The coefficients have absolute sum 1, so
parities answered within α answer every cell within α. (The theorem as printed leaves out the signs s_j, which
its convention x ∈ {−1, +1} hides.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from dualquery.errors import QueryError


def cell_from_parities(
    even: Mapping[tuple[int, ...], float], attributes: Sequence[int], values: Sequence[int]
) -> float:
    """The fraction of records with these values, from fractions of records that are even on each set.

    `even` maps an increasing tuple of attributes to the fraction of records with an even number of ones
    there; p_T is twice that less one. The empty set is even in every record.
    """
    wanted = sorted(zip(attributes, values, strict=True))
    total = 1.0
    for size in range(1, len(wanted) + 1):
        for subset in combinations(wanted, size):
            members = tuple(attribute for attribute, _ in subset)
            if members not in even:
                raise QueryError(
                    "the parities of every subset are needed; release `parities:K` with a larger K"
                )
            sign = -1 if sum(value for _, value in subset) % 2 else 1
            total += sign * (2 * even[members] - 1)
    return total / 2 ** len(wanted)
