"""Tables of records: attributes with public values, asked in the query language.

The rule that picks a mechanism looks at the task alone: accounting, domain, workload, number of records. The evidence
for each of its branches is in docs/evidence.md, made by `experiments/choosing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualquery import example
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.errors import DualQueryError
from dualquery.kinds.kind import Kind, Preferences, not_of_this_table
from dualquery.mechanisms.artefact import Artefact, SyntheticRecords
from dualquery.privacy.budget import Accounting
from dualquery.queries.families import QUERIES
from dualquery.queries.workload import affordable_order
from dualquery.table.domain import Domain

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Task

# n ε / Δ, Δ by how far a neighbour moves a table: below it MWEM beats projection (docs/evidence.md)
FEW_RECORDS = 600
ORDER = 3  # of the tables that the first release is made for where questions follow, or less


def preferences(task: Task) -> Preferences:
    """Projection where Gaussian noise can be paid for, or Laplace noise under pure ε and there are enough records for
    it; MWEM where not and the universe is small enough to hold; DualQuery, which needs neither, for all else."""
    if task.budget.accounting in (Accounting.ZCDP, Accounting.GAUSSIAN):
        return [
            *_for_disjunctions(task),
            (
                "projection",
                "Chosen because the budget pays for Gaussian noise, where projection is the most accurate.",
            ),
            (
                "dualquery",
                "Chosen because the workload is too wide to measure, and DualQuery need not measure it.",
            ),
        ]
    if task.budget.accounting is Accounting.PURE:
        return _under_pure_epsilon(task)
    no_noise = (
        f"Chosen because {task.budget.accounting.value} accounting rules out Gaussian noise, and the universe"
    )
    return [("mwem", f"{no_noise} can be held."), ("dualquery", f"{no_noise} is large.")]


def _for_disjunctions(task: Task) -> Preferences:
    """Of wide baskets that are asked disjunctions alone, parities: rows miss a little of every rare item."""
    from dualquery.mechanisms.parities import asks_wide_disjunctions

    if not asks_wide_disjunctions(task.workload):
        return []
    why = (
        "Chosen because all queries are disjunctions over very many items, where items, pairs and triples summed up "
        "are more accurate than rows."
    )
    return [("parities", why)]


def _under_pure_epsilon(task: Task) -> Preferences:
    """Noise of scale Δ/ε on every table is too much for few records: then MWEM measures fewer numbers."""
    from dualquery.mechanisms.shares import closure

    records = task.rows * task.budget.epsilon / task.budget.neighbours.largest(alone=1, apart=2)
    projection = (
        "projection",
        "Chosen because under pure ε projection, with Laplace noise on signed tables, is the most accurate.",
    )
    mwem = (
        "mwem",
        f"Chosen because there are few records for the noise ({records:,.0f} times its scale, less than "
        f"{FEW_RECORDS}), and the universe can be held.",
    )
    dual_query = (
        "dualquery",
        "Chosen because the pairs of the workload are too many to measure, and DualQuery need not measure them.",
    )
    try:
        closure(task.workload.scope)
    except DualQueryError:
        return [dual_query]
    if records < FEW_RECORDS:
        return [mwem, projection, dual_query]
    return [projection, ("mwem", "Chosen because the universe can be held."), dual_query]


def believes(domain: Domain, artefact: Artefact | None) -> WeightedRows:
    if not isinstance(artefact, SyntheticRecords):
        raise not_of_this_table()
    return WeightedRows(artefact.records)


RECORDS = Kind(
    domain=Domain,
    grammar=QUERIES,
    prefers=preferences,
    protects="It protects one record. A person with several records in the table, or a household, is protected less.",
    example=example.people,
    believes=believes,
    first=lambda domain: f"marginals:{affordable_order(domain, min(ORDER, domain.width))}",
)
