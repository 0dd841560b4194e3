"""Linked tables: views of units are measured, and whole units fitted to them.

A unit is a row of the protected table with all rows that hang on it. In one stage its own attributes and the numbers
of rows are measured, one by one and in pairs. The noisy numbers of rows settle how many rows of a unit count in full;
then, with noise that was paid for beforehand, come rows with their unit, pairs of rows of one unit, and tallies
(`queries.views`). A unit moves any of them as far as one flat record would, however many rows it has. Units answer
all of it (`fitting.views`).

Shares of the budget, after 1% for the number of units where that is private: tables of units 16% (ones .4, pairs .6),
pairs of rows 14%, tallies 21%, rows the rest (ones .2, pairs .8); within each group by (c_S · cells)^¼. Several child
tables share alike. Where units have no attributes, all but rows have half. A database whose units have exactly one
row each is played as one table (`mechanisms.projection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import isqrt, prod
from typing import Any

import numpy as np

from dualquery.fitting.fitter import COUNT_SECONDS, Effort
from dualquery.fitting.measured import Measured, Numbers
from dualquery.fitting.public_units import PublicUnits, fitted_with_public
from dualquery.fitting.views import MeasuredViews, fitted_units, in_full, rows_in_full
from dualquery.mechanisms.artefact import synthetic, usual_rows
from dualquery.mechanisms.floors import HANGING
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, hidden, synthetic_rows
from dualquery.mechanisms.projection import (
    one_row_each,
    plan_single_rows,
    run_single_rows,
    with_fewer_rows,
)
from dualquery.mechanisms.shares import (
    LEAST_ROOM,
    MAX_ERROR,
    MEAN_ERROR,
    MOST_COUNT,
    SHARE_OF_TOTAL,
    Stage,
    known_at_first,
    measures_total,
    quarter_powers,
    stages_of,
    unit_variance,
)
from dualquery.mechanisms.wishes import LinkedWishes
from dualquery.privacy.budget import Accounting, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.queries.views import WHOLE, Tallies, View, ViewInteractions
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.types import Done, Progress, Set

SHARES = {"units": 0.16, "pairs": 0.14, "tallies": 0.21}  # and rows the rest
PART_OF_OTHERS = 0.5  # of their shares, where units have no attributes: then rows are what people ask about
ONES_OF_UNITS, ONES_OF_ROWS = 0.4, 0.2
NEXT_TO_NOTHING = 0.001  # where nothing varies: a stage has a share
PAIRS_OF_TALLIES = 0.2  # of the share of tallies: how often two values of one row come together in a unit
TALLIED = 3  # values of an attribute that count in full
FEWEST_UNITS, MOST_UNITS = 4_000, 200_000  # that are fitted
MOST_CELLS = 4_000_000  # of a table: larger ones are left to what pairs of other attributes imply
ROOM = 1 << 54  # of a stage: weights take twenty bits of it
VISITS, VISIT_SECONDS = (
    12,
    4e-9,
)  # passes over all rows with a fit and its swaps; seconds a flat record looked at


@dataclass(frozen=True)
class Paid:
    """The stages of one child table."""

    child: str
    rows: Stage
    pairs: Stage | None  # None where no unit has two rows, as of the tallies
    tallies: Stage | None


@dataclass(frozen=True, kw_only=True)
class LinkedParameters:
    measured: str = "units, their rows, pairs of their rows, and tallies"
    cell_noise: float
    synthetic_rows: int
    units: Stage = hidden()
    children: tuple[Paid, ...] = hidden()
    full: Mapping[str, int] | None = (
        hidden()
    )  # rows of a unit that count in full, by child table, once settled


def plan(task: Task, wanted: LinkedWishes) -> Plan[Any]:
    database = _database(task.domain)
    if one_row_each(database):
        return plan_single_rows(task, wanted)
    parts, words = _parts(database, measures_total(task))
    room = min(ROOM, (MOST_COUNT // (16 * task.rows * WHOLE)) ** 2)
    wanted_stages: list[tuple[str, float, int | None]] = [
        (words[key], share, None) for key, share in parts.items()
    ]
    stages = dict(zip(parts, stages_of(task.budget, wanted_stages, room, LEAST_ROOM), strict=True))
    children = tuple(
        Paid(
            each.name,
            stages["rows", each.name],
            stages.get(("pairs", each.name)),
            stages.get(("tallies", each.name)),
        )
        for each in database.children
    )
    rows = synthetic_rows(task, wanted.synthetic_rows or usual_units(task.rows))
    noise = _pair_noise(task, database)
    steps: tuple[Step, ...] = tuple(stage.step() for stage in stages.values())
    seconds, memory = _cost(task, database, rows)
    return Plan(
        mechanism="linked",
        task=task,
        reason=f"a unit is a {database.root.name} with all that hangs on it, and moves a view of rows as far as one "
        "record would",
        parameters=LinkedParameters(
            cell_noise=noise, synthetic_rows=rows, units=stages["units", ""], children=children, full=None
        ),
        steps=steps,
        mean_error=min(0.5, MEAN_ERROR * noise),
        max_error=min(1.0, MAX_ERROR * noise),
        seconds=seconds,
        bytes=memory,
    )


def usual_units(units: int) -> int:
    """Twice as many as there are where they are few, and never more than tell the smallest shares apart: more would
    say nothing more, and take their time."""
    return min(usual_rows(units), max(FEWEST_UNITS, 2 * units), MOST_UNITS)


def _database(domain: Domain) -> Database:
    assert isinstance(domain, Database), "linked plays databases"
    return domain


Part = tuple[str, str]  # what is measured, and of which child table


def _parts(database: Database, total: bool) -> tuple[dict[Part, float], dict[Part, str]]:
    """Shares of the budget and words of what they pay for; where there is nothing else to measure, rows have it."""
    left = 1.0 - SHARE_OF_TOTAL if total else 1.0
    of_units, part = sum(_of_units(database)), _part_of_others(database)
    shares: dict[Part, float] = {("units", ""): left * of_units + 1.0 - left}
    words: dict[Part, str] = {("units", ""): f"measure the tables of {database.root.name}"}
    each = left / len(database.children)
    for child in database.children:
        several = child.at_most > 1
        of_pairs, of_tallies = (part * SHARES[name] if several else 0.0 for name in ("pairs", "tallies"))
        shares["rows", child.name] = each * (1.0 - of_units - of_pairs - of_tallies)
        words["rows", child.name] = f"measure rows of {child.name} with their {database.root.name}"
        if several:
            shares["pairs", child.name] = each * of_pairs
            words["pairs", child.name] = f"measure pairs of rows of {child.name}"
            shares["tallies", child.name] = each * of_tallies
            words["tallies", child.name] = f"measure how many rows of {child.name} have each value"
    return shares, words


def _part_of_others(database: Database) -> float:
    return 1.0 if database.root.columns else PART_OF_OTHERS


def _of_units(database: Database) -> tuple[float, float]:
    """The shares of attributes of units, and of their pairs; where there are none, rows have it."""
    varied, share = int((database.sizes > 1).sum()), _part_of_others(database) * SHARES["units"]
    return share * ONES_OF_UNITS if varied else NEXT_TO_NOTHING, share * (1 - ONES_OF_UNITS) * (varied > 1)


def _unit_shares(task: Task, database: Database) -> dict[Set, float]:
    """Of the stage of the units."""
    left, own = 1.0 - SHARE_OF_TOTAL if measures_total(task) else 1.0, range(database.width)
    of_ones, of_pairs = _of_units(database)
    shares = _within(combinations(own, 1), database, task.budget.neighbours, left * of_ones)
    shares |= _within(combinations(own, 2), database, task.budget.neighbours, left * of_pairs)
    return shares | ({(): SHARE_OF_TOTAL} if measures_total(task) else {})


def _within(sets: Iterable[Set], domain: Domain, neighbours: Neighbours, share: float) -> dict[Set, float]:
    """Of sets that are not too large, and hold no constant attribute."""
    sizes = [int(size) for size in domain.sizes]
    kept = [s for s in sets if all(sizes[j] > 1 for j in s) and prod(sizes[j] for j in s) <= MOST_CELLS]
    powers = quarter_powers(kept, domain, neighbours)
    total = sum(powers.values())
    return {members: share * power / total for members, power in powers.items()}


def _row_shares(view: View, neighbours: Neighbours) -> dict[Set, float]:
    """Attributes of a row, and pairs with at least one of them; the other margins follow."""
    width, domain = view.database.width, view.domain
    own = range(width, domain.width)
    ones = _within(((j,) for j in own), domain, neighbours, ONES_OF_ROWS)
    return ones | _within(((i, j) for j in own for i in range(j)), domain, neighbours, 1 - ONES_OF_ROWS)


def _pair_shares(view: View, neighbours: Neighbours) -> dict[Set, float]:
    """Each attribute of one row with itself and the later ones of the other row; of a row and the next one all, and
    the attributes of each: no row is the next of the first."""
    width, own = view.database.width, view.database.child(view.child).domain.width
    if view.chained:
        ones = _within(((j,) for j in range(width, width + 2 * own)), view.domain, neighbours, ONES_OF_ROWS)
        both = ((width + a, width + own + b) for a in range(own) for b in range(own))
        return ones | _within(both, view.domain, neighbours, 1 - ONES_OF_ROWS)
    pairs = ((width + a, width + own + b) for a in range(own) for b in range(a, own))
    return _within(pairs, view.domain, neighbours, 1.0)


def _pair_noise(task: Task, database: Database) -> float:
    """The deviation of a cell of a pair of rows' attributes, as a fraction of the units."""
    unit = unit_variance(task.budget)
    child = database.children[0]
    view = View(database, child.name, 1, 1)
    shares = _row_shares(view, task.budget.neighbours)
    pairs = [share for members, share in shares.items() if len(members) == 2]
    mean = _parts(database, False)[0]["rows", child.name] * float(np.mean(pairs or [1.0]))
    return float(np.sqrt(task.budget.neighbours.largest_squared(alone=1, apart=2) * unit / mean)) / task.rows


def _cost(task: Task, database: Database, rows: int) -> tuple[float, int]:
    """Seconds and bytes: a row is looked at with each of its attributes' tables, and in pairs with all others."""
    flat, width = 0.0, 0
    for child in database.children:
        many, own = (child.at_least + min(child.at_most, 2 * child.at_least + 3)) / 2, child.domain.width
        flat += many * own * (own + database.width + own * many)
        width += int(many * own)
    seconds = VISITS * rows * flat * 8 * VISIT_SECONDS + task.rows * flat * COUNT_SECONDS
    return 5 * seconds, int(200e6 + 40 * rows * (width + database.width))


def run(plan: Plan[Any], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    if not isinstance(plan.parameters, LinkedParameters):
        return run_single_rows(plan, curator, rng, progress)
    task, chosen = plan.task, plan.parameters
    database, neighbours = _database(task.domain), task.budget.neighbours
    stages = [
        chosen.units,
        *(s for each in chosen.children for s in (each.rows, each.pairs, each.tallies) if s),
    ]
    paid = dict(zip(map(id, stages), curator.allow(*(stage.event for stage in stages)), strict=True))
    progress("measuring", 0, len(stages))
    shares = _unit_shares(task, database)
    what = chosen.units.chosen(shares, database, neighbours)
    known = known_at_first(task, chosen.units.measured(curator, paid[id(chosen.units)], what))
    ones = known.ones()
    full, views = dict(chosen.full or {}), []
    for place, each in enumerate(chosen.children):
        if each.child not in full:
            sizes = ones.get(len(database.root.columns) + place, np.ones(1))
            full[each.child] = rows_in_full(database.child(each.child), sizes)
        views.append(_measured(each, database, full[each.child], curator, paid, neighbours))
    progress("measuring", len(stages), len(stages))
    tell: Done = lambda done, total: progress("fitting", done, total)  # noqa: E731
    prior, trust = task.prior, None
    if isinstance(prior, PublicUnits):
        units, misfits, trust = fitted_with_public(known, views, prior, chosen.synthetic_rows, rng, tell)
        task = replace(task, prior=replace(prior, share=trust.share))
    else:
        units, misfits = fitted_units(known, views, chosen.synthetic_rows, rng, tell)
    return Outcome(
        artefact=synthetic(units),
        notes=() if trust is None else (trust.words,),
        measured=(*known.kept, *_kept(misfits)),
        settled=replace(plan, task=task, parameters=replace(chosen, full=full)),
        trust=trust,
    )


def _kept(misfits: Mapping[str, float]) -> list[Measured]:
    """For the bars of any, all and count (`hanging_bar`)."""
    return [Measured(Numbers(HANGING, (), child), np.array([b]), 0.0) for child, b in misfits.items()]


def _measured(
    paid: Paid,
    database: Database,
    full: int,
    curator: Curator,
    within: Mapping[int, Allowance],
    neighbours: Neighbours,
) -> MeasuredViews:
    rows = View(database, paid.child, 1, full)
    of_rows = _interactions(paid.rows, rows, _row_shares(rows, neighbours), curator, within, neighbours)
    pairs, of_pairs = None, list[Measured]()
    if paid.pairs is not None:
        pairs = in_full(View(database, paid.child, 2, 1), full)
        of_pairs = _interactions(
            paid.pairs, pairs, _pair_shares(pairs, neighbours), curator, within, neighbours
        )
    return MeasuredViews(
        rows, pairs, tuple(of_rows), tuple(of_pairs), _tallied(paid, database, curator, within)
    )


def _interactions(
    stage: Stage,
    view: View,
    shares: Mapping[Set, float],
    curator: Curator,
    within: Mapping[int, Allowance],
    neighbours: Neighbours,
) -> list[Measured]:
    """In flat records: a unit's weigh at most WHOLE together, which is what the stage has room for."""
    flat = replace(stage, squared=stage.squared // WHOLE**2)
    what = flat.chosen(shares, view.domain, neighbours)
    if not what.sets:
        return []
    noisy = curator.measure(ViewInteractions(view, what), noise=stage.noise, within=within[id(stage)])
    variances = flat.variances(what)
    return [
        Measured(members, cells / WHOLE, variances[members] / WHOLE**2)
        for members, cells in what.in_records(noisy).items()
    ]


def _tallied(
    paid: Paid, database: Database, curator: Curator, within: Mapping[int, Allowance]
) -> tuple[tuple[Tallies, Measured], ...]:
    """Every attribute, and every pair of attributes, each group with equal shares."""
    if paid.tallies is None:
        return ()
    sizes = database.child(paid.child).domain.sizes.tolist()
    varied = [a for a, size in enumerate(sizes) if size > 1]
    ones, pairs = [*combinations(varied, 1)], [*combinations(varied, 2)]
    pairs = [(a, b) for a, b in pairs if sizes[a] * sizes[b] <= MOST_CELLS]
    if not ones:
        return ()
    of_pairs = PAIRS_OF_TALLIES if pairs else 0.0
    shares = [(1 - of_pairs) / len(ones)] * len(ones) + [of_pairs / max(1, len(pairs))] * len(pairs)
    sets: list[Set] = [*ones, *pairs]
    alone = [Tallies(database, paid.child, (s,), (1,), TALLIED) for s in sets]
    moved = [curator.neighbours.sensitivity(each.bound()).l2_squared for each in alone]
    times = tuple(
        isqrt(int(paid.tallies.squared * share * (1 - 1e-9)) // each)
        for share, each in zip(shares, moved, strict=True)
    )
    known = [place for place, m in enumerate(times) if m]
    kept, multipliers = tuple(sets[place] for place in known), tuple(times[place] for place in known)
    together = Tallies(database, paid.child, kept, multipliers, TALLIED)
    noisy = curator.measure(together, noise=paid.tallies.noise, within=within[id(paid.tallies)])
    variance = float(paid.tallies.noise.variance)
    return tuple(
        (alone[place], Measured(sets[place], cells / (m * WHOLE), variance / (m * WHOLE) ** 2))
        for place, cells, m in zip(known, together.split(noisy), multipliers, strict=True)
    )


def replica(plan: Plan[Any]) -> Plan[Any]:
    """The same measurements, and as many units as a replica needs: half as many as of records, as each has several
    rows."""
    chosen = plan.parameters
    if not isinstance(chosen, LinkedParameters):
        return with_fewer_rows(plan)
    rows = -(-Effort.of(chosen.synthetic_rows).shorter(chosen.cell_noise).rows // 2)
    return replace(plan, parameters=replace(chosen, synthetic_rows=rows))


LINKED = Mechanism(
    "linked",
    "tables of units, of their rows and of pairs of rows, and whole units fitted to them",
    LinkedWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP),
    replica=replica,
    plays=("database",),
    starts_from_prior=True,
)
