"""All mechanisms by name, and the public rule that picks one where the user names none.

The rule looks at the task alone: accounting, domain, workload, number of records. The evidence for each of
its branches is in docs/evidence.md, made by `experiments/choosing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualquery.errors import DualQueryError
from dualquery.mechanisms.baselines import (
    HADAMARD,
    INDEPENDENT_GAUSSIAN,
    INDEPENDENT_LAPLACE,
    UNIFORM,
    ZEROS,
)
from dualquery.mechanisms.dual_query.game import DUAL_QUERY
from dualquery.mechanisms.euclidean import EUCLIDEAN
from dualquery.mechanisms.mechanism import Mechanism, Plan, Task
from dualquery.mechanisms.mirror import MIRROR
from dualquery.mechanisms.monomials import MONOMIALS
from dualquery.mechanisms.mwem import MWEM
from dualquery.mechanisms.parities import PARITIES, asks_wide_disjunctions
from dualquery.mechanisms.pmw import PMW
from dualquery.mechanisms.projection.game import PROJECTION
from dualquery.mechanisms.shares import closure
from dualquery.mechanisms.special import PREFERENCES, SPECIAL
from dualquery.privacy.budget import Accounting

AnyMechanism = Mechanism[Any, Any]
TIGHTEST_FIRST = PROJECTION.paid_by  # of the mechanisms among which the rule below chooses

# n ε / Δ, Δ by how far a neighbour moves a table: below it MWEM beats projection (docs/evidence.md)
FEW_RECORDS = 600

MECHANISMS: dict[str, AnyMechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        PROJECTION,
        DUAL_QUERY,
        MWEM,
        PMW,
        MIRROR,
        EUCLIDEAN,
        MONOMIALS,
        PARITIES,
        INDEPENDENT_LAPLACE,
        INDEPENDENT_GAUSSIAN,
        HADAMARD,
        UNIFORM,
        ZEROS,
    )
}


def choose(task: Task, options: Mapping[str, object]) -> Plan[Any]:
    """The plan of the mechanism that suits a task best, with one sentence that says why.

    In order of preference: projection where Gaussian noise can be paid for, or Laplace noise under pure ε and there
    are enough records for it; MWEM where not and the universe is small enough to hold; DualQuery, which needs
    neither, for everything else. Special tables have preferences of their own (`special`). Options decide nothing:
    one that the mechanism whose turn it is does not have is refused, with the names of those that have it.
    """
    refused: list[str] = []
    for mechanism, why in _preferences(task):
        for option in options:
            if not mechanism.accepts([option]):
                raise DualQueryError("; ".join([*refused, _not_of_all(option, mechanism, task)]))
        try:
            plan = mechanism.plan_for(task, options)
        except DualQueryError as problem:
            refused.append(f"{mechanism.name}: {problem}")
            continue
        return replace(plan, reason=f"{why} {plan.reason[:1].upper()}{plan.reason[1:]}")
    raise DualQueryError(f"no mechanism fits: {'; '.join(refused)}")


def _not_of_all(option: str, mechanism: AnyMechanism, task: Task) -> str:
    """Which mechanisms of this kind of table have an option that the one to be chosen does not have."""
    kind, every = task.domain.kind, {**MECHANISMS, **SPECIAL}
    having = [
        each.name
        for each in every.values()
        if each.accepts([option]) and (each.plays is None or kind in each.plays)
    ]
    given = "--" + option.replace("_", "-")
    return (
        f"{given} means nothing to the mechanism '{mechanism.name}', which would be chosen here; leave it out, or "
        f"name a mechanism that has it with --mechanism: {', '.join(having) or 'none plays this kind of table'}"
    )


def _preferences(task: Task) -> list[tuple[AnyMechanism, str]]:
    """Mechanisms from the best on, each with the reason for being where it is."""
    if task.domain.kind != "records":
        return list(PREFERENCES[task.domain.kind])
    if task.budget.accounting in (Accounting.ZCDP, Accounting.GAUSSIAN):
        return [
            *_for_disjunctions(task),
            (
                PROJECTION,
                "Chosen because the budget pays for Gaussian noise, where projection is the most accurate.",
            ),
            (
                DUAL_QUERY,
                "Chosen because the workload is too wide to measure, and DualQuery need not measure it.",
            ),
        ]
    if task.budget.accounting is Accounting.PURE:
        return _under_pure_epsilon(task)
    accounting = task.budget.accounting.value
    return [
        (
            MWEM,
            f"Chosen because {accounting} accounting rules out Gaussian noise, and the universe can be held.",
        ),
        (
            DUAL_QUERY,
            f"Chosen because {accounting} accounting rules out Gaussian noise, and the universe is large.",
        ),
    ]


def _for_disjunctions(task: Task) -> list[tuple[AnyMechanism, str]]:
    """Of wide baskets that are asked disjunctions alone, parities: rows miss a little of every rare item."""
    if not asks_wide_disjunctions(task.workload):
        return []
    why = (
        "Chosen because all queries are disjunctions over very many items, where items, pairs and triples summed up "
        "are more accurate than rows."
    )
    return [(PARITIES, why)]


def _under_pure_epsilon(task: Task) -> list[tuple[AnyMechanism, str]]:
    """Noise of scale Δ/ε on every table is too much for few records: then MWEM measures fewer numbers."""
    records = task.rows * task.budget.epsilon / task.budget.neighbours.largest(alone=1, apart=2)
    projection = (
        PROJECTION,
        "Chosen because under pure ε projection, with Laplace noise on signed tables, is the most accurate.",
    )
    mwem = (
        MWEM,
        f"Chosen because there are few records for the noise ({records:,.0f} times its scale, less than "
        f"{FEW_RECORDS}), and the universe can be held.",
    )
    dual_query = (
        DUAL_QUERY,
        "Chosen because the pairs of the workload are too many to measure, and DualQuery need not measure them.",
    )
    if not _pairs_can_be_listed(task):
        return [dual_query]
    if records < FEW_RECORDS:
        return [mwem, projection, dual_query]
    return [projection, (MWEM, "Chosen because the universe can be held."), dual_query]


def _pairs_can_be_listed(task: Task) -> bool:
    try:
        closure(task.workload.scope)
    except DualQueryError:
        return False
    return True
