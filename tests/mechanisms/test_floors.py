"""What replicas cannot see: the noise of one-way tables, and pairs that were never measured together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dualquery.fitting.measured import Measured, Numbers
from dualquery.fitting.prior import Trust
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.floors import MISFITS, ON_ONE_SIDE, UNSEEN, floors
from dualquery.queries.families import from_texts
from dualquery.queries.random_families import random_literals
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records

DOMAIN = Domain(
    tuple(Categorical(name, tuple(map(str, range(k)))) for name, k in (("a", 4), ("b", 2), ("c", 3)))
)
RECORDS = 1_000


def rows(seed: int = 0, number: int = 20_000) -> Records:
    rng = np.random.default_rng(seed)
    columns = [rng.choice(k, number, p=np.arange(1, k + 1) / (k * (k + 1) / 2)) for k in (4, 2, 3)]
    return Records.from_rows(DOMAIN, np.column_stack(columns))


def interaction(*members: int, variance: float = 100.0) -> Measured:
    """Of one attribute as the rows have it, of more none."""
    values = np.zeros([int(DOMAIN.sizes[j]) for j in members])
    if len(members) == 1:
        codes = rows().to_rows()[:, members[0]]
        values = RECORDS * (np.bincount(codes, minlength=len(values)) / len(codes) - 1 / len(values))
    return Measured(members, values, variance)


def asked(*texts: str) -> Workload:
    return from_texts(DOMAIN, list(texts))


def found(texts: list[str], *measured: Measured):  # type: ignore[no-untyped-def]
    released, workload = rows(), asked(*texts)
    (group,) = workload.groups
    return floors(group, workload.fractions(released), measured, released, RECORDS)


ONES = (
    interaction(0),
    interaction(1, variance=400.0),
    interaction(2, variance=0.0),
    Measured((), np.array(float(RECORDS)), 0.0),
)


def test_the_noise_of_one_attribute_is_that_of_its_interaction() -> None:
    least = found(["a = 0", "a in {1, 2}", "not a = 3", "b = 1", "c = 0"], *ONES).least
    by_hand = [100 * 3 / 4, 100 * 2 * 2 / 4, 100 * 3 / 4, 400 / 2, 0]
    assert least == pytest.approx(BAR * np.sqrt(by_hand) / RECORDS)


def test_noise_of_the_number_of_records_moves_what_is_not_even() -> None:
    least = found(["a = 3", "not a = 3"], *ONES[:3], Measured((), np.array(1000.0), 50.0**2)).least
    share = float((rows().to_rows()[:, 0] == 3).mean())
    by_hand = BAR * np.sqrt(75 + 2500 * (share - 0.25) ** 2) / RECORDS
    assert least == pytest.approx([by_hand, by_hand])


def test_noise_of_a_question_by_draws() -> None:
    """Centred noise in the cells of one attribute, summed over the cells that a question accepts."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(0, 10, (40_000, 4))
    drawn -= drawn.mean(axis=1, keepdims=True)
    (least,) = found(["a in {1, 2}"], *ONES).least
    assert drawn[:, 1:3].sum(axis=1).std() / RECORDS == pytest.approx(least / BAR, rel=0.02)


def test_items_are_counted_one_by_one_and_twice() -> None:
    domain = Domain((Items("item", 3),))
    released = Records.from_rows(domain, np.random.default_rng(0).random((500, 3)) < 0.3)
    asked_now = random_literals(domain, 1, 20, seed=0)
    (group,) = asked_now.groups
    counts = RECORDS * released.to_rows().mean(axis=0)
    once, again = (
        Measured(Numbers("totals", (0, 1, 2)), counts + off, v) for off, v in ((3.0, 100.0), (-9.0, 300.0))
    )
    least = floors(group, asked_now.fractions(released), (once, again), released, RECORDS).least
    assert least == pytest.approx(np.full(20, BAR * np.sqrt(75.0) / RECORDS))


def test_a_bar_holds_what_was_measured_where_rows_say_something_else() -> None:
    """Rows far from the measured number y: beyond y ± 1.645σ on one side lies one truth in twenty."""
    moved = Measured((0,), interaction(0).values + np.array([30.0, 0.0, 0.0, -30.0]), 100.0)
    least = found(["a = 0", "not a = 0", "a in {0, 3}", "a = 1"], moved, *ONES[1:]).least
    noise = np.sqrt(75.0)
    far, near = (30 + 1.6449 * noise) / RECORDS, BAR * noise / RECORDS
    assert least == pytest.approx([far, far, BAR * np.sqrt(100.0) / RECORDS, near], rel=1e-3)


def test_such_bars_hold_nineteen_of_twenty_truths_however_rows_shrink() -> None:
    rng, truth, noise = np.random.default_rng(5), 40.0, 10.0
    told = truth + noise * rng.standard_normal(20_000)
    for shrunk in (told, 0.7 * told, 0.3 * told):
        off = np.abs(shrunk - told)
        bar = np.maximum(BAR * noise, off + ON_ONE_SIDE * noise)
        assert 0.935 <= (np.abs(shrunk - truth) <= bar).mean() <= 0.985


def test_less_than_nothing_was_measured() -> None:
    """No truth is below 0: a bar need not reach there."""
    cells = interaction(0).values.copy()
    cells[0] = -RECORDS / 4 - 50.0
    (least,) = found(["a = 0"], Measured((0,), cells, 100.0), *ONES[1:]).least
    share = float((rows().to_rows()[:, 0] == 0).mean())
    assert least == pytest.approx(share + 1.6449 * np.sqrt(75.0) / RECORDS, rel=1e-3)


def test_nothing_is_added_where_all_pairs_were_measured_or_no_tables() -> None:
    pairs = [interaction(0, 1), interaction(0, 2), interaction(1, 2)]
    texts = ["a = 1 & b = 1", "a = 1 & b = 1 & c = 2"]
    assert found(texts, *ONES, *pairs).more == pytest.approx([0, 0])
    assert found(texts, Measured(Numbers("query"), np.zeros(1), 1.0)).more == pytest.approx([0, 0])


def shares() -> dict[str, tuple[float, float, float]]:
    """Of the values that questions are about: their share, the variance of its noise, and s of their attributes."""
    codes, out = rows().to_rows(), {}
    for name, j, value, noise in (("a", 0, 3, 75.0), ("b", 1, 1, 200.0), ("c", 2, 2, 0.0)):
        p = np.bincount(codes[:, j]) / len(codes)
        out[name] = (float(p[value]), noise / RECORDS**2, float(np.sqrt(p * (1 - p)).sum()))
    return out


def test_pairs_that_nobody_asked_about_are_off_by_the_prior() -> None:
    more = found(["a = 3 & b = 1", "a = 3 & not b = 1", "a = 3 & b = 1 & c = 2"], *ONES).more
    a, b, c = shares().values()

    def off(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
        (p, v, s), (q, w, t) = one, other
        return UNSEEN**2 / (0.8 * s * t) * (p * (1 - p) + v) * (q * (1 - q) + w)

    assert more[:2] == pytest.approx([BAR * np.sqrt(off(a, b))] * 2)
    sides = [(a, b, c), (a, c, b), (b, c, a)]
    squares = sum(off(x, y) * (rest[0] ** 2 + rest[1]) for x, y, rest in sides)
    assert more[2] == pytest.approx(BAR * np.sqrt(squares))


def test_noise_of_one_way_tables_stays_in_what_is_made_of_them_alone() -> None:
    """A product of noisy shares, by draws; a pair that was measured does not say so."""
    texts = ["a = 3 & b = 1", "a = 3 & b = 1 & c = 2"]
    told, some = found(texts, *ONES), found(texts, *ONES, interaction(0, 1))
    alone = np.sqrt(told.least**2 - told.more**2)
    (p, v, _), (q, w, _), (r, _, _) = shares().values()
    z = np.random.default_rng(0).standard_normal((2, 400_000))
    drawn = (p + np.sqrt(v) * z[0]) * (q + np.sqrt(w) * z[1])
    assert alone == pytest.approx([BAR * drawn.std(), BAR * r * drawn.std()], rel=0.01)
    assert some.least**2 - some.more**2 == pytest.approx([0, 0], abs=1e-12)


def test_pairs_that_were_measured_say_how_far_others_may_lie() -> None:
    """Independent rows: what was measured lies near independence, and so may the rest."""
    measured = (*ONES, interaction(0, 1), interaction(0, 2))
    (near,) = found(["b = 1 & c = 2"], *measured).more
    (far,) = found(["b = 1 & c = 2"], *ONES).more
    assert 0 < near < 0.8 * far


@pytest.mark.parametrize(("misfit", "low", "high"), [(0.0, 0.0, 0.08), (300.0, 0.2, 0.6)])
def test_misfits_that_were_heard_say_it_too(misfit: float, low: float, high: float) -> None:
    heard = Measured(Numbers(MISFITS, (0, 1, 0, 2, 1, 2)), np.full(3, misfit), 10.0**2)
    (more,) = found(["b = 1 & c = 2"], *ONES, heard).more
    codes = rows().to_rows()
    b, c = float((codes[:, 1] == 1).mean()), float((codes[:, 2] == 2).mean())
    assert low <= more / BAR / np.sqrt(b * (1 - b) * c * (1 - c)) <= high


def test_misfits_that_noise_alone_explains_do_not_count_beyond_the_prior() -> None:
    rng = np.random.default_rng(0)
    heard = Measured(Numbers(MISFITS, (0, 1, 0, 2, 1, 2)), rng.normal(0, 1e4, 3) / 3, 1e8)
    (more,) = found(["b = 1 & c = 2"], *ONES, heard).more
    (prior,) = found(["b = 1 & c = 2"], *ONES).more
    assert more == pytest.approx(prior, rel=0.01)


def test_the_law_of_unmeasured_pairs_holds_what_it_says() -> None:
    """D ~ N(0, τ² p_c p_d), centred: questions are off by τ √(a(1 − a)b(1 − b)), by draws."""
    rng, tau = np.random.default_rng(3), 0.3
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.3, 0.4])
    drawn = tau * rng.standard_normal((20_000, 3, 4))
    u, v = np.sqrt(p), np.sqrt(q)
    drawn -= np.einsum("i,j,njk->nik", u, u, drawn)
    drawn -= np.einsum("k,l,nil->nik", v, v, drawn)
    off = (drawn * u[:, None] * v)[:, :2, 1:3].sum(axis=(1, 2))
    a, b = p[:2].sum(), q[1:3].sum()
    assert off.std() == pytest.approx(tau * np.sqrt(a * (1 - a) * b * (1 - b)), rel=0.03)
    sums = np.abs(drawn * u[:, None] * v).sum(axis=(1, 2)).mean()
    assert sums == pytest.approx(
        0.8 * tau * np.sqrt(p * (1 - p)).sum() * np.sqrt(q * (1 - q)).sum(), rel=0.02
    )


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_with_a_prior_bars_of_one_attribute_are_as_wide_as_both_leave_open(share: float) -> None:
    """p ± √(p(1 − p)/N₁) before, σ measured: about the posterior mean the truth lies as narrowly as both say."""
    rng, counted, sigma = np.random.default_rng(5), 200.0, 30.0
    domain = Domain((Categorical("a", ("0", "1")),))
    before = 0.3 * 0.7 / counted * RECORDS**2
    part = before / (before + sigma**2)
    held, widths, group = [], [], from_texts(domain, ["a = 1"]).groups[0]
    for _ in range(400):
        true = 300 + rng.normal(0, math.sqrt(before))
        seen = true + rng.normal(0, sigma)
        middle = (1 - part) * 300 + part * seen
        told = Measured((0,), np.array([RECORDS / 2 - seen, seen - RECORDS / 2]), 2 * sigma**2)
        made = Records.from_rows(domain, (np.arange(10_000) < 10 * middle).astype(np.int32)[:, None])
        trust = Trust(counted, share, counted)
        number = Measured((), np.array(float(RECORDS)), 0.0)
        answer = np.array([middle / RECORDS])
        (least,) = floors(group, answer, (told, number), made, RECORDS, trust).least
        held.append(abs(true - middle) <= least * RECORDS)
        widths.append(least * RECORDS)
    narrow = BAR * math.sqrt(part) * sigma
    if share:
        assert 0.93 < np.mean(held) < 0.97
        assert np.mean(widths) == pytest.approx(narrow, rel=0.05)
    else:
        assert np.mean(held) > 0.98
        assert np.mean(widths) > 1.3 * narrow
