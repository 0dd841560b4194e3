"""What a presolve leaves, in parts that do not touch, and the best assignment of each small part.

Two variables touch if an open clause names both. Components are maximised one by one; one with few joint
assignments is settled by looking at all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualquery.compiled import njit
from dualquery.oracles.arrays import Flags, Ints, Words
from dualquery.oracles.presolve import OPEN, Rest
from dualquery.oracles.problem import Forward, Problem, complete, draw, grouped, rows_from

ENUMERABLE = 65_536  # joint assignments of a component that are all looked at


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
    struck, choices_left, decided, literals_left = (
        rest.struck,
        rest.choices_left,
        rest.decided,
        rest.literals_left,
    )
    old_first_choice, old_first_literal, old_literal = (
        problem.first_choice,
        problem.first_literal,
        problem.literal,
    )
    old_first_accepted, old_accepted, old_variable = (
        problem.first_accepted,
        problem.accepted,
        problem.variable,
    )
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

    Over the indicators of all choices but the first of each variable, the objective is a polynomial that
    is linear in each variable. Its coefficients are written into a table with a cell per assignment, and
    summed along one variable after another (a zeta transform), which leaves every assignment's value in
    its cell: variables × cells additions instead of clauses × cells. Ties go to the assignment nearest to
    home, and among those to chance.
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
            half = (
                2 if c >= core.conjunctions else 1
            )  # exact but for the constant term, which moves all cells
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
