"""Answers as frames: one row per question or cell, with its share of the records and its 95% bar.

    query or attributes, share, bar                   fractions of the table
    count, count_bar                                  the same times n, where n is public

n is public where neighbours share it, and where it was declared. Where it was measured it has noise of its own,
which no bar here knows of, and shares stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DualQueryError, QueryError
from dualquery.queries.families import grammar_of
from dualquery.queries.language.vocabulary import unknown_name
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Items

if TYPE_CHECKING:
    from dualquery.releases.release import Answer, Release

MOST_CELLS = 1_000_000
MOST_CELLS_AMONG = 20_000  # where a condition makes every cell a question of its own
KINDS = ("pandas", "polars", "arrow")


def as_frame(table: pa.Table, kind: str) -> Any:
    """An Arrow table as the kind of frame that is wanted."""
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
    """The numbers of some attributes by their names."""
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
