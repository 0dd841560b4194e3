"""Bare answers: what was asked, and by Theorem A.2 what follows from parities."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.errors import QueryError
from dualquery.mechanisms.artefact import BareAnswers
from dualquery.queries.families import from_texts, marginals, parities
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

BINARY = Domain(tuple(Categorical(name, ("0", "1")) for name in "abcde"))
MIXED = Domain((*BINARY.columns, Categorical("day", ("x", "y", "z"))))


def bits(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((500, 5)) < rng.random(5)).astype(int)


def answers(order: int, seed: int = 0, off: float = 0.0) -> BareAnswers:
    """All parities up to an order of random records, each wrong by at most `off`."""
    workload = parities(BINARY, order)
    exact = workload.fractions(Records.from_rows(BINARY, bits(seed)))
    wrong = np.random.default_rng(seed).uniform(-off, off, workload.size)
    return BareAnswers(list(workload.texts()), exact + wrong, np.full(workload.size, off))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_every_cell_follows_from_parities(k: int) -> None:
    (tables,) = marginals(BINARY, k).groups
    direct = marginals(BINARY, k).fractions(Records.from_rows(BINARY, bits(0)))
    np.testing.assert_allclose(answers(k).fractions(tables), direct, atol=1e-12)


def test_negations_and_disjunctions_follow_too() -> None:
    asked = from_texts(BINARY, ["!(b = 1) & e = 0", "a = 1 | d = 1", "!(a = 1 & c = 0)"])
    direct = asked.fractions(Records.from_rows(BINARY, bits(0)))
    np.testing.assert_allclose(answers(2).fractions(asked.groups[0]), direct, atol=1e-12)


def test_errors_do_not_grow_and_bars_say_so() -> None:
    """Parities wrong by α on the scale of −1 to 1, half of it as fractions, give cells wrong by at most α."""
    (tables,) = marginals(BINARY, 3).groups
    for seed in range(20):
        off = answers(3, seed, off=0.05)
        exact, bar = answers(3, seed).fractions(tables), off.bars(tables)
        np.testing.assert_allclose(bar, 0.1 * 7 / 8)
        assert (np.abs(off.fractions(tables) - exact) <= bar + 1e-12).all()


def test_what_does_not_follow_is_refused() -> None:
    held = answers(2)
    for asked in (from_texts(BINARY, ["a = 1 & b = 1 & e = 1"]), from_texts(MIXED, ["day = x"])):
        with pytest.raises(QueryError, match="is not among its queries"):
            held.fractions(asked.groups[0])
