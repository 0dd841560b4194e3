"""What is public about a dataset: its attributes with their values, how many records, examples, and the promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualquery.asking.online import Online
from dualquery.errors import QueryError
from dualquery.queries.language.vocabulary import quoted_where_needed
from dualquery.queries.question import QuestionReader
from dualquery.releases.release import Release
from dualquery.table.dates import Dates
from dualquery.table.domain import Column, Domain, Items, Numeric

MOST_VALUES = 1000  # of an attribute, that are listed
Json = dict[str, Any]


def of_table(name: str, table: Online, *, declared: bool) -> Json:
    """Of a table that is asked. Its number of records is known, unless the first release measured it."""
    measured = not declared and table.release.public_rows is None
    return _described(name, "interactive", table.domain, table.certificate(), table.rule.rows, measured)


def of_release(name: str, release: Release) -> Json:
    rows, measured = int(release.certificate["records"]["rows"]), release.public_rows is None
    return _described(name, "release", release.domain, dict(release.certificate["budget"]), rows, measured)


def _described(
    name: str, kind: str, domain: Domain, promise: Mapping[str, Any], rows: int, measured: bool
) -> Json:
    return {
        "name": name,
        "kind": kind,
        "free": kind == "release",
        "records": {"rows": rows, "measured": measured},
        "attributes": [_attribute(column) for column in domain.columns],
        "examples": examples(domain),
        "promise": promise,
    }


def examples(domain: Domain) -> Json:
    """A question and a table that can be asked here: of the first attributes whose values can be written."""
    reader = QuestionReader(domain)
    found = [text for text in _conditions(domain) if _readable(reader, text)]
    names = [quoted_where_needed(each.name) for each in domain.columns if not isinstance(each, Items)]
    tables = [text for text in (" by ".join(names[:2]), f"by {names[0]}" if names else "") if text]
    return {
        "question": " & ".join(found[:2]),
        "table": next((text for text in tables if _readable(reader, text)), ""),
    }


def _conditions(domain: Domain) -> Iterator[str]:
    """One condition for each attribute, of the public schema alone."""
    for column in domain.columns:
        name = quoted_where_needed(column.name)
        if isinstance(column, Items):
            yield f"{name}[{column.first}]"
        elif isinstance(column, Numeric) and not isinstance(column, Dates):
            yield f"{name} >= {column.edges[len(column.edges) // 2]:.15g}"
        else:
            yield f"{name} = {quoted_where_needed(column.labels[0])}"


def _readable(reader: QuestionReader, text: str) -> bool:
    try:
        reader.read(text)
    except QueryError:
        return False
    return True


def _attribute(column: Column) -> Json:
    """An attribute as somebody who asks needs to know it; of very many values the first."""
    if isinstance(column, Items):
        return {
            "name": column.name,
            "kind": "items",
            "first": column.first,
            "count": column.count,
            "values": [],
        }
    if isinstance(column, Numeric) and not isinstance(column, Dates):
        ends = {"low": column.edges[0], "high": column.edges[-1]}
        return {"name": column.name, "kind": "numeric", "values": list(column.labels[:MOST_VALUES]), **ends}
    kind = "ordered" if isinstance(column, Dates) or column.ordered else "categorical"
    return {"name": column.name, "kind": kind, "values": list(column.labels[:MOST_VALUES])}
