"""The fit of degrees, blocks, loops and pairs: what is known exactly is met, and what is known better moves less."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.beliefs.graphs import Fitted, MeasuredGraph, Pairs, fit, product_model

CLASSES = np.array([0, 0, 0, 1, 1, 1, 1])


def graph() -> np.ndarray:
    rng = np.random.default_rng(4)
    found = rng.poisson(np.outer(rng.gamma(2, 5, 7), rng.gamma(2, 1, 7))).astype(float)
    np.fill_diagonal(found, [3, 0, 0, 0, 9, 0, 0])
    return found


def measured(
    edges: np.ndarray, *, degree: float = 1e-6, block: float = 1e-6, pair: float = 1e-6
) -> MeasuredGraph:
    member = np.eye(2)[CLASSES]
    without = edges - np.diag(np.diag(edges))
    return MeasuredGraph(
        leaving=edges.sum(axis=1),
        entering=edges.sum(axis=0),
        blocks=member.T @ without @ member,
        loops=float(np.trace(edges)),
        total=float(edges.sum()),
        degree_variance=degree,
        block_variance=block,
        total_variance=0.0,
        pair_variance=pair,
    )


def weights(fitted: Fitted) -> np.ndarray:
    everything = np.arange(len(fitted.classes))
    found = fitted.expected(everything, everything)
    np.add.at(found, (fitted.pairs.source, fitted.pairs.target), fitted.pairs.extra)
    return found


def test_what_is_known_exactly_is_met() -> None:
    edges = graph()
    known = measured(edges)
    found = weights(fit(known, product_model(known, CLASSES), Pairs.none()))
    assert found.min() >= -1e-9
    member = np.eye(2)[CLASSES]
    without = found - np.diag(np.diag(found))
    assert found.sum(axis=1) == pytest.approx(edges.sum(axis=1), rel=0.02, abs=0.5)
    assert found.sum(axis=0) == pytest.approx(edges.sum(axis=0), rel=0.02, abs=0.5)
    assert member.T @ without @ member == pytest.approx(known.blocks, rel=0.02, abs=0.5)
    assert np.trace(found) == pytest.approx(12, abs=0.5)


def test_pairs_that_were_seen_stay_and_others_make_room() -> None:
    """A pair that is known exactly keeps its weight, however heavy; the block model fits the rest."""
    edges = graph()
    edges[0, 5] = 500.0
    known = measured(edges, degree=100.0, block=100.0)
    fitted = fit(known, product_model(known, CLASSES), Pairs.none())
    seen = np.array([0]), np.array([5])
    for _ in range(3):
        fitted = fit(known, fitted, Pairs(*seen, 500.0 - fitted.between(*seen)))
    found = weights(fitted)
    assert found[0, 5] == pytest.approx(500, abs=0.1)
    assert found.sum(axis=1)[0] == pytest.approx(edges[0].sum(), abs=20)


def test_what_is_known_better_moves_less() -> None:
    """Degrees that say 100 more than the public number of edges give way; the number does not."""
    edges = graph()
    known = measured(edges + 3.0, degree=400.0, block=400.0)
    known = MeasuredGraph(**{**vars(known), "total": float(edges.sum())})
    found = weights(fit(known, product_model(known, CLASSES), Pairs.none()))
    assert found.sum() == pytest.approx(edges.sum(), rel=0.01)


def test_loops_are_not_made_up() -> None:
    edges = graph()
    np.fill_diagonal(edges, 0.0)
    known = measured(edges, degree=10.0, block=10.0)
    found = weights(fit(known, product_model(known, CLASSES), Pairs.none()))
    assert np.trace(found) == pytest.approx(0.0, abs=1.0)
