"""Numbers inside their bins: placed by measured means, in an order that columns share, codes as they were."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from dualquery.fitting.copula import _ndtri, hidden_normals
from dualquery.fitting.inside import inside, likeliest_spread, placed, tilted
from dualquery.fitting.measured import Measured, Numbers
from dualquery.loops import limited
from dualquery.queries.statistics import BinSums
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.encoding import decode, encode
from dualquery.table.records import MOST, Records, widths_of

DOMAIN = Domain(
    (
        Numeric("x", (0.0, 1.0, 3.0, 10.0)),
        Numeric("y", (0.0, 4.0, 20.0, 101.0), integer=True),
        Categorical("sex", ("f", "m")),
    )
)


def table(rows: int = 20_000, tied: float = 0.8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    z = rng.multivariate_normal([0, 0], [[1, tied], [tied, 1]], rows)
    return {
        "x": np.clip(np.exp(z[:, 0] * 0.8), 0, 10),
        "y": np.clip(np.exp(z[:, 1] + 2), 0, 100).astype(int),
        "sex": np.where(z.sum(axis=1) + rng.normal(0, 1, rows) > 0, "m", "f"),
    }


def records_of(given: dict[str, np.ndarray]) -> Records:
    import pyarrow as pa

    return encode(pa.table(given), DOMAIN)


def measured_of(records: Records, deviation: float) -> list[Measured]:
    sums = BinSums.of(DOMAIN)
    rng, found = np.random.default_rng(5), []
    for attribute, part in zip(sums.attributes, sums.split(sums.counts(records) / MOST), strict=True):
        noisy = part + rng.normal(0, deviation, len(part))
        found.append(Measured(Numbers("within", (attribute,)), noisy, deviation**2))
    return found


def test_numbers_have_the_means_that_were_measured() -> None:
    given = table()
    records = records_of(given)
    bare = Records(DOMAIN, records.rows, records.columns)
    made = placed(bare, measured_of(records, 1.0), records.rows, np.random.default_rng(1))
    for before, after in zip(records.columns, made.columns, strict=True):
        np.testing.assert_array_equal(before, after)  # so that no table changes
    found = decode(made).to_pydict()
    for name in ("x", "y"):
        assert np.mean(found[name]) == pytest.approx(np.mean(given[name]), abs=0.004 * np.std(given[name]))
    loose = decode(placed(bare, [], records.rows, np.random.default_rng(1))).to_pydict()
    assert abs(np.mean(loose["x"]) - given["x"].mean()) > 0.01 * given["x"].std()


def test_noise_that_drowns_everything_leaves_the_law_as_it_was() -> None:
    records = records_of(table())
    bare = Records(DOMAIN, records.rows, records.columns)
    drowned, law = (
        placed(bare, what, records.rows, np.random.default_rng(1)) for what in (measured_of(records, 1e7), [])
    )
    for one, other in zip(drowned.places[:2], law.places[:2], strict=True):
        assert np.abs(one.astype(float) - other).mean() < 0.02 * MOST


def test_the_order_inside_bins_carries_the_correlation_on() -> None:
    given = table()
    truth = np.corrcoef(given["x"], given["y"])[0, 1]
    records = records_of(given)
    hidden = hidden_normals(Records(DOMAIN, records.rows, records.columns), np.random.default_rng(2))
    assert np.corrcoef(hidden[0], hidden[1])[0, 1] == pytest.approx(0.8, abs=0.02)
    bare, means = Records(DOMAIN, records.rows, records.columns), measured_of(records, 1.0)
    tied = decode(placed(bare, means, records.rows, np.random.default_rng(1))).to_pydict()
    alone = Records(Domain(DOMAIN.columns[:1]), records.rows, records.columns[:1])
    free = decode(placed(alone, means[:1], records.rows, np.random.default_rng(1))).to_pydict()
    off = [abs(np.corrcoef(x["x"], tied["y"])[0, 1] - truth) for x in (tied, free)]
    assert off[0] < 0.5 * off[1]


def test_a_column_of_one_value_is_tied_to_nothing() -> None:
    """Its correlations cannot be told; taken for strong ones, they would tie all others to each other."""
    given = {**table(tied=0.0), "z": np.full(20_000, 2.5)}
    domain = Domain((*DOMAIN.columns, Numeric("z", (0.0, 1.0, 5.0))))
    import pyarrow as pa

    records = encode(pa.table(given), domain)
    bare = Records(domain, records.rows, records.columns)
    hidden = hidden_normals(bare, np.random.default_rng(2))
    assert set(hidden) == {0, 1}
    assert np.corrcoef(hidden[0], hidden[1])[0, 1] == pytest.approx(0.0, abs=0.03)
    assert placed(bare, [], records.rows, np.random.default_rng(1)).places[3] is not None


def test_quantiles_of_a_normal() -> None:
    for chance in (1e-300, 1e-12, 1e-6, 0.01, 0.074, 0.076, 0.5, 0.93, 1 - 1e-9):
        assert _ndtri(chance) == pytest.approx(NormalDist().inv_cdf(chance), rel=1e-6)


def test_places_are_the_same_on_any_number_of_threads() -> None:
    records = records_of(table())
    measured = measured_of(records, 30.0)
    found = []
    for number in (1, 2, 5):
        with limited(number):
            places = placed(records, measured, records.rows, np.random.default_rng(2)).places
        found.append([None if each is None else each.tobytes() for each in places])
    assert found[0] == found[1] == found[2]
    assert found[0][0] is not None


def test_how_far_off_a_bin_may_be() -> None:
    records = records_of(table())
    column, counts = DOMAIN.columns[0], np.bincount(records.columns[0], minlength=3).astype(float)
    unknown = inside(column, counts)
    assert unknown.together
    np.testing.assert_allclose(unknown.mean, widths_of(column) / 4)
    known, noisy = (inside(column, counts, measured_of(records, s)[0]) for s in (1.0, 500.0))
    assert not known.together
    assert (known.mean <= 1.01 * widths_of(column) / counts).all()
    assert (known.mean < noisy.mean).all()
    assert (known.quantile < unknown.quantile).all()


def test_tilted_quantiles_by_hand() -> None:
    quantiles = (np.arange(1000) + 0.5) / 1000
    for theta in (-800.0, -5.0, 0.0, 2.0, 900.0):
        found = tilted(quantiles, np.full(1000, theta))
        mean = 0.5 if theta == 0 else 1 / (1 - np.exp(-min(max(theta, -700), 700))) - 1 / theta
        assert found.mean() == pytest.approx(mean, abs=2e-3)
        assert (np.diff(found) >= 0).all()
    assert likeliest_spread(np.zeros(9), np.full(9, 0.1), np.full(9, 0.5)) == pytest.approx(0.02)
    assert likeliest_spread(np.full(9, 0.4), np.full(9, 0.01), np.full(9, 0.5)) > 0.6
