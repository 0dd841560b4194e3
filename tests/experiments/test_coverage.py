"""The coverage of bars at toy size: what is asked is natural, and bars hold the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dualquery.queries.language.reader import parse
from experiments import coverage
from experiments.data import Data
from experiments.harness import Setting, Size
from tests.experiments.outputs import rows_after_run


def test_bars_hold_the_truth(invented_data: Data, tmp_path: Path) -> None:
    (row,) = rows_after_run(coverage.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert 0.88 < row["coverage"] <= 1
    assert row["half_bars"] < row["coverage"] - 0.05
    assert row["zero_bars"] == 0
    assert 0.6 < row["ratio"] < 1.7


def test_natural_questions_are_what_the_language_reads(invented_data: Data) -> None:
    domain = coverage.records_of(invented_data, coverage.SURVEY).domain
    asked = coverage.natural_questions(domain, 300, np.random.default_rng(1))
    assert {len(query.literals) for query in asked} == {1, 2, 3, 4}
    assert 0.1 < np.mean([query.complement for query in asked]) < 0.3
    for query in asked:
        assert parse(query.text(domain), domain) == query
