"""What a measured pair says of smooth dependence, and rows that lean to its slope."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualquery.fitting import fit as fits
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import PRODUCTS, SCORES, Measured, MeasuredTables, Numbers
from dualquery.fitting.smooth import (
    FOLLOWED,
    LOOSE,
    MOST_LEAN,
    STRENGTH,
    UNMEASURED,
    Slopes,
    eigen,
    heard_of,
    scores_of,
    smoothed,
    tilted,
)
from dualquery.inference.moments import Posterior
from dualquery.queries.tables import centred
from dualquery.table.domain import Categorical, Domain, Numeric

BINS, RECORDS = 12, 5_000
DOMAIN = Domain(
    (
        Numeric("x", tuple(map(float, range(BINS + 1)))),
        Numeric("y", tuple(map(float, range(BINS + 1)))),
        Categorical("sex", ("f", "m")),
    )
)
PLACES = np.arange(BINS) + 0.5
SHARES = np.exp(-0.5 * ((PLACES - 6) / 2.5) ** 2)
SHARES /= SHARES.sum()


def joint(correlation: float, bend: float = 0.0) -> np.ndarray:
    """A table of x and y whose means are tied, and the mean of y bends with x."""
    x = (PLACES - 6) / 2.5
    table = np.exp(
        -0.5 * (x[None, :] - correlation * x[:, None] - bend * x[:, None] ** 2) ** 2 / (1 - correlation**2)
    )
    return SHARES[:, None] * table / table.sum(axis=1, keepdims=True)


def measured(table: np.ndarray, variance: float, seed: int = 0) -> MeasuredTables:
    rng = np.random.default_rng(seed)

    def seen(cells: np.ndarray, noise: float) -> np.ndarray:
        found = cells + noise * rng.standard_normal(cells.shape)
        for axis in range(cells.ndim):
            found = found - found.mean(axis=axis, keepdims=True)
        return found

    both = RECORDS * table
    parts = [
        Measured((), np.array(float(RECORDS)), 0.0),
        Measured((0,), seen(both.sum(axis=1), 5.0), 25.0),
        Measured((1,), seen(both.sum(axis=0), 5.0), 25.0),
        Measured((0, 1), seen(both, variance**0.5), variance),
    ]
    return MeasuredTables.of(DOMAIN, parts)


def slope(table: np.ndarray) -> float:
    p, q = table.sum(axis=1), table.sum(axis=0)
    x, y = PLACES - p @ PLACES, PLACES - q @ PLACES
    return float(x @ table @ y / np.sqrt((p @ x**2) * (q @ y**2)))


def test_the_posterior_is_that_of_normal_laws() -> None:
    """All contrasts at once: mean Σ (Σ + t)⁻¹ z, in cells, with τ where nothing says that it is larger."""
    known = measured(joint(0.1), 900.0)
    ones = [known.ones()[j] for j in (0, 1)]
    left, right = (eigen(DOMAIN, j, ones[j], PLACES) for j in (0, 1))
    found = smoothed(known, (0, 1), known.ones(), left, right)
    noise = 900.0 / RECORDS**2
    covariance = STRENGTH**2 * np.kron(
        left.turned * left.values @ left.turned.T, right.turned * right.values @ right.turned.T
    )
    seen = known.interactions[0, 1] / RECORDS - centred(np.outer(*ones))
    by_hand = covariance @ np.linalg.solve(covariance + noise * np.eye(BINS**2), seen.ravel())
    assert left.turned @ found.mean @ right.turned.T == pytest.approx(by_hand.reshape(BINS, BINS), abs=1e-7)


def test_what_bends_is_not_taken_for_a_line() -> None:
    """Strong dependence that no line follows: a prior that holds it for unlikely makes its slope too small."""
    bent = joint(0.6, -0.25)
    off = []
    for seed in range(10):
        known = measured(bent, 400.0, seed)
        off.append(Slopes.of(known, known.ones()).likely[0, 1] - slope(bent))
    assert abs(np.mean(off)) < 0.05


def test_noise_alone_has_no_slope() -> None:
    found = []
    for seed in range(20):
        known = measured(np.outer(SHARES, SHARES), 900.0, seed)
        found.append(Slopes.of(known, known.ones()).likely[0, 1])
    raw = 30.0 / RECORDS * ((PLACES - 6) ** 2).sum() / (SHARES @ (PLACES - 6) ** 2)
    assert np.std(found) < 0.9 * raw
    assert abs(np.mean(found)) < 0.05


def places(shares: np.ndarray) -> np.ndarray:
    moved = PLACES - shares @ PLACES
    return moved / np.sqrt(shares @ moved**2)


@pytest.mark.parametrize("wanted", [-0.1, 0.1, 0.2])
def test_factors_give_the_slope_and_keep_the_margins(wanted: float) -> None:
    """Of a table in which a tenth is as if independent."""
    table = joint(0.1)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    products = np.outer(places(rows), places(columns))
    loose = (1 - LOOSE) * table + LOOSE * np.outer(rows, columns)
    made = loose * tilted(table, products, wanted)
    assert (made * products).sum() == pytest.approx(wanted, abs=5e-3)
    assert made.sum(axis=1) == pytest.approx(rows, rel=1e-3)
    assert made.sum(axis=0) == pytest.approx(columns, rel=0.02)


def test_what_no_factor_gives_is_approached() -> None:
    table = joint(0.1)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    products = np.outer(places(rows), places(columns))
    near, far = (tilted(table, products, wanted) for wanted in (0.2, 50.0))
    assert (table * far * products).sum() > (table * near * products).sum()
    assert np.isfinite(far).all()


def test_rows_that_have_their_slope_lean_nowhere() -> None:
    known = measured(joint(0.15), 400.0)
    slopes = Slopes.of(known, known.ones())
    x, y = slopes.places[0], slopes.places[1]
    answer = np.outer(known.ones()[0], known.ones()[1])
    for _ in range(30):  # looseness takes a tenth of a slope away each time
        loose = (1 - LOOSE) * answer + LOOSE * np.outer(answer.sum(axis=1), answer.sum(axis=0))
        answer = loose * tilted(answer, np.outer(x, y), slopes.likely[0, 1])
        answer = answer / answer.sum()
    assert (answer * np.outer(x, y)).sum() == pytest.approx(slopes.likely[0, 1], abs=0.01)
    assert np.abs(slopes.leans({(0, 1): answer})[0, 1]).max() <= 0.2 * MOST_LEAN / FOLLOWED


def test_rows_do_not_follow_noise() -> None:
    """What lies no farther off than the slope is uncertain moves nothing; what lies far moves nearly all the way."""
    known = measured(joint(0.0), 900.0)
    slopes = Slopes.of(known, known.ones())
    x, y = slopes.places[0], slopes.places[1]
    ones = np.outer(known.ones()[0], known.ones()[1])
    deviation = slopes.variance[0, 1] ** 0.5
    near, far = (
        replace(slopes, likely={(0, 1): times * deviation}).leans({(0, 1): ones})[0, 1]
        for times in (0.9, 4.0)
    )
    assert np.abs(near).max() < 5e-3 * np.abs(np.outer(x, y)).max()
    assert np.abs(far).max() == pytest.approx(MOST_LEAN)


def test_margins_of_rows_stay_where_tails_are_long() -> None:
    """A lean along the tails alone would put rows there: means of both would be off."""
    shares = np.exp(-0.9 * np.arange(BINS))
    shares /= shares.sum()
    x = places(shares)
    tied = np.outer(shares, shares) * (1 + np.clip(0.25 * np.outer(x, x), -0.9, 4.0))
    tied /= tied.sum()
    off = []
    for seed in range(4):
        known = measured(tied, 400.0, seed)
        made = fits.fit(
            known, Effort.of(8_000), np.random.default_rng(seed), nothing, at_once=False, likely=1.0
        )
        off.append(np.bincount(made[:, 0], minlength=BINS) / len(made) - known.ones()[0])
    assert abs(float(np.mean(off, axis=0) @ x)) < 0.1


def nothing(done: int, total: int) -> None:
    return None


def test_rows_come_to_have_the_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dependence that lies in many cells, none of which is clear."""

    def of_rows(seed: int) -> float:
        known = measured(joint(0.3), 400.0, seed)
        made = fits.fit(
            known,
            Effort.of(8_000),
            np.random.default_rng(seed),
            lambda done, total: None,
            at_once=False,
            likely=1.0,
        )
        table = np.zeros((BINS, BINS))
        np.add.at(table, (made[:, 0], made[:, 1]), 1 / len(made))
        return slope(table)

    leaning = np.mean([of_rows(seed) for seed in range(6)])
    monkeypatch.setattr(fits.PairTargets, "lean_to_slopes", lambda *given: None)
    usual = np.mean([of_rows(seed) for seed in range(6)])
    truth = slope(joint(0.3))
    assert abs(truth - leaning) < 0.75 * abs(truth - usual)
    assert usual < 0.85 * truth


def test_only_ordered_pairs_that_were_measured_have_a_slope() -> None:
    known = measured(joint(0.4), 400.0)
    assert list(Slopes.of(known, known.ones()).likely) == [(0, 1)]
    more = known.joined([Measured((0, 2), np.zeros((BINS, 2)), 400.0), Measured((2,), np.zeros(2), 25.0)])
    assert list(Slopes.of(more, more.ones()).likely) == [(0, 1), (0, 2)]


def heard(known: MeasuredTables, table: np.ndarray, deviation: float) -> tuple[MeasuredTables, float]:
    """With the product of scores, as if without noise, and the correlation of scores."""
    scores = [scores_of(DOMAIN, j, known.ones()[j]) for j in (0, 1)]
    product = float(scores[0] @ table @ scores[1])
    spread = np.prod([np.sqrt(known.ones()[j] @ scores[j] ** 2) for j in (0, 1)])
    told = [Measured(Numbers(SCORES, (j,)), scores[j], 0.0) for j in (0, 1)]
    told.append(
        Measured(Numbers(PRODUCTS, (0, 1)), np.array([RECORDS * product]), (RECORDS * deviation) ** 2)
    )
    return replace(known, inside=tuple(told)), product / spread


def test_scores_are_places_among_the_records() -> None:
    scores = scores_of(DOMAIN, 0, SHARES)
    assert SHARES @ scores == pytest.approx(0.0, abs=1e-12)
    assert SHARES @ scores**2 == pytest.approx(1 / 3, rel=0.05)
    assert (np.diff(scores) > 0).all()
    assert np.abs(scores).max() < 1


def test_products_are_believed_where_tables_say_little() -> None:
    table = joint(0.4)
    noisy = measured(table, 6_400.0, seed=3)
    known, wanted = heard(noisy, table, 0.002)
    slopes = Slopes.of(known, known.ones())
    assert slopes.by_scores == {(0, 1)}
    assert slopes.likely[0, 1] == pytest.approx(wanted, abs=0.02)
    precise, _ = heard(measured(table, 4.0), table, 0.2)
    alone = Slopes.of(replace(precise, inside=()), precise.ones())
    assert Slopes.of(precise, precise.ones()).likely[0, 1] == pytest.approx(alone.likely[0, 1], abs=2e-3)
    left_out = replace(
        known,
        interactions={k: v for k, v in known.interactions.items() if len(k) < 2},
        variance={k: v for k, v in known.variance.items() if len(k) < 2},
    )
    slopes = Slopes.of(left_out, left_out.ones())
    prior = (UNMEASURED**2 + wanted**2) / 2  # one product, and one as seen before
    noise = (0.002 / (1 / 3)) ** 2
    assert slopes.likely[0, 1] == pytest.approx(wanted * prior / (prior + noise), abs=0.02)


def test_products_of_a_column_that_hardly_varies_are_not_heard() -> None:
    """They are but noise, and would make correlations that nobody measured as likely as the largest."""
    table = np.zeros((BINS, BINS))
    table[:, 3] = SHARES
    known, _ = heard(measured(table, 400.0), table, 0.02)
    told = heard_of(
        replace(known, inside=(*known.inside[:2], replace(known.inside[2], values=np.full(1, 300.0))))
    )
    assert not told.products
    assert told.prior == pytest.approx(UNMEASURED**2)


def test_draws_are_moved_to_what_was_heard() -> None:
    """Matheron's rule: mean and covariance are those of normal laws given one linear number with noise."""
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(2, 3)), rng.uniform(0.5, 2.0, (2, 3))
    left, right, product, noise = rng.normal(size=2), rng.normal(size=3), 1.5, 0.3
    given = Posterior(mean, variance, np.eye(2), np.eye(3), (product, noise, left, right))
    drawn = np.array([given.drawn(rng).ravel() for _ in range(20_000)])
    along, prior = np.outer(left, right).ravel(), np.diag(variance.ravel())
    gain = prior @ along / (along @ prior @ along + noise**2)
    assert drawn.mean(axis=0) == pytest.approx(
        mean.ravel() + gain * (product - along @ mean.ravel()), abs=0.05
    )
    assert np.cov(drawn.T) == pytest.approx(prior - np.outer(gain, along) @ prior, abs=0.06)
