"""Regret and relative entropy as properties of multiplicative weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.beliefs.factored import Factored
from dualquery.beliefs.multiplicative_weights import (
    ONCE,
    ExpertWeights,
    MultiplicativeWeights,
    Schedule,
    StepSize,
    connected,
    feasible,
    nearest_probabilities,
    update,
)
from dualquery.game import Heard, LearningDataPlayer, TableQuery, Transcript
from dualquery.table.domain import Categorical, Domain

DOMAIN = Domain(
    tuple(Categorical(name, tuple("pqr"[:size])) for name, size in zip("abcd", (2, 3, 2, 3), strict=True))
)
EVERYTHING = tuple(range(DOMAIN.width))


def random_truth(rng: np.random.Generator) -> np.ndarray:
    truth = rng.dirichlet(np.full(36, 0.3)).reshape(DOMAIN.sizes)
    return (truth + 1e-9) / (truth + 1e-9).sum()


def relative_entropy(truth: np.ndarray, distribution: Factored) -> float:
    return float((truth * np.log(truth / distribution.marginal(EVERYTHING))).sum())


def random_members(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(sorted(rng.choice(DOMAIN.width, rng.integers(1, 4), replace=False).tolist()))


def shadow(truth: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    return truth.sum(axis=tuple(j for j in EVERYTHING if j not in members))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(StepSize))
def test_a_step_lowers_relative_entropy_by_its_bound(seed: int, step: StepSize) -> None:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng)
    distribution = Factored.explicit(DOMAIN)
    for _ in range(6):
        members = random_members(rng)
        table = shadow(truth, members)
        query = rng.integers(0, 2, table.shape).astype(float)
        before = relative_entropy(truth, distribution)
        gap = update(distribution, Heard(TableQuery(members, query), np.array((query * table).sum())), step)
        after = relative_entropy(truth, distribution)
        rate = min(
            step.value, StepSize.FULL.value
        )  # raking gains at least as much as the full step (Pinsker)
        assert before - after >= (rate - rate**2 / 8) * gap**2 - 1e-12


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_a_whole_table_is_fitted_exactly_and_lowers_relative_entropy_by_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng)
    distribution = Factored.explicit(DOMAIN)
    for _ in range(4):
        members = random_members(rng)
        table, guess = shadow(truth, members), distribution.marginal(members)
        before = relative_entropy(truth, distribution)
        update(distribution, Heard(TableQuery(members, None), table), StepSize.FULL)
        np.testing.assert_allclose(distribution.marginal(members), table, atol=1e-12)
        own = float((table * np.log(table / guess)).sum())
        assert before - relative_entropy(truth, distribution) == pytest.approx(own, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(5, 60))
def test_regret_stays_below_its_bound(seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng)
    rate = min(0.5, math.sqrt(math.log(36) / rounds))
    distribution = Factored.explicit(DOMAIN)
    player = LearningDataPlayer(ExpertWeights(distribution, learning_rate=rate))
    regret = 0.0
    for _ in range(rounds):
        members = random_members(rng)
        guess, table = distribution.marginal(members), shadow(truth, members)
        query = (guess > table).astype(float)  # the worst loss on these attributes
        regret += float((query * (guess - table)).sum())
        reply = player.reply(Transcript(), TableQuery(members, query))
        np.testing.assert_array_equal(reply.marginal(EVERYTHING), distribution.marginal(EVERYTHING))
    assert regret <= rate * rounds + math.log(36) / rate


def test_repeated_updates_agree_with_every_measurement() -> None:
    truth = random_truth(np.random.default_rng(1))
    distribution = Factored(DOMAIN, part_cells=36)
    measurements = [
        Heard(TableQuery(members, None), shadow(truth, members)) for members in [(0, 1), (1, 2), (2, 3)]
    ]
    belief = MultiplicativeWeights(distribution, schedule=Schedule(StepSize.FULL, 200, 1e-10), floor=0.0)
    for each in measurements:
        belief.hear(each)
    for each in measurements:
        np.testing.assert_allclose(distribution.marginal(each.what.members), each.value, atol=1e-8)


def test_only_connected_measurements_are_heard_again() -> None:
    value = np.array(0.5)
    chain = [Heard(TableQuery(members, None), value) for members in [(0, 1), (5, 6), (1, 2), (7,), (2, 3)]]
    assert [each.what.members for each in connected(chain, chain[0])] == [(0, 1), (1, 2), (2, 3)]
    assert [each.what.members for each in connected(chain, chain[3])] == [(7,)]


def test_a_query_measured_twice_counts_as_its_mean() -> None:
    query = np.array([0.0, 1.0])
    distribution = Factored(DOMAIN, part_cells=36)
    belief = MultiplicativeWeights(distribution, schedule=Schedule(StepSize.FULL, 100, 1e-12), floor=1e-6)
    player = LearningDataPlayer(belief)
    replies = [
        player.reply(Transcript(), Heard(TableQuery((0,), query), np.array(value))) for value in (0.9, 0.5)
    ]
    assert distribution.marginal((0,))[1] == pytest.approx(0.7, abs=1e-9)
    assert [reply.marginal((0,))[1] for reply in replies] == pytest.approx([0.9, 0.7], abs=1e-9)


def test_figure_1_hears_a_measurement_once() -> None:
    distribution = Factored(DOMAIN, part_cells=36)
    player = LearningDataPlayer(MultiplicativeWeights(distribution, schedule=ONCE, floor=1e-6))
    reply = player.reply(Transcript(), Heard(TableQuery((0,), np.array([0.0, 1.0])), np.array(0.9)))
    grown = 0.5 * math.exp(0.5 * 0.4)
    assert distribution.marginal((0,))[1] == pytest.approx(grown / (grown + 0.5))
    np.testing.assert_array_equal(reply.marginal((0,)), distribution.marginal((0,)))


@pytest.mark.parametrize("value", [-3.0, 0.4, 7.0])
def test_measurements_are_clamped_to_what_is_feasible(value: float) -> None:
    one = feasible(Heard(TableQuery((0,), np.array([0.0, 1.0])), np.array(value)), 0.01)
    assert 0.01 <= float(one.value) <= 0.99
    table = feasible(Heard(TableQuery((0,), None), np.array([value, 0.3, -0.2])), 0.01)
    assert table.value.min() > 0
    assert table.value.sum() == pytest.approx(1)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_the_nearest_probabilities_are_probabilities_and_nearest(values: list[float]) -> None:
    found = nearest_probabilities(np.array(values))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # Nearest: the residual is constant on the support and not larger elsewhere.
    residual = np.array(values) - found
    shift = residual[found > 0].max()
    assert residual.max() <= shift + 1e-9


@pytest.mark.parametrize("floor", [1e-6, 0.05])
def test_a_reply_is_what_the_belief_was_and_stays_so(floor: float) -> None:
    """Ten rounds; every reply is looked at again after the last one."""
    rng = np.random.default_rng(3)
    belief = MultiplicativeWeights(
        Factored(DOMAIN, part_cells=36), schedule=Schedule(StepSize.FULL, 5, 1e-9), floor=floor
    )
    player, truth = LearningDataPlayer(belief), random_truth(rng)
    replies, then = [], []
    for _ in range(10):
        members = random_members(rng)
        replies.append(player.reply(Transcript(), Heard(TableQuery(members, None), shadow(truth, members))))
        then.append(replies[-1].marginal(EVERYTHING))
    for reply, before in zip(replies, then, strict=True):
        np.testing.assert_array_equal(reply.marginal(EVERYTHING), before)
    assert any(not np.allclose(one, other) for one, other in itertools.pairwise(then))
