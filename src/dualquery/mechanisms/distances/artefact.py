"""Distance curves: for each column the mean distance of the records to every place in it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.beliefs.universes import knots
from dualquery.errors import QueryError
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.queries.distances import UNIT, Distances
from dualquery.queries.group import Group
from dualquery.table.domain import Domain
from dualquery.table.points import GRID, KNOTS, Points
from dualquery.types import Fractions

FILE = "distance_curves.parquet"
Curves = NDArray[np.float64]  # a row a column of the table, a column a knot; NaN where it was not measured


@dataclass(frozen=True, eq=False)
class DistanceCurves:
    """The mean distance at every knot of every column, and its deviation, as fractions of the column's width.

    Between knots it is interpolated. The answer for a point is the sum over columns, in proportion to their widths.
    """

    domain: Points
    distance: Curves
    deviation: Curves

    @property
    def rows(self) -> None:
        return None

    def fractions(self, group: Group) -> Fractions:
        return self._summed(group, self.distance, 1)

    def bars(self, group: Group) -> Fractions:
        return NormalDist().inv_cdf((1 + LEVEL) / 2) * np.sqrt(self._summed(group, self.deviation**2, 2))

    def _summed(self, group: Group, curves: Curves, power: int) -> Fractions:
        if not isinstance(group, Distances):
            raise QueryError("this release holds distance curves, which answer distances and nothing else")
        out = np.zeros(group.size)
        places = np.arange(KNOTS + 1) * (GRID // KNOTS)
        for j in group.columns.tolist():
            if np.isnan(curves[j, 0]):
                raise QueryError(
                    f"the column '{self.domain.name(j)}' was not measured for this release; ask about the others"
                )
            part = (group.shares[group.which, j] / UNIT) ** power
            out += part * np.interp(group.positions[:, j], places, curves[j])
        return out

    def words(self) -> str:
        number = int((~np.isnan(self.distance[:, 0])).sum())
        return f"Distance curves of {number:,} column{'s' if number > 1 else ''}"

    def to_arrow(self) -> pa.Table:
        """A row a knot: the column, the place, the mean distance to it and its deviation, in the column's unit."""
        measured = np.flatnonzero(~np.isnan(self.distance[:, 0]))
        widths = self.domain.widths[measured][:, None]
        low = np.array([self.domain.coordinates[j].low for j in measured.tolist()])[:, None]
        names = [self.domain.name(j) for j in measured.tolist()]
        return pa.table(
            {
                "column": pa.array(np.repeat(names, KNOTS + 1).tolist(), pa.string()).dictionary_encode(),
                "at": (low + widths * knots()).ravel(),
                "mean_distance": (widths * self.distance[measured]).ravel(),
                "deviation": (widths * self.deviation[measured]).ravel(),
            }
        )

    def files(self) -> dict[str, pa.Table]:
        return {FILE: self.to_arrow()}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> DistanceCurves:
        """What a folder holds."""
        assert isinstance(domain, Points), "the schema says points"
        table = tables[FILE]
        names = np.array(table["column"].to_pylist())
        distance = np.full((domain.width, KNOTS + 1), np.nan)
        deviation = distance.copy()
        for j, column in enumerate(domain.coordinates):
            held = names == column.name
            if held.any():
                distance[j] = table["mean_distance"].to_numpy()[held] / column.width
                deviation[j] = table["deviation"].to_numpy()[held] / column.width
        return DistanceCurves(domain, distance, deviation)
