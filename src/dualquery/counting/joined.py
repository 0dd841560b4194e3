"""Rows of units that have one each, counted as records of one table."""

from __future__ import annotations

from dualquery.counting.counter import Counter
from dualquery.queries.countable import Countable
from dualquery.queries.tables import Tables
from dualquery.queries.views import WHOLE, View, ViewTables
from dualquery.types import Integers


class JoinedCounter(Counter):
    """Counts the flat records of a view of which every unit has exactly one: a record here is a unit there, so that
    neighbours are the same."""

    def __init__(self, units: Counter, view: View) -> None:
        assert view.number.max() == view.database.child(view.child).at_least == 1, "one row each"
        super().__init__(view.domain, engine=units.engine)
        self._units, self._view = units, view

    @property
    def true_rows(self) -> int:
        return self._units.true_rows

    def _counted(self, what: Countable) -> Integers:
        assert isinstance(what, Tables), "tables are measured, and what follows from them"
        return self._units.true_counts(ViewTables(self._view, what.sets)) // WHOLE
