"""A book with a calendar: the cap is on the dearest record, and what persons lose is what it says, by brute force."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery import Budget, BudgetError, DataError, LedgerError, Neighbours, encode
from dualquery.ledger.book import USUAL_PERIODS
from dualquery.ledger.books import Books, create
from dualquery.ledger.periods import PeriodCost, PeriodsSpent, of_person
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import UNITS
from dualquery.releases.sentences import promise
from dualquery.releases.verify import audit
from dualquery.table.persons import Calendar
from dualquery.table.schema import parse_schema
from tests import house

QUARTERS = Calendar("received", "quarter")
RELATION = Neighbours.ADD_REMOVE
BUDGET = house.budget(neighbours=RELATION)
SCHEMA = """
[table]
period = "received"
calendar = "quarter"

[[attribute]]
name = "value"
values = ["0", "1"]
"""


def open_book(
    place: str | Path,
    *,
    relation: Neighbours = RELATION,
    periods: int | None = None,
    gaussian: bool = False,
) -> Books:
    create(
        place,
        name="visits",
        epsilon=1,
        delta=1e-6,
        neighbours=relation,
        calendar=QUARTERS,
        periods_per_person=periods,
        gaussian=gaussian,
    )
    return Books(place)


@pytest.mark.parametrize("gaussian", [False, True])
def test_twelve_quarters_at_the_whole_cap_and_no_thirteenth_charge_of_one(
    place: str, *, gaussian: bool
) -> None:
    books = open_book(place, gaussian=gaussian)
    accounting = Accounting.GAUSSIAN if gaussian else Accounting.ZCDP
    whole, little = (
        house.budget(epsilon, neighbours=RELATION, accounting=accounting, adaptive=gaussian)
        for epsilon in (1.0, 0.01)
    )
    for number in range(12):
        books.charge_release(None, whole, span=QUARTERS.span(f"{2022 + number // 4}-Q{number % 4 + 1}"))
    before = books.read()
    assert before.book.spent == before.book.cap
    assert [charge.units for charge in before.charges] == [before.book.cap] + [0] * 11
    for span in (QUARTERS.span("2023-Q2"), QUARTERS.span("2024-Q4..2025-Q1"), None):
        with pytest.raises(BudgetError, match="too little is left"):
            books.charge_release(None, little, span=span)
    assert books.read() == before
    books.charge_release(None, whole, span=QUARTERS.span("2025-Q1"))


def test_what_covers_a_period_adds_up_there(place: str) -> None:
    books = open_book(place)
    half = house.budget(0.4, neighbours=RELATION)
    price = books.charge_release(None, half, span=QUARTERS.span("2024")).charge.units
    for quarter in ("2024-Q2", "2024-Q3", "2024-Q2"):
        books.charge_release(None, half, span=QUARTERS.span(quarter))
    found = books.read()
    assert found.book.spent == 3 * price
    assert [charge.named for charge in found.charges] == ["2024-Q1..2024-Q4", "2024-Q2", "2024-Q3", "2024-Q2"]
    books.charge_release(None, half)  # of the whole table
    assert books.read().book.spent == 4 * price


def test_the_calendar_of_a_book_is_that_of_its_releases(place: str) -> None:
    books = open_book(place)
    for other in (Calendar("received", "month"), Calendar("born", "quarter")):
        with pytest.raises(BudgetError, match="counts in quarters by 'received'"):
            books.charge_release(None, BUDGET, span=other.span("2024"))
    assert books.read().charges == ()


def test_terms_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    terms = {"name": "v", "epsilon": 1, "delta": 1e-6, "neighbours": RELATION}
    for more in (
        {"calendar": QUARTERS, "questions": True},
        {"calendar": QUARTERS, "periods_per_person": 2},
        {"periods_per_person": 2, "neighbours": Neighbours.named("person-add-remove", 2)},
        {
            "calendar": QUARTERS,
            "periods_per_person": 0,
            "neighbours": Neighbours.named("person-add-remove", 2),
        },
    ):
        with pytest.raises(BudgetError):
            create(tmp_path / "v.ledger", **{**terms, **more})
    assert not (tmp_path / "v.ledger").exists()


def test_a_person_in_so_many_periods_has_the_cap(place: str) -> None:
    relation = Neighbours.named("person-add-remove", 3)
    books = open_book(place, relation=relation, periods=2)
    cap = books.read().book.cap
    for number, share in enumerate((0.4, 0.5, 0.3, 0.5)):
        books.charge(
            None, units=int(share * cap), what="a quarter", span=QUARTERS.span(f"2024-Q{number + 1}")
        )
    assert books.read().book.spent == 2 * int(0.5 * cap)
    with pytest.raises(BudgetError, match="too little is left in the book of 'visits' for 2024-Q3"):
        books.charge(None, units=int(0.3 * cap), what="a quarter", span=QUARTERS.span("2024-Q3"))


def test_periods_that_were_changed_are_found(tmp_path: Path) -> None:
    """Somebody moves a charge to another quarter, and makes the chain anew up to its last hash."""
    path = tmp_path / "v.ledger"
    books = open_book(path)
    for quarter in ("2024-Q1", "2024-Q1"):
        books.charge(None, units=5, what="a release", span=QUARTERS.span(quarter))
    text = sqlite3.connect(path).execute("SELECT body FROM dualquery_lines WHERE sequence = 2").fetchone()[0]
    assert json.loads(text)["periods"] == "2024-Q1=5"
    found = books.read()
    moved = replace(found, charges=(found.charges[0], replace(found.charges[1], periods="2024-Q2=5")))
    with pytest.raises(LedgerError, match="charge 2 of this book does not add up"):
        moved.added_up()
    for wrong in ("2024=5", "2024-Q1=x", "2024-Q1=-5", "2024-07=5", "2024-Q2=5, 2024-Q1=5"):
        with pytest.raises(LedgerError):
            PeriodCost.read(wrong, 5, QUARTERS)


def test_costs_are_written_as_they_are_read() -> None:
    cost = PeriodCost(0, {8096: 5, 8097: 5, 8098: 7, 8100: 7})
    text = cost.written(QUARTERS)
    assert text == "2024-Q1..2024-Q2=5, 2024-Q3=7, 2025-Q1=7"
    assert PeriodCost.read(text, 3, QUARTERS) == cost
    assert PeriodCost.read("", 3, QUARTERS) == PeriodCost(3, {})


def test_the_most_is_that_of_the_largest_periods_by_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        length, costs = int(rng.integers(1, 4)), []
        spent = PeriodsSpent(length)
        for _ in range(6):
            first, width, units = (int(rng.integers(low, 6)) for low in (0, 1, 1))
            costs.append(
                PeriodCost(units, {})
                if rng.random() < 0.2
                else PeriodCost(0, dict.fromkeys(range(first, first + width), units))
            )
            before = spent.most
            assert spent.add(costs[-1]) == spent.most - before
        whole = sum(cost.whole for cost in costs)
        cells = [sum(cost.parts.get(c, 0) for cost in costs) for c in range(12)]
        assert spent.most == whole + sum(sorted(cells)[-length:])


# By brute force: tables of three records, each of one of two persons, in one of three quarters, of one of two kinds.

VARIANCES = (4.0, 6.0, 5.0)  # of the noise in each quarter
ORDERS = (1.5, 2.0, 4.0)
PERIODS = tuple(f"2024-Q{q}" for q in (1, 2, 3))
DAYS = ("2024-03-31", "2024-04-01", "2024-07-15")
REACH = np.arange(-16, 20)
KINDS = tuple(product((0, 1), range(3), ("0", "1")))  # person, quarter, value


@cache
def counts_of(rows: tuple[tuple[int, str], ...], *, trusting: bool = False) -> tuple[tuple[int, int], ...]:
    """Of each value in each quarter, as the program reads a file with all records."""
    schema = parse_schema(SCHEMA, origin="the schema")
    frame = pa.table(
        {
            "received": pa.array([DAYS[quarter] for quarter, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )
    found = []
    for period in PERIODS:
        codes = np.asarray(encode(frame, schema if trusting else schema.during(period)).columns[0])
        found.append((int((codes == 0).sum()), int((codes == 1).sum())))
    return tuple(found)


def law(count: int, variance: float) -> np.ndarray:
    mass = np.exp(-((REACH - count) ** 2) / (2 * variance))
    return mass / mass.sum()


@cache
def joint(counts: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Of three releases, each of which counts the value that the one before chose by what it released."""
    first = law(counts[0][0], VARIANCES[0])
    chooses = (REACH > 1).astype(int)
    second = np.stack([law(counts[1][v], VARIANCES[1]) for v in chooses])
    third = np.stack([law(counts[2][v], VARIANCES[2]) for v in chooses])
    return first[:, None, None] * second[:, :, None] * third[None, :, :]


@cache
def rho(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> float:
    """The largest Rényi divergence over its order, of both directions."""
    p, q = joint(one), joint(other)
    return max(
        math.log(float((a**order * b ** (1 - order)).sum())) / (order - 1) / order
        for order in ORDERS
        for a, b in ((p, q), (q, p))
    )


def losses(*, trusting: bool = False) -> dict[tuple[int, ...], float]:
    """The largest loss of person 0 over all tables of three records, by the quarters of their records."""
    found: dict[tuple[int, ...], float] = {}
    for table in combinations_with_replacement(KINDS, 3):
        rows = tuple((quarter, value) for _, quarter, value in table)
        others = tuple((quarter, value) for person, quarter, value in table if person)
        quarters = tuple(quarter for person, quarter, _ in table if not person)
        if quarters:
            lost = rho(counts_of(rows, trusting=trusting), counts_of(others, trusting=trusting))
            found[quarters] = max(lost, found.get(quarters, 0.0))
    return found


def units(rho: float) -> int:
    return math.ceil(rho * UNITS)


def test_a_person_loses_what_the_book_says_by_brute_force() -> None:
    """One record in each of at most L consecutive quarters, for every L; and K records in a quarter."""
    lost = losses()
    prices = [1 / (2 * variance) for variance in VARIANCES]
    costs = [
        PeriodCost(0, QUARTERS.span(p).parts(units(price))) for p, price in zip(PERIODS, prices, strict=True)
    ]
    for length in (1, 2, 3):
        said = of_person(costs, length, persons=False, squared=True) / UNITS
        mine = [
            loss
            for quarters, loss in lost.items()
            if len(set(quarters)) == len(quarters) and max(quarters) - min(quarters) < length
        ]
        assert max(mine) <= said * (1 + 1e-6)
        assert max(mine) > 0.9 * said  # and no more is said than that
    for k in (1, 2):  # persons of K records a quarter pay K² as much
        persons = [PeriodCost(0, {c: k * k * u for c, u in cost.parts.items()}) for cost in costs]
        for length in (1, 2, 3):
            most = PeriodsSpent(length)
            for cost in persons:
                most.add(cost)
            mine = [
                loss
                for quarters, loss in lost.items()
                if len(set(quarters)) <= length and all(quarters.count(c) <= k for c in quarters)
            ]
            assert max(mine) <= most.most / UNITS * (1 + 1e-6)


def test_releases_that_trust_a_file_would_break_the_promise() -> None:
    """The same where each release reads the whole file: one record loses as much as in three."""
    said = max(1 / (2 * variance) for variance in VARIANCES)
    assert max(losses(trusting=True)[(c,)] for c in range(3)) > 1.5 * said


def test_a_release_of_several_periods_costs_a_person_the_square() -> None:
    """Three records in one sum, one in each quarter."""
    variance, price = 8.0, units(1 / 16)
    cost = PeriodCost(0, dict.fromkeys(range(3), price))
    for number in (1, 2, 3):
        p, q = law(0, variance), law(number, variance)
        lost = max(math.log(float((p**o * q ** (1 - o)).sum())) / (o - 1) / o for o in ORDERS)
        said = of_person([cost], number, persons=False, squared=True)
        assert lost <= said / UNITS * (1 + 1e-6) <= lost * 1.02
    uneven = of_person([PeriodCost(0, {0: price, 1: 4 * price})], 2, persons=False, squared=True)
    assert uneven == pytest.approx(9 * price, abs=2)


def test_three_lines_of_promise(place: str) -> None:
    books = open_book(place)
    for quarter in ("2024-Q1", "2024-Q2", "2024-Q3", "2024-Q4", "2025-Q1"):
        books.charge_release(None, BUDGET, span=QUARTERS.span(quarter))
    found = books.read()
    lines = found.book.promises(found.costs)
    assert len(lines) == 3
    one, several, ever = lines.values()
    assert one == "ε = 1, for ever"
    assert f"any {USUAL_PERIODS} consecutive quarters" in list(lines)[1]
    assert float(several.split()[2]) < float(ever.split()[2])
    assert "no cap" in ever


# A release of a period.


def visits(path: Path, *, number: int = 60) -> Path:
    rows = [f"2024-{1 + n % 12:02}-{1 + n % 28:02},{n % 2}" for n in range(number)]
    path.write_text("received,value\n" + "\n".join(rows) + "\n")
    return path


def test_a_release_of_a_period_is_charged_to_it(tmp_path: Path) -> None:
    books, table = open_book(tmp_path / "v.ledger"), visits(tmp_path / "v.csv")
    schema = parse_schema(SCHEMA, origin="the schema")
    given = {"schema": schema, "workload": "marginals:1", "budget": Budget(1, 1e-6, RELATION)}
    for quarter in ("2024-Q1", "2024-Q2"):
        made = dualquery.release(table, **given, ledger=tmp_path / "v.ledger", period=quarter)
        made.save(tmp_path / quarter)
        assert made.certificate["period"]["periods"] == made.certificate["book"]["periods"] == quarter
    assert audit(tmp_path / "v.ledger", [tmp_path / "2024-Q1", tmp_path / "2024-Q2"]).certificates == 2
    before = books.read()
    with pytest.raises(BudgetError, match="nothing was charged"):
        dualquery.release(table, **given, ledger=tmp_path / "v.ledger", period="2024-Q2")
    for period in ("2024-05", "some day"):
        with pytest.raises(DataError):
            dualquery.release(table, **given, ledger=tmp_path / "v.ledger", period=period)
    records = encode(table, schema)
    with pytest.raises(DataError, match="give the table itself"):
        dualquery.release(records, **given, ledger=tmp_path / "v.ledger", period="2024-Q3")
    bad = visits(tmp_path / "bad.csv")
    bad.write_text(bad.read_text() + ",1\n")
    with pytest.raises(DataError, match="has empty cells"):
        dualquery.release(bad, **given, ledger=tmp_path / "v.ledger", period="2024-Q3")
    assert books.read() == before


def test_a_record_of_the_period_is_replaced_by_one_of_the_same(tmp_path: Path) -> None:
    made = dualquery.release(
        visits(tmp_path / "v.csv"),
        schema=parse_schema(SCHEMA, origin="the schema"),
        workload="marginals:1",
        budget=Budget(1, 1e-6),
        period="2024-Q2",
    )
    assert made.certificate["records"]["rows"] == 15
    assert any("replaced by another of the same period" in line for line in promise(made.certificate))


def test_prices_are_exact() -> None:
    assert Fraction(of_person([PeriodCost(7, {})], 3, persons=False, squared=True)) == 63
    assert of_person([PeriodCost(7, {})], 3, persons=True, squared=True) == 7
    assert of_person([], 3, persons=True, squared=True) == 0
