"""docs/privacy.md and the code say the same: every formula of the page against what is charged, on a grid."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dualquery.errors import BudgetError, DataError
from dualquery.mechanisms.dual_query.parameters import Learning, rate_of, round_steps
from dualquery.mechanisms.mechanism import Plan, Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.accounting import mu_squared_units
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    discrete_gaussian_epsilon,
    epsilon_of,
    fire_units,
    gaussian_epsilon,
    renyi_cap,
    rho_of,
)
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.selection import SLACK, most_bits
from dualquery.queries.binary import HeldItems, HeldPairs
from dualquery.queries.derived import SHORT, Interactions
from dualquery.queries.families import from_spec
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records, SparseItems

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
SOURCE = Path(__file__).resolve().parents[2] / "src" / "dualquery"
DOMAIN = Domain(
    tuple(Categorical(name, tuple(map(str, range(k)))) for name, k in (("a", 2), ("b", 3), ("c", 20)))
)
WORKLOAD = from_spec(DOMAIN, "marginals:2")
REPLACE = Neighbours.REPLACE
EXACT = Fraction(1, UNITS)

relations = pytest.mark.parametrize("neighbours", RELATIONS, ids=str)


def task(neighbours: Neighbours, accounting: Accounting, epsilon: float = 1.0, rows: int = 5000) -> Task:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)
    return Task(WORKLOAD, rows, budget)


def charged(plan: Plan[object]) -> Ledger:
    """A fresh ledger after every step of a plan, which it must accept."""
    ledger = Ledger(plan.task.budget)
    for step in plan.steps:
        for _ in range(step.times):
            ledger.charge(step.event)
    return ledger


def w(neighbours: Neighbours, replace: int, add: int) -> int:
    return replace if neighbours is REPLACE else add


# ── The page itself ─────────────────────────────────────────────────────────────────────────────────────────────


def test_every_file_that_the_page_names_exists() -> None:
    for name in set(re.findall(r"`((?:privacy|mechanisms|queries|releases)/[\w/]+\.py)`", PAGE)):
        assert (SOURCE / name).exists(), name


SECTIONS = [
    "Neighbours", "Currency and events", "The ledger as a filter", "Several records", "Bounded range", "Conversions",
    "Gaussian releases", "Threshold tests", "Noise", "Selection", "DualQuery", "MWEM", "PMW",
    "Signed tables", "Items and pairs", "Wide binary tables", "Cells of lists", "Views of units",
    "Parities by order", "Statistics and scores", "Texts that occur often", "Periods and priors", "The audit",
    "Mutants",
]  # fmt: skip


def test_the_page_has_a_section_for_every_promise_and_a_proof_in_each() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert list(sections) == SECTIONS
    for name, text in sections.items():
        assert "∎" in text or name in ("Neighbours", "The audit", "Mutants"), name


# ── Currency and events ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("epsilon", "draws"), list(product((Fraction(1, 9), Fraction(2)), (1, 5))))
def test_the_table_of_events(epsilon: Fraction, draws: int) -> None:
    selection = Selection(epsilon, draws)
    assert (selection.pure, selection.rho) == (draws * epsilon, draws * epsilon**2 / 8)
    laplace = LaplaceMeasurement(Fraction(draws), 1 / epsilon)
    assert (laplace.pure, laplace.rho) == (draws * epsilon, (draws * epsilon) ** 2 / 2)
    assert GaussianMeasurement(Fraction(draws), 1 / epsilon).rho == draws * epsilon / 2


@pytest.mark.parametrize(("rho", "epsilon"), list(product((0.001, 0.05, 0.7), (0.3, 1.0, 4.0))))
def test_the_conversion_is_the_best_alpha(rho: float, epsilon: float) -> None:
    def formula(alpha: float) -> float:
        return (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)

    best = min(0.0, min(formula(1 + math.exp(i / 500)) for i in range(-3000, 5000)))
    if -700 < best < -1e-9:
        assert epsilon_of(rho, delta=math.exp(best)) == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize(
    ("order", "epsilon", "k"), list(product((2, 9, 22), (Fraction(1, 200), Fraction(1, 60)), (1, 2)))
)
def test_the_price_of_a_fire(order: int, epsilon: Fraction, k: int) -> None:
    x = float(k * epsilon)
    exact = (-x * (order - 1) - math.log(1 - (order - 1) * math.expm1(x))) / (order - 1)
    units = fire_units(epsilon=epsilon, sensitivity=k, order=order)
    assert exact * UNITS + 0.9 <= units <= exact * UNITS * (1 + 1e-9) + 2.1


def test_the_numbers_of_the_page_about_budgets() -> None:
    rows = re.findall(r"^\| ([\d.]+), 10⁻([³⁶⁹]) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, exponent, by_zcdp, by_gaussian in rows:
        delta = 10.0 ** -"⁰¹²³⁴⁵⁶⁷⁸⁹".index(exponent)
        assert float(rho_of(epsilon=float(epsilon), delta=delta)) == pytest.approx(float(by_zcdp), rel=0.01)
        assert gaussian_epsilon(2 * float(by_gaussian), delta=delta) == pytest.approx(
            float(epsilon), rel=0.01
        )
        mu_squared = mu_squared_units(epsilon=float(epsilon), delta=delta) / UNITS
        assert mu_squared / 2 == pytest.approx(float(by_gaussian), rel=0.005)


def test_the_numbers_of_the_page_about_selections_among_noise() -> None:
    """Up to which share of ρ Gaussian accounting is the tighter: (G − 1)/(π/2 − 1)."""
    shares = {1e-3: 47, 1e-6: 26, 1e-9: 19}
    for delta, share in shares.items():
        gain = (
            mu_squared_units(epsilon=1.0, delta=delta) / UNITS / 2 / float(rho_of(epsilon=1.0, delta=delta))
        )
        assert round(100 * (gain - 1) / (math.pi / 2 - 1)) == share
    for share in shares.values():
        assert f"{share}% at" in PAGE


# ── The ledger as a filter ──────────────────────────────────────────────────────────────────────────────────────


def discrete_delta(variance: int, shift: int, epsilon: float) -> float:
    reach = range(-12 * variance - shift, 12 * variance + shift)
    mass = math.fsum(math.exp(-z * z / (2 * variance)) for z in reach)
    return math.fsum(
        max(0.0, math.exp(-((z - shift) ** 2) / (2 * variance)) - math.exp(epsilon - z * z / (2 * variance)))
        for z in reach
    ) / mass  # fmt: skip


def test_gaussian_accounting_is_no_filter() -> None:
    """The counterexample of the page: one ratio, two laws, and a certificate of one that is false of the other."""
    wide, delta = [(Fraction(10**4), Fraction(10**4))], 1e-3
    certified = discrete_gaussian_epsilon(wide, delta=delta)
    assert certified == pytest.approx(3.139, abs=5e-4)
    exact = discrete_delta(1, 1, certified)
    assert exact == pytest.approx(1.44e-3, abs=5e-6)
    assert exact > delta
    narrow = discrete_gaussian_epsilon([(Fraction(1), Fraction(1))], delta=delta)
    assert discrete_delta(1, 1, narrow) <= delta < discrete_delta(1, 1, certified)


@pytest.mark.parametrize(("rounding", "mu_squared"), list(product((1, 2, 3), (0.5, 2.0))))
def test_the_gaussian_filter_covers_what_it_says(rounding: int, mu_squared: float) -> None:
    """One count, noise so that Δ²/(σ² − r²) = μ² exactly, for small and large σ²: never above the lemma's δ."""
    for shift in (1, 2, 5):
        variance = shift**2 / mu_squared + rounding
        tau = 4.005 * math.exp(-2 * 9.8696 * rounding)
        for delta in (1e-2, 1e-4):
            epsilon = gaussian_epsilon(mu_squared, delta=delta) + 2 * shift**2 * tau
            reach = range(-200, 200)
            mass = math.fsum(math.exp(-z * z / (2 * variance)) for z in reach)
            exact = math.fsum(
                max(0.0, math.exp(-((z - shift) ** 2) / (2 * variance)) - math.exp(epsilon - z * z / (2 * variance)))
                for z in reach
            ) / mass  # fmt: skip
            assert exact <= math.exp(shift**2 * tau) * delta * (1 + 1e-9)


def test_a_filter_promises_its_limit_on_every_path() -> None:
    """Sizes that follow a coin: exact Rényi moments of the whole stay below the limit, over both paths."""
    limit, first = Fraction(1, 10), Fraction(1, 50)
    for alpha in (2.0, 5.0, 20.0):
        # a Gaussian first step; by its sign, the rest of the budget in one measurement, or nothing
        worst = alpha * float(limit)
        split = [alpha * float(first), alpha * float(first) + alpha * float(limit - first)]
        moments = [math.exp((alpha - 1) * each) for each in split]
        assert math.log(max(moments)) / (alpha - 1) <= worst * (1 + 1e-12)
    ledger = Ledger(task(REPLACE, Accounting.ZCDP).budget)
    whole = rho_of(epsilon=1.0, delta=1e-6)
    ledger.charge(GaussianMeasurement(2 * whole * Fraction(1, 5), Fraction(1)))
    ledger.charge(GaussianMeasurement(2 * (whole * Fraction(4, 5) - EXACT), Fraction(1)))
    with pytest.raises(BudgetError):
        ledger.charge(GaussianMeasurement(Fraction(1, 100), Fraction(1)))
    assert ledger.spent().epsilon <= 1.0


def test_the_cap_of_renyi_accounting() -> None:
    for epsilon, order in ((1.0, 22), (0.3, 63)):
        cap = renyi_cap(epsilon=epsilon, delta=1e-6, order=order) / UNITS
        back = cap + (math.log(1e6) - math.log(order)) / (order - 1) - math.log1p(1 / (order - 1))
        assert back == pytest.approx(epsilon, abs=1e-9)
        ledger = Ledger(task(REPLACE, Accounting.RENYI, epsilon).budget)
        assert ledger.order == order


# ── The mechanisms ──────────────────────────────────────────────────────────────────────────────────────────────


@relations
@pytest.mark.parametrize(("eta", "samples", "rounds"), list(product((0.5, 2.0), (1, 20), (2, 6))))
def test_dualquery_costs_what_the_page_says(
    neighbours: Neighbours, eta: float, samples: int, rounds: int
) -> None:
    here, n = task(neighbours, Accounting.ZCDP, epsilon=50.0), 5000
    steps = round_steps(here, Learning(eta, samples, rounds))
    rate = rate_of(eta, rounds, n).nats
    assert rate <= Fraction(eta) / n
    assert float(rate) == pytest.approx(eta / n, rel=1e-6)
    width = w(neighbours, 2, 1)
    assert [step.event for step in steps] == [
        Selection(width * (t - 1) * rate + SLACK, samples) for t in range(2, rounds + 1)
    ]
    rho = sum(step.event.rho for step in steps if isinstance(step.event, Selection))
    page = width**2 * samples * eta**2 * rounds * (rounds - 1) * (2 * rounds - 1) / (48 * n**2)
    assert float(rho) == pytest.approx(page, rel=1e-5)
    pure = sum(step.event.pure for step in steps if isinstance(step.event, Selection))
    assert float(pure) == pytest.approx(width * eta * rounds * (rounds - 1) * samples / (2 * n), rel=1e-5)


@relations
@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP], ids=lambda a: a.value)
@pytest.mark.parametrize("measured", ["queries", "tables"])
@pytest.mark.parametrize("start", ["uniform", "noisy"])
@pytest.mark.parametrize("rounds", [1, 7])
def test_mwem_costs_what_the_page_says(
    neighbours: Neighbours, accounting: Accounting, measured: str, start: str, rounds: int
) -> None:
    here = task(neighbours, accounting, epsilon=2.0)
    plan = MECHANISMS["mwem"].plan_for(here, {"rounds": rounds, "measured": measured, "start": start})
    choose, measure = plan.steps[-2:]
    rate = plan.parameters.rate.nats
    width = w(neighbours, 2, 1) * (2 if measured == "tables" else 1)
    assert choose.event == Selection(width * 1024 * rate + SLACK, 1)
    assert (choose.times, measure.times) == (rounds, rounds)
    l1, squared = (w(neighbours, 2, 1), w(neighbours, 4, 1) if measured == "queries" else w(neighbours, 2, 1))
    cells = Fraction(w(neighbours, 2, 1))
    total = rounds * (choose.event.pure if accounting is Accounting.PURE else choose.event.rho)
    if accounting is Accounting.PURE:
        assert isinstance(measure.event, LaplaceMeasurement)
        assert measure.event.sensitivity == l1
        total += rounds * l1 / measure.event.scale
    else:
        assert isinstance(measure.event, GaussianMeasurement)
        assert measure.event.sensitivity_squared == squared
        total += rounds * squared / (2 * measure.event.variance)
    if start == "noisy":
        event = plan.steps[0].event
        assert len(plan.steps) == 3
        if isinstance(event, LaplaceMeasurement):
            assert event.sensitivity == cells
            total += cells / event.scale
        else:
            assert isinstance(event, GaussianMeasurement)
            assert event.sensitivity_squared == cells
            total += cells / (2 * event.variance)
    ledger = charged(plan)
    if accounting is Accounting.PURE:
        assert 0.99 <= total / 2 <= 1
        assert ledger.spent().epsilon == pytest.approx(float(total), abs=1e-9)
    else:
        assert 0.99 <= total / rho_of(epsilon=2.0, delta=1e-6) <= 1
        assert 0 <= (ledger.spent().rho_units or 0) - total * UNITS <= 2 * rounds + 1


@relations
@pytest.mark.parametrize("rounds", [1, 12])
@pytest.mark.parametrize(
    "accounting", [Accounting.PURE, Accounting.ZCDP, Accounting.THEOREM_4_3], ids=lambda a: a.value
)
def test_pmw_costs_what_the_page_says(neighbours: Neighbours, rounds: int, accounting: Accounting) -> None:
    plan = MECHANISMS["pmw"].plan_for(task(neighbours, accounting), {"rounds": rounds})
    (step,) = plan.steps
    each = w(neighbours, 2, 1) * 1024 * plan.parameters.rate.nats + SLACK
    assert step.event == Selection(each, 1)
    assert step.times == rounds
    spent = charged(plan).spent()
    expected = {
        Accounting.PURE: float(rounds * each),
        Accounting.ZCDP: epsilon_of(rounds * each**2 / 8, delta=1e-6),
        Accounting.THEOREM_4_3: advanced_composition(each, rounds, delta=1e-6),
    }[accounting]
    assert spent.epsilon == pytest.approx(expected, rel=1e-6)
    assert 0.98 <= spent.epsilon <= 1


@relations
def test_interactions_of_one_attribute(neighbours: Neighbours) -> None:
    """d_S of the page, for every size of an attribute."""
    for k in (2, 3, SHORT, SHORT + 1):
        domain = Domain((Categorical("a", tuple(map(str, range(k)))),))
        for multiplier in (1, 5):
            moved = neighbours.sensitivity(Interactions(domain, ((0,),), (multiplier,)).bound()).l2_squared
            d = w(neighbours, 2 * k * k, k * (k - 1)) if k <= SHORT else w(neighbours, 2, 1)
            assert moved == multiplier**2 * d


# ── Signed tables ───────────────────────────────────────────────────────────────────────────────────────────────


@relations
def test_pure_projection_costs_what_the_page_says(neighbours: Neighbours) -> None:
    for rows in (60, 500_000):  # with rounds, and at once
        planned = task(neighbours, Accounting.PURE, rows=rows)
        plan = MECHANISMS["projection"].plan_for(planned, {})
        tables, moved = plan.parameters.tables, w(neighbours, 2, 1)
        first = plan.steps[0].event
        assert isinstance(first, LaplaceMeasurement)
        counted = [m for s, m in zip(tables.first.sets, tables.first.multipliers, strict=True) if s]
        total = sum(tables.first.multipliers) if neighbours is not REPLACE else 2 * sum(counted)
        assert first.sensitivity == total
        epsilon = first.sensitivity / first.scale
        assert (tables.rounds is not None) == (rows == 60)
        if tables.rounds is not None:
            nats = 2 * 1024 * moved * tables.rounds.rate.nats + SLACK
            assert plan.steps[1].event == Selection(nats, 1)
            each = math.ceil(nats * UNITS) + math.ceil(moved / tables.rounds.noise.scale * UNITS)
            epsilon += Fraction(tables.rounds.number * each, UNITS)
        assert epsilon == 1
        assert charged(plan).spent().epsilon == 1.0


# ── Items ───────────────────────────────────────────────────────────────────────────────────────────────────────


@relations
@pytest.mark.parametrize(("items", "limit"), list(product((1, 2, 3, 7), (1, 2, 3, 9))))
def test_items_and_pairs_cost_what_the_page_says(neighbours: Neighbours, items: int, limit: int) -> None:
    rank = np.arange(items, dtype=np.int64)
    most = min(limit, items)
    moved = neighbours.sensitivity(HeldItems(0, rank, items, limit).bound())
    assert moved.l1 == moved.l2_squared == w(neighbours, min(2 * most, items), most)
    moved = neighbours.sensitivity(HeldPairs(0, rank, items, limit).bound())
    assert moved.l1 == moved.l2_squared == w(neighbours, most * (most - 1), most * (most - 1) // 2)


def test_a_record_that_holds_an_item_twice_is_refused() -> None:
    """The precondition of the section: without it one record would move one count by more than one."""
    domain = Domain((Items("basket", 3),))
    start = np.array([0, 3], np.int64)
    Records(domain, 1, (SparseItems(start, np.array([0, 1, 2], np.int32)),))
    for ids in ([0, 0, 2], [1, 0, 2], [2, 2, 2]):
        with pytest.raises(DataError):
            Records(domain, 1, (SparseItems(start, np.array(ids, np.int32)),))


# ── Selection ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_numbers_of_the_page_about_selection() -> None:
    assert Fraction(1, 2**36) == SLACK
    assert "B = 64 + bit length of the number of candidates" in PAGE
    for candidates in (1, 2, 3, 10**6, 2**31):
        assert most_bits(candidates) == 64 + len(bin(candidates)) - 2
