"""What a fitter is given, and what it gives back: targets, rows to start from, and how long and hot they are fitted.

The query player's weights are the residual of the noisy tables, which is public; the data player keeps a few
independent sets of rows (*chains*) and best-responds row by row. A *pass* goes once over all rows, and the residual
is brought up to date after every move and not only after every pass.

With temperature T > 0 a row is drawn with probability ∝ lean(x) · exp(Σ w·G / T), where lean is a product of
one-way distributions: where the chains come to rest, they are samples of the log-linear distribution with
parameters w·G/T, that is, of the projection  min_p Σ_c w_c ‖y_c − p_c‖²/2 + (T/N)·KL(p ‖ lean), which keeps
to independence where the measurements do not object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.table.records import Records
from dualquery.types import Cells, Done, Set

Chains = NDArray[np.unsignedinteger]  # chain, row, attribute
Rows = NDArray[np.unsignedinteger]
Seeds = NDArray[np.uint64]  # one a chain

RAREST = 1e-5  # fractions below this lean no harder: a measured cell must still be able to call for them


class Targets:
    """What the rows should answer: pull[S] is the weighted target w·y of the table over S, weight[S] is w.

    The rows lower Σ_S weight[S] · ‖N·y_S − counts_S‖². Only the whole sum must be a square: weights of single
    tables may be negative (see `add_interaction`). `lean` are the one-way fractions that rows have without any pull.
    """

    def __init__(self, sizes: NDArray[np.integer], lean: Mapping[int, Cells] | None = None) -> None:
        self.sizes = sizes.astype(np.int64)
        self._sizes: list[int] = self.sizes.tolist()
        self.lean = {} if lean is None else lean
        self.pull: dict[Set, Cells] = {}
        self.weight: dict[Set, float] = {}

    def add_table(self, members: Set, target: Cells, weight: float) -> None:
        """Add weight · ‖N·target − counts‖² over a table."""
        self._add(members, weight * target, weight)

    def add_interaction(self, members: Set, target: Cells, weight: float) -> None:
        """Add weight · ‖C(N·target − counts)‖², C the centring of a table along each of its attributes.

        Centring is a signed sum of margins, C = Σ_{B ⊆ S} (−1)^|S∖B| Π_{j ∉ B} 1/k_j · margin_B, and a
        projection, so the gain of a row is again a sum over tables: those of the subsets B, with these
        signs. `target` must be centred itself.
        """
        self._add(members, weight * target, weight)
        sizes, cells = [self._sizes[j] for j in members], target.size
        for order in range(1, len(members)):
            sign = -weight if (len(members) - order) % 2 else weight
            parts = zip(combinations(members, order), combinations(sizes, order), strict=True)
            for subset, lengths in parts:
                self._add(subset, None, sign / (cells // prod(lengths)))

    def add_lean(self, members: Set, logarithms: Cells, temperature: float) -> None:
        """Let rows lean to exp(logarithms) over a table: at this temperature (in fractions), without any pull.

        The gain of a row is compared with temperature · N times logarithms, so that a constant pull is a
        factor of the distribution from which rows are drawn.
        """
        self._add(members, temperature * logarithms, 0.0)

    def _add(self, members: Set, pull: Cells | None, weight: float) -> None:
        self.weight[members] = self.weight.get(members, 0.0) + weight
        if members not in self.pull:
            self.pull[members] = np.zeros([self._sizes[j] for j in members]) if pull is None else pull
        elif pull is not None:
            self.pull[members] = self.pull[members] + pull


@dataclass(frozen=True)
class ItemTargets:
    """Of binary attributes, of which a row holds few: the fractions of rows that hold an item, or two of them.

    Cells of rows without an item are not asked for, so that a pass costs what rows hold. Rows lean to `single`.
    """

    single: Cells
    pair: Cells  # symmetric
    weight_single: float
    weight_pair: float


class Fitter(Protocol):
    """Who fits rows: compiled (`cpu`), or slow and plain (`reference`), against which others are tested."""

    def fit(
        self, targets: Targets | ItemTargets, start: Chains, heat: Sequence[float], seeds: Seeds
    ) -> Iterator[Chains]:
        """The rows after each pass, one temperature (in rows) a pass. Every row of a chain best-responds once in it.

        The attributes of a row move in random order, each to the value v of greatest
        Σ_S (G_S(v) − w_S(v)/2) + temperature · (lean(v) + Gumbel noise), over the tables S that hold the attribute,
        with G_S the weighted residual without this row, at the row's cell with v put in.
        """
        ...


_USUAL: ContextVar[Fitter | None] = ContextVar("fitter", default=None)


@contextmanager
def fitting_with(fitter: Fitter) -> Iterator[None]:
    """Fits inside that are given no fitter are this one's."""
    before = _USUAL.set(fitter)
    try:
        yield
    finally:
        _USUAL.reset(before)


def usual_fitter() -> Fitter | None:
    """Whoever was chosen for all fits; None: the compiled one."""
    return _USUAL.get()


REPLICAS = 4  # of a release, from which its errors are seen (`mechanisms.error_bars`)
REPLICA_ROWS, COLD_REPLICA_ROWS = (
    12_000,
    20_000,
)  # at most; with more its bars are as good, to one part in twenty
WARM_UP = (4.0, 2.0, 1.0)  # temperatures before the first snapshot, in units of the last one
SHORT_WARM_UP = (2.0, 1.0)
COLD = 5e-4  # noise of a cell, as a fraction of the table, below which a replica needs more rows and a whole warm-up
TEMPERATURE = 0.6  # standard deviations of the noise in a cell of a pair's table
LEAST_TEMPERATURE = 1e-5  # of the rows: below it a chain freezes before it has mixed
VISIT_SECONDS = 2.5e-9  # per value looked at
COUNT_SECONDS = 2e-9  # per record and table, two cores
INTERPRETER_BYTES = 200_000_000


class Chaining(NamedTuple):
    """How rows are fitted: at most so many chains of at least so many rows, then longer ones, then kept more often.

    Of N rows in C chains a cell is off by some √C/N, because rows are whole numbers: more chains, of which each may
    have a thread, are right where that is `COARSE` times the noise at most.
    """

    chains: int
    least: int
    rows: int
    snapshots: int


LONG = Chaining(4, 7_500, 15_000, 2)
SHORT = Chaining(8, 3_000, 5_000, 3)  # where noise is large
COARSE = 0.04  # at .16 instead of .11 errors on 100,000 records of KDD99 were 9% larger (6 seeds each)


@dataclass(frozen=True)
class Effort:
    """How many rows, in how many chains, and how often they are looked at. Public."""

    chains: int
    chain_rows: int
    snapshots: int
    rows: int
    warm_up: tuple[float, ...] = field(default=WARM_UP, metadata={"hidden": True})

    @staticmethod
    def of(rows: int | None) -> Effort:
        """By default as many as the long chains have; whatever the noise, which `shared_out` is told."""
        if rows is None:
            rows = LONG.chains * LONG.rows * LONG.snapshots
        if rows < 1:
            raise DualQueryError("--synthetic-rows must be at least 1")
        return Effort._of(rows, LONG)

    @staticmethod
    def _of(rows: int, layout: Chaining) -> Effort:
        chains = min(rows, max(2, min(layout.chains, rows // layout.least)))
        chain_rows = min(-(-rows // chains), layout.rows)
        snapshots = min(layout.snapshots, -(-rows // (chains * chain_rows)))
        return Effort(chains, -(-rows // (chains * snapshots)), snapshots, rows)

    def shared_out(self, noise: float) -> Effort:
        """As many rows, in more chains where the noise of a cell allows it."""
        held = min(self.rows, SHORT.chains * SHORT.rows)
        chains = min(SHORT.chains, int((COARSE * noise * held) ** 2))
        return self if chains <= LONG.chains else Effort._of(self.rows, SHORT._replace(chains=chains))

    def shorter(self, noise: float) -> Effort:
        """Of a replica (`mechanisms.error_bars`), given the noise of a cell: the less, the longer it takes."""
        if noise < COLD:
            return Effort.of(min(self.rows, COLD_REPLICA_ROWS))
        short = Effort.of(min(self.rows, REPLICA_ROWS)).shared_out(noise)
        return replace(short, warm_up=SHORT_WARM_UP)

    @property
    def rounds(self) -> int:
        return len(self.warm_up) + self.snapshots

    @property
    def work(self) -> int:
        """How often a row is looked at."""
        return self.chains * self.chain_rows * self.rounds

    def seconds(self, visits: float, noise: float) -> float:
        """The time of a fit and of its replicas, on two cores, where a row looks at so many values."""
        work = self.work + REPLICAS * self.shorter(noise).work
        return work * (visits * VISIT_SECONDS + 2e-6) / 2

    def bytes(self, width: int, cells: float) -> int:
        """Residuals of all chains, the rows of all rounds, and what counting and the interpreter take."""
        rows = self.chains * self.chain_rows * width * (4 + self.rounds)
        return int(4 * self.chains * cells + 8 * cells + rows + INTERPRETER_BYTES)

    def temperatures(self, noise: float, times: float = TEMPERATURE) -> list[float]:
        """One a round, in rows: so many times the noise of a cell, which is a fraction of the table."""
        last = self.chain_rows * max(times * noise, LEAST_TEMPERATURE)
        return [last * factor for factor in self.warm_up] + [last] * self.snapshots

    def released(self, passes: Sequence[Chains]) -> Rows:
        """The rows of the last passes, of all chains, cut to the number asked for."""
        return self.cut(np.concatenate(passes[-self.snapshots :], axis=1))

    def cut(self, chains: Chains) -> Rows:
        """As many rows as were asked for, the same number from every chain."""
        number, rows, width = chains.shape
        return chains.transpose(1, 0, 2).reshape(number * rows, width)[: self.rows]


# How rows are fitted to measured tables.
Refit = Callable[[MeasuredTables, Effort, np.random.Generator, Done], Rows]


@dataclass(frozen=True)
class Fitting:
    """How rows are fitted to a measurement, and become records."""

    fit: Callable[[Effort, np.random.Generator, Done], Rows]
    records: Callable[[Rows, np.random.Generator], Records]
    settled: Any = None  # the way, with what was chosen on it fixed; None where nothing was
    measured: tuple[Measured, ...] = ()  # what a release keeps of the measurement
    tables: MeasuredTables | None = None  # the measurement, where it is one of tables
    refit: Refit | None = None  # the fit to any measurement of these tables

    @staticmethod
    def of_tables(
        measured: MeasuredTables, refit: Refit, settled: Any = None, more: tuple[Measured, ...] = ()
    ) -> Fitting:
        """Of tables that were measured, and how rows are fitted to such."""
        return Fitting(
            lambda effort, rng, progress: refit(measured, effort, rng, progress),
            lambda rows, rng: Records.from_rows(measured.domain, rows),
            settled,
            (*measured.kept, *more),
            measured,
            refit,
        )


SCOUT = Effort(1, 5_000, 2, 5_000, warm_up=())  # of rows that are refitted after every measurement
