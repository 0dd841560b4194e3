"""Names of columns that say whose row it is, and when they are those of persons with several rows.

An id is no attribute: it tells who somebody is. Where it comes again, somebody has several rows, and then a promise
about one row is none about that person; the column is the `unit` (docs/schema.md). That is for a person to say.
"""

from __future__ import annotations

import re

from dualquery.table.toml_text import quoted

FEW = 20  # ids of places and kinds: regions, products
EACH = 100  # rows: an id with more is rather that of a place, unless its name says otherwise

_PERSON = (
    r"(patient|person|subject|client|customer|participant|respondent|employee|student|pupil|member|donor|user|"
    r"household|hh)"
)
_SHORT = r"(subj|cust|resp|emp|family|case|account|card)"
_ID = r"(id|key|uuid|guid|code)"
PERSONS = re.compile(
    rf"id|ids|uuid|guid|ssn|pid|uid|({_PERSON}|{_SHORT})[_\W]?{_ID}|id[_\W]?{_PERSON}", re.IGNORECASE
)
IDS = re.compile(
    rf"(?i:(^|[_\W])(id|ids|nr|no|number|key|uuid|guid|ssn|serial)$|^id[_\W]|^{_PERSON}$)|[a-z](Id|ID)$|^id(?=[A-Z])"
)


def looks_like_id(name: str) -> bool:
    """Whether a column of this name says whose row it is."""
    return PERSONS.fullmatch(name.strip()) is not None or IDS.search(name.strip()) is not None


def repeats(name: str, number: int, rows: int) -> bool:
    """Whether so many ids in so many rows, under this name, are those of persons with several rows."""
    name = name.strip()
    if PERSONS.fullmatch(name):
        return 2 < number < rows
    return looks_like_id(name) and FEW < number < rows <= EACH * number


def no_unit(what: str, name: str) -> str:
    """The warning where nobody said whose row it is."""
    return (
        f"{what} '{name}' looks like the id of a person, and the schema names no unit: the promise is about one row, "
        f"not about somebody with several; if it is one, write unit = {quoted(name)} into [table] "
        '(docs/schema.md, "Persons with several records")'
    )
