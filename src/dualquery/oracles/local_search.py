"""One good choice per variable: all assignments of a small component, tabu search in a large one.

Tabu search after Glover (1989) and, for many values a variable, Galinier and Hao (1999): always make the
best move, even a bad one, but do not return to a value for a while after leaving it, unless that beats
the best assignment seen. A table keeps what every choice would add,

    score[u] = linear[u] + Σ ±w_c   over clauses c with a literal that accepts u, all other literals true,

so that a move is chosen by a scan and costs an update of the clauses that it makes or breaks.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dualquery.oracles.problem import Problem, draw, rows_from

BLOCK = 128
NOWHERE = -(2**62)
ENUMERABLE = 65_536  # joint assignments of a component that is searched exhaustively


@njit(cache=True)
def _add(
    score: NDArray[np.int64],
    first_accepted: NDArray[np.int32],
    accepted: NDArray[np.int32],
    literal: int,
    weight: int,
) -> None:
    """Count a clause in at the choices that one of its literals accepts."""
    p = literal >> 1
    signed = -weight if literal & 1 else weight
    for i in range(first_accepted[p], first_accepted[p + 1]):
        score[accepted[i]] += signed


@njit(cache=True)
def _random_peak(values: NDArray[np.int64], chance: NDArray[np.uint64]) -> int:
    """Where the largest value stands, at random among equals."""
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
def _mark(listed: NDArray[np.int32], is_listed: NDArray[np.bool_], count: int, item: int) -> int:
    """Put an item on a list, once; the length of the list."""
    if not is_listed[item]:
        is_listed[item] = True
        listed[count] = item
        count += 1
    return count


@njit(cache=True)
def search(
    core: Problem,
    first_variable: NDArray[np.int32],
    skipped: NDArray[np.bool_],
    flips: int,
    chance: NDArray[np.uint64],
    choice: NDArray[np.int32],
    params: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Tabu search in each component, from `choice`, which is improved in place; what each is worth then."""
    first_choice, linear, weights, conjunctions = core.first_choice, core.linear, core.weights, core.conjunctions
    first_literal, literal, variable = core.first_literal, core.literal, core.variable
    first_accepted, accepted = core.first_accepted, core.accepted
    first_accepting, accepting = core.first_accepting, core.accepting
    first_use, use = core.first_use, core.use

    current = choice.copy()
    holds = np.zeros(len(variable), np.int32)  # predicate → whether it accepts the current choice
    unmet = np.zeros(len(weights), np.int32)  # clause → false literals, of a parity true ones modulo 2
    score = linear.copy()
    worth = np.zeros(len(skipped), np.int64)
    ceiling = np.zeros(len(skipped), np.int64)
    component = np.empty(len(current), np.int32)
    owner = np.empty(len(linear), np.int32)
    searched = 0
    used=np.zeros(1,np.int64)
    for k in range(len(skipped)):
        for v in range(first_variable[k], first_variable[k + 1]):
            component[v] = k
            worth[k] += linear[current[v]]
            most = linear[first_choice[v]]
            for u in range(first_choice[v], first_choice[v + 1]):
                most = max(most, linear[u])
                owner[u] = v
            ceiling[k] += most
            searched += not skipped[k]
            for i in range(first_accepting[current[v]], first_accepting[current[v] + 1]):
                holds[accepting[i]] = 1
    for c in range(len(weights)):
        start, end = first_literal[c], first_literal[c + 1]
        for i in range(start, end):
            unmet[c] += holds[literal[i] >> 1] == (literal[i] & 1)
        if c >= conjunctions:
            unmet[c] = (end - start - unmet[c]) & 1
        k = component[variable[literal[start] >> 1]]
        worth[k] += weights[c] if unmet[c] == 0 else 0
        ceiling[k] += max(0, weights[c])
        for i in range(start, end):
            true = holds[literal[i] >> 1]
            if c >= conjunctions:
                _add(score, first_accepted, accepted, literal[i], weights[c] if unmet[c] != true else -weights[c])
            elif unmet[c] == (true == (literal[i] & 1)):
                _add(score, first_accepted, accepted, literal[i], weights[c])

    forbidden = np.zeros(len(linear), np.int64)  # choice → the flip before which it is not taken again
    lead = np.empty(len(current), np.int64)  # variable → the most that one of its other, free choices gains
    stale = np.empty(len(current), np.int32)  # variables whose lead must be found anew
    is_stale = np.zeros(len(current), np.bool_)
    peak = np.empty((len(current) + BLOCK - 1) // BLOCK, np.int64)  # the largest of each BLOCK leads
    block = np.empty(len(peak), np.int32)
    is_block = np.zeros(len(peak), np.bool_)
    moved = np.empty(params[4]*searched+flips + 1, np.int32)
    held = np.empty(512, np.int32)  # the choices forbidden at present
    for k in range(len(skipped)):
        if skipped[k]:
            continue
        low, high = first_variable[k], first_variable[k + 1]
        leads = lead[low:high]  # from 0, so that the scans compile to vector instructions
        peaks = peak[: (high - low + BLOCK - 1) // BLOCK]
        moves_ = first_choice[high] - first_choice[low] - (high - low)
        shortest = min(200, params[2] + moves_ // params[3])
        spread = shortest // 2 + 5
        value = worth[k]
        patience = params[0] + params[1] * (high - low)
        allowed = params[4] * (high - low) + flips * (high - low) // searched
        flip, last, holding, stales, blocks, turn, quiet, moves = 0, 0, 0, 0, 0, low, 0, 0
        for v in range(low, high):
            stales = _mark(stale, is_stale, stales, v)
        while flip < allowed and flip - last <= patience and worth[k] < ceiling[k]:
            i = 0
            while i < holding:
                if forbidden[held[i]] > flip:
                    i += 1
                    continue
                v = owner[held[i]]
                stales = _mark(stale, is_stale, stales, v)
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
                b = block[i]
                is_block[b] = False
                part = leads[b * BLOCK : (b + 1) * BLOCK]
                peak[b] = NOWHERE
                for j in range(len(part)):
                    peak[b] = max(peak[b], part[j])
            blocks = 0

            # Until a whole round brings nothing, each variable in turn takes its best choice; then the best
            # move of all is made, also if it loses, and a forbidden one if it leads where nobody was.
            chosen = -1
            while chosen < 0 and quiet <= high - low:
                if lead[turn] > 0:
                    chosen = turn
                    quiet = 0
                quiet += 1
                turn = low if turn + 1 == high else turn + 1
            new = -1
            if chosen < 0:
                b = _random_peak(peaks, chance)
                most = peaks[b]
                chosen = low + b * BLOCK + _random_peak(leads[b * BLOCK : (b + 1) * BLOCK], chance)
                for i in range(holding):
                    u = held[i]
                    gain = score[u] - score[current[owner[u]]]
                    if gain > most and value + gain > worth[k]:
                        most, new, chosen = gain, u, owner[u]
            if lead[chosen] == NOWHERE and new < 0:
                flip += 1
                continue
            old = current[chosen]
            if new < 0:
                count = 0
                for u in range(first_choice[chosen], first_choice[chosen + 1]):
                    if u != old and forbidden[u] <= flip and score[u] - score[old] == lead[chosen]:
                        count += 1
                        if count == 1 or draw(chance, count) == 0:
                            new = u
            value += score[new] - score[old]
            current[chosen] = new
            moved[moves] = chosen
            moves += 1
            flip += 1
            if forbidden[old] < flip:
               held[holding] = old
               holding += 1
            forbidden[old] = flip + shortest + draw(chance, spread)
            stales = _mark(stale, is_stale, stales, chosen)

            # The predicates that accept one of the two choices but not the other change.
            i, j = first_accepting[old], first_accepting[new]
            while i < first_accepting[old + 1] or j < first_accepting[new + 1]:
                if j == first_accepting[new + 1] or (i < first_accepting[old + 1] and accepting[i] < accepting[j]):
                    p = accepting[i]
                    i += 1
                elif i == first_accepting[old + 1] or accepting[j] < accepting[i]:
                    p = accepting[j]
                    j += 1
                else:
                    i += 1
                    j += 1
                    continue
                holds[p] ^= 1
                for s in range(first_use[p], first_use[p + 1]):
                    c = use[s] >> 1
                    if c >= conjunctions:
                        unmet[c] ^= 1
                        others = 0
                        weight = 2 * weights[c]
                    else:
                        met = holds[p] != (use[s] & 1)
                        others = unmet[c] - met  # false literals besides this one
                        unmet[c] += -1 if met else 1
                        if others > 1:
                            continue
                        weight = weights[c] if met else -weights[c]
                    for t in range(first_literal[c], first_literal[c + 1]):
                        q = literal[t] >> 1
                        if q == p:
                            continue
                        if c >= conjunctions:
                            _add(score, first_accepted, accepted, literal[t], weight if unmet[c] != holds[q] else -weight)
                        elif others == 0 or holds[q] == (literal[t] & 1):
                            _add(score, first_accepted, accepted, literal[t], weight)
                        else:
                            continue
                        v = variable[q]
                        stales = _mark(stale, is_stale, stales, v)
            if value > worth[k]:
                worth[k] = value
                last = flip
                for i in range(moves):
                    choice[moved[i]] = current[moved[i]]
                moves = 0
        used[0]+=flip
    params[5]=used[0]
    return worth
