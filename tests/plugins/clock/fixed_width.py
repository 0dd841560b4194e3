"""Files of fixed-width lines. The first line names the columns, and each begins where its name begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dualquery import DataError, WantedColumns, file_source


def read(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    """The table at once: each line is read by itself, and a message quotes none."""
    header, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    begins = {match[0]: match.start() for match in re.finditer(r"\S+", header)}
    ends = dict(zip(begins, [*list(begins.values())[1:], None], strict=True))
    for name in wanted.names or begins:
        if name not in begins:
            raise DataError(f"'{path}' has no column '{name}'")
    cells = {n: [line[begins[n] : ends[n]].strip() or None for line in lines] for n in wanted.names or begins}
    yield pa.table({name: pa.array(each, pa.string()) for name, each in cells.items()})


FIXED_WIDTH = file_source({".fwf"}, read, name="fixed-width")
