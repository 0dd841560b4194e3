"""Streams of questions, as analysts ask them: public, drawn from a seed, and where they say so led by the answers.

natural   30% repeats of 100 dashboard questions; else 1, 2 or 3 conditions (.2, .4, .4), of which 60% name a value,
          30% a set or a range of values, 10% exclude a value
random    2 or 3 conditions on attributes at random, each naming a value at random
drill     down to 6 conditions, one more at a time, along the largest of the answers so far
broad     4 to 10 wide conditions, each of which excludes a few values

`slowest_lesson` is against online private multiplicative weights alone, by somebody who knows all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dualquery import Online
from dualquery.interactive.answers import Badge
from dualquery.queries.language import between, bit_set, ranked_codes
from dualquery.queries.language.formula import Literal, Query, canonical
from dualquery.table.domain import Categorical, Domain

Answer = Callable[[str], float]
Stream = Callable[[Domain, int, np.random.Generator, Answer], Iterator[str]]

DASHBOARD = 100
REPEATS = 0.3
DEEPEST = 6
CANDIDATES = 3  # values that a drill looks at before it goes on
SMALL = 0.002  # a fraction at which it turns back
WIDE = (4, 10)
LIGHTEST = 0.76  # of α: a little above the threshold


def natural(domain: Domain, number: int, rng: np.random.Generator, answer: Answer) -> Iterator[str]:
    dashboard = [_natural(domain, rng) for _ in range(DASHBOARD)]
    for _ in range(number):
        again = rng.random() < REPEATS
        text = dashboard[int(rng.integers(DASHBOARD))] if again else _natural(domain, rng)
        answer(text)
        yield text


def random(domain: Domain, number: int, rng: np.random.Generator, answer: Answer) -> Iterator[str]:
    for _ in range(number):
        attributes = _attributes(domain, int(rng.integers(2, 4)), rng)
        text = _text(domain, {j: 1 << int(rng.integers(domain.sizes[j])) for j in attributes})
        answer(text)
        yield text


def drill(domain: Domain, number: int, rng: np.random.Generator, answer: Answer) -> Iterator[str]:
    asked = 0
    while asked < number:
        conditions: dict[int, int] = {}
        for j in _attributes(domain, min(DEEPEST, domain.width), rng):
            values = rng.permutation(int(domain.sizes[j]))[:CANDIDATES].tolist()
            found = {}
            for value in values[: number - asked]:
                text = _text(domain, conditions | {j: 1 << value})
                found[value] = answer(text)
                asked += 1
                yield text
            if not found or max(found.values()) < SMALL:
                break
            conditions[j] = 1 << max(found, key=lambda value: found[value])


def broad(domain: Domain, number: int, rng: np.random.Generator, answer: Answer) -> Iterator[str]:
    low, high = WIDE
    for _ in range(number):
        wanted = int(rng.integers(low, high + 1))
        conditions = {}
        for j in _attributes(domain, min(wanted, domain.width), rng):
            size = int(domain.sizes[j])
            excluded = rng.permutation(size)[: max(1, round(size * rng.uniform(0.1, 0.4)))]
            if len(excluded) < size:
                conditions[j] = ((1 << size) - 1) ^ bit_set(excluded.tolist())
        text = _text(domain, conditions)
        answer(text)
        yield text


STREAMS: dict[str, Stream] = {"natural": natural, "random": random, "drill": drill, "broad": broad}


ALL_EQUAL = Domain((Categorical("a", tuple(f"v{i}" for i in range(1024))),))  # every record is v0


def slowest_lesson(online: Online, number: int) -> Iterator[float]:
    """How far off each answer is, where a uniform hypothesis over 1,024 values is taught as slowly as can be.

    Whoever asks knows α and all answers, and so the hypothesis. They ask for sets that miss v0, of the values that
    are still believed in most: as heavy as the threshold, and a little heavier where the test stayed silent, because
    a question that was tested is not tested again.
    """
    assert online.rule.accuracy is not None
    alpha, names = online.rule.accuracy.error, np.array(ALL_EQUAL.columns[0].labels)
    weights, heavy = np.full(len(names), 1 / len(names)), LIGHTEST
    for _ in range(number):
        heaviest = 1 + np.argsort(-weights[1:], kind="stable")
        last = int(np.searchsorted(np.cumsum(weights[heaviest]), heavy * alpha))
        inside = heaviest[: 1 + last]
        answer = online.ask(f"a in {{{', '.join(names[inside])}}}")
        yield answer.value  # the truth is 0
        fired = answer.cost.units > 0
        heavy = LIGHTEST if fired else heavy + 0.01
        if fired:
            weights[inside] *= np.exp(-2 * alpha)
            weights /= weights.sum()
        elif answer.badge is Badge.NOT_CONTRADICTED:
            assert np.isclose(answer.value, weights[inside].sum(), atol=1e-6), "it follows from the answers"


def _natural(domain: Domain, rng: np.random.Generator) -> str:
    number = int(rng.choice([1, 2, 3], p=[0.2, 0.4, 0.4]))
    return _text(domain, {j: _condition(domain, j, rng) for j in _attributes(domain, number, rng)})


def _condition(domain: Domain, attribute: int, rng: np.random.Generator) -> int:
    """The accepted values: one, some, or all but one."""
    size, chance = int(domain.sizes[attribute]), rng.random()
    one = 1 << int(rng.integers(size))
    if chance < 0.6 or (chance < 0.9 and size < 4):
        return one
    if chance >= 0.9:
        return ((1 << size) - 1) ^ one
    ranked = ranked_codes(domain.column_of(attribute)[1])
    if ranked is not None and len(ranked) > 3:
        first, last = sorted(rng.choice(len(ranked) + 1, 2, replace=False).tolist())
        accepted = between(domain.column_of(attribute)[1], first, last)
        return accepted if accepted != (1 << size) - 1 else one
    return bit_set(rng.permutation(size)[: int(rng.integers(2, max(3, size // 2 + 1)))].tolist())


def _attributes(domain: Domain, number: int, rng: np.random.Generator) -> list[int]:
    askable = np.flatnonzero(domain.sizes > 1)
    return rng.permutation(askable)[:number].tolist()


def _text(domain: Domain, conditions: dict[int, int]) -> str:
    literals = [Literal(j, *canonical(conditions[j], int(domain.sizes[j]))) for j in sorted(conditions)]
    return Query(tuple(literals)).text(domain)
