"""Clauses in the form in which they are searched: variables, their choices, and who depends on whom.

A predicate accepts a set of one variable's choices; a literal asks for it or for its negation, and since

    w · [x ∉ A] = w − w · [x ∈ A],

a negated literal is a sign wherever only differences count. Every relation is kept as a pair of flat
arrays (`first_x`, `x`): row i is x[first_x[i] : first_x[i + 1]].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualquery.compiled import njit
from dualquery.oracles.arrays import Ints, Longs, Words


class Problem(NamedTuple):
    """Maximise Σ_v linear[choice of v] + Σ_c weights[c]·[clause c holds] over one choice per variable.

    Clauses numbered below `conjunctions` hold where all their literals do, the others where an even number
    of them does. `home` is the choice of the record that the search starts from and returns to on ties.
    """

    conjunctions: int
    first_choice: Ints  # variable → its choices, numbered in a row
    home: Ints  # variable → choice
    linear: Longs  # choice → weight
    weights: Longs  # clause → weight
    first_literal: Ints
    literal: Ints  # clause → literals, 2·predicate + negated
    variable: Ints  # predicate → its variable
    first_accepted: Ints
    accepted: Ints  # predicate → choices that it accepts
    first_accepting: Ints
    accepting: Ints  # choice → predicates that accept it, increasing
    first_use: Ints
    use: Ints  # predicate → clauses that ask for it, 2·clause + negated


Forward = tuple[
    int,
    Ints,
    Ints,
    Longs,
    Longs,
    Ints,
    Ints,
    Ints,
    Ints,
    Ints,
]  # the fields of a problem up to `accepted`, which determine the others


def chance_from(rng: np.random.Generator) -> Words:
    """The state of the small generator that the kernels share, see `draw`."""
    return rng.integers(0, 2**64, size=1, dtype=np.uint64)


def complete(forward: Forward) -> Problem:
    """The problem with its relations in both directions."""
    _, _, _, linear, _, first_literal, literal, _, first_accepted, accepted = forward
    return Problem(*forward, *_backward(len(linear), first_literal, literal, first_accepted, accepted))


@njit(cache=True)
def draw(chance: Words, bound: int) -> np.int64:
    """A nearly uniform integer in [0, bound), bound < 2³²; `chance` holds the state (splitmix64)."""
    chance[0] += np.uint64(0x9E3779B97F4A7C15)
    z = chance[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64(((z >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True)
def differing(first_accepting: Ints, accepting: Ints, old: int, new: int, found: Ints) -> int:
    """List the predicates that accept one of two choices of a variable but not the other; how many."""
    i, j, count = first_accepting[old], first_accepting[new], 0
    last_i, last_j = first_accepting[old + 1], first_accepting[new + 1]
    while i < last_i or j < last_j:
        if j == last_j or (i < last_i and accepting[i] < accepting[j]):
            found[count] = accepting[i]
            i += 1
            count += 1
        elif i == last_i or accepting[j] < accepting[i]:
            found[count] = accepting[j]
            j += 1
            count += 1
        else:
            i += 1
            j += 1
    return count


@njit(cache=True)
def shift(table: Longs, first: Ints, accepted: Ints, p: int, by: int) -> None:
    """Add to the entries of all choices that predicate p accepts."""
    for i in range(first[p], first[p + 1]):
        table[accepted[i]] += by


@njit(cache=True)
def truths(problem: Problem, choice: Ints) -> tuple[Ints, Ints]:
    """For each predicate 1 where it accepts its variable's choice; for each clause 0 where it holds.

    The second counts the false literals of a conjunction, and the true ones of a parity modulo 2.
    """
    first_accepting, accepting = problem.first_accepting, problem.accepting
    first_literal, literal = problem.first_literal, problem.literal
    holds = np.zeros(len(problem.variable), np.int32)
    unmet = np.zeros(len(problem.weights), np.int32)
    for u in choice:
        for i in range(first_accepting[u], first_accepting[u + 1]):
            holds[accepting[i]] = 1
    for c in range(len(unmet)):
        for i in range(first_literal[c], first_literal[c + 1]):
            met = holds[literal[i] >> 1] != (literal[i] & 1)
            if c >= problem.conjunctions:
                unmet[c] ^= met
            else:
                unmet[c] += not met
    return holds, unmet


@njit(cache=True)
def return_home(problem: Problem, choice: Ints) -> np.int64:
    """Let variables go home, in place, as long as that costs nothing; the value of the result."""
    home, linear, weights = problem.home, problem.linear, problem.weights
    first_use, use, conjunctions = problem.first_use, problem.use, problem.conjunctions
    holds, unmet = truths(problem, choice)
    changed = np.empty(len(holds), np.int32)
    moved = True
    while moved:
        moved = False
        for v in range(len(home)):
            if choice[v] == home[v]:
                continue
            count = differing(problem.first_accepting, problem.accepting, choice[v], home[v], changed)
            gain = linear[home[v]] - linear[choice[v]]
            for i in range(count):
                p = changed[i]
                for k in range(first_use[p], first_use[p + 1]):
                    c = use[k] >> 1
                    if unmet[c] == 0:
                        gain -= weights[c]
                    elif unmet[c] == 1 and (c >= conjunctions or holds[p] == (use[k] & 1)):
                        gain += weights[c]
            if gain < 0:
                continue
            moved = True
            choice[v] = home[v]
            for i in range(count):
                p = changed[i]
                holds[p] ^= 1
                for k in range(first_use[p], first_use[p + 1]):
                    c = use[k] >> 1
                    if c >= conjunctions:
                        unmet[c] ^= 1
                    else:
                        unmet[c] += 1 if holds[p] == (use[k] & 1) else -1
    value = np.int64(0)
    for v in range(len(home)):
        value += linear[choice[v]]
    for c in range(len(weights)):
        if unmet[c] == 0:
            value += weights[c]
    return value


@njit(cache=True)
def rows_from(counts: Ints) -> Ints:
    """Where each row starts when rows have these lengths, and at the end the total."""
    first = np.empty(len(counts) + 1, np.int32)
    first[0] = 0
    for i in range(len(counts)):
        first[i + 1] = first[i] + counts[i]
    return first


@njit(cache=True)
def _backward(
    choices: int, first_literal: Ints, literal: Ints, first_accepted: Ints, accepted: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """The two relations read backwards: choice → predicates, and predicate → clauses."""
    predicates = len(first_accepted) - 1
    counts = np.zeros(choices, np.int32)
    for choice in accepted:
        counts[choice] += 1
    first_accepting = rows_from(counts)
    accepting = np.empty(len(accepted), np.int32)
    place = first_accepting.copy()
    for p in range(predicates):
        for i in range(first_accepted[p], first_accepted[p + 1]):
            accepting[place[accepted[i]]] = p
            place[accepted[i]] += 1
    counts = np.zeros(predicates, np.int32)
    for entry in literal:
        counts[entry >> 1] += 1
    first_use = rows_from(counts)
    use = np.empty(len(literal), np.int32)
    place = first_use.copy()
    for c in range(len(first_literal) - 1):
        for i in range(first_literal[c], first_literal[c + 1]):
            p = literal[i] >> 1
            use[place[p]] = 2 * c + (literal[i] & 1)
            place[p] += 1
    return first_accepting, accepting, first_use, use


@njit(cache=True)
def grouped(keys: Ints, groups: int) -> tuple[Ints, Ints]:
    """The places of each key, in order: a relation from keys to places."""
    counts = np.zeros(groups, np.int32)
    for key in keys:
        counts[key] += 1
    first = rows_from(counts)
    filled = first.copy()
    place = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        place[filled[keys[i]]] = i
        filled[keys[i]] += 1
    return first, place
