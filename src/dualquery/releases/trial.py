"""A plan on trial, where the number of records is still to be measured: a refusal that is certain comes before a charge.

Measuring the number charges the book, and the plan follows the number. What would be refused whatever the number is
(an option that means nothing, a workload too large, a budget too small) can be said from public things alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Budget
from dualquery.queries.workload import Workload
from dualquery.releases.planning import plan_for
from dualquery.releases.rows import price_of_rows
from dualquery.releases.tightest import NOMINAL_ROWS

TRIED = (NOMINAL_ROWS, 10**2, 10**6, 10**9)


def refuse_hopeless(
    workload: Workload, budget: Budget, options: Mapping[str, object], mechanism: str | None
) -> None:
    """Refuse what no number of records would let be planned; the first plan that stands ends the trial."""
    priced, refused = price_of_rows(budget), None
    for rows in TRIED:
        known = priced.known(rows)
        try:
            plan_for(Task(workload, known.rows, known.left, known.variance), options, mechanism)
        except DualQueryError as problem:
            refused = refused or problem
        else:
            return
    assert refused is not None, "some number was tried"
    raise refused
