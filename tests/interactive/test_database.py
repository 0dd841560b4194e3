"""A database that is asked one question at a time: any, all and count, with the promise of one unit."""

from __future__ import annotations

import numpy as np
import pytest

import dualquery
from dualquery import Budget, example
from dualquery.counting import MemoryCounter
from dualquery.counting.opening import true_digest
from dualquery.errors import LedgerError, QueryError
from dualquery.interactive import MemoryJournal
from dualquery.interactive.answers import Published
from dualquery.queries.families import from_texts
from dualquery.table.database import Database
from dualquery.table.schema import parse_schema
from dualquery.table.units import Units, units_of

SCHEMA = parse_schema(example.DATABASE_SCHEMA, origin="the example")
assert isinstance(SCHEMA.domain, Database)
DOMAIN: Database = SCHEMA.domain


def invented(number: int, old: float, seed: int = 1) -> Units:
    """Households of one or two, a share of the persons 65 or older."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 3, number)
    rows = rng.integers(0, DOMAIN.children[0].domain.sizes, (int(sizes.sum()), 4))
    rows[:, 0] = np.where(rng.random(len(rows)) < old, 5, 2)
    return units_of(DOMAIN, rng.integers(0, [5, 2], (number, 2)), [(sizes, rows)])


BUDGET = Budget(1, 1e-6, "add-remove", "renyi")
OLD = "any(person.age >= 65)"


def truth(units: Units, text: str) -> float:
    (group,) = from_texts(DOMAIN, [text]).groups
    return float(group.counts(units)[0]) / units.rows


def test_a_stale_release_is_contradicted_and_mended() -> None:
    stale = dualquery.release(
        invented(4000, 0.1, seed=5), workload="marginals:1", budget=Budget(0.5, 1e-6, "add-remove", "zcdp"),
        seed=1, synthetic_rows=2000, check=0.0,
    )  # fmt: skip
    units, journal = invented(4000, 0.6), MemoryJournal()
    given = {"schema": SCHEMA, "budget": BUDGET, "release": stale, "seed": 3, "records": 4000}
    online = dualquery.online(units, journal=journal, **given)
    before = stale.answer(OLD).value
    answer = online.ask(OLD)
    assert abs(before - truth(units, OLD)) > 0.3
    assert abs(answer.value - truth(units, OLD)) <= answer.bound
    assert answer.cost == online.price
    again = online.ask(f"{OLD} & region = Coast")
    assert abs(again.value - truth(units, f"{OLD} & region = Coast")) <= again.bound
    assert online.ask("region = Coast").cost.units == 0
    with pytest.raises(QueryError, match=r"any\(person\.age …\)"):
        online.ask("person.age >= 65")
    published = Published({"stale": stale})
    told = published.answer("stale", published.read("stale", OLD), online.status().left)
    assert told.values == (before,)
    online.close()
    same = dualquery.online(units, journal=MemoryJournal(journal.entries()), **given)
    assert same.fingerprint() == online.fingerprint()
    with pytest.raises(LedgerError):
        dualquery.online(invented(4000, 0.6, seed=2), journal=MemoryJournal(journal.entries()), **given)


def test_a_table_whose_children_changed_is_another_table() -> None:
    units = invented(50, 0.5)
    (members,) = units.members
    rows = members.records.to_rows().astype(np.int64)
    rows[7, 1] = 1 - rows[7, 1]
    other = units_of(DOMAIN, units.to_rows()[:, :2].astype(np.int64), [(members.sizes, rows)])
    key = "00" * 32
    assert true_digest(MemoryCounter(units), key) == true_digest(
        MemoryCounter(units.take(np.arange(50))), key
    )
    assert true_digest(MemoryCounter(units), key) != true_digest(MemoryCounter(other), key)
