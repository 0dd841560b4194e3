"""What a private draft has counted, used once more by the release that follows it.

The certificate of a draft has its noisy counts: of texts, and of numbers between the edges of its tree. They are
public and paid for, so that using them again is post-processing. Where edges of a schema are edges of the tree, or
its values texts that were shown, a count is the sum of some cells of a one-way table (`fitting.measured.CellSums`).

Which texts are shown follows from their noisy counts alone, so that such a count says all that there is to know of a
text. Left out are cells that hold what was not counted: that of missing or of other cells, and dates.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DataError, DualQueryError
from dualquery.fitting.measured import CellSums, Measured
from dualquery.ledger.book import Place
from dualquery.privacy.budget import Neighbours
from dualquery.releases.private_draft import FORMAT
from dualquery.releases.seal import canonical
from dualquery.table.columns import Categorical
from dualquery.table.draft import Draft
from dualquery.table.numbers import Numeric
from dualquery.table.reading import describe
from dualquery.table.reading.source import is_path
from dualquery.table.schema import Schema

GivenDraft = Draft | Mapping[str, Any] | str | os.PathLike[str]
Entry = dict[str, Any]  # of the certificate
NEAR = 1e-9  # of an edge, by which two writings of it may differ
NEEDED = {"table", "epsilon", "delta", "neighbours", "private", "book", "measured"}


def earlier_of(
    given: GivenDraft,
    schema: Schema,
    neighbours: Neighbours,
    *,
    ledger: Place | None,
    dataset: str | None,
    seed: int | None,
) -> tuple[tuple[Measured, ...], Entry]:
    """What a draft has measured of the attributes of a schema, and how the certificate names it."""
    draft = _certificate(given)
    if not draft["private"] and seed is None:
        raise DualQueryError("the draft was found with a seed, so that it is not private; leave out --draft")
    if draft["neighbours"] != str(neighbours):
        raise DualQueryError(
            f"the draft protects neighbours '{draft['neighbours']}', this release '{neighbours}'; use the same, or "
            "leave out --draft"
        )
    if schema.protects != "row" or schema.within is not None or schema.drops_rows:
        raise DualQueryError(
            "a draft counts every row of the table, and this release reads some of them only; leave out --draft"
        )
    _refuse_another_book(draft["book"], ledger, dataset)
    told = [
        found
        for attribute, column in zip(schema.domain.starts[:-1], schema.domain.columns, strict=True)
        if (found := _told(int(attribute), column, draft["measured"].get(column.name))) is not None
    ]
    names = [schema.domain.name(each.what.attribute) for each in told]
    return tuple(told), {**{key: draft[key] for key in ("epsilon", "delta", "seal")}, "attributes": names}


def refuse_another_table(given: GivenDraft, table: Any) -> None:
    """Refuse the draft of a table that has another name."""
    found = _certificate(given)["table"]
    mine = f"'{Path(table).name}'" if is_path(table) else describe(table)
    if found != mine:
        raise DualQueryError(f"the draft is of {found}, and this table is {mine}; leave out --draft")


def _certificate(given: GivenDraft) -> Mapping[str, Any]:
    """The certificate of a private draft, if nothing in it was changed."""
    said: Any = given.certificate if isinstance(given, Draft) else given
    if isinstance(said, str | os.PathLike):
        try:
            said = json.loads(Path(said).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = None
    if not isinstance(said, Mapping) or said.get("format") != FORMAT:
        raise DataError("--draft names the certificate of a private draft, which stands beside its schema")
    told = {key: value for key, value in said.items() if key != "seal"}
    if said.get("seal") != hashlib.sha256(canonical(told)).hexdigest():
        raise DataError("the certificate of the draft was changed; restore a copy, or leave out --draft")
    if not told.keys() >= NEEDED:
        raise DataError("the certificate of the draft is of another version of dualquery; leave out --draft")
    return said


def _refuse_another_book(entry: Mapping[str, Any] | None, ledger: Place | None, dataset: str | None) -> None:
    """Draft and release are of one table, and add up: in the same book, or in none."""
    if entry is None and ledger is None:
        return
    if entry is None:
        raise BudgetError("the draft was charged to no ledger; leave out --draft, or --ledger")
    if ledger is None:
        raise BudgetError(
            f"the draft was charged to the ledger of '{entry['name']}'; charge this release there too (--ledger), or "
            "leave out --draft"
        )
    from dualquery.ledger.books import Books

    statement = Books(ledger).read(dataset)
    if entry["head"] not in [charge.hash for charge in statement.charges]:
        raise BudgetError(
            f"the draft was charged to another ledger than that of '{statement.book.name}'; name the one of "
            f"'{entry['name']}', or leave out --draft"
        )


def _told(attribute: int, column: object, said: Mapping[str, Any] | None) -> Measured | None:
    """What is known of one attribute; None where nothing is."""
    rows: list[tuple[NDArray[np.bool_], float, float]] = []
    if said is not None and isinstance(column, Categorical) and "texts" in said:
        rows = _of_texts(column, said)
    elif (
        said is not None
        and isinstance(column, Numeric)
        and column.clamp
        and said.get("reads") == reads(column)
    ):
        for number, level in enumerate(said["levels"]):
            rows += _of_level(column, level, outermost=number == 0)
    if not rows:
        return None
    cells, values, variances = zip(*rows, strict=True)
    return Measured(CellSums(attribute, np.array(cells)), np.array(values), np.array(variances))


def reads(column: Numeric) -> list[Any]:
    """By which notation cells are read as numbers."""
    return [column.decimal_comma, column.currency]


def _of_texts(column: Categorical, said: Mapping[str, Any]) -> list[tuple[NDArray[np.bool_], float, float]]:
    places = {text: code for code, text in enumerate(column.values)}
    shared = {column.unknown, column.missing, "", *column.empty}
    return [
        (np.arange(len(places)) == places[text], float(count), float(said["texts_sigma"]) ** 2)
        for text, count in said["texts"].items()
        if text in places and text not in shared
    ]


def _of_level(
    column: Numeric, level: Mapping[str, Any], *, outermost: bool
) -> list[tuple[NDArray[np.bool_], float, float]]:
    """One row for each run of intervals between two edges of the schema; beyond the ends lies the nearest bin."""
    cuts, edges = np.array(column.edges[1:-1]), np.array(level["edges"])
    if column.in_units:  # there is no number between an edge and the next whole unit
        unit = 10.0 ** -(column.decimals or 0)
        edges = np.ceil(edges / unit - 1e-6) * unit
    near = np.abs(edges[:, None] - cuts) <= NEAR * (1 + np.abs(cuts))
    borders = [(place, int(near[place].argmax()) + 1) for place in np.flatnonzero(near.any(axis=1)).tolist()]
    if outermost:
        borders = [(0, 0), *borders, (len(edges) - 1, column.bins)]
    rows = []
    bins = np.arange(len(column.labels))
    for (a, low), (b, high) in pairwise(borders):
        held = (bins >= low) & (bins < high)
        if low < high and not (column.other_code is not None and held[column.other_code]):
            rows.append((held, float(sum(level["counts"][a:b])), (b - a) * float(level["sigma"]) ** 2))
    return rows
