"""From clauses over attributes to a problem over choices: only what is touched, and only what differs.

Attributes that a clause names become *variables*, numbered from 0. Values of an attribute that no
predicate in use tells apart become one *choice*, so a range costs no more than its ends, and an attribute
of 5,000 values of which ten are named has eleven choices. Of the set of choices that a predicate accepts
and its complement the smaller is kept, and the signs of its literals are turned where it is the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualquery.compiled import njit
from dualquery.oracles.arrays import Ints, Longs, Words
from dualquery.oracles.clauses import Clauses, frozen
from dualquery.oracles.problem import Forward, Problem, complete, draw, rows_from
from dualquery.queries.group import NONE


class Meaning(NamedTuple):
    """What variables and choices stand for in records."""

    attribute: Ints  # variable → attribute
    value: Ints  # choice → value: the fallback's where it has the choice, else any, at random


def compile_clauses(clauses: Clauses, fallback: Ints, chance: Words) -> tuple[Problem, Meaning]:
    """The problem that merged clauses pose, seen from the record `fallback`."""
    sizes, record = frozen(clauses.sizes, np.int32), frozen(fallback, np.int32)
    forward, meaning = _compile(sizes, *clauses.arrays(), record, chance)
    return complete(forward), meaning


@njit(cache=True)
def _code(values: Ints, place: int) -> int:
    """An accepted value: `place` -1 is the only value that the members of a parity accept, 1."""
    return 1 if place < 0 else values[place]


@njit(cache=True)
def _compile(
    sizes: Ints,
    predicate_attribute: Ints,
    predicate_start: Longs,
    predicate_values: Ints,
    conjunctions: Ints,
    weights: Longs,
    parities: Ints,
    parity_weights: Longs,
    fallback: Ints,
    chance: Words,
) -> tuple[Forward, Meaning]:
    entries = conjunctions.size + parities.size  # at most; the padding is not counted out
    clauses = len(conjunctions) + len(parities)

    # Number what is used, in order of appearance. The untouched pages of these three are never visited.
    variable_of = np.zeros(len(sizes), np.int32)  # attribute → variable, plus 1
    number_of = np.zeros(len(predicate_attribute), np.int32)  # predicate → number in use, plus 1
    is_one = np.zeros(len(sizes) if len(parities) else 0, np.int32)  # attribute → number of its "= 1", plus 1
    attribute = np.empty(entries, np.int32)
    variable = np.empty(entries, np.int32)
    first_code = np.empty(entries, np.int64)  # number in use → where `_code` finds its values
    last_code = np.empty(entries, np.int64)
    last_clause = np.zeros(entries, np.int32)  # variable → the last clause that named it, plus 1
    first_literal = np.zeros(clauses + 1, np.int32)
    literal = np.empty(entries, np.int32)
    variables, used, filled = 0, 0, 0
    for c in range(clauses):
        parity = c >= len(conjunctions)
        row = parities[c - len(conjunctions)] if parity else conjunctions[c]
        for entry in row:
            if entry == NONE:
                continue
            p = entry >> 1
            at = entry if parity else predicate_attribute[p]
            if variable_of[at] == 0:
                attribute[variables] = at
                variables += 1
                variable_of[at] = variables
            v = variable_of[at] - 1
            if last_clause[v] == c + 1:
                raise ValueError("a clause names an attribute twice")
            if parity and sizes[at] != 2:
                raise ValueError("a parity names an attribute that is not binary")
            last_clause[v] = c + 1
            number = is_one[at] if parity else number_of[p]
            if number == 0:
                variable[used] = v
                first_code[used] = -1 if parity else predicate_start[p]
                last_code[used] = 0 if parity else predicate_start[p + 1]
                used += 1
                number = used
                if parity:
                    is_one[at] = number
                else:
                    number_of[p] = number
            literal[filled] = 2 * (number - 1) + (0 if parity else entry & 1)
            filled += 1
        first_literal[c + 1] = filled
    attribute, variable, literal = attribute[:variables], variable[:used], literal[:filled]

    # Refine each variable's values, at first one class, by every predicate: a class that it accepts in
    # part is split. The classes of v are numbered from first_value[v], at most one a value.
    lengths = np.empty(variables, np.int32)
    for v in range(variables):
        lengths[v] = sizes[attribute[v]]
    first_value = rows_from(lengths)
    class_of = np.empty(first_value[-1], np.int32)
    members = np.zeros(first_value[-1], np.int32)
    hits = np.zeros(first_value[-1], np.int32)
    becomes = np.empty(first_value[-1], np.int32)
    touched = np.empty(first_value[-1], np.int32)
    classes = np.empty(variables, np.int32)
    for v in range(variables):
        classes[v] = 1
        for i in range(first_value[v], first_value[v + 1]):
            class_of[i] = first_value[v]
        members[first_value[v]] = first_value[v + 1] - first_value[v]
    for p in range(used):
        v = variable[p]
        count = 0
        for i in range(first_code[p], last_code[p]):
            old = class_of[first_value[v] + _code(predicate_values, i)]
            if hits[old] == 0:
                touched[count] = old
                count += 1
            hits[old] += 1
        for i in range(count):
            old = touched[i]
            becomes[old] = old
            if hits[old] < members[old]:
                becomes[old] = first_value[v] + classes[v]
                classes[v] += 1
                members[becomes[old]] = hits[old]
                members[old] -= hits[old]
            hits[old] = 0
        for i in range(first_code[p], last_code[p]):
            at = first_value[v] + _code(predicate_values, i)
            class_of[at] = becomes[class_of[at]]

    # The classes, without gaps, are the choices.
    first_choice = rows_from(classes)
    home = np.empty(variables, np.int32)
    value = np.empty(first_choice[-1], np.int32)
    seen = np.zeros(first_choice[-1], np.int32)
    for v in range(variables):
        for code in range(first_value[v + 1] - first_value[v]):
            choice = class_of[first_value[v] + code] - first_value[v] + first_choice[v]
            class_of[first_value[v] + code] = choice
            seen[choice] += 1
            if seen[choice] == 1 or draw(chance, seen[choice]) == 0:
                value[choice] = code
        home[v] = class_of[first_value[v] + fallback[attribute[v]]]
        value[home[v]] = fallback[attribute[v]]

    # Each predicate as a set of choices, or as the complement of one if that is smaller.
    seen_by = np.zeros(len(value), np.int32)  # choice → the last predicate that listed it, plus 1
    lengths = np.zeros(used, np.int32)
    turned = np.zeros(used, np.int32)
    for p in range(used):
        for i in range(first_code[p], last_code[p]):
            choice = class_of[first_value[variable[p]] + _code(predicate_values, i)]
            if seen_by[choice] != p + 1:
                seen_by[choice] = p + 1
                lengths[p] += 1
        if 2 * lengths[p] > classes[variable[p]]:
            lengths[p] = classes[variable[p]] - lengths[p]
            turned[p] = 1
    first_accepted = rows_from(lengths)
    accepted = np.empty(first_accepted[-1], np.int32)
    seen_by = np.zeros(len(value), np.int32)
    for p in range(used):
        v = variable[p]
        at = first_accepted[p]
        for i in range(first_code[p], last_code[p]):
            choice = class_of[first_value[v] + _code(predicate_values, i)]
            if seen_by[choice] != p + 1:
                seen_by[choice] = p + 1
                if turned[p] == 0:
                    accepted[at] = choice
                    at += 1
        if turned[p] == 1:
            for choice in range(first_choice[v], first_choice[v + 1]):
                if seen_by[choice] != p + 1:
                    accepted[at] = choice
                    at += 1
    for i in range(len(literal)):
        literal[i] ^= turned[literal[i] >> 1]
    all_weights = np.empty(clauses, np.int64)
    for c in range(clauses):
        all_weights[c] = weights[c] if c < len(weights) else parity_weights[c - len(weights)]

    forward = (
        len(conjunctions),
        first_choice,
        home,
        np.zeros(len(value), np.int64),
        all_weights,
        first_literal,
        literal,
        variable,
        first_accepted,
        accepted,
    )
    return forward, Meaning(attribute, value)
