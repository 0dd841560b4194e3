"""Points: numeric columns with public bounds, each kept as the nearest position of a fine public grid.

    [points]
    clamp = true                        # optional: numbers beyond the bounds go to the nearest bound

    [points.columns]
    lat = [47.3, 55.1]                  # the column, and its public bounds
    lon = [5.8, 15.1]

A position is a whole number from 0 (the lower bound) to `GRID` (the upper). Distances are L1: the sum over columns of
the absolute differences, in the unit of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table.columns import Unplaced, unlisted
from dualquery.table.domain import Column, Domain, Numeric
from dualquery.table.toml_text import figure, numbers, only, optional, quoted, truth

KNOTS = 256  # intervals between the knots of a curve (`mechanisms.distances`)
STEPS = 64  # positions between two knots
GRID = KNOTS * STEPS
MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class Coordinate(Numeric):
    """A number between two public bounds; code k stands for low + k (high − low) / GRID, the nearest one."""

    @property
    def low(self) -> float:
        return self.edges[0]

    @property
    def width(self) -> float:
        return self.edges[1] - self.edges[0]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return unlisted(GRID + 1)

    def positions(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """The nearest position of each number; those of numbers beyond the bounds are the caller's to refuse."""
        scaled = np.nan_to_num((numbers - self.low) / self.width * GRID, nan=0.0)
        return np.rint(np.clip(scaled, 0, GRID)).astype(np.int64)

    def advice(self, reason: Unplaced) -> str:
        if reason is not Unplaced.OUTSIDE:
            return super().advice(reason)
        return (
            "holds numbers outside its bounds; widen the bounds in the schema, or set "
            "clamp = true in [points] to send such numbers to the nearest bound"
        )


@dataclass(frozen=True)
class Points(Domain):
    """The public bounds of a table of points."""

    kind = "points"

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return cast("tuple[Coordinate, ...]", self.columns)

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        """Of each column, in its own unit."""
        return np.array([each.width for each in self.coordinates])

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Points:
        """The domain of [points] and [points.columns]."""
        only(section, "[points]", {"clamp", "columns"})
        if columns:
            raise SchemaError(
                "a table of [points] has no [[attribute]]; name its columns in [points.columns]"
            )
        clamp, bounds = optional(section, "[points]", "clamp", truth) or False, section.get("columns", {})
        if not isinstance(bounds, dict):
            raise SchemaError("[points]: 'columns' must be a section, [points.columns]")
        return points_of({name: _bounds(name, each) for name, each in bounds.items()}, clamp=clamp)

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        """[points] and [points.columns]."""
        clamped = self.coordinates[0].clamp
        bounds = [
            f"{quoted(each.name)} = [{', '.join(map(figure, each.edges))}]" for each in self.coordinates
        ]
        return ["[points]" + ("\nclamp = true" if clamped else ""), "\n".join(["[points.columns]", *bounds])]


def points_of(bounds: Mapping[str, tuple[float, float]], *, clamp: bool = False) -> Points:
    """A table of points whose columns have these bounds."""
    if not bounds:
        raise SchemaError("[points.columns] names no column; give each its bounds, like lat = [47.3, 55.1]")
    if len(bounds) > MOST_COLUMNS:
        raise SchemaError(f"[points] has at most {MOST_COLUMNS:,} columns")
    for name, (low, high) in bounds.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SchemaError(
                f"[points.columns]: the bounds of '{name}' must be two numbers, the lower first"
            )
    return Points(tuple(Coordinate(name, (low, high), clamp=clamp) for name, (low, high) in bounds.items()))


def _bounds(name: str, given: object) -> tuple[float, float]:
    try:
        low, high = numbers(given)
    except ValueError:
        raise SchemaError(f"[points.columns]: '{name}' needs its bounds, like {name} = [0, 100]") from None
    return low, high
