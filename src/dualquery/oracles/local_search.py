"""The data player's oracle: a record that answers weighted clauses well, in milliseconds.

Merge, presolve, split into components, look at all assignments of the small ones and search the others,
then let every attribute return to the fallback record where that costs nothing.

Tabu search after Glover (1989) and, for many values a variable, Galinier and Hao (1999): always make the best move,
even a bad one, but do not return to a choice for a while after leaving it, unless that beats the best assignment
seen; after a stretch without success, make a few moves at random. A table keeps what every choice would add,

    score[u] = linear[u] + Σ ±w_c   over clauses c with a literal that accepts u and all others true

(for a parity ±w_c always), so a move is found by a scan and costs the clauses that it makes or breaks.

Parities are linear over two elements: any set of them whose rows are independent over GF(2) can be satisfied at
once. Elimination, heaviest clauses first, gives the best such set (a matroid's greedy), and the search starts from
its solution as well as from home.
"""

from __future__ import annotations

import numpy as np

from dualquery.loops import njit
from dualquery.oracles import Clauses, Response, merge
from dualquery.oracles.presolve import Components, enumerate_small, presolve, split, unpeel
from dualquery.oracles.problem import (
    Problem,
    chance_from,
    compile_clauses,
    differing,
    draw,
    grouped,
    return_home,
    shift,
    truths,
)
from dualquery.types import Flags, Integers, Ints, Words

BLOCK = 128  # variables whose best moves are kept as one maximum, so that a scan skips most of them
LONGEST = 200  # flips that a choice stays forbidden, before chance adds up to half as many
NOWHERE = -(2**62)  # below every gain
BASIS = 2**21  # words of 64 coefficients that the elimination may keep
EFFORT = 2**25  # words that it may add up


def best_response(
    clauses: Clauses, fallback: Ints, *, rng: np.random.Generator, flips: int = 10_000
) -> Response:
    """A record x with a large Σ_c w_c · q_c(x).

    `fallback` is the public record that the search starts from: attributes that no clause names keep its
    value, and of two values that score alike, its is taken, or else one at random. `flips` bounds the moves
    of the tabu search, all components together; easy problems use fewer.
    """
    clauses = merge(clauses)
    chance = chance_from(rng)
    problem, meaning = compile_clauses(clauses, fallback, chance)
    rest = presolve(problem, chance)
    parts = split(problem, rest)
    settled, best = _maximise(parts, flips, chance)
    choice = rest.choice
    choice[parts.variable] = parts.choice[best]
    if len(rest.peeled) > 0:
        unpeel(problem, rest.peeled, choice)
    value = int(return_home(problem, choice))
    record = np.array(fallback, np.int32)
    record[meaning.attribute] = meaning.value[choice]
    return Response(record, value, value if settled.all() else clauses.ceiling)


def _maximise(parts: Components, flips: int, chance: Words) -> tuple[Flags, Ints]:
    """Which components have a proven best assignment, and the best known choice of each variable."""
    core, first_variable, component = parts.core, parts.first_variable, parts.component
    choice = core.home.copy()
    settled = enumerate_small(core, first_variable, component, chance, choice)
    if settled.all():
        return settled, choice
    rival = choice.copy()
    worth, most = search(core, first_variable, component, settled, flips, chance, choice)
    if core.conjunctions < len(core.weights):
        pure = eliminate(core, heaviest_first(core), first_variable, component, settled, rival)
        # skipped components keep the worth of their start, which is never better
        rival_worth, _ = search(core, first_variable, component, ~pure, flips, chance, rival)
        better = np.repeat(pure & (rival_worth > worth), np.diff(first_variable))
        choice[better] = rival[better]
        worth = np.maximum(worth, rival_worth)
    return settled | (worth == most), choice


@njit(cache=True)
def _mark(listed: Ints, is_listed: Flags, count: int, item: int) -> int:
    """Put an item on a list, once; the length of the list."""
    if not is_listed[item]:
        is_listed[item] = True
        listed[count] = item
        count += 1
    return count


@njit(cache=True)
def _random_peak(values: Integers, chance: Words) -> int:
    most = np.int64(NOWHERE)
    for i in range(len(values)):  # two scans without branches, which compile to vector instructions
        most = max(most, values[i])
    count = 0
    for i in range(len(values)):
        count += values[i] == most
    pick = draw(chance, count)
    place = -1
    while pick >= 0:
        place += 1
        pick -= values[place] == most
    return place


@njit(cache=True)
def search(
    core: Problem,
    first_variable: Ints,
    component: Ints,
    skipped: Flags,
    flips: int,
    chance: Words,
    choice: Ints,
) -> tuple[Integers, Integers]:
    """Tabu search in the components that are not skipped, from `choice`, which is improved in place.

    Returns what each component is worth in the end, and a bound that no assignment exceeds.
    """
    conjunctions, first_choice, linear, weights = (
        core.conjunctions,
        core.first_choice,
        core.linear,
        core.weights,
    )
    first_literal, literal, variable = core.first_literal, core.literal, core.variable
    first_accepted, accepted = core.first_accepted, core.accepted
    first_use, use = core.first_use, core.use

    current = choice.copy()
    holds, unmet = truths(core, current)
    score = linear.copy()
    worth = np.zeros(len(skipped), np.int64)
    bound = np.zeros(len(skipped), np.int64)
    owner = np.empty(len(linear), np.int32)  # choice → variable
    searched = 0
    for k in range(len(skipped)):
        searched += 0 if skipped[k] else first_variable[k + 1] - first_variable[k]
        for v in range(first_variable[k], first_variable[k + 1]):
            most = linear[current[v]]
            worth[k] += most
            for u in range(first_choice[v], first_choice[v + 1]):
                most = max(most, linear[u])
                owner[u] = v
            bound[k] += most
    for c in range(len(weights)):
        worth[component[c]] += weights[c] if unmet[c] == 0 else 0
        bound[component[c]] += max(0, weights[c])
        for i in range(first_literal[c], first_literal[c + 1]):
            true = holds[literal[i] >> 1]
            if c >= conjunctions:  # odd besides this literal: even with it
                weight = weights[c] if unmet[c] != true else -weights[c]
            elif unmet[c] == (true == (literal[i] & 1)):
                weight = -weights[c] if literal[i] & 1 else weights[c]
            else:
                continue
            shift(score, first_accepted, accepted, literal[i] >> 1, weight)

    forbidden = np.zeros(len(linear), np.int64)  # choice → the flip before which it is not taken again
    held = np.empty(LONGEST + LONGEST // 2 + 1, np.int32)  # the choices forbidden at present
    lead = np.empty(len(current), np.int64)  # variable → the most that one of its other, free choices gains
    stale = np.empty(len(current), np.int32)  # variables whose lead must be found anew
    is_stale = np.zeros(len(current), np.bool_)
    peak = np.empty(len(current) // BLOCK + 1, np.int64)  # the largest of each BLOCK leads
    block = np.empty(len(peak), np.int32)  # those that must be found anew
    is_block = np.zeros(len(peak), np.bool_)
    moved = np.empty(2 * searched + flips, np.int32)  # variables that moved since the best assignment
    changed = np.empty(len(holds), np.int32)
    for k in range(len(skipped)):
        if skipped[k]:
            continue
        low, high = first_variable[k], first_variable[k + 1]
        size = high - low
        leads, peaks = lead[low:high], peak[: (size + BLOCK - 1) // BLOCK]
        moves = first_choice[high] - first_choice[low] - size
        tenure = min(LONGEST, 5 + moves // 16)
        allowed = 2 * size + flips * size // searched  # the first term for the descent
        patience = 1000 + 10 * size
        value, flip, last = worth[k], 0, 0
        holding, stales, blocks, unsaved, shakes, shake_at = 0, 0, 0, 0, 0, 200 + size
        for v in range(low, high):
            stales = _mark(stale, is_stale, stales, v)
        while flip < allowed and flip - last <= patience and worth[k] < bound[k]:
            i = 0
            while i < holding:
                if forbidden[held[i]] > flip:
                    i += 1
                    continue
                stales = _mark(stale, is_stale, stales, owner[held[i]])
                holding -= 1
                held[i] = held[holding]
            for i in range(stales):
                v = stale[i]
                is_stale[v] = False
                lead[v] = NOWHERE
                for u in range(first_choice[v], first_choice[v + 1]):
                    if u != current[v] and forbidden[u] <= flip:
                        lead[v] = max(lead[v], score[u] - score[current[v]])
                blocks = _mark(block, is_block, blocks, (v - low) // BLOCK)
            stales = 0
            for i in range(blocks):
                is_block[block[i]] = False
                part = leads[block[i] * BLOCK : (block[i] + 1) * BLOCK]
                most = np.int64(NOWHERE)
                for j in range(len(part)):
                    most = max(most, part[j])
                peak[block[i]] = most
            blocks = 0

            if flip >= shake_at:
                shakes, shake_at = 1 + size // 16, flip + 200 + size
            new = -1
            if shakes > 0:  # out of a valley that the best moves do not leave: any move
                shakes -= 1
                chosen = low + draw(chance, size)
                others = first_choice[chosen + 1] - first_choice[chosen] - 1
                if others > 0:
                    new = first_choice[chosen] + draw(chance, others)
                    new += new >= current[chosen]
            else:  # the best move of all, also if it loses; a forbidden one only to where nobody was
                at = _random_peak(peaks, chance) * BLOCK
                chosen = low + at + _random_peak(leads[at : at + BLOCK], chance)
                most, count = lead[chosen], 0
                for u in range(first_choice[chosen], first_choice[chosen + 1]):
                    if (
                        u != current[chosen]
                        and forbidden[u] <= flip
                        and score[u] - score[current[chosen]] == most
                    ):
                        count += 1
                        if count == 1 or draw(chance, count) == 0:
                            new = u
                for i in range(holding):
                    gain = score[held[i]] - score[current[owner[held[i]]]]
                    if gain > most and value + gain > worth[k]:
                        most, new, chosen = gain, held[i], owner[held[i]]
            flip += 1
            if new < 0:
                continue  # every choice is forbidden at present
            old = current[chosen]
            value += score[new] - score[old]
            current[chosen] = new
            moved[unsaved] = chosen
            unsaved += 1
            stales = _mark(stale, is_stale, stales, chosen)
            if forbidden[old] < flip:
                held[holding] = old
                holding += 1
            forbidden[old] = flip + tenure + draw(chance, tenure // 2)

            for i in range(differing(core.first_accepting, core.accepting, old, new, changed)):
                p = changed[i]
                holds[p] ^= 1
                for j in range(first_use[p], first_use[p + 1]):
                    c = use[j] >> 1
                    if c >= conjunctions:
                        unmet[c] ^= 1
                        others, weight = 0, 2 * weights[c]
                    else:
                        met = holds[p] != (use[j] & 1)
                        others = unmet[c] - met  # false literals besides this one
                        unmet[c] += -1 if met else 1
                        if others > 1:
                            continue
                        weight = weights[c] if met else -weights[c]
                    for t in range(first_literal[c], first_literal[c + 1]):
                        q = literal[t] >> 1
                        if q == p or (others == 1 and holds[q] != (literal[t] & 1)):
                            continue
                        turned = unmet[c] == holds[q] if c >= conjunctions else literal[t] & 1 == 1
                        shift(score, first_accepted, accepted, q, -weight if turned else weight)
                        stales = _mark(stale, is_stale, stales, variable[q])
            if value > worth[k]:
                worth[k], last, shake_at = value, flip, flip + 200 + size
                for i in range(unsaved):
                    choice[moved[i]] = current[moved[i]]
                unsaved = 0
        for i in range(stales):
            is_stale[stale[i]] = False
    return worth, bound


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
            # The other of two.
            choice[v] = one[v] if odd else first_choice[v] + first_choice[v + 1] - 1 - one[v]
    return pure
