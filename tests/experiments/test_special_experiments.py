"""The experiments about special cases at toy size: what they leave behind, and who wins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from experiments import disjunctions, mirror, sparse
from experiments.data import Data
from experiments.harness import Setting, Size, mean_by
from tests.experiments.outputs import rows_after_run


def test_mirror_descent_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(mirror.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    assert {row["method"] for row in rows} == set(mirror.MAPS)
    assert all(row["mean_error"] < 0.1 for row in rows)


def rows_of(case: str, errors: dict[str, float]) -> list[dict[str, Any]]:
    """Three runs of each map, close together."""
    return [
        {"case": case, "method": method, "run": run, "mean_error": error * (1 + run / 100)}
        for method, error in errors.items()
        for run in range(3)
    ]


def test_what_the_theorem_says_of_maps_is_told_where_it_shows() -> None:
    assert mirror.bounds(mirror.EVEN) == pytest.approx(
        {"entropy": math.log(2**8) ** 0.5, "euclidean": 0.5**0.5}
    )
    gained = rows_of(mirror.EVEN, {"entropy": 2.0, "p = 1.2": 1.0, "p = 1.5": 1.0, "euclidean": 1.0})
    assert f"That shows clearly on *{mirror.EVEN}*; the runs do not tell" in mirror.find(gained)
    alike = mirror.find(rows_of(mirror.EVEN, dict.fromkeys(mirror.MAPS, 1.0)))
    assert "none is clearly above the least" in alike
    assert "no gain shows even there" in alike


def test_disjunctions_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(disjunctions.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    mean = mean_by(rows, ("method",), "mean_error")
    assert mean["parities",] < mean[disjunctions.NOISE,]


def test_sparse_queries_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    rows = rows_after_run(sparse.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    mean = mean_by(rows, ("method",), "mean")
    assert mean["noisy-cells",] < mean[sparse.INCIDENCE,] / 2
