"""A table of 40 attributes in parts of a million rows, written a part at a time: for the benchmarks of streaming.

    24 categories of 2 to 9 values, as whole numbers     8 categories of 4 to 11 texts
     4 whole numbers from 0 to 99, in ten bins           4 floats from 0 to 128 in steps of 1/2, in sixteen bins

Neighbouring attributes depend on each other. A row takes about 21 bytes in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.schema import Schema

PART = 1_000_000
CODED, NAMED, COUNTED, MEASURED = 24, 8, 4, 4


def schema() -> Schema:
    """What is public about the table."""
    coded = [Categorical(f"coded_{j}", tuple(map(str, range(_values(j))))) for j in range(CODED)]
    named = [Categorical(f"named_{j}", tuple(_names(j))) for j in range(NAMED)]
    counted = [Numeric(f"counted_{j}", tuple(range(0, 101, 10)), integer=True) for j in range(COUNTED)]
    measured = [Numeric(f"measured_{j}", tuple(range(0, 129, 8))) for j in range(MEASURED)]
    return Schema(Domain((*coded, *named, *counted, *measured)))


def parts(folder: Path, number: int) -> list[Path]:
    """The first so many parts, made where they are not there yet. A part does not depend on how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [folder / f"part-{i:04d}.parquet" for i in range(number)]
    for i, path in enumerate(found):
        if not path.exists():
            beside = path.with_suffix(".unfinished")
            pa.parquet.write_table(part(i), beside, row_group_size=1 << 18)
            beside.rename(path)
    return found


def part(number: int, rows: int = PART) -> pa.Table:
    """One part."""
    rng = np.random.default_rng([2026, number])
    columns: dict[str, pa.Array] = {}
    before = np.zeros(rows, np.int64)
    for j in range(CODED):
        before = _moved(rng, before, _values(j))
        columns[f"coded_{j}"] = pa.array(before.astype(np.int32))
    for j in range(NAMED):
        names = _names(j)
        before = _moved(rng, before, len(names))
        columns[f"named_{j}"] = pa.DictionaryArray.from_arrays(before.astype(np.int32), names).cast(
            pa.string()
        )
    for j in range(COUNTED):
        columns[f"counted_{j}"] = pa.array(rng.integers(0, 100, rows).astype(np.int32))
    for j in range(MEASURED):
        columns[f"measured_{j}"] = pa.array(rng.integers(0, 256, rows) / 2)
    return pa.table(columns)


def _moved(rng: np.random.Generator, before: np.ndarray, size: int) -> np.ndarray:
    """The attribute before it, in half of the rows a new value, small ones more likely."""
    fresh = np.minimum(rng.integers(0, size, len(before)), rng.integers(0, size, len(before)))
    return np.where(rng.random(len(before)) < 0.5, fresh, before % size)


def _values(j: int) -> int:
    return 2 + j % 8


def _names(j: int) -> Sequence[str]:
    return [f"{'abcdefghijklmnopqrstuvwxyz'[v]} of {4 + j}" for v in range(4 + j)]
