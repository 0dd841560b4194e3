"""What a release has measured, as a table and as a list for people.

measurements.parquet has one row per measurement: its kind, the names of the attributes that it is about, a text where
these do not say which it is, the noisy numbers in records, and the variance of their noise. An interaction of several
attributes is written row by row, the last attribute fastest (`fitting.measured`). The noise was paid for, so that
anybody may make what they like of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError, QueryError
from dualquery.fitting.measured import Measured, MeasuredTables, Numbers
from dualquery.inference.conclusions import Conclusions
from dualquery.inference.draws import Imputations
from dualquery.table.domain import Domain

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
