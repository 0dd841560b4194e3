"""The experiments about special cases at toy size: what they leave behind, and who wins."""

from __future__ import annotations

from pathlib import Path

from experiments import disjunctions, mirror, sparse
from experiments.data import Data
from experiments.harness import Setting, Size, mean_by
from tests.experiments.outputs import rows_after_run


def test_mirror_descent_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(mirror.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert {row["method"] for row in rows} == set(mirror.MAPS)
    assert all(row["mean_error"] < 0.1 for row in rows)


def test_disjunctions_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(disjunctions.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    mean = mean_by(rows, ("method",), "mean_error")
    assert mean["parities",] < mean[disjunctions.NOISE,]


def test_sparse_queries_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(sparse.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    mean = mean_by(rows, ("method",), "mean")
    assert mean["noisy-cells",] < mean[sparse.INCIDENCE,] / 2
