"""Evaluation against a naive comparison."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dualquery
from dualquery import QueryError, Records, Release, ReleaseError
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.releases import evaluate as evaluating
from dualquery.table.schema import parse_schema

Make = Callable[..., Release]


def naive_tables(records: Records, k: int) -> list[np.ndarray[Any, Any]]:
    rows, sizes = records.to_rows(), records.domain.sizes
    tables = []
    for members in combinations(range(records.domain.width), k):
        table = np.zeros(tuple(sizes[list(members)]))
        np.add.at(table, tuple(rows[:, j] for j in members), 1)
        tables.append(table.ravel() / records.rows)
    return tables


@pytest.mark.parametrize("cells_at_once", [8_000_000, 40])
def test_tables_against_a_naive_count(
    make: Make, records: Records, monkeypatch: pytest.MonkeyPatch, cells_at_once: int
) -> None:
    monkeypatch.setattr(evaluating, "_CELLS_AT_ONCE", cells_at_once)
    release = make()
    assert release.records is not None
    found = dualquery.evaluate(release, records, "marginals:2")
    differences = [
        np.abs(a - b) for a, b in zip(naive_tables(records, 2), naive_tables(release.records, 2), strict=True)
    ]
    errors = np.concatenate(differences)
    assert found.queries == len(errors)
    assert found.rows == records.rows
    assert found.synthetic_rows == release.records.rows
    assert found.max_error == pytest.approx(errors.max())
    assert found.mean_error == pytest.approx(errors.mean())
    assert found.rms_error == pytest.approx(np.sqrt((errors**2).mean()))
    assert found.tables is not None
    assert found.tables.tables == len(differences)
    assert found.tables.mean_l1 == pytest.approx(np.mean([each.sum() for each in differences]))
    assert found.tables.max_l1 == pytest.approx(max(each.sum() for each in differences))
    assert abs(found.worst[0].truth - found.worst[0].answer) == pytest.approx(errors.max())
    assert release.answer(found.worst[0].query).value == pytest.approx(found.worst[0].answer)
    assert found.stamp == "not private: internal, do not publish"


def test_a_release_of_the_truth_has_no_error(make: Make, records: Records) -> None:
    release = make()
    perfect = Release(release.certificate, release.domain, SyntheticRecords(records))
    found = dualquery.evaluate(perfect, records, "random:3:200")
    assert found.max_error == 0
    assert found.tables is None
    assert found.queries == 200


def test_the_workload_of_the_release_is_the_default(make: Make, records: Records, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("sex = male\nage >= 75\n")
    release = make(workload=str(file))
    assert dualquery.evaluate(release, records).queries == 2
    file.write_text("sex = male\n")
    with pytest.raises(ReleaseError, match="no longer holds"):
        dualquery.evaluate(release, records)
    file.unlink()
    with pytest.raises(ReleaseError, match="cannot be made again"):
        dualquery.evaluate(release, records)
    assert dualquery.evaluate(release, records, "marginals:1").queries > 2


def test_answers_without_records_are_compared_too(make: Make, records: Records) -> None:
    release = make(mechanism="bare")
    found = dualquery.evaluate(release, records)
    assert found.synthetic_rows is None
    truth = np.concatenate(naive_tables(records, 1))
    assert isinstance(release.artefact, BareAnswers)
    assert found.mean_error == pytest.approx(np.abs(release.artefact.values - truth).mean())
    with pytest.raises(QueryError, match="not among its queries"):
        dualquery.evaluate(release, records, "marginals:2")


def test_a_workload_of_another_schema_is_refused(make: Make, records: Records) -> None:
    other = dualquery.Domain((dualquery.Categorical("a", ("x", "y")),))
    with pytest.raises(QueryError, match="another schema"):
        dualquery.evaluate(make(), records, dualquery.marginals(other, 1))


def test_a_release_of_a_period_is_compared_with_the_records_of_that_period() -> None:
    rows = [("2024-01-05", "f")] * 400 + [("2024-04-05", "m")] * 1_600
    table = pa.table({"received": [a for a, _ in rows], "sex": [b for _, b in rows]})
    text = '[table]\nperiod = "received"\ncalendar = "quarter"\n[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n'
    made = dualquery.release(
        table,
        schema=parse_schema(text, origin="test"),
        workload="marginals:1",
        budget=dualquery.Budget(5, 1e-6),
        period="2024-Q1",
        check=0,
    )
    found = dualquery.evaluate(made, table)
    assert found.rows == 400
    assert found.max_error < 0.05
