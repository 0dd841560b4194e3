"""Draws around what was measured: tables that could be the private one, as far as anybody can know.

DRAWS times: one-way tables and moments are drawn (`inference.moments`), some released rows are given the weights that
follow them (`inference.tilt`), their numbers get places inside the bins (`inference.inside`), and rows are taken by
these weights: evenly, as a table of very many records, or by chance, as a table of n records that a census would draw
again. A function of these tables has the spread of what is not known (Rubin 1987). All of it is made of public
numbers and of chance that the certificate names, costs no privacy, and is kept in memory for the same attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.inference.inside import Placed, drawn_numbers, placed
from dualquery.inference.moments import Moments, moments_of
from dualquery.inference.tilt import Tilting, systematic
from dualquery.loops import plain_algebra
from dualquery.queries.tables import attribute_codes
from dualquery.table.cells import floats_of
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Dependency, Domain, Numeric, Sum
from dualquery.table.encoding import decode
from dualquery.table.records import Records
from dualquery.types import Integers, Reals, Set

DRAWS = 20
ROWS = 12_000  # released rows that are given weights
EVENLY = 20_000  # rows that are taken of each draw
MOST_MOMENTS = 600
WITH_TRIPLES = 4  # attributes: their triples are drawn, too
RIDGE = 10.0  # of the variance of a moment: how exactly rows follow it
MOST_RIDGE = 0.02  # rows would not follow what is hardly known, and look more certain than it is


@dataclass(frozen=True, eq=False)
class Drawn:
    """Weights of some released rows, one row of them a draw, and their numbers in each draw by column."""

    rows: Integers
    weights: Reals
    numbers: list[dict[str, Reals]]


@dataclass(frozen=True, eq=False)
class Imputations:
    """Of one release. `records` is the number of records of the table."""

    released: Records
    measured: MeasuredTables | None  # None: nothing was measured that draws could be made around
    records: int
    seed: int
    inside: dict[str, Measured] = field(default_factory=dict)  # sums of places, by column
    _kept: dict[tuple[Set, tuple[Set, ...]], Drawn] = field(default_factory=dict)

    @property
    def domain(self) -> Domain:
        return self.released.domain

    @cached_property
    def table(self) -> pa.Table:
        """The released rows with readable values."""
        return decode(self.released)

    def missing(self, sets: Sequence[Set]) -> list[Set]:
        """Those of these sets whose tables were never measured."""
        known = {} if self.measured is None else self.measured.interactions
        return [members for members in sets if members not in known]

    def of(self, attributes: Sequence[int], triples: Sequence[Set] | None = None) -> Drawn:
        """Draws for functions of these attributes; of few, their triples are drawn as well."""
        attributes = sorted(set(attributes))
        if triples is None:
            triples = list(combinations(attributes, 3)) if len(attributes) <= WITH_TRIPLES else []
        key = (tuple(attributes), tuple(triples))
        if key not in self._kept:
            with plain_algebra():
                self._kept[key] = self._made(*key)
        return self._kept[key]

    def _made(self, attributes: Set, triples: tuple[Set, ...]) -> Drawn:
        rng = np.random.default_rng([self.seed, *attributes])
        rows = np.sort(rng.permutation(self.released.rows)[:ROWS])
        weights = np.full((DRAWS, len(rows)), 1 / len(rows))
        if self.measured is not None:
            weights = self._weights(self.measured, attributes, triples, rows, rng)
        placed_anew = self._placed(attributes)
        numbers = [
            {name: drawn_numbers(each, rows, rng) for name, each in placed_anew.items()} for _ in range(DRAWS)
        ]
        return Drawn(rows, weights, numbers)

    def _weights(
        self,
        measured: MeasuredTables,
        attributes: Set,
        triples: tuple[Set, ...],
        rows: Integers,
        rng: np.random.Generator,
    ) -> Reals:
        codes = {j: whole_codes(self.released, j) for j in attributes}
        moments = moments_of(measured, attributes, triples, codes, {j: self._places(j) for j in attributes})
        tilting = _tilting(moments, codes, rows)
        tilting.weights(_wanted(moments, None))  # the curvature that all begin with
        return np.array([tilting.weights(_wanted(moments, rng)) for _ in range(DRAWS)])

    def number(self, rng: np.random.Generator) -> float:
        """The number of records, drawn where it was measured."""
        variance = 0.0 if self.measured is None else float(self.measured.variance[()])
        return max(1.0, self.records + math.sqrt(variance) * float(rng.standard_normal()))

    def _places(self, attribute: int) -> Reals:
        """Where the values of a numeric attribute lie: the means of released rows, the middle of an empty bin."""
        column = self.domain.column_of(attribute)[1]
        if isinstance(column, Categorical) and column.numeric:
            return np.nan_to_num(column.numbers)
        if not isinstance(column, Numeric):
            return np.zeros(0)
        low, high = column.bounds()
        codes, numbers = whole_codes(self.released, attribute), self.numbers_of(attribute)
        known = codes < column.bins
        counts = np.bincount(codes[known], minlength=column.bins)
        sums = np.bincount(codes[known], numbers[known], minlength=column.bins)
        places = np.where(counts > 0, sums / np.maximum(counts, 1), (low + high) / 2)
        return np.append(places, 0.0) if column.missing is not None else places

    def numbers_of(self, attribute: int) -> Reals:
        """The released numbers of a numeric attribute, in units where there are some (`numbers_in`)."""
        return numbers_in(self.released, self.table, attribute)

    def unit(self, attribute: int) -> float:
        """How many units make one."""
        return unit_of(self.domain, attribute)

    def _placed(self, attributes: Sequence[int]) -> dict[str, Placed]:
        """The columns whose numbers are placed anew: not those that rules tie to others, nor dates."""
        tied = set()
        for rule in self.domain.rules:
            if isinstance(rule, Sum):
                tied |= {rule.total, *rule.parts}
            if isinstance(rule, Dependency):
                tied.add(rule.attribute)
        out = {}
        for j in attributes:
            column = self.domain.column_of(j)[1]
            if isinstance(column, Numeric) and not isinstance(column, Dates) and column.name not in tied:
                codes, numbers = whole_codes(self.released, j), self.numbers_of(j)
                out[column.name] = placed(column, codes, numbers, self.inside.get(column.name), self.records)
        return out

    def evenly(self, drawn: Drawn) -> Iterator[pa.Table]:
        """Each draw as a table of very many records."""
        rng = np.random.default_rng([self.seed, 1])
        for number, weights in enumerate(drawn.weights):
            yield self._taken(drawn, number, systematic(weights, EVENLY, float(rng.random())))

    def by_chance(self, drawn: Drawn, most: int | None = EVENLY) -> Iterator[pa.Table]:
        """Each draw as a table of n records, or of so many where these are fewer."""
        rng, size = np.random.default_rng([self.seed, 2]), min(self.records, most or self.records)
        for number, weights in enumerate(drawn.weights):
            ends = np.cumsum(weights)
            marks = np.sort(rng.random(size)) * ends[-1]
            yield self._taken(drawn, number, np.minimum(np.searchsorted(ends, marks), len(weights) - 1))

    def _taken(self, drawn: Drawn, number: int, places: Integers) -> pa.Table:
        """Rows by their place among those that have weights, with the numbers of this draw."""
        table = self.table.take(pa.array(drawn.rows[places]))
        for name, numbers in drawn.numbers[number].items():
            position = table.column_names.index(name)
            column = next(each for each in self.domain.columns if each.name == name)
            assert isinstance(column, Numeric)
            codes = np.asarray(self.released.columns[[c.name for c in self.domain.columns].index(name)])
            missing = codes[drawn.rows[places]] == column.bins
            table = table.set_column(position, table.field(position), column.decode(numbers[places], missing))
        return table


def whole_codes(records: Records, attribute: int) -> NDArray[np.int64]:
    """The codes of one attribute."""
    return attribute_codes(records, [attribute])[0].astype(np.int64)


def numbers_in(records: Records, table: pa.Table, attribute: int) -> Reals:
    """The numbers of a numeric attribute, in units where there are some; 0 where they are missing, and of others.

    `table` is the decoded records.
    """
    position, column = records.domain.column_of(attribute)
    codes = records.columns[position]
    if isinstance(column, Categorical) and column.numeric:
        return np.nan_to_num(column.numbers)[np.asarray(codes)]
    if not isinstance(column, Numeric):
        return np.zeros(records.rows)
    assert isinstance(codes, np.ndarray)
    if isinstance(column, Dates):
        return column.spread_out(codes)
    found: Reals = np.nan_to_num(floats_of(table.column(column.name))) * unit_of(records.domain, attribute)
    return np.round(found) if column.in_units else found


def unit_of(domain: Domain, attribute: int) -> float:
    """How many units of the last decimal make one."""
    return 10.0 ** (getattr(domain.column_of(attribute)[1], "decimals", None) or 0)


def _tilting(moments: Moments, codes: dict[int, NDArray[np.int64]], rows: Integers) -> Tilting:
    """Some released rows, by moments and by the values of each attribute but its most frequent."""
    names = moments.names
    ones = sum(len(cells) - 1 for cells in moments.ones.values())
    if len(names) + ones > MOST_MOMENTS:
        raise QueryError(
            f"these attributes have {len(names) + ones:,} numbers in their tables of pairs, and {MOST_MOMENTS} can "
            "be followed at once; name fewer, columns=[...]"
        )
    made = np.empty((len(rows), len(names) + ones))
    looked = {j: moments.features[j][codes[j][rows]] for j in moments.features}
    for place, name in enumerate(names):
        made[:, place] = np.prod([looked[j][:, f] for j, f in name.factors], axis=0)
    ridge = [np.clip(RIDGE * moments.variances(), 1e-9, MOST_RIDGE)]
    place = len(names)
    for j, cells in moments.ones.items():
        kept = _all_but_one(cells)
        made[:, place : place + len(kept)] = codes[j][rows][:, None] == kept
        place += len(kept)
        ridge.append(np.full(len(kept), RIDGE * moments.noise[j] ** 2 + 1e-9))
    return Tilting(made, np.concatenate(ridge))


def _wanted(moments: Moments, rng: np.random.Generator | None) -> Reals:
    ones, means = moments.drawn(rng)
    return np.concatenate([means, *(cells[_all_but_one(moments.ones[j])] for j, cells in ones.items())])


def _all_but_one(cells: Reals) -> NDArray[np.int64]:
    """The values of an attribute without the most frequent: the others say all."""
    return np.delete(np.arange(len(cells)), int(np.argmax(cells)))
