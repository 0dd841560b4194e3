"""How far off answers are likely to be, from public quantities alone.

A mechanism predicts a mean and a maximal error for its whole workload, before any data is read. Where there are
replicas of a release (`mechanisms.error_bars`), their errors say more: by answer and number of attributes, as curves
that serve queries nobody foresaw, and for the workload as a histogram.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dualquery.mechanisms.error_bars import LEVEL, CurvePoint, ErrorCurves, Replica, learned_curves
from dualquery.queries.random_families import Stream
from dualquery.table.records import Records

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Plan

HISTOGRAM_BARS = 30
SAMPLE = 5_000  # queries of a group that the histogram is made of
MOST_CELLS = 50_000  # of tables in the sample


@dataclass(frozen=True)
class PredictedError:
    """Errors as fractions of the table; None where nothing is predicted.

    `edges` and `counts` are the histogram of the errors that replicas make on the queries of the workload; empty,
    like the curves, where there are no replicas.
    """

    mean: float | None
    maximum: float | None
    curves: ErrorCurves = field(default_factory=ErrorCurves)
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(
        plan: Plan[Any], released: Records | None, replicas: Sequence[Replica], seed: int
    ) -> PredictedError:
        """What the plan predicts, and what the replicas show."""
        mean, maximum = _known(plan.mean_error), _known(plan.max_error)
        if released is None or not replicas:
            return PredictedError(mean, maximum)
        stream = Stream(seed + len(replicas))  # another one than those that drew the replicas
        curves = learned_curves(released, plan.task.rows, replicas, stream)
        counts, edges = np.histogram(_workload_errors(plan, replicas, seed), bins=HISTOGRAM_BARS)
        return PredictedError(mean, maximum, curves, tuple(map(float, edges)), tuple(map(int, counts)))

    def to_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL,
            "mean": self.mean,
            "max": self.maximum,
            "curves": [[list(point) for point in curve] for curve in self.curves.curves],
            "histogram": {"edges": list(self.edges), "counts": list(self.counts)},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PredictedError:
        histogram = data["histogram"]
        return PredictedError(
            data["mean"],
            data["max"],
            ErrorCurves(tuple(tuple(CurvePoint(*point) for point in curve) for curve in data["curves"])),
            tuple(histogram["edges"]),
            tuple(histogram["counts"]),
        )


def _workload_errors(plan: Plan[Any], replicas: Sequence[Replica], seed: int) -> np.ndarray:
    """The size of the errors of all replicas, on a sample of the workload."""
    rng = np.random.default_rng(seed)
    groups = [
        group.sampled(rng, queries=SAMPLE, cells=MOST_CELLS).group for group in plan.task.workload.groups
    ]
    return np.abs(np.concatenate([replica.seen(group).errors for group in groups for replica in replicas]))


def _known(error: float) -> float | None:
    return float(error) if math.isfinite(error) else None
