"""A kind of table: each record is an hour of the day, and one noisy histogram answers every arc.

[clock]
column = "at"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clock.arcs import ARCS, HOURS, Arcs, arc
from dualquery import (
    Accounting,
    Categorical,
    Curator,
    Domain,
    Example,
    Group,
    Kind,
    Mechanism,
    Noise,
    Outcome,
    Plan,
    Progress,
    QueryError,
    SchemaError,
    Step,
    Stored,
    Task,
    hidden,
    least_noise,
)

FILE = "hours.parquet"


class Clock(Domain):
    """The column, with one code per hour."""

    kind = "clock"

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Any, ...], folder: Path | None) -> Clock:
        name = section.get("column")
        if columns or set(section) != {"column"} or not isinstance(name, str):
            raise SchemaError('a table of [clock] has one line, like column = "at"')
        return cls((Categorical(name, tuple(map(str, range(HOURS)))),))

    def sections(self, write: Callable[[Any], str]) -> list[str]:
        return [f'[clock]\ncolumn = "{self.columns[0].name}"']


@dataclass(frozen=True, eq=False)
class HourFractions:
    """The fraction of the records in each hour, and the deviation of its noise."""

    domain: Clock
    fraction: NDArray[np.float64]
    deviation: float

    rows = None

    @property
    def words(self) -> str:
        return f"{HOURS} hours"

    def _members(self, group: Group) -> NDArray[np.bool_]:
        if not isinstance(group, Arcs):
            raise QueryError("this release answers arcs of a clock, and nothing else")
        return group.members

    def fractions(self, group: Group) -> NDArray[np.float64]:
        return np.clip(self._members(group) @ self.fraction, 0.0, 1.0)

    def bars(self, group: Group) -> NDArray[np.float64]:
        return 1.96 * self.deviation * np.sqrt(self._members(group).sum(axis=1))

    def to_arrow(self) -> pa.Table:
        return pa.table({"hour": np.arange(HOURS), "fraction": self.fraction})

    def files(self) -> dict[str, pa.Table]:
        return {FILE: self.to_arrow().replace_schema_metadata({"deviation": repr(self.deviation)})}

    @staticmethod
    def of_files(domain: Clock, tables: dict[str, pa.Table]) -> HourFractions:
        table = tables[FILE]
        return HourFractions(domain, table["fraction"].to_numpy(), float(table.schema.metadata[b"deviation"]))


@dataclass(frozen=True, kw_only=True)
class DayWishes:
    """Nothing may be asked for."""


@dataclass(frozen=True, kw_only=True)
class DayParameters:
    noise: float
    law: Noise = hidden()


def _hours(domain: Domain) -> Arcs:
    return Arcs(domain, np.stack([arc(first, 1) for first in range(HOURS)]))


def _plan(task: Task, wanted: DayWishes) -> Plan[DayParameters]:
    bound = _hours(task.domain).bound()
    law = least_noise(task.budget, bound)
    off = law.deviation / task.rows
    return Plan(
        task=task,
        reason="one histogram answers every arc",
        parameters=DayParameters(noise=law.deviation, law=law),
        steps=(Step("measure every hour", law.event(task.budget.neighbours.sensitivity(bound))),),
        mean_error=min(1.0, 3 * off),
        max_error=min(1.0, 9 * off),
        seconds=1.0,
        bytes=10**6,
    )


def _run(
    plan: Plan[DayParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    task, chosen = plan.task, plan.parameters
    noisy = curator.measure(_hours(task.domain), noise=chosen.law)
    return Outcome(artefact=HourFractions(task.domain, noisy / task.rows, chosen.noise / task.rows))


DAY_HISTOGRAM = Mechanism(
    "day-histogram",
    "one noisy histogram of the hours",
    DayWishes,
    _plan,
    _run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
    plays=("clock",),
)


def _example(folder: Path) -> Example:
    hours = np.random.default_rng(1).normal(14, 4, 5_000).astype(np.int64) % HOURS
    return Example(
        "Calls that nobody made",
        "calls.csv",
        {"calls.csv": pa.table({"at": hours}), "schema.toml": '[clock]\ncolumn = "at"\n'},
        5_000,
        "arcs:6",
        ("from 22 to 4", "from 9 to 17"),
    )


CLOCK = Kind(
    domain=Clock,
    grammar=ARCS,
    prefers=lambda task: [("day-histogram", "Chosen because one histogram answers every arc.")],
    stored=(
        Stored((FILE,), HourFractions.of_files, f"`{FILE}` holds the fraction of the records in each hour."),
    ),
    record="hour",
    records="hours",
    protects="It protects one hour. A person with several is protected less.",
    example=_example,
)
