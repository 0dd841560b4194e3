"""Clauses in the form in which they are searched: variables, their choices, and who depends on whom.

A predicate accepts a set of one variable's choices; a literal asks for it or for its negation, and since

    w · [x ∉ A] = w − w · [x ∈ A],

a negated literal is a sign wherever only differences count. Every relation is kept as a pair of flat
arrays (`first_x`, `x`): row i is x[first_x[i] : first_x[i + 1]].

Only what is touched stands in a problem, and only what differs. Attributes that a clause names become
*variables*, numbered from 0. Values of an attribute that no predicate in use tells apart become one *choice*,
so a range costs no more than its ends, and an attribute of 5,000 values of which ten are named has eleven
choices. Of the set of choices that a predicate accepts and its complement the smaller is kept, and the signs
of its literals are turned where it is the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualquery.loops import njit
from dualquery.oracles import Clauses, frozen
from dualquery.queries.group import NONE
from dualquery.types import Integers, Ints, Words


class Problem(NamedTuple):
    """Maximise Σ_v linear[choice of v] + Σ_c weights[c]·[clause c holds] over one choice per variable.

    Clauses numbered below `conjunctions` hold where all their literals do, the others where an even number
    of them does. `home` is the choice of the record that the search starts from and returns to on ties.
    """

    conjunctions: int
    first_choice: Ints  # variable → its choices, numbered in a row
    home: Ints  # variable → choice
    linear: Integers  # choice → weight
    weights: Integers  # clause → weight
    first_literal: Ints
    literal: Ints  # clause → literals, 2·predicate + negated
    variable: Ints  # predicate → its variable
    first_accepted: Ints
    accepted: Ints  # predicate → choices that it accepts
    first_accepting: Ints
    accepting: Ints  # choice → predicates that accept it, increasing
    first_use: Ints
    use: Ints  # predicate → clauses that ask for it, 2·clause + negated


# the fields of a problem up to `accepted`, which determine the others
Forward = tuple[int, Ints, Ints, Integers, Integers, Ints, Ints, Ints, Ints, Ints]


def chance_from(rng: np.random.Generator) -> Words:
    """The state of the small generator that the kernels share, see `draw`."""
    return rng.integers(0, 2**64, size=1, dtype=np.uint64)


def complete(forward: Forward) -> Problem:
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
def shift(table: Integers, first: Ints, accepted: Ints, p: int, by: int) -> None:
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
    predicate_start: Integers,
    predicate_values: Ints,
    conjunctions: Ints,
    weights: Integers,
    parities: Ints,
    parity_weights: Integers,
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
