"""Adaptive projection: the query player best-responds too, and pays for it.

One-way tables are measured first. Then, round after round, a table on which the rows are wrong is chosen by
the exponential mechanism (its summed absolute error, less the noise that measuring it would bring), measured,
and the rows answer the residual of everything measured so far. The fit is that of `projection`.
Fewer tables are measured, each with less noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.row_players import Targets, TargetsMaker
from dualquery.mechanisms.error_bars import predicted_error
from dualquery.mechanisms.measurement import Set, attribute_sets, closure, one_way_plan
from dualquery.mechanisms.pace import TEMPERATURE, Pace
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.mechanisms.projection import MAX_ERROR, MEAN_ERROR, play_residual, product_start
from dualquery.mechanisms.shrinkage import shrunk
from dualquery.mechanisms.table_measurement import Cells, fractions_of_ones, measure
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.query_selection import ChoosingCurator, Price, equal_prices
from dualquery.queries.counting import true_counts
from dualquery.queries.query import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.table.records import Records

SHARE_OF_ONES = Fraction(1, 5)
MOST_CELLS = 1_000_000  # of a table that may be chosen
MOST_CELLS_IN_ALL = 20_000_000
SCOUT_ROWS = 5_000  # of the single chain that is refitted after every measurement
SCOUT_PASSES = 2


def candidates_of(shape: Shape) -> tuple[Set, ...]:
    """The tables that may be chosen: all sets of two and more attributes of the workload that are not too large."""
    sizes = shape.domain.sizes.astype(np.int64)
    orders = closure(attribute_sets(shape.workload))
    sets = [
        members
        for order in sorted(orders)
        if order > 1
        for members in orders[order]
        if all(sizes[j] > 1 for j in members) and math.prod(int(sizes[j]) for j in members) <= MOST_CELLS
    ]
    sets.sort(key=lambda members: (len(members), math.prod(int(sizes[j]) for j in members), members))
    total = np.cumsum([math.prod(int(sizes[j]) for j in members) for members in sets])
    return tuple(sets[: int(np.searchsorted(total, MOST_CELLS_IN_ALL, side="right"))])


def rounds_for(shape: Shape, candidates: int) -> int:
    """A public rule: more rounds where more data and budget make a measurement precise, at most two an attribute."""
    rho = float(rho_of(epsilon=shape.budget.epsilon, delta=shape.budget.delta))
    precise = shape.rows * math.sqrt(rho)
    return max(1, min(candidates, 2 * shape.domain.width, round(precise ** (2 / 3) / 8)))


def plan(shape: Shape, options: Options) -> Plan:
    """The number of rounds and what they cost; which tables are chosen depends on the data."""
    if shape.budget.accounting is not Accounting.ZCDP:
        raise BudgetError("adaptive projection is paid for by zcdp accounting; choose that")
    candidates = candidates_of(shape)
    if not candidates:
        raise DualQueryError(
            "the workload asks about no two attributes together; use the mechanism 'projection'"
        )
    rounds = options.rounds or rounds_for(shape, len(candidates))
    if rounds < 1 or rounds > len(candidates):
        raise DualQueryError(
            f"--rounds must lie between 1 and {len(candidates)}, the number of tables to choose from"
        )
    pace = Pace.of(options.synthetic_rows)
    noise = math.sqrt(_variance(shape, rounds)) / shape.rows
    sizes = shape.domain.sizes.astype(np.int64)
    cells = float(np.mean([math.prod(int(sizes[j]) for j in members) for members in candidates]))
    visits = float(rounds * 3 * (8 + sizes.mean()))
    scouting = rounds * (SCOUT_ROWS * SCOUT_PASSES * visits * 2.5e-9 + len(candidates) * SCOUT_ROWS * 2e-9)
    return Plan(
        mechanism="adaptive-projection",
        reason=(
            f"{rounds} of {len(candidates):,} tables are chosen where the rows are most wrong, and measured, one a "
            "round"
        ),
        parameters={
            "candidates": len(candidates),
            "measurements": rounds,
            "cell_noise": noise,
            **pace.parameters(),
        },
        mean_error=min(3 * MEAN_ERROR * noise, 0.5),
        max_error=min(4 * MAX_ERROR * noise, 1.0),
        seconds=pace.seconds(visits) + scouting + shape.rows * len(candidates) * 2e-9,
        bytes=pace.bytes(shape.domain.width, rounds * 3 * cells) + int(24 * cells * len(candidates)),
    )


def _price(shape: Shape, rounds: int) -> Price:
    return equal_prices(shape.budget, 2 * rounds, 1 - SHARE_OF_ONES)


def _variance(shape: Shape, rounds: int) -> float:
    """Of the noise on a cell of a chosen table."""
    rho = _price(shape, rounds).rho
    assert rho is not None
    return shape.budget.neighbours.cells_moved / (2 * float(rho))


def run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Choose, measure, fit, repeat; then fit at full length."""
    candidates = candidates_of(shape)
    rounds = int(plan.parameters["measurements"])
    measured = measure(curator, one_way_plan(shape, SHARE_OF_ONES), shape)
    ones = fractions_of_ones(measured)
    rows = max(1, round(measured.total))
    noise = math.sqrt(_variance(shape, rounds)) / rows
    price = _price(shape, rounds)
    tables = Tables(shape.domain, candidates)
    chooser = ChoosingCurator.of(curator, Workload(shape.domain, (tables,), "candidate tables"))
    cells = np.diff(tables.starts)
    penalties = math.sqrt(2 / math.pi) * noise * rows * cells.astype(np.float64)
    left = np.arange(len(candidates), dtype=np.int64)
    deviations = {j: measured.deviation((j,)) for j in ones}
    noisy: dict[Set, Cells] = {}
    scouts = product_start(shape.domain, ones, Pace(1, SCOUT_ROWS, 1, SCOUT_ROWS), rng)
    for done in range(rounds):
        answers = true_counts(tables, Records.from_rows(shape.domain, scouts[0])) / SCOUT_ROWS
        chosen = chooser.choose_table(
            answers, among=left, penalties=penalties[left], public_rows=rows, price=price
        )
        members = candidates[chosen]
        shape_of_table = [int(shape.domain.sizes[j]) for j in members]
        noisy[members] = chooser.measure_table(chosen, public_rows=rows, price=price).reshape(shape_of_table)
        left = left[left != chosen]
        targets = _targets(shape.domain, ones, deviations, noisy, noise, rng)
        heat = [SCOUT_ROWS * TEMPERATURE * noise] * SCOUT_PASSES
        scouts = play_residual(targets, ones, scouts, heat, rng, lambda *_: None).last_reply()
        progress("choosing tables", done + 1, rounds)
    pace = Pace.of(int(plan.parameters["rows"]))
    released = _fitted(shape.domain, ones, deviations, noisy, noise, pace, rng, progress)
    again = _fitted(
        shape.domain,
        ones,
        deviations,
        _noisy_again(released, noisy, noise, rng),
        noise,
        Pace.of(max(1, pace.rows // 6)),
        rng,
        lambda _stage, at, total: progress("rehearsing", at, total),
    )
    return Outcome(records=released, error_bars=predicted_error(shape.workload, released, again, rng))


def _targets(
    domain: Domain,
    ones: Mapping[int, Cells],
    deviations: Mapping[int, float],
    noisy: Mapping[Set, Cells],
    noise: float,
    rng: np.random.Generator,
) -> Targets:
    """One-way tables and the chosen ones, shrunk around independence; weights are inverse variances."""
    maker = TargetsMaker(domain.sizes.astype(np.int64))
    for j, target in ones.items():
        maker.add_table((j,), target, (noise / deviations[j]) ** 2)
    for members, cells in noisy.items():
        mean = np.ones(())
        for j in members:
            mean = np.multiply.outer(mean, ones[j])
        target = shrunk(cells.ravel(), mean.ravel(), np.full(cells.size, noise), rng)
        maker.add_table(members, target.reshape(cells.shape), 1.0)
    return maker.targets()


def _fitted(
    domain: Domain,
    ones: Mapping[int, Cells],
    deviations: Mapping[int, float],
    noisy: Mapping[Set, Cells],
    noise: float,
    pace: Pace,
    rng: np.random.Generator,
    progress: Progress,
) -> Records:
    targets = _targets(domain, ones, deviations, noisy, noise, rng)
    start = product_start(domain, ones, pace, rng)
    transcript = play_residual(targets, ones, start, pace.temperatures(noise), rng, progress)
    return Records.from_rows(domain, pace.released(transcript))


def _noisy_again(
    released: Records, noisy: Mapping[Set, Cells], noise: float, rng: np.random.Generator
) -> dict[Set, Cells]:
    """The chosen tables as they might have come out, had the released rows been the table."""
    tables = Tables(released.domain, tuple(noisy))
    fractions = true_counts(tables, released) / released.rows
    return {
        members: (fractions[first:last] + rng.normal(0.0, noise, last - first)).reshape(noisy[members].shape)
        for members, first, last in zip(noisy, tables.starts[:-1], tables.starts[1:], strict=True)
    }


ADAPTIVE_PROJECTION = Mechanism(
    name="adaptive-projection",
    words="chooses the tables on which its rows are most wrong, one a round, measures them and fits the rows again",
    accepts=frozenset({"synthetic_rows", "rounds"}),
    plan=plan,
    run=run,
)
