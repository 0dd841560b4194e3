"""What every mechanism has in common: a plan made from public quantities, then a run that follows it.

A plan needs no data. It fixes every parameter before the first coin is tossed, and says what it will
cost and how good it should be; `dualquery plan` prints it and the certificate repeats it. A run takes the
plan, a curator and public chance, and gives back synthetic records (or bare answers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Budget
from dualquery.privacy.curator import Curator
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.table.records import Records

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much


def silent(_stage: str, _done: int, _total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Shape:
    """All that is public before the data is touched.

    `rows` is the public number of records: the table's own length where neighbours replace a record,
    a declared constant where they add or remove one.
    """

    workload: Workload
    rows: int
    budget: Budget

    @property
    def domain(self) -> Domain:
        return self.workload.domain


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for by name; None leaves the choice to the plan."""

    learning_rate: float | None = None
    samples: int | None = None
    rounds: int | None = None
    alpha: float | None = None
    beta: float | None = None
    free: str | None = None
    oracle: str | None = None
    synthetic_rows: int | None = None
    memory: int | None = None
    iterate: str | None = None
    updates: str | None = None
    start: str | None = None
    measured: str | None = None
    part_cells: int | None = None
    items_per_record: int | None = None

    def given(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every parameter of a run, and what to expect of it. Made from a Shape and Options alone."""

    mechanism: str
    reason: str  # one sentence: why this mechanism, and where its parameters come from
    parameters: Mapping[str, int | float | str]  # what the certificate repeats
    mean_error: float  # predicted, as a fraction of the table
    max_error: float
    seconds: float
    bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Synthetic records, or bare answers where a mechanism has none to give."""

    records: Records | None
    answers: NDArray[np.float64] | None = None  # one fraction a query of the workload
    error_bars: NDArray[np.float64] | None = None  # predicted error of each query's answer
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A row of the table of mechanisms (`mechanisms.choose`)."""

    name: str
    words: str  # what it is, in a sentence
    accepts: frozenset[str]  # the options that mean something to it
    plan: Callable[[Shape, Options], Plan]
    run: Callable[[Plan, Shape, Curator, np.random.Generator, Progress], Outcome] = field(repr=False)

    def checked_plan(self, shape: Shape, options: Options) -> Plan:
        """The plan, after refusing options that this mechanism would ignore."""
        for name in options.given():
            if name not in self.accepts:
                flag = "--" + name.replace("_", "-")
                raise DualQueryError(f"{flag} means nothing to the mechanism '{self.name}'; leave it out")
        return self.plan(shape, options)
