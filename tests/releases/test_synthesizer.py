"""`Synthesizer` has the manners of scikit-learn's estimators, and says of its columns what SDMetrics reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_dont_overwrite_parameters, check_estimator

from dualquery import DualQueryError, Synthesizer, example

PEOPLE = example.survey(400)
FREE = {"mechanism": "uniform", "check": 0.0}  # looks at no data, so that it is quick


def bounds(names: Sequence[str]) -> dict[str, Any]:
    """A public schema for any array of numbers."""
    each = {"low": -100.0, "high": 100.0, "bins": 8, "clamp": True, "missing": "missing"}
    return {"attribute": [{"name": name, **each} for name in names]}


def people(**given: Any) -> Synthesizer:
    import tomllib

    return Synthesizer(tomllib.loads(example.SCHEMA), **{"options": FREE, **given})


def faults(kind: type[Synthesizer]) -> tuple[set[str], set[str]]:
    """The names of scikit-learn's checks that pass, and of those that fail; others do not apply."""
    asked = kind(bounds, workload="marginals:1", options=FREE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit: scikit-learn is not needed to run
        found = check_estimator(asked, on_fail=None, on_skip=None)
    names = {
        status: {each["check_name"] for each in found if each["status"] == status}
        for status in ("passed", "failed")
    }
    return names["passed"], names["failed"]


def test_scikit_learn_finds_no_fault() -> None:
    passed, failed = faults(Synthesizer)
    assert failed == set()
    assert {"check_estimators_dtypes", "check_set_params", "check_estimators_pickle"} <= passed
    assert len(passed) > 30


def test_a_fault_would_be_found() -> None:
    class Careless(Synthesizer):
        def fit(self, X: Any, y: object = None) -> Synthesizer:
            self.seen = X  # what is learned ends in _
            return super().fit(X, y)

    with pytest.raises(AssertionError, match="seen"):
        check_dont_overwrite_parameters("Careless", Careless(bounds, workload="marginals:1", options=FREE))


@pytest.mark.parametrize(
    ("frame", "kind"),
    [(PEOPLE, pa.Table), (PEOPLE.to_pandas(), pd.DataFrame), (pl.from_arrow(PEOPLE), pl.DataFrame)],
)
def test_what_goes_in_comes_out(frame: Any, kind: type) -> None:
    made = people().fit(frame)
    drawn = made.sample(50, random_state=1)
    assert isinstance(drawn, kind)
    assert len(drawn) == 50
    names = drawn.column_names if kind is pa.Table else list(drawn.columns)
    assert names == PEOPLE.column_names == list(made.feature_names_in_)
    assert len(made.sample()) == 400
    assert made.sample(5, frame="arrow", random_state=3).equals(made.sample(5, frame="arrow", random_state=3))
    assert not made.sample(50, frame="arrow").equals(made.sample(50, frame="arrow"))


def test_a_release_is_fitted_and_kept() -> None:
    made = people(budget=5.0, options={"check": 0.0}).fit(PEOPLE)
    share = made.release_.answer("sex = female").value
    truth = np.mean([each == "female" for each in PEOPLE["sex"].to_pylist()])
    assert share == pytest.approx(truth, abs=0.1)
    drawn = made.sample(2000, frame="pandas", random_state=0)
    assert (drawn["sex"] == "female").mean() == pytest.approx(share, abs=0.05)
    assert made.release_.certificate["budget"]["epsilon"] == 5.0


def test_the_metadata_names_every_column() -> None:
    told = people().fit(PEOPLE).get_metadata()
    assert told["METADATA_SPEC_VERSION"] == "SINGLE_TABLE_V1"
    kinds = {name: each["sdtype"] for name, each in told["columns"].items()}
    assert list(kinds) == PEOPLE.column_names
    assert kinds["age"] == kinds["income"] == "numerical"
    assert kinds["sex"] == "categorical"


def test_the_quality_report_of_sdmetrics_reads_rows_and_metadata() -> None:
    """It gives rows that follow the table a better mark than rows that look at nothing; where it is installed."""
    pytest.importorskip("sdmetrics", reason="no sdmetrics: pip install sdmetrics")
    from sdmetrics.reports.single_table import DiagnosticReport, QualityReport

    table, marks = PEOPLE.to_pandas(), []
    for options in ({"check": 0.0}, FREE):
        made = people(budget=5.0, options=options).fit(table)
        drawn, told = made.sample(random_state=0), made.get_metadata()
        quality, diagnosis = QualityReport(), DiagnosticReport()
        quality.generate(table, drawn, told, verbose=False)
        diagnosis.generate(table, drawn, told, verbose=False)
        marks.append(quality.get_score())
        shapes = quality.get_details("Column Shapes")
        assert list(shapes["Column"]) == PEOPLE.column_names  # no column is passed over
        assert not shapes["Score"].isna().any()
        validity, _ = diagnosis.get_properties()["Score"]
        assert validity > 0.98
    assert marks[0] > marks[1] + 0.1


def test_a_clone_has_spent_nothing() -> None:
    made = people(budget=2.0).fit(PEOPLE)
    other = clone(made)
    assert other.get_params()["budget"] == 2.0
    with pytest.raises(DualQueryError, match="call fit"):
        other.sample(3)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: Synthesizer().fit(PEOPLE), "say what is public"),
        (lambda: people().set_params(epsilon=1), "has no parameter 'epsilon'"),
        (lambda: people(options={"epsilon": 1}).fit(PEOPLE), "epsilon"),
        (lambda: people().fit(np.zeros((3, 2))), "2 columns and the schema"),
        (lambda: people().fit([[1, 2]]), "is not a table"),
        (lambda: people().fit(PEOPLE).sample(0), "at least 1"),
        (lambda: people(options={"mechanism": "gaussian"}).fit(PEOPLE).sample(1), "makes no rows"),
    ],
)
def test_mistakes_are_one_sentence(ask: Any, sentence: str) -> None:
    with pytest.raises(DualQueryError, match=sentence) as raised:
        ask()
    assert "\n" not in str(raised.value)
