"""Cells: what is told of each record that somebody named, as a fraction of the table."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.queries.group import Group
from dualquery.queries.lists import Catalogue, Lists
from dualquery.table.codes import CodeTable, cells_of
from dualquery.table.domain import Domain
from dualquery.table.encoding import encode
from dualquery.types import Fractions

FILE = "cells.parquet"
FRACTION, DEVIATION = "fraction of records", "deviation"  # names that no column of a table should have


@dataclass(frozen=True, eq=False)
class CellFractions:
    """The fraction of the records in each cell that was read, and how far off it may be (a standard deviation)."""

    domain: CodeTable
    catalogue: Catalogue
    fraction: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @property
    def rows(self) -> None:
        return None

    def fractions(self, group: Group) -> Fractions:
        return np.clip(self._summed(group, self.fraction), 0.0, 1.0)

    def bars(self, group: Group) -> Fractions:
        return NormalDist().inv_cdf((1 + LEVEL) / 2) * np.sqrt(self._summed(group, self.deviation**2))

    def _summed(self, group: Group, numbers: NDArray[np.float64]) -> Fractions:
        if not isinstance(group, Lists):
            raise QueryError("this release holds cells, which answer look-ups and lists and nothing else")
        cells = self.catalogue.cells
        place = np.minimum(np.searchsorted(cells, group.cells), len(cells) - 1)
        unread = np.flatnonzero(cells[place] != group.cells)
        if len(unread):
            query = int(np.searchsorted(group.start, unread[0], side="right")) - 1
            raise QueryError(
                f"'{group.said[query]}' asks about a record that was not read for this release; ask about those in "
                f"{FILE}, or release again with it"
            )
        sums = np.concatenate([[0.0], np.cumsum(numbers[place])])
        return sums[group.start[1:]] - sums[group.start[:-1]]

    def words(self) -> str:
        return f"{len(self.fraction):,} cell{'s' if len(self.fraction) != 1 else ''}"

    def to_arrow(self) -> pa.Table:
        """A row a cell: its record, the fraction of the table that is such a record, and the deviation."""
        columns = {
            column.name: pa.array(self.catalogue.texts[:, j].tolist(), pa.string())
            for j, column in enumerate(self.domain.columns)
        }
        return pa.table({**columns, FRACTION: self.fraction, DEVIATION: self.deviation})

    def files(self) -> dict[str, pa.Table]:
        return {FILE: self.to_arrow()}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> CellFractions:
        """What a folder holds."""
        assert isinstance(domain, CodeTable), "the schema says codes"
        table = tables[FILE]
        names = [column.name for column in domain.columns]
        codes = encode(table.select(names), domain).columns
        cells = cells_of([each for each in codes if isinstance(each, np.ndarray)], table.num_rows)
        texts = np.array([table[name].to_pylist() for name in names]).T.reshape(table.num_rows, len(names))
        order = np.argsort(cells, kind="stable")
        return CellFractions(
            domain,
            Catalogue(cells[order], texts[order]),
            table[FRACTION].to_numpy()[order],
            table[DEVIATION].to_numpy()[order],
        )
