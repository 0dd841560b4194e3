"""How far off each number is that SQL computes of synthetic rows.

The query is asked of the tables that are drawn around what was measured (`inference.draws`), for which unmeasured
pairs are as uncertain as they are, and numbers lie anywhere inside their bins that nothing excludes; and of the
replicas of the release (`mechanisms.error_bars`), the table of each, which is its truth, and what was released of it.
Rows of the results that agree in the columns that nothing was computed for belong together. For a number v with draws
v_1, …, v_m and errors e_1, …, e_B

    bar(v) = t · √(((m − 1) S + Σ_b e_b²) / (m − 1 + B)),    S = (1 + 1/m) Σ_i (v_i − v)² / m,

with m − 1 + B degrees of freedom, or by replicas alone where these contradict draws (`inference.estimates`). Nothing
is pooled with other numbers: such a number may be of any kind. Where no measurement was kept, draws only place
numbers inside bins, both terms are added, and t has B degrees of freedom. Of the smallest and the largest number, and
of how many different ones there are, a release knows nothing that holds: their bars are null, and so are those of
groups that are not in most draws. The bar of a quantile is at least about half its bin. Of a database there are
replicas alone, and for counts and sums the noise of the number of units.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from dualquery.errors import DualQueryError, QueryError
from dualquery.inference.conclusions import Conclusions
from dualquery.inference.estimates import half_width
from dualquery.inference.inside import least_of_quantiles
from dualquery.mechanisms.artefact import SyntheticUnits
from dualquery.mechanisms.error_bars import BAR, Replica, narrowest
from dualquery.releases.sql import SqlQuery, aggregates, is_scaled
from dualquery.table.domain import Items
from dualquery.table.units import Units, joined_units

if TYPE_CHECKING:
    from dualquery.releases.release import Release

NOTES = b"notes"  # in the metadata of a result: why bars are null
_ENDS = {"min", "max", "first", "last", "arg_min", "arg_max"}
_QUANTILES = {"median", "mode", "quantile", "quantile_cont", "quantile_disc", "approx_quantile"}

Row = tuple[Any, ...]
Found = (
    dict[Row, list[float]] | None
)  # the computed numbers of each row by its key; None where keys do not tell


def sql_table(release: Release, text: str) -> pa.Table:
    """The result of a query, each computed number followed by its bar."""
    if release.records is None:
        raise QueryError(
            "this release holds answers and no records, so there is nothing to select from; release with a "
            "mechanism that makes synthetic records"
        )
    if release.domain.kind != release.certificate.schema.domain.kind:
        raise QueryError(
            "SQL is asked of the whole release of a database: select from its tables by their names"
        )
    if isinstance(release.artefact, SyntheticUnits):
        return _of_database(release, release.artefact, text)
    asked = SqlQuery(_duckdb(), text)
    records, rows = release.certificate["records"]["rows"], release.records.rows
    found = asked.of(release.to_arrow(), records, whole=True)
    computed = asked.computed(found)
    if not computed:
        return found
    bars = DrawnBars(asked, records, computed, release.conclusions)
    return _with_bars(found, bars, records * narrowest(records, rows))


def _of_database(release: Release, units: SyntheticUnits, text: str) -> pa.Table:
    """The same of the tables of a database; the bars are those of replicas."""
    database, rows = units.records.database, units.records.rows
    keys = {each.name: str(each.key if each is database.root else each.link) for each in database.tables}
    asked, records = SqlQuery(_duckdb(), text, keys), release.certificate["records"]["rows"]
    found = asked.of(units.tables, records, whole=True)
    computed = asked.computed(found)
    if not computed:
        return found
    counted = next((each.variance for each in release.measured if each.what == ()), 0.0)
    bars = UnitBars(asked, records, computed, release.replicas, math.sqrt(counted) / records)
    return _with_bars(found, bars, records * narrowest(records, rows))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise DualQueryError(
            "SQL needs DuckDB: pip install 'dualquery[sql]' (or ask `table` and `answers`, which do not)"
        ) from None
    return duckdb


@dataclass(frozen=True, eq=False)
class Bars(ABC):
    """Of one query: which of its columns are computed, and what is known of them."""

    asked: SqlQuery
    records: int
    computed: Sequence[int]

    @abstractmethod
    def off(self, keys: Sequence[Row], values: Sequence[list[float]]) -> tuple[list[list[float]], list[str]]:
        """The half-width of each number of each row, NaN where it is unknown, and why."""

    def least(self, place: int) -> Callable[[float], float]:
        """What the bar of a number of a column cannot be below."""
        return lambda value: 0.0

    def _apart(
        self, pairs: Sequence[tuple[Found, Found]], keys: Sequence[Row], values: Sequence[list[float]] | None
    ) -> list[Any]:
        """For each row how far each first is from the second, or from what was printed: one line a pair."""
        nothing = _nothing(self.asked, self.computed)
        out = []
        for place, key in enumerate(keys):
            lines = []
            for one, other in pairs:
                if one is None or (other is None and values is None):
                    lines.append([math.nan] * len(self.computed))
                    continue
                from_what = (
                    values[place] if other is None and values is not None else (other or {}).get(key, nothing)
                )
                lines.append([a - b for a, b in zip(one.get(key, nothing), from_what, strict=True)])
            out.append(np.array(lines).reshape(len(lines), len(self.computed)))
        return out

    def _by_key(self, rows: pa.Table | Mapping[str, pa.Table], number: float) -> Found:
        table = self.asked.of(rows, number)
        numbers = [_numbers(row) for row in _computed_rows(table, self.computed)]
        found = dict(zip(keys_of(table, self.computed), numbers, strict=True))
        return found if len(found) == table.num_rows else None

    def unknown(self, place: int) -> str | None:
        """Why nothing can hold of a computed column."""
        called = {str(each.get("function_name", "")) for each in aggregates(self.asked.selected[place])}
        distinct = any(each.get("distinct") for each in aggregates(self.asked.selected[place]))
        if called & _ENDS:
            return "a release does not know the smallest and the largest number; ask for quantiles"
        if distinct or "approx_count_distinct" in called:
            return "a release does not know how many different values there are"
        return None


@dataclass(frozen=True, eq=False)
class DrawnBars(Bars):
    """By draws and replicas."""

    conclusions: Conclusions

    def off(self, keys: Sequence[Row], values: Sequence[list[float]]) -> tuple[list[list[float]], list[str]]:
        """The half-width of each number of each row, NaN where it is unknown, and why."""
        errors = self._apart(list(self._of_replicas()), keys, None)
        notes: list[str] = []
        try:
            draws = self._apart(list(self._of_draws()), keys, values)
        except QueryError as error:
            return [[math.nan] * len(self.computed) for _ in keys], [f"bars are null: {error}"]
        bars, measured = [], self.conclusions.draws.measured is not None
        for place in range(len(keys)):
            own, around = errors[place], draws[place]
            bars.append(
                [half_width(own[:, i], around[:, i], measured=measured) for i in range(len(self.computed))]
            )
        if any(map(math.isnan, (bar for row in bars for bar in row))):
            notes.append(
                "bars are null where a group is missing from many draws, or no replica or measurement was kept"
            )
        return bars, notes

    def _of_draws(self) -> Iterator[tuple[Found, Found]]:
        draws = self.conclusions.draws
        attributes = self._attributes()
        if not attributes:
            attributes = [j for j in range(draws.domain.width) if self._plain(j)][:1]
        drawn = draws.of(attributes)
        rng = np.random.default_rng([draws.seed, 4])
        for table in draws.evenly(drawn):
            yield self._by_key(table, draws.number(rng)), None

    def _attributes(self) -> list[int]:
        """Those that the query mentions; of blocks of items only replicas tell."""
        domain, names = self.conclusions.domain, self.asked.names
        return [
            j
            for j in range(domain.width if len(domain.columns) == domain.width else 0)
            if self._plain(j) and (names is None or domain.name(j).lower() in names)
        ]

    def _plain(self, attribute: int) -> bool:
        return not isinstance(self.conclusions.domain.column_of(attribute)[1], Items)

    def _of_replicas(self) -> Iterator[tuple[Found, Found]]:
        for known, told in self.conclusions.repeated:
            yield self._by_key(told, self.records), self._by_key(known, self.records)

    def least(self, place: int) -> Callable[[float], float]:
        """What the bar of a quantile of a plain column cannot be below."""
        node = self.asked.selected[place]
        column = _plain_column(node)
        named = {each.name.lower(): each for each in self.conclusions.domain.columns}
        of = named.get(column or "")
        if of is None or node.get("function_name") not in _QUANTILES:
            return lambda value: 0.0
        return lambda value: float(least_of_quantiles(of, np.array([value]))[0])


@dataclass(frozen=True, eq=False)
class UnitBars(Bars):
    """By the replicas of a database, which all have its noisy number of units, and by the noise of that number."""

    replicas: Sequence[Replica]
    number_off: float  # the deviation of that number's noise, as a fraction of it

    def off(self, keys: Sequence[Row], values: Sequence[list[float]]) -> tuple[list[list[float]], list[str]]:
        """The half-width of each number of each row, NaN where it is unknown, and why."""
        pairs = [
            tuple(self._by_key(SyntheticUnits(cast("Units", rows)).tables, self.records) for rows in both)
            for each in self.replicas
            for both in [(joined_units([cast("Units", half) for half in each.halves]), each.table)]
        ]
        nothing = np.empty(0)
        bars = [
            [half_width(errors[:, i], nothing, measured=False) for i in range(len(self.computed))]
            for errors in self._apart([(told, known) for told, known in pairs], keys, None)
        ]
        for place, number in product(range(len(keys)), range(len(self.computed))):
            if is_scaled(self.asked.selected[self.computed[number]]):
                more = BAR * self.number_off * values[place][number]
                bars[place][number] = math.hypot(bars[place][number], more)
        unknown = any(map(math.isnan, (bar for row in bars for bar in row)))
        return bars, ["bars are null where a group is missing from replicas"] if unknown else []


def _plain_column(node: Mapping[str, Any]) -> str | None:
    """The column that a call is about, where it is about that alone."""
    inside = node.get("children") or []
    if inside and inside[0].get("class") == "COLUMN_REF":
        return str(inside[0]["column_names"][-1]).lower()
    return None


def keys_of(table: pa.Table, computed: Sequence[int]) -> list[Row]:
    """What tells the rows apart: the columns that nothing was computed for."""
    others = [table.column(i).to_pylist() for i in range(table.num_columns) if i not in computed]
    return list(zip(*others, strict=True)) if others else [()] * table.num_rows


def _computed_rows(table: pa.Table, computed: Sequence[int]) -> list[Row]:
    return list(zip(*(table.column(i).to_pylist() for i in computed), strict=True))


def _nothing(asked: SqlQuery, computed: Sequence[int]) -> list[float]:
    """The numbers of a group that is not there: counts and sums are 0, of others nothing is known."""
    return [0.0 if is_scaled(asked.selected[i]) else math.nan for i in computed]


def _numbers(row: Row) -> list[float]:
    return [math.nan if each is None else float(each) for each in row]


def _with_bars(found: pa.Table, bars: Bars, least: float) -> pa.Table:
    """The result with a bar behind each computed number: null where nothing tells, of counts >= `least`."""
    computed = list(bars.computed)
    keys, values = keys_of(found, computed), [_numbers(row) for row in _computed_rows(found, computed)]
    notes: list[str] = []
    off = [[math.nan] * len(computed) for _ in keys]
    if len(set(keys)) == len(keys):
        off, notes = bars.off(keys, values)
    else:
        notes.append(
            "bars are null where the other columns do not tell the rows apart: select what you group by"
        )
    out: dict[str, Any] = {}
    for i, name in enumerate(found.column_names):
        out[name] = found.column(i)
        if i not in computed:
            continue
        place = computed.index(i)
        why, narrow = bars.unknown(i), bars.least(i)
        if why is not None:
            notes.append(f"{name}_bar is null: {why}")
        counted = str(bars.asked.selected[i].get("function_name", "")).startswith("count")
        floors = [least if counted else narrow(row[place]) for row in values]
        told = [row[place] for row in off]
        out[f"{name}_bar"] = pa.array(
            [
                None if why is not None or not math.isfinite(bar) else max(floor, bar)
                for bar, floor in zip(told, floors, strict=True)
            ],
            pa.float64(),
        )
    return pa.table(out).replace_schema_metadata({NOTES: "\n".join(dict.fromkeys(notes)).encode()})


def notes_of(table: pa.Table) -> list[str]:
    """Why bars of a result are null."""
    return [line for line in (table.schema.metadata or {}).get(NOTES, b"").decode().split("\n") if line]
