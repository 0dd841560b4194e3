"""SQL on the synthetic rows, by DuckDB, with bars.

The rows are the table `data`. They are not as many as the private records, so every `count` and `sum` over them is
multiplied by records / rows (`sql_query`).

Bars come from replicas (`mechanisms.error_bars`). The same query is asked of the table of each, which is its truth,
and of what was released of it. Rows of the three results that agree in the columns that nothing was computed for
belong together, and for a number v with errors e_1, …, e_B

    bar(v) = t_{.975, B} · √(Σ_b e_b² / B),

where t is the quantile of Student's law. Nothing is pooled: such a number may be of any kind. Bars are therefore
wider than those of `answers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dualquery.errors import DualQueryError, QueryError
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.error_bars import Replica, narrowest
from dualquery.releases.sql_query import SqlQuery, is_scaled

if TYPE_CHECKING:
    from dualquery.releases.release import Release

STUDENT_4 = 2.7764451051977987  # t_{.975, 4}

Row = tuple[Any, ...]


def sql_table(release: Release, text: str) -> pa.Table:
    """The result of a query, each computed number followed by its bar."""
    if release.records is None:
        raise QueryError(
            "this release holds answers and no records, so there is nothing to select from; release with a "
            "mechanism that makes synthetic records"
        )
    asked = SqlQuery(_duckdb(), text)
    records, rows = release.certificate["records"]["rows"], release.records.rows
    found = asked.of(release.to_arrow(), records, whole=True)
    computed = asked.computed(found)
    if not computed:
        return found
    errors = [_errors(asked, each, records, computed) for each in release.replicas]
    return _with_bars(found, asked, computed, errors, records * narrowest(records, rows))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise DualQueryError(
            "SQL needs DuckDB: pip install 'dualquery[sql]' (or ask `table` and `answers`, which do not)"
        ) from None
    return duckdb


def _by_key(table: pa.Table, computed: Sequence[int]) -> dict[Row, Row] | None:
    """The computed numbers of each row by the other columns; None where these do not tell rows apart."""
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    keys = zip(*(columns[i] for i in range(len(columns)) if i not in computed), strict=True)
    listed = list(keys) if len(columns) > len(computed) else [()] * table.num_rows
    rows = list(zip(*(columns[i] for i in computed), strict=True))
    found = dict(zip(listed, rows, strict=True))
    return found if len(found) == table.num_rows else None


def _errors(
    asked: SqlQuery, replica: Replica, records: int, computed: Sequence[int]
) -> dict[Row, list[float]] | None:
    """Of one replica, how far each number that was released of it is from its truth."""
    halves = [SyntheticRecords(half).to_arrow() for half in replica.halves]
    released = pa.concat_tables(halves, promote_options="default").unify_dictionaries()
    truth = SyntheticRecords(replica.table).to_arrow()
    known, told = (_by_key(asked.of(rows, records), computed) for rows in (truth, released))
    if known is None or told is None:
        return None
    nothing = _nothing(asked, computed)
    return {
        key: [
            a - b
            for a, b in zip(_numbers(told.get(key), nothing), _numbers(known.get(key), nothing), strict=True)
        ]
        for key in {*known, *told}
    }


def _nothing(asked: SqlQuery, computed: Sequence[int]) -> list[float]:
    """The numbers of a group that is not there: counts and sums are 0, of others nothing is known."""
    return [0.0 if is_scaled(asked.selected[i]) else math.nan for i in computed]


def _numbers(row: Row | None, nothing: Sequence[float]) -> list[float]:
    if row is None:
        return list(nothing)
    return [math.nan if each is None else float(each) for each in row]


def _with_bars(
    found: pa.Table,
    asked: SqlQuery,
    computed: Sequence[int],
    errors: Sequence[dict[Row, list[float]] | None],
    least: float,
) -> pa.Table:
    """The result with a bar behind each computed number: null where replicas cannot tell, of counts >= `least`."""
    known = [each for each in errors if each is not None]
    columns = [found.column(i).to_pylist() for i in range(found.num_columns)]
    keys: list[Row] = [
        tuple(columns[i][row] for i in range(len(columns)) if i not in computed)
        for row in range(found.num_rows)
    ]
    told = len(known) == len(errors) > 0 and len(set(keys)) == len(keys)
    nothing = _nothing(asked, computed)
    out: dict[str, Any] = {}
    for i, name in enumerate(found.column_names):
        out[name] = found.column(i)
        if i in computed:
            place = list(computed).index(i)
            off = [[each.get(key, nothing)[place] for each in known] if told else [math.nan] for key in keys]
            counted = str(asked.selected[i].get("function_name", "")).startswith("count")
            out[f"{name}_bar"] = pa.array(
                [_bar(each, least if counted else 0.0) for each in off], pa.float64()
            )
    return pa.table(out)


def _bar(errors: Sequence[float], least: float) -> float | None:
    """t · √(Σ e_b² / B), or None where an error is unknown."""
    square = sum(each**2 for each in errors) / len(errors)
    return max(least, STUDENT_4 * math.sqrt(square)) if math.isfinite(square) else None
