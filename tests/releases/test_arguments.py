"""The Python way in: what is given in whichever form is at hand, and what a caller can get wrong."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import example as example_of
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import dualquery
from dualquery import Accounting, Budget, BudgetError, DualQueryError, Neighbours, Schema, example, marginals
from dualquery.mechanisms.mechanism import affordable
from dualquery.mechanisms.wishes import MECHANISMS, WISHES, flags_of
from dualquery.releases.arguments import schema_from, workload_from

Make = Callable[..., dualquery.Release]


def test_the_signature_and_the_help_are_real() -> None:
    shown = inspect.signature(dualquery.release)
    options = {name for wishes in WISHES.values() for name in flags_of(wishes)}
    assert {"table", "budget", "workload", "schema", "mechanism", "seed", *options} <= set(shown.parameters)
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in shown.parameters.values())
    text = pydoc.plain(pydoc.render_doc(dualquery.release))
    for part in ("release(table", "rounds: Rounds of the game (T).", "a list of queries", "marginals:3"):
        assert part in text
    assert "rounds" in inspect.signature(dualquery.plan).parameters
    assert "mechanisms" in inspect.signature(dualquery.compare).parameters


def test_a_budget_has_the_defaults_of_the_command_line() -> None:
    budget = Budget(1, 1e-6)
    assert budget == Budget(
        epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.TIGHTEST
    )
    assert Budget(1, 1e-6, "add-remove", "zcdp").neighbours is Neighbours.ADD_REMOVE
    assert Budget(1, accounting="pure").delta == 0
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert hash(Budget(1, 1e-6)) == hash(budget)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ((1,), "say delta too"),
        (("1", 1e-6), "epsilon must be a number"),
        ((True, 1e-6), "epsilon must be a number"),
        ((1, "small"), "delta must be a number"),
        ((1, 1e-6, "neighbors"), "neighbours must be one of"),
        ((1, 1e-6, 3), "no name"),
        ((1, 1e-6, "person-replace"), "PersonReplace"),
        ((1, 1e-6, "replace", "zCDP"), "accounting must be one of"),
        ((None, 1e-6), "epsilon must be a number"),
    ],
)
def test_what_is_no_budget(given: tuple[Any, ...], part: str) -> None:
    with pytest.raises(BudgetError, match=part):
        Budget(*given)


def test_a_schema_in_every_form(schema: Schema, tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(example.SCHEMA, encoding="utf-8")
    for form in (schema, schema.domain, file, str(file), tomllib.loads(example.SCHEMA)):
        assert schema_from(form) == schema
    small = {
        "attribute": [
            {"name": "a b", "values": ("x", "y\n")},
            {"name": "n", "low": 0, "high": 1.5, "bins": 3},
        ]
    }
    assert schema_from(small).domain.width == 2
    for wrong, part in (
        (3, "expected a schema as a Schema.*got int"),
        ({}, "names no attribute"),
        ({"attribute": {"name": "a"}}, "sections"),
        ({"attribute": [{"name": "a", "values": [1]}]}, "list of texts"),
        ({"attribute": [{"name": "a", "values": [object()]}]}, "not object"),
        ({3: "x"}, "must be texts, got int"),
        ("nowhere.toml", "no schema file"),
    ):
        with pytest.raises(dualquery.SchemaError, match=part):
            schema_from(wrong)  # type: ignore[arg-type]


def test_a_workload_in_every_form(schema: Schema) -> None:
    domain = schema.domain
    assert workload_from(domain, "marginals:1").digest() == marginals(domain, 1).digest()
    mixed = workload_from(domain, ["sex = male", "marginals:1", "age >= 55"])
    assert mixed.size == marginals(domain, 1).size + 2
    assert workload_from(domain, mixed) is mixed
    drawn = workload_from(domain, ["random:2:5", "random-literals:2:5", "ranges:age:3"])
    assert drawn.size == 13
    for wrong, part in (
        (3, "got int"),
        ([], "no query"),
        ([3], "got list"),
        (["sax = male"], "query 1"),
    ):
        with pytest.raises(dualquery.QueryError, match=part):
            workload_from(domain, wrong)  # type: ignore[arg-type]


def test_a_release_in_one_line(survey: Any, records: Any) -> None:
    """ε alone has the defaults of the command line: δ = min(1/n², 10⁻⁶), and a record is replaced."""
    made = dualquery.release(
        survey,
        schema=tomllib.loads(example.SCHEMA),
        workload=["sex = male", "age >= 55"],
        budget=1,
        mechanism="laplace",
        seed=1,
    )
    assert made.certificate["budget"]["delta"] == 1e-6
    assert made.certificate["budget"]["neighbours"] == "replace"
    assert made.certificate["workload"]["queries"] == 2
    plan = dualquery.plan(records.domain, records=2000, workload="marginals:1", budget=1)
    assert plan.task.budget.delta == pytest.approx(1 / 2000**2)
    shown = repr(plan)
    assert len(shown.splitlines()) == 5
    assert len(shown) < 700
    assert "ε = 1, δ = 2.5e-07" in shown


def test_one_word_for_the_number_of_records_and_the_old_ones_still_do(records: Any) -> None:
    asked: dict[str, Any] = {"workload": "marginals:1", "budget": Budget(1, 1e-6, "add-remove")}
    assert "public_rows" not in inspect.signature(dualquery.plan).parameters
    for new, old in (("records", "public_rows"), ("expected_records", "rows")):
        one = dualquery.plan(records.domain, **asked, **{new: 300})
        other = dualquery.plan(records.domain, **asked, **{old: 300})
        assert repr(one) == repr(other)
        assert one.steps == other.steps
    both: dict[str, Any] = {"records": 300, "public_rows": 300}
    with pytest.raises(DualQueryError, match="public_rows"):
        dualquery.plan(records.domain, **asked, **both)


NAMES = [name for name, each in MECHANISMS.items() if each.plays is None or "records" in each.plays]
FLOATS = st.floats() | st.floats(1e-14, 1e9) | st.floats(-14, 9).map(lambda power: 10.0**power)


@settings(max_examples=120, deadline=None)
@drawn(
    epsilon=FLOATS,
    delta=FLOATS,
    accounting=st.sampled_from(list(Accounting)),
    neighbours=st.sampled_from(["replace", "add-remove"]),
    mechanism=st.sampled_from([name for name in NAMES if name != "dualquery"]),  # which rehearses, slowly
    rows=st.sampled_from([1, 100, 10**6]),
)
@example_of(1e-9, 1e-6, Accounting.TIGHTEST, "replace", None, 100)
@example_of(1e-9, 1e-260, Accounting.TIGHTEST, "replace", None, 100)
@example_of(1e-12, 0.0, Accounting.PURE, "replace", "laplace", 100)
@example_of(4e260, 0.0, Accounting.PURE, "replace", "projection", 100)
@example_of(4e260, 1e-6, Accounting.THEOREM_4_3, "replace", "pmw", 100)
def test_whatever_the_budget_a_plan_is_made_or_refused(
    epsilon: float, delta: float, accounting: Accounting, neighbours: str, mechanism: str | None, rows: int
) -> None:
    """Over all floats: a plan, or one sentence. ε = 10⁻⁹ was a division by zero."""
    domain = schema_from(tomllib.loads(example.SCHEMA)).domain
    try:
        budget = Budget(epsilon, delta, neighbours, accounting)
        plan = dualquery.plan(
            domain, public_rows=rows, workload="marginals:2", budget=budget, mechanism=mechanism
        )
    except DualQueryError:
        return
    # Of the whole budget, of which a part may be set aside for the check that is listed first.
    whole = replace(plan.task.budget, epsilon=max(epsilon, plan.task.budget.epsilon))
    assert affordable(whole, plan.steps)


@pytest.mark.parametrize(("option", "value"), [("rounds", 5), ("samples", 3), ("iterate", "last")])
def test_an_option_chooses_no_mechanism(survey: Any, option: str, value: object) -> None:
    """`--rounds 5` chose DualQuery and said that the workload was too wide to measure."""
    having = [name for name in NAMES if option in flags_of(WISHES[name])]
    with pytest.raises(DualQueryError, match=f"--{option} means nothing to .*: {', '.join(having)}$"):
        dualquery.release(
            survey,
            schema=tomllib.loads(example.SCHEMA),
            workload="marginals:2",
            budget=Budget(1, 1e-6),
            **{option: value},
        )


GOOD: dict[str, Any] = {"workload": "marginals:1", "budget": Budget(1, 1e-6), "mechanism": "independent"}


@pytest.mark.parametrize(
    "change",
    [
        {"budget": "much"},
        {"budget": None},
        {"budget": -1},
        {"workload": None},
        {"workload": 3},
        {"schema": 3},
        {"mechanism": 3},
        {"mechanism": "nonsense"},
        {"seed": "one"},
        {"seed": -1},
        {"public_rows": "many"},
        {"synthetic_rows": "many"},
        {"synthetic_rows": 0.5},
        {"rounds": 3},
        {"mechanism": "mwem", "rounds": "three"},
        {"mechanism": "mwem", "memory": "lots"},
        {"mechanism": "mwem", "start": 7},
        {"mechanism": "mwem", "start": "nonsense"},
        {"nonsense": 1},
    ],
)
def test_what_a_caller_gets_wrong_is_an_error_of_ours(records: Any, change: dict[str, Any]) -> None:
    with pytest.raises(DualQueryError):
        dualquery.release(records, **{**GOOD, **change})


def test_arguments_that_do_not_fit(records: Any) -> None:
    with pytest.raises(DualQueryError, match="missing a required"):
        dualquery.release(records)  # type: ignore[call-arg]
    with pytest.raises(DualQueryError, match="too many positional"):
        dualquery.release(records, "marginals:1")  # type: ignore[misc]
    with pytest.raises(DualQueryError, match="give the release first"):
        dualquery.evaluate(records, records)  # type: ignore[arg-type]
    for table in (None, 3, [1, 2]):
        with pytest.raises(DualQueryError):
            dualquery.release(table, schema=records.domain, **{**GOOD, "mechanism": "uniform"})


TOO_DEAR = {"learning_rate": 2.0, "samples": 20, "rounds": 100_000}


def test_mechanisms_are_compared(records: Any) -> None:
    frame, picture = dualquery.compare(
        records,
        workload="marginals:1",
        budget=Budget(1, 1e-6, accounting="zcdp"),
        mechanisms={"independent": {"synthetic_rows": 100}, "uniform": {}, "dualquery": TOO_DEAR},
    )
    assert isinstance(frame, pandas.DataFrame)
    assert frame["mechanism"].tolist() == ["independent", "uniform", "dualquery"]
    assert frame["mean_error"].notna().tolist() == [True, True, False]
    assert isinstance(frame["refused"][2], str)
    assert "not private" in picture.title
    assert "independent" in picture.svg
    both = dualquery.compare(records, workload="marginals:1", budget=1, mechanisms=["zeros"], frame="arrow")
    assert "<svg" in both._repr_html_()
    for wrong in ("zeros", [], ["nonsense"], {"zeros": 3}, 3):
        with pytest.raises(DualQueryError):
            dualquery.compare(records, workload="marginals:1", budget=1, mechanisms=wrong)  # type: ignore[arg-type]
