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


def numbers(count: int, bins: int = 16) -> str:
    """So many numbers of as many bins, and four attributes of other kinds."""
    of = [f'[[attribute]]\nname = "n{i}"\nlow = 0\nhigh = 1\nbins = {bins}\n' for i in range(count)]
    return "\n".join([*of, *(f'[[attribute]]\nname = "c{i}"\nvalues = ["u", "v", "w"]\n' for i in range(4))])


@pytest.mark.parametrize(
    ("count", "bins", "records", "wanted"),
    [
        (3, 24, 15_000, True),
        (3, 16, 40_000, False),  # tables tell it well
        (3, 16, 5_000, True),  # where only some pairs are measured
        (3, 16, 2_000, False),  # nothing would be learned
        (3, 6, 20_000, False),  # tables tell it
        (1, 16, 20_000, False),
    ],
)
def test_products_are_measured_where_tables_tell_less(
    count: int, bins: int, records: int, wanted: bool
) -> None:
    schema = parse_schema(numbers(count, bins), origin="the test")
    planned = dualquery.plan(schema, workload="marginals:2", budget=BUDGET, records=records)
    said = [step.words for step in planned.steps if "correlate" in step.words]
    assert said == (["measure how 3 pairs of numbers correlate (2% of the budget)"] if wanted else [])


@pytest.mark.parametrize(("epsilon", "records"), [(0.02, 1_000_000), (0.005, 3_000_000)])
def test_no_product_has_noise_that_cannot_be_drawn(epsilon: float, records: int) -> None:
    """Its noise is small beside so many records; counted in 2²⁰ parts of a record it is not."""
    schema = parse_schema(numbers(4, 20), origin="the test")
    planned = dualquery.plan(schema, workload="marginals:2", budget=epsilon, records=records)
    assert planned.mechanism == "projection"
    assert not any("correlate" in step.words for step in planned.steps)


def test_numbers_correlate_though_their_pairs_were_left_out() -> None:
    rng = np.random.default_rng(4)
    hidden = rng.normal(size=(6_000, 1)) + 1.4 * rng.normal(size=(6_000, 3))
    table = pd.DataFrame(np.clip(0.5 + 0.15 * hidden, 0, 1), columns=["n0", "n1", "n2"])
    for i in range(4):
        table[f"c{i}"] = rng.choice(["u", "v", "w"], len(table))
    schema = parse_schema(numbers(3, 24), origin="the test")
    made = dualquery.release(table, schema=schema, workload="marginals:2", budget=BUDGET, seed=3)
    names = ["n0", "n1", "n2"]
    true, said = (each[names].corr().to_numpy()[[0, 0, 1], [1, 2, 2]] for each in (table, made.to_pandas()))
    assert not any(each.what in ((0, 1), (0, 2), (1, 2)) for each in made.measured)
    assert true.min() > 0.25
    assert said == pytest.approx(true, abs=0.12)
    row = made.sql("select corr(n0, n1) as v from data").iloc[0]
    assert abs(row["v"] - true[0]) < row["v_bar"] < 0.3


@pytest.mark.parametrize(
    ("bins", "records", "share"),
    [(16, 40_000, "19%"), (16, 10_000, "34%"), (2, 10_000, "19%")],
)
def test_one_way_tables_have_more_where_noise_would_move_means(bins: int, records: int, share: str) -> None:
    schema = parse_schema(numbers(3, bins), origin="the test")
    first = dualquery.plan(schema, workload="marginals:2", budget=BUDGET, records=records, means=0).steps[1]
    assert first.words == f"measure 7 one-way tables at once ({share} of the budget)"
