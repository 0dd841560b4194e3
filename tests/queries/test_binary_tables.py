"""Tables of binary attributes from bit columns count what the general loop counts."""

from itertools import combinations

import numpy as np
import pytest

from dualquery.queries import tables as counted
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

WIDTH = 7
DOMAIN = Domain(tuple(Categorical(f"a{j}", ("no", "yes")) for j in range(WIDTH)))


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1000])
def test_bits_count_what_the_general_loop_counts(rows, monkeypatch):
    sets = ((), *(s for order in (1, 2, 3) for s in combinations(range(WIDTH), order)))
    records = Records.from_rows(DOMAIN, np.random.default_rng(rows).integers(0, 2, (rows, WIDTH)))
    tables = Tables(DOMAIN, sets)
    fast = tables.counts(records)
    monkeypatch.setattr(counted, "LEAST_TABLES", 10**9)
    assert np.array_equal(fast, tables.counts(records))
    assert all(fast[tables.cells_of(t)].sum() == rows for t in range(len(sets)))


def test_only_tables_that_gain_are_counted_so():
    many = np.zeros((counted.LEAST_TABLES, 3), np.int32)
    assert counted.fits(np.full(5, 2), many)
    assert not counted.fits(np.array([2, 3]), many)
    assert not counted.fits(np.full(5, 2), many[:2])
    assert not counted.fits(np.full(5, 2), np.zeros((99, 4), np.int32))
