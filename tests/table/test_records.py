"""Records are what their domain says, or they are not made: counts and charges rest on it."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from dualquery.errors import DataError
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import BitItems, Records, SparseItems, as_lists, pack_bits

PLAIN = Domain((Categorical("a", ("x", "y", "z")), equal_width("b", 0, 1, 300)))
BASKETS = Domain((Items("i", 5),))


def sparse(start: list[int], ids: list[int]) -> SparseItems:
    return SparseItems(np.array(start, np.int64), np.array(ids, np.int32))


def codes(*numbers: int, kind: type = np.uint8) -> np.ndarray:
    return np.array(numbers, kind)


def test_what_the_domain_allows() -> None:
    assert Records(PLAIN, 2, (codes(0, 2), codes(299, 0, kind=np.uint16))).rows == 2
    assert Records(PLAIN, 0, (codes(), codes(kind=np.uint16))).to_rows().shape == (0, 2)
    full = Categorical("c", tuple(map(str, range(256))))
    assert Records(Domain((full,)), 1, (codes(255),)).rows == 1
    for items in (
        sparse([0, 2, 2, 4], [0, 4, 1, 2]),
        sparse([0, 0, 0, 0], []),
        sparse([0, 0, 1, 1], [4]),
        sparse([0, 1, 2, 3], [3, 3, 3]),
        BitItems(pack_bits(np.ones((5, 3), np.bool_))),
    ):
        assert Records(BASKETS, 3, (items,)).rows == 3
    assert Records(BASKETS, 64, (BitItems(pack_bits(np.ones((5, 64), np.bool_))),)).rows == 64
    assert Records(BASKETS, 0, (BitItems(np.zeros((5, 0), np.uint64)),)).rows == 0
    assert Records(BASKETS, 0, (sparse([0], []),)).rows == 0


@pytest.mark.parametrize(
    "columns",
    [
        (codes(0, 3), codes(0, 0)),
        (codes(0, 2), codes(300, 0, kind=np.uint16)),
        (codes(0), codes(0, 0)),
        (codes(0, 1),),
        (codes(0, 1), codes(0, 1), codes(0, 1)),
        (codes(0, -1, kind=np.int64), codes(0, 0)),
        (codes(0, 1, kind=np.float64), codes(0, 0)),
        (codes(0, 1)[:, None], codes(0, 0)),
        ([0, 1], codes(0, 0)),
        (sparse([0, 0, 0], []), codes(0, 0)),
    ],
)
def test_codes_that_the_domain_does_not_allow(columns: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(DataError) as raised:
        Records(PLAIN, 2, columns)
    assert "\n" not in str(raised.value)


OVERFLOWING = pack_bits(np.ones((5, 3), np.bool_))
OVERFLOWING[2, 0] |= np.uint64(1 << 3)


@pytest.mark.parametrize(
    "items",
    [
        sparse([0, 3, 3, 3], [1, 1, 1]),  # one item three times: it moved a count by 3 where 1 was charged
        sparse([0, 2, 2, 2], [2, 1]),
        sparse([0, 1, 3, 3], [4, 0, 0]),
        sparse([0, 1, 1, 1], [5]),
        sparse([0, 1, 1, 1], [-1]),
        sparse([0, 1, 1], [0]),
        sparse([1, 1, 1, 1], [0]),
        sparse([0, 1, 1, 2], [0]),
        sparse([0, 1, 1, 1], [0, 1]),
        sparse([0, 2, 1, 3], [0, 1, 2]),
        SparseItems(np.array([0.0, 0, 0, 0]), np.array([], np.int32)),  # type: ignore[arg-type]
        BitItems(OVERFLOWING),
        BitItems(np.zeros((4, 1), np.uint64)),
        BitItems(np.zeros((5, 2), np.uint64)),
        BitItems(np.zeros((5, 1), np.int64)),  # type: ignore[arg-type]
        codes(0, 1, 1),
    ],
)
def test_items_that_the_domain_does_not_allow(items: SparseItems | BitItems) -> None:
    with pytest.raises(DataError, match="'i'"):
        Records(BASKETS, 3, (items,))


@pytest.mark.parametrize("rows", [[[0, 300]], [[3, 0]], [[-1, 0]], [[256, 0]], [[0]], [[0.5, 0]], [0, 0]])
def test_matrices_that_the_domain_does_not_allow(rows: list[list[int]]) -> None:
    with pytest.raises(DataError, match="matrix of records"):
        Records.from_rows(PLAIN, np.array(rows))
    with pytest.raises(DataError, match="matrix of records"):
        Records.from_rows(BASKETS, np.array([[0, 0, 2, 0, 0]]))


@pytest.mark.parametrize("kind", ["plain", "sparse", "bits"])
def test_taking_records_takes_their_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    if kind == "plain":
        records = Records.from_rows(
            PLAIN, np.column_stack([rng.integers(0, 3, 100), rng.integers(0, 300, 100)])
        )
    else:
        wide = Domain((Items("i", 130),))
        records = Records.from_rows(wide, rng.random((100, 130)) < 0.2)
        if kind == "sparse":
            bits = records.columns[0]
            assert isinstance(bits, BitItems)
            records = Records(wide, 100, (as_lists(bits, 100),))
    for rows in (rng.integers(0, 100, 260), np.arange(7), np.empty(0, np.int64)):
        assert np.array_equal(records.take(rows).to_rows(), records.to_rows()[rows])


def test_half_a_million_rows_are_checked_in_no_time() -> None:
    columns = tuple(Categorical(f"c{i}", tuple("abcdefg")) for i in range(41))
    held = tuple(np.zeros(500_000, np.uint8) for _ in columns)
    began = perf_counter()
    Records(Domain(columns), 500_000, held)
    assert perf_counter() - began < 0.2  # some milliseconds; reading such a file takes half a second
