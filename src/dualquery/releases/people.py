"""What people open of a release: as many rows as the table has, and a word in the file on what they are not.

Answers need many rows, people take the rows of a file for records. So by default synthetic.parquet has as many as the
table, evenly drawn from all, and rows.parquet beside it has all, for answers. Where somebody asked for a number of
rows, synthetic.parquet has these. Of a database they are NAME.parquet and rows.NAME.parquet, a file for each table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import SYNTHETIC, SyntheticUnits

if TYPE_CHECKING:
    from dualquery.releases.release import Release

ROWS = "rows.parquet"
KEY = b"dualquery"  # of the metadata of the file
WARNING = (
    "Synthetic records with differential privacy: none is a person. They are not independent records of the table: "
    "do not compute standard errors, confidence intervals or p-values from them. release.estimate and "
    "release.regress (dualquery regress) give intervals that hold; release.answer, table and sql give numbers with "
    "their bars."
)


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
