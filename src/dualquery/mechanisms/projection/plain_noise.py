"""What noise on each query alone would give: a plan says where it does better. All of it is public."""

from __future__ import annotations

from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection.purse import Shares
from dualquery.privacy.statistics import GroupCounts

HALF_NORMAL = 0.8  # the mean size of noise, in deviations


def per_query(task: Task, shares: Shares) -> float:
    """The noise of every query on its own, as a fraction of the records, for the whole budget."""
    moved = [GroupCounts(group).sensitivity(task.budget.neighbours) for group in task.workload.groups]
    return shares.deviation(sum(each.l2_squared for each in moved), *shares.variance) / task.rows


def plainer(task: Task, shares: Shares, mean: float) -> tuple[str, ...]:
    """What a plan with this mean error notes where noise on each query alone would do better."""
    plain = HALF_NORMAL * per_query(task, shares)
    if plain >= mean:
        return ()
    return (
        f"noise on each query alone would have a mean error of {plain:.2g} (--mechanism gaussian), but gives answers "
        "without synthetic records",
    )
