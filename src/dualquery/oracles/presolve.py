"""What can be settled before any search, without losing the optimum, and the parts that are left.

*Dominance.* Whatever the other variables do, moving a variable from choice v to choice u gains at least
L(u) − H(v), where

    L(u) = linear[u] + Σ_{c, p ∋ u} min(0, ±w_c),      H(v) = linear[v] + Σ_{c, p ∋ v} max(0, ±w_c)

over the open clauses c that ask for a predicate p of the variable (± is the literal's sign; a parity may
go either way, ±|w_c|). A choice v with H(v) ≤ L(u) is struck out. A predicate that holds for all or for
none of the choices left is decided: its literals leave their clauses, false conjunctions disappear,
clauses of one literal become linear terms, which sharpens other bounds, and so on until nothing moves.

*Peeling.* A parity with a variable that nothing else depends on can be satisfied, or broken, whatever the
rest does: the clause is put aside and its variable is set at the very end.

*Components.* Two variables touch if an open clause names both. Parts that do not touch are maximised one by
one; one with few joint assignments is settled by looking at all of them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import njit
from dualquery.oracles.problem import Forward, Problem, complete, draw, grouped, rows_from, shift
from dualquery.types import Flags, Integers, Ints, Words

ENUMERABLE = 65_536  # joint assignments of a component that are all looked at
OPEN, TRUE, FALSE = 0, 1, 2


class Rest(NamedTuple):
    """What dominance and peeling leave standing."""

    struck: Flags  # choice → struck out
    choices_left: Ints  # variable → how many; 1 as well where the variable was peeled
    accepted_left: Ints  # predicate → how many of those it accepts
    decided: NDArray[np.int8]  # predicate → OPEN, TRUE or FALSE
    literals_left: Ints  # clause → open literals; below 2 where it is settled or linear
    odd: Flags  # clause → whether an odd number of its decided literals is true
    linear: Integers  # choice → sum of the linear terms
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


# Parities with a variable of their own


@njit(cache=True)
def lone_parity(
    problem: Problem, struck: Flags, decided: NDArray[np.int8], literals_left: Ints, linear: Integers, v: int
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


# What is left, in parts that do not touch


class Components(NamedTuple):
    """The problem that is left, numbered component by component, and the way back."""

    core: Problem
    first_variable: Ints  # component → its variables of the core
    variable: Ints  # variable of the core → variable of the problem
    choice: Ints  # choice of the core → choice of the problem
    component: Ints  # clause of the core → component


def split(problem: Problem, rest: Rest) -> Components:
    """The open clauses, over the choices that were not struck out."""
    forward, first_variable, variable, choice, component = _split(problem, rest)
    return Components(complete(forward), first_variable, variable, choice, component)


@njit(cache=True)
def _root(parent: Ints, v: int) -> int:
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True)
def _split(problem: Problem, rest: Rest) -> tuple[Forward, Ints, Ints, Ints, Ints]:
    """The open clauses over the choices left, variables numbered component by component."""
    struck, choices_left, decided = rest.struck, rest.choices_left, rest.decided
    literals_left, old_literal, old_variable = rest.literals_left, problem.literal, problem.variable
    old_first_choice, old_first_literal = problem.first_choice, problem.first_literal
    old_first_accepted, old_accepted = problem.first_accepted, problem.accepted
    variables = len(choices_left)
    parent = np.empty(variables, np.int32)
    for v in range(variables):
        parent[v] = v
    clauses, literals = 0, 0
    for c in range(len(problem.weights)):
        if literals_left[c] < 2:
            continue
        clauses += 1
        literals += literals_left[c]
        anchor = -1
        for i in range(old_first_literal[c], old_first_literal[c + 1]):
            p = old_literal[i] >> 1
            if decided[p] == OPEN:
                root = _root(parent, old_variable[p])
                if anchor >= 0:
                    parent[root] = anchor
                else:
                    anchor = root

    # Number the components by their first variables, then the variables by their components.
    numbered = np.zeros(variables, np.int32)  # root → component, plus 1
    sizes = np.zeros(variables, np.int32)
    components = 0
    for v in range(variables):
        if choices_left[v] > 1:
            root = _root(parent, v)
            if numbered[root] == 0:
                components += 1
                numbered[root] = components
            sizes[numbered[root] - 1] += 1
    first_variable = rows_from(sizes[:components])
    place = first_variable.copy()
    core_variable = np.empty(first_variable[-1], np.int32)
    for v in range(variables):
        if choices_left[v] > 1:
            at = numbered[_root(parent, v)] - 1
            core_variable[place[at]] = v
            place[at] += 1
    counts = np.empty(len(core_variable), np.int32)
    for v in range(len(core_variable)):
        counts[v] = choices_left[core_variable[v]]
    first_choice = rows_from(counts)
    core_choice = np.empty(first_choice[-1], np.int32)
    linear = np.empty(first_choice[-1], np.int64)
    core_home = np.empty(len(core_variable), np.int32)
    number = np.empty(len(problem.linear), np.int32)  # choice of the problem → choice of the core
    renamed = np.empty(variables, np.int32)  # variable of the problem → variable of the core
    at = 0
    for v in range(len(core_variable)):
        renamed[core_variable[v]] = v
        for u in range(old_first_choice[core_variable[v]], old_first_choice[core_variable[v] + 1]):
            if not struck[u]:
                core_choice[at], linear[at], number[u] = u, rest.linear[u], at
                at += 1
        core_home[v] = number[rest.choice[core_variable[v]]]

    weights = np.empty(clauses, np.int64)
    component = np.empty(clauses, np.int32)
    first_literal = np.zeros(clauses + 1, np.int32)
    literal = np.empty(literals, np.int32)
    used = np.zeros(len(old_variable), np.int32)  # predicate → predicate of the core, plus 1
    variable = np.empty(min(literals, len(used)), np.int32)
    lengths = np.empty(len(variable), np.int32)
    source = np.empty(len(variable), np.int32)
    clauses, literals, predicates, conjunctions = 0, 0, 0, 0
    for c in range(len(problem.weights)):
        if literals_left[c] < 2:
            continue
        for i in range(old_first_literal[c], old_first_literal[c + 1]):
            p = old_literal[i] >> 1
            if decided[p] != OPEN:
                continue
            if used[p] == 0:
                variable[predicates] = renamed[old_variable[p]]
                lengths[predicates] = rest.accepted_left[p]
                source[predicates] = p
                predicates += 1
                used[p] = predicates
            component[clauses] = numbered[_root(parent, old_variable[p])] - 1
            literal[literals] = 2 * (used[p] - 1) + (old_literal[i] & 1)
            literals += 1
        # w·[an odd number] = w − w·[an even number]
        weights[clauses] = (
            -problem.weights[c] if rest.odd[c] and c >= problem.conjunctions else problem.weights[c]
        )
        clauses += 1
        first_literal[clauses] = literals
        if c < problem.conjunctions:
            conjunctions = clauses
    first_accepted = rows_from(lengths[:predicates])
    accepted = np.empty(first_accepted[-1], np.int32)
    at = 0
    for p in range(predicates):
        for i in range(old_first_accepted[source[p]], old_first_accepted[source[p] + 1]):
            if not struck[old_accepted[i]]:
                accepted[at] = number[old_accepted[i]]
                at += 1
    forward = (
        conjunctions,
        first_choice,
        core_home,
        linear,
        weights,
        first_literal,
        literal,
        variable[:predicates],
        first_accepted,
        accepted,
    )
    return forward, first_variable, core_variable, core_choice, component


@njit(cache=True)
def enumerate_small(
    core: Problem, first_variable: Ints, component: Ints, chance: Words, choice: Ints
) -> Flags:
    """Set the choices of all components with few joint assignments to their best; which ones these are.

    Over the indicators of all choices but the first of each variable, the objective is a polynomial that is linear in
    each variable. Its coefficients are written into a table with a cell per assignment, and summed along one variable
    after another (a zeta transform), which leaves every assignment's value in its cell: variables × cells additions
    instead of clauses × cells. Ties go to the assignment nearest to home, and among those to chance.
    """
    first_choice, home, linear = core.first_choice, core.home, core.linear
    first_literal, literal, weights = core.first_literal, core.literal, core.weights
    variable, first_accepted, accepted = core.variable, core.first_accepted, core.accepted
    components = len(first_variable) - 1
    small = np.zeros(components, np.bool_)
    sizes = np.empty(components, np.int64)
    stride = np.empty(len(home), np.int64)
    for k in range(components):
        cells = np.int64(1)
        for v in range(first_variable[k], first_variable[k + 1]):
            stride[v] = cells
            cells = min(cells * (first_choice[v + 1] - first_choice[v]), np.int64(ENUMERABLE + 1))
        small[k] = cells <= ENUMERABLE
        sizes[k] = cells
    first_clause, clause = grouped(component, components)

    table = np.empty(ENUMERABLE, np.int64)
    cell = np.empty(ENUMERABLE, np.int64)  # the terms of one clause, expanded
    coefficient = np.empty(ENUMERABLE, np.int64)
    inside = np.zeros(len(linear), np.bool_)
    for k in range(components):
        if not small[k]:
            continue
        cells = sizes[k]
        for i in range(cells):
            table[i] = 0
        for v in range(first_variable[k], first_variable[k + 1]):
            for u in range(first_choice[v] + 1, first_choice[v + 1]):
                table[stride[v] * (u - first_choice[v])] += linear[u] - linear[first_choice[v]]
        for j in range(first_clause[k], first_clause[k + 1]):
            c = clause[j]
            cell[0], coefficient[0], terms = 0, weights[c], 1
            for i in range(first_literal[c], first_literal[c + 1]):
                # [x ∈ A] = constant + slope·Σ [x = u], over u ∈ A, or if A has the first choice over u ∉ A.
                p = literal[i] >> 1
                v = variable[p]
                for a in range(first_accepted[p], first_accepted[p + 1]):
                    inside[accepted[a]] = True
                has_first = inside[first_choice[v]]
                constant, slope = (1, -1) if has_first else (0, 1)
                if c >= core.conjunctions:
                    constant, slope = 1 - 2 * constant, -2 * slope  # a parity is (1 + Π (1 − 2·[x ∈ A])) / 2
                elif literal[i] & 1:
                    constant, slope = 1 - constant, -slope
                before = terms
                for u in range(first_choice[v] + 1, first_choice[v + 1]):
                    if inside[u] != has_first:
                        for t in range(before):
                            cell[terms] = cell[t] + stride[v] * (u - first_choice[v])
                            coefficient[terms] = coefficient[t] * slope
                            terms += 1
                for a in range(first_accepted[p], first_accepted[p + 1]):
                    inside[accepted[a]] = False
                if constant == 0:
                    terms -= before
                    for t in range(terms):
                        cell[t], coefficient[t] = cell[before + t], coefficient[before + t]
                elif constant < 0:
                    for t in range(before):
                        coefficient[t] = -coefficient[t]
            # Exact but for the constant term, which moves all cells.
            half = 2 if c >= core.conjunctions else 1
            for t in range(terms):
                table[cell[t]] += coefficient[t] // half
        for v in range(first_variable[k], first_variable[k + 1]):
            span = stride[v] * (first_choice[v + 1] - first_choice[v])
            for block in range(0, cells, span):
                for row in range(block + stride[v], block + span, stride[v]):
                    for i in range(stride[v]):
                        table[row + i] += table[block + i]

        best, nearest, ties = -1, 0, 1
        for i in range(cells):
            if best >= 0 and table[i] < table[best]:
                continue
            away = 0
            for v in range(first_variable[k], first_variable[k + 1]):
                span = first_choice[v + 1] - first_choice[v]
                away += first_choice[v] + (i // stride[v]) % span != home[v]
            if best < 0 or table[i] > table[best] or away < nearest:
                best, nearest, ties = i, away, 1
            elif away == nearest:
                ties += 1
                if draw(chance, ties) == 0:
                    best = i
        for v in range(first_variable[k], first_variable[k + 1]):
            choice[v] = first_choice[v] + (best // stride[v]) % (first_choice[v + 1] - first_choice[v])
    return small
