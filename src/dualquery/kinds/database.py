"""Databases: records of a protected table, each with the rows of other tables that hang on it."""

from __future__ import annotations

from dualquery.kinds.kind import Kind
from dualquery.queries.language.units import UNITS
from dualquery.table.database import Database

DATABASE = Kind(
    domain=Database,
    grammar=UNITS,
    prefers=lambda task: (("linked", "Chosen because it gives tables back whose keys hold."),),
    record="unit",
    records="units",
    table="a database",
    protects="It protects one row of the protected table with all rows that hang on it.",
)
