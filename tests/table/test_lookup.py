"""Fast ways to codes give the codes of the slow ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dualquery.table import cells as lookup
from dualquery.table.cells import bins_of, distinct, looked_up
from dualquery.table.domain import Domain, Numeric
from dualquery.table.encoding import encode


@pytest.mark.parametrize("bins", [1, 2, 7, 64, 65, 300])
def test_bins_are_those_of_a_bisection(bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(bins)
    edges = np.sort(rng.choice(1000, bins + 1, replace=False)) / 8
    numbers = np.concatenate([edges, np.nextafter(edges, -1), rng.uniform(-20, 150, 500), [-np.inf, np.inf]])
    expected = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, bins - 1)
    assert np.array_equal(bins_of(edges, numbers), expected)
    monkeypatch.setattr(lookup, "FEW_CELLS", 0)  # as if there were many
    assert np.array_equal(bins_of(edges, numbers), expected)


@pytest.mark.parametrize("largest", [1, 127, 128, 32767, 32768, 70_000])
def test_codes_keep_their_values_in_a_smaller_type(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.array([0, -3, largest, -1])
    index, expected = [3, 2, 2, 1, 0], [-1, largest, largest, -3, 0]
    for few in (lookup.FEW_CELLS, 0):
        monkeypatch.setattr(lookup, "FEW_CELLS", few)
        for kind in (np.int64, np.uint8):
            assert looked_up(codes, np.array(index, kind)).tolist() == expected


@pytest.mark.parametrize(
    "cells",
    [
        pa.chunked_array([[3, 5, 3], [], [-2]], pa.int8()),
        pa.chunked_array([[2**64 - 1, 2**64 - 3]], pa.uint64()),
        pa.chunked_array([[-(2**63), 2**63 - 1]], pa.int64()),
        pa.chunked_array([[2**40, 2**40 + 255, 2**40 + 3]], pa.int64()),
        pa.chunked_array([[2**40, 2**40 + 256]], pa.int64()),
        pa.chunked_array([[7, None, 9]], pa.int32()),
        pa.chunked_array([], pa.int32()),
        pa.chunked_array([[200, 255, 0]], pa.uint8()),
    ],
)
def test_distinct_whole_numbers(cells: pa.ChunkedArray) -> None:
    found = distinct(cells, "some")
    known = [*found.values.to_pylist(), None]
    assert [known[i] for i in found.index] == cells.to_pylist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint8(), pa.int64()])
def test_near_whole_numbers_fall_into_the_bins_of_floats(kind: pa.DataType) -> None:
    domain = Domain((Numeric("age", (0.0, 2.5, 7.0, 100.0), clamp=True, missing="120"),))
    for numbers in ([0, 2, 3, 7, 99, 100, 120], [5, 5], []):
        cells = pa.chunked_array([numbers[:3], [], numbers[3:]], kind)
        as_floats = encode(pa.table({"age": cells.cast(pa.float64())}), domain)
        assert np.array_equal(encode(pa.table({"age": cells}), domain).columns[0], as_floats.columns[0])
