"""Codes: texts and numbers that nobody lists; questions are look-ups of whole records, and lists of them."""

from __future__ import annotations

import numpy as np

from dualquery import example, plots
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.kinds.kind import Kind, Stored, not_of_this_table
from dualquery.mechanisms.artefact import Artefact
from dualquery.mechanisms.lists import FILE, CellFractions
from dualquery.queries.lists import LOOK_UPS
from dualquery.table.codes import CodeTable

SHOWN = 15
EVERYBODY = 1 << 44  # the weight of all records of a hypothesis


def figures(artefact: CellFractions) -> list[plots.Figure]:
    """The records that most of the table is, as far as they were asked about."""
    most = np.argsort(-artefact.fraction, kind="stable")[:SHOWN]
    if not len(most):
        return []
    labels = [" · ".join(artefact.catalogue.texts[place].tolist()) for place in most.tolist()]
    name = ", ".join(column.name for column in artefact.domain.columns)
    caption = f"the {len(most)} largest of {len(artefact.fraction):,} that were asked about"
    return [plots.Figure(name, plots.histogram(labels, artefact.fraction[most], name=name), caption)]


def believes(domain: CodeTable, artefact: Artefact | None) -> WeightedRows:
    """The records that were read, by their fractions; what nobody has asked about lies on no row, or all of it."""
    if artefact is None:
        return WeightedRows(domain.records(np.empty((0, domain.width), np.str_)), rest=EVERYBODY)
    if not isinstance(artefact, CellFractions):
        raise not_of_this_table()
    held = np.maximum(np.rint(EVERYBODY * np.maximum(artefact.fraction, 0.0)), 1).astype(np.int64)
    rest = max(EVERYBODY - int(held.sum()), 1)
    return WeightedRows(domain.records(artefact.catalogue.texts), held, rest=rest)


CODES = Kind(
    domain=CodeTable,
    grammar=LOOK_UPS,
    # The evidence is in docs/learners.md, made by `experiments/sparse.py`.
    prefers=lambda task: (
        ("noisy-cells", "Chosen because one noisy histogram answers every look-up and every list."),
        ("touched-weights", "Chosen because a histogram cannot be paid for."),
    ),
    stored=(
        Stored(
            (FILE,),
            CellFractions.of_files,
            f"`{FILE}` holds every record that was asked about, the fraction of the table that is such a record, "
            "and how far off that may be. A list is the sum of its records; asking for it costs no privacy, as often "
            "as you like.",
            "The records that were asked about, by how many there are",
            figures,
        ),
    ),
    protects="It protects one record. A person with several records in the table is protected less.",
    example=example.patients,
    believes=believes,
)
