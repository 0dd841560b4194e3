"""Mixtures of records: the nearest point of the hull, by its own condition and by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dualquery.beliefs.euclidean import RecordMixture, settle
from dualquery.errors import DualQueryError
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

DOMAIN = Domain(tuple(Categorical(f"a{j}", tuple("xyz"[:size])) for j, size in enumerate((2, 3, 2))))
UNIVERSE = np.array(list(product(*(range(size) for size in DOMAIN.sizes))), np.int32)
WORKLOAD = from_spec(DOMAIN, "marginals:2 + random:2:5")


def answers_of(record: np.ndarray) -> np.ndarray:
    return WORKLOAD.counts(Records.from_rows(DOMAIN, record[None])).astype(float)


VERTICES = np.stack([answers_of(record) for record in UNIVERSE])


def mixed(wanted: np.ndarray, rounds: int) -> tuple[RecordMixture, list[float]]:
    """With an oracle that looks at all records."""
    mixture, gaps = RecordMixture(WORKLOAD, wanted), []
    for _ in range(rounds):
        mixture.add(UNIVERSE[int(np.argmax(VERTICES @ mixture.residual))])
        gaps.append(mixture.gap)
    return mixture, gaps


def test_what_a_table_answers_is_found_exactly() -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(len(VERTICES))) @ VERTICES
    mixture, gaps = mixed(truth, 40)
    np.testing.assert_allclose(mixture.answers(WORKLOAD), truth, atol=1e-4)
    assert gaps[0] == np.inf
    assert gaps[-1] < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_no_record_lies_beyond_the_nearest_point(seed: int) -> None:
    """The condition of the nearest point ŷ: ⟨ỹ − ŷ, a_x − ŷ⟩ ≤ 0 for every record; and nothing else is nearer."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(len(VERTICES))) @ VERTICES
    noisy = truth + rng.normal(0, 0.3, WORKLOAD.size)
    mixture, _ = mixed(noisy, 60)
    found = mixture.answers(WORKLOAD)
    assert ((VERTICES - found) @ (noisy - found)).max() < 1e-5
    assert np.linalg.norm(found - truth) <= np.linalg.norm(noisy - truth)
    for weights in rng.dirichlet(np.full(len(VERTICES), 0.3), 200):
        assert np.linalg.norm(weights @ VERTICES - noisy) >= np.linalg.norm(found - noisy)


def test_the_gap_bounds_the_distance() -> None:
    rng = np.random.default_rng(3)
    noisy = rng.random(WORKLOAD.size)
    nearest = mixed(noisy, 80)[0].answers(WORKLOAD)
    before, gaps = mixed(noisy, 6)[0], mixed(noisy, 7)[1]
    assert np.sum((before.answers(WORKLOAD) - nearest) ** 2) <= gaps[-1] + 1e-9


def test_weights_are_the_least_squares_over_the_records() -> None:
    rng = np.random.default_rng(1)
    vectors, wanted = rng.random((3, 8)), rng.random(8)
    weights = np.array([1.0, 0.0, 0.0])
    settle(vectors @ vectors.T, vectors @ wanted, weights, 1000, 1e-12)
    assert weights.sum() == pytest.approx(1.0)
    steps = np.linspace(0, 1, 101)
    others = [
        np.sum((np.array([a, b, 1 - a - b]) @ vectors - wanted) ** 2)
        for a in steps
        for b in steps
        if a + b <= 1
    ]
    assert np.sum((weights @ vectors - wanted) ** 2) <= min(others) + 1e-9


def test_rows_stand_as_often_as_weights_say() -> None:
    mixture, _ = mixed(np.random.default_rng(2).random(WORKLOAD.size), 10)
    rows = mixture.rows(100_000)
    assert len(rows) == 100_000
    made = WORKLOAD.fractions(Records.from_rows(DOMAIN, rows))
    np.testing.assert_allclose(made, mixture.answers(WORKLOAD), atol=1e-4)


def test_another_workload_is_refused() -> None:
    mixture, _ = mixed(np.zeros(WORKLOAD.size), 1)
    with pytest.raises(DualQueryError, match="the workload that it was made for"):
        mixture.answers(Workload(DOMAIN, WORKLOAD.groups[:1], "others"))
