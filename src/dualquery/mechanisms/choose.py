"""All mechanisms by name, and the public rule that picks one where the user names none.

The rule looks at the shape alone: accounting, domain, workload, number of records. The evidence for each of
its branches is in docs/choosing.md, made by `experiments/choosing.py`.
"""

from __future__ import annotations

from dataclasses import replace

from dualquery.errors import DualQueryError
from dualquery.mechanisms.adaptive_projection import ADAPTIVE_PROJECTION
from dualquery.mechanisms.baselines import GAUSSIAN, HADAMARD, LAPLACE, UNIFORM, ZEROS
from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.mwem import MWEM
from dualquery.mechanisms.plan import Mechanism, Options, Plan, Shape
from dualquery.mechanisms.pmw import PMW
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting

MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        PROJECTION,
        ADAPTIVE_PROJECTION,
        DUAL_QUERY,
        MWEM,
        PMW,
        LAPLACE,
        GAUSSIAN,
        HADAMARD,
        UNIFORM,
        ZEROS,
    )
}


def choose(shape: Shape, options: Options) -> Plan:
    """The plan of the mechanism that suits a shape best, with one sentence that says why.

    In order of preference: projection where Gaussian noise can be paid for; MWEM where it cannot and the
    universe is small enough to hold; DualQuery, which needs neither, for everything else. An option that only
    one mechanism understands decides for that mechanism.
    """
    refused: list[str] = []
    for mechanism, why in _preferences(shape):
        if any(name not in mechanism.accepts for name in options.given()):
            refused.append(f"{mechanism.name} does not take the options given")
            continue
        try:
            plan = mechanism.checked_plan(shape, options)
        except DualQueryError as problem:
            refused.append(f"{mechanism.name}: {problem}")
            continue
        return replace(plan, reason=f"{why} {plan.reason[:1].upper()}{plan.reason[1:]}")
    raise DualQueryError(f"no mechanism fits: {'; '.join(refused)}")


def _preferences(shape: Shape) -> list[tuple[Mechanism, str]]:
    """Mechanisms from the best on, each with the reason for being where it is."""
    if shape.budget.accounting in (Accounting.ZCDP, Accounting.GAUSSIAN):
        return [
            (
                PROJECTION,
                "Chosen because the budget pays for Gaussian noise, where projection is the most accurate.",
            ),
            (
                DUAL_QUERY,
                "Chosen because the workload is too wide to measure, and DualQuery need not measure it.",
            ),
        ]
    accounting = shape.budget.accounting.value
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
