"""What noisy tables are likely to be: empirical Bayes against brute force, covariances, the best tree."""

from itertools import combinations

import numpy as np
import pytest

from dualquery.fitting import shrink
from dualquery.fitting.cpu import COMPILED
from dualquery.fitting.fit import PairTargets
from dualquery.fitting.fitter import Targets
from dualquery.fitting.measured import MeasuredTables
from dualquery.fitting.posteriors import (
    SeparablePrior,
    contrasts,
    effective,
    mutual_information,
    spanning_tree,
    tree_lean,
    tree_of,
)
from dualquery.fitting.shrink import FAR, RATIOS, relative_posterior
from dualquery.queries.tables import centred
from dualquery.table.domain import Categorical, Domain

# ── Cells around a known mean ───────────────────────────────────────────────────────────────────────────────────


def by_integration(mean, residual, deviation, law):
    """E[θ | residual] by a sum over a fine grid of θ, for every component of the mixture."""
    grid = np.linspace(-40, 40, 160_001) * deviation
    step, seen = grid[1] - grid[0], np.exp(-0.5 * ((residual - grid) / deviation) ** 2)
    above = below = 0.0
    for weight, spread in zip(law, (0.0, *(RATIOS * mean), *(FAR * deviation), None), strict=True):
        if spread is None or spread == 0.0:
            point = -mean if spread is None else 0.0
            density = np.exp(-0.5 * ((residual - point) / deviation) ** 2)
            above, below = above + weight * point * density, below + weight * density
        else:
            prior = np.exp(-0.5 * (grid / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
            above += weight * (grid * prior * seen).sum() * step
            below += weight * (prior * seen).sum() * step
    return above / below


def around(mean):
    return shrink.around(mean, np.ones(len(mean)))


@pytest.mark.parametrize("residual", [-1.5, 0.2, 3.0, 20.0])
@pytest.mark.parametrize("mean", [2.0, 7.0])
def test_the_posterior_mean_is_that_of_the_mixture(mean, residual):
    law = np.random.default_rng(0).dirichlet(np.ones(2 + len(RATIOS) + len(FAR)))
    found = shrink.posterior(np.array([residual]), np.array([1.0]), around(np.array([mean])), law)
    assert found[0] == pytest.approx(by_integration(mean, residual, 1.0, law), rel=1e-3, abs=1e-4)


def test_each_step_makes_the_cells_more_likely():
    rng = np.random.default_rng(1)
    mean, deviation = np.full(500, 3.0), np.ones(500)
    truth = np.where(rng.random(500) < 0.3, -mean, mean * rng.normal(0, 0.5, 500))
    seen, prior = truth + rng.normal(0, 1, 500), around(mean)
    likelihood = shrink._likelihood(seen, deviation, *prior(slice(None)))
    scores = []
    for steps in (0, 1, 5, 60):
        law = shrink.learned(seen, deviation, prior, steps=steps, first=0.5)
        scores.append(np.log(likelihood @ law).sum())
    assert scores == sorted(scores)
    assert scores[-1] > scores[0] + 1


def test_shrinking_helps_and_leaves_clear_cells_alone():
    rng = np.random.default_rng(2)
    mean = np.full(4000, 5.0)
    truth = np.where(rng.random(4000) < 0.5, 0.0, 5.0)
    truth[:20] = 400.0
    noisy = truth + rng.normal(0, 3, 4000)
    found = relative_posterior(mean, noisy - mean, np.full(4000, 3.0), rng)
    assert found.min() >= 0
    assert np.abs(found - truth)[20:].mean() < 0.75 * np.abs(noisy - truth)[20:].mean()
    np.testing.assert_allclose(found[:20], noisy[:20], rtol=0.02)


# ── Pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_contrasts_are_orthonormal_and_centred():
    for size in (2, 3, 7):
        basis = contrasts(size)
        np.testing.assert_allclose(basis.T @ basis, np.eye(size - 1), atol=1e-12)
        np.testing.assert_allclose(basis.sum(axis=0), 0, atol=1e-12)


def pairs_with_structure(seed, noise):
    """Six attributes of four values; the deviation of every pair lies along one direction of each attribute."""
    rng = np.random.default_rng(seed)
    ones = {j: np.full(4, 0.25) for j in range(6)}
    direction = {j: centred(rng.normal(0, 1, 4)) for j in range(6)}
    truth = {
        (i, j): rng.normal(0, 0.03) * np.outer(direction[i], direction[j])
        for i, j in combinations(range(6), 2)
    }
    noisy = {s: centred(table + rng.normal(0, noise, (4, 4))) for s, table in truth.items()}
    return ones, truth, noisy, dict.fromkeys(truth, noise**2)


def test_pairs_learn_from_each_other():
    ones, truth, noisy, variance = pairs_with_structure(0, 0.02)
    posteriors = SeparablePrior(noisy, variance, ones).posteriors()
    alone = np.sqrt(np.mean([np.mean((noisy[s] - truth[s]) ** 2) for s in truth]))
    found = np.sqrt(np.mean([np.mean((posteriors[s].deviation - truth[s]) ** 2) for s in truth]))
    assert found < 0.6 * alone
    said = np.sqrt(np.mean([posteriors[s].variance.mean() for s in truth]))
    assert 0.6 * found < said < 1.6 * found


@pytest.mark.parametrize("noise", [1e-3, 1e-4, 1e-6])
def test_clear_pairs_stay_as_they_were_measured(noise):
    ones, truth, noisy, variance = pairs_with_structure(3, noise)
    posteriors = SeparablePrior(noisy, variance, ones).posteriors()
    for members in truth:
        assert np.abs(posteriors[members].deviation - noisy[members]).max() < 3 * noise


def test_the_effective_measurement_has_the_same_posterior():
    ones, _, noisy, variance = pairs_with_structure(1, 0.02)
    posterior = SeparablePrior(noisy, variance, ones).posteriors()[0, 1]
    residual, spread = effective(posterior)
    clear = 1 / posterior.variance - 1 / posterior.prior > 2e-3 / posterior.variance
    again = residual * posterior.prior / (posterior.prior + spread)
    np.testing.assert_allclose(again[clear], posterior.deviation[clear], rtol=1e-6)


def test_more_precision_lowers_the_expected_error():
    ones, truth, noisy, variance = pairs_with_structure(2, 0.02)
    more = np.array([0.0, 1e3, 1e5, 1e9])
    errors = SeparablePrior(noisy, variance, ones).expected_errors(dict.fromkeys(truth, more))
    for falling in errors.values():
        assert np.all(np.diff(falling) < 0)
        assert falling[-1] < 1e-2 * falling[0]


# ── The tree ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_is_the_best_of_all_trees(seed):
    rng = np.random.default_rng(seed)
    strength = {s: float(rng.random()) for s in combinations(range(5), 2)}

    def joined(edges):
        groups = {j: {j} for j in range(5)}
        for i, j in edges:
            together = groups[i] | groups[j]
            for each in together:
                groups[each] = together
        return len(groups[0]) == 5

    best = max(sum(strength[e] for e in edges) for edges in combinations(strength, 4) if joined(edges))
    found = spanning_tree(strength)
    assert joined(found)
    assert sum(strength[e] for e in found) == pytest.approx(best)


def test_mutual_information_by_hand():
    even = np.full(2, 0.5)
    assert mutual_information(np.eye(2) / 2, even, even) == pytest.approx(np.log(2))
    assert mutual_information(np.full((2, 2), 0.25), even, even) == pytest.approx(0)


@pytest.mark.parametrize("size", [2, 3])
def test_without_data_rows_are_drawn_from_the_tree(size):
    """At weight zero the lean is all there is: pairs of the tree have their tables, attributes theirs."""
    rng = np.random.default_rng(size)
    chain = {(0, 1): rng.dirichlet(np.full(size**2, 2.0)).reshape(size, size)}
    ones = {0: chain[0, 1].sum(axis=1), 1: chain[0, 1].sum(axis=0)}
    given = rng.dirichlet(np.full(size, 2.0), size)
    chain[1, 2] = ones[1][:, None] * given
    ones[2] = chain[1, 2].sum(axis=0)
    tree = tree_of({**chain, (0, 2): np.outer(ones[0], ones[2])}, ones)
    assert sorted(tree) == [(0, 1), (1, 2)]
    maker, heat, rows = Targets(np.full(3, size), ones), 0.01, 6000
    for i, j in tree:
        maker.add_lean((i, j), tree_lean(chain[i, j], ones[i], ones[j], 1e-9), heat)
    start = rng.integers(0, size, (1, rows, 3)).astype(np.uint8)
    passes = list(COMPILED.fit(maker, start, [rows * heat] * 20, np.array([5], np.uint64)))[4:]
    drawn = np.concatenate([chains[0] for chains in passes])
    joint = np.zeros((size,) * 3)
    np.add.at(joint, tuple(drawn.T), 1 / len(drawn))
    expected = chain[0, 1][:, :, None] * given[None]
    assert np.abs(joint - expected).max() < 0.01


@pytest.mark.parametrize(("size", "as_measured"), [(2, True), (3, False)])
def test_single_numbers_are_fitted_as_they_were_measured(size, as_measured):
    """The interaction of two attributes of two values is one number: no other cell tells anything about it."""
    rng = np.random.default_rng(0)
    domain = Domain(tuple(Categorical(f"a{j}", tuple("xyz"[:size])) for j in range(4)))
    interactions = {(): np.array(1000.0)} | {
        s: centred(rng.normal(0, 10, (size,) * len(s))) for k in (1, 2) for s in combinations(range(4), k)
    }
    measured = MeasuredTables(domain, interactions, dict.fromkeys(interactions, 100.0), 1000.0)
    wanted = PairTargets.of(measured, rng)
    assert wanted.single_numbers is as_measured
    raw = wanted.targets({s: measured.table(s) for s in wanted.likely})
    found = wanted.at_once()
    assert all(np.array_equal(raw.pull[s], found.pull[s]) for s in raw.pull) is as_measured


def test_one_way_tables_move_halfway_to_those_of_fitted_rows():
    rng = np.random.default_rng(0)
    domain = Domain((Categorical("a", ("x", "y")), Categorical("b", ("x", "y", "z"))))
    told = {
        (): np.array(1000.0),
        (0,): np.array([100.0, -100.0]),
        (1,): np.zeros(3),
        (0, 1): np.zeros((2, 3)),
    }
    measured = MeasuredTables(domain, told, dict.fromkeys(told, 1.0), 1000.0)
    wanted = PairTargets.of(measured, rng)
    rows = {0: np.array([0.7, 0.3]), 1: np.array([0.5, 0.3, 0.2])}
    again = wanted.anew(rows, rng)
    for j, fraction in rows.items():
        assert again.ones[j] == pytest.approx((wanted.ones[j] + fraction) / 2)
    assert again.measured.interactions[0, 1] is measured.interactions[0, 1]
