"""Imputations: weights that follow moments, numbers inside bins, and how far they spread."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualquery.errors import QueryError
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.inference import draws as room
from dualquery.inference.draws import Imputations
from dualquery.inference.inside import drawn_numbers, placed, tilted
from dualquery.inference.moments import UNMEASURED, _rare_told, moments_of
from dualquery.inference.tilt import Tilting, systematic
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.records import Records

DOMAIN = Domain(
    (
        Numeric("age", tuple(float(each) for each in range(0, 90, 10)), integer=True),
        Categorical("sex", ("f", "m")),
        Numeric("hours", tuple(float(each) for each in range(0, 70, 10)), missing="missing"),
        Categorical("group", ("a", "b", "c")),
    )
)


def table(rows: int, seed: int) -> Records:
    """Related attributes: older men work longer."""
    rng = np.random.default_rng(seed)
    age, sex = rng.integers(0, 8, rows), rng.integers(0, 2, rows)
    hours = np.clip(np.round(age / 3 + sex + rng.normal(0, 1, rows)), 0, 6).astype(int)
    return Records.from_rows(DOMAIN, np.stack([age, sex, hours, rng.integers(0, 3, rows)], axis=1))


def measured(records: Records, deviation: float, seed: int, pairs: Any = None) -> MeasuredTables:
    """Its interactions with noise, those of these pairs."""
    rng, told = np.random.default_rng(seed), []
    wanted = list(combinations(range(4), 2)) if pairs is None else pairs
    told.append(Measured((), np.array(float(records.rows)), 0.0))
    for members in [(j,) for j in range(4)] + wanted:
        cells = Tables(DOMAIN, (members,)).counts(records).reshape([int(DOMAIN.sizes[j]) for j in members])
        told.append(
            Measured(
                members, centred(cells + rng.normal(0, deviation, cells.shape)), max(deviation, 1e-6) ** 2
            )
        )
    return MeasuredTables.of(DOMAIN, told)


def correlation(of: Imputations, one: int = 0, other: int = 2) -> Any:
    """Of codes, in every draw."""
    drawn = of.of([one, other])
    x, y = (room.whole_codes(of.released, j)[drawn.rows] for j in (one, other))
    return np.array(
        [
            np.cov(x, y, aweights=w)[0, 1] / np.sqrt(np.cov(x, aweights=w) * np.cov(y, aweights=w))
            for w in drawn.weights
        ]
    )


def test_weights_follow_moments() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 5))
    wanted = np.array([0.3, -0.2, 0.1, 0.0, 0.4])
    tilting = Tilting(rows, np.full(5, 1e-6))
    for scale in (0.0, 1.0, -1.0):  # the curvature of one is used for the next
        weights = tilting.weights(scale * wanted)
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights @ rows, scale * wanted, atol=2e-3)
    assert (
        1 / (Tilting(rows, np.full(5, 1e-6)).weights(np.zeros(5)) ** 2).sum() > 3900
    )  # no more than is asked for


def test_moments_that_no_table_has_are_approached() -> None:
    rows = np.random.default_rng(0).choice([0.0, 1.0], (2000, 2))
    rows = np.column_stack([rows, rows.prod(axis=1)])
    weights = Tilting(rows, np.full(3, 0.01)).weights(np.array([0.2, 0.3, 0.6]))  # P(A and B) > P(A)
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)


def test_systematic_places_are_as_often_as_weights_say() -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(50))
    held = np.bincount(systematic(weights, 1000, 0.37), minlength=50)
    assert held.sum() == 1000
    assert (abs(held - 1000 * weights) <= 1).all()


def test_the_tilted_law_has_its_mean() -> None:
    ranks = (np.arange(20_000) + 0.5) / 20_000
    for mean in (0.02, 0.2, 0.4999, 0.5, 0.7, 0.98):
        found = tilted(ranks, np.full(len(ranks), mean))
        assert found.mean() == pytest.approx(mean, abs=2e-3)
        assert (np.diff(found) >= 0).all()
        assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("known", [False, True])
def test_numbers_stay_in_their_bins_and_move_inside(known: bool) -> None:
    column = DOMAIN.columns[0]
    assert isinstance(column, Numeric)
    codes = np.random.default_rng(2).integers(0, 8, 4000)
    numbers = column.spread_out(codes.astype(np.uint8))
    sums = None
    if known:  # numbers lie at .8 of their bins, and this was measured
        numbers = 10.0 * codes + 8
        sums = Measured(Numbers("within", (0,)), np.full(8, 0.3 * 500), 25.0)
    of = placed(column, codes, numbers, sums, 4000)
    means = []
    for seed in range(40):
        found = drawn_numbers(of, np.arange(4000), np.random.default_rng(seed))
        assert (np.minimum(found // 10, 7) == codes).all()
        assert (found == np.floor(found)).all()
        means.append((found / 10 - codes)[codes == 3].mean())
    if known:
        assert np.mean(means) == pytest.approx(0.8, abs=0.03)
        assert np.std(means) < 0.05
    else:
        assert np.mean(means) == pytest.approx(0.45, abs=0.15)
        assert np.std(means) > 0.2  # anywhere


def test_a_pair_that_was_never_measured_spreads() -> None:
    rows = table(6000, 1)
    codes = {j: room.whole_codes(rows, j) for j in range(4)}
    places = {j: np.arange(int(DOMAIN.sizes[j]), dtype=float) for j in range(4)}
    kept = moments_of(measured(rows, 1.0, 0, [(0, 1)]), [0, 1, 2], [], codes, places)
    rng = np.random.default_rng(0)
    drawn = np.array([kept.drawn(rng)[1] for _ in range(300)])
    names = [tuple(j for j, _ in name.factors) for name in kept.names]
    spread = dict(zip(names, drawn.std(axis=0), strict=True))
    assert spread[0, 1] < 0.01
    assert spread[0, 2] == pytest.approx(UNMEASURED, rel=0.15)
    np.testing.assert_allclose(kept.variances()[0], spread[0, 1] ** 2, rtol=0.5)


def test_without_noise_draws_have_what_was_measured() -> None:
    """Also where the released rows know of no dependence at all."""
    private = table(5000, 1)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.permutation(room.whole_codes(private, j)) for j in range(4)], axis=1)
    made = correlation(Imputations(Records.from_rows(DOMAIN, rows), measured(private, 0.0, 0), 5000, 7))
    x, y = (room.whole_codes(private, j) for j in (0, 2))
    assert made.mean() == pytest.approx(np.corrcoef(x, y)[0, 1], abs=0.03)
    assert made.std() < 0.01


def held(understated: float) -> float:
    """How often ± 2.09 deviations of the draws hold the correlation of the private table."""
    inside = []
    for seed in range(20):
        private = table(1000, seed)
        told = measured(private, 25.0, 100 + seed)
        told = MeasuredTables(
            DOMAIN, told.interactions, {s: v / understated**2 for s, v in told.variance.items()}, told.total
        )
        made = correlation(Imputations(table(2000, 500 + seed), told, 1000, seed))
        x, y = (room.whole_codes(private, j) for j in (0, 2))
        off = abs(made.mean() - np.corrcoef(x, y)[0, 1])
        inside.append(off <= 2.09 * (1.05 * made.var(ddof=1)) ** 0.5)
    return float(np.mean(inside))


def test_draws_spread_as_far_as_they_are_off() -> None:
    assert held(1.0) >= 0.8


@pytest.mark.long
def test_draws_of_understated_noise_would_be_noticed() -> None:
    assert held(4.0) <= 0.7


def test_a_tail_is_as_long_as_the_mean_says_where_that_is_known() -> None:
    """Twelve of twenty bins hold nobody, and a table cut at zero gives them records."""
    line, like = np.arange(20.0), np.exp(-np.arange(20.0)) * (np.arange(20) < 8)
    like /= like.sum()
    cut = like + 0.002 * (np.arange(20) >= 8)
    cut /= cut.sum()
    told = {noise: _rare_told(cut, line, like, noise) for noise in (0.0008, 0.1)}
    assert cut @ line - like @ line > 0.2
    assert told[0.0008] @ line == pytest.approx(like @ line, abs=0.02)
    assert told[0.1] @ line == pytest.approx(cut @ line, abs=0.02)
    assert _rare_told(cut, line, like, 1e-6) == pytest.approx(cut)  # nothing is rare


def test_the_same_release_gives_the_same_draws() -> None:
    private = table(1000, 0)
    one, other = (Imputations(table(2000, 9), measured(private, 5.0, 0), 1000, 3) for _ in range(2))
    np.testing.assert_array_equal(one.of([0, 1]).weights, other.of([1, 0]).weights)
    assert one.of([0, 1]) is one.of([1, 0])
    for a, b in zip(one.by_chance(one.of([0, 1])), other.by_chance(other.of([0, 1])), strict=True):
        assert a.num_rows == 1000
        assert a.equals(b)


def test_too_many_attributes_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_MOMENTS", 10)
    with pytest.raises(QueryError, match="name fewer"):
        Imputations(table(2000, 9), measured(table(1000, 0), 5.0, 0), 1000, 3).of([0, 1, 2, 3])
