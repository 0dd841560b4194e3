"""What people open of a release: as many rows as the table has, and a word in the file on what they are not.

Answers need many rows, people take the rows of a file for records. So by default synthetic.parquet has as many as the
table, evenly drawn from all, and rows.parquet beside it has all, for answers. Where somebody asked for a number of
rows, synthetic.parquet has these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dualquery.mechanisms.artefact import SYNTHETIC

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
    if SYNTHETIC not in files:
        return files
    few = for_people(release)
    whole = {} if few.num_rows == files[SYNTHETIC].num_rows else {ROWS: files[SYNTHETIC]}
    return {SYNTHETIC: few.replace_schema_metadata({KEY: WARNING.encode()}), **whole}


def for_people(release: Release) -> pa.Table:
    """The rows that people open: as many as the table has, where nobody asked for a number of them."""
    table = release.to_arrow()
    wanted = release.certificate.get("rows_for_people")
    if release.records is None or wanted is None or wanted >= table.num_rows:
        return table
    if "totals" in release.certificate:  # each block of rows meets them
        return table.slice(0, wanted)
    rng = np.random.default_rng([int(release.certificate["replicas"]["seed"]), wanted])
    return table.take(pa.array(np.sort(rng.permutation(table.num_rows)[:wanted])))
