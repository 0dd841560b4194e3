"""How far runs lie apart, and when a difference is more than that: no sentence explains what noise may have made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from statistics import fmean, stdev
from typing import Any

CLEAR = 3.0  # standard errors that lie between two means that differ clearly


@dataclass(frozen=True)
class Sample:
    """Some runs of one point: their mean, their standard deviation, and how many they are."""

    mean: float
    deviation: float
    runs: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Sample:
        deviation = stdev(values) if len(values) > 1 else nan
        return Sample(fmean(values), deviation, len(values), min(values), max(values))

    @staticmethod
    def exact(value: float) -> Sample:
        """A number that no run can change: a bound, or the answer of a fixed table."""
        return Sample(value, 0.0, inf, value, value)

    @property
    def squared_error(self) -> float:
        """The squared standard error of the mean; of one run nobody knows it."""
        return self.deviation**2 / self.runs if self.deviation == self.deviation else inf

    def clearly_below(self, other: Sample) -> bool:
        """Whether the mean is lower by more than three standard errors of the difference."""
        return other.mean - self.mean > CLEAR * sqrt(self.squared_error + other.squared_error)

    def __format__(self, form: str) -> str:
        """The mean, and from which run to which."""
        if self.runs == inf or self.low == self.high:
            return format(self.mean, form)
        return f"{self.mean:{form}} ({self.low:{form}} to {self.high:{form}})"


UNKNOWN = Sample(nan, nan, 0, nan, nan)


def compared(mine: Sample, other: Sample) -> str:
    """How many times higher or lower, where that is clear."""
    if not (mine.clearly_below(other) or other.clearly_below(mine)):
        return "not clearly apart from"
    ratio = max(mine.mean / other.mean, other.mean / mine.mean)
    digits = 0 if ratio >= 100 else 1 if ratio >= 1.1 else 2  # "1.0 times higher" would say nothing
    return f"{ratio:,.{digits}f} times {'lower' if mine.mean < other.mean else 'higher'} than"


class Samples(dict[tuple[Any, ...], Sample]):
    """Samples by what was varied; one that was not measured is not a number."""

    def __missing__(self, key: tuple[Any, ...]) -> Sample:
        return UNKNOWN


def samples_by(rows: Iterable[Mapping[str, Any]], by: Sequence[str], value: str) -> Samples:
    """The runs of a column for each combination of some others, in order of appearance; empty cells left out."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if isinstance(row.get(value), int | float):
            groups.setdefault(tuple(row[name] for name in by), []).append(row[value])
    return Samples({key: Sample.of(values) for key, values in groups.items()})
