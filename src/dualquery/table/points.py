"""Points: numeric columns with public bounds, each kept as the nearest position of a fine public grid.

docs/queries.md has the section [points]. A position is a whole number from 0 (the lower bound) to `GRID` (the
upper). A distance is a sum over public axes of absolute differences. Of L1 the axes are the columns. Others are
averages over directions θ,

    ‖v‖₂ = c_d · E_θ |⟨v, θ⟩|,   c_d = √π Γ((d + 1)/2) / Γ(d/2),        of the plane c_2 = π/2,

so that an axis is a direction, and the position of a record on it a whole number again, worked out of its positions
in whole numbers. In the plane `PLANE` directions lie at equal angles: no distance is off by more than 0.02%. In space
they lie on a spiral (0.1%), in more dimensions in random orthonormal bases from a public seed (about 1%).

*Great-circle*: of latitude and longitude, as unit vectors u of space. Where no two places of the bounds are farther
than `NEAR` apart the straight line stands for the arc (at most 1% short). Else ⟨u, θ⟩ is clipped to ±τ,

    arc(u, v) ≈ π / (τ √(1 − τ²) + asin τ) · E_θ |clip⟨u, θ⟩ − clip⟨v, θ⟩|,

τ = `CLIPPED`, which is the straight line at τ = 1 and the arc at τ → 0 (Crofton: a random great circle parts u and v
with the chance arc/π). It is within 0.5% up to 10,000 km, 1% short at 16,000 km and 9% at the antipode. Arcs are in
kilometres.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table.columns import Unplaced, unlisted
from dualquery.table.domain import Column, Domain, Numeric
from dualquery.table.toml_text import figure, numbers, only, optional, quoted, truth
from dualquery.types import Integers

KNOTS = 256  # intervals between the knots of a curve (`mechanisms.distances`)
STEPS = 64  # positions between two knots
GRID = KNOTS * STEPS
MOST_COLUMNS = 10_000
MOST_EUCLIDEAN = 256  # columns of other metrics than L1
PLANE, SPACE = 64, 1024  # directions: of the plane, and of more dimensions
FINE = 1 << 20  # a direction in whole numbers: one of length 1
NEAR, CLIPPED = 0.5, 0.2  # arcs, and τ beyond them, in radians
EARTH = 6371.0088  # kilometres: the mean radius
SAMPLED = 64  # steps of latitude and of longitude at which the reach of an axis is looked up

Positions = NDArray[np.integer[Any]]


class Metric(Enum):
    L1 = "l1"
    EUCLIDEAN = "euclidean"
    GREAT_CIRCLE = "great-circle"


@dataclass(frozen=True, eq=False)
class DistanceAxes:
    """What distances are summed over: here the columns themselves."""

    names: tuple[str, ...] = ()
    low: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # where position 0 lies
    widths: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    times: float = 1.0  # a distance is so many times the sum over the axes

    @property
    def diameter(self) -> float:
        """What answers are fractions of."""
        return self.times * float(self.widths.sum())

    def placed(self, columns: Sequence[Positions]) -> Sequence[Positions]:
        """Points by their positions in each column, made ready for `at`."""
        return columns

    def at(self, axis: int, placed: Sequence[Positions]) -> Positions:
        return placed[axis]


COLUMNS = DistanceAxes()


@dataclass(frozen=True, eq=False)
class Directions(DistanceAxes):
    """Public directions, in whole numbers, so that a point has one position whatever stands beside it."""

    directions: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))
    # Along each direction, least and most; cosine and sine of each position, of latitude and of longitude.
    reach: tuple[Integers, Integers] = field(kw_only=True)
    globe: tuple[Integers, ...] = ()
    grid: int = GRID

    def placed(self, columns: Sequence[Positions]) -> Sequence[Positions]:
        if not self.globe:
            return [np.asarray(each, np.int64) for each in columns]
        lat, lon = columns
        north, up, east, across = (
            table[at] for table, at in zip(self.globe, (lat, lat, lon, lon), strict=True)
        )
        return [north * east // FINE, north * across // FINE, up]

    def at(self, axis: int, placed: Sequence[Positions]) -> Positions:
        along = sum(int(part) * each for part, each in zip(self.directions[axis], placed, strict=True))
        least, most = (int(each[axis]) for each in self.reach)
        past = np.clip(along, least, most) - least
        return (past * self.grid + (most - least) // 2) // max(1, most - least)


def directions(dimensions: int) -> NDArray[np.float64]:
    """Public unit vectors, one a row, of which opposite ones count once."""
    if dimensions == 1:
        return np.ones((1, 1))
    if dimensions == 2:
        angle = np.pi * np.arange(PLANE) / PLANE
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if dimensions == 3:
        step = np.arange(SPACE) + 0.5
        up, turn = 1 - step / SPACE, np.pi * (1 + math.sqrt(5)) * step
        flat = np.sqrt(1 - up**2)
        return np.stack([flat * np.cos(turn), flat * np.sin(turn), up], axis=1)
    rng = np.random.default_rng(dimensions)
    square = (dimensions, dimensions)
    bases = [np.linalg.qr(rng.normal(size=square))[0] for _ in range(-(-SPACE // dimensions))]
    return np.concatenate(bases)


def euclidean_axes(widths: NDArray[np.float64], grid: int = GRID) -> Directions:
    turned = directions(len(widths)) * widths
    whole = np.rint(FINE * turned / widths.max()).astype(np.int64)
    reach = grid * np.minimum(whole, 0).sum(axis=1), grid * np.maximum(whole, 0).sum(axis=1)
    low, wide = np.minimum(turned, 0).sum(axis=1), np.abs(turned).sum(axis=1)
    d = len(widths)
    times = math.sqrt(math.pi) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2)) / len(turned)
    return Directions(_numbered(turned), low, wide, times, whole, reach=reach, grid=grid)


def _numbered(turned: NDArray[Any]) -> tuple[str, ...]:
    return tuple(f"direction {axis + 1}" for axis in range(len(turned)))


def globe_axes(
    latitudes: tuple[float, float], longitudes: tuple[float, float], grid: int = GRID
) -> Directions:
    """The axes of great-circle distances between bounds in degrees."""
    tables = []
    for low, high in (latitudes, longitudes):
        angle = np.radians(np.linspace(low, high, grid + 1))
        tables += [np.rint(FINE * each).astype(np.int64) for each in (np.cos(angle), np.sin(angle))]
    whole = np.rint(FINE * directions(3)).astype(np.int64)
    some = np.linspace(0, grid, min(grid, SAMPLED) + 1).astype(np.int64)
    unbounded = Directions(directions=whole, reach=(whole[0], whole[0]), globe=tuple(tables), grid=grid)
    seen = unbounded.placed(tuple(each.ravel() for each in np.meshgrid(some, some, indexing="ij")))
    along = whole @ np.stack(seen)
    corners = np.stack(seen)[:, :: max(1, len(seen[0]) // 500)] / FINE
    limit = 1.0 if float((corners.T @ corners).min()) > math.cos(NEAR) else CLIPPED
    wide = max(high - low for low, high in (latitudes, longitudes))
    beyond = round(FINE**2 * math.radians(wide) / (len(some) - 1))  # as far as two samples lie apart
    most = round(FINE**2 * limit)
    least, largest = along.min(axis=1) - beyond, along.max(axis=1) + beyond
    reach = np.clip(least, -most, most), np.clip(largest, -most, most)
    low, high = (EARTH * each / FINE**2 for each in reach)
    times = math.pi / (limit * math.sqrt(1 - limit**2) + math.asin(limit)) / len(whole)
    return Directions(
        _numbered(whole),
        low,
        high - low,
        times,
        whole,
        reach=reach,
        globe=tuple(tables),
        grid=grid,
    )


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
    """The public bounds of a table of points, and what a distance between them is."""

    metric: Metric = Metric.L1

    kind = "points"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric is not Metric.L1 and self.width > MOST_EUCLIDEAN:
            raise SchemaError(
                f'[points]: metric = "{self.metric.value}" takes at most {MOST_EUCLIDEAN} columns'
            )
        if self.metric is Metric.GREAT_CIRCLE:
            edges = [each.edges for each in self.coordinates]
            if len(edges) != 2 or np.abs(edges[0]).max() > 90 or np.abs(edges[1]).max() > 180:
                raise SchemaError(
                    '[points]: metric = "great-circle" takes two columns, first the latitude between -90 and 90, '
                    "then the longitude between -180 and 180"
                )

    @cached_property
    def axes(self) -> DistanceAxes:
        if self.metric is Metric.EUCLIDEAN:
            return euclidean_axes(self.widths)
        if self.metric is Metric.GREAT_CIRCLE:
            latitudes, longitudes = (each.edges for each in self.coordinates)
            return globe_axes((latitudes[0], latitudes[-1]), (longitudes[0], longitudes[-1]))
        return DistanceAxes(
            tuple(self.names()), np.array([each.low for each in self.coordinates]), self.widths
        )

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return cast("tuple[Coordinate, ...]", self.columns)

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        return np.array([each.width for each in self.coordinates])

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Points:
        only(section, "[points]", {"clamp", "columns", "metric"})
        if columns:
            raise SchemaError(
                "a table of [points] has no [[attribute]]; name its columns in [points.columns]"
            )
        clamp, bounds = optional(section, "[points]", "clamp", truth) or False, section.get("columns", {})
        if not isinstance(bounds, dict):
            raise SchemaError("[points]: 'columns' must be a section, [points.columns]")
        named = {each.value: each for each in Metric}
        metric = section.get("metric", Metric.L1.value)
        if metric not in named:
            raise SchemaError(
                f"[points]: 'metric' is one of {', '.join(named)}, and '{metric}' is none of them"
            )
        bounded = {name: _bounds(name, each) for name, each in bounds.items()}
        return points_of(bounded, clamp=clamp, metric=named[metric])

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        clamped = self.coordinates[0].clamp
        bounds = [
            f"{quoted(each.name)} = [{', '.join(map(figure, each.edges))}]" for each in self.coordinates
        ]
        lines = ["[points]"] + ["clamp = true"] * clamped
        lines += [f"metric = {quoted(self.metric.value)}"] * (self.metric is not Metric.L1)
        return ["\n".join(lines), "\n".join(["[points.columns]", *bounds])]


def points_of(
    bounds: Mapping[str, tuple[float, float]], *, clamp: bool = False, metric: Metric = Metric.L1
) -> Points:
    if not bounds:
        raise SchemaError("[points.columns] names no column; give each its bounds, like lat = [47.3, 55.1]")
    if len(bounds) > MOST_COLUMNS:
        raise SchemaError(f"[points] has at most {MOST_COLUMNS:,} columns")
    for name, (low, high) in bounds.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SchemaError(
                f"[points.columns]: the bounds of '{name}' must be two numbers, the lower first"
            )
    columns = tuple(Coordinate(name, (low, high), clamp=clamp) for name, (low, high) in bounds.items())
    return Points(columns, metric=metric)


def _bounds(name: str, given: object) -> tuple[float, float]:
    try:
        low, high = numbers(given)
    except ValueError:
        raise SchemaError(f"[points.columns]: '{name}' needs its bounds, like {name} = [0, 100]") from None
    return low, high
