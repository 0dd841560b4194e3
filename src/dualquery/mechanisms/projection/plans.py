"""What the plans of all ways of projection have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualquery.errors import DualQueryError
from dualquery.fitting.measured import HALF_NORMAL
from dualquery.mechanisms.mechanism import Plan, Step, Task
from dualquery.mechanisms.shares import Shares
from dualquery.types import Set

MEAN_ERROR, MAX_ERROR = (
    0.45,
    8.0,
)  # of a random conjunction, in units of a cell's noise (benchmarks/projection.py)
SHARE_OF_ONES = 0.19  # of the budget, for one-way tables where there are enough records for pairs
LARGE_NOISE = 0.1  # of a cell, as a fraction of the table: little is left to be learned


def built(
    task: Task,
    way: Any,
    *,
    reason: str,
    steps: tuple[Step, ...],
    errors: tuple[float, float],
    seconds: float,
    need: int,
    memory: int | None,
    largest: Set = (),
    notes: tuple[str, ...] = (),
) -> Plan[Any]:
    """The plan of a way, or a refusal where it needs more memory than the user allows.

    `way` knows its effort and the noise of a cell, as a fraction; `largest` is the largest set that is measured.
    """
    if memory is not None and need > memory:
        names = " × ".join(task.domain.name(j) for j in largest)
        raise DualQueryError(
            f"the tables of this workload need {need / 1e6:,.0f} MB, more than --memory allows"
            f"{f' (the largest is {names})' if names else ''}; ask for fewer attributes at once, or for fewer "
            "records (--synthetic-rows), or allow more"
        )
    noise: float = way.cell_noise
    if noise >= LARGE_NOISE:
        large = f"the budget is so small that the noise of a cell is {noise:.0%} of the table"
        notes = (f"{large}; expect little of the answers", *notes)
    mean, most = errors
    return Plan(
        mechanism="projection",
        task=task,
        reason=reason,
        parameters=way,
        steps=steps,
        mean_error=min(mean, 0.5),
        max_error=min(most, 1.0),
        seconds=seconds,
        bytes=need,
        notes=notes,
    )


def with_fewer_rows(plan: Plan[Any]) -> Plan[Any]:
    """The plan of a replica (`mechanisms.error_bars`): the same, but for the length of the fit."""
    way = plan.parameters
    return replace(plan, parameters=replace(way, effort=way.effort.shorter(way.cell_noise)))


def per_query(task: Task, shares: Shares) -> float:
    """The noise of every query on its own, as a fraction of the records, for the whole budget."""
    moved = [task.budget.neighbours.sensitivity(group.bound()) for group in task.workload.groups]
    return shares.deviation(sum(each.l2_squared for each in moved)) / task.rows


def plainer(task: Task, shares: Shares, mean: float) -> tuple[str, ...]:
    """What a plan with this mean error notes where noise on each query alone would do better."""
    plain = HALF_NORMAL * per_query(task, shares)
    if plain >= mean:
        return ()
    return (
        f"noise on each query alone would have a mean error of {plain:.2g} (--mechanism gaussian), but gives answers "
        "without synthetic records",
    )
