"""Questions about a table that lies on disk get the counts of the table in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import dualquery
from dualquery.counting import Counter, MemoryCounter, SpilledCounter
from dualquery.counting.opening import ColumnCounter, on_disk
from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.queries import kept_columns
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.kept_columns import KeptColumns
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import BitItems, Records, SparseItems, as_lists
from tests.counting.test_streams import PEOPLE, people

DOMAIN = Domain((Categorical("sex", ("f", "m")), Items("basket", 5), Categorical("size", ("s", "m", "l"))))


def records(rows: int = 1000) -> Records:
    rng = np.random.default_rng(5)
    made = Records.from_rows(DOMAIN, rng.integers(0, DOMAIN.sizes, (rows, DOMAIN.width)))
    items = made.columns[1]
    assert isinstance(items, BitItems)
    return Records(DOMAIN, rows, (made.columns[0], as_lists(items, rows), made.columns[2]))


def spilled(whole: Records) -> SpilledCounter:
    cuts = range(0, whole.rows, 300)
    blocks = (whole.take(np.arange(first, min(first + 300, whole.rows))) for first in cuts)
    return SpilledCounter(DOMAIN, blocks, rows=128)


def test_questions_about_a_table_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_columns, "MOST_ROWS", 192)  # so that cells are worked out some at a time
    whole = records()
    inside, outside = MemoryCounter(whole), ColumnCounter(spilled(whole))
    assert outside.true_rows == 1000
    texts = ["sex = f & basket[2] & size != l", "basket[1] | basket[5]", "size in {s, m}", "not basket[3]"]
    groups = [
        *(from_texts(DOMAIN, [text]).groups[0] for text in texts),
        *from_spec(DOMAIN, ["random:3:300"]).groups,
        *(from_spec(DOMAIN, ["marginals:3"]).groups[0].in_parts(1)),
    ]
    for group in [*groups, *groups]:  # the second time from what was kept
        assert np.array_equal(outside.true_counts(group), inside.true_counts(group))


def test_records_on_disk_are_mapped_and_not_read() -> None:
    whole = records()
    mapped = spilled(whole).records
    assert np.array_equal(mapped.to_rows(), whole.to_rows())
    assert isinstance(mapped.columns[0], np.ndarray)
    assert not mapped.columns[0].flags.owndata
    assert isinstance(mapped.columns[1], SparseItems)
    assert not mapped.columns[1].ids.flags.owndata
    column = on_disk(np.arange(10, dtype=np.uint64))
    assert not column.flags.owndata
    assert column.tolist() == list(range(10))
    assert len(on_disk(np.empty(0, np.uint64))) == 0
    kept = KeptColumns(mapped, stored=on_disk)
    group = from_texts(DOMAIN, ["sex = f"]).groups[0]
    assert kept.counts(group)[0] == int((whole.to_rows()[:, 0] == 0).sum())
    assert all(not column.flags.owndata for column in kept._kept.values())


def test_a_table_larger_than_memory_is_asked_online(tmp_path: Path) -> None:
    table = people(20_000)
    pyarrow.parquet.write_table(table, tmp_path / "people.parquet")
    budget = Budget(epsilon=2.0, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
    told = []
    for memory in (None, 1000):
        online = dualquery.online(
            str(tmp_path / "people.parquet"), schema=PEOPLE, budget=budget, seed=4, memory=memory
        )
        told.append([str(online.ask(text)) for text in ("age >= 60 & sex = f", "region by sex")])
        online.close()
    assert told[0] == told[1]


def test_a_counter_elsewhere_is_refused() -> None:
    class Elsewhere(MemoryCounter):
        pass

    elsewhere: Counter = Elsewhere(records())
    ColumnCounter(elsewhere)
    with pytest.raises(DualQueryError, match="on this machine"):
        ColumnCounter(ColumnCounter(elsewhere))
