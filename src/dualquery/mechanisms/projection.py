"""Projection by best responses: measure once, then let rows answer the residual one after another.

The query player asks the curator a single question, all planned tables with Gaussian noise, and from then on
plays the public residual; the data player best-responds row by row (`game.row_players`). Everything after the
measurement is post-processing. The projection mechanism is of Nikolov, Talwar and Zhang (2013) and Dwork,
Nikolov and Talwar (2014); playing it row by row gives the synthetic data as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.game.moves import Transcript
from dualquery.game.play import play
from dualquery.game.row_players import (
    Chains,
    Residual,
    ResidualQueryPlayer,
    RowDataPlayer,
    Targets,
    TargetsMaker,
)
from dualquery.mechanisms import item_projection
from dualquery.mechanisms.error_bars import predicted_error
from dualquery.mechanisms.item_projection import is_transactions, plan_items
from dualquery.mechanisms.measurement import available_rho, plan_tables
from dualquery.mechanisms.pace import Pace
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.mechanisms.shrinkage import shrunk
from dualquery.mechanisms.table_measurement import Cells, Measured, Set, fractions_of_ones, measure, rehearsed
from dualquery.privacy.curator import Curator
from dualquery.table.domain import Domain
from dualquery.table.records import Records, smallest_type

MOST_ITEMS_AS_TABLES = 200  # a block of more items is measured by items and pairs
MEAN_ERROR = 0.45  # of a random conjunction, in units of the noise of a cell (benchmarks/projection.py)
MAX_ERROR = 8.0
COUNT_SECONDS = 2e-9  # per record and table, two cores


def targets_of(
    measured: Measured, ones: Mapping[int, Cells], rng: np.random.Generator
) -> tuple[Targets, float]:
    """What the rows should answer, and the noise of a cell (τ) that weights and temperature are relative to.

    Pairs are shrunk around independence, all of them together; weights are inverse variances.
    """
    sizes = measured.domain.sizes.astype(np.int64)
    pairs: list[Set] = [members for members in measured.interactions if len(members) == 2]
    base: list[Set] = pairs or [(j,) for j in ones]
    noise = 1 / math.sqrt(float(np.mean([measured.deviation(members) ** -2 for members in base])))
    maker = TargetsMaker(sizes)
    for j, target in ones.items():
        maker.add_table((j,), target, (noise / measured.deviation((j,))) ** 2)
    for members, target in _shrunk_pairs(measured, pairs, ones, rng).items():
        maker.add_table(members, target, (noise / measured.deviation(members)) ** 2)
    for members, cells in measured.interactions.items():
        if len(members) > 2:
            deviation = math.sqrt(measured.variance[members]) / measured.total
            maker.add_interaction(members, cells / measured.total, (noise / deviation) ** 2)
    return maker.targets(), noise


def _shrunk_pairs(
    measured: Measured, pairs: list[Set], ones: Mapping[int, Cells], rng: np.random.Generator
) -> dict[Set, Cells]:
    if not pairs:
        return {}
    tables = [measured.table(members) for members in pairs]
    noisy = np.concatenate([table.ravel() for table in tables])
    mean = np.concatenate([np.outer(ones[i], ones[j]).ravel() for i, j in pairs])
    deviations = [measured.deviation(members) for members in pairs]
    deviation = np.repeat(deviations, [table.size for table in tables])
    ends = np.cumsum([table.size for table in tables])[:-1]
    parts = np.split(shrunk(noisy, mean, deviation, rng), ends)
    return {
        members: part.reshape(table.shape) for members, part, table in zip(pairs, parts, tables, strict=True)
    }


def product_start(domain: Domain, ones: Mapping[int, Cells], pace: Pace, rng: np.random.Generator) -> Chains:
    """Rows whose attributes are independent; an attribute that was not measured is uniform."""
    kind = smallest_type(int(domain.sizes.max()))
    out = np.empty((pace.chains, pace.chain_rows, domain.width), kind)
    for j in range(domain.width):
        size = int(domain.sizes[j])
        if j in ones:
            edges = np.cumsum(ones[j])
            place = rng.random(out.shape[:2]) * edges[-1]
            out[:, :, j] = np.minimum(np.searchsorted(edges, place, side="right"), size - 1)
        else:
            out[:, :, j] = rng.integers(0, size, out.shape[:2])
    return out


def fit(
    measured: Measured, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Fit rows to a measurement."""
    ones = fractions_of_ones(measured)
    targets, noise = targets_of(measured, ones, rng)
    start = product_start(measured.domain, ones, pace, rng)
    return play_residual(targets, ones, start, pace.temperatures(noise), rng, progress)


def play_residual(
    targets: Targets,
    ones: Mapping[int, Cells],
    start: Chains,
    temperatures: Sequence[float],
    rng: np.random.Generator,
    progress: Progress,
) -> Transcript[Residual, Chains]:
    """Play the residual of some targets against chains of rows, one round a temperature."""
    query_player = ResidualQueryPlayer(temperatures)
    data_player = RowDataPlayer(targets, ones, start, rng)
    return play(
        query_player,
        data_player,
        rounds=len(temperatures),
        progress=lambda done, total: progress("fitting rows", done, total),
    )


def plan(shape: Shape, options: Options) -> Plan:
    """Tables where the workload asks about few sets of attributes, items and their pairs for transactions."""
    pace = Pace.of(options.synthetic_rows)
    if is_transactions(shape.domain) and shape.domain.width > MOST_ITEMS_AS_TABLES:
        return _plan_for_items(shape, options, pace)
    if options.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    planned = plan_tables(shape)
    sizes = shape.domain.sizes
    need = pace.bytes(shape.domain.width, planned.cells(sizes))
    if options.memory is not None and need > options.memory:
        largest = max(planned.interactions.sets, key=lambda s: math.prod(int(sizes[j]) for j in s))
        names = " × ".join(shape.domain.name(j) for j in largest)
        raise DualQueryError(
            f"the tables of this workload need {need / 1e6:,.0f} MB, more than --memory allows (the largest is "
            f"{names}); ask about fewer attributes at once, or allow more"
        )
    noise = planned.cell_noise(shape)
    counts = ", ".join(
        f"{count:,} of order {order}" for order, count in enumerate(planned.orders, 1) if count
    )
    return Plan(
        mechanism="projection",
        reason=(
            f"the workload falls into tables of few attributes, so their interactions are measured once ({counts}) "
            "and rows are fitted to them"
        ),
        parameters={
            "measured": "tables",
            "sets": len(planned.interactions.sets),
            "cell_noise": noise,
            **pace.parameters(),
        },
        mean_error=min(MEAN_ERROR * noise, 0.5),
        max_error=min(MAX_ERROR * noise, 1.0),
        seconds=pace.seconds(planned.visits(sizes))
        + shape.rows * len(planned.interactions.sets) * COUNT_SECONDS,
        bytes=need,
        notes=_warning(noise),
    )


def _plan_for_items(shape: Shape, options: Options, pace: Pace) -> Plan:
    planned = plan_items(shape, options.items_per_record)
    noise = math.sqrt(planned.pairs) / shape.rows
    per_query = math.sqrt(shape.workload.size / (2 * available_rho(shape))) / shape.rows
    return Plan(
        mechanism="projection",
        reason=(
            f"the workload asks about very many sets of items, so all items and the pairs of the {planned.fitted} "
            f"that matter most are counted, at most {planned.limit.limit} items a record (noise {noise:.2g}; one "
            f"by one the queries would have {per_query:.2g}), and rows are fitted to them"
        ),
        parameters={
            "measured": "items and pairs",
            "items_per_record": planned.limit.limit,
            "fitted_items": planned.fitted,
            "pair_noise": noise,
            **pace.parameters(),
        },
        mean_error=min(noise, 0.5),
        max_error=min(15 * noise, 1.0),
        seconds=pace.seconds(planned.fitted / 2) + shape.rows * 2e-6 + shape.domain.width * 1e-4,
        bytes=pace.bytes(planned.fitted, 2 * planned.fitted**2) + 400 * shape.rows,
        notes=_warning(noise),
    )


def _warning(noise: float) -> tuple[str, ...]:
    if noise < 0.1:
        return ()
    return (
        f"the budget is so small that the noise of a cell is {noise:.0%} of the table; expect little of the answers",
    )


def run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Measure as planned, fit, release; then rehearse on the released rows for the error bars."""
    pace = Pace.of(int(plan.parameters["rows"]))
    rehearsal_pace = Pace.of(max(1, pace.rows // 6))
    if plan.parameters["measured"] == "tables":
        measured = measure(curator, plan_tables(shape), shape)
        released = Records.from_rows(shape.domain, pace.released(fit(measured, pace, rng, progress)))
        second = fit(
            rehearsed(released, measured, rng), rehearsal_pace, rng, quiet_as("rehearsing", progress)
        )
        again = Records.from_rows(shape.domain, rehearsal_pace.released(second))
    else:
        planned = plan_items(
            shape, int(plan.parameters["items_per_record"]), int(plan.parameters["fitted_items"])
        )
        items = item_projection.measure(curator, planned, shape, rng)
        rows = pace.released(item_projection.fit(items, pace, rng, progress))
        released = item_projection.to_records(shape.domain, rows, items, rng)
        other = item_projection.rehearsed(rows, items, rng)
        rows = rehearsal_pace.released(
            item_projection.fit(other, rehearsal_pace, rng, quiet_as("rehearsing", progress))
        )
        again = item_projection.to_records(shape.domain, rows, other, rng)
    return Outcome(records=released, error_bars=predicted_error(shape.workload, released, again, rng))


def quiet_as(stage: str, progress: Progress) -> Progress:
    """The same progress under another name."""
    return lambda _stage, done, total: progress(stage, done, total)


PROJECTION = Mechanism(
    name="projection",
    words="measures the tables of the workload once and lets rows answer the residual, one after another",
    accepts=frozenset({"synthetic_rows", "memory", "items_per_record"}),
    plan=plan,
    run=run,
)
