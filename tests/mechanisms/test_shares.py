"""Shares of the budget: the error that they are to minimise, and that they do."""

from itertools import combinations

import numpy as np
import pytest

from dualquery.fitting import allocation
from dualquery.fitting.allocation import Curves, Workloads, allocate, predicted_curves

ROWS = 5_000.0
SETS = (*combinations(range(4), 2), *combinations(range(4), 3))
TABLES = tuple(combinations(range(4), 3))


def ones():
    rng = np.random.default_rng(0)
    return {j: rng.dirichlet(np.full(size, 0.7)) for j, size in enumerate((3, 5, 8, 2))}


def error_by_hand(members, tables, deviation):
    mean = np.ones(())
    for j in members:
        mean = np.multiply.outer(mean, tables[j])
    theta = 0.5 if len(members) == 2 else 0.0
    apart = np.sqrt((theta * mean) ** 2 + np.minimum(mean / ROWS, (2 * mean) ** 2))
    return 0.8 * (apart * deviation / np.sqrt(apart**2 + deviation**2)).sum()


def test_the_predicted_error_is_the_formula():
    tables, units = ones(), np.full(len(SETS), 7.0)
    curves = predicted_curves(SETS, tables, ROWS, units)
    for place, members in enumerate(SETS):
        assert curves.errors[place, 0] == pytest.approx(error_by_hand(members, tables, 1e9), rel=0.05)
        for share in (1e-4, 0.01, 0.5):
            deviation = np.sqrt(7.0 / share) / ROWS
            found = np.interp(share, curves.shares[place], curves.errors[place])
            assert found == pytest.approx(error_by_hand(members, tables, deviation), rel=0.05)


def test_curves_fall_and_are_convex():
    curves = predicted_curves(SETS, ones(), ROWS, np.full(len(SETS), 7.0))
    slopes = np.diff(curves.errors, axis=1) / np.diff(curves.shares, axis=1)
    assert np.all(slopes <= 1e-12)
    assert np.all(np.diff(slopes, axis=1) >= -1e-6 * np.abs(slopes[:, :-1]))


def objective(curves, workload, x):
    return (workload.errors(curves.at(x)) ** allocation.POWER).sum()


def test_no_other_division_is_better():
    curves = predicted_curves(SETS[:6], ones(), ROWS, np.full(6, 7.0))
    workload = Workloads(SETS[:6], TABLES)
    best = allocate(curves, workload, 0.8)
    assert best.shares.sum() == pytest.approx(0.8)
    least = objective(curves, workload, best.shares)
    rng = np.random.default_rng(1)
    for concentration in (1.0, 10.0, 100.0):
        for _ in range(100):
            other = 0.8 * rng.dirichlet(concentration * best.shares / best.shares.sum() * 6 + 1e-3)
            assert objective(curves, workload, other) > 0.995 * least


def test_larger_sets_are_measured_where_that_helps():
    workload = Workloads(SETS, TABLES)
    counts = []
    for unit in (1e4, 1e1, 1e-2, 1e-6):
        curves = predicted_curves(SETS, ones(), ROWS, np.full(len(SETS), unit))
        best = allocate(curves, workload, 0.8)
        measured = [s for s, x in zip(SETS, best.shares, strict=True) if x > 0 and len(s) == 3]
        for s in measured:
            place = SETS.index(s)
            assert curves.at(best.shares)[place] <= 1.02 * allocation.WORTHWHILE * curves.errors[place, 0]
        counts.append(len(measured))
    assert counts[0] == 0
    assert counts[-1] == 4
    assert counts == sorted(counts)


def test_what_was_spent_before_counts():
    curves = predicted_curves(SETS, ones(), ROWS, np.full(len(SETS), 7.0))
    spent = np.linspace(0, 0.1, len(SETS))
    after = curves.after(spent)
    for more in (0.0, 0.01, 0.3):
        np.testing.assert_allclose(after.at(np.full(len(SETS), more)), curves.at(spent + more), rtol=0.02)


def test_curves_are_replaced_set_by_set():
    curves = Curves(((0, 1), (0, 2)), np.tile([0.0, 0.1, 1.0], (2, 1)), np.tile([3.0, 2.0, 1.0], (2, 1)))
    other = curves.replaced({(0, 2): (np.array([0.0, 0.5, 2.0]), np.array([9.0, 5.0, 4.0]))})
    assert np.array_equal(other.errors[0], curves.errors[0])
    assert other.errors[1, 0] == 9.0
    assert other.errors[1, -1] == 4.0
