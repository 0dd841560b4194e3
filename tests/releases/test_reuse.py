"""What a private draft has counted is used again: the right cells, at the right weight, of the right table."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    DataError,
    DualQueryError,
    Neighbours,
    encode,
    private_draft,
    release,
)
from dualquery.cli import run
from dualquery.fitting.measured import CellSums, Measured, MeasuredTables
from dualquery.ledger.books import create
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.shares import relative_sensitivity, spared, unit_variance, variance_informed
from dualquery.queries.families import marginals
from dualquery.queries.tables import attribute_codes
from dualquery.releases.certificate import Certificate
from dualquery.releases.reuse import earlier_of
from dualquery.releases.seal import canonical
from dualquery.table.columns import Categorical
from dualquery.table.numbers import Numeric
from tests.releases.test_private_draft import people

TABLE = people(4_000, 3).drop_columns(["patient_id", "remark", "row"])
GENEROUS = Budget(8, 1e-6)
AFTER = Budget(0.5, 1e-6)


@pytest.fixture(scope="module")
def draft():
    return private_draft(TABLE, budget=GENEROUS, seed=2)


def told(draft, schema=None, seed: int | None = 0):
    return earlier_of(
        draft, schema or draft.schema, Neighbours.REPLACE, ledger=None, dataset=None, seed=seed
    )[0]


def test_each_count_is_that_of_its_cells_up_to_its_noise() -> None:
    """Of ages, prices, gaps and words, with clamped ends and cells without a number: z has the law that it says."""
    found = []
    for seed in range(5):
        draft = private_draft(TABLE, budget=GENEROUS, seed=seed)
        records = encode(TABLE, draft.schema)
        assert len(told(draft)) == 6  # not the two columns of dates
        for each in told(draft):
            sums = each.what
            held = np.bincount(attribute_codes(records, [sums.attribute])[0], minlength=sums.cells.shape[1])
            found.append((each.values - sums.cells @ held) / np.sqrt(each.variance))
    z = np.concatenate(found)
    assert len(z) > 200
    assert abs(z).max() < 4.5
    assert 0.88 < z.std() < 1.12
    assert abs(z.mean()) < 4 / np.sqrt(len(z))


def test_cells_that_hold_what_was_not_counted_are_left_out(draft) -> None:
    columns = draft.schema.domain.columns
    for each in told(draft):
        column, used = columns[each.what.attribute], each.what.cells.any(axis=0)
        if isinstance(column, Categorical):
            assert not used[column.values.index(column.unknown)]
        else:
            assert not used[column.other_code]


def test_a_schema_that_was_edited_gets_what_still_fits(draft) -> None:
    """Bins that were joined keep their sum; edges that no tree has, texts that were never shown, keep nothing."""
    names = [each.name for each in draft.schema.domain.columns]
    age, word = names.index("age"), names.index("word")
    columns = list(draft.schema.domain.columns)
    columns[age] = replace(columns[age], edges=columns[age].edges[::2])
    columns[word] = Categorical("word", ("mauve", "other"), unknown="other")
    schema = replace(draft.schema, domain=replace(draft.schema.domain, columns=tuple(columns)))
    before, after = ({each.what.attribute: each for each in told(draft, of)} for of in (None, schema))
    assert 0 < len(after[age].values) < len(before[age].values)
    assert word not in after
    columns[age] = replace(columns[age], edges=(0.0, 33.3, 120.0), integer=False)
    shifted = replace(schema, domain=replace(schema.domain, columns=tuple(columns)))
    assert age not in {each.what.attribute for each in told(draft, shifted)}
    columns[age] = replace(columns[age], decimal_comma=True)
    assert isinstance(columns[age], Numeric)
    commas = replace(schema, domain=replace(schema.domain, columns=tuple(columns)))
    assert age not in {each.what.attribute for each in told(draft, commas)}


def test_a_table_and_sums_are_weighed_as_the_definition_says() -> None:
    """The mean and the variance of x | t, y, Σx by conditioning a joint normal law, one Kalman step a number."""
    rng = np.random.default_rng(5)
    cells = rng.random((7, 5)) < 0.5
    noise = rng.uniform(1, 50, 7)
    table, y, v = rng.normal(100, 20, 5), rng.normal(200, 30, 7), 12.0
    mean, covariance = table.copy(), v * np.eye(5)
    for row, said, variance in [
        *zip(cells.astype(float), y, noise, strict=True),
        (np.ones(5), table.sum(), 1e-9),
    ]:
        gain = covariance @ row / (row @ covariance @ row + variance)
        mean, covariance = mean + gain * (said - row @ mean), covariance - np.outer(gain, row @ covariance)
    found, left = CellSums(0, cells).informed(table, v, Measured(None, y, noise))
    np.testing.assert_allclose(found, mean, rtol=1e-6)
    assert left == pytest.approx(np.trace(covariance) / 4, rel=1e-6)
    assert left < v


def test_what_says_nothing_changes_nothing(draft) -> None:
    domain = draft.schema.domain
    table = MeasuredTables(domain, {(): np.array(50.0), (0,): np.arange(3.0) - 1}, {(): 0.0, (0,): 4.0}, 50.0)
    faint = Measured(CellSums(0, np.eye(3, dtype=bool)), np.zeros(3), np.full(3, 1e15))
    elsewhere = replace(faint, what=CellSums(1, np.eye(3, dtype=bool)))
    same = table.informed((faint, elsewhere))
    np.testing.assert_allclose(same.interactions[(0,)], table.interactions[(0,)], atol=1e-9)
    assert same.variance[(0,)] == pytest.approx(4.0)
    assert (1,) not in same.interactions


def test_a_plan_spends_elsewhere_what_the_draft_has_already(draft) -> None:
    task = Task(
        marginals(draft.schema.domain, 2), 4_000, replace(AFTER, accounting=Accounting.GAUSSIAN), places=True
    )
    more = replace(task, earlier=told(draft))
    alone, beside = (PROJECTION.plan_for(each, {}) for each in (task, more))
    assert beside.parameters.stages[0].share < 0.9 * alone.parameters.stages[0].share
    assert sum(s.share for s in beside.parameters.stages) == pytest.approx(1)
    assert beside.mean_error < alone.mean_error
    unit = unit_variance(task.budget)
    shares = {(j,): 0.05 for j in range(task.domain.width)}
    assert spared(task, shares, unit) == pytest.approx(shares)
    less = spared(more, shares, unit)
    assert sum(less.values()) < sum(shares.values())
    for members, share in shares.items():  # and is no worse off for it
        price = relative_sensitivity(members, task.domain, Neighbours.REPLACE) * unit
        assert variance_informed(more, members, price / less[members]) <= 1.0001 * price / share


def test_a_release_is_closer_for_it_and_says_so(draft) -> None:
    """Of a faint release after a generous draft, over eight seeds."""
    truth = encode(TABLE, draft.schema)
    errors = []
    for given in (None, draft):
        found = []
        for seed in range(8):
            made = release(
                TABLE,
                schema=draft.schema,
                workload="marginals:1",
                budget=AFTER,
                draft=given,
                seed=seed,
                check=0,
            )
            group = marginals(truth.domain, 1)
            found.append(np.abs(group.fractions(made.records) - group.fractions(truth)).mean())
        errors.append(np.mean(found))
    assert errors[1] < 0.8 * errors[0]
    certificate = made.certificate
    assert certificate["draft"]["epsilon"] == 8
    assert certificate["draft"]["seal"] == draft.certificate["seal"]
    assert len(certificate["draft"]["attributes"]) == 6
    assert Certificate.from_json(certificate.to_json())["draft"] == certificate["draft"]


def test_the_bars_know_what_was_measured_before(draft) -> None:
    """Replicas measure it again, so that bars are as narrow as the errors."""
    made, plain = (
        release(
            TABLE, schema=draft.schema, workload="marginals:1", budget=AFTER, draft=given, seed=4, check=0
        )
        for given in (draft, None)
    )
    answer, other = made.answer("word = red"), plain.answer("word = red")
    assert answer.error < other.error
    assert abs(answer.value - 0.5) < 2 * answer.error + 0.02


def test_another_table_another_promise_or_another_book_is_refused(draft, tmp_path: Path) -> None:
    real = private_draft(TABLE, budget=GENEROUS)
    assert told(real, seed=None)
    with pytest.raises(DualQueryError, match="found with a seed"):
        told(draft, seed=None)
    changed = {**real.certificate, "epsilon": 0.1}
    with pytest.raises(DataError, match="was changed"):
        told(changed, real.schema)
    for key in ("private", "measured", "book"):  # as an earlier version wrote it, or another program
        less = {name: value for name, value in real.certificate.items() if name not in (key, "seal")}
        less["seal"] = hashlib.sha256(canonical(less)).hexdigest()
        with pytest.raises(DataError, match="another version"):
            told(less, real.schema)
    for nothing in ({"format": "x"}, tmp_path / "none.json"):
        with pytest.raises(DataError, match="names the certificate of a private draft"):
            told(nothing, real.schema)
    with pytest.raises(DualQueryError, match="protects neighbours"):
        earlier_of(real, real.schema, Neighbours.ADD_REMOVE, ledger=None, dataset=None, seed=None)
    with pytest.raises(DualQueryError, match="some of them only"):
        told(real, replace(real.schema, drop_rows_containing="?"), None)
    pyarrow.csv.write_csv(TABLE, tmp_path / "t.csv")
    with pytest.raises(DualQueryError, match="the draft is of the table"):
        release(tmp_path / "t.csv", schema=real.schema, workload="marginals:1", budget=AFTER, draft=real)
    for wish in ({"mechanism": "mwem"}, {"accounting": Accounting.PURE}):
        budget = replace(AFTER, accounting=wish.pop("accounting", Accounting.TIGHTEST))
        budget = (
            Budget(0.5, 0.0, accounting=Accounting.PURE) if budget.accounting is Accounting.PURE else budget
        )
        with pytest.raises(DualQueryError, match="leave out --draft"):
            release(TABLE, schema=real.schema, workload="marginals:2", budget=budget, draft=real, **wish)


def test_draft_and_release_are_charged_to_the_same_book(tmp_path: Path, capsys) -> None:
    pyarrow.csv.write_csv(TABLE, tmp_path / "t.csv")
    for name in ("one", "two"):
        create(
            tmp_path / f"{name}.ledger", name="people", epsilon=10, delta=1e-5, neighbours=Neighbours.REPLACE
        )
    found = ["schema", "draft", "t.csv", "--epsilon", "3", "--delta", "1e-6", "--out", "s.toml", "--quiet"]
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        assert run([*found, "--ledger", "one.ledger"]) == 0
        certificate = "s.certificate.json"
        made = ["release", "t.csv", "--schema", "s.toml", "--queries", "marginals:1", "--epsilon", "1"]
        made += ["--delta", "1e-6", "--draft", certificate, "--quiet", "--out"]
        for wrong, words in (
            ([], "there too (--ledger)"),
            (["--ledger", "two.ledger"], "another ledger"),
        ):
            assert run([*made, "wrong", *wrong]) == 2
            assert words in " ".join(capsys.readouterr().err.split())
            assert not (tmp_path / "wrong").exists()
        assert run([*made, "right", "--ledger", "one.ledger"]) == 0
        assert run(["verify", "right"]) == 0
        said = json.loads((tmp_path / "right" / "certificate.json").read_text(encoding="utf-8"))
        assert said["draft"]["seal"] == json.loads((tmp_path / certificate).read_text())["seal"]
        with pytest.raises(BudgetError, match="charged to no ledger"):
            release(
                TABLE, schema=(free := private_draft(TABLE, budget=GENEROUS)).schema, workload="marginals:1",
                budget=AFTER, draft=free, ledger=tmp_path / "one.ledger",
            )  # fmt: skip
