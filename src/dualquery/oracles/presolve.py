"""Choices that can be settled before any search, without losing the optimum.

*Dominance.* Whatever the other variables do, moving a variable from choice v to choice u gains at least
L(u) − H(v), where

    L(u) = linear[u] + Σ_{c, p ∋ u} min(0, ±w_c),      H(v) = linear[v] + Σ_{c, p ∋ v} max(0, ±w_c)

over the open clauses c that ask for a predicate p of the variable (± is the literal's sign; a parity may
go either way, ±|w_c|). A choice v with H(v) ≤ L(u) is struck out. A predicate that holds for all or for
none of the choices left is decided: its literals leave their clauses, false conjunctions disappear,
clauses of one literal become linear terms, which sharpens other bounds, and so on until nothing moves.

*Peeling.* A parity with a variable that nothing else depends on can be satisfied, or broken, whatever the
rest does: the clause is put aside and its variable is set at the very end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.oracles.arrays import Flags, Ints, Longs, Words
from dualquery.oracles.parity import lone_parity
from dualquery.oracles.problem import Problem, draw, shift

OPEN, TRUE, FALSE = 0, 1, 2


class Rest(NamedTuple):
    """What dominance and peeling leave standing."""

    struck: Flags  # choice → struck out
    choices_left: Ints  # variable → how many; 1 as well where the variable was peeled
    accepted_left: Ints  # predicate → how many of those it accepts
    decided: NDArray[np.int8]  # predicate → OPEN, TRUE or FALSE
    literals_left: Ints  # clause → open literals; below 2 where it is settled or linear
    odd: Flags  # clause → whether an odd number of its decided literals is true
    linear: Longs  # choice → sum of the linear terms
    choice: Ints  # variable → its choice, as far as that is settled
    peeled: Ints  # rows of a clause, and its own variable's choices that are odd and even in it


@njit(cache=True)
def _swing(weight: int, literal: int, parity: bool) -> tuple[int, int]:
    """The least and the most that a clause adds when this literal's predicate becomes true."""
    if parity:
        return -abs(weight), abs(weight)
    signed = -weight if literal & 1 else weight
    return min(0, signed), max(0, signed)


@njit(cache=True)
def presolve(problem: Problem, chance: Words) -> Rest:
    """Dominance and peeling until nothing moves."""
    conjunctions, first_choice, home = problem.conjunctions, problem.first_choice, problem.home
    weights, first_literal, literal = problem.weights, problem.first_literal, problem.literal
    variable, first_accepted, accepted = problem.variable, problem.first_accepted, problem.accepted
    first_accepting, accepting = problem.first_accepting, problem.accepting
    first_use, use = problem.first_use, problem.use
    variables, predicates, clauses = len(home), len(variable), len(weights)

    struck = np.zeros(len(problem.linear), np.bool_)
    linear = problem.linear.copy()
    low = np.zeros(len(linear), np.int64)  # choice → L − linear
    high = np.zeros(len(linear), np.int64)  # choice → H − linear
    choices_left = np.empty(variables, np.int32)
    open_uses = np.zeros(variables, np.int32)  # variable → clauses with open literals besides its own
    accepted_left = np.empty(predicates, np.int32)
    decided = np.zeros(predicates, np.int8)
    literals_left = np.empty(clauses, np.int32)
    odd = np.zeros(clauses, np.bool_)
    peeled = np.empty((clauses - conjunctions, 3), np.int32)
    aside = 0

    queue = np.empty(variables, np.int32)  # variables whose bounds moved, a ring
    waiting = np.empty(variables, np.bool_)
    head, length = 0, variables
    deciding = np.empty(predicates, np.int32)  # predicates decided in this step
    releasing = np.empty(clauses, np.int32)  # clauses that no longer depend on two variables
    decisions, releases = 0, 0

    for v in range(variables):
        choices_left[v] = first_choice[v + 1] - first_choice[v]
        queue[v], waiting[v] = v, True
    for c in range(clauses):
        literals_left[c] = first_literal[c + 1] - first_literal[c]
        if literals_left[c] == 1:
            releasing[releases] = c
            releases += 1
        for i in range(first_literal[c], first_literal[c + 1]):
            p = literal[i] >> 1
            least, most = _swing(weights[c], literal[i], c >= conjunctions)
            shift(low, first_accepted, accepted, p, least)
            shift(high, first_accepted, accepted, p, most)
            open_uses[variable[p]] += 1
    for p in range(predicates):
        accepted_left[p] = first_accepted[p + 1] - first_accepted[p]
        if accepted_left[p] == 0:
            decided[p] = FALSE
            deciding[decisions] = p
            decisions += 1

    while True:
        # Literals of decided predicates leave their clauses. (No two of them share a clause, except among
        # the predicates that accept nothing, whose choices have no bounds to keep.)
        for k in range(decisions):
            p = deciding[k]
            for i in range(first_use[p], first_use[p + 1]):
                c = use[i] >> 1
                negated = use[i] & 1
                if literals_left[c] == 0:
                    continue
                literals_left[c] -= 1
                if literals_left[c] == 0:
                    continue  # a linear term, the same for every choice left
                least, most = _swing(weights[c], negated, c >= conjunctions)
                shift(low, first_accepted, accepted, p, -least)
                shift(high, first_accepted, accepted, p, -most)
                open_uses[variable[p]] -= 1
                met = (decided[p] == TRUE) != (negated == 1)
                odd[c] ^= met
                if c < conjunctions and not met:
                    literals_left[c] = 0
                if literals_left[c] < 2:
                    releasing[releases] = c
                    releases += 1
        decisions = 0

        # Clauses with one open literal become linear; those that are settled only leave the bounds.
        for k in range(releases):
            c = releasing[k]
            for i in range(first_literal[c], first_literal[c + 1]):
                p = literal[i] >> 1
                if decided[p] != OPEN:
                    continue
                v = variable[p]
                parity = c >= conjunctions
                least, most = _swing(weights[c], literal[i], parity)
                shift(low, first_accepted, accepted, p, -least)
                shift(high, first_accepted, accepted, p, -most)
                open_uses[v] -= 1
                if literals_left[c] == 1:
                    # A parity that is even so far becomes odd where its last literal is true.
                    turned = not odd[c] if parity else literal[i] & 1 == 1
                    shift(linear, first_accepted, accepted, p, -weights[c] if turned else weights[c])
                if not waiting[v]:
                    queue[(head + length) % variables] = v
                    length += 1
                    waiting[v] = True
        releases = 0

        if length == 0:
            break
        v = queue[head]
        head = (head + 1) % variables
        length -= 1
        waiting[v] = False
        if choices_left[v] == 1:
            continue

        # The choice with the best lower bound strikes out those whose upper bounds are no better.
        best, ties = -1, 1
        lowest, highest = np.int64(0), np.int64(0)
        for u in range(first_choice[v], first_choice[v + 1]):
            if struck[u]:
                continue
            least, most = linear[u] + low[u], linear[u] + high[u]
            if best < 0 or least > lowest or (least == lowest and most > highest):
                best, ties, lowest, highest = u, 1, least, most
            elif least == lowest and most == highest:
                ties += 1
                if u == home[v] or (best != home[v] and draw(chance, ties) == 0):
                    best = u
        before = choices_left[v]
        for u in range(first_choice[v], first_choice[v + 1]):
            if not struck[u] and u != best and linear[u] + high[u] <= lowest:
                struck[u] = True
                choices_left[v] -= 1
                for i in range(first_accepting[u], first_accepting[u + 1]):
                    p = accepting[i]
                    accepted_left[p] -= 1
                    if accepted_left[p] == 0:
                        decided[p] = FALSE
                        deciding[decisions] = p
                        decisions += 1
        if choices_left[v] < before:
            for i in range(first_accepting[best], first_accepting[best + 1]):
                p = accepting[i]
                if decided[p] == OPEN and accepted_left[p] == choices_left[v]:
                    decided[p] = TRUE
                    deciding[decisions] = p
                    decisions += 1
            queue[(head + length) % variables] = v  # what was decided has left its own bounds
            length += 1
            waiting[v] = True
            continue

        if open_uses[v] > 1 or conjunctions == clauses:
            continue
        c, inside, outside = lone_parity(problem, struck, decided, literals_left, linear, v)
        if c >= 0:
            peeled[aside, 0], peeled[aside, 1], peeled[aside, 2] = c, inside, outside
            aside += 1
            choices_left[v] = 1
            literals_left[c] = 0
            releasing[releases] = c
            releases += 1

    choice = home.copy()
    for v in range(variables):
        for u in range(first_choice[v], first_choice[v + 1]):
            if struck[choice[v]] and not struck[u]:
                choice[v] = u
    return Rest(
        struck, choices_left, accepted_left, decided, literals_left, odd, linear, choice, peeled[:aside]
    )
