"""A book: what it is charged with, what it refuses, and what its database refuses by itself."""

from __future__ import annotations

import os
import sqlite3
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import exc

from dualquery import Accounting, Budget, BudgetError, DualQueryError, LedgerError, Neighbours, release
from dualquery.ledger import storage
from dualquery.ledger.book import Currency, PrepaidLedger, Statement, below, written
from dualquery.ledger.books import Books, create
from dualquery.ledger.storage import engine_of
from dualquery.privacy.accounting import (
    filter_epsilon,
    gaussian_rho_units,
    mu_squared_units,
    pure_cap,
    rho_cap,
)
from dualquery.privacy.conversion import UNITS, best_order, epsilon_of, fire_units, renyi_cap, rho_units_of
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.ledger import Ledger, smallest_gaussian_scale
from dualquery.table.schema import parse_schema
from tests import house

budget = partial(house.budget, epsilon=0.5)


def open_book(place: str, *, epsilon: float = 1, delta: float = 1e-6, name: str = "people") -> Books:
    create(place, name=name, epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE)
    return Books(place)


def test_a_new_book_has_its_whole_cap(place: str) -> None:
    books = open_book(place)
    statement = books.read()
    assert statement.book.cap == rho_units_of(epsilon=1, delta=1e-6)
    assert (statement.book.spent, statement.charges, statement.head) == (0, (), statement.book.origin)
    assert books.names() == ["people"]
    assert statement.book.epsilon_left == 1


def test_charges_add_up_and_follow_each_other(place: str) -> None:
    books = open_book(place)
    heads = [books.read().head]
    for number in range(1, 4):
        entry = books.charge_release(None, budget(epsilon=0.3))
        assert entry.charge.sequence == number
        assert entry.charge.previous == heads[-1]
        assert entry.book.spent == number * rho_units_of(epsilon=0.3, delta=1e-6)
        heads.append(entry.charge.hash)
    statement = books.read("people")
    assert statement.head == heads[-1]
    assert len({charge.release for charge in statement.charges}) == 3


def test_too_little_is_refused_with_what_is_left_and_what_is_left_is_accepted(place: str) -> None:
    books = open_book(place)
    books.charge_release(None, budget(epsilon=0.8))
    before = books.read()
    with pytest.raises(BudgetError, match=r"too little is left .* release of epsilon = 0\.5") as refused:
        books.charge_release(None, budget(epsilon=0.8))
    assert "\n" not in str(refused.value)
    assert books.read() == before
    left = float(below(before.book.epsilon_left))
    books.charge_release(None, budget(epsilon=left))
    assert books.read().book.left < before.book.cap / 1000


def test_the_last_unit_can_be_charged_and_no_more(place: str) -> None:
    books = open_book(place)
    cap = books.read().book.cap
    for units in (0, -1, cap + 1, 2**62, 2**70):
        with pytest.raises(BudgetError):
            books.charge("people", units=units, what="too much")
    books.charge("people", units=cap - 1, what="all but one")
    with pytest.raises(BudgetError):
        books.charge("people", units=2, what="two")
    books.charge("people", units=1, what="one")
    with pytest.raises(BudgetError, match="epsilon = 0 "):
        books.charge("people", units=1, what="one more")
    assert books.read().book.left == 0


def test_several_books_in_one_ledger_do_not_mix(place: str) -> None:
    books = open_book(place)
    open_book(place, name="houses", epsilon=2)
    with pytest.raises(LedgerError, match="people, houses"):
        books.read()
    with pytest.raises(LedgerError, match="people, houses"):
        books.charge("cars", units=1, what="nothing")
    with pytest.raises(LedgerError, match="already"):
        open_book(place)
    books.charge("houses", units=5, what="five")
    assert [books.read(name).book.spent for name in books.names()] == [0, 5]


def test_one_relation_for_the_life_of_a_book(place: str) -> None:
    books = open_book(place)
    with pytest.raises(BudgetError, match="neighbours 'replace'"):
        books.charge_release(None, budget(neighbours=Neighbours.ADD_REMOVE))
    assert books.read().book.spent == 0


def test_one_unit_for_the_life_of_a_book(place: str) -> None:
    """Rows, persons by one column or by another, and units of a database: neighbours of one name, that differ."""
    create(place, name="v", epsilon=9, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
    books, spent = Books(place), budget(neighbours=Neighbours.ADD_REMOVE)
    books.charge_release(None, spent)  # as an older version charged, which did not say
    books.charge_release(None, spent, unit="row")
    for charge in (books.charge_release, books.refuse_unaffordable):
        with pytest.raises(BudgetError, match="protects each 'row', and this protects each 'person'"):
            charge(None, spent, unit="person")
    assert [each.unit for each in books.read().charges] == ["", "row"]
    visits = pa.table({"id": ["1", "1", "2"] * 9, "ward": ["heart", "lung", "lung"] * 9})
    wards = {"name": "ward", "values": ["heart", "lung"]}
    visit = {"name": "visit", "parent": "person", "link": "id", "at_most": 2, "attribute": [wards]}
    for schema in ({"database": {"protect": "person"}, "table": [visit]}, {"attribute": [wards]}):
        described, refused = parse_schema(schema, origin="the schema"), "table" in schema
        with pytest.raises(BudgetError, match="open another book") if refused else nullcontext():
            release(visits, schema=described, workload="marginals:1", budget=spent, ledger=place, check=0)
        assert described.protects == ("person by id" if refused else "row")
    assert len(books.read().charges) == 3


@pytest.mark.parametrize("other", ["row", "ward"])
def test_a_unit_is_told_by_its_column_and_not_by_a_name_alone(other: str) -> None:
    """A column may be called like a row, and units of one name may hang on another column."""
    wards = {"name": "sex", "values": ["f", "m"]}
    by_column = parse_schema({"table": {"unit": other}, "attribute": [wards]}, origin="the schema")
    visits = [
        {"name": "visit", "parent": "person", "link": link, "at_most": 2, "attribute": [wards]}
        for link in ("id", other)
    ]
    one, two = (
        parse_schema({"database": {"protect": "person"}, "table": [each]}, origin="the schema")
        for each in visits
    )
    rows = parse_schema({"attribute": [wards]}, origin="the schema")
    assert by_column.protects != rows.protects
    assert one.protects != two.protects


def test_a_book_of_pure_releases(place: str) -> None:
    books = open_book(place, epsilon=0.3, delta=0)
    for _ in range(3):
        books.charge_release(None, budget(epsilon=0.1, accounting=Accounting.PURE))
    statement = books.read()
    assert statement.book.spent == statement.book.cap == 3 * 10**11
    assert statement.book.epsilon_left == 0
    with pytest.raises(BudgetError, match="pure"):
        books.charge_release(None, budget(epsilon=0.001))


def test_a_book_of_gaussian_noise_adds_up_what_filters_promise(place: str) -> None:
    create(place, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, gaussian=True)
    books, half = Books(place), budget(accounting=Accounting.GAUSSIAN, adaptive=True)
    cap, each = (mu_squared_units(epsilon=epsilon, delta=1e-6) for epsilon in (1.0, 0.5))
    for number in (1, 2, 3):
        book = books.charge_release(None, half).book
        assert (book.cap, book.spent) == (cap, number * each)
        assert filter_epsilon(Fraction(book.spent, UNITS), delta=1e-6) <= book.epsilon_spent <= 1
        assert mu_squared_units(epsilon=float(below(book.epsilon_left)), delta=1e-6) <= book.left
    assert cap / 2 > 1.1 * rho_units_of(epsilon=1.0, delta=1e-6)  # more noise's worth than a book of ρ has
    with pytest.raises(BudgetError, match="too little is left"):
        books.charge_release(None, half)
    for refused in (budget(), budget(accounting=Accounting.GAUSSIAN), budget(accounting=Accounting.RENYI)):
        with pytest.raises(BudgetError, match="Gaussian noise alone"):  # ρ, and what is no filter
            books.charge_release(None, refused)
    assert books.read().book.spent == 3 * each
    reserve = book.reserve(Fraction(0), Fraction(1, 10**7))
    assert reserve == cap - mu_squared_units(epsilon=1.0, delta=9e-7)


def test_a_book_of_gaussian_noise_has_a_delta_and_takes_no_questions(place: str) -> None:
    for wrong in ({"delta": 0.0}, {"delta": 1e-6, "questions": True}):
        with pytest.raises(BudgetError, match="leave --gaussian out"):
            create(place, name="a", epsilon=1, neighbours=Neighbours.REPLACE, gaussian=True, **wrong)  # type: ignore[arg-type]


def test_a_book_takes_as_many_charges_as_its_proof_has_room_for(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualquery.ledger.books.MOST_RELEASES", 2)
    books = open_book(place)
    for _ in range(2):
        books.charge("people", units=1, what="some")
    with pytest.raises(BudgetError, match="takes no more"):
        books.charge("people", units=1, what="some")


@pytest.mark.parametrize("accounting", [Accounting.THEOREM_4_3, Accounting.RENYI])
def test_what_does_not_add_up_is_refused(accounting: Accounting) -> None:
    with pytest.raises(BudgetError, match="--questions" if accounting is Accounting.RENYI else "use zcdp"):
        Currency.RHO.price(budget(accounting=accounting))
    with pytest.raises(BudgetError, match="pure"):
        Currency.EPSILON.price(budget(accounting=accounting))


@settings(max_examples=12)
@given(st.floats(0.01, 20), st.sampled_from([1e-3, 1e-6, 1e-12]), st.integers(1, 40))
def test_no_gaussian_ledger_pays_more_than_its_release_was_charged(
    epsilon: float, delta: float, number: int
) -> None:
    """The plan that uses up the budget: it stays below the charge, and not far below where noise is wide."""
    given_budget = Budget(
        epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=Accounting.GAUSSIAN
    )
    noises = [GaussianMeasurement(Fraction(2), Fraction(100 * (i + 1))) for i in range(number)]
    factor = smallest_gaussian_scale(given_budget, noises)
    ledger = Ledger(given_budget)
    ledger.charge(*(GaussianMeasurement(n.sensitivity_squared, n.variance * factor) for n in noises))
    paid = ledger.spent().rho_units
    assert paid is not None
    assert paid <= rho_cap(given_budget)
    assert rho_cap(given_budget) >= rho_units_of(epsilon=epsilon, delta=delta)
    if epsilon < 0.5:  # there the discrete noise is wide, and nearly as good as real noise
        assert paid > 0.95 * rho_cap(given_budget) - 200


def test_a_gaussian_ledger_refuses_rho_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its theorem says: the limit is part of the ledger, not an estimate of it."""
    from dualquery.privacy import accounting

    limit = rho_units_of(epsilon=0.5, delta=1e-6) + 10
    monkeypatch.setattr(accounting, "gaussian_rho_units", lambda **_: limit)
    paying = Ledger(budget(accounting=Accounting.GAUSSIAN))
    paying.charge(GaussianMeasurement(Fraction(1), Fraction(UNITS, 2 * limit)))
    assert paying.spent().rho_units == limit
    with pytest.raises(BudgetError):
        Ledger(budget(accounting=Accounting.GAUSSIAN)).charge(
            GaussianMeasurement(Fraction(1), Fraction(UNITS, 2 * (limit + 1)))
        )


def test_prices() -> None:
    assert rho_cap(budget(epsilon=1.0)) == rho_units_of(epsilon=1.0, delta=1e-6)
    assert rho_cap(budget(epsilon=0.1, accounting=Accounting.PURE)) == 5 * 10**9  # ε²/2
    assert pure_cap(budget(epsilon=0.1, accounting=Accounting.PURE)) == 10**11
    assert 1.1 < gaussian_rho_units(epsilon=1.0, delta=1e-6) / rho_cap(budget(epsilon=1.0)) < 1.2
    with pytest.raises(BudgetError):
        Currency.EPSILON.price(budget(epsilon=1e-13, accounting=Accounting.PURE))
    with pytest.raises(BudgetError):
        Currency.EPSILON.price(budget(epsilon=1e9, accounting=Accounting.PURE))


def test_what_is_left_and_spent_never_promise_too_much(tmp_path: Path) -> None:
    books = open_book(str(tmp_path / "ledger"))
    cap = books.read().book.cap
    for _ in range(20):
        book = books.charge("people", units=cap // 21, what="some").book
        assert epsilon_of(Fraction(book.spent, UNITS), delta=1e-6) <= book.epsilon_spent <= 1
        assert rho_units_of(epsilon=float(below(book.epsilon_left)), delta=1e-6) <= book.left


def test_a_prepaid_ledger_charges_the_book_once_and_first(place: str) -> None:
    books = open_book(place)
    ledger = PrepaidLedger(budget(), books=books, dataset=None)
    assert books.read().book.spent == 0
    ledger.charge(LaplaceMeasurement(1, Fraction(1000)))
    whole = rho_units_of(epsilon=0.5, delta=1e-6)
    assert books.read().book.spent == whole
    ledger.charge(LaplaceMeasurement(1, Fraction(1000)))
    assert ledger.prepay().charge.sequence == 1
    assert books.read().book.spent == whole


def test_a_prepaid_ledger_pays_for_nothing_that_its_book_refuses(place: str) -> None:
    books = open_book(place)
    ledger = PrepaidLedger(budget(epsilon=0.8), books=books, dataset="people")
    books.charge_release(None, budget(epsilon=0.8))  # somebody else was faster
    for _ in range(2):
        with pytest.raises(BudgetError, match="too little"):
            ledger.charge(LaplaceMeasurement(1, Fraction(1000)))
    assert ledger.events == ()
    with pytest.raises(BudgetError, match="too little"):
        PrepaidLedger(budget(epsilon=0.8), books=books, dataset="people")


FORBIDDEN = [
    "UPDATE dualquery_chains SET spent = spent - 1",
    "UPDATE dualquery_chains SET spent = spent - 1, length = length + 1",
    "UPDATE dualquery_chains SET spent = spent + 1",
    "UPDATE dualquery_chains SET spent = cap + 1, length = length + 1",
    "UPDATE dualquery_chains SET length = length - 1",
    "UPDATE dualquery_chains SET head = 'x'",
    "UPDATE dualquery_chains SET cap = cap * 2, length = length + 1",
    "UPDATE dualquery_chains SET name = 'other', length = length + 1",
    "UPDATE dualquery_chains SET promise = '{}', length = length + 1",
    "UPDATE dualquery_chains SET id = 7, length = length + 1",
    "DELETE FROM dualquery_chains",
    "UPDATE dualquery_lines SET units = 1",
    "UPDATE dualquery_lines SET hash = hash",
    "DELETE FROM dualquery_lines",
    "DELETE FROM dualquery_lines WHERE sequence = 2",
    "INSERT INTO dualquery_lines (chain, sequence, kind, analyst, key, request, body, reply, units, spent_after, "
    "previous, hash) SELECT chain, 3, kind, analyst, 'x', request, body, reply, 1, spent_after + 1, hash, 'x' "
    "FROM dualquery_lines WHERE sequence = 2",
    "INSERT INTO dualquery_lines (chain, sequence, kind, analyst, key, request, body, reply, units, spent_after, "
    "previous, hash) SELECT chain, 2, kind, analyst, 'x', request, body, reply, units, spent_after, previous, 'x' "
    "FROM dualquery_lines WHERE sequence = 2",
    "INSERT INTO dualquery_chains (format, kind, name, nonce, promise, cap, created, origin, length, head, spent) "
    "SELECT format, kind, 'y', nonce, promise, cap, created, origin, 0, origin, 1 FROM dualquery_chains",
    "INSERT INTO dualquery_chains (format, kind, name, nonce, promise, cap, created, origin, length, head, spent) "
    "SELECT format, kind, 'y', nonce, promise, cap, created, origin, length, head, 0 FROM dualquery_chains",
]
OF_A_FILE = [
    "REPLACE INTO dualquery_chains SELECT id, format, kind, name, nonce, promise, cap, created, origin, 0, origin, "
    "0 FROM dualquery_chains",
    "REPLACE INTO dualquery_lines SELECT chain, sequence, kind, analyst, key, request, body, reply, 1, spent_after, "
    "previous, hash FROM dualquery_lines",
]
OF_A_SERVER = ["TRUNCATE dualquery_lines", "TRUNCATE dualquery_chains, dualquery_lines"]


def test_the_database_itself_refuses_to_forget(place: str) -> None:
    books = open_book(place)
    for _ in range(2):
        books.charge("people", units=1000, what="some")
    before = books.read()
    engine = engine_of(place)
    more = OF_A_SERVER if engine.dialect.name == "postgresql" else OF_A_FILE
    for statement in FORBIDDEN + more:
        with pytest.raises(exc.DBAPIError), engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert books.read() == before, statement


def test_spending_without_a_charge_is_found(place: str) -> None:
    books = open_book(place)
    with engine_of(place).begin() as connection:
        connection.exec_driver_sql("UPDATE dualquery_chains SET spent = spent + 1, length = length + 1")
    with pytest.raises(LedgerError, match="what it says is spent"):
        books.read()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER dualquery_lines_keep ON dualquery_lines",
        "ALTER TABLE dualquery_lines DISABLE TRIGGER dualquery_lines_keep",
        "ALTER TABLE dualquery_chains DROP CONSTRAINT dualquery_within_the_cap",
        "DROP TABLE dualquery_lines",
        "CREATE TRIGGER dualquery_more BEFORE INSERT ON dualquery_chains EXECUTE FUNCTION dualquery_refuse()",
    ],
)
def test_a_server_without_its_guards_is_refused(server: Any, statement: str) -> None:
    place = server.new_database()
    books = open_book(place)
    with engine_of(place).begin() as connection:
        connection.exec_driver_sql(statement)
    with pytest.raises(LedgerError, match="triggers were changed"):
        books.charge("people", units=1, what="some")


def test_a_charge_without_its_update_or_past_the_cap_is_refused_by_the_constraint(place: str) -> None:
    """What would happen if our own condition were wrong: the database says no."""
    books = open_book(place)
    cap = books.read().book.cap
    with pytest.raises(exc.IntegrityError), engine_of(place).begin() as connection:
        connection.execute(
            sql.text("UPDATE dualquery_chains SET spent = :x, length = length + 1"), {"x": cap + 1}
        )


def test_places_that_are_no_ledger_are_refused_in_a_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a ledger\n" * 1000)
    empty = tmp_path / "empty"
    empty.touch()
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE dualquery_chains (id INTEGER)")
    connection.close()
    places = [
        text, empty, foreign, tmp_path, tmp_path / "missing", "mysql://u:secret@h/d", "://", "postgresql://",
        "postgresql://nobody:secret@127.0.0.1:1/none", "postgresql://x:secret@h:port/d", "nonsense://x", "",
    ]  # fmt: skip
    for place in places:
        with pytest.raises(DualQueryError) as refused:
            Books(place).read()
        assert "\n" not in str(refused.value)
        assert "secret" not in str(refused.value)
    assert not (tmp_path / "missing").exists()
    for place in (text, foreign, tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(LedgerError):
            open_book(str(place))
    open_book(str(empty)).charge("people", units=1, what="an empty file may become a ledger")


def test_a_wrong_password_is_not_repeated(server: Any) -> None:
    place = server.new_database().replace(server.password, "wrong-password")
    with pytest.raises(LedgerError, match="cannot be reached") as refused:
        Books(place).read()
    assert "wrong-password" not in str(refused.value)


def test_a_server_that_does_not_sync_is_refused(server: Any) -> None:
    place = server.new_database()
    books = open_book(place)
    with engine_of(place).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
        try:
            for _ in range(50):
                try:
                    books.charge("people", units=1, what="some")
                except LedgerError as error:
                    refused = str(error)
                    break
                connection.exec_driver_sql("SELECT pg_sleep(0.1)")
            else:
                pytest.fail("the server did not take the setting")
            assert "fsync" in refused
        finally:
            connection.exec_driver_sql("ALTER SYSTEM RESET fsync")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
            connection.exec_driver_sql("SELECT pg_sleep(0.5)")


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write everything")
    books = open_book(str(tmp_path / "ledger"))
    (tmp_path / "ledger").chmod(0o444)
    assert isinstance(books.read(), Statement)
    with pytest.raises(LedgerError, match="may not be written"):
        books.charge("people", units=1, what="some")


def test_a_locked_file_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PATIENCE", 0.1)
    path = tmp_path / "ledger"
    books = open_book(str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="try again"):
        books.charge("people", units=1, what="some")
    other.close()
    books.charge("people", units=1, what="some")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, "\0"])
def test_names_that_cannot_be_printed_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BudgetError):
        open_book(str(tmp_path / "ledger"), name=name)


def test_failures_are_reserved_for_in_what_may_be_spent(place: str) -> None:
    """All failures f and all ρ together keep (ε, δ): ρ within what (ε, δ − f) allows, however they were charged."""
    books, failure = open_book(place), Fraction(1, 10**7)
    rho, before = 0, 0
    for number in (1, 2, 3):
        entry = books.charge_release(None, budget(epsilon=0.3), kind="private draft", failure=failure)
        rho += rho_units_of(epsilon=0.3, delta=1e-6)
        reserve = books.read().book.spent - rho
        assert reserve == books.read().book.cap - rho_units_of(epsilon=1, delta=float(10 - number) / 10**7)
        assert entry.charge.failure == str(failure)
        assert reserve > before
        before = reserve
    assert books.read().failures == 3 * failure
    left = books.read().book.epsilon_left
    books.charge_release(None, budget(epsilon=left))
    assert epsilon_of(Fraction(rho + rho_units_of(epsilon=left, delta=1e-6), UNITS), delta=7e-7) <= 1


def test_the_reserve_of_a_book_for_questions_is_what_its_cap_loses(place: str) -> None:
    create(place, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, questions=True)
    book = Books(place).read().book
    lost = book.cap - renyi_cap(epsilon=1, delta=9e-7, order=book.order)
    assert book.reserve(Fraction(0), Fraction(1, 10**7)) == lost > 0


def test_failures_that_no_book_can_hold_are_refused_and_charge_nothing(place: str) -> None:
    books = open_book(place)
    for failure in (Fraction(1, 10**6), Fraction(1, 1000)):
        with pytest.raises(BudgetError, match="no delta is left"):
            books.charge_release(None, budget(epsilon=0.3), failure=failure)
        with pytest.raises(BudgetError, match="no delta is left"):
            books.refuse_unaffordable(None, budget(epsilon=0.3), failure=failure)
    with pytest.raises(BudgetError, match="too little is left"):  # its ρ alone would fit
        books.refuse_unaffordable(None, budget(epsilon=1), failure=Fraction(1, 10**8))
    assert books.read().charges == ()
    create(place, name="pure", epsilon=1, delta=0, neighbours=Neighbours.REPLACE)
    with pytest.raises(BudgetError, match="has no delta"):
        books.read("pure").book.reserve(Fraction(0), Fraction(1, 10**9))


def test_a_prepaid_ledger_reserves_for_what_it_may_risk(place: str) -> None:
    books = open_book(place)
    ledger = PrepaidLedger(
        budget(epsilon=0.3), books=books, dataset=None, kind="private draft", failure=Fraction(1, 10**7)
    )
    assert books.read().charges == ()
    ledger.risk(Fraction(1, 10**8))
    (charge,) = books.read().charges
    assert charge.failure == "1/10000000"
    assert charge.what.startswith("private draft: ")


def test_written_units_are_exact() -> None:
    assert written(24355970359) == "0.024355970359"
    assert written(12 * UNITS + 1) == "12.000000000001"


# ── Books for questions ─────────────────────────────────────────────────────────────────────────────────────────


def service(epsilon: float, delta: float = 1e-6) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, accounting=Accounting.RENYI)


def questions_book(place: str) -> Books:
    create(place, name="people", epsilon=2.0, delta=1e-6, neighbours=Neighbours.REPLACE, questions=True)
    return Books(place)


def test_one_book_holds_releases_and_a_service(place: str) -> None:
    """All at one order: α ρ for a release, the cap of a service at its own, larger order."""
    books = questions_book(place)
    book = books.read().book
    assert (book.currency, book.order) == ("renyi", best_order(epsilon=2.0, delta=1e-6))
    assert book.cap == renyi_cap(epsilon=2.0, delta=1e-6, order=book.order)
    assert book.price(budget()) == book.order * rho_units_of(epsilon=0.5, delta=1e-6)
    assert book.price(service(2.0)) == book.cap
    first = books.charge_release("people", budget()).charge
    second = books.charge_release("people", service(1.0), kind="service").charge
    assert (first.what.split(":")[0], second.what.split(":")[0]) == ("release", "service")
    spent = books.read().book
    assert spent.spent == first.units + second.units
    assert 1.0 < spent.epsilon_spent <= 2.0
    with pytest.raises(BudgetError, match="too little is left"):
        books.charge_release("people", service(1.5), kind="service")
    assert books.read().book == spent
    books.charge_release("people", budget(epsilon=float(below(spent.epsilon_left))))
    assert books.read().book.left < book.cap / 100


def test_what_no_book_for_questions_can_add_up_is_refused(place: str) -> None:
    books = questions_book(place)
    book = books.read().book
    with pytest.raises(BudgetError, match="says nothing about a larger one"):
        book.price(service(1.0, delta=0.1))
    with pytest.raises(BudgetError, match="need a delta"):
        create(place, name="b", epsilon=1, delta=0, neighbours=Neighbours.REPLACE, questions=True)
    create(place, name="others", epsilon=2.0, delta=1e-6, neighbours=Neighbours.REPLACE)
    with pytest.raises(BudgetError, match="--questions"):
        books.charge_release("others", service(1.0), kind="service")
    assert books.read("others").charges == ()


def test_the_price_of_a_fire_grows_with_the_order() -> None:
    """So that what a service pays at its own order covers what it costs at the smaller one of a book."""
    for epsilon in (Fraction(1, 1000), Fraction(1, 200), Fraction(1, 60)):
        prices = [fire_units(epsilon=epsilon, sensitivity=1, order=order) for order in range(2, 60)]
        assert prices == sorted(prices)
