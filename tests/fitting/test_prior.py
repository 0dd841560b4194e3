"""Public rows as a start: weights of least entropy by definition, independent halves of noise, a gate that closes."""

from __future__ import annotations

import math
from itertools import combinations

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from dualquery.fitting.fit import fit
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.fitting.prior import Dependence, Reweighted, Support, fit_with_prior, thinned
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.reweighting import WeighedRows, joined, least, reweighted
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

SIZES = (3, 2, 4, 3, 5)
DOMAIN = Domain(tuple(Categorical(f"c{j}", tuple(map(str, range(k)))) for j, k in enumerate(SIZES)))
SETS = tuple(s for order in (1, 2) for s in combinations(range(len(SIZES)), order))
EFFORT = Effort.of(20_000)


def population(rows: int, seed: int) -> NDArray[np.int32]:
    """A chain of attributes, each leaning on the one before."""
    rng = np.random.default_rng(seed)
    out = np.empty((rows, len(SIZES)), np.int32)
    out[:, 0] = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    for j in range(1, len(SIZES)):
        k = SIZES[j]
        follows = rng.random(rows) < 0.7
        out[:, j] = np.where(follows, out[:, j - 1] % k, rng.integers(0, k, rows) // 2)
    return out


def measured(codes: NDArray[np.int32], deviation: float, seed: int) -> MeasuredTables:
    """All interactions of one and two attributes, with centred noise."""
    rng, tables = np.random.default_rng(seed), Tables(DOMAIN, SETS)
    counts = tables.counts(Records.from_rows(DOMAIN, codes)).astype(np.float64)
    told = [
        Measured(s, centred(cells + rng.normal(0, deviation, cells.shape)), deviation**2)
        for s, cells in zip(SETS, tables.split(counts), strict=True)
    ]
    return MeasuredTables.rows(DOMAIN, len(codes), 0.0).joined(told)


def wrong(codes: NDArray[np.int32], rows: NDArray[np.integer]) -> float:
    """The mean L1 error of tables of two attributes."""
    tables = Tables(DOMAIN, tuple(s for s in SETS if len(s) == 2))
    answers = [
        tables.counts(Records.from_rows(DOMAIN, each.astype(np.int32))) / len(each) for each in (codes, rows)
    ]
    return float(np.abs(answers[0] - answers[1]).sum() / len(tables.sets))


def without(
    known: MeasuredTables, effort: Effort, rng: np.random.Generator, tell: object
) -> NDArray[np.integer]:
    return fit(known, effort, rng, lambda done, total: None, at_once=False)


def released(
    known: MeasuredTables, public: NDArray[np.int32], seed: int = 3
) -> tuple[float, NDArray[np.integer]]:
    rng = np.random.default_rng(seed)
    rows, trust = fit_with_prior(known, PublicRows.of(public), EFFORT, rng, lambda done, total: None, without)
    return trust.share, rows


def test_least_of_a_quadratic() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    curve, slope = root @ root.T + np.eye(12), rng.normal(size=12)
    found = least(lambda x: (0.5 * x @ curve @ x - slope @ x, curve @ x - slope), np.zeros(12), 200)
    assert found == pytest.approx(np.linalg.solve(curve, slope), abs=1e-4)


def test_weights_are_those_of_least_entropy() -> None:
    """Against the problem itself, minimised over the weights of few rows."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    codes = population(8, 5)
    tables = Tables(DOMAIN, ((0,), (1,), (0, 1), (1, 2)))
    rows = WeighedRows.of(codes, tables)
    prior, target = rng.dirichlet(np.ones(8)), rng.normal(0, 0.2, tables.size)
    penalty = np.repeat(rng.uniform(0.01, 0.1, len(tables.sets)), np.diff(tables.starts))
    target = rows.centred(target)

    def primal(z: NDArray[np.float64]) -> float:
        w = np.exp(z - z.max())
        w /= w.sum()
        off = target - rows.centred(rows.totals(w))
        return float((w * np.log(w / prior)).sum() + (off**2 / (2 * penalty)).sum())

    best = minimize(primal, np.log(prior), method="BFGS", options={"gtol": 1e-8}).x
    best = np.exp(best - best.max())
    assert reweighted(rows, prior, target, penalty, 200) == pytest.approx(best / best.sum(), abs=1e-5)


def test_the_same_bytes_by_any_number_of_threads() -> None:
    codes = population(20_000, 2)
    rows = WeighedRows.of(codes, Tables(DOMAIN, SETS))
    numbers = np.random.default_rng(0).normal(size=rows.tables.size)
    weights = np.random.default_rng(1).random(len(codes))
    most = numba.get_num_threads()
    told = []
    for threads in (1, most):
        numba.set_num_threads(threads)
        told.append((rows.said(numbers).tobytes(), rows.totals(weights).tobytes()))
    numba.set_num_threads(most)
    assert told[0] == told[1]


def test_tables_of_weighted_rows_by_definition() -> None:
    codes = population(50, 3)
    weights = np.random.default_rng(1).random(50)
    for members, cells in zip(
        SETS, WeighedRows.of(codes, Tables(DOMAIN, SETS)).answers(weights), strict=True
    ):
        by_hand = np.zeros(cells.shape)
        for row, weight in zip(codes, weights, strict=True):
            by_hand[tuple(row[list(members)])] += weight
        assert cells == pytest.approx(by_hand)


@pytest.mark.parametrize(("scale", "independent"), [(1.0, True), (0.5, False)])
def test_noise_is_thinned_into_independent_halves(scale: float, independent: bool) -> None:
    """Many numbers at once; a second half with another noise is not independent (the negative control)."""
    rng = np.random.default_rng(4)
    truth, deviation = np.zeros(20_000), 3.0
    known = MeasuredTables(DOMAIN, {(): np.array(1.0), (0,): truth + rng.normal(0, deviation, 20_000)},
                           {(): 0.0, (0,): deviation**2}, 1.0)  # fmt: skip
    first, second = thinned(known, rng)
    other = known.interactions[0,] + scale * (second.interactions[0,] - known.interactions[0,])
    together = float(np.corrcoef(first.interactions[0,], other)[0, 1])
    assert (abs(together) < 4 / math.sqrt(20_000)) is independent
    assert np.var(first.interactions[0,]) == pytest.approx(first.variance[0,], rel=0.05)
    assert np.var(second.interactions[0,]) == pytest.approx(second.variance[0,], rel=0.05)


def test_a_good_prior_helps_and_junk_does_not_hurt() -> None:
    codes, rng = population(2_000, 7), np.random.default_rng(8)
    known = measured(codes, 60.0, 9)
    alone = wrong(codes, without(known, EFFORT, np.random.default_rng(3), None))
    share, rows = released(known, population(3_000, 10))
    assert share == 1
    assert wrong(codes, rows) < 0.6 * alone
    junk = np.stack([rng.integers(0, k, 3_000) for k in SIZES], axis=1).astype(np.int32)
    _, rows = released(measured(codes, 10.0, 9), junk)
    alone = wrong(codes, without(measured(codes, 10.0, 9), EFFORT, np.random.default_rng(3), None))
    assert wrong(codes, rows) < 1.1 * alone


def test_a_column_that_the_prior_lacks_is_drawn_from_its_table() -> None:
    codes = population(2_000, 7)
    public = population(3_000, 10)
    public[:, 4] = -1
    _, rows = released(measured(codes, 30.0, 9), public)
    ones = [np.bincount(each[:, 4], minlength=5) / len(each) for each in (codes, rows.astype(np.int64))]
    assert ones[1] == pytest.approx(ones[0], abs=0.05)


def test_rows_are_drawn_as_often_as_they_weigh() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(30))
    domain = Domain((Categorical("a", tuple(map(str, range(30)))),))
    codes = np.arange(30, dtype=np.int32)[:, None]
    drawn = Reweighted(codes, weights).drawn(1_000, rng, Tables(domain, ((0,),)))
    assert len(drawn) == 1_000
    assert np.abs(np.bincount(drawn[:, 0], minlength=30) - 1_000 * weights).max() <= 2


def test_rows_that_are_drawn_keep_the_tables_of_the_weights() -> None:
    """Rounded one by one at random, cells would be off by about ½ √(rows in the cell)."""
    codes = population(5_000, 3).astype(np.int32)
    weights = np.random.default_rng(1).exponential(size=len(codes))
    tables = Tables(DOMAIN, tuple(combinations(range(len(SIZES)), 2)))
    drawn = Reweighted(codes, weights).drawn(3_000, np.random.default_rng(2), tables)
    wanted = 3_000 * WeighedRows.of(codes, tables).totals(weights / weights.sum())
    held = WeighedRows.of(drawn, tables).totals(np.ones(len(drawn)))
    assert np.abs(held - wanted).mean() < 1.5


def test_masses_of_the_parts_are_as_wanted() -> None:
    public = PublicRows.of(population(100, 1))
    ones = {j: np.full(k, 1 / k) for j, k in enumerate(SIZES)}
    support = Support.of(public, ones, DOMAIN, np.random.default_rng(0))
    masses = np.array([0.7, 0.2, 0.1])
    mixed = support.mixed(support.base, masses)
    assert np.bincount(support.part, mixed) == pytest.approx(masses)


def test_joined_tables_keep_their_order() -> None:
    assert joined([np.array([[1.0, 2.0]]), np.array([3.0])]).tolist() == [1.0, 2.0, 3.0]


def test_public_rows_are_smoothed_as_far_as_their_halves_bear_out() -> None:
    """Many cells that pairs explain: rows fitted to the pairs stand in for most of a small sample. Where the third of
    three attributes is the parity of the others, pairs say nothing, and neither do such rows.
    """
    rng = np.random.default_rng(3)
    public = rng.integers(0, 8, (400, 3)).astype(np.int32)
    domain = Domain(tuple(Categorical(f"a{j}", tuple("01234567")) for j in range(3)))
    tables = Tables(domain, ((0, 1, 2),))

    def off(rows: PublicRows) -> float:
        held = WeighedRows.of(rows.codes, tables).totals(rows.weights / rows.weights.sum())
        return float(np.abs(held - 1 / 512).sum())

    plain = PublicRows.of(public)
    smooth = plain.smoothed(domain)
    assert smooth.number == 400
    assert off(smooth) < 0.8 * off(plain)
    bits = rng.integers(0, 2, (4_000, 3)).astype(np.int32)
    bits[:, 2] = bits[:, 0] ^ bits[:, 1]
    domain = Domain(tuple(Categorical(f"b{j}", ("0", "1")) for j in range(3)))
    parity = PublicRows.of(bits).smoothed(domain)
    assert parity.weights[4_000:].sum() < 0.05 * parity.weights.sum()


def test_what_public_rows_lack_is_not_made_up_and_few_are_left_as_they_are() -> None:
    public = population(400, 1)
    public[:, 2] = -1
    smooth = PublicRows.of(public).smoothed(DOMAIN)
    assert len(smooth.codes) > 400
    assert (smooth.codes[:, 2] == -1).all()
    assert (np.delete(smooth.codes, 2, axis=1) >= 0).all()
    few = PublicRows.of(population(50, 1))
    assert few.smoothed(DOMAIN) is few


def test_what_tests_a_prior_is_spent_where_it_says_most() -> None:
    codes, rng = population(2_000, 7), np.random.default_rng(8)
    known = measured(codes, 5.0, 9)
    pairs = [s for s in SETS if len(s) == 2]
    said = Dependence.of(known, pairs, PublicRows.of(population(3_000, 10)), rng)
    shares = said.shares
    assert shares[0, 1] > 3 * shares[0, 4]  # the farther apart in the chain, the less they depend
    told = [Measured(s, known.interactions[s], known.variance[s]) for s in pairs]
    assert said.borne_out_by(told, known.total)
    noise = [Measured(s, rng.normal(0, 5, known.interactions[s].shape), 25.0) for s in pairs]
    assert not said.borne_out_by(noise, known.total)
