"""A release measures its own error, says so, and is held against what was called good enough beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Release, example
from dualquery.errors import DualQueryError
from dualquery.fitting.measured import MeasuredTables
from dualquery.ledger.books import Books, create
from dualquery.mechanisms.error_bars import CurvePoint, ErrorCurves
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import PersonAddRemove, PersonReplace
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.queries.derived import WEIGHT, Errors
from dualquery.queries.families import marginals
from dualquery.queries.question import values_of
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.releases.acceptance import FAIL, LEVEL, PASS, UNKNOWN, Wanted, told_within
from dualquery.releases.check import (
    FAINT,
    Asked,
    Check,
    Reserved,
    Unchecked,
    asked,
    pooled,
    set_aside,
)
from dualquery.releases.plan import Request, plan_checked
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import Schema

PEOPLE = 4_000
SPLITS = (Accounting.PURE, Accounting.ZCDP, Accounting.GAUSSIAN)
RELATIONS = (Neighbours.REPLACE, Neighbours.ADD_REMOVE, PersonReplace(3), PersonAddRemove(3))


@pytest.fixture(scope="module")
def people(schema: Schema) -> Records:
    return encode(example.survey(PEOPLE), schema)


def limits(
    accounting: Accounting, neighbours: Neighbours, epsilon: float = 1.0, *, adaptive: bool = False
) -> Budget:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Budget(epsilon, delta, neighbours, accounting, adaptive=adaptive)


def error_of(people: Records, made: Records, order: int) -> float:
    """The mean of Σ_cells |share − share| over all tables of an order."""
    tables = Tables(people.domain, tuple(combinations(range(people.domain.width), order)))
    off = np.abs(tables.counts(people) / people.rows - tables.counts(made) / made.rows)
    return float(off.sum() / len(tables.sets))


def test_what_is_measured_is_the_error(people: Records) -> None:
    """With so much budget that noise is nothing, of rows that are wrong all the same."""
    budget = Budget(2_000, 1e-6)
    made = dualquery.release(
        people, workload="marginals:1", budget=budget, mechanism="uniform", seed=3, check=0
    )
    assert made.records is not None
    task = Task(marginals(people.domain, 1), people.rows, replace(budget, accounting=Accounting.ZCDP))
    wanted = asked(task, made.records, 5)
    exact = wanted.shares(wanted.statistic(made.records, people.rows).counts(people), people.rows)
    assert exact == pytest.approx([error_of(people, made.records, order) for order in (1, 2, 3)], rel=0.01)


def test_a_release_says_how_wrong_it_is(people: Records) -> None:
    made = dualquery.release(
        people, workload="marginals:2", budget=Budget(4, 1e-6), mechanism="independent", seed=3
    )
    assert made.records is not None
    found = made.certificate["check"]
    assert found["share"] == 0.01
    assert [each["attributes"] for each in found["orders"]] == [1, 2, 3]
    for each in found["orders"]:
        off = abs(each["error"] - error_of(people, made.records, each["attributes"]))
        assert off <= 2 * each["bar"]
    told = made.measured[-1]
    assert told.what.kind == "check"
    assert len(told.values) == 3


@pytest.mark.parametrize("neighbours", RELATIONS, ids=str)
@pytest.mark.parametrize("accounting", SPLITS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_check_and_its_plan_fit_the_budget(
    accounting: Accounting, neighbours: Neighbours, epsilon: float, adaptive: bool
) -> None:
    """By a fresh ledger, the check charged first."""
    domain = dualquery.Domain(tuple(dualquery.Categorical(f"a{j}", ("x", "y", "z")) for j in range(4)))
    if adaptive and neighbours.size_is_public:
        pytest.skip("the number of records is public")
    whole = limits(accounting, neighbours, epsilon, adaptive=adaptive)
    task = Task(marginals(domain, 2), 1_000_000, whole)
    _, plan, check = plan_checked(task, Request(task.workload, {}, "projection", checking=Wanted(0.01)))
    assert isinstance(check, Reserved)
    assert plan.task.budget.epsilon < epsilon
    ledger = Ledger(whole)
    ledger.charge(check.event)
    for step in plan.steps:
        ledger.charge(*[step.event] * step.times)
    spent = plan.task.budget.epsilon / epsilon
    assert spent > 0.98  # no more than about 1% is set aside


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"check": 0}, "left out"),
        ({"budget": Budget(0.01, 1e-6)}, "so few records"),
        ({"mechanism": "gaussian"}, "no synthetic records"),
        ({"mechanism": "zeros"}, "looks at no data"),
        (
            {"mechanism": "dualquery", "budget": Budget(1, 1e-6, accounting="theorem-4.3"), "rounds": 2},
            "shares",
        ),
    ],
)
def test_what_cannot_be_checked_is_said_and_costs_nothing(
    people: Records, changes: dict[str, Any], why: str
) -> None:
    given = {"workload": "marginals:1", "budget": Budget(1, 1e-6), "mechanism": "independent", "seed": 1}
    made = dualquery.release(people, **{**given, **changes})
    again = dualquery.release(people, **{**given, **changes, "check": 0})
    assert why in made.certificate["check"]["why_not"]
    assert made.certificate["check"]["orders"] == ()
    assert made.certificate["events"] == again.certificate["events"]


@pytest.mark.parametrize("share", [-0.1, 0.6, True, "half", float("nan"), 1e-6])
def test_a_share_that_is_none_is_refused(people: Records, share: object) -> None:
    with pytest.raises(DualQueryError, match="check"):
        dualquery.release(people, workload="marginals:1", budget=Budget(1, 1e-6), check=share)  # type: ignore[arg-type]


def test_whether_something_is_checked_is_decided_by_public_things(people: Records) -> None:
    """By records and budget alone: the noise, as a share of the records, or nothing."""
    task = Task(marginals(people.domain, 2), people.rows, limits(Accounting.ZCDP, Neighbours.REPLACE))
    kept = set_aside(task, 0.01)
    assert isinstance(kept, Reserved)
    fewest = int(people.rows * kept.portion.noise.deviation * kept.unit / FAINT)
    assert isinstance(set_aside(replace(task, rows=fewest - 1), 0.01), Unchecked)
    assert isinstance(set_aside(replace(task, rows=fewest + 2), 0.01), Reserved)


def test_the_check_is_paid_for_before_anything_is_drawn(
    people: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism begins with a ledger that has the event of the check, and nothing else."""
    seen = []
    plain = MECHANISMS["independent"]

    def run(plan: Any, curator: Curator, rng: np.random.Generator, progress: Any) -> Any:
        seen.extend(curator.ledger.events)
        return plain.run(plan, curator, rng, progress)

    monkeypatch.setitem(MECHANISMS, "independent", replace(plain, run=run))
    given: dict[str, Any] = {"workload": "marginals:1", "mechanism": "independent", "seed": 1}
    made = dualquery.release(people, budget=Budget(4, 1e-6), **given)
    assert made.certificate["check"]["orders"]
    assert len(seen) == 1
    planned = dualquery.plan(
        people.domain,
        records=people.rows,
        budget=Budget(4, 1e-6),
        workload="marginals:1",
        mechanism="independent",
    )
    assert seen[0] == planned.steps[0].event


def test_a_weight_is_at_most_one() -> None:
    """Heavier ones would move farther than they are charged for."""
    groups = np.zeros(2, np.int64)
    Errors(0, 1, weights=np.array([WEIGHT, -WEIGHT]), groups=groups)
    with pytest.raises(ValueError, match="one record"):
        Errors(0, 1, weights=np.array([WEIGHT + 1, 0]), groups=groups)
    with pytest.raises(ValueError, match="one table"):
        Errors(0, 0)


def test_scales_are_drawn_to_one_as_far_as_noise_goes() -> None:
    assert all(1.0 <= each < 1.1 for each in pooled(np.array([1.0, 1.0]), np.array([0.01, 0.01])))
    assert pooled(np.array([0.85, 0.85]), np.array([0.01, 0.01])) == [1.0, 1.0]  # noise alone narrows nothing
    assert pooled(np.array([0.85]), np.array([1e-4])) == pytest.approx([0.86], abs=0.02)
    assert pooled(np.array([1.5, 3.0]), np.array([1e-9, 1e-9])) == pytest.approx([1.5, 3.0], rel=1e-3)
    one, other = pooled(np.array([2.0, 1.0]), np.array([1e-9, 1e6]))
    assert one == pytest.approx(2.0, rel=1e-3)
    assert 1.4 < other < 4.0  # both share most of what is not known
    assert pooled(np.array([0.01]), np.array([1e-9])) == [0.7]


def test_bars_are_scaled_by_order_and_beyond_the_last_as_the_last() -> None:
    curves = ErrorCurves(tuple((CurvePoint(0.0, 0.1, 0.5), CurvePoint(0.5, 0.2, 0.5)) for _ in range(4)))
    scaled = curves.scaled({2: 2.0, 3: 3.0})
    assert [curve[1].error for curve in scaled.curves] == pytest.approx([0.2, 0.4, 0.6, 0.6])
    assert [curve[1].part for curve in scaled.curves] == pytest.approx([0.5, 1.0, 1.5, 1.5])
    assert curves.scaled({}) == curves


# Acceptance

GOOD = {"criterion": [{"tables": 2, "mean": 0.9}, {"table": ["sex", "region"], "error": 0.5}]}


def test_a_good_release_is_accepted_and_a_bad_one_not(people: Records) -> None:
    given = {"workload": "marginals:2", "budget": Budget(4, 1e-6), "seed": 1, "mechanism": "independent"}
    made = dualquery.release(people, accept=GOOD, **given)
    assert made.certificate["accepted"]["verdict"] == PASS
    assert not any("accepted" in each for each in made.certificate["warnings"])
    hard = {"criterion": [{"tables": 3, "worst": 0.13}, *GOOD["criterion"]]}
    made = dualquery.release(people, accept=hard, **given)
    assert made.certificate["accepted"]["verdict"] == FAIL
    assert [each["verdict"] for each in made.certificate["accepted"]["criteria"]] == [FAIL, PASS, PASS]
    assert any("not accepted" in each for each in made.certificate["warnings"])


def test_a_mean_within_groups_is_measured_in_its_own_unit(people: Records) -> None:
    """Beside the definition, of middles of bins, without noise."""
    said = {"criterion": [{"mean_of": "age", "by": ["sex"], "error": 5.0}]}
    task = Task(marginals(people.domain, 2), people.rows, limits(Accounting.ZCDP, Neighbours.REPLACE, 100.0))
    rows = people.take(np.arange(0, people.rows, 3))
    wanted = Wanted.of(0.01, said, people.domain)
    made = wanted.asked(task, rows, 1)
    (place,) = made.places
    assert place is not None
    exact = made.shares(made.statistic(rows, people.rows).counts(people), people.rows)[place]
    age, sex = people.domain.find("age"), people.domain.find("sex")
    assert age is not None
    assert sex is not None
    middle = np.asarray(values_of(people.domain, age), np.float64)
    mine, all_ages = (np.asarray(each.columns[age]) for each in (rows, people))
    off = 0.0
    for value in range(int(people.domain.sizes[sex])):
        theirs = np.asarray(people.columns[sex]) == value
        mean = np.nanmean(middle[mine[np.asarray(rows.columns[sex]) == value]])
        ages = middle[all_ages[theirs]]
        off += abs(float(np.nansum(ages - mean))) / people.rows
    assert exact * wanted.criteria[0].unit == pytest.approx(off, rel=0.05, abs=0.02)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"criterion": [{"table": ["sex", "nobody"], "error": 0.1}]}, "nobody"),
        ({"criterion": [{"table": ["sex", "sex"], "error": 0.1}]}, "twice"),
        ({"criterion": [{"tables": 2, "mean": 1e-6}]}, "below what could be told"),
        ({"criterion": [{"tables": 2, "mean": 0}]}, "above 0"),
        ({"criterion": [{"tables": 9, "mean": 0.5}]}, "1 to 4"),
        ({"criterion": [{"tables": True, "mean": 0.5}]}, "1 to 4"),
        ({"criterion": [{"tables": 2}]}, "a criterion says"),
        ({"criterion": [{"mean_of": "sex", "error": 0.1}]}, "no number"),
        ({"criterion": [{"mean_of": "age", "by": ["age"], "error": 1.0}]}, "leave it out"),
        ({"criterion": []}, "criterion"),
        ({"criteria": [{"tables": 2, "mean": 0.5}]}, "criterion"),
        ({"criterion": "good"}, "criterion"),
        ([{"tables": 2, "mean": 0.5}], "a dict"),
    ],
)
def test_bad_criteria_are_refused_in_a_sentence_and_nothing_is_charged(
    people: Records, tmp_path: Path, said: dict[str, Any], why: str
) -> None:
    book = tmp_path / "ledger.db"
    create(book, name="people", epsilon=10, delta=1e-6, neighbours=Neighbours.REPLACE)
    with pytest.raises(DualQueryError, match=why) as refused:
        dualquery.release(
            people, workload="marginals:2", budget=Budget(1, 1e-6), accept=said, ledger=book, dataset="people"
        )
    assert "\n" not in str(refused.value)
    assert not Books(book).read("people").charges


@pytest.mark.parametrize(
    ("tables", "mechanism", "why"), [(3, None, "leave it out"), (2, "gaussian", "no synthetic records leave")]
)
def test_what_no_number_of_records_lets_be_accepted_is_refused_before_the_book_is_charged(
    people: Records, tmp_path: Path, tables: int, mechanism: str | None, why: str
) -> None:
    book = tmp_path / "ledger.db"
    create(book, name="people", epsilon=10, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(DualQueryError, match=why):
        dualquery.release(
            people,
            workload=["sex = female AND region = north"],
            budget=Budget(1, 1e-6, Neighbours.ADD_REMOVE),
            accept={"criterion": [{"tables": tables, "mean": 0.5}]},
            mechanism=mechanism,
            ledger=book,
            dataset="people",
        )
    assert not Books(book).read("people").charges


def test_acceptance_without_a_check_is_refused(people: Records, tmp_path: Path) -> None:
    given: dict[str, Any] = {"workload": "marginals:2", "budget": Budget(1, 1e-6), "accept": GOOD}
    with pytest.raises(DualQueryError, match="--check"):
        dualquery.release(people, **given, check=0)
    with pytest.raises(DualQueryError, match="nothing can be checked"):
        dualquery.release(people, **given, mechanism="gaussian")
    with pytest.raises(DualQueryError, match="there is no acceptance file"):
        dualquery.release(people, **{**given, "accept": tmp_path / "none.toml"})
    (tmp_path / "bad.toml").write_text("criterion = ", encoding="utf-8")
    with pytest.raises(DualQueryError, match="acceptance file"):
        dualquery.release(people, **{**given, "accept": tmp_path / "bad.toml"})


def judged(noise: Gaussian | Laplace, over: float, runs: int, people: Records) -> Iterator[str]:
    """Verdicts on an error of so many times the smallest limit that is allowed."""
    accounting = Accounting.PURE if isinstance(noise, Laplace) else Accounting.ZCDP
    task = Task(marginals(people.domain, 2), people.rows, limits(accounting, Neighbours.ADD_REMOVE, 3.0))
    reserved = set_aside(task, 0.01)
    assert isinstance(reserved, Reserved)
    law = reserved.portion.noise
    limit = 2 * told_within(law) * reserved.unit
    wanted = Wanted.of(0.01, {"criterion": [{"tables": 2, "mean": limit}]}, people.domain)
    made = wanted.asked(task, people, 1)
    drawn = law.draw(3 * runs, SeededEntropy(11)).reshape(runs, 3)
    for each in drawn:
        shares = made.shares(each / reserved.portion.times, people.rows) + over * limit
        told = wanted.accepted(Check(reserved, made, shares))
        assert told is not None
        yield told["verdict"]


@pytest.mark.parametrize("law", [Gaussian, Laplace])
def test_false_passes_are_at_most_five_in_a_hundred_and_half_the_limit_passes(
    people: Records, law: Callable[..., Any]
) -> None:
    """At the smallest limit that is allowed; 3,000 draws each, four deviations of room."""
    runs, wrong = 3_000, 1 - LEVEL
    room = 4 * np.sqrt(wrong * LEVEL / runs)
    noise = law(1)
    above = list(judged(noise, 1.0 + 1e-9, runs, people))
    assert above.count(PASS) / runs < min(0.05, wrong + room)
    assert above.count(PASS) / runs > wrong - room  # and the test can fail: it is as sharp as it says
    half = list(judged(noise, 0.5, runs, people))
    assert half.count(PASS) / runs > 0.8 - 4 * np.sqrt(0.8 * 0.2 / runs)
    below = list(judged(noise, 1.0 - 1e-9, runs, people))
    assert below.count(FAIL) / runs < wrong + room
    assert below.count(UNKNOWN) > 0


def test_questions_one_at_a_time_show_the_check_of_the_release_they_start_from(people: Records) -> None:
    made = dualquery.release(
        people, workload="marginals:1", budget=Budget(3, 1e-7), seed=3, synthetic_rows=500
    )
    asked_now = dualquery.online(people, budget=Budget(6, 1e-6), release=made, seed=3)
    said = asked_now.certificate()
    assert [each["attributes"] for each in said["check"]["orders"]] == [1, 2, 3]
    assert len(said["measured"]) == len(made.measured)
    assert str(asked_now.ask("sex = male")).count("(95%)") >= 1


# What a release keeps


def test_a_release_keeps_what_it_measured(people: Records, tmp_path: Path) -> None:
    made = dualquery.release(
        people, workload="marginals:2", budget=Budget(4, 1e-6), seed=5, synthetic_rows=500
    )
    made.save(tmp_path / "out")
    again = Release.load(tmp_path / "out")
    assert [each.what for each in again.measured] == [each.what for each in made.measured]
    for one, other in zip(again.measured, made.measured, strict=True):
        assert np.array_equal(one.values, other.values)
        assert one.variance == other.variance
    assert len(made.certificate["measured"]) == len(made.measured)
    known = MeasuredTables.of(people.domain, again.measured)
    for pair in known.of_order(2)[:20]:
        truth = Tables(people.domain, (pair,)).counts(people) / people.rows
        off = np.abs(known.table(pair).ravel() - truth)
        assert off.max() < 6 * known.deviation(pair)


def test_measurements_that_were_changed_are_refused(people: Records, tmp_path: Path) -> None:
    made = dualquery.release(
        people, workload="marginals:1", budget=Budget(4, 1e-6), seed=5, synthetic_rows=500
    )
    made.save(tmp_path / "out")
    file = tmp_path / "out" / "measurements.parquet"
    table = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(table.slice(1), file)
    with pytest.raises(DualQueryError):
        Release.load(tmp_path / "out")


@pytest.mark.parametrize(
    ("mechanism", "kinds"),
    [
        ("mwem", {"table", "query", "check"}),
        ("least-squares", {"queries", "check"}),
        ("gaussian", {"queries"}),
        ("dualquery", {"check"}),
    ],
)
def test_other_mechanisms_keep_what_they_measured(people: Records, mechanism: str, kinds: set[str]) -> None:
    options = {"rounds": 2} if mechanism in ("mwem", "least-squares", "dualquery") else {}
    made = dualquery.release(
        people, workload="marginals:1", budget=Budget(4, 1e-6), seed=5, mechanism=mechanism, **options
    )
    assert {each.what.kind for each in made.measured} <= kinds
    assert made.measured


def test_tables_are_drawn_alike_from_the_same_seed(people: Records) -> None:
    task = Task(marginals(people.domain, 2), people.rows, limits(Accounting.ZCDP, Neighbours.REPLACE))
    one, other = (asked(task, people, 4) for _ in range(2))
    assert isinstance(one, Asked)
    assert one.tables.sets == other.tables.sets
