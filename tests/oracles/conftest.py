"""Small random clauses, and the definition of the optimum: look at every record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from dualquery.oracles import Clauses
from dualquery.queries.group import NONE, Predicates


def _rows(rows: list[list[int]]) -> NDArray[np.int32]:
    width = max((len(row) for row in rows), default=0)
    return np.array([row + [NONE] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


@st.composite
def _small_clauses(draw: st.DrawFn) -> Clauses:
    """Any predicates (also empty and full ones), clauses of 0 to 4 literals, weights of any sign, parities."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    sets = []
    for attribute, size in enumerate(sizes):
        for _ in range(draw(st.integers(1, 3))):
            sets.append((attribute, sorted(draw(st.sets(st.integers(0, size - 1))))))
    predicates = Predicates.of(sets)
    weight = st.integers(-4, 4)

    def row() -> list[int]:
        attributes = draw(st.sets(st.integers(0, len(sizes) - 1), max_size=4))
        own = [[p for p, (a, _) in enumerate(sets) if a == attribute] for attribute in attributes]
        return [2 * draw(st.sampled_from(ps)) + draw(st.integers(0, 1)) for ps in own]

    literals = [row() for _ in range(draw(st.integers(0, 14)))]
    binary = [a for a, size in enumerate(sizes) if size == 2]
    members = st.sets(st.sampled_from(binary), max_size=4) if binary else st.just(set())
    parities = [sorted(draw(members)) for _ in range(draw(st.integers(0, 6)))]
    return Clauses(
        np.array(sizes, np.int32),
        predicates,
        _rows(literals),
        np.array([draw(weight) for _ in literals], np.int64),
        _rows(parities),
        np.array([draw(weight) for _ in parities], np.int64),
    )


def _universe_values(clauses: Clauses) -> dict[tuple[int, ...], int]:
    records = np.array(list(product(*(range(size) for size in clauses.sizes))), np.int32)
    total = np.zeros(len(records), np.int64)
    for row, weight in zip(clauses.literals.tolist(), clauses.weights.tolist(), strict=True):
        holds = np.ones(len(records), bool)
        for entry in row:
            if entry != NONE:
                codes = records[:, clauses.predicates.attribute[entry >> 1]]
                holds &= np.isin(codes, clauses.predicates.accepted(entry >> 1)) != bool(entry & 1)
        total += weight * holds
    for members, weight in zip(clauses.parities.tolist(), clauses.parity_weights.tolist(), strict=True):
        ones = (records[:, [attribute for attribute in members if attribute != NONE]] == 1).sum(axis=1)
        total += weight * (ones % 2 == 0)
    return dict(zip(map(tuple, records.tolist()), total.tolist(), strict=True))


def _random_clauses(
    sizes: list[int], conjunctions: int, parities: int, seed: int, *, width: int = 3, heaviest: int = 1
) -> Clauses:
    """The clauses of random queries: `width` attributes, `= value`, negated by a coin."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(sizes[:-1])])
    attribute = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.arange(len(attribute)) - first[attribute]
    predicates = Predicates(attribute.astype(np.int32), np.arange(len(attribute) + 1), codes.astype(np.int32))

    def members(count: int) -> NDArray[np.int64]:
        rows = [rng.choice(len(sizes), width, replace=False) for _ in range(count)]
        return np.array(rows, np.int64).reshape(count, width)

    def weights(count: int) -> NDArray[np.int64]:
        return rng.integers(1, heaviest + 1, count) * rng.choice([-1, 1], count)

    named = members(conjunctions)
    chosen = first[named] + (rng.random(named.shape) * np.array(sizes)[named]).astype(np.int64)
    return Clauses(
        np.array(sizes, np.int32),
        predicates,
        (2 * chosen + rng.integers(0, 2, chosen.shape)).astype(np.int32),
        weights(conjunctions),
        members(parities).astype(np.int32),
        weights(parities),
    )


@pytest.fixture(scope="session")
def small_clauses() -> st.SearchStrategy[Clauses]:
    return _small_clauses()


@pytest.fixture(scope="session")
def universe_values() -> Callable[[Clauses], dict[tuple[int, ...], int]]:
    """The value of every record, by the definition."""
    return _universe_values


@pytest.fixture(scope="session")
def random_clauses() -> Callable[..., Clauses]:
    return _random_clauses
