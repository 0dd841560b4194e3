"""How far off questions about several items may be, where noise hides what rare items have in common."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.fitting.measured import Measured, Numbers
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.floors import ITEMS, PAIRS, UNSEEN, Baskets, floors
from dualquery.queries.families import from_texts
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records

WIDTH, PAIRED, RECORDS = 60, 40, 100_000
DOMAIN = Domain((Items("item", WIDTH),))
SHARES = 0.3 / np.arange(2, WIDTH + 2)


def counted(tau: float, noise: float, seed: int = 0) -> list[Measured]:
    """Items as they are, pairs by the prior, with noise, all in records."""
    rng = np.random.default_rng(seed)
    first = SHARES[:PAIRED]
    above = np.triu_indices(PAIRED, 1)
    spread = np.sqrt(first * (1 - first))
    pairs = np.outer(first, first) + tau * np.outer(spread, spread) * rng.standard_normal((PAIRED, PAIRED))
    told = RECORDS * pairs[above] + noise * rng.standard_normal(len(above[0]))
    return [
        Measured(Numbers(ITEMS, tuple(range(WIDTH))), RECORDS * SHARES, 10.0**2),
        Measured(Numbers(PAIRS, tuple(range(PAIRED))), told, noise**2),
    ]


@pytest.mark.parametrize("tau", [0.02, 0.07, 0.3])
@pytest.mark.parametrize("noise", [1.0, 30.0])
def test_the_strength_of_ties_is_learned_from_noisy_pairs(tau: float, noise: float) -> None:
    found = [Baskets.of(counted(tau, noise, s), np.zeros(WIDTH), RECORDS).tau for s in range(8)]
    assert np.mean(found) == pytest.approx(tau, rel=0.15)


def test_noise_that_hides_all_leaves_the_prior() -> None:
    found = Baskets.of(counted(0.07, 1e7), np.zeros(WIDTH), RECORDS)
    assert found.tau == pytest.approx(UNSEEN, rel=0.05)
    assert Baskets.of(counted(0.07, 100.0)[:1], np.zeros(WIDTH), RECORDS).tau == UNSEEN


def test_errors_by_hand() -> None:
    alone = np.full(WIDTH, 0.001)
    baskets = Baskets.of(counted(0.07, 100.0), alone, RECORDS)
    asked = from_texts(
        DOMAIN, ["item[4] & item[8]", "item[4] & not item[51]", "item[4] & item[8] & item[10]"]
    )
    found = []
    for group in asked.groups:
        rows = group.products(np.arange(group.size))
        found += baskets.errors(rows.predicates, rows.literals).tolist()
    tau, sigma, p = baskets.tau, 100.0 / RECORDS, SHARES
    v = p * (1 - p)

    def tied(i: int, j: int) -> float:
        prior = tau**2 * v[i] * v[j]
        return prior * sigma**2 / (prior + sigma**2) if max(i, j) < PAIRED else prior

    one = 1e-6 * (p[3] ** 2 + p[7] ** 2) + tied(3, 7)
    two = 1e-6 * ((1 - p[50]) ** 2 + p[3] ** 2) + tied(3, 50)
    parts = [(3, 7, 9), (3, 9, 7), (7, 9, 3)]
    three = sum(tied(i, j) * p[k] ** 2 + 1e-6 * (p[i] * p[j]) ** 2 for i, j, k in parts)
    three += tau**2 * v[3] * v[7] * v[9]
    assert found == pytest.approx(np.sqrt([one, two, three]))


def test_bars_of_a_release_are_not_below_it() -> None:
    """Rows without any ties, and what was counted says that there are."""
    rng = np.random.default_rng(0)
    released = Records.from_rows(DOMAIN, rng.random((5_000, WIDTH)) < SHARES)
    asked = from_texts(DOMAIN, ["item[41] & item[51]"])
    (group,) = asked.groups
    least, more = floors(group, asked.fractions(released), counted(0.07, 100.0), released, RECORDS)
    v = SHARES[[40, 50]] * (1 - SHARES[[40, 50]])
    assert least[0] >= 0.9 * BAR * 0.07 * np.sqrt(v.prod())
    assert more == pytest.approx([0.0])


def test_the_law_of_three() -> None:
    """A kind of baskets, a share π, holds its items more often: correlation c, and c^(3/2)/√π of three."""
    kind, lift, base = 0.02, 0.5, 0.01
    p = kind * lift + (1 - kind) * base
    v = p * (1 - p)
    two = (kind * lift**2 + (1 - kind) * base**2 - p**2) / v
    three = (kind * (lift - p) ** 3 + (1 - kind) * (base - p) ** 3) / v**1.5
    assert three == pytest.approx(two**1.5 / np.sqrt(kind), rel=0.05)
