"""Rows from other people's noisy tables: they follow the tables, their bars hold, mistakes are one sentence."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dualquery
from dualquery import DualQueryError, Release
from dualquery.cli import run
from dualquery.queries.tables import Tables
from dualquery.releases.refit import interactions
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from dualquery.table.schema import schema_text

DOMAIN = Domain(
    tuple(Categorical(name, tuple("abcd"[:k])) for name, k in zip("wxyz", (2, 3, 4, 2), strict=True))
)
ROWS = 4_000
SD = 12.0


def records() -> Records:
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, ROWS)
    codes = [
        np.where(rng.random(ROWS) < 0.7, group % k, rng.integers(0, k, ROWS)) for k in DOMAIN.sizes.tolist()
    ]
    return Records.from_rows(DOMAIN, np.stack(codes, axis=1))


def tables(sets: Any, *, seed: int = 0, claimed: float = 1.0) -> list[dict[str, Any]]:
    """Noisy counts; `claimed` scales the variance that is told."""
    group, rng = Tables(DOMAIN, tuple(sets)), np.random.default_rng(seed)
    return [
        {
            "columns": [DOMAIN.name(j) for j in members],
            "cells": (counts + rng.normal(0, SD, counts.shape)).ravel().tolist(),
            "variance": claimed * SD**2,
        }
        for members, counts in zip(
            group.sets, group.split(group.counts(records()).astype(float)), strict=True
        )
    ]


PAIRS = list(combinations(range(4), 2))


def test_interactions_of_a_table_put_it_together_again_and_their_noise_is_as_told() -> None:
    """Brute force: the table is the sum of its interactions, and white noise has the variances that are claimed."""
    members, sizes = (0, 1, 2), [2, 3, 4]
    rng = np.random.default_rng(0)
    table = rng.normal(size=sizes)
    parts = {each.what: each for each in interactions(members, table, 1.0, DOMAIN)}
    assert len(parts) == 8
    again = np.zeros(sizes)
    for subset, each in parts.items():
        spread = tuple(slice(None) if j in subset else None for j in members)
        again = again + each.values[spread] / math.prod([sizes[j] for j in members if j not in subset])
    np.testing.assert_allclose(again, table)
    draws = [
        {each.what: each.values for each in interactions(members, rng.normal(size=sizes), 1.0, DOMAIN)}
        for _ in range(3000)
    ]
    for subset, each in parts.items():
        seen = np.mean([np.mean(draw[subset] ** 2) for draw in draws])
        kept = math.prod([(sizes[j] - 1) / sizes[j] for j in subset])  # of the variance, after centring
        assert seen == pytest.approx(each.variance * kept, rel=0.12), subset


def test_rows_follow_the_tables_and_bars_hold() -> None:
    truth = Tables(DOMAIN, tuple(PAIRS))
    true = truth.counts(records()) / ROWS

    def inside(claimed: float) -> tuple[float, float]:
        made = dualquery.fit(
            tables(PAIRS, claimed=claimed), schema=DOMAIN, origin="a test", records=ROWS, seed=2
        )
        answers = made.answers_of(truth)
        off = np.abs(np.array([each.value for each in answers]) - true)
        return float(np.mean(off <= [each.error for each in answers])), float(off.mean())

    covered, error = inside(1.0)
    assert covered > 0.88
    assert error < SD / ROWS  # smaller than the noise that came with the tables
    assert inside(0.0004)[0] < covered - 0.1, "bars follow the variance that is claimed"


def test_two_tables_of_one_set_are_weighed_and_the_order_of_names_does_not_matter() -> None:
    one, other = tables([(1, 2)])[0], tables([(1, 2)], seed=5)[0]
    turned = {**other, "columns": ["y", "x"], "cells": np.reshape(other["cells"], (3, 4)).T.ravel()}
    found = [
        dualquery.fit([one, each], schema=DOMAIN, origin="a test", records=ROWS, seed=1).to_arrow()
        for each in (other, turned)
    ]
    assert found[0].equals(found[1])


def test_it_is_a_release_that_promises_nothing_of_its_own(tmp_path: Path) -> None:
    file, schema, out = tmp_path / "t.parquet", tmp_path / "s.toml", tmp_path / "out"
    pyarrow.parquet.write_table(pa.Table.from_pylist(tables([(0,), (1,), (0, 1)])), file)
    schema.write_text(schema_text(DOMAIN), encoding="utf-8")
    assert (
        run(["fit", str(file), "--schema", str(schema), "--origin", "a friend", "--out", str(out), "--quiet"])
        == 0
    )
    made = Release.load(out)
    said = made.certificate
    assert not said.private
    assert said["fitted"] == {"origin": "a friend", "tables": 3}
    assert "no table tells anything about 'z'" in " ".join(said["notes"])
    assert made.public_rows is None  # the tables tell, with noise
    assert made.certificate["records"]["rows"] == pytest.approx(ROWS, abs=5 * SD * 2)
    assert dualquery.verify(out).recounted.epsilon == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "promise what those tables promise" in page
    assert "Do not publish" not in page
    again = dualquery.fit(out / "measurements.parquet", schema=DOMAIN, origin="a friend", seed=0)
    assert again.answer("w = a").value == pytest.approx(made.answer("w = a").value, abs=0.02)


GOOD = {"columns": ["w"], "cells": [1.0, 2.0], "variance": 1.0}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "no table to fit"),
        ([{"columns": ["w"]}], "lacks one of columns"),
        ([7], "lacks one of columns"),
        ([{**GOOD, "cells": [1.0]}], "1 cells, and its attributes have 2"),
        ([{**GOOD, "cells": ["a", "b"]}], "not all numbers"),
        ([{**GOOD, "cells": [1.0, math.nan]}], "finite"),
        ([{**GOOD, "variance": 0.0}], "above 0"),
        ([{**GOOD, "variance": [1.0, 2.0]}], "one number above 0"),
        ([{**GOOD, "columns": ["q"]}], "unknown attribute 'q'"),
        ([{**GOOD, "columns": ["w", "w"], "cells": [1.0] * 4}], "different attributes"),
        ([{**GOOD, "kind": "interaction"}], "how many records"),
        ("nowhere.parquet", "nowhere.parquet"),
    ],
)
def test_mistakes_are_one_sentence(rows: Any, sentence: str) -> None:
    with pytest.raises(DualQueryError, match=sentence) as raised:
        dualquery.fit(rows, schema=DOMAIN, origin="a test")
    assert "\n" not in str(raised.value)


def test_json_is_read_and_an_origin_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(tables([(0,)])), encoding="utf-8")
    made = dualquery.fit(file, schema=DOMAIN, origin="a test", synthetic_rows=500, seed=1)
    assert len(made) == 500
    with pytest.raises(DualQueryError, match="where the tables come from"):
        dualquery.fit(file, schema=DOMAIN, origin=" ")
