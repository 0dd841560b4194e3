"""Counting through larger tables gives the same numbers as counting each table."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.queries import tables
from dualquery.queries.tables import MOST_CELLS, Tables, cover_of
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

SETS = st.lists(
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(sorted).map(tuple),
    min_size=1,
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(SETS, st.integers(0, 2**32))
def test_covered_tables_have_the_same_counts(sets: list[tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 6)
    domain = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))
    records = Records.from_rows(domain, np.stack([rng.integers(0, k, 300) for k in sizes], axis=1))
    group = Tables(domain, tuple(sets))
    plain = group.counts(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "WORTH_COVERING", 0)
        assert np.array_equal(Tables(domain, tuple(sets)).counts(records), plain)


@pytest.mark.parametrize("order", [2, 3])
def test_a_cover_holds_every_set_once_in_few_small_tables(order: int) -> None:
    sizes = [2, 3, 4, 5, 6, 7, 8, 20, 200, 1000]
    sets = list(combinations(range(10), order))
    cover = cover_of(sets, sizes)
    assert sorted(place for places in cover.read_off for place in places) == list(range(len(sets)))
    for members, places in zip(cover.sets, cover.read_off, strict=True):
        assert all(set(sets[place]) <= set(members) for place in places)
        alone = len(places) == 1 and sets[places[0]] == members
        assert alone or prod(sizes[j] for j in members) <= MOST_CELLS
    assert len(cover.sets) < 0.6 * len(sets)


def test_the_number_of_records_is_covered_by_any_table() -> None:
    assert cover_of([(), (0,), (1,)], [3, 4]).sets == ((0, 1),)


@pytest.mark.parametrize("distinct", [40, 1 << 20])
def test_records_that_repeat_are_counted_once_and_others_are_left_alone(distinct: int) -> None:
    rng = np.random.default_rng(0)
    number = rng.integers(0, distinct, 1 << 16)
    codes = np.array([number % 32, number // 32 % 64, number // 2048 % 64, number // (1 << 17)], np.uint16)
    kept, weights = tables.distinct_rows(codes)
    assert weights.sum() == 1 << 16
    assert (kept.shape[1] == distinct) == (distinct == 40)
