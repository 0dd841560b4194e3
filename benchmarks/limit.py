"""Where the error of pairs comes from: each step from noise to rows, and what it would be, were something known.

    python -m benchmarks.limit [--epsilons 0.1 1 10] [--seeds 0 1 2 3 4]

Adult, all 2-way tables, add-remove, δ = 10⁻⁶, as the default of `release` measures and fits them, without a check and
without means inside bins. L1 is the mean over all pairs, worst the largest. First the steps: tables as they were
measured, the nearest distributions, what shrinking makes of them, and rows. Then rows again, with one thing true that
has to be learned, or with more of what costs time. Last what nobody can pass who measures with this noise: the
population known, and only that sample of it which the table is unknown (one-way tables known too),

    Σ_c .8 √(v σ²/(v + σ²)),    v = P_c/n, σ² the variance of the noise in the cell.

A pair that was not measured counts as independent in the first three.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from benchmarks.harness import Figure, records_of, show
from dualquery.counting import MemoryCounter
from dualquery.fitting.fit import (
    LEANING,
    MORE_LIKELY,
    PairsToTargets,
    PairTargets,
    fit_and_mend,
    leaning_to_tree,
    product_start,
)
from dualquery.fitting.fitter import Effort, Targets
from dualquery.fitting.measured import HALF_NORMAL, MeasuredTables, onto_simplex
from dualquery.fitting.posteriors import (
    SeparablePrior,
    cell_deviation,
    denoised,
    separable_prior,
    tree_lean,
    tree_of,
)
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.tables import Tables, centred
from dualquery.randomness import SeededEntropy
from dualquery.table.records import Records
from dualquery.types import Cells, Set

EXACT = 0.01  # of the variance: noise that is next to none; with less of it rows would hardly move
TRUE_STEPS = 60  # of expectation and maximisation, where there is no noise to follow
MANY = 4  # times as many rows
Truth = Mapping[Set, Cells]


def true_tables(records: Records) -> dict[Set, Cells]:
    """One-way tables and pairs, as fractions."""
    width = records.domain.width
    sets = [(j,) for j in range(width)] + list(combinations(range(width), 2))
    return tables_in(records, tuple(sets))


def tables_in(records: Records, sets: tuple[Set, ...]) -> dict[Set, Cells]:
    tables = Tables(records.domain, sets)
    fractions = tables.counts(records) / records.rows
    return {s: fractions[tables.cells_of(t)].reshape(tables.shape_of(t)) for t, s in enumerate(sets)}


def measured_tables(records: Records, epsilon: float, seed: int) -> MeasuredTables:
    """As the default measures them."""
    budget = Budget(epsilon, 1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    task = Task(marginals(records.domain, 2), records.rows, budget)
    plan = PROJECTION.plan_for(task, {})
    curator = Curator(MemoryCounter(records), Ledger(budget), SeededEntropy(seed))
    found = plan.parameters.measure(curator, task, np.random.default_rng(seed)).tables
    assert isinstance(found, MeasuredTables)
    return found


def rows_of(
    wanted: PairTargets,
    truth: Truth,
    seed: int,
    more: int = 1,
    targets: Callable[[PairTargets], PairsToTargets] = leaning_to_tree,
) -> dict[Set, Cells]:
    """The pairs in rows that are fitted as `fit` does it."""
    rng, effort = np.random.default_rng(seed), Effort.of(None)
    effort = replace(effort, chain_rows=more * effort.chain_rows, rows=more * effort.rows)
    domain = wanted.measured.domain
    start = product_start(domain, wanted.ones, effort, rng)
    passes = fit_and_mend(wanted, targets(wanted), start, effort, LEANING, rng, lambda: None, None)
    return tables_in(
        Records.from_rows(domain, effort.released(passes)), tuple(s for s in truth if len(s) == 2)
    )


def with_true_ones(measured: MeasuredTables, truth: Truth) -> MeasuredTables:
    ones = {s: measured.total * (truth[s] - 1 / truth[s].size) for s in measured.of_order(1)}
    variance = {s: v * (EXACT if len(s) == 1 else 1.0) for s, v in measured.variance.items()}
    return replace(measured, interactions={**measured.interactions, **ones}, variance=variance)


def targets_of(measured: MeasuredTables, seed: int) -> PairTargets:
    """Likely tables alone where not all pairs are measured, as the mechanism has it."""
    width, pairs = measured.domain.width, len(measured.of_order(2))
    part = MORE_LIKELY if 2 * pairs == width * (width - 1) else 1.0
    return PairTargets.of(measured, np.random.default_rng(seed), part)


def with_true_covariances(measured: MeasuredTables, truth: Truth) -> PairTargets:
    """Shrunk by covariances of attributes and strengths of pairs that were learned from the true tables."""
    wanted = targets_of(measured, 0)
    pairs = measured.of_order(2)
    noise = {s: EXACT * measured.variance[s] / measured.total**2 for s in pairs}
    ones = {s[0]: cells for s, cells in truth.items() if len(s) == 1}
    learned = SeparablePrior({s: centred(truth[s]) for s in pairs}, noise, ones, TRUE_STEPS)
    seen = separable_prior(measured, wanted.ones)
    assert learned._pairs == seen._pairs
    known = copy.copy(learned)
    known._seen, known._noise = seen._seen, seen._noise
    likely = {
        (i, j): np.maximum(np.outer(wanted.ones[i], wanted.ones[j]) + each.deviation, 0.0)
        for (i, j), each in known.posteriors().items()
    }
    return replace(wanted, likely=likely)


def to_true_tree(truth: Truth) -> Callable[[PairTargets], PairsToTargets]:
    """Rows lean to the tree of the true table, with its true pairs."""
    ones = {s[0]: cells for s, cells in truth.items() if len(s) == 1}
    tree = tree_of({s: cells for s, cells in truth.items() if len(s) == 2}, ones)

    def made(wanted: PairTargets) -> PairsToTargets:
        def targets(pairs: Mapping[Set, Cells]) -> Targets:
            found = wanted.targets(pairs)
            for i, j in tree:
                lean = tree_lean(truth[i, j], ones[i], ones[j], wanted.noise)
                found.add_lean((i, j), lean, wanted.heat(LEANING))
            return found

        return targets

    return made


def unknown_sample(measured: MeasuredTables, truth: Truth, rows: int) -> dict[Set, float]:
    """The error of each pair where the population is known."""
    errors = {}
    for members, cells in truth.items():
        if len(members) == 2:
            sample, known = cells / rows, members in measured.variance
            noise = cell_deviation(measured, members) ** 2 if known else np.inf
            part = noise / (sample + noise) if known else 1.0
            errors[members] = float((HALF_NORMAL * np.sqrt(sample * part)).sum())
    return errors


def steps(
    records: Records, truth: Truth, epsilon: float, seed: int
) -> Iterator[tuple[str, dict[Set, float]]]:
    """Name and error of each pair."""
    pairs = tuple(s for s in truth if len(s) == 2)

    def errors(found: Mapping[Set, Cells]) -> dict[Set, float]:
        return {s: float(np.abs(found[s] - truth[s]).sum()) for s in pairs}

    raw = measured_tables(records, epsilon, seed)
    measured = denoised(raw)
    wanted = targets_of(measured, seed)
    product = {(i, j): np.outer(wanted.ones[i], wanted.ones[j]) for i, j in pairs}
    noisy = {s: raw.table(s) for s in raw.of_order(2)}
    nearest = {s: onto_simplex(cells.ravel(), 1.0).reshape(cells.shape) for s, cells in noisy.items()}
    yield "pairs as they were measured", errors({**product, **noisy})
    yield "the nearest distributions", errors({**product, **nearest})
    yield "as they are likely to be", errors({**product, **wanted.likely})
    yield "rows", errors(rows_of(wanted, truth, seed))
    exact = targets_of(with_true_ones(measured, truth), seed)
    yield "rows, one-way tables known", errors(rows_of(exact, truth, seed))
    yield "rows, covariances known", errors(rows_of(with_true_covariances(measured, truth), truth, seed))
    yield "rows, the tree known", errors(rows_of(wanted, truth, seed, targets=to_true_tree(truth)))
    yield f"rows, {MANY} times as many", errors(rows_of(wanted, truth, seed, MANY))
    yield "the population and one-way tables known", unknown_sample(measured, truth, records.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    records = records_of("adult")
    truth = true_tables(records)
    for epsilon in options.epsilons:
        runs: dict[str, list[dict[Set, float]]] = {}
        for seed in options.seeds:
            for name, found in steps(records, truth, epsilon, seed):
                runs.setdefault(name, []).append(found)
        figures = []
        for name, each in runs.items():
            figures.append(Figure.mean(f"{name}, L1", [float(np.mean(list(run.values()))) for run in each]))
            figures.append(Figure.mean(f"{name}, worst", [max(run.values()) for run in each]))
        show(f"Adult, all 2-way tables, ε = {epsilon:g}", figures)


if __name__ == "__main__":
    main()
