"""A table that grows: what is added up, what a release starts from, and that nothing is lost or drawn uncharged."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dualquery
from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    DataError,
    DualQueryError,
    Neighbours,
    ReleaseError,
    Series,
)
from dualquery.cli import run
from dualquery.fitting.measured import Measured, MeasuredTables
from dualquery.ledger.books import Books, create
from dualquery.releases import series as room
from dualquery.releases.certificate import RowsFrom
from dualquery.releases.sums import added
from dualquery.releases.verify import audit, verify
from dualquery.table.domain import Categorical, Domain
from dualquery.table.persons import Calendar

SCHEMA = """
[table]
period = "received"
calendar = "quarter"

[[attribute]]
name = "sex"
values = ["f", "m"]

[[attribute]]
name = "region"
values = ["a", "b", "c"]
"""
BUDGET = Budget(1, 1e-6, Neighbours.ADD_REMOVE)
PURE = Budget(1, 0, Neighbours.ADD_REMOVE, Accounting.PURE)
FAST = {"check": 0, "synthetic_rows": 300}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with a calendar, a table of a year, and no release yet."""
    rng = np.random.default_rng(0)
    rows = [
        f"2024-{1 + n % 12:02}-15,{'fm'[int(rng.random() < 0.3)]},{'abc'[int(rng.integers(3))]}"
        for n in range(1_200)
    ]
    (tmp_path / "v.csv").write_text("received,sex,region\n" + "\n".join(rows) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    create(
        tmp_path / "v.ledger",
        name="v",
        epsilon=1,
        delta=1e-6,
        neighbours=BUDGET.neighbours,
        calendar=Calendar("received", "quarter"),
    )
    return tmp_path


def of(folder: Path) -> Series:
    return Series(folder / "v.ledger", folder / "schema.toml", folder / "series")


def test_a_year_of_quarters(folder: Path) -> None:
    """Each is charged by itself and starts from those before; ranges are free."""
    series = of(folder)
    with pytest.raises(DataError, match="name the first period"):
        series.append(folder / "v.csv", BUDGET)
    with pytest.raises(BudgetError, match="a delta above 0"):
        series.append(folder / "v.csv", PURE, period="2024-Q1")
    with pytest.raises(DataError, match="totals are for a single release"):
        series.append(folder / "v.csv", BUDGET, period="2024-Q1", totals=folder / "population.csv")
    series.append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)
    made = [series.append(folder / "v.csv", BUDGET, **FAST) for _ in range(2)]
    assert series.periods == ("2024-Q1", "2024-Q2", "2024-Q3")
    before = Books(folder / "v.ledger").read()
    assert before.book.spent == before.book.cap
    assert [each.certificate["prior"][0]["origin"][:16] for each in made] == ["a release of ε ="] * 2
    assert series.current.certificate["period"]["periods"] == "2024-Q3"
    part, whole = series.between("2024-Q1", "2024-Q2"), series.so_far()
    assert part.certificate["period"]["periods"] == "2024-Q1..2024-Q2"
    assert abs(whole.certificate["records"]["rows"] - 900) < 300
    assert whole.certificate["spent"]["epsilon"] <= 1
    assert "book" not in whole.certificate
    found = whole.answer("sex = m")
    assert abs(found.value - 0.3) < 0.1
    assert found.error is not None
    assert found.error < 0.1
    whole.save(folder / "whole")
    assert verify(folder / "whole").certificate.private
    assert Books(folder / "v.ledger").read() == before
    assert audit(folder / "v.ledger", sorted((folder / "series").glob("2*"))).certificates == 3
    with pytest.raises(DataError, match="not all of"):
        series.between("2024")
    with pytest.raises(BudgetError, match="nothing was charged"):
        Series(folder / "v.ledger", folder / "schema.toml", folder / "other").append(
            folder / "v.csv", BUDGET, period="2024-Q2", **FAST
        )
    with pytest.raises(ReleaseError, match="already holds a release"):
        series.append(folder / "v.csv", BUDGET, period="2024-Q2", **FAST)
    assert Books(folder / "v.ledger").read() == before
    lines = Series.opened(folder / "series")
    assert lines.periods == series.periods
    with pytest.raises(DataError, match="name the ledger"):
        lines.append(folder / "v.csv", BUDGET)
    assert run(["series", "show", str(folder / "series")]) == 0
    assert (
        run(["series", "ask", str(folder / "series"), "--period", "2024-Q1..2024-Q2", "sex = m", "--json"])
        == 0
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda text: text.replace('period = "received"\ncalendar = "quarter"\n', ""),
            "a schema with a calendar",
        ),
        (lambda text: text.replace("quarter", "month"), "counts in quarters"),
    ],
)
def test_a_series_needs_the_calendar_of_its_book(
    folder: Path, change: Callable[[str], str], words: str
) -> None:
    (folder / "other.toml").write_text(change(SCHEMA))
    with pytest.raises(DualQueryError, match=words):
        Series(folder / "v.ledger", folder / "other.toml").append(
            folder / "v.csv", BUDGET, period="2024-01", **FAST
        )
    assert Books(folder / "v.ledger").read().charges == ()


def test_refusals_of_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--schema", str(folder / "schema.toml"), "--ledger", str(folder / "v.ledger"), "--epsilon", "1"]
    common += ["--delta", "1e-6", "--neighbours", "add-remove"]
    (folder / "bad.csv").write_text((folder / "v.csv").read_text() + ",f,a\n")
    (folder / "no.csv").write_text((folder / "v.csv").read_text() + "2024-13-45,f,a\n")
    (folder / "far.csv").write_text((folder / "v.csv").read_text() + "2024,f,a\n")
    for arguments, words in (
        (["append", str(folder / "s"), str(folder / "v.csv"), *common], "Name the first period"),
        (
            ["append", str(folder / "s"), str(folder / "v.csv"), *common, "--period", "2024-05"],
            "whole quarters",
        ),
        (
            ["append", str(folder / "s"), str(folder / "bad.csv"), *common, "--period", "2024-Q1"],
            "empty cells",
        ),
        (
            ["append", str(folder / "s"), str(folder / "far.csv"), *common, "--period", "2024-Q1"],
            "longer than a quarter",
        ),
        (
            ["append", str(folder / "s"), str(folder / "no.csv"), *common, "--period", "2024-Q1"],
            "'received'",
        ),
        (
            ["append", str(folder / "s"), str(folder / "v.csv"), *common[:6], "--period", "2024-Q1"],
            "Give --delta",
        ),
        (["ask", str(folder / "s"), "sex = m"], "is no series"),
        (["ask", str(folder / "s"), "--so-far", "--period", "2024"], "two different questions"),
        (["ask", str(folder / "s")], "no query to answer"),
    ):
        assert run(["series", *arguments]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") <= 2
        assert "Traceback" not in said
    assert Books(folder / "v.ledger").read().charges == ()


# Sums, by definition.

DOMAIN = Domain((Categorical("a", ("0", "1")), Categorical("b", ("0", "1", "2"))))


def tables(number: float, *told: Measured) -> MeasuredTables:
    return MeasuredTables.rows(DOMAIN, number, 3.0).joined(told)


def test_cells_and_variances_add_up() -> None:
    one = tables(10.0, Measured((0,), np.array([2.0, -2.0]), 5.0))
    other = tables(30.0, Measured((0,), np.array([1.0, -1.0]), 7.0))
    found = added([one, other])
    assert found.total == 40
    assert found.variance == {(): 6.0, (0,): 12.0}
    assert found.interactions[(0,)].tolist() == [3.0, -3.0]


def test_what_some_have_not_measured_is_taken_like_the_others() -> None:
    one = tables(10.0, Measured((0,), np.array([2.0, -2.0]), 5.0))
    found = added([one, tables(30.0)])
    assert found.interactions[(0,)].tolist() == [8.0, -8.0]
    assert found.variance[(0,)] == pytest.approx(16 * 5.0 + 900 * (1 / 10 + 1 / 30) / 2)


# Whatever is killed.


def test_what_fails_between_charge_and_folder_costs_that_release_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = of(folder)
    series.append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(room, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            series.append(folder / "v.csv", BUDGET, **FAST)
    assert series.periods == ("2024-Q1",)
    assert len(Books(folder / "v.ledger").read().charges) == 2
    series.append(folder / "v.csv", BUDGET, **FAST)  # the next that was never charged
    assert series.periods == ("2024-Q1", "2024-Q3")


def test_a_period_that_was_charged_and_never_released_leaves_a_gap(folder: Path) -> None:
    series = of(folder)
    for period in ("2024-Q1", "2024-Q3"):
        series.append(folder / "v.csv", BUDGET, period=period, **FAST)
    whole = series.so_far(bars=False)
    assert whole.certificate["period"]["periods"] == "2024-Q1, 2024-Q3"
    assert abs(whole.certificate["records"]["rows"] - 600) < 200
    whole.save(folder / "whole")
    assert verify(folder / "whole").certificate.private
    with pytest.raises(DataError, match="not all of"):
        series.between("2024-Q1", "2024-Q3")


def test_the_same_period_twice_at_once_is_refused(folder: Path) -> None:
    series = of(folder)
    with room._alone(series.folder / "2024-Q1"), pytest.raises(ReleaseError, match="being appended already"):
        series.append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)
    assert Books(folder / "v.ledger").read().charges == ()


def killed(folder: Path, periods: list[str], seed: int) -> dict[str, int]:
    """Eight processes at once, each appends a quarter; all but two are killed at a moment of chance."""
    chance, drawn = random.Random(seed), folder / "drawn"
    source = str(Path(dualquery.__file__).resolve().parents[1])
    worker = str(Path(__file__).with_name("series_worker.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, worker, str(folder), period, str(drawn)],
            env={**os.environ, "PYTHONPATH": source, "NUMBA_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for period in periods
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
    spared = processes[:2]
    for process in sorted(processes[2:], key=lambda _: chance.random()):
        time.sleep(chance.uniform(0, 2.0))
        process.kill()
    for process in processes:
        process.wait(timeout=600)
    assert all(process.returncode == 0 for process in spared)
    statement, series = Books(folder / "v.ledger").read(), of(folder)
    charged = {charge.named for charge in statement.charges}
    lines = set(drawn.read_text().split()) if drawn.exists() else set()
    assert lines <= charged, "drawn and not charged"
    assert set(series.periods) <= charged, "released and not charged"
    assert set(periods[:2]) <= set(series.periods), "lost"
    assert audit(folder / "v.ledger", [folder / "series" / each for each in series.periods])
    series.so_far(bars=False)
    return {"charged": len(charged), "drawn": len(lines), "released": len(series.periods)}


@pytest.mark.long
def test_eight_processes_killed_while_they_append(folder: Path) -> None:
    seen: list[dict[str, int]] = []
    for turn in range(4):
        years = [f"{2024 + 2 * turn + n // 4}-Q{n % 4 + 1}" for n in range(8)]
        seen.append(killed(folder, years, seed=turn))
    print(seen)


@pytest.mark.long
def test_two_processes_append_at_once(folder: Path) -> None:
    assert killed(folder, ["2024-Q1", "2024-Q2"], seed=0) == {"charged": 2, "drawn": 2, "released": 2}


PERSONS = """
[table]
unit = "who"
period = "received"
calendar = "quarter"

[[attribute]]
name = "sex"
values = ["f", "m"]

[[attribute]]
name = "region"
values = ["a", "b", "c"]
"""


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_person_pays_for_each_of_the_periods_that_are_added_up(tmp_path: Path, gaussian: bool) -> None:
    """Of a person K records count in each period, so that a sum of two periods holds 2 K of them."""
    rng = np.random.default_rng(0)
    rows = [
        f"p{rng.integers(400)},2024-{month:02}-15,{'fm'[int(rng.integers(2))]},{'abc'[int(rng.integers(3))]}"
        for month in (2, 5)
        for _ in range(1_500)
    ]
    (tmp_path / "v.csv").write_text("who,received,sex,region\n" + "\n".join(rows) + "\n")
    (tmp_path / "schema.toml").write_text(PERSONS)
    persons = Neighbours.named("person-add-remove", 2)
    create(
        tmp_path / "v.ledger",
        name="v",
        epsilon=9,
        delta=1e-6,
        neighbours=persons,
        calendar=Calendar("received", "quarter"),
        periods_per_person=2,
        gaussian=gaussian,
    )
    series, budget = of(tmp_path), Budget(3, 1e-6, persons)
    for period in ("2024-Q1", "2024-Q2"):
        series.append(tmp_path / "v.csv", budget, period=period, **FAST)
    book = Books(tmp_path / "v.ledger").read().book
    both = series.so_far(bars=False).certificate
    if gaussian:  # as ρ, which is a little more
        assert book.epsilon_spent < both["spent"]["epsilon"] < 1.15 * book.epsilon_spent
    else:
        assert both["spent"]["epsilon"] == pytest.approx(book.epsilon_spent, rel=1e-6)
    assert both["budget"]["accounting"] == "zcdp"
    assert both["spent"]["epsilon"] > 4
    assert both["budget"]["epsilon"] >= both["spent"]["epsilon"]
    assert both["several"]["2"] >= 2 * both["spent"]["epsilon"]
    assert "each of 2 periods" in both["budget"]["neighbours_words"]
    series.so_far(bars=False).save(tmp_path / "both")
    assert verify(tmp_path / "both").recounted.epsilon <= both["spent"]["epsilon"]
    assert series.between("2024-Q1", bars=False).certificate["spent"]["epsilon"] <= 3
    if gaussian:
        with pytest.raises(BudgetError, match="too little is left"):  # starts from the sum of those before
            series.append(tmp_path / "v.csv", Budget(8.9, 1e-6, persons), period="2024-Q3", **FAST)


def test_a_sum_promises_no_more_than_any_of_its_releases(folder: Path) -> None:
    """(max ε, max δ); a draft, a seed or a warning of one of them is one of the sum; a verdict is of one."""
    create(
        folder / "w.ledger",
        name="w",
        epsilon=3,
        delta=1e-5,
        neighbours=Neighbours.REPLACE,
        calendar=Calendar("received", "quarter"),
    )
    (folder / "draft.toml").write_text("draft = true\n" + SCHEMA)
    parts = [
        Series(folder / "w.ledger", folder / schema, folder / period).append(
            folder / "v.csv", budget, period=period, synthetic_rows=300
        )
        for period, schema, budget in (
            ("2024-Q1", "draft.toml", Budget(0.5, 1e-5)),
            ("2024-Q2", "schema.toml", Budget(2, 1e-7)),
        )
    ]
    found = room.summed(parts, Calendar("received", "quarter"), bars=False)
    assert found.certificate["spent"]["epsilon"] == pytest.approx(2)
    assert found.certificate["spent"]["delta"] == found.certificate["budget"]["delta"] == 1e-5
    assert not found.certificate.private
    assert "draft" in " ".join(found.certificate["warnings"])
    assert found.certificate["records"] == {"rows": 600, "from": RowsFrom.TABLE.value}
    found.save(folder / "both")
    assert verify(folder / "both").recounted.epsilon <= 2


def test_periods_of_a_series_come_one_by_one_and_count_once(folder: Path) -> None:
    series = of(folder)
    with pytest.raises(DataError, match="one by one"):
        series.append(folder / "v.csv", BUDGET, period="2024-Q1..2024-Q2", **FAST)
    assert Books(folder / "v.ledger").read().charges == ()
    series.append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)
    made = dualquery.Release.load(folder / "series" / "2024-Q1")
    with pytest.raises(DualQueryError, match="the same period"):
        room.summed([made, made], Calendar("received", "quarter"))


def test_a_series_goes_on_the_way_it_was_begun(folder: Path) -> None:
    """Another number of periods would make another promise; nothing is charged for the attempt."""

    def known(periods: int | None) -> Series:
        return Series(folder / "v.ledger", folder / "schema.toml", folder / "series", periods=periods)

    known(3).append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)
    before = Books(folder / "v.ledger").read()
    for periods, budget in ((12, BUDGET), (3, Budget(0.5, 1e-6, Neighbours.ADD_REMOVE)), (None, BUDGET)):
        with pytest.raises(DataError, match="begun with another number of periods"):
            known(periods).append(folder / "v.csv", budget, **FAST)
    assert Books(folder / "v.ledger").read() == before
    known(3).append(folder / "v.csv", BUDGET, **FAST)


def test_the_next_period_is_that_after_the_series_and_not_after_another_release(folder: Path) -> None:
    series = of(folder)
    dualquery.release(
        str(folder / "v.csv"),
        schema=str(folder / "schema.toml"),
        workload="marginals:2",
        budget=BUDGET,
        period="2024-Q3",
        ledger=str(folder / "v.ledger"),
        **FAST,
    )
    series.append(folder / "v.csv", BUDGET, period="2024-Q1", **FAST)
    series.append(folder / "v.csv", BUDGET, **FAST)
    assert series.append(folder / "v.csv", BUDGET, **FAST).certificate["period"]["periods"] == "2024-Q4"
    assert series.periods == ("2024-Q1", "2024-Q2", "2024-Q4")
