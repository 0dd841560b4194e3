"""Databases: records of a protected table, each with the rows of other tables that hang on it."""

from __future__ import annotations

import numpy as np

from dualquery import example, plots
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.kinds.kind import Kind, Stored, not_of_this_table
from dualquery.mechanisms.artefact import Artefact, SyntheticUnits
from dualquery.queries.language.units import UNITS
from dualquery.queries.workload import affordable_order
from dualquery.table.database import Database

MOST_BARS = 30


def figures(artefact: SyntheticUnits) -> list[plots.Figure]:
    """Of every attribute of a child table the share of units with at least one row of each value."""
    units, pictures = artefact.records, []
    for child, members in zip(units.database.children, units.members, strict=True):
        owner = members.owner
        for column, codes in zip(child.columns, members.records.columns, strict=True):
            size = len(column.labels)
            held = np.unique(owner * size + np.asarray(codes, np.int64)) % size
            shares = np.bincount(held, minlength=size) / max(1, units.rows)
            kept = np.sort(np.argsort(-shares, kind="stable")[:MOST_BARS])
            labels = [column.labels[i] for i in kept.tolist()]
            name = f"any({child.name}.{column.name} = …)"
            caption = "" if len(kept) == size else f"the {len(kept)} most frequent of {size:,} values"
            svg = plots.histogram(labels, shares[kept], name=name)
            pictures.append(plots.Figure(name, svg, caption))
    return pictures[: plots.MOST_COLUMNS]


def believes(domain: Database, artefact: Artefact | None) -> WeightedRows:
    if not isinstance(artefact, SyntheticUnits):
        raise not_of_this_table()
    return WeightedRows(artefact.records)


DATABASE = Kind(
    domain=Database,
    grammar=UNITS,
    prefers=lambda task: (("linked", "Chosen because it gives tables back whose keys hold."),),
    stored=(
        Stored(
            (),
            SyntheticUnits.of_files,
            "Each table of the database is a file of its name, like the ones it was made from, with keys of its own "
            "that fit each other. Its rows are no records. Ask `release.tables`, or `dualquery answer` with any, all "
            "and count; it costs no privacy, as often as you like.",
            "How many units have at least one row of each value",
            figures,
            lambda domain: tuple(f"{each.name}.parquet" for each in domain.tables),
        ),
    ),
    record="unit",
    records="units",
    table="a database",
    protects="It protects one row of the protected table with all rows that hang on it.",
    fractions="fractions of the units",
    example=example.households,
    believes=believes,
    first=lambda domain: f"marginals:{affordable_order(domain, min(2, domain.width))}",
)
