"""What the experiments about special cases share: popular items, independent noise at its fairest, sweeps over T."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.privacy.budget import Budget, Neighbours, Sensitivity
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records, SparseItems
from experiments.data import Data, kept
from experiments.harness import Rows, where
from experiments.runs import budget_of
from experiments.spread import samples_by

EPSILON, DELTA = 1.0, 1e-6


def special_budget() -> Budget:
    """ε = 1, δ = 10⁻⁶, a record added or removed, by ρ."""
    return budget_of(EPSILON, DELTA, neighbours=Neighbours.ADD_REMOVE)


@lru_cache(maxsize=2)
def popular_items(data: Data, number: int) -> Records:
    """Kosarak, the most popular items alone, taken as publicly known."""
    whole = kept(data, "kosarak")
    codes = whole.columns[0]
    assert isinstance(codes, SparseItems)
    often = np.bincount(codes.ids, minlength=whole.domain.width)
    place = np.full(whole.domain.width, -1)
    place[np.argsort(-often, kind="stable")[:number]] = np.arange(number)
    owner, held = np.repeat(np.arange(whole.rows), np.diff(codes.start)), place[codes.ids]
    rows = np.zeros((whole.rows, number), np.int32)
    rows[owner[held >= 0], held[held >= 0]] = 1
    return Records.from_rows(Domain((Items("item", number),)), rows)


def unit_noise(budget: Budget) -> float:
    """σ: the noise that the whole budget buys for numbers of sensitivity 1."""
    event = Gaussian(Fraction(1)).event(Sensitivity(1, 1))
    return float(smallest_gaussian_scale(budget, [event])) ** 0.5


def independent(
    workload: Workload, truth: NDArray[np.float64], rows: int, budget: Budget, seed: int, *, incidence: bool
) -> NDArray[np.float64]:
    """Noise on every query: σ√r by the most queries r that one record satisfies, or σ√K/2 as balances 2c − n."""
    satisfied = sum(group.most_satisfied() for group in workload.groups)
    scale = satisfied**0.5 if incidence else workload.size**0.5 / 2
    noise = np.random.default_rng(seed).normal(0, unit_noise(budget) * scale / rows, workload.size)
    return np.clip(truth + noise, 0, 1)


LONG = 3200  # rounds
SWEPT = ", T = "  # in the name of a method: a learner that plays so many rounds, whatever its rule says


def sweep(learner: str, rounds: Iterable[int]) -> list[str]:
    """The same learner by several numbers of rounds, as methods of an experiment."""
    return [f"{learner}{SWEPT}{each}" for each in rounds]


def options_of(method: str) -> tuple[str, dict[str, Any]]:
    """The mechanism of a method, and the rounds where it names them."""
    name, _, rounds = method.partition(SWEPT)
    return name, {"rounds": int(rounds)} if rounds else {}


def runs_of(method: str, learner: str) -> int:
    """Five of a learner by its own rule, three of others, and one where it takes long."""
    _, options = options_of(method)
    slow = method.endswith(" blocks") or options.get("rounds", 0) > LONG
    return 1 if slow else 5 if method == learner else 3


def swept_words(rows: Rows, learner: str, column: str, form: str) -> str:
    """The learner by its own rule beside its sweep: T and mean error, and how far the rule is from the best."""
    means = {method: each.mean for (method,), each in samples_by(rows, ("method",), column).items()}
    tried = {
        method.partition(SWEPT)[2]: mean for method, mean in means.items() if f"{learner}{SWEPT}" in method
    }
    if learner not in means or not tried:
        return "not measured"
    rule, best = where(rows, method=learner)[0]["rounds"], min(tried.values())
    told = ", ".join(f"{int(rounds):,}: {mean:{form}}" for rounds, mean in tried.items())
    apart = means[learner] / min(best, means[learner])
    return (
        f"T = {rule:,} by the rule: {means[learner]:{form}}, {apart:.2f} times the best of all (by T {told})"
    )
