"""The stage for means inside bins: planned, paid for, measured once, and left out where it would be useless."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery import Budget, Neighbours
from dualquery.errors import DualQueryError
from dualquery.fitting.measured import Numbers
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema

SCHEMA = parse_schema(
    """
[[attribute]]
name = "x"
edges = [0, 1, 3, 60]
clamp = true
[[attribute]]
name = "k"
edges = [0, 2, 10, 100]
integer = true
[[attribute]]
name = "sex"
values = ["f", "m"]
""",
    origin="the test",
)
BUDGET = Budget(1.0, 1e-6)


def frame(rows: int = 20_000) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "x": rng.gamma(1, 1.5, rows),
            "k": np.minimum(rng.geometric(0.1, rows), 99),
            "sex": rng.choice(["f", "m"], rows),
        }
    )


def steps(**options: object) -> list[str]:
    given = {"budget": BUDGET, "records": 20_000, **options}
    return [step.words for step in dualquery.plan(SCHEMA, workload="marginals:2", **given).steps]


def test_a_plan_has_the_stage_unless_it_is_turned_off() -> None:
    assert "measure means inside the bins of 2 columns (2% of the budget)" in steps()
    assert "measure means inside the bins of 2 columns (10% of the budget)" in steps(means=0.1)
    for without in (
        {"means": 0},
        {"records": 60},
        {"budget": Budget(1.0, accounting="pure")},
    ):
        assert not any("inside" in words for words in steps(**without))
    with pytest.raises(DualQueryError, match=r"from 0 to 0\.5"):
        steps(means=0.7)


@pytest.mark.parametrize("neighbours", [Neighbours.REPLACE, Neighbours.ADD_REMOVE], ids=str)
def test_a_release_has_the_means_of_its_table(neighbours: Neighbours) -> None:
    given = frame()
    made = dualquery.release(
        given,
        schema=SCHEMA,
        workload="marginals:2",
        budget=Budget(1.0, 1e-6, neighbours=neighbours),
        seed=1,
        synthetic_rows=20_000,
    )
    kept = [each for each in made.measured if getattr(each.what, "kind", None) == "within"]
    assert [each.what for each in kept] == [Numbers("within", (0,)), Numbers("within", (1,))]
    assert [len(each.values) for each in kept] == [3, 3]
    found = made.to_pandas()
    for name in ("x", "k"):
        assert abs(found[name].mean() - given[name].mean()) < 0.05 * given[name].std()
    moved = {event["sensitivity_squared"] for event in made.certificate["events"]}
    assert str((8 if neighbours.size_is_public else 2) * 32_767**2) in moved


def test_records_that_do_not_know_places_are_released_without() -> None:
    records = dualquery.encode(frame(2_000), SCHEMA)
    bare = Records(records.domain, records.rows, records.columns)
    made = dualquery.release(bare, workload="marginals:2", budget=BUDGET, seed=1, synthetic_rows=2_000)
    assert not any(getattr(each.what, "kind", None) == "within" for each in made.measured)
    assert made.records.places  # placed by the law of each bin
