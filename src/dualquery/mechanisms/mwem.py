"""MWEM: the data player learns, the query player best-responds (Hardt, Ligett, McSherry 2012).

Each round the exponential mechanism finds a query (or a whole table) that the distribution gets wrong, it is
measured with noise, and multiplicative weights take the measurement in. Figure 1 is `--iterate average
--updates once`; the defaults are the paper's own improvements, the last iterate and repeated updates. Pure ε
pays with Laplace noise, ρ with Gaussian noise and bounded range, by the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import prod

import numpy as np

from dualquery.distributions.factored import Evaluation, Factored
from dualquery.distributions.histogram import MOST_CELLS, check_cells
from dualquery.distributions.products import Products
from dualquery.errors import DualQueryError, QueryError
from dualquery.game.histogram_players import BestResponseQueryPlayer, BestResponseTablePlayer, Prices
from dualquery.game.learner import ONCE, LearningDataPlayer, Schedule, Step, nearest_probabilities
from dualquery.game.play import play
from dualquery.mechanisms.measured import Measured, fewest_cells, measured_workload, small_tables, usual
from dualquery.mechanisms.outcomes import Average, Iterate, choice, released, synthetic_rows
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator, Laplace
from dualquery.privacy.query_selection import ChoosingCurator, Price, Sensitivity, equal_prices
from dualquery.queries.query import Tables
from dualquery.queries.workload import Workload

PASSES = 10  # over all measurements a round; they often agree before that
SELECTION_SHARE = Fraction(3, 5)  # of a round's budget, where parities are measured
START_SHARE = Fraction(1, 4)  # of the budget, for a noisy start
EXPLICIT_CELLS = 1 << 22  # up to here parts may grow to the whole universe
PART_CELLS = 1 << 18  # else
PART_CELLS_FOR_TABLES = 1 << 22  # of which fewer are measured


class Updates(Enum):
    """How often a measurement is heard."""

    REPEATED = "repeated"
    ONCE = "once"


class Start(Enum):
    """Where the distribution begins."""

    UNIFORM = "uniform"
    NOISY = "noisy"


@dataclass(frozen=True)
class Settings:
    """Every choice of a run, from public quantities alone."""

    rounds: int
    iterate: Iterate
    updates: Updates
    start: Start
    measured: Measured
    part_cells: int
    synthetic_rows: int
    workload: Workload  # what is measured
    prices: Prices  # of each selection and each measurement
    start_price: Price | None
    noise: float  # expected absolute noise of one measured number, in records

    @staticmethod
    def of(shape: Shape, options: Options) -> Settings:
        measured = choice(Measured, options.measured, usual(shape.workload), "--measured")
        start = choice(Start, options.start, Start.UNIFORM, "--start")
        workload = measured_workload(shape.workload, measured)
        universe = prod(shape.domain.sizes.tolist())
        part_cells = _part_cells(options, universe, workload, measured)
        if start is Start.NOISY and universe > part_cells:
            raise QueryError(
                f"a noisy start counts every one of {universe:,} cells, more than a part may have; "
                "start uniform, or allow larger parts"
            )
        share = 1 - START_SHARE if start is Start.NOISY else Fraction(1)
        rounds = options.rounds
        if rounds is None:
            rounds = automatic_rounds(shape)
            if measured is Measured.TABLES:  # a table teaches more than a query, and again little
                rounds = _rounds_for_tables(shape, workload, max(1, rounds // 3), share)
        if rounds < 1:
            raise DualQueryError(f"mwem plays at least one round, and --rounds is {rounds}")
        updates = choice(Updates, options.updates, Updates.REPEATED, "--updates")
        prices = prices_of(shape, rounds, share, measured, updates)
        noise = noise_of(prices.measurement, shape, measured)
        if measured is Measured.TABLES:
            workload = small_tables(workload, 2 * shape.rows / noise)
        return Settings(
            rounds=rounds,
            iterate=choice(Iterate, options.iterate, Iterate.LAST, "--iterate"),
            updates=updates,
            start=start,
            measured=measured,
            part_cells=part_cells,
            synthetic_rows=synthetic_rows(shape, options),
            workload=workload,
            prices=prices,
            start_price=equal_prices(shape.budget, 1, START_SHARE) if start is Start.NOISY else None,
            noise=noise,
        )


def automatic_rounds(shape: Shape) -> int:
    """T = log₂|X| · (n ε)^⅓ / 10, at most n ε / 20, and twice that where ρ pays.

    Public, and near the best T in experiments. The cap keeps the noise of a measurement, T/ε records where
    one is added or removed, below a twentieth of the table.
    """
    records = shape.rows * shape.budget.epsilon
    rounds = min(shape.domain.log2_size * records ** (1 / 3) / 10, records / 20)
    return max(1, round(2 * rounds if shape.budget.accounting is Accounting.ZCDP else rounds))


def prices_of(shape: Shape, rounds: int, share: Fraction, measured: Measured, updates: Updates) -> Prices:
    """A round's budget: half and half as in the paper, or three to two where parities are measured.

    Most parities of a table are nearly right from the start, so that more is lost by choosing one of
    these than by a noisier measurement; of ranges and tables nearly every one is worth measuring.
    """
    sparse = measured in (Measured.PARITIES, Measured.QUERIES_AND_PARITIES) and updates is Updates.REPEATED
    selection = SELECTION_SHARE if sparse else Fraction(1, 2)
    return Prices(
        equal_prices(shape.budget, rounds, share * selection),
        equal_prices(shape.budget, rounds, share * (1 - selection)),
    )


def mwem(
    curator: ChoosingCurator,
    distribution: Factored,
    settings: Settings,
    *,
    public_rows: int,
    watch: Progress,
) -> Factored:
    """The game itself: one selection and one measurement a round, then what the learner makes of them."""
    hypothesis = Evaluation(Products.of(settings.workload), distribution)
    query_player: BestResponseQueryPlayer | BestResponseTablePlayer
    if settings.measured is Measured.TABLES:
        (tables,) = settings.workload.groups
        assert isinstance(tables, Tables)
        query_player = BestResponseTablePlayer(
            curator,
            tables,
            hypothesis,
            prices=settings.prices,
            public_rows=public_rows,
            noise_per_cell=settings.noise,
        )
    else:
        query_player = BestResponseQueryPlayer(
            curator, hypothesis, prices=settings.prices, public_rows=public_rows
        )
    agreed = settings.noise / public_rows
    schedule = ONCE if settings.updates is Updates.ONCE else Schedule(Step.FULL, PASSES, agreed)
    data_player = LearningDataPlayer(distribution, schedule=schedule, floor=0.5 / public_rows)
    play(query_player, data_player, rounds=settings.rounds, progress=lambda t, n: watch("playing", t, n))
    return distribution


def _run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    settings = Settings.of(shape, _options_of(plan))
    distribution = Factored(shape.domain, part_cells=settings.part_cells)
    if settings.start_price is not None:
        start_noisily(distribution, curator, settings.start_price, shape.rows)
    choosing = ChoosingCurator.of(curator, settings.workload)
    average = None
    if settings.iterate is Iterate.AVERAGE:
        average = Average(distribution, shape.workload, settings.rounds, settings.synthetic_rows, rng)

    def watch(stage: str, done: int, total: int) -> None:
        if average is not None:
            average.hear()
        progress(stage, done, total)

    mwem(choosing, distribution, settings, public_rows=shape.rows, watch=watch)
    if average is not None:
        return average.outcome()
    return released(distribution, shape.workload, settings.synthetic_rows, rng)


def start_noisily(distribution: Factored, curator: Curator, price: Price, rows: int) -> None:
    """A₀: half uniform, half a noisy count of every cell (section 2.3.2), so that no record is excluded."""
    everything = tuple(range(distribution.domain.width))
    noise = price.noise(Sensitivity.of_table(curator.neighbours))
    noisy = curator.measure(Tables(distribution.domain, (everything,)), noise=noise) / rows
    start = 0.5 * nearest_probabilities(noisy) + 0.5 / len(noisy)
    factors = len(noisy) * start.reshape(distribution.domain.sizes)
    distribution.multiply(everything, factors, mass=float(factors.mean()))


def _plan(shape: Shape, options: Options) -> Plan:
    settings = Settings.of(shape, options)
    universe = prod(shape.domain.sizes.tolist())
    part = min(universe, settings.part_cells)
    noise = settings.noise / shape.rows
    searched = (
        math.log(2 * settings.workload.size) / float(settings.prices.selection.selection_range()) / shape.rows
    )
    passes = PASSES if settings.updates is Updates.REPEATED else 1
    notes = []
    if universe > part:
        notes.append(
            f"the universe has 2^{shape.domain.log2_size:.0f} cells: the distribution is kept in parts of at "
            f"most {part:,}, and a query that would need a larger one is not measured"
        )
    chosen = "as asked" if options.rounds is not None else "from log2|X| and n epsilon"
    return Plan(
        mechanism="mwem",
        reason=f"{settings.rounds} rounds {chosen}, measuring {settings.measured.value}",
        parameters={
            "rounds": settings.rounds,
            "iterate": settings.iterate.value,
            "updates": settings.updates.value,
            "start": settings.start.value,
            "measured": settings.measured.value,
            "part_cells": settings.part_cells,
            "synthetic_rows": settings.synthetic_rows,
            "noise": settings.noise,
        },
        mean_error=min(0.5, noise + 0.05 / math.sqrt(settings.rounds)),
        max_error=min(1.0, 3 * noise + searched + 0.3 / math.sqrt(settings.rounds)),
        seconds=2.0
        + settings.rounds**2 * passes * part * 1e-9
        + settings.rounds * settings.workload.size * 2e-8,
        bytes=24 * part + 64 * settings.workload.size,
        notes=tuple(notes),
    )


def _options_of(plan: Plan) -> Options:
    given = {name: value for name, value in plan.parameters.items() if name != "noise"}
    return Options(**given)  # type: ignore[arg-type]


def _part_cells(options: Options, universe: int, workload: Workload, measured: Measured) -> int:
    """How large a part may become; never so small that no query could be measured."""
    if options.part_cells is not None:
        check_cells(min(options.part_cells, universe))
        limit = options.part_cells
    else:
        usually = PART_CELLS_FOR_TABLES if measured is Measured.TABLES else PART_CELLS
        limit = universe if universe <= EXPLICIT_CELLS else usually
        if options.memory is not None:
            limit = min(universe, MOST_CELLS, options.memory // 24)  # weights, a copy when merged, survival
    smallest = fewest_cells(workload)
    if options.part_cells is None and options.memory is None and smallest > limit:
        check_cells(smallest)
        limit = smallest
    if smallest > limit:
        raise QueryError(
            f"a part may have {limit:,} cells, and the smallest query of the workload needs {smallest:,}; "
            "allow larger parts, or ask about fewer attributes at a time"
        )
    return limit


def _rounds_for_tables(shape: Shape, workload: Workload, rounds: int, share: Fraction) -> int:
    """At most as many rounds as there are tables worth measuring at the noise of so many rounds."""
    while rounds > 1:
        noise = noise_of(equal_prices(shape.budget, 2 * rounds, share), shape, Measured.TABLES)
        (tables,) = small_tables(workload, 2 * shape.rows / noise).groups
        assert isinstance(tables, Tables)
        if rounds <= len(tables.sets):
            break
        rounds -= 1
    return rounds


def noise_of(price: Price, shape: Shape, measured: Measured) -> float:
    """E|noise| of one measured count: b, or √(2/π) σ; a query's count is half of a measured difference."""
    neighbours = shape.budget.neighbours
    whole = measured is Measured.TABLES
    noise = price.noise(Sensitivity.of_table(neighbours) if whole else Sensitivity.of_query(neighbours))
    size = float(noise.scale) if isinstance(noise, Laplace) else math.sqrt(2 / math.pi * noise.variance)
    return size if whole else size / 2


MWEM = Mechanism(
    name="mwem",
    words="multiplicative weights over records, corrected by the worst-answered queries (Hardt et al. 2012)",
    accepts=frozenset(
        {"rounds", "iterate", "updates", "start", "measured", "part_cells", "memory", "synthetic_rows"}
    ),
    plan=_plan,
    run=_run,
)
