"""Distance queries: `distance to (lat = 51.2, lon = 6.8)`, and families of points.

Columns that are left out do not count: the distance is over the columns that are named.

    distance to (lat = 51.2, lon = 6.8)      one query; a file may hold one a line
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
from dualquery.queries.language.formula import Fault, Token, pointing_at, tokens_of
from dualquery.queries.language.vocabulary import unknown_name
from dualquery.queries.random_families import Stream
from dualquery.queries.workload import Workload, check_count
from dualquery.table.domain import Domain
from dualquery.table.encoding import encode
from dualquery.table.points import GRID, Points
from dualquery.table.reading import read_table

EXAMPLE = "distance to (lat = 51.2, lon = 6.8)"
Point = dict[int, int]  # the position in each column that is asked about


def groups_of(domain: Domain, texts: Sequence[str], places: Sequence[str]) -> tuple[Distances, ...]:
    """The queries of some texts, in their order."""
    assert isinstance(domain, Points)
    points = [_read(domain, text, place) for text, place in zip(texts, places, strict=True)]
    asked = list(dict.fromkeys(tuple(sorted(point)) for point in points))
    positions = np.zeros((len(points), domain.width), np.int64)
    for row, point in enumerate(points):
        positions[row, list(point)] = list(point.values())
    shares = np.stack([shares_of(domain, np.array(columns)) for columns in asked])
    which = np.array([asked.index(tuple(sorted(point))) for point in points])
    return (Distances(domain, positions, shares, which),)


def example_of(domain: Domain) -> str:
    """A question that these points can be asked: the middle of the first two columns."""
    assert isinstance(domain, Points)
    columns = np.arange(min(2, domain.width))
    middle = np.full((1, domain.width), GRID // 2)
    group = Distances(domain, middle, shares_of(domain, columns)[None, :], np.zeros(1, np.int64))
    return group.texts(np.zeros(1, np.int64))[0]


def family_of(domain: Domain, spec: str) -> Workload | None:
    """The workload of `points:…`, or None where the SPEC is something else."""
    assert isinstance(domain, Points)
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
    return Distances(domain, positions, shares_of(domain, columns)[None, :], np.zeros(len(rows), np.int64))


def _read(domain: Points, text: str, place: str) -> Point:
    try:
        return _Parser(domain, tokens_of(text)).point()
    except Fault as fault:
        raise QueryError(pointing_at(text, fault.column, str(fault), place)) from None


class _Parser:
    """Reads one query."""

    def __init__(self, domain: Points, tokens: list[Token]) -> None:
        self._domain = domain
        self._tokens = tokens
        self._next = 0

    def point(self) -> Point:
        self._word("distance")
        self._word("to")
        self._sign("(")
        point: Point = {}
        while True:
            column, position = self._term()
            if column in point:
                raise Fault(self._tokens[self._next].column, "this column is named twice")
            point[column] = position
            if self._tokens[self._next].kind != ",":
                break
            self._next += 1
        self._sign(")")
        self._sign("end")
        return point

    def _term(self) -> tuple[int, int]:
        name = self._take("word", "quoted")
        column = self._domain.find(name.text)
        if column is None:
            raise Fault(name.column, unknown_name(self._domain, name.text))
        self._sign("=")
        given = self._take("word", "quoted")
        coordinate = self._domain.coordinates[column]
        try:
            number = float(given.text)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise Fault(given.column, f"'{coordinate.name}' needs a number here")
        low, high = coordinate.edges
        if not low <= number <= high:
            raise Fault(
                given.column, f"this lies outside the bounds of '{coordinate.name}', {low:g} to {high:g}"
            )
        return column, int(coordinate.positions(np.array([number]))[0])

    def _word(self, word: str) -> None:
        token = self._take("word")
        if token.text.lower() != word:
            raise Fault(token.column, f"a question about points reads like {EXAMPLE}")

    def _sign(self, sign: str) -> None:
        if self._tokens[self._next].kind != sign:
            raise Fault(self._tokens[self._next].column, f"a question about points reads like {EXAMPLE}")
        self._next += 1

    def _take(self, *kinds: str) -> Token:
        token = self._tokens[self._next]
        if token.kind not in kinds:
            raise Fault(token.column, f"a question about points reads like {EXAMPLE}")
        self._next += 1
        return token
