"""What users ask: functions, models, imputations; and what is refused, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualquery.errors import QueryError
from dualquery.inference.conclusions import Conclusions
from dualquery.inference.draws import DRAWS, Imputations
from dualquery.table.encoding import decode
from tests.inference.test_draws import measured, table

N = 3000


@pytest.fixture(scope="module")
def concluded() -> Conclusions:
    """A release of a table by nearly exact measurements, of all pairs but sex and group; no triple."""
    private = table(N, 0)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3)]
    return Conclusions(Imputations(table(6000, 1), measured(private, 2.0, 0, pairs), N, 5), ())


@pytest.fixture(scope="module")
def private() -> pd.DataFrame:
    return decode(table(N, 0)).to_pandas()


def rows_of(found: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found.to_pylist()}


def gap(frame: pd.DataFrame) -> dict[str, float]:
    mean = frame.groupby("sex", observed=False)["age"].mean()
    return {"mean": frame["age"].mean(), "gap": mean["m"] - mean["f"]}


def test_an_estimate_is_about_what_the_table_says(concluded: Conclusions, private: pd.DataFrame) -> None:
    found = rows_of(concluded.estimate(gap))
    for name, true in gap(private).items():
        row = found[name]
        assert row["low"] <= true <= row["high"]
        assert row["population_low"] <= row["low"] <= row["high"] <= row["population_high"]
        assert row["note"] is None
    again = rows_of(concluded.estimate(gap, ["sex", "age"]))
    assert again == found  # the same columns, the same draws


def test_what_a_function_may_give(concluded: Conclusions) -> None:
    assert set(rows_of(concluded.estimate(lambda d: d["age"].mean()))) == {"value"}
    assert set(rows_of(concluded.estimate(lambda d: d.groupby("sex", observed=False)["age"].mean()))) == {
        "f",
        "m",
    }
    assert set(rows_of(concluded.estimate(lambda d: [d.age.mean(), d.age.std()]))) == {"value_1", "value_2"}
    assert set(rows_of(concluded.estimate(lambda d: d.iloc[:, 0].mean()))) == {"value"}  # by place


def test_a_regression_is_about_what_the_table_says(concluded: Conclusions, private: pd.DataFrame) -> None:
    found = rows_of(concluded.regress("hours ~ age + sex"))
    known = private.dropna(subset=["hours"])
    x = np.column_stack([np.ones(len(known)), known["age"], known["sex"] == "m"]).astype(float)
    true = np.linalg.lstsq(x, known["hours"].to_numpy(float), rcond=None)[0]
    assert list(found) == ["(intercept)", "age", "sex[m]"]
    for name, value in zip(found, true, strict=True):
        assert found[name]["low"] <= value <= found[name]["high"], name
    assert found["age"]["p"] < 0.05
    odds = rows_of(concluded.regress("sex ~ age + hours", "logistic"))
    assert odds["hours"]["estimate"] > 0 > odds["age"]["estimate"]


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (lambda c: c.estimate(3), "expected a function"),
        (
            lambda c: c.estimate(lambda d: d["nope"].mean()),
            "failed with KeyError.*pandas frame with the columns age",
        ),
        (lambda c: c.estimate(lambda d: 1 / 0), "ZeroDivisionError"),
        (lambda c: c.estimate(lambda d: "many"), "gave str"),
        (lambda c: c.estimate(lambda d: {}), "gave no numbers"),
        (lambda c: c.estimate(lambda d: d), "gave a frame"),
        (lambda c: c.estimate(lambda d: 3.0), "reads no column"),
        (lambda c: c.estimate(lambda d: 3.0, []), "reads no column"),
        (lambda c: c.estimate(gap, "age"), "as a list"),
        (lambda c: c.estimate(gap, 5), "as a list"),
        (lambda c: c.estimate(gap, ["age", "nope"]), "unknown attribute 'nope'"),
        (lambda c: c.estimate(gap, ["age"]), "failed with KeyError"),
        (
            lambda c: c.estimate(lambda d: (d["sex"] == d["group"]).mean(), ["sex", "group"]),
            "never measured together sex and group.*tables:sex\\*group",
        ),
        (lambda c: c.regress("hours ~ sex + group"), "never measured together sex and group.*regress:hours"),
        (lambda c: c.regress("hours ~ age * sex"), "never measured together age, sex and hours.*regress:"),
        (lambda c: c.regress("hours ~ nope"), "unknown attribute 'nope'"),
        (lambda c: c.regress("hours ~ age", "probit"), "linear, logistic or poisson"),
        (lambda c: c.regress("group ~ age", "logistic"), "more than two values"),
        (lambda c: c.imputations(0), "from 2 to 20"),
        (lambda c: c.imputations(5), "never measured together"),
    ],
)
def test_what_is_refused(concluded: Conclusions, ask: Callable[[Conclusions], Any], part: str) -> None:
    with pytest.raises(QueryError, match=part) as refused:
        ask(concluded)
    assert "\n" not in str(refused.value)


def test_nothing_to_go_by_is_refused() -> None:
    bare = Conclusions(Imputations(table(500, 1), None, N, 5), ())
    for ask in (lambda: bare.estimate(gap), lambda: bare.regress("hours ~ age"), lambda: bare.imputations(5)):
        with pytest.raises(QueryError, match="release with the mechanism projection"):
            ask()


def test_imputations_are_tables_of_n_records(concluded: Conclusions) -> None:
    tables = concluded.imputations(5, ["hours", "age"])
    assert [each.num_rows for each in tables] == [N] * 5
    assert tables[0].column_names == ["hours", "age"]
    assert not tables[0].equals(tables[1])
    assert len(concluded.imputations(DRAWS, ["age", "sex"])) == DRAWS
