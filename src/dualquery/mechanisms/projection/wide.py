"""Wide tables of binary attributes: what is measured where there are too many of them for tables.

One block of items may be baskets, of which a record holds few, or dense. Baskets are declared
(`--items-per-record`), or it is measured how many items records hold and then decided; nothing is ever cut off a
record that was neither. Both go through the same shares of the budget, paid for before anything is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.fitting.mixture import Mixture, Words, to_records
from dualquery.fitting.pace import INTERPRETER_BYTES, Fitting, Pace, Progress
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.baskets import WORDS as ITEM_WORDS
from dualquery.mechanisms.projection.baskets import (
    ByItems,
    Spending,
    asks_about_pairs,
    is_transactions,
    measured_items,
    measured_lengths,
    measured_total,
    of_items,
    plan_baskets,
)
from dualquery.mechanisms.projection.classes import CENTRES, FEW, PARTS, WORDS, Measuring
from dualquery.mechanisms.projection.plans import built, per_query, plainer
from dualquery.mechanisms.shares import SHARE_OF_TOTAL, Shares, measures_total, refuse_other_noise, shares_of
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.binary import SLAB_BYTES, Binary
from dualquery.table.domain import Domain

MOST_WHOLE = 20_000  # attributes; of more, and where few are asked about, only those are measured
NARROW = 200  # attributes that tables can deal with, whatever is asked
FEW_SETS = 20_000  # attribute sets that tables can deal with
TABLE_BYTES = 2_000_000_000
PREFERRED = 1.5  # tables find any structure: they may be predicted to be this much worse
SHARE_OF_LENGTHS = 0.005  # where it is not declared how many items records hold
ROW_BYTES = 1_000_000_000  # that the released rows may take
SAMPLING = 0.135  # mean error of a 3-way conjunction by chance alone, times √records (benchmarks/wide.py)
NOISE = 0.54  # and by noise, in units of that of the totals
LARGEST = 8.0  # the largest of 100,000 errors, in means
SPREAD_BYTES = 100_000_000  # vectors that are spread out at once
CELL_SECONDS = 8e-9  # per record and attribute, two cores, counting and drawing together
NOT_TOGETHER = (
    "alone are measured (hardly two that could matter are asked about together: pairs would not help)"
)
UNASKED = (
    "only attributes that some query asks about are measured; all others are 0 in every synthetic record, and "
    "questions about them are not answered"
)


@dataclass(frozen=True, kw_only=True)
class ByClasses:
    """Every attribute within classes of records; or items and pairs, where lengths say that records are baskets."""

    measured: str
    attributes: int
    cell_noise: float  # of a total
    pace: Pace
    shares: Shares = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        purse = self.shares.purse(curator)
        total = measured_total(purse, task)
        if "held" in self.shares.stages:
            lengths = measured_lengths(purse, task.domain, total)
            if lengths.sparse:
                paid = paid_by(task)
                return of_items(task.domain, measured_items(purse, task, total, rng, paid, lengths.limits()))
        binary = Binary(task.domain, measured_attributes(task))
        return of_mixture(task.domain, Measuring(purse, binary, total, rng).mixture())


def of_mixture(domain: Domain, mixture: Mixture) -> Fitting:
    """Rows are kept in bits, an attribute a row of words."""

    def fit(pace: Pace, rng: np.random.Generator, tell: Progress) -> Words:
        tell(0, 1)
        words = mixture.rows(pace.rows, rng)
        tell(1, 1)
        return words

    return Fitting(fit, lambda words, rng: to_records(domain, mixture, words))


def paid_by(task: Task) -> Spending:
    """How shares that were made for classes pay for baskets."""
    light = ("moments", "some lengths", "lengths", "class lengths", "first sums", "totals", *CENTRES)
    if asks_about_pairs(task.workload):
        return Spending(("ones",), light, ("sums",))
    return Spending((), ("ones", *light, "sums"), ())


def is_wide(domain: Domain) -> bool:
    """More binary attributes than tables can deal with, and nothing else."""
    return domain.width > NARROW and bool((domain.sizes == 2).all())


def measured_attributes(task: Task) -> NDArray[np.int64]:
    """All of them, where at least half are asked about and they are not too many; else those asked about."""
    asked, width = task.workload.attributes, task.domain.width
    return np.arange(width, dtype=np.int64) if width <= min(MOST_WHOLE, 2 * len(asked)) else asked


def plan_wide(task: Task, wanted: ProjectionWishes) -> Plan[Any] | None:
    """The plan for a wide binary table; None where it is none."""
    if not is_wide(task.domain):
        return None
    refuse_other_noise(task)
    if wanted.items_per_record is not None and is_transactions(task.domain):
        return plan_baskets(task, wanted, wanted.items_per_record)
    return _plan_for_classes(task, wanted)


def rather(wide: Plan[Any], tables: Callable[[], Plan[Any]]) -> Plan[Any]:
    """The plan for a wide table, or that for tables, which measures few sets best, whatever their structure."""
    if isinstance(wide.parameters, ByItems) or len(wide.task.workload.scope) > FEW_SETS:
        return wide
    try:
        other = tables()
    except DualQueryError:
        return wide
    good = other.bytes <= TABLE_BYTES and other.mean_error <= PREFERRED * wide.mean_error
    if not good:
        return wide
    notes = plainer(wide.task, wide.parameters.shares, other.mean_error)
    return replace(other, notes=(*other.notes, *notes))


def _plan_for_classes(task: Task, wanted: ProjectionWishes) -> Plan[Any]:
    if wanted.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    undecided = is_transactions(task.domain)
    asked = len(measured_attributes(task))
    rows = wanted.synthetic_rows or min(Pace.of(None).rows, max(1000, 8 * ROW_BYTES // asked))
    pace = Pace.of(rows)
    parts = {"total": SHARE_OF_TOTAL} if measures_total(task) else {}
    parts |= {"held": SHARE_OF_LENGTHS} if undecided else {}
    shares = shares_of(task.budget, parts | PARTS, {**WORDS, **ITEM_WORDS})
    moved = task.budget.neighbours.largest_squared(alone=asked, apart=4 * asked)
    noise = shares.deviation(moved / 4, "totals") / task.rows
    mean = math.hypot(SAMPLING * math.sqrt(1 / task.rows + 1 / rows), NOISE * noise)
    measured = "classes, or items and pairs" if undecided else "classes"
    return built(
        task,
        ByClasses(measured=measured, attributes=asked, cell_noise=noise, pace=pace, shares=shares),
        reason=(
            f"{asked:,} attributes are too many for tables: structure is looked for on {min(FEW, asked)} of them and "
            f"all are measured within the classes found (noise {noise:.2g}; one by one the queries would have "
            f"{per_query(task, shares):.2g})"
        ),
        steps=shares.steps(),
        errors=(mean, LARGEST * mean),
        seconds=5.0 + (task.rows + pace.rows) * asked * CELL_SECONDS,
        need=_class_bytes(task, pace, asked),
        memory=wanted.memory,
        notes=(*_notes(task, undecided, asked, rows, wanted), *plainer(task, shares, mean)),
    )


def _class_bytes(task: Task, pace: Pace, asked: int) -> int:
    """The bits of the table and of the rows, slabs of the table, numbers a record or attribute, the interpreter."""
    table, rows = task.rows * task.domain.width // 8, pace.rows * asked // 8
    slabs = 2 * min(SLAB_BYTES, task.rows * asked // 8) + SPREAD_BYTES
    return table + rows + slabs + 300 * task.rows + 1000 * asked + INTERPRETER_BYTES


def _notes(task: Task, undecided: bool, asked: int, rows: int, wanted: ProjectionWishes) -> tuple[str, ...]:
    notes = []
    if undecided:
        how = "and their pairs are measured" if asks_about_pairs(task.workload) else NOT_TOGETHER
        notes.append(
            "nobody declared how many items records hold (--items-per-record), so 0.5% of the budget measures it: "
            f"where records hold few, items {how}, with less error than predicted here"
        )
    if asked < task.domain.width:
        notes.append(UNASKED)
    if wanted.synthetic_rows is None and rows < Pace.of(None).rows:
        notes.append(
            f"{rows:,} synthetic records, so that {asked:,} attributes fit into memory (--synthetic-rows)"
        )
    return tuple(notes)
