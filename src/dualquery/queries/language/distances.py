"""Distance queries: `distance to (lat = 51.2, lon = 6.8)`, and families of points.

Columns that are left out do not count: the distance is over the columns that are named. Of other metrics than L1 all
are named.

    distance to (lat = 51.2, lon = 6.8)      one query; a file may hold one per line
    points:FILE                              a CSV or Parquet file of points, a column for each column asked about
    points:random:COUNT[:SEED]               points drawn uniformly between the bounds
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from os.path import isfile

import numpy as np

from dualquery.errors import DualQueryError, QueryError
from dualquery.queries.distances import Distances, distances_to, shares_of
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each
from dualquery.queries.language.vocabulary import unknown_name
from dualquery.queries.random_families import Stream
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.encoding import encode
from dualquery.table.points import GRID, Coordinate, Metric, Points
from dualquery.table.reading import read_table

EXAMPLE = "distance to (lat = 51.2, lon = 6.8)"
Point = dict[int, int]  # the position in each column that is asked about


def groups_of(domain: Points, texts: Sequence[str], places: Sequence[str]) -> tuple[Distances, ...]:
    points = read_each(texts, places, lambda text: _read(domain, text))
    asked = list(dict.fromkeys(tuple(sorted(point)) for point in points))
    positions = np.zeros((len(points), domain.width), np.int64)
    for row, point in enumerate(points):
        positions[row, list(point)] = list(point.values())
    shares = np.stack([shares_of(domain, np.array(columns)) for columns in asked])
    which = np.array([asked.index(tuple(sorted(point))) for point in points])
    return (Distances(domain, positions, shares, which, axes=domain.axes),)


def example_of(domain: Points) -> str:
    """A question that these points can be asked: the middle, of L1 that of the first two columns."""
    columns = np.arange(min(2, domain.width) if domain.metric is Metric.L1 else domain.width)
    group = distances_to(domain, np.full((1, domain.width), GRID // 2), columns)
    return group.texts(np.zeros(1, np.int64))[0]


def family_of(domain: Points, spec: str) -> Workload | None:
    """The workload of `points:…`, or None where the SPEC is something else."""
    family, colon, rest = spec.partition(":")
    if not colon or family != "points":
        return None
    if isfile(rest):
        return Workload(domain, (_from_file(domain, rest),), spec)
    fields = rest.split(":")
    if fields[0] != "random" or len(fields) not in (2, 3) or not all(each.isdecimal() for each in fields[1:]):
        raise QueryError(
            f"'{spec}' should read points:FILE or points:random:COUNT[:SEED], and there is no such file"
        )
    count, seed = int(fields[1]), int(fields[2]) if fields[2:] else 0
    check_count(count)
    stream = Stream(seed)
    positions = stream.below(np.full((count, domain.width), GRID + 1))
    return Workload(domain, (distances_to(domain, positions),), spec)


DISTANCES = Grammar("distances", "points:FILE, points:random:COUNT", example_of, groups_of, family_of)


def _from_file(domain: Points, path: str) -> Distances:
    """A point a row; columns that the file does not have are not asked about."""
    try:
        table = read_table(path)
        columns = np.array(
            [j for j, name in enumerate(domain.names()) if name in table.column_names], np.int64
        )
        if not len(columns):
            raise QueryError("it has none of the columns of the schema")
        # A private number may be clamped to its bounds; a point that somebody asks about is a mistake there.
        strict = Points(tuple(replace(domain.coordinates[j], clamp=False) for j in columns.tolist()))
        rows = encode(table, strict).to_rows().astype(np.int64)
    except DualQueryError as problem:
        raise QueryError(f"the file of points '{path}' does not fit the schema: {problem}") from None
    if not len(rows):
        raise QueryError(f"the file of points '{path}' holds no point")
    positions = np.zeros((len(rows), domain.width), np.int64)
    positions[:, columns] = rows
    return distances_to(domain, positions, columns)


def _read(domain: Points, text: str) -> Point:
    phrase = Phrase(text, f"a question about points reads like {EXAMPLE}")
    phrase.word("distance")
    phrase.word("to")
    phrase.take("(")
    point: Point = {}
    while not point or phrase.takes(","):
        name = phrase.take("word", "quoted")
        column = domain.find(name.text)
        if column is None:
            raise Fault(name.column, unknown_name(domain, name.text))
        if column in point:
            raise Fault(name.column, "this column is named twice")
        phrase.take("=")
        point[column] = _position(domain.coordinates[column], phrase.take("word", "quoted"))
    phrase.take(")")
    phrase.end()
    return point


def _position(coordinate: Coordinate, given: Token) -> int:
    try:
        number = float(given.text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise Fault(given.column, f"'{coordinate.name}' needs a number here")
    low, high = coordinate.edges
    if not low <= number <= high:
        raise Fault(given.column, f"this lies outside the bounds of '{coordinate.name}', {low:g} to {high:g}")
    return int(coordinate.positions(np.array([number]))[0])
