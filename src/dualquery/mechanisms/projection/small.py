"""Small tables and many columns: one-way tables first, then the pairs that matter, if any do.

To measure all pairs is wrong where records are few for the number of pairs: noise then hides what independence
would have told. Here one-way tables are measured first, then the *misfit* of every pair, its distance from the
product of the one-way tables, which costs little because a record moves it by one. What follows is chosen from these
public numbers: how many pairs K would gain most, and by a gate whether that is more than they cost; then the rest of
the budget goes to the K pairs of largest misfit, or back to the one-way tables. Sizes of all three measurements are
fixed before the first. The same way is gone wherever all pairs together would be little but noise.
docs/how_it_works.md, "Small tables", has the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fit import fit, product_start
from dualquery.fitting.fitter import COUNT_SECONDS, Effort, Fitting, Rows
from dualquery.fitting.measured import HALF_NORMAL, Measured, MeasuredTables, Numbers
from dualquery.fitting.posteriors import denoised
from dualquery.fitting.prior import Dependence
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.shrink import points, posterior
from dualquery.mechanisms.floors import MISFITS
from dualquery.mechanisms.means import Means, NumberPairs, means_for, products_for
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.predicted import predicted_errors
from dualquery.mechanisms.projection.tables import of_tables
from dualquery.mechanisms.shares import (
    ONES_OF_FAINT,
    SHARE_OF_ONES,
    FitCost,
    Stage,
    built,
    cost_of_fit,
    known_at_first,
    quarter_powers,
    relative_sensitivity,
    room_of,
    spared,
    stages_of,
    unit_variance,
    variance_informed,
    varied_sets,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.derived import Misfits, Multiplied, misfit_bound
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain
from dualquery.types import Cells, Done, Set

SHARE_OF_MISFITS = 0.07
SHARE_OF_TEST = 0.05  # for all pairs, where a prior says how they depend
MOST_CHOSEN = 0.7  # of the pairs: where more would be chosen, all are measured (docs/how_it_works.md)
MOST_CHOSEN_BESIDE = 0.4  # where larger sets are asked for as well
MANY_COLUMNS = 40  # where the share of the one-way tables falls more steeply with the number of records
LEAST_OF_MISFITS = 0.02  # where single ones would drown all the same; their mean is still told
DROWNED = 0.3  # noise of a misfit, as a fraction of the records
MOST_OF_ONES = 0.80
FAINT = 0.25  # the error of a pair's table that noise would bring, were all of them measured, in L1
TOTAL_OF_ONES = 0.05  # of the share of the one-way tables, for the number of records where that is private
CAUTION = 0.5  # deviations by which the number of records is taken lower than measured: too many would leave records
# in empty cells, while too few are mended where tables are made distributions
PENALTY = 0.4  # for the noise that measuring a pair brings
HALF_LOST = 1.3  # squared misfit, in squared noise, of which a measurement takes away half
PAIR_OF_ONES = 1.6  # the error of a product of two tables, in errors of one
FEW_FAR, FARTHEST = 0.1, 1.2  # misfits that may be anything, up to so many records each
LEAST_MISFIT, MOST_MISFIT = 0.03, 0.3  # mean of the others, in records
LEVELS = 400  # that a misfit may have
MEAN_ERROR, MAX_ERROR = 0.35, 6.5  # as in `shares`, in a one-way cell's noise (benchmarks/small_tables.py)


@dataclass(frozen=True)
class PairRule:
    """How many pairs to choose, and the share of the one-way tables: from public quantities alone."""

    ones: list[Set]
    pairs: list[Set]
    precision: float  # r: records over the noise of a one-way count, by the freedom of a pair
    number: float  # K, before it is made a whole number
    larger: bool  # whether sets of three and more are asked for
    unclear: float  # the noise of a misfit, as a fraction of the records
    drowned: float  # the error of a pair's table by noise alone, were all measured, in L1

    @staticmethod
    def of(task: Task) -> PairRule:
        """r = n/√(v d) · 115/q, K = d (r/100)^¾, with q the mean over pairs of (k_i − 1)(k_j − 1)."""
        sizes, orders = task.domain.sizes, varied_sets(task)
        ones, pairs, larger = orders.get(1, []), orders.get(2, []), max(orders, default=1) > 2
        if not pairs:
            return PairRule(ones, pairs, math.inf, math.inf, larger, 0.0, 0.0)
        freedom = float(np.mean([(int(sizes[i]) - 1) * (int(sizes[j]) - 1) for i, j in pairs]))
        neighbours, unit = task.budget.neighbours, unit_variance(task.budget)
        noise = math.sqrt(unit * neighbours.largest_squared(alone=1, apart=2) * len(ones))
        precision = task.rows / noise * 115 / freedom
        moved = neighbours.largest_squared(alone=len(pairs), apart=4 * len(pairs))
        unclear = math.sqrt(unit * moved / SHARE_OF_MISFITS) / task.rows
        number = len(ones) * (precision / 100) ** 0.75
        return PairRule(ones, pairs, precision, number, larger, unclear, _drowned(task, pairs, unit))

    @property
    def few(self) -> bool:
        """Whether some pairs are better than all, whatever the noise."""
        most = MOST_CHOSEN_BESIDE if self.larger else MOST_CHOSEN
        return self.number < most * len(self.pairs)

    @property
    def applies(self) -> bool:
        return self.few or self.drowned > FAINT

    @property
    def chosen(self) -> int:
        """A number of pairs that is likely to be chosen."""
        return min(len(self.pairs), max(1, round(self.number)))

    def shares(self) -> tuple[float, float]:
        """Of one-way tables, and of misfits.

        Fewer records, more for the one-way tables: 1/(1 + r/400), within bounds; steeper for many columns.
        """
        wide = len(self.ones) >= MANY_COLUMNS
        ones = 1 / (1 + (self.precision / 400) ** (1.5 if wide else 1.0))
        misfits = LEAST_OF_MISFITS if self.unclear > DROWNED else SHARE_OF_MISFITS
        least = ONES_OF_FAINT if self.drowned > FAINT else SHARE_OF_ONES
        return min(MOST_OF_ONES, max(least, ones)), misfits


def _drowned(task: Task, pairs: list[Set], unit: float) -> float:
    """mean_S .8 √(v f_S k_S)/n: the noise in k_S cells of which f_S are free, v = unit · Σ c_S/.8 each."""
    cells = np.array([math.prod(task.domain.sizes[list(members)].tolist()) for members in pairs], np.float64)
    moved = sum(relative_sensitivity(members, task.domain, task.budget.neighbours) for members in pairs)
    noise = np.sqrt(unit * moved / (1 - SHARE_OF_ONES) * free_cells(pairs, task.domain) * cells)
    return HALF_NORMAL * float(noise.mean()) / task.rows


def free_cells(pairs: Sequence[Set], domain: Domain) -> Cells:
    """How many cells of each table do not follow from its one-way tables."""
    return np.array([math.prod((domain.sizes[list(s)] - 1).tolist()) for s in pairs], np.float64)


@dataclass(frozen=True, kw_only=True)
class ByChosenPairs:
    """One-way tables, then the pairs that matter most."""

    measured: str = "one-way tables, then chosen pairs"
    pairs: int
    cell_noise: float
    effort: Effort
    ones: Mapping[Set, float] = hidden()  # shares of the first stage
    candidates: Tables = hidden()
    # one-way tables, misfits, the rest; all pairs where a prior is tested; products; means inside bins
    stages: tuple[Stage, ...] = hidden()
    means: Means | None = hidden()
    products: NumberPairs | None = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        """All stages are paid for at once; what the third one measures is chosen after the first two."""
        first, second, last, *more = self.stages
        paid = curator.allow(*(stage.event for stage in self.stages))
        what = first.chosen(self.ones, task.domain, task.budget.neighbours)
        raw = cautious(known_at_first(task, first.measured(curator, paid[0], what)))
        known = denoised(raw)
        ones, sets = known.ones(), self.candidates.sets
        inside = () if self.means is None else self.means.measured(curator, more[-1], paid[-1])
        if self.products is not None:
            place = -1 if self.means is None else -2
            inside = (*inside, *self.products.measured(curator, more[place], paid[place], known))
        if isinstance(task.prior, PublicRows):
            all_pairs = quarter_powers(list(sets), task.domain, task.budget.neighbours)
            said = Dependence.of(raw, sets, task.prior, rng)

            def pairs(stage: Stage, place: int, shares: Mapping[Set, float] = all_pairs) -> list[Measured]:
                chosen = stage.chosen(shares, task.domain, task.budget.neighbours)
                return stage.measured(curator, paid[place], chosen)

            tested = pairs(more[0], 3, said.shares or all_pairs)
            if said.apart and said.borne_out_by(tested, raw.total):
                for told in (tested, pairs(second, 1), pairs(last, 2)):
                    raw = raw.joined(told)
                return of_tables(cautious(replace(raw, inside=inside)), at_once=False)
        expected = np.rint(expected_counts(ones, sets, known.total)).astype(np.int64)
        far = Misfits(self.candidates, expected, slack=np.zeros(len(sets), np.int64))
        times = self._times(task, second)
        noisy = curator.measure(Multiplied(far, times), noise=second.noise, within=paid[1]) / times
        deviation = second.noise.deviation / times
        null = null_misfit(ones, {j: known.deviation((j,)) for j in ones}, sets, known.total)
        wanted = self.wanted(task, known, Misfit.of(noisy, null, deviation, known.total))
        told = last.measured(curator, paid[2], last.chosen(wanted, task.domain, task.budget.neighbours))
        heard = Numbers(MISFITS, tuple(j for pair in sets for j in pair))
        misfits = Measured(heard, noisy - null, deviation**2)
        fitting = self._fitting(cautious(replace(raw.joined(told), inside=inside)), misfits)
        # Pairs did not depend as the prior's do.
        return fitting if task.prior is None else replace(fitting, tables=None)

    def _times(self, task: Task, stage: Stage) -> int:
        """What misfits are multiplied by, where their stage has room for pairs, too."""
        moved = task.budget.neighbours.sensitivity(misfit_bound([1] * len(self.candidates.sets))).l2_squared
        return max(1, math.isqrt(stage.squared // moved))

    def wanted(self, task: Task, known: MeasuredTables, misfit: Misfit) -> dict[Set, float]:
        """The gate and the choice, from public numbers: shares of the rest, of one-way tables or of pairs.

        Of K pairs, a table of k cells of which f are free has the noise √(K c k f); where f is large, misfits lie in
        few cells, and shrinking takes noise away: √(K c k √f). K is what gains most.
        """
        neighbours, sets, last = task.budget.neighbours, self.candidates.sets, self.stages[2]
        unit = last.noise.deviation / math.sqrt(last.squared)  # on a number that moves by one, in records
        again = shares_of_first([s for s in self.ones if s], task)
        moved = np.array([relative_sensitivity(s, task.domain, neighbours) for s in sets])
        cells = np.diff(self.candidates.starts)
        free = free_cells(sets, task.domain)
        more = last.variances(last.chosen(again, task.domain, neighbours))
        most, best = cost_of_pairs(known, more), None
        for number in numbers_of_pairs(len(self.ones), len(sets)):
            noise = moved * unit * np.sqrt(number * cells * np.sqrt(free))
            some = best_pairs(misfit, number, noise)
            gain = gain_of_pairs(misfit, some, noise, known.total)
            if gain > most:
                most, best = gain, some
        if best is None:
            return again
        parts = np.sqrt(moved[best] * cells[best])
        parts /= parts.sum()
        return {sets[p]: float(x) for p, x in zip(best.tolist(), parts, strict=True)}

    def _fitting(self, measured: MeasuredTables, misfits: Measured) -> Fitting:
        def refit(known: MeasuredTables, effort: Effort, rng: np.random.Generator, progress: Done) -> Rows:
            if known.of_order(2) or self.products is not None:
                # of many pairs that were chosen in vain, what was measured is noise
                return fit(known, effort, rng, progress, at_once=False, likely=1.0)
            long = replace(effort, chains=1, chain_rows=effort.rows)
            # whose attributes are independent
            rows = product_start(known.domain, denoised(known).ones(), long, rng)
            progress(1, 1)
            return rows[0]

        return Fitting.of_tables(measured, refit, more=(misfits,))


def shares_of_first(ones: list[Set], task: Task) -> dict[Set, float]:
    """Of one-way tables in proportion to (c_S · cells)^¼, and of the number of records; together one."""
    wanted = quarter_powers(ones, task.domain, task.budget.neighbours)
    if not task.budget.neighbours.size_is_public:
        wanted[()] = TOTAL_OF_ONES * sum(wanted.values())
    total = sum(wanted.values())
    return {members: part / total for members, part in wanted.items()}


def cautious(measured: MeasuredTables) -> MeasuredTables:
    """The same measurement, of a few records less than it says."""
    rows = float(measured.interactions[()]) - CAUTION * math.sqrt(measured.variance[()])
    return replace(measured, total=max(1.0, rows))


# The gate and the choice: everything is public by now


@dataclass(frozen=True)
class Misfit:
    """How far the pairs lie from independence, in records: noisy, and as a posterior says."""

    noisy: Cells
    likely: Cells

    @staticmethod
    def of(noisy: NDArray[np.int64] | Cells, null: Cells, deviation: float, total: float) -> Misfit:
        """Less what chance alone brings; the posterior mean under .9 Exp(τ) + .1 Uniform(0, 1.2 n).

        τ is the mean of all, less a deviation of its noise, within bounds. A law learned from few misfits whose noise
        is as large as the number of records would follow the noise.
        """
        excess = noisy - null
        middle = float(excess.mean()) - deviation / math.sqrt(len(excess))
        tau = min(max(middle, LEAST_MISFIT * total), MOST_MISFIT * total)
        levels = np.linspace(0.0, FARTHEST * total, LEVELS)
        near = np.exp(-levels / tau)
        law = (1 - FEW_FAR) * near / near.sum() + FEW_FAR / LEVELS
        return Misfit(excess, posterior(excess, np.full(len(excess), deviation), points(levels), law))


def expected_counts(ones: Mapping[int, Cells], pairs: Sequence[Set], total: float) -> Cells:
    """n·M: the counts of all cells of the pairs, were the attributes independent."""
    return total * np.concatenate([np.outer(ones[i], ones[j]).ravel() for i, j in pairs])


def null_misfit(
    ones: Mapping[int, Cells], deviations: Mapping[int, float], pairs: Sequence[Set], total: float
) -> Cells:
    """The misfit of each table that sampling and the noise of one-way tables bring by themselves.

    Σ_c .8 √(n M_c + n² (s_i² p_j² + s_j² p_i²)), but at most 2 n M_c a cell.
    """
    squares = {j: p**2 for j, p in ones.items()}
    spread = {j: np.full(len(p), (total * deviations[j]) ** 2) for j, p in ones.items()}
    misfits = []
    for i, j in pairs:
        expected = total * np.outer(ones[i], ones[j])
        noise = np.outer(spread[i], squares[j]) + np.outer(squares[i], spread[j])
        misfits.append(float(np.minimum(HALF_NORMAL * np.sqrt(expected + noise), 2 * expected).sum()))
    return np.array(misfits)


def error_of_ones(ones: Mapping[int, Cells], deviations: Mapping[int, float]) -> float:
    """The L1 error of a pair's table that the noise of one-way tables brings; deviations are fractions.

    Clipped at zero, a cell of fraction p far below the noise s has an error of .8 · .35 s rather than .8 s.
    """
    errors = [
        float((HALF_NORMAL * deviations[j] * np.minimum(1.0, 0.35 + p / deviations[j])).sum())
        for j, p in ones.items()
    ]
    return PAIR_OF_ONES * float(np.mean(errors))


def cost_of_pairs(known: MeasuredTables, more: Mapping[Set, float]) -> float:
    """How much better one-way tables would be, had they the rest as well, with noise of these variances."""
    now = {s[0]: known.deviation(s) for s in known.of_order(1)}
    alone = {j: x / math.sqrt(1 + known.variance[(j,)] / more.get((j,), math.inf)) for j, x in now.items()}
    ones = known.ones()
    return error_of_ones(ones, now) - error_of_ones(ones, alone)


def gain_of_pairs(misfit: Misfit, best: NDArray[np.int64], noise: Cells, total: float) -> float:
    """What measuring these pairs gains, in L1: of misfit m, with noise .8 ν, m · m²/(m² + 1.3 (.8 ν)²) is lost."""
    found = np.maximum(misfit.likely[best], 0.0)
    lost = found**3 / np.maximum(found**2 + HALF_LOST * (HALF_NORMAL * noise[best]) ** 2, 1e-300)
    return float(lost.sum()) / (len(misfit.likely) * total)


def numbers_of_pairs(attributes: int, pairs: int) -> list[int]:
    """How many pairs may be chosen."""
    d, m = attributes, pairs
    return sorted(
        {max(1, min(m, round(x))) for x in (1, 2, 3, d / 2, d - 1, 1.5 * d, 2 * d, 3 * d, m / 2, m)}
    )


def best_pairs(misfit: Misfit, chosen: int, noise: Cells) -> NDArray[np.int64]:
    """The pairs of largest misfit, less part of what the noise of measuring them brings, both in records."""
    order = np.argsort(-(misfit.noisy - PENALTY * noise), kind="stable")
    return np.sort(order[:chosen])


def plan_chosen_pairs(task: Task, rule: PairRule, wanted: ProjectionWishes, effort: Effort) -> Plan[Any]:
    """Everything but what is measured last."""
    (ones, misfits), number = rule.shares(), len(rule.pairs)
    moved = task.budget.neighbours.sensitivity(misfit_bound([1] * number)).l2_squared
    means, products = means_for(task, wanted.means), products_for(task, all_pairs=False)
    apart = [each for each in (products, means) if each is not None]
    part = 1.0 - sum(each.share for each in apart) - (0.0 if task.prior is None else SHARE_OF_TEST)
    whole = {s: part * ones * x for s, x in shares_of_first(rule.ones, task).items()}
    shares = spared(task, whole, unit_variance(task.budget))
    ones = sum(shares.values()) / part
    test = (f"measure all {number:,} pairs, whether they depend as the prior says", SHARE_OF_TEST, None)
    stages = stages_of(
        task.budget,
        [
            (f"measure {len(rule.ones):,} one-way tables at once", part * ones, None),
            (
                f"measure how far {number:,} pairs lie from independence",
                part * misfits,
                moved if task.prior is None else None,
            ),
            (
                "measure the pairs that matter, or the one-way tables again",
                part * (1.0 - ones - misfits),
                None,
            ),
            *([] if task.prior is None else [test]),
            *[each.wanted(task) for each in apart],
        ],
        *room_of(task),
    )
    first = stages[0]
    noisy = first.variances(first.chosen(shares, task.domain, task.budget.neighbours))
    noisy = {s: variance_informed(task, s, v) for s, v in noisy.items()}
    noise = math.sqrt(float(np.mean([v for s, v in noisy.items() if s]))) / task.rows
    effort = effort.shared_out(noise)
    last = stages[2]  # as if every pair had what a chosen one has: which are left depend less
    each = quarter_powers(rule.pairs[: rule.chosen], task.domain, task.budget.neighbours)
    measured = last.variances(last.chosen(each, task.domain, task.budget.neighbours))
    noisy |= dict.fromkeys(rule.pairs, max(measured.values(), default=math.inf))
    candidates = Tables(task.domain, tuple(rule.pairs))
    fit = cost_of_fit(task, rule.pairs[: rule.chosen], effort, noise, rule.pairs)
    counting = number * task.rows * COUNT_SECONDS
    return built(
        task,
        ByChosenPairs(
            pairs=number,
            cell_noise=noise,
            effort=effort,
            ones=shares,
            candidates=candidates,
            stages=stages,
            means=means,
            products=products,
        ),
        reason=(
            f"{task.rows:,} records are few for {number:,} pairs of attributes, so one-way tables are measured first "
            f"({part * ones:.0%} of the budget), then how far each pair lies from independence "
            f"({part * misfits:.0%}). If relationships look strong enough, the strongest are measured with the rest "
            "of the budget, as many as gain most, else the one-way tables once more; rows are fitted to what was "
            "measured"
        ),
        steps=tuple(stage.step() for stage in stages),
        errors=predicted_errors(task, noisy, MEAN_ERROR * noise, MAX_ERROR * noise),
        cost=FitCost(fit.seconds + counting, fit.bytes + 40 * candidates.size, fit.largest),
        memory=wanted.memory,
        notes=(
            "where no relationship is measured, only one-way tables are known, and answers about two attributes "
            "assume that the two are unrelated; the predicted error takes them to depend as in most tables",
        ),
    )
