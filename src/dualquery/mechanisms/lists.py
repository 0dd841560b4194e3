"""Look-ups and lists over a table of codes: one noisy histogram that is read where it is asked, and a learner.

*Noisy cells*: one noisy histogram over the whole universe, read at the cells that the workload names.

A record lies in one cell, so that the histogram of all 2^64 cells is one measurement of sensitivity 1; most of it is
never drawn. The cells that were read are shrunk by empirical Bayes, and a list is
the sum of its cells. By public numbers, with σ the noise of sensitivity 1, noise of its own on each of K lists costs
σ√r where a cell lies in at most r of them, and σ√K/2 as balances; cells cost σ√S for lists of S. Lists that are
longer than cells are often named are better measured themselves, and the plan says so.

*Touched weights*: sparse queries as the paper has them (Blum and Roth 2013), MWEM's game (`rounds`) over a universe
of 2^64 cells. The data player keeps a weight for each cell that some measured list accepts and one for all others
(`beliefs.universes`).

    error ≲ (log|X|)^{1/4} · √(log|Q|) / √(nε), as for queries of any kind, in time ~ S a query instead of |X|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.beliefs.universes import TouchedLists, TouchedWeights
from dualquery.errors import QueryError
from dualquery.fitting.shrink import CLEAR, learned, points, posterior
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, hidden, least_noise
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced, usual_rounds
from dualquery.mechanisms.wishes import NoWishes, RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.queries.group import Group
from dualquery.queries.lists import Catalogue, Lists, NamedCells, joined
from dualquery.queries.statistics import ONE_CELL
from dualquery.queries.workload import Workload
from dualquery.table.encoding import encode
from dualquery.table.graph import CodeTable, cells_of
from dualquery.types import Fractions, Progress, Reals

FILE = "cells.parquet"
FRACTION, DEVIATION = "fraction of records", "deviation"  # names that no column of a table should have


@dataclass(frozen=True, eq=False)
class CellFractions:
    """The fraction of the records in each cell that was read, and how far off it may be (a standard deviation)."""

    domain: CodeTable
    catalogue: Catalogue
    fraction: NDArray[np.float64]
    deviation: NDArray[np.float64]

    rows = None

    def fractions(self, group: Group) -> Fractions:
        return np.clip(self._summed(group, self.fraction), 0.0, 1.0)

    def bars(self, group: Group) -> Fractions:
        return BAR * np.sqrt(self._summed(group, self.deviation**2))

    def _summed(self, group: Group, numbers: NDArray[np.float64]) -> Fractions:
        if not isinstance(group, Lists):
            raise QueryError("this release holds cells, which answer look-ups and lists and nothing else")
        cells = self.catalogue.cells
        place = np.minimum(np.searchsorted(cells, group.cells), len(cells) - 1)
        unread = np.flatnonzero(cells[place] != group.cells)
        if len(unread):
            query = int(np.searchsorted(group.start, unread[0], side="right")) - 1
            raise QueryError(
                f"'{group.said[query]}' asks about a record that was not read for this release; ask about those in "
                f"{FILE}, or release again with it"
            )
        sums = np.concatenate([[0.0], np.cumsum(numbers[place])])
        return sums[group.start[1:]] - sums[group.start[:-1]]

    @property
    def words(self) -> str:
        return f"{len(self.fraction):,} cell{'s' if len(self.fraction) != 1 else ''}"

    def to_arrow(self) -> pa.Table:
        """One row per cell: its record, the fraction of the table that is such a record, and the deviation."""
        columns = {
            column.name: pa.array(self.catalogue.texts[:, j].tolist(), pa.string())
            for j, column in enumerate(self.domain.columns)
        }
        return pa.table({**columns, FRACTION: self.fraction, DEVIATION: self.deviation})

    def files(self) -> dict[str, pa.Table]:
        return {FILE: self.to_arrow()}

    @staticmethod
    def of_files(domain: CodeTable, tables: dict[str, pa.Table]) -> CellFractions:
        table = tables[FILE]
        names = [column.name for column in domain.columns]
        codes = encode(table.select(names), domain).columns
        cells = cells_of([each for each in codes if isinstance(each, np.ndarray)], table.num_rows)
        texts = np.array([table[name].to_pylist() for name in names]).T.reshape(table.num_rows, len(names))
        order = np.argsort(cells, kind="stable")
        return CellFractions(
            domain,
            Catalogue(cells[order], texts[order]),
            table[FRACTION].to_numpy()[order],
            table[DEVIATION].to_numpy()[order],
        )


MOST_CELLS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class CellParameters:
    """How many cells are read, and how noisy each is, in records."""

    cells: int
    noise: float
    law: Noise = hidden()


def lists_of(workload: Workload) -> Lists:
    return joined(workload.all_of(Lists))


def plan(task: Task, wanted: NoWishes) -> Plan[CellParameters]:
    lists = lists_of(task.workload)
    cells = len(np.unique(lists.cells))
    if cells > MOST_CELLS:
        raise QueryError(f"the lists name {cells:,} records; at most {MOST_CELLS:,} are read")
    law = least_noise(task.budget, ONE_CELL)
    moved = task.budget.neighbours.sensitivity(ONE_CELL)
    longest, incidence = lists.longest, lists.most_satisfied()
    notes = []
    if longest > incidence:
        notes.append(
            f"the longest list has {longest:,} records and none lies in more than {incidence:,} lists: noise on each "
            "list may be less for the long ones (--mechanism gaussian), but then only these lists are answered"
        )
    deviation = law.deviation * math.sqrt(max(1.0, float(np.diff(lists.start).mean())))
    return Plan(
        task=task,
        reason=f"one noisy histogram over the whole universe is read at the {cells:,} records that the lists name",
        parameters=CellParameters(cells=cells, noise=law.mean_size, law=law),
        steps=(Step("measure every cell of the universe, and read some", law.event(moved)),),
        mean_error=min(0.5, 0.5 * deviation / task.rows),
        max_error=min(
            1.0, law.deviation * math.sqrt(longest) * math.sqrt(2 * math.log(2 * cells)) / task.rows
        ),
        seconds=1.0 + cells * 1e-5 + task.rows * 1e-6,
        bytes=200 * cells + 16 * task.rows,
        notes=tuple(notes),
    )


def run(
    plan: Plan[CellParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    lists, rows, law = lists_of(plan.task.workload), plan.task.rows, plan.parameters.law
    named = np.unique(lists.cells)
    progress("reading cells", 0, len(named))
    noisy = curator.measure(NamedCells(named), noise=law)
    progress("reading cells", len(named), len(named))
    told, deviation = told_counts(noisy.astype(float), law.deviation)
    place = np.searchsorted(lists.catalogue.cells, named)
    catalogue = Catalogue(named, lists.catalogue.texts[place])
    cells = CellFractions(lists.domain, catalogue, told / rows, np.maximum(deviation, 0.5) / rows)
    return Outcome(artefact=cells, answers=_answers(cells, plan.task.workload))


def _answers(cells: CellFractions, workload: Workload) -> Fractions:
    return np.concatenate([cells.fractions(group) for group in workload.groups])


WORDS = "one noisy histogram over the whole universe, read at the cells that lists name, and shrunk"
NOISY_CELLS = Mechanism(
    "noisy-cells",
    WORDS,
    NoWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
    plays=("codes",),
)


LEARNED = 20_000  # cells that the law of counts is learned from


def told_counts(noisy: Reals, noise: float) -> tuple[Reals, Reals]:
    """Of each noisy count the posterior mean and deviation: most cells that somebody names are empty, few hold many.

    A count has an unknown law over whole numbers, learned from all of them together (`fitting.shrink`).
    """
    unclear = np.flatnonzero(noisy < CLEAR * noise)
    told, deviation = noisy.astype(float), np.full(len(noisy), noise)
    if len(unclear):
        z, same, prior = told[unclear], deviation[unclear], points(_grid(2 * CLEAR * noise))
        law = learned(z, same, prior, slice(None, None, -(-len(z) // LEARNED)), steps=200)
        told[unclear] = mean = posterior(z, same, prior, law)
        squares = posterior(z, same, prior, law, squares=True)
        deviation[unclear] = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return told, deviation


def _grid(most: float) -> Reals:
    """0, 1, 2, … as far as they are told apart, then ever farther steps."""
    fine = np.arange(min(32, int(most) + 2))
    far = np.rint(np.geomspace(32, max(most, 33), 40))
    return np.unique(np.append(fine, far[far >= len(fine)])).astype(float)


MOST_ROUNDS = 20_000


@dataclass(frozen=True, kw_only=True)
class TouchedParameters(MeasuredRounds):
    """What a run goes by."""

    universe: float  # log₂ of the number of cells


def _plan_learner(task: Task, wanted: RoundsWishes) -> Plan[TouchedParameters]:
    """As MWEM: half a round's price to choose, half to measure."""
    lists = lists_of(task.workload)
    rounds = wanted.rounds
    if rounds is None:
        # In a list, of those that are named.
        cells = len(lists.cells) / lists.size / len(np.unique(lists.cells))
        rounds = usual_rounds(task, typical=cells, most=MOST_ROUNDS)
    chosen = TouchedParameters(**vars(priced(task, rounds)), universe=min(64.0, task.domain.log2_size))
    return Plan(
        task=task,
        reason=f"{rounds} rounds over 2^{chosen.universe:.0f} cells, of which lists touch few",
        parameters=chosen,
        steps=chosen.steps(task, "choose the list that is answered worst"),
        mean_error=min(0.5, chosen.noise / task.rows + 0.02 / math.sqrt(rounds)),
        max_error=min(1.0, 3 * chosen.noise / task.rows + chosen.found(task) + 0.3 / math.sqrt(rounds)),
        seconds=2.0 + rounds * len(lists.cells) * 2e-8,
        bytes=64 * len(lists.cells) + 64 * lists.size,
    )


def _belief(plan: Plan[TouchedParameters], curator: Curator) -> TouchedLists:
    weights = TouchedWeights(2.0**plan.parameters.universe)
    return TouchedLists(lists_of(plan.task.workload), weights, floor=0.5 / plan.task.rows)


def _outcome(
    plan: Plan[TouchedParameters],
    replied: Iterator[TouchedLists],
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    """The mean of the weights after each of the second half of the rounds."""
    lists, rounds = lists_of(plan.task.workload), plan.parameters.rounds
    named = np.unique(lists.cells)
    fractions, each = np.zeros(len(named)), np.arange(len(named) + 1)
    for held in islice(replied, rounds // 2, None):
        fractions += held.weights.answers(each, named) / (rounds - rounds // 2)
    place = np.searchsorted(lists.catalogue.cells, named)
    deviation = np.full(len(named), max(plan.mean_error, 1 / plan.task.rows))  # a guess
    catalogue = Catalogue(named, lists.catalogue.texts[place])
    artefact = CellFractions(lists.domain, catalogue, fractions, deviation)
    return Outcome(artefact=artefact, answers=_answers(artefact, plan.task.workload))


TOUCHED_WEIGHTS = learner(
    "touched-weights",
    "multiplicative weights over the cells that lists touch, and one weight for all others (Blum, Roth 2013)",
    RoundsWishes,
    _plan_learner,
    _belief,
    _outcome,
    plays=("codes",),
)
