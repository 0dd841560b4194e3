"""What a release says of each column by itself, with bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dualquery.errors import QueryError
from dualquery.fitting.smooth import number_codes
from dualquery.inference.inside import least_of_quantiles
from dualquery.table.cells import floats_of
from dualquery.table.dates import Dates
from dualquery.table.domain import Column, Items
from dualquery.types import Reals

if TYPE_CHECKING:
    from dualquery.releases.release import Release

NAMES = ["mean", "sd", "q25", "median", "q75"]


def described(release: Release) -> pa.Table:
    """One row a column: of numbers mean, deviation and quartiles, of others the most frequent value and its share."""
    if release.records is None or release.certificate.schema.domain.kind != "records":
        raise QueryError("this release holds no synthetic records of one table to describe; ask `answers`")
    rows = []
    for number, column in enumerate(release.domain.columns):
        if isinstance(column, Items):
            continue
        row: dict[str, object] = {"column": column.name}
        attribute = release.domain.starts[number]
        if number_codes(column) is not None and not isinstance(column, Dates):
            row |= _of_numbers(release, column, attribute)
        else:
            row |= _most_frequent(release, column.name)
        rows.append(row)
    kinds = {"column": pa.string(), "top": pa.string()}
    names = [
        "column",
        *(f"{name}{end}" for name in NAMES for end in ("", "_bar")),
        "top",
        "share",
        "share_bar",
    ]
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.float64())) for name in names]))


def _of_numbers(release: Release, column: Column, attribute: int) -> dict[str, object]:
    def made(table: pa.Table) -> tuple[list[str], Reals]:
        cells = floats_of(table.column(column.name))
        known = cells[~np.isnan(cells)]
        if not len(known):
            return NAMES, np.full(len(NAMES), np.nan)
        spread = known.std(ddof=1) if len(known) > 1 else np.nan
        return NAMES, np.array([known.mean(), spread, *np.quantile(known, [0.25, 0.5, 0.75])])

    names, values, bars = release.conclusions.bars(made, [attribute])
    least = least_of_quantiles(column, values[2:])
    bars = [*bars[:2], *(max(bar, half) for bar, half in zip(bars[2:], least, strict=True))]
    row: dict[str, object] = {}
    for name, value, bar in zip(names, values.tolist(), bars, strict=True):
        row |= {name: value, f"{name}_bar": bar if np.isfinite(bar) else None}
    return row


def _most_frequent(release: Release, name: str) -> dict[str, object]:
    table = release.table(name, frame="arrow")
    if not table.num_rows:
        return {}
    top = int(np.argmax(table.column("share").to_numpy()))
    row = table.slice(top, 1).to_pylist()[0]
    return {"top": str(row[name]), "share": row["share"], "share_bar": row["bar"]}
