"""What people get of a release as tables: answers, what there is of each column by itself, and rows.

*Answers* have one row per question or cell, with its share of the records and its 95% bar.

    query or attributes, share, bar                   fractions of the table
    count, count_bar                                  the same times n, where n is public

n is public where neighbours share it, and where it was declared. Where it was measured it has noise of its own,
which no bar here knows of, and shares stand alone.

*Rows*: answers need many rows, people take the rows of a file for records. So by default synthetic.parquet has as
many as the table, evenly drawn from all, and rows.parquet beside it has all, for answers. Where somebody asked for a
number of rows, synthetic.parquet has these. Of a database they are NAME.parquet and rows.NAME.parquet.

*What was measured*, as a table and as a list for people: measurements.parquet has one row per measurement: its kind,
the names of the attributes that it is about, a text where these do not say which it is, the noisy numbers in records,
and the variance of their noise. An interaction of several attributes is written row by row, the last attribute
fastest (`fitting.measured`). The noise was paid for, so that anybody may make what they like of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import combinations
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, DualQueryError, QueryError
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.inference.conclusions import Conclusions
from dualquery.inference.draws import Imputations
from dualquery.mechanisms.artefact import SYNTHETIC, SyntheticUnits
from dualquery.queries.families import grammar_of
from dualquery.queries.language import unknown_name
from dualquery.queries.tables import Tables
from dualquery.table.cells import floats_of
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Column, Domain, Items
from dualquery.types import Reals

if TYPE_CHECKING:
    from dualquery.releases.release import Release

INTERACTION = "interaction"
WITHIN = "within"
LISTED = 8  # attributes: the certificate names those of a measurement that is about no more
_SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "columns": pa.list_(pa.string()),
        "text": pa.string(),
        "cells": pa.list_(pa.float64()),
        "variance": pa.float64(),
    }
)


def named(domain: Domain, measured: Measured) -> tuple[str, list[str], str]:
    """What was measured: its kind, the names of its attributes, and its text."""
    what = measured.what if isinstance(measured.what, Numbers) else Numbers(INTERACTION, measured.what)
    return what.kind, [domain.name(j) for j in what.attributes], what.text


def as_table(domain: Domain, measured: Sequence[Measured]) -> pa.Table:
    words = [named(domain, each) for each in measured]
    columns = {
        "kind": [kind for kind, _, _ in words],
        "columns": [names for _, names, _ in words],
        "text": [text for _, _, text in words],
        "cells": [np.ravel(each.values).astype(np.float64) for each in measured],
        "variance": [float(each.variance) for each in measured],
    }
    return pa.table(columns, schema=_SCHEMA)


def of_table(domain: Domain, table: pa.Table) -> tuple[Measured, ...]:
    """What a table holds; DataError where it is not about this domain."""
    if table.schema != _SCHEMA:
        raise DataError("the measurements are no table of ours")
    place = {name: j for j, name in enumerate(domain.names())} if table.num_rows else {}
    return tuple(_measured(domain, place, row) for row in table.to_pylist())


def _measured(domain: Domain, place: Mapping[str, int], row: Mapping[str, Any]) -> Measured:
    members = tuple(place[name] for name in row["columns"])
    cells, variance = np.array(row["cells"], np.float64), float(row["variance"])
    if not np.isfinite(cells).all() or not 0 <= variance < np.inf:
        raise DataError("a measurement is no number")
    if row["kind"] != INTERACTION:
        return Measured(Numbers(row["kind"], members, row["text"]), cells, variance)
    shape = tuple(int(domain.sizes[j]) for j in members)
    if list(members) != sorted(set(members)) or cells.size != prod(shape):
        raise DataError("an interaction has one number per cell")
    return Measured(members, cells.reshape(shape), variance)


def pairs_of(measured: Sequence[Measured]) -> set[tuple[int, int]]:
    """The pairs of attributes that were measured together: as an interaction of their own, or within a table."""
    found: set[tuple[int, int]] = set()
    for each in measured:
        if isinstance(each.what, tuple) and len(each.what) == 2:
            found.add((each.what[0], each.what[1]))
        elif isinstance(each.what, Numbers) and each.what.kind == "table":
            found.update(combinations(each.what.attributes, 2))
    return found


def listed(domain: Domain, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """As the certificate lists them: what, how many numbers, and the variance of the noise of each, in records²."""
    entries = []
    for each in measured:
        kind, names, text = named(domain, each)
        entry = {"kind": kind, "columns": names if len(names) <= LISTED else [], "text": text}
        numbers, variance = int(np.size(each.values)), float(each.variance)
        entries.append(
            {**{k: v for k, v in entry.items() if v or k != "text"}, "numbers": numbers, "variance": variance}
        )
    return entries


def conclusions(release: Release) -> Conclusions:
    """What draws are made from: rows, the tables that were measured, and sums of places inside bins."""
    if release.certificate.schema.domain.inner:
        raise QueryError(
            'of a database nothing can be estimated so far; ask `answers`, of units or (of="person") of their rows, '
            "or `sql`: their numbers have bars"
        )
    if release.records is None or release.certificate.schema.domain.kind != "records":
        raise QueryError(
            "this release holds no synthetic records of a table, so nothing can be estimated from it; ask `answers`, "
            "or release with a mechanism that makes records"
        )
    sets = {each.what for each in release.measured if isinstance(each.what, tuple)}
    whole = () in sets and any(len(members) == 1 for members in sets)
    tables = MeasuredTables.of(release.domain, release.measured) if whole else None
    inside = {
        release.domain.name(each.what.attributes[0]): each
        for each in release.measured
        if isinstance(each.what, Numbers) and each.what.kind == WITHIN
    }
    said = release.certificate["records"]["rows"]
    seed = int(release.certificate["replicas"]["seed"])
    draws = Imputations(release.records, tables, int(said), seed, inside)
    return Conclusions(draws, release.replicas)


if TYPE_CHECKING:
    from dualquery.releases.release import Answer, Release

MOST_CELLS = 1_000_000
MOST_CELLS_AMONG = 20_000  # where a condition makes every cell a question of its own
KINDS = ("pandas", "polars", "arrow")
DESCRIBED = ["mean", "sd", "q25", "median", "q75"]  # of numbers
ROWS = "rows.parquet"
KEY = b"dualquery"  # of the metadata of the file
WARNING = (
    "Synthetic records with differential privacy: none is a person. They are not independent records of the table: "
    "do not compute standard errors, confidence intervals or p-values from them. release.estimate and "
    "release.regress (dualquery regress) give intervals that hold; release.answer, table and sql give numbers with "
    "their bars."
)


def as_frame(table: pa.Table, kind: str) -> Any:
    if kind not in KINDS:
        raise DualQueryError(f"frame must be one of {', '.join(KINDS)}, got '{kind}'")
    if kind == "arrow":
        return table
    try:
        module = import_module(kind)
    except ImportError:
        raise DualQueryError(
            f"{kind} is not installed; install it, or ask for another frame: frame='arrow' needs nothing more"
        ) from None
    return table.to_pandas() if kind == "pandas" else module.from_arrow(table)


def answers_table(release: Release, answers: Sequence[Answer], *, counts: bool = True) -> pa.Table:
    """One row per question; without counts where shares are among some records only."""
    values = np.array([each.value for each in answers], np.float64)
    bars = [each.error for each in answers]
    return pa.table(
        {
            "query": pa.array([each.query for each in answers], pa.string()),
            **_columns(release, values, bars, counts),
        }
    )


def cells_table(
    release: Release, by: str | Sequence[str], where: str | None, given: str | None = None
) -> pa.Table:
    """Every cell over the attributes `by`, the last varying fastest; only of records for which `where` holds.

    With `given`, shares among the records for which that holds.
    """
    if where is not None and given is not None:
        raise QueryError("give one of where (shares of the whole table) and given (shares among its records)")
    members = attributes_of(release, by)
    shape = [int(release.domain.sizes[j]) for j in members]
    most = MOST_CELLS if where is None and given is None else MOST_CELLS_AMONG
    if prod(shape) > most:
        raise QueryError(
            f"a table by {', '.join(_names(by))} has {prod(shape):,} cells, and {most:,} are the most; name fewer"
        )
    group = Tables(release.domain, (tuple(sorted(members)),))
    if given is not None:
        texts = group.texts(np.arange(group.size, dtype=np.int64))
        answers = release.answer_given(list(texts), given)
    elif where is None:
        answers = release.answers_of(group)
    else:
        release.answer_all([where], places=["where"])  # what is wrong with it is told of it alone
        texts = group.texts(np.arange(group.size, dtype=np.int64))
        answers = release.answer_all([f"{text} & ({where})" for text in texts], places=["where"] * group.size)
    order = _in_order(members, release.domain.sizes)
    kept = [answers[i] for i in order.tolist()]
    codes = np.unravel_index(np.arange(group.size), shape)
    labels = {
        name: _labelled(release, j, code) for name, j, code in zip(_names(by), members, codes, strict=True)
    }
    values = np.array([each.value for each in kept], np.float64)
    return pa.table({**labels, **_columns(release, values, [each.error for each in kept], given is None)})


def attributes_of(release: Release, by: str | Sequence[str]) -> list[int]:
    if release.domain.kind not in ("records", "database"):
        words = grammar_of(release.domain).words
        raise QueryError(f"this table is asked about {words}, one question at a time; ask `answers`")
    names, found = _names(by), []
    for name in names:
        number = release.domain.find(name) if isinstance(name, str) else None
        if number is None:
            raise QueryError(unknown_name(release.domain, str(name)))
        found.append(number)
    if not found:
        raise QueryError("name at least one attribute for a table")
    if len(set(found)) < len(found):
        raise QueryError(f"an attribute stands twice in {', '.join(names)}")
    return found


def _names(by: str | Sequence[str]) -> list[str]:
    if isinstance(by, str):
        return [by]
    if not isinstance(by, Iterable):
        raise QueryError(f"expected the name of an attribute or a list of names, got {type(by).__name__}")
    return list(by)


def _in_order(members: Sequence[int], sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where the cells of a table over `members` as given stand in the table over their increasing order."""
    increasing = sorted(members)
    cells = np.arange(prod(int(sizes[j]) for j in increasing)).reshape([int(sizes[j]) for j in increasing])
    return cells.transpose([increasing.index(j) for j in members]).ravel()


def _labelled(release: Release, attribute: int, codes: NDArray[np.int64]) -> pa.Array:
    """The values of an attribute as labels that keep the order of the schema."""
    _, column = release.domain.column_of(attribute)
    ordered = not isinstance(column, Items) and (not isinstance(column, Categorical) or column.ordered)
    labels = pa.array(release.domain.labels(attribute), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels, ordered=ordered)


def _columns(
    release: Release, values: NDArray[np.float64], bars: Sequence[float | None], counts: bool = True
) -> dict[str, pa.Array]:
    widths = pa.array(bars, pa.float64())
    found = {"share": pa.array(values, pa.float64()), "bar": widths}
    if counts and release.public_rows is not None:
        rows = float(release.public_rows)
        wide = [None if bar is None else bar * rows for bar in bars]
        found |= {"count": pa.array(values * rows), "count_bar": pa.array(wide, pa.float64())}
    return found


def described(release: Release) -> pa.Table:
    """One row per column: of numbers mean, deviation and quartiles, of others the most frequent value, its share."""
    if release.records is None or release.certificate.schema.domain.kind != "records":
        raise QueryError("this release holds no synthetic records of one table to describe; ask `answers`")
    from dualquery.fitting.smooth import number_codes

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
        *(f"{name}{end}" for name in DESCRIBED for end in ("", "_bar")),
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
            return DESCRIBED, np.full(len(DESCRIBED), np.nan)
        spread = known.std(ddof=1) if len(known) > 1 else np.nan
        return DESCRIBED, np.array([known.mean(), spread, *np.quantile(known, [0.25, 0.5, 0.75])])

    from dualquery.inference.inside import least_of_quantiles

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


def files_of(release: Release) -> dict[str, pa.Table]:
    """What is kept of an artefact, by file name, with the rows for people first."""
    files = release.artefact.files()
    if isinstance(release.artefact, SyntheticUnits):
        people = units_for_people(release, release.artefact)
        rest = {} if people is release.artefact else {rows_file(name): table for name, table in files.items()}
        warned = {
            name: table.replace_schema_metadata({KEY: WARNING.encode()})
            for name, table in people.files().items()
        }
        return warned | rest
    if SYNTHETIC not in files:
        return files
    few = for_people(release)
    whole = {} if few.num_rows == files[SYNTHETIC].num_rows else {ROWS: files[SYNTHETIC]}
    return {SYNTHETIC: few.replace_schema_metadata({KEY: WARNING.encode()}), **whole}


def for_people(release: Release) -> pa.Table:
    """The rows that people open: as many as the table has, where nobody asked for a number of them."""
    table = release.to_arrow()
    few = None if release.records is None else _few(release, table.num_rows)
    return table if few is None else table.take(pa.array(few))


def units_for_people(release: Release, whole: SyntheticUnits) -> SyntheticUnits:
    """The same of a database: some units, each with all that hangs on it, and keys of their own. Where fewer were
    fitted than there are, some stand several times, evenly."""
    rows, wanted = whole.records.rows, release.certificate.get("rows_for_people")
    if wanted is not None and wanted > rows:
        return SyntheticUnits(whole.records.take(np.arange(wanted) % rows))
    few = _few(release, rows)
    return whole if few is None else SyntheticUnits(whole.records.take(few))


def _few(release: Release, rows: int) -> NDArray[np.int64] | None:
    """The rows that people open; None for all."""
    wanted = release.certificate.get("rows_for_people")
    if wanted is None or wanted >= rows:
        return None
    if "totals" in release.certificate:  # each block of rows meets them
        return np.arange(wanted)
    rng = np.random.default_rng([int(release.certificate["replicas"]["seed"]), wanted])
    return np.sort(rng.permutation(rows)[:wanted])


def rows_file(name: str) -> str:
    """The file that holds all rows, where people open one with fewer."""
    return ROWS if name == SYNTHETIC else f"{Path(ROWS).stem}.{name}"
