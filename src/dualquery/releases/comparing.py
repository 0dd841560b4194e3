"""Several mechanisms on one table, side by side. For the curator's eyes: nothing here is private.

Every mechanism gets the whole budget, as if it were the only one. What is compared are errors against the truth, so
that neither the frame nor the picture may leave the house.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dualquery.counting.counter import Counter
from dualquery.errors import DualQueryError
from dualquery.mechanisms.choose import MECHANISMS
from dualquery.mechanisms.mechanism import Progress, silent
from dualquery.releases import plots
from dualquery.releases.calling import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    for_callers,
    workload_from,
)
from dualquery.releases.evaluation import STAMP, evaluate
from dualquery.releases.figures import Figure
from dualquery.releases.frames import as_frame
from dualquery.releases.making import counting, public_schema, release
from dualquery.releases.planning import check_mechanism
from dualquery.releases.rows import shared_rows
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.source import Source

USUAL = ("projection", "dualquery", "mwem", "gaussian", "laplace", "uniform")


class Comparison(NamedTuple):
    """A frame with a row a mechanism, and a picture of their mean errors."""

    frame: Any
    picture: Figure

    def _repr_html_(self) -> str:
        table = self.frame._repr_html_() if hasattr(self.frame, "_repr_html_") else escape(str(self.frame))
        return f"<p>{escape(STAMP)}</p>{table}{self.picture._repr_html_()}"


@for_callers
def compare(
    table: Source | Records | Counter,
    *,
    budget: GivenBudget,
    workload: GivenWorkload,
    mechanisms: Sequence[str] | Mapping[str, Mapping[str, object]] = USUAL,
    domain: Domain | None = None,
    schema: GivenSchema | None = None,
    runs: int = 1,
    frame: str = "pandas",
    progress: Progress | None = None,
) -> Comparison:
    """Release a table by each of some mechanisms and compare the errors. **Not private: internal, do not publish.**

    `mechanisms` are names, or a dict of names with options of their own: `{"mwem": {"rounds": 10}}`. The other
    arguments are those of `release`. Errors are means over `runs`, fractions of the table; a mechanism that cannot be
    had for this budget or workload has no errors and says why.
    """
    tell = silent if progress is None else progress
    wanted = _wanted(mechanisms)
    if not isinstance(runs, int) or runs < 1:
        raise DualQueryError("runs must be a whole number, and at least 1")
    described = public_schema(table, domain, schema)
    asked = workload_from(described.domain, workload)
    relation = budget_from(budget, lambda: 2).neighbours
    counter = counting(table, described, relation, None, tell)
    paid = budget_from(budget, lambda: shared_rows(counter, relation) or 0)
    rows = []
    for number, (name, options) in enumerate(wanted.items()):
        tell("comparing mechanisms", number, len(wanted))
        rows.append(_row(name, options, counter, runs, schema=described, workload=asked, budget=paid))
    tell("comparing mechanisms", len(wanted), len(wanted))
    return Comparison(as_frame(pa.Table.from_pylist(rows, schema=_SHAPE), frame), _picture(rows))


_SHAPE = pa.schema(
    [
        ("mechanism", pa.string()),
        ("mean_error", pa.float64()),
        ("rms_error", pa.float64()),
        ("max_error", pa.float64()),
        ("predicted_mean_error", pa.float64()),
        ("seconds", pa.float64()),
        ("refused", pa.string()),
    ]
)


def _wanted(
    mechanisms: Sequence[str] | Mapping[str, Mapping[str, object]],
) -> dict[str, Mapping[str, object]]:
    if isinstance(mechanisms, str) or not isinstance(mechanisms, Sequence | Mapping) or not mechanisms:
        raise DualQueryError(f"name mechanisms in a list; there are {', '.join(MECHANISMS)}")
    found = dict(mechanisms) if isinstance(mechanisms, Mapping) else {name: {} for name in mechanisms}
    for name, options in found.items():
        check_mechanism(name)
        if not isinstance(options, Mapping):
            raise DualQueryError(f"the options of '{name}' are a dict, like {{'rounds': 10}}")
    return found


def _row(name: str, options: Mapping[str, Any], counter: Counter, runs: int, **given: Any) -> dict[str, Any]:
    """The errors of one mechanism, or why it has none."""
    found, began = [], time.process_time()
    try:
        for _ in range(runs):
            made = release(counter, mechanism=name, **given, **options)
            found.append((evaluate(made, counter, given["workload"]), made))
    except DualQueryError as refusal:
        return {"mechanism": name, "refused": str(refusal)}
    errors = [each for each, _ in found]
    return {
        "mechanism": name,
        "mean_error": float(np.mean([each.mean_error for each in errors])),
        "rms_error": float(np.sqrt(np.mean([each.rms_error**2 for each in errors]))),
        "max_error": float(np.max([each.max_error for each in errors])),
        "predicted_mean_error": errors[0].predicted_mean_error,
        "seconds": (time.process_time() - began) / runs,
    }


def _picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    known = [row for row in rows if "mean_error" in row]
    errors = np.array([row["mean_error"] for row in known])
    svg = plots.histogram(
        [row["mechanism"] for row in known], errors, name="mean errors", written=lambda x: f"{x:.2g}"
    )
    return Figure(f"Mean error of a query, as a fraction of the table ({STAMP})", svg)
