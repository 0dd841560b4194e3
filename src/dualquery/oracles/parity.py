"""Parities: what can always be satisfied, and what linear algebra over two elements can satisfy.

A parity with a variable of its own is satisfiable, or breakable, whatever else happens, and is *peeled* off
by the presolve. Of the others, any set whose rows are independent over GF(2) can be satisfied at once:
elimination, heaviest clauses first, gives the best such set (a matroid's greedy), and the search starts
from its solution as well as from home.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.oracles.arrays import Flags, Ints, Longs
from dualquery.oracles.problem import Problem, grouped

BASIS = 2**21  # words of 64 coefficients that the elimination may keep
EFFORT = 2**25  # words that it may add up


@njit(cache=True)
def lone_parity(
    problem: Problem, struck: Flags, decided: NDArray[np.int8], literals_left: Ints, linear: Longs, v: int
) -> tuple[int, int, int]:
    """The parity that alone depends on v, if v has no preference besides; and v's choices that change it.

    Of these the first has the value 1 and so counts as odd, the second counts as even.
    """
    first_choice, first_use, use = problem.first_choice, problem.first_use, problem.use
    first_accepting, accepting = problem.first_accepting, problem.accepting
    clause, keeper = -1, -1
    for u in range(first_choice[v], first_choice[v + 1]):
        for i in range(first_accepting[u], first_accepting[u + 1]):
            p = accepting[i]
            for k in range(first_use[p], first_use[p + 1]):
                if decided[p] == 0 and literals_left[use[k] >> 1] > 1:
                    clause, keeper = use[k] >> 1, p
    if clause < problem.conjunctions:
        return -1, -1, -1
    inside, outside = -1, -1
    for u in range(first_choice[v], first_choice[v + 1]):
        if struck[u]:
            continue
        accepts = False
        for i in range(first_accepting[u], first_accepting[u + 1]):
            accepts |= accepting[i] == keeper
        rival = inside if accepts else outside
        if rival < 0 or linear[u] > linear[rival]:
            if accepts:
                inside = u
            else:
                outside = u
    if linear[inside] != linear[outside]:
        return -1, -1, -1
    return clause, inside, outside


@njit(cache=True)
def unpeel(problem: Problem, peeled: Ints, choice: Ints) -> None:
    """Satisfy, or break, the peeled parities one after the other, the last first."""
    first_choice, first_literal, literal = problem.first_choice, problem.first_literal, problem.literal
    for k in range(len(peeled) - 1, -1, -1):
        c, inside, outside = peeled[k]
        odd, own = False, -1
        for i in range(first_literal[c], first_literal[c + 1]):
            p = literal[i] >> 1
            v = problem.variable[p]
            if first_choice[v] <= inside < first_choice[v + 1]:
                own = v
                continue
            for a in range(problem.first_accepted[p], problem.first_accepted[p + 1]):
                odd ^= problem.accepted[a] == choice[v]
        choice[own] = inside if odd == (problem.weights[c] > 0) else outside


def heaviest_first(core: Problem) -> Ints:
    """The order of elimination: clause numbers, and after those the numbers of variables, by weight.

    A variable stands for what it prefers of its own: the difference of its first two linear terms.
    """
    second = core.first_choice[:-1] + 1
    own = core.linear[second] - core.linear[second - 1]
    return np.argsort(-np.abs(np.concatenate([core.weights, own])), kind="stable").astype(np.int32)


@njit(cache=True)
def eliminate(
    core: Problem, order: Ints, first_variable: Ints, component: Ints, settled: Flags, choice: Ints
) -> Flags:
    """In each component of parities alone, choices that satisfy an independent set of them; where.

    Every row of the basis owns its pivot, the lowest variable that it contains. A new row loses owned
    variables to their rows, in increasing order, until it has one that nobody owns; if it vanishes, its
    parity depends on those before and is passed over. Variables that remain without owner stay as they are.
    """
    first_choice, linear, weights = core.first_choice, core.linear, core.weights
    first_literal, literal, variable = core.first_literal, core.literal, core.variable
    components, clauses = len(first_variable) - 1, len(weights)
    pure = np.zeros(components, np.bool_)
    part_of = np.empty(len(choice), np.int32)  # variable → component
    for k in range(components):
        pure[k] = not settled[k]
        for v in range(first_variable[k], first_variable[k + 1]):
            part_of[v] = k
            pure[k] &= first_choice[v + 1] - first_choice[v] == 2
    for c in range(core.conjunctions):
        pure[component[c]] = False
    keys = np.empty(len(order), np.int32)
    for i in range(len(order)):
        keys[i] = component[order[i]] if order[i] < clauses else part_of[order[i] - clauses]
    first_row, place = grouped(keys, components)
    one = np.empty(len(choice), np.int32)  # variable → its choice that counts as odd
    for p in range(len(variable)):
        one[variable[p]] = core.accepted[core.first_accepted[p]]

    left = EFFORT
    for k in range(components):
        if not pure[k]:
            continue
        low = first_variable[k]
        size = first_variable[k + 1] - low
        words = (size + 63) // 64
        basis = np.empty((min(size, BASIS // words), words), np.uint64)
        wanted = np.zeros(len(basis), np.bool_)
        owner = np.zeros(size, np.int32)  # variable → the row whose pivot it is, plus 1
        rank = 0
        row = np.empty(words, np.uint64)
        for j in range(first_row[k], first_row[k + 1]):
            if rank == len(basis) or left < 0:
                break
            for w in range(words):
                row[w] = 0
            c = order[place[j]]
            if c < clauses:
                odd = weights[c] < 0
                for i in range(first_literal[c], first_literal[c + 1]):
                    x = variable[literal[i] >> 1] - low
                    row[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
            else:
                x = c - clauses - low
                other = first_choice[low + x] + first_choice[low + x + 1] - 1 - one[low + x]
                if linear[one[low + x]] == linear[other]:
                    continue
                odd = linear[one[low + x]] > linear[other]
                row[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
            x = 0
            while x < size:
                if row[x >> 6] == 0:
                    x = (x | 63) + 1
                elif (row[x >> 6] >> np.uint64(x & 63)) & np.uint64(1) == 0:
                    x += 1
                elif owner[x] > 0:
                    for w in range(x >> 6, words):
                        row[w] ^= basis[owner[x] - 1, w]
                    odd ^= wanted[owner[x] - 1]
                    left -= words
                else:
                    for w in range(words):
                        basis[rank, w] = row[w]
                    wanted[rank] = odd
                    rank += 1
                    owner[x] = rank
                    break
        for x in range(size - 1, -1, -1):
            if owner[x] == 0:
                continue
            odd = wanted[owner[x] - 1]
            for y in range(x + 1, size):
                if (basis[owner[x] - 1, y >> 6] >> np.uint64(y & 63)) & np.uint64(1) != 0:
                    odd ^= choice[low + y] == one[low + y]
            v = low + x
            choice[v] = (
                one[v] if odd else first_choice[v] + first_choice[v + 1] - 1 - one[v]
            )  # the other of two
    return pure
