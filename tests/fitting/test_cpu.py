"""Row-wise best responses: every move lowers the error, and threads change nothing."""

from itertools import combinations, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.fitting.cpu import COMPILED, GUMBEL, LOGISTIC, binary_passes, spread, table_passes, views_of
from dualquery.fitting.fitter import ItemTargets, Targets
from dualquery.loops import LANES, add_up, four_sums, limited, njit
from tests.fitting.reference import ReferenceFitter

PASSES = 60  # of best responses; rows come to rest long before
COLD = repeat(0.0)


def seeds(seed, chains=1):
    return np.random.default_rng(seed).integers(0, 1 << 63, chains, dtype=np.uint64)


def histogram(rows, sizes, members):
    flat = np.ravel_multi_index([rows[:, j] for j in members], [sizes[j] for j in members])
    shape = [sizes[j] for j in members]
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def centred(table):
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def squared_error(rows, sizes, tables, interactions):
    """Σ w·‖N·y − counts‖² over tables, and of centred differences over interactions."""
    total = 0.0
    for members, (target, weight) in tables.items():
        total += weight * np.sum((len(rows) * target - histogram(rows, sizes, members)) ** 2)
    for members, (target, weight) in interactions.items():
        difference = centred(len(rows) * target - histogram(rows, sizes, members))
        total += weight * np.sum(difference**2)
    return total


def random_problem(seed, sizes, orders=(1, 2), interactions=(), rows=25, chains=1):
    rng = np.random.default_rng(seed)
    maker = Targets(np.array(sizes))
    tables, centred_ones = {}, {}
    for order in orders:
        for members in combinations(range(len(sizes)), order):
            shape = [sizes[j] for j in members]
            target = rng.dirichlet(np.ones(int(np.prod(shape)))).reshape(shape)
            target += rng.normal(0, 0.02, shape)
            weight = float(rng.uniform(0.5, 2))
            tables[members] = target, weight
            maker.add_table(members, target, weight)
    for members in interactions:
        target = centred(rng.normal(0, 0.05, [sizes[j] for j in members]))
        weight = float(rng.uniform(0.5, 2))
        centred_ones[members] = target, weight
        maker.add_interaction(members, target, weight)
    start = np.stack([rng.integers(0, k, (chains, rows)) for k in sizes], axis=-1).astype(np.uint8)
    return maker, start, tables, centred_ones


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 5), min_size=3, max_size=4),
    with_interactions=st.booleans(),
)
def test_at_temperature_zero_no_pass_raises_the_error_and_the_last_one_changes_nothing(
    seed, sizes, with_interactions
):
    interactions = list(combinations(range(len(sizes)), 3)) if with_interactions else []
    targets, start, tables, centred_ones = random_problem(seed, sizes, interactions=interactions)
    passes = table_passes(targets, start, COLD, seeds(seed))
    before = squared_error(start[0], sizes, tables, centred_ones)
    rows = start[0]
    for _ in range(PASSES):
        reply = next(passes)[0]
        after = squared_error(reply, sizes, tables, centred_ones)
        assert after <= before + 1e-3 * (1 + abs(before))
        if np.array_equal(reply, rows):
            break
        before, rows = after, reply
    else:
        pytest.fail("the rows do not come to rest")
    assert np.array_equal(next(passes)[0], rows)
    for r in range(0, len(rows), 6):  # and where they rest, no single change is better
        for j, size in enumerate(sizes):
            for value in range(size):
                other = rows.copy()
                other[r, j] = value
                assert squared_error(other, sizes, tables, centred_ones) >= after - 1e-3 * (1 + abs(after))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_single_move_lowers_the_error(seed):
    # One row: a pass is at most one move an attribute, each of them a best response.
    sizes = [3, 4]
    targets, start, tables, _ = random_problem(seed, sizes, rows=1)
    passes = table_passes(targets, start, COLD, seeds(seed))
    before = squared_error(start[0], sizes, tables, {})
    for _ in range(3):
        rows = next(passes)[0]
        after = squared_error(rows, sizes, tables, {})
        assert after <= before + 1e-4
        before = after
    for j, size in enumerate(sizes):  # and where it comes to rest, no single change is better
        for value in range(size):
            other = rows.copy()
            other[0, j] = value
            assert squared_error(other, sizes, tables, {}) >= before - 1e-4


def test_a_small_table_is_recovered_exactly_when_there_is_no_noise():
    sizes = [2, 3]
    truth = np.array([[10, 0, 30], [5, 40, 15]])
    maker = Targets(np.array(sizes))
    maker.add_table((0, 1), truth / 100, 1.0)
    start = np.zeros((2, 100, 2), np.uint8)
    # Two attributes must change together to get out of a corner: warmth first, then none.
    *_, chains = table_passes(maker, start, (3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.0), seeds(0, 2))
    for rows in chains:
        assert np.array_equal(histogram(rows, sizes, (0, 1)), truth)


def test_one_thread_and_two_give_the_same_rows():
    targets, start, _, _ = random_problem(3, [4, 3, 5, 2], orders=(1, 2, 3), rows=300, chains=3)

    def played(threads):
        with limited(threads):
            return list(table_passes(targets, start, (5.0, 1.0, 0.0), seeds(9, 3)))

    for one, two in zip(played(1), played(2), strict=True):
        assert np.array_equal(one, two)


def test_chains_differ_and_rows_stay_in_the_domain():
    sizes = [4, 1, 3]
    targets, start, _, _ = random_problem(4, sizes, rows=200, chains=2)
    (chains,) = table_passes(targets, start, [2.0], seeds(0, 2))
    assert not np.array_equal(chains[0], chains[1])
    assert chains.min() >= 0
    assert np.all(chains.reshape(-1, 3).max(axis=0) < sizes)


def test_without_pull_rows_follow_the_lean():
    sizes = np.array([3, 2])
    lean = {0: np.array([0.7, 0.2, 0.1]), 1: np.array([0.9, 0.1])}
    maker = Targets(sizes, lean)
    maker.add_table((0,), np.zeros(3), 0.0)
    maker.add_table((1,), np.zeros(2), 0.0)
    start = np.zeros((1, 40_000, 2), np.uint8)
    (rows,) = table_passes(maker, start, [1.0], seeds(1))
    for j, fractions in lean.items():
        seen = np.bincount(rows[0, :, j], minlength=len(fractions)) / rows.shape[1]
        assert np.abs(seen - fractions).max() < 0.012


def test_interaction_weights_are_the_centred_square():
    sizes = [2, 3, 4]
    targets, start, _, centred_ones = random_problem(5, sizes, orders=(), interactions=[(0, 1, 2)], rows=40)
    rows = start[0]
    ((members, (target, weight)),) = centred_ones.items()
    constant = weight * np.sum((len(rows) * target) ** 2)
    expanded = constant - weight * len(rows) ** 2 / 24  # of the empty subset, whose count is N
    for subset in targets.pull:
        counts = histogram(rows, sizes, subset)
        expanded += targets.weight[subset] * np.sum(counts**2)
        expanded -= 2 * len(rows) * np.sum(targets.pull[subset] * counts)
    assert expanded == pytest.approx(squared_error(rows, sizes, {}, centred_ones))
    assert members == (0, 1, 2)


def test_layout_puts_the_moving_attribute_last():
    sizes = np.array([2, 3, 4])
    views = views_of(sizes, [(0, 1, 2), (1,)])
    cells = np.arange(24.0).reshape(2, 3, 4)
    spreads = spread(views, [cells, np.arange(3.0)])
    first = views.offset[views.copy[1]]  # the view of the first table in which its second attribute moves
    assert np.array_equal(spreads[first : first + 24].reshape(2, 4, 3), np.moveaxis(cells, 1, -1))
    assert views.offset[-1] == len(spreads) == 3 * 24 + 3
    assert views.first_view.tolist() == [0, 1, 3, 4]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), items=st.integers(2, 7))
def test_items_lower_their_error_too(seed, items):
    rng = np.random.default_rng(seed)
    single, noise = rng.random(items), rng.random((items, items))
    pair = np.minimum.outer(single, single) * (noise + noise.T) / 2
    start = rng.integers(0, 2, (1, 30, items)).astype(np.uint8)
    weights = 1.5, 0.7
    above = np.triu_indices(items, 1)

    def error(rows):
        held = rows.astype(float)
        counts = held.T @ held
        ones = weights[0] * np.sum((len(rows) * single - np.diagonal(counts)) ** 2)
        return ones + weights[1] * np.sum((len(rows) * pair - counts)[above] ** 2)

    passes = COMPILED.fit(ItemTargets(single, pair, *weights), start, COLD, seeds(seed))
    before = error(start[0])
    for _ in range(5):
        rows = next(passes)[0]
        after = error(rows)
        assert after <= before + 1e-3 * (1 + before)
        before = after
    # At rest: no item of no row is better the other way.
    for _ in range(PASSES):
        settled = next(passes)[0]
        if np.array_equal(settled, rows):
            break
        rows = settled
    else:
        pytest.fail("the rows do not come to rest")
    for r in range(0, 30, 7):
        for j in range(items):
            other = rows.copy()
            other[r, j] ^= 1
            assert error(other) >= error(rows) - 1e-2


def test_tables_of_noise_are_quantiles():
    assert np.all(np.diff(GUMBEL) > 0)
    assert GUMBEL.mean() == pytest.approx(0.5772, abs=2e-3)
    assert GUMBEL.var() == pytest.approx(np.pi**2 / 6, rel=0.01)
    assert LOGISTIC.var() == pytest.approx(np.pi**2 / 3, rel=0.01)


# ── The reference ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("heat", [(0.0, 0.0), (4.0, 1.0, 0.3)])
def test_the_reference_fits_the_same_rows(seed, heat):
    sizes = [4, 1, 3, 6]
    targets, start, _, _ = random_problem(seed, sizes, interactions=[(0, 2, 3)], chains=2)
    targets.lean = {0: np.array([0.4, 0.3, 0.2, 0.1]), 3: np.full(6, 1 / 6)}
    compiled = table_passes(targets, start, heat, seeds(seed, 2))
    plain = ReferenceFitter().fit(targets, start, heat, seeds(seed, 2))
    for one, two in zip(compiled, plain, strict=True):
        assert one.dtype == two.dtype
        assert np.array_equal(one, two)


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_fits_the_same_binary_rows_where_nothing_is_drawn(seed):
    targets, start, _, _ = random_problem(seed, [2] * 4, orders=(1, 2, 3), chains=2)
    compiled = binary_passes(targets, start, [0.0] * 3, seeds(seed, 2))
    plain = ReferenceFitter().fit(targets, start, [0.0] * 3, seeds(seed, 2))
    assert all(np.array_equal(one, two) for one, two in zip(compiled, plain, strict=True))


def test_with_heat_binary_rows_and_items_are_distributed_as_those_of_the_reference():
    """Means of products over many passes; passes are close to independent at this heat."""
    rng = np.random.default_rng(5)
    binary, start, _, _ = random_problem(1, [2] * 3, rows=60)
    binary.lean = {j: np.array([0.3, 0.7]) for j in range(3)}
    single = np.array([0.3, 0.5, 0.2])
    items = ItemTargets(single, np.outer(single, single) * 1.5, 1.5, 0.7)
    for targets in (binary, items):
        found = []
        for fitter in (COMPILED, ReferenceFitter()):
            chains = list(fitter.fit(targets, start, [20.0] * 300, seeds(int(rng.integers(99)))))[5:]
            held = np.concatenate(chains, axis=1)[0].astype(float)
            found.append(held.T @ held / len(held))
        assert np.abs(found[0] - found[1]).max() < 0.02


@njit()
def summed(cells, places, values, left, right):  # type: ignore[no-untyped-def]
    gain = np.full(values + LANES, np.float32(7))
    for first in range(0, values, LANES):
        add_up(cells, places, gain, np.int64(len(places)), first)
    return gain[:values], four_sums(left, right, len(left) // 4)


@pytest.mark.parametrize("values", [1, LANES, LANES + 3])
def test_sums_in_registers_are_those_of_a_loop(values: int) -> None:
    rng = np.random.default_rng(values)
    cells = rng.normal(size=100 + LANES).astype(np.float32)
    places = rng.integers(0, 100 - values, 9)
    left, right = rng.normal(size=(2, 11))
    gain, sums = summed(cells, places, values, left, right)
    expected = np.zeros(values, np.float32)
    for place in places:
        expected += cells[place : place + values]
    assert gain.tolist() == expected.tolist()
    products = left * right
    assert sums == tuple(products[:4] + products[4:8])
