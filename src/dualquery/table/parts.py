"""A table in many files: which they are, in which order, and whether they belong together.

    people.csv              one file
    parts/part-*.parquet    all files that match, in the order of their names
    parts/                  all Parquet files below a directory

The counts of a table do not depend on the order or the number of its parts.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import is_mixed

_WILD = set("*?[")


def is_pattern(source: object) -> bool:
    """Whether a source is a pattern that stands for many files."""
    return isinstance(source, str) and bool(_WILD & set(source)) and not os.path.exists(source)


def matching(pattern: str) -> list[Path]:
    """The files that match a pattern, sorted by name; there must be one.

    A link that leads nowhere is one of them: whoever reads it says so, and no part is left out in silence.
    """
    found = sorted(path for name in glob.iglob(pattern, recursive=True) if not (path := Path(name)).is_dir())
    if not found:
        raise DataError(f"no file matches '{pattern}'; put the pattern in quotes, and look at what is there")
    return found


def size_in_bytes(source: object) -> int | None:
    """How many bytes the files of a source take on disk; None where it is no file."""
    if not isinstance(source, str | os.PathLike):
        return None
    files = matching(source) if isinstance(source, str) and is_pattern(source) else [Path(source)]
    total = 0
    for path in files:
        inside = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        total += sum(each.stat().st_size for each in inside if each.exists())
    return total


def same_kinds(batch: pa.Table, before: list[pa.DataType] | None, part: Path) -> list[pa.DataType]:
    """Parts of one table have columns of one kind: a part of another kind is likely another table."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in batch.schema.types]
    for name, kind, wanted in zip(batch.column_names, kinds, before or kinds, strict=True):
        if kind != wanted and not (pa.types.is_null(kind) or pa.types.is_null(wanted)):
            here, before_it = (
                "cells of any type" if is_mixed(each) else str(each) for each in (kind, wanted)
            )
            raise DataError(
                f"'{part}': column '{name}' holds {here} there and {before_it} in the parts before it; write all "
                "parts with the same type"
            )
    return before or kinds
