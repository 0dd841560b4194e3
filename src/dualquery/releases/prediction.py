"""How far off an answer is likely to be, from public quantities alone.

A mechanism predicts a mean and a maximal error for its whole workload, and may predict an error for each
query. The latter are kept as a curve: queries of the workload whose answer is about p are predicted to be
off by e(p). The curve needs a few numbers instead of millions, and serves queries nobody foresaw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CURVE_POINTS = 24
HISTOGRAM_BARS = 30


@dataclass(frozen=True)
class PredictedError:
    """Errors as fractions of the table; None where nothing is predicted.

    `curve` holds (answer, error) pairs by increasing answer.

    `edges` and `counts` are the histogram of the errors predicted for the queries one by one; empty, like
    the curve, where the mechanism predicts for the workload as a whole only.
    """

    mean: float | None
    maximum: float | None
    curve: tuple[tuple[float, float], ...] = ()
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(
        mean: float,
        maximum: float,
        *,
        answers: NDArray[np.float64] | None = None,
        bars: NDArray[np.float64] | None = None,
    ) -> PredictedError:
        if bars is None or answers is None:
            return PredictedError(_known(mean), _known(maximum))
        order = np.argsort(answers, kind="stable")
        curve = [
            (float(answers[part].mean()), float(np.sqrt(np.mean(bars[part] ** 2))))
            for part in np.array_split(order, min(CURVE_POINTS, len(order)))
        ]
        counts, edges = np.histogram(bars, bins=HISTOGRAM_BARS)
        return PredictedError(
            _known(mean), _known(maximum), tuple(curve), tuple(map(float, edges)), tuple(map(int, counts))
        )

    def of_answer(self, answer: float) -> float | None:
        """The predicted error of one answer."""
        if not self.curve:
            return self.mean
        places, errors = zip(*self.curve, strict=True)
        return float(np.interp(answer, places, errors))

    def to_json(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "max": self.maximum,
            "curve": [list(point) for point in self.curve],
            "histogram": {"edges": list(self.edges), "counts": list(self.counts)},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PredictedError:
        histogram = data["histogram"]
        return PredictedError(
            data["mean"],
            data["max"],
            tuple((p, e) for p, e in data["curve"]),
            tuple(histogram["edges"]),
            tuple(histogram["counts"]),
        )


def _known(error: float) -> float | None:
    return float(error) if math.isfinite(error) else None
