"""What a card counts are the numbers of the definitions, whatever its memory holds."""

from __future__ import annotations

import numpy as np
import pytest

import dualquery.counting.cuda as engine
from dualquery.counting import CPU, counted_by
from dualquery.counting.cuda import Cuda, counted_here, tile_for
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.random_families import random_literals
from dualquery.queries.statistics import underlying
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from tests.counting.reference import Reference
from tests.counting.test_reference import DEFINED, parts_of, random_records
from tests.privacy.test_statistics import Case

HERE = [
    case
    for case in DEFINED
    if any(isinstance(p, Conjunctions | Parities | Tables) for p in parts_of(case.subject))
]


def some_records(sizes: list[int], rows: int, items: int = 0, seed: int = 0) -> Records:
    """Attributes of these sizes and a block of items, at random; small codes are likelier."""
    rng = np.random.default_rng(seed)
    columns = [Categorical(f"a{j}", tuple(map(str, range(size)))) for j, size in enumerate(sizes)]
    block = [Items("held", items)] if items else []
    codes = [np.minimum(rng.geometric(0.4, rows) - 1, size - 1) for size in sizes]
    bits = [rng.integers(0, 2, rows) for _ in range(items)]
    return Records.from_rows(Domain((*columns, *block)), np.stack([*codes, *bits], axis=1))


@pytest.mark.usefixtures("any_card")
@pytest.mark.parametrize("case", HERE, ids=str)
def test_the_card_counts_what_the_definition_says(case: Case) -> None:
    records, below = random_records(case), underlying(case.subject)
    expected = counted_by(Reference(), below, records)
    made = Cuda()
    np.testing.assert_array_equal(counted_by(made, below, records), expected)
    assert not made.said


@pytest.mark.usefixtures("any_card")
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 700])
def test_literals_with_negations_at_the_edges_of_words(rows: int) -> None:
    records = some_records([2, 3, 7, 20], rows, items=3)
    for width in (1, 2, 3, 4):
        group = random_literals(records.domain, width, 200, seed=width).groups[0]
        assert counted_here(group, records)
        np.testing.assert_array_equal(Cuda().counts(group, records), CPU.counts(group, records))


@pytest.mark.usefixtures("any_card")
def test_a_table_larger_than_the_memory_passes_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    records = some_records([2, 3, 300], 1000)
    tables = Tables(records.domain, ((0,), (1, 2), (0, 1, 2), ()))
    group = random_literals(records.domain, 2, 50, seed=0).groups[0]
    expected = [CPU.counts(what, records) for what in (tables, group)]
    monkeypatch.setattr(engine, "free_bytes", lambda: 20_000)
    made = Cuda()
    for what, counts in zip((tables, group), expected, strict=True):
        np.testing.assert_array_equal(made.counts(what, records), counts)
    assert not made.said


@pytest.mark.usefixtures("any_card")
def test_very_many_columns_are_read_in_place() -> None:
    records = some_records([60] * 40, 130)
    assert tile_for(2_400, 227 << 10) == 0
    group = random_literals(records.domain, 3, 2_500, seed=0).groups[0]
    np.testing.assert_array_equal(Cuda().counts(group, records), CPU.counts(group, records))


@pytest.mark.usefixtures("any_card")
def test_a_card_without_room_leaves_it_to_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    records = some_records([2, 3], 500)
    tables = Tables(records.domain, ((0,), (0, 1)))
    monkeypatch.setattr(engine, "free_bytes", lambda: 100)
    made = Cuda()
    np.testing.assert_array_equal(made.counts(tables, records), CPU.counts(tables, records))
    assert made.said == ["the GPU has too little memory free for this; this was counted on the processor"]
