"""Cells without a place in the schema: why, and how to make one."""

from __future__ import annotations

from enum import IntEnum

from dualquery.table.columns import Categorical, Numeric
from dualquery.table.dates import Dates
from dualquery.table.graph import Vertex
from dualquery.table.points import Coordinate


class Unplaced(IntEnum):
    """Why a cell has no code."""

    EMPTY = -1
    OUTSIDE = -2
    NOT_A_NUMBER = -3


def advice(column: Categorical | Numeric, reason: Unplaced) -> str:
    """One sentence that says what to write into the schema."""
    name = column.name
    if reason is Unplaced.NOT_A_NUMBER and isinstance(column, Dates):
        written = (
            ' or say how they are written, such as format = "%d.%m.%Y",' if column.format is None else ""
        )
        return (
            f"column '{name}' holds cells that are no dates such as {column.example}, or longer than a {column.by}; "
            f'mend them,{written} or list the texts that stand for a missing date: empty = ["..."] in the schema'
        )
    if reason is Unplaced.NOT_A_NUMBER:
        return (
            f"column '{name}' holds cells that are not numbers; mend them, list the texts that stand for a "
            'missing number, empty = ["..."] in the schema, or make the attribute categorical'
        )
    if isinstance(column, Numeric):
        if reason is Unplaced.EMPTY:
            return (
                f"column '{name}' has empty cells or NaN; set missing = \"missing\" for it in the schema "
                "to give them a place"
            )
        if isinstance(column, Coordinate):
            return (
                f"column '{name}' holds numbers outside its bounds; widen the bounds in the schema, or set "
                "clamp = true in [points] to send such numbers to the nearest bound"
            )
        return (
            f"column '{name}' holds numbers beyond its bin edges; widen the edges in the schema, "
            "or set clamp = true to send such numbers to the nearest end"
        )
    if reason is Unplaced.EMPTY:
        return (
            f"column '{name}' has empty cells; set missing = \"...\" for it in the schema "
            "to the listed value that stands for them"
        )
    if isinstance(column, Vertex):
        return (
            f"column '{name}' holds vertices outside the declared set; declare them in [graph], or leave such edges "
            "out of the table by a rule that looks at each edge alone"
        )
    return (
        f"column '{name}' holds values that the schema does not list; add them to its values, "
        'or set unknown = "..." to the listed value that stands for them'
    )
