"""Student's law, Rubin's rules, and bars around a printed number."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dualquery.inference.estimates import CONTRADICTED, chance_below, combined, half_width, student


@pytest.mark.parametrize("freedom", [1.0, 2.5, 4.0, 19.0, 60.3, 199.0])
def test_student(freedom: float) -> None:
    for level in (0.5, 0.95, 0.99):
        assert student(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-6)
    for t in (-3.0, -0.1, 0.0, 1.0, 8.0):
        assert chance_below(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-9)


def test_more_freedom_is_as_good_as_normal() -> None:
    assert student(1e6) == pytest.approx(1.96, abs=0.02)


def test_rubin() -> None:
    rng = np.random.default_rng(3)
    draws, errors = rng.normal(5.0, 2.0, (20, 2)), np.array([[0.1, 9.0], [-0.1, -9.0]])
    rows = combined(["a", "b"], draws, np.zeros(2), errors, np.array([1.0, 1.0]), tested=True).to_pylist()
    between = 1.05 * draws[:, 0].var(ddof=1)
    assert rows[0]["estimate"] == pytest.approx(draws[:, 0].mean())
    assert rows[0]["se"] == pytest.approx(between**0.5)
    assert rows[0]["high"] - rows[0]["estimate"] == pytest.approx(stats.t.ppf(0.975, 19) * between**0.5)
    freedom = 19 * (1 + 1 / between) ** 2
    assert rows[0]["population_se"] == pytest.approx((between + 1) ** 0.5)
    assert rows[0]["population_high"] - rows[0]["estimate"] == pytest.approx(
        stats.t.ppf(0.975, freedom) * (between + 1) ** 0.5
    )
    assert rows[0]["p"] == pytest.approx(
        2 * stats.t.sf(rows[0]["estimate"] / rows[0]["population_se"], freedom), rel=1e-6
    )
    assert rows[0]["noise"] == pytest.approx(between**0.5)
    assert rows[1]["se"] == pytest.approx(9.0)  # the replicas say more


def test_without_measurements_the_replicas_and_the_places_add_up() -> None:
    errors = np.array([[3.0], [-3.0], [3.0], [3.0]])
    row = combined(["a"], None, np.array([7.0]), errors, np.array([1.0])).to_pylist()[0]
    assert row["estimate"] == 7.0
    assert row["high"] == pytest.approx(7 + stats.t.ppf(0.975, 4) * 3)


def test_what_says_nothing_is_null_with_the_reason() -> None:
    draws = np.random.default_rng(1).normal(0.0, 30.0, (20, 2))
    draws[3, 1] = np.nan
    loud, gone = combined(["a", "b"], draws, np.zeros(2), np.zeros((0, 2)), np.ones(2)).to_pylist()
    assert loud["estimate"] is loud["low"] is None
    assert "times its sampling error" in loud["note"]
    assert "no number" in gone["note"]


def test_a_bar_counts_how_far_the_draws_lie_from_what_is_printed() -> None:
    none = np.zeros(0)
    around = np.full(20, 2.0)  # all draws on one side
    assert half_width(none, around, measured=True) == pytest.approx(
        stats.t.ppf(0.975, 19) * (1.05 * 4) ** 0.5
    )
    assert half_width(np.full(4, 9.0), around, measured=True) == pytest.approx(stats.t.ppf(0.975, 19) * 9)
    pooled = half_width(np.full(4, 3.0), around, measured=True)  # 9 is below 4.5 · 4.2
    assert pooled == pytest.approx(stats.t.ppf(0.975, 23) * ((19 * 4.2 + 4 * 9) / 23) ** 0.5)
    assert stats.f.ppf(0.99, 4, 19) == pytest.approx(CONTRADICTED, abs=0.01)
    both = half_width(np.full(4, 3.0), around, measured=False)
    assert both == pytest.approx(stats.t.ppf(0.975, 4) * (9 + 1.05 * 4) ** 0.5)
    around[:6] = np.nan
    assert np.isnan(half_width(none, around, measured=True))
    assert np.isnan(half_width(none, np.ones(20), measured=False))  # nobody has seen the noise


def test_bars_of_normal_numbers_hold_as_often_as_they_say() -> None:
    """Draws and replicas of one variance: with the larger of both, 97 of 100 would hold."""
    rng = np.random.default_rng(5)
    held = [
        abs(error) <= half_width(rng.normal(size=4), rng.normal(size=20), measured=True)
        for error in rng.normal(size=4_000)
    ]
    assert np.mean(held) == pytest.approx(0.955, abs=0.01)
