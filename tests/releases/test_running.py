"""Running totals of a known number of periods: exact sensitivities, by brute force, and totals that come back."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery import Accounting, Budget, BudgetError, DataError, DualQueryError, Neighbours, Series
from dualquery.counting.opening import open_counter
from dualquery.ledger.books import Books, create
from dualquery.privacy.accounting import rho_cap
from dualquery.privacy.budget import PARTS
from dualquery.queries.tables import Tables
from dualquery.releases.series import step_budget
from dualquery.releases.sums import shares_of
from dualquery.releases.verify import audit, verify
from dualquery.table.persons import Calendar, RunningSpan
from dualquery.table.schema import parse_schema
from tests import house

MONTHS = Calendar("received", "month")
SCHEMA = """
[table]
period = "received"
calendar = "month"

[[attribute]]
name = "value"
values = ["0", "1"]
"""
BUDGET = Budget(1, 1e-6, Neighbours.ADD_REMOVE)


def span(first: int, last: int, whole: int = PARTS) -> RunningSpan:
    return RunningSpan(MONTHS, first, last, whole)


def test_the_factor_squared_is_the_matrix_of_ones() -> None:
    """Of exact f_k = C(2k, k)/4^k; whole parts are these, rounded."""
    exact, fine = [Fraction(1)], 4**12
    for k in range(1, 12):
        exact.append(exact[-1] * (2 * k - 1) / (2 * k))
    for t in range(12):
        assert sum(exact[k] * exact[t - k] for k in range(t + 1)) == 1
    assert [span(0, k, fine).weight(k) for k in range(12)] == [x * fine for x in exact]
    assert [span(0, 3).weight(k) for k in range(4)] == [64, 32, 24, 20]


@pytest.mark.parametrize(("periods", "variance"), [(12, 3.43), (60, 5.61)])
def test_the_worst_total_is_as_noisy_as_the_theory_says(periods: int, variance: float) -> None:
    """In releases of the whole budget; splitting it would make `periods` of them."""
    weights = np.array(list(span(0, periods - 1).weights().values())) / PARTS
    worst = max(float((shares_of(t + 1, 0, t) ** 2).sum()) * PARTS**2 for t in range(periods))
    assert worst * float((weights**2).sum()) == pytest.approx(variance, rel=0.01)


@pytest.mark.parametrize("periods", [2, 12, 60])
def test_all_steps_together_cost_no_record_more_than_the_budget(periods: int) -> None:
    """The column norms of R_N, one by one: the first is the largest."""
    price = rho_cap(step_budget(BUDGET, periods))
    costs = [sum(span(0, t).parts(price).get(c, 0) for t in range(periods)) for c in range(periods)]
    assert costs == sorted(costs, reverse=True)
    cap = rho_cap(house.budget(neighbours=Neighbours.ADD_REMOVE))
    assert cap * 0.9999 < costs[0] <= cap


@pytest.mark.parametrize(
    "budget",
    [
        Budget(1, 1e-6),
        Budget(1, 0, Neighbours.ADD_REMOVE, Accounting.PURE),
        Budget(1e-12, 1e-9, Neighbours.ADD_REMOVE),
    ],
)
def test_budgets_that_running_totals_cannot_be_paid_by(budget: Budget) -> None:
    with pytest.raises(BudgetError):
        step_budget(budget, 12)


# By brute force: tables of three records, of three months and two values.

DAYS = ("2024-01-31", "2024-02-01", "2024-03-15")
FIRST = MONTHS.span("2024-01").first
KINDS = tuple(product(range(3), ("0", "1")))


def counted(rows: tuple[tuple[int, str], ...]) -> np.ndarray:
    """What the program counts at each of the three steps, of a file with all records."""
    frame = pa.table(
        {
            "received": pa.array([DAYS[month] for month, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )
    schema = parse_schema(SCHEMA, origin="the schema")
    found = []
    for step in range(3):
        counter = open_counter(frame, schema.during(span(FIRST, FIRST + step)))
        found.append(counter.true_counts(Tables(schema.domain, ((0,),))))
    return np.array(found)


def test_a_record_moves_each_step_as_it_is_charged() -> None:
    bound = Tables(parse_schema(SCHEMA, origin="the schema").domain, ((0,),)).bound()
    asked = Neighbours.IN_PARTS.sensitivity(bound).l2_squared
    farthest = dict.fromkeys(product(range(3), range(3)), 0)
    for table in combinations_with_replacement(KINDS, 3):
        whole = counted(table)
        for place, (month, _) in enumerate(table):
            moved = whole - counted(table[:place] + table[place + 1 :])
            for step, row in enumerate((moved.astype(int) ** 2).sum(axis=1).tolist()):
                farthest[step, month] = max(farthest[step, month], row)
    units = 10**9
    for (step, month), square in farthest.items():
        paid = span(FIRST, FIRST + step).parts(units).get(FIRST + month, 0)
        assert paid == -(-units * square // asked)  # of what a record of the last month pays, exactly
    assert max(farthest.values()) == asked == PARTS**2


def test_totals_come_back_from_what_is_counted_without_noise() -> None:
    rows = ((0, "0"), (0, "1"), (1, "1"), (1, "1"), (2, "0"))
    seen = counted(rows)
    for first in range(3):
        for last in range(first, 3):
            wanted = [sum(first <= m <= last and v == value for m, v in rows) for value in "01"]
            found = shares_of(last + 1, first, last) @ seen[: last + 1]
            assert found == pytest.approx(wanted, abs=1e-9)


# A series.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"2024-{1 + n % 3:02}-15,{int(n % 10 < 3)}" for n in range(1_500)]
    (tmp_path / "v.csv").write_text("received,value\n" + "\n".join(rows) + "\n")
    terms = {"name": "v", "epsilon": 1, "delta": 1e-6, "neighbours": BUDGET.neighbours, "calendar": MONTHS}
    create(tmp_path / "v.ledger", **terms)
    return tmp_path


def of(folder: Path, *, text: str = SCHEMA, periods: int = 3) -> Series:
    schema = parse_schema(text, origin="the schema")
    return Series(folder / "v.ledger", schema, folder / "series", workload="marginals:1", periods=periods)


def test_three_known_months(folder: Path) -> None:
    """All three cost a record of the first month the whole cap, and a fourth is refused."""
    series, given = of(folder), {"synthetic_rows": 300}
    with pytest.raises(DataError, match="name the first"):
        series.append(folder / "v.csv", BUDGET, **given)
    series.append(folder / "v.csv", BUDGET, period="2024-01", **given)
    with pytest.raises(DataError, match="the next period of this series is 2024-02"):
        series.append(folder / "v.csv", BUDGET, period="2024-03", **given)
    for _ in range(2):
        series.append(folder / "v.csv", BUDGET, **given)
    found = Books(folder / "v.ledger").read()
    assert 0.999 * found.book.cap < found.book.spent <= found.book.cap
    assert [charge.named for charge in found.charges] == ["2024-01", "2024-01..2024-02", "2024-01..2024-03"]
    assert audit(folder / "v.ledger", sorted((folder / "series").glob("2*"))).certificates == 3
    with pytest.raises(DataError, match="has 3 periods, and all have been released"):
        series.append(folder / "v.csv", BUDGET, **given)
    whole = series.so_far(bars=False)
    assert abs(whole.certificate["records"]["rows"] - 1_500) < 300
    assert abs(whole.answer("value = 1").value - 0.3) < 0.08
    assert 0.999 < whole.certificate["spent"]["epsilon"] <= 1.0001
    assert series.between("2024-02", bars=False).certificate["period"]["periods"] == "2024-02"
    whole.save(folder / "whole")
    assert verify(folder / "whole").certificate.private
    assert Books(folder / "v.ledger").read() == found


def test_what_a_known_number_is_not_for(folder: Path) -> None:
    for periods in (0, 1, 10**6):
        with pytest.raises(DataError, match="a known number of periods is a whole number"):
            of(folder, periods=periods)
    with pytest.raises(DualQueryError, match="one record is protected"):
        of(folder, text=SCHEMA.replace("period =", 'unit = "id"\nperiod ='))
    with pytest.raises(BudgetError, match="add-remove"):
        of(folder).append(folder / "v.csv", Budget(1, 1e-6), period="2024-01")
    with pytest.raises(DataError, match="one by one"):
        of(folder).append(folder / "v.csv", BUDGET, period="2024")
    assert Books(folder / "v.ledger").read().charges == ()


@pytest.mark.parametrize(
    ("neighbours", "whole"), [(Neighbours.ADD_REMOVE, PARTS), (Neighbours.IN_PARTS, PARTS + 1)]
)
def test_a_running_span_is_released_between_neighbours_that_know_its_parts(
    neighbours: Neighbours, whole: int
) -> None:
    """Without a Series: each record of the last period would count 64 times, and be charged as one."""
    rows = pa.table({"received": ["2024-01-03"] * 50, "value": ["0"] * 50})
    budget = Budget(1, 1e-6, neighbours, Accounting.ZCDP)
    with pytest.raises(BudgetError, match="through a Series"):
        dualquery.release(
            rows,
            schema=parse_schema(SCHEMA, origin="test"),
            workload="marginals:1",
            budget=budget,
            period=span(24_288, 24_288, whole),
        )
