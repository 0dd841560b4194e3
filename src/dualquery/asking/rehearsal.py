"""Every path that a question can take, on rows that anybody may see: so that the first real question is no slower.

The table of a rehearsal is one row of the release, again and again. No real table is like it, so that tests fire; and
a count takes a time that its question and the number of records decide, whatever the records hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import thread_time

import numpy as np

from dualquery.asking.journal import MemoryJournal
from dualquery.asking.online import Online
from dualquery.asking.rule import MOST_ERROR, OnlineRule
from dualquery.asking.state import State
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.counting.counter import MemoryCounter
from dualquery.counting.opening import ColumnCounter
from dualquery.privacy.curator import Curator
from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.question import MOST_CELLS, QuestionReader, table_text
from dualquery.randomness import entropy_from
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.table.records import Records

MOST_ROWS = 1 << 20  # of a rehearsal; a larger table takes longer in proportion
FEW_ROWS = 1 << 10  # that are enough to have everything compiled and loaded


def rehearse(rule: OnlineRule, release: Release, *, rows: int = FEW_ROWS) -> float:
    """The most processor seconds that a question takes, with a fire and a purchase, once everything is ready."""
    records = release.records
    assert records is not None, "an interactive table starts from records"
    public = records.take(np.zeros(min(rows, MOST_ROWS), np.int64))
    passes = [max(_times(_asked(rule, release, records, public))) for _ in range(3)]
    return min(passes[1:]) * max(1.0, rows / MOST_ROWS)  # the first one compiles and loads


def _asked(rule: OnlineRule, release: Release, records: Records, public: Records) -> Online:
    reader = QuestionReader(release.domain)
    state = State(rule, WeightedRows(records), reader)
    curator = Curator(ColumnCounter(MemoryCounter(public)), state.ledger, entropy_from(0))
    return Online(
        state=state,
        curator=curator,
        journal=MemoryJournal(),
        reader=reader,
        release=release,
        published={},
        certificate={},
    )


def _times(table: Online) -> Iterator[float]:
    first, *others = _texts(table.domain)
    for work in (partial(table.buy, first, error=MOST_ERROR), *(partial(table.ask, each) for each in others)):
        before = thread_time()
        work()
        yield thread_time() - before


def _texts(domain: Domain) -> Iterator[str]:
    """Of the attributes with the fewest and the most values: one value, both, and the tables; none of them twice."""
    by_size = np.argsort(domain.sizes, kind="stable")
    few, many = int(by_size[0]), int(by_size[-1])
    conditions = [Literal(j, (0,), False) for j in sorted({few, many})]
    for chosen in ([conditions[0]], [conditions[-1]], conditions)[: len(conditions) + 1]:
        yield Query(tuple(chosen)).text(domain)
    for members in {(few,), (many,), tuple(sorted({few, many}))}:
        if np.prod(domain.sizes[list(members)], dtype=np.int64) <= MOST_CELLS:
            yield table_text(domain, members)
