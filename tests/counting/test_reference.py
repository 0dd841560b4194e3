"""Engines against the definitions: the compiled loops count what one record adds, added up."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.counting import CPU, MemoryCounter, SpilledCounter, counted_by
from dualquery.queries.statistics import Countable, Derived, Together, underlying
from dualquery.table.records import Records
from tests.counting.reference import Reference, contribution
from tests.privacy.test_statistics import QUERIES, STATISTICS, Case, classes_with, records_of, universe_of

KINDS = {
    kind
    for module in QUERIES
    for kind in classes_with(module, "counts", "bound")
    if not issubclass(kind, Derived) and kind is not Together
}
DEFINED = [
    case for case in STATISTICS if any(kind in KINDS for kind in type(underlying(case.subject)).__mro__)
]


def random_records(case: Case, rows: int = 150) -> Records:
    universe = universe_of(case.domain)
    chosen = np.random.default_rng(3).integers(0, len(universe), rows)
    return records_of(case, tuple(universe[i] for i in chosen))


def parts_of(what: Countable) -> tuple[Countable, ...]:
    below = underlying(what)
    return below.parts if isinstance(below, Together) else (below,)


@pytest.mark.parametrize("case", DEFINED, ids=str)
def test_the_compiled_loops_count_what_the_definition_says(case: Case) -> None:
    records, below = random_records(case), underlying(case.subject)
    expected = counted_by(Reference(), below, records)
    np.testing.assert_array_equal(counted_by(CPU, below, records), expected)
    counter = MemoryCounter(records, engine=Reference())
    np.testing.assert_array_equal(counter.true_counts(case.subject), case.subject.counts(records))


def test_every_kind_is_defined_and_compared() -> None:
    assert set(contribution.registry) >= KINDS
    assert {
        kind for case in DEFINED for part in parts_of(case.subject) for kind in type(part).__mro__
    } >= KINDS


def test_a_table_on_disk_is_counted_by_the_engine_it_is_given() -> None:
    case = STATISTICS[0]
    records = random_records(case)
    halves = [records.take(half) for half in np.array_split(np.arange(records.rows), 2)]
    counter = SpilledCounter(case.domain, halves, rows=64, engine=Reference())
    np.testing.assert_array_equal(counter.true_counts(case.subject), case.subject.counts(records))
    counter.close()


def test_what_has_no_definition_is_refused() -> None:
    case = STATISTICS[0]
    with pytest.raises(TypeError, match="object has no definition"):
        Reference().counts(object(), random_records(case))  # type: ignore[arg-type]
