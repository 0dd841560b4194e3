"""What a record of each kind of table is called, and what protecting one leaves open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Called:
    """The words of one kind of table."""

    record: str
    records: str
    table: str
    protects: str  # where one record is protected, and not a person
    fractions: str = "fractions of the table"  # what answers and errors are


CALLED: dict[str, Called] = {
    "records": Called(
        "record",
        "records",
        "a table",
        "It protects one record. A person with several records in the table, or a household, is protected less.",
    ),
    "graph": Called(
        "edge",
        "edges",
        "a graph",
        "It protects one edge: that it is there, where it goes, and what it weighs. A vertex, or a person with "
        "several edges, is protected less.",
    ),
    "points": Called(
        "point",
        "points",
        "a table",
        "It protects one point. A person with several points in the table is protected less.",
        "fractions of the diameter",
    ),
    "codes": Called(
        "record",
        "records",
        "a table",
        "It protects one record. A person with several records in the table is protected less.",
    ),
}


def called(kind: str) -> Called:
    """The words for a kind; a certificate of a kind that is not known here speaks of records."""
    return CALLED.get(kind, CALLED["records"])
