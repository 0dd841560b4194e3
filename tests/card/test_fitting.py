"""Rows fitted on a card are as good as the processor's."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.fitting import cpu
from dualquery.fitting.cpu import COMPILED, views_of
from dualquery.fitting.cuda import FEWEST, MOST, CudaFitter, in_flight, places_of
from dualquery.fitting.fitter import ItemTargets, Targets
from dualquery.types import Set
from tests.fitting.test_cpu import histogram, random_problem, seeds


def test_places_are_what_a_move_changes() -> None:
    sizes, sets = np.array([3, 2, 4, 1, 5]), [(0,), (0, 1), (1, 2), (0, 2, 4), (3, 4)]
    views = views_of(sizes, sets)
    weight = np.arange(1, 6, dtype=np.float32)
    places, rng = places_of(views, weight), np.random.default_rng(0)
    for _ in range(50):
        row = np.array([rng.integers(size) for size in sizes], np.int32)
        j = int(rng.integers(5))
        new = int(rng.integers(sizes[j]))
        expected = np.zeros(int(views.offset[-1]), np.float32)
        cpu._move(row, j, int(row[j]), new, views, weight, expected)
        found = np.zeros_like(expected)
        for e in range(places.first[j], places.first[j + 1]):
            place = places.offset[e] + int((row[places.other[e]] * places.stride[e]).sum())
            found[place + row[j] * places.step[e]] += places.weight[e]
            found[place + new * places.step[e]] -= places.weight[e]
        np.testing.assert_array_equal(found, expected)


def test_rows_in_flight_follow_the_temperature_and_the_rows() -> None:
    assert [in_flight(20_000, heat) for heat in (10, 20, 40, 59)] == [160, 320, 640, 944]
    assert in_flight(60_000, 30) == 3 * in_flight(20_000, 10)  # the same noise, as a fraction, of more rows
    assert in_flight(20_000, 0.0) == round(20_000 / FEWEST)
    assert in_flight(20_000, 1e9) == 20_000 / MOST
    assert in_flight(3, 0.0) == 1


@pytest.mark.usefixtures("any_card")
def test_rows_find_a_table_that_they_can_answer() -> None:
    truth = np.array([[10, 0, 30], [5, 40, 15]])
    targets = Targets(np.array([2, 3]))
    targets.add_table((0, 1), truth / 100, 1.0)
    start = np.zeros((2, 100, 2), np.uint8)
    *_, chains = CudaFitter().fit(targets, start, (3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.0, 0.0), seeds(0, 2))
    for rows in chains:
        assert np.abs(histogram(rows, [2, 3], (0, 1)) - truth).sum() <= 2


def loss(targets: Targets, rows: np.ndarray, sets: list[Set]) -> float:
    sizes = targets.sizes.tolist()
    total = 0.0
    for members in sets:
        weight = targets.weight[members]
        if weight > 0:
            counts = histogram(rows, sizes, members)
            total += weight * float(((len(rows) * targets.pull[members] / weight - counts) ** 2).sum())
    return total


@pytest.mark.usefixtures("any_card")
def test_fits_are_as_good_as_those_of_the_processor() -> None:
    sizes = [4, 3, 40, 2, 5]
    targets, start, _, _ = random_problem(3, sizes, orders=(1, 2), rows=320, chains=2)
    heat = (5.0, 2.0, 1.0, 0.5)
    lost = []
    for fitter in (COMPILED, CudaFitter()):
        *_, chains = fitter.fit(targets, start, heat, seeds(9, 2))
        assert (chains < np.array(sizes)).all()
        lost.append(np.mean([loss(targets, rows, list(targets.pull)) for rows in chains]))
    assert lost[1] < 1.25 * lost[0]


@pytest.mark.usefixtures("any_card")
def test_items_are_fitted_by_the_processor() -> None:
    targets = ItemTargets(np.array([0.5, 0.2]), np.array([[0.5, 0.1], [0.1, 0.2]]), 1.0, 1.0)
    start = np.zeros((1, 50, 2), np.uint8)
    one, other = (
        list(fitter.fit(targets, start, [1.0, 0.0], seeds(1, 1))) for fitter in (COMPILED, CudaFitter())
    )
    np.testing.assert_array_equal(one, other)
