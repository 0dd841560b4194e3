"""The schema of schemas: JSON Schema for editors, which then complete keys and underline what is wrong.

`docs/schema.json` holds this text. An editor finds it by the first line of a schema file:

    #:schema https://raw.githubusercontent.com/…/docs/schema.json
"""

from __future__ import annotations

import json
from typing import Any

from dualquery.table.columns import KEYS
from dualquery.table.dates import PERIODS
from dualquery.table.numbers import Spread
from dualquery.table.persons import CALENDARS

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
TRUTH = {"type": "boolean"}
NUMBER = {"type": "number"}
MEANINGS: dict[str, tuple[dict[str, Any], str]] = {
    "name": (TEXT, "The name of the column in the table."),
    "values": ({**TEXTS, "minItems": 1, "uniqueItems": True}, "The values that a cell may have."),
    "ordered": (TRUTH, "Whether the order of the values means something."),
    "numeric": (TRUTH, "Whether the values are numbers, increasing; they then come back as numbers."),
    "unknown": (
        TEXT,
        "What cells without a place count as: a listed value, a number, a date or the label of missing cells.",
    ),
    "missing": (TEXT, "The label of missing cells; they come back as null."),
    "empty": (TEXTS, "The texts that stand for an empty cell, such as NA or -9."),
    "edges": ({"type": "array", "items": NUMBER, "minItems": 2}, "The edges of the bins, increasing."),
    "low": (NUMBER, "The lower end of bins of equal width."),
    "high": (NUMBER, "The upper end of bins of equal width."),
    "bins": ({"type": "integer", "minimum": 1}, "The number of bins of equal width."),
    "clamp": (TRUTH, "Whether what lies beyond the ends goes to the nearest end."),
    "integer": (TRUTH, "Whether the numbers are whole."),
    "decimals": ({"type": "integer", "minimum": 0, "maximum": 15}, "How many decimals the numbers have."),
    "exact": (TRUTH, "Whether numbers come back as exact decimals."),
    "decimal_comma": (TRUTH, "Whether numbers are written 1.234,50."),
    "currency": (TEXT, "The sign that stands before or behind amounts of money."),
    "spread": ({"enum": [each.value for each in Spread]}, "How numbers lie inside their bins."),
    "from": (TEXT, "The first date, such as 2019, 2019-Q1, 2019-01 or 2019-01-31."),
    "to": (TEXT, "The last date; it is included."),
    "by": ({"enum": list(PERIODS)}, "How precisely dates are kept."),
    "format": (TEXT, "How dates are written, where it is not ISO 8601, such as %d.%m.%Y."),
    "count": ({"type": "integer", "minimum": 1}, "The number of items."),
    "first": ({"type": "integer", "minimum": 0}, "The id of the first item."),
}
NEEDED = {
    "values": ["values"],
    "edges": ["edges"],
    "bins": ["low", "high", "bins"],
    "by": ["from", "to", "by"],
    "count": ["count"],
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a schema file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The public description of a table, for dualquery",
        "type": "object",
        "required": ["attribute"],
        "additionalProperties": False,
        "properties": {
            "draft": {**TRUTH, "description": "Read off the private table, and not yet public."},
            "about": _closed(
                {
                    "dataset": {**TEXT, "description": "The name of the dataset, for the report."},
                    "steward": {**TEXT, "description": "Who answers for the release."},
                    "purpose": {**TEXT, "description": "What the release is for."},
                    "source": {**TEXT, "description": "Where the values in this file come from."},
                }
            ),
            "table": _closed(
                {
                    "drop_rows_containing": {**TEXT, "description": "Rows with this cell are no records."},
                    "unit": {**TEXT, "description": "The column that says whose record a row is."},
                    "long": {**TRUTH, "description": "Whether a row is one item of a unit."},
                    "encoding": {**TEXT, "description": "The encoding of a text file that is not UTF-8."},
                    "period": {**TEXT, "description": "The column that says when a record arrived."},
                    "calendar": {"enum": list(CALENDARS), "description": "How long a period is."},
                }
            ),
            "attribute": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [_attribute(kind) for kind in KEYS]},
            },
            "rule": {"type": "array", "items": _rule()},
        },
    }


def _closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required or [],
    }


def _attribute(kind: str) -> dict[str, Any]:
    properties = {
        key: {**MEANINGS[key][0], "description": MEANINGS[key][1]} for key in MEANINGS if key in KEYS[kind]
    }
    return _closed(properties, ["name", *NEEDED[kind]])


def _rule() -> dict[str, Any]:
    says = {
        **TEXT,
        "description": "condition => condition, never condition, attribute from attribute, total = a + b",
    }
    values = {
        "type": "object",
        "additionalProperties": TEXT,
        "description": "What a dependency is, value by value.",
    }
    return _closed({"says": says, "values": values}, ["says"])


def text() -> str:
    """As docs/schema.json holds it."""
    return json.dumps(json_schema(), indent=2) + "\n"
