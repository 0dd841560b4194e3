"""Train on synthetic, test on real, at toy size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import learning
from experiments.data import Data
from experiments.harness import Setting, Size, mean_by
from tests.experiments.outputs import rows_after_run


def test_learning_at_toy_size(invented_data: Data, tmp_path: Path) -> None:
    """The invented people are of two kinds, so that income follows from any attribute, and a release knows it."""
    rows = rows_after_run(learning.EXPERIMENT, Setting(invented_data, Size.TOY), tmp_path)
    for learner in learning.LEARNERS:
        area = mean_by(rows, ("training",), learner)
        assert area[learning.REAL,] > 0.8
        assert area[learning.AROUND,] > area[learning.REAL,] - 0.1
    page = (tmp_path / "learning.md").read_text(encoding="utf-8")
    assert "The goals at ε = 1" in page


def test_workloads_that_came_to_the_same_release_are_told() -> None:
    def rows_of(area: dict[str, float]) -> list[dict[str, Any]]:
        return [
            {
                "training": spec,
                "epsilon": 1.0,
                "run": run,
                **dict.fromkeys(learning.LEARNERS, value - run / 1000),
            }
            for spec, value in area.items()
            for run in range(3)
        ]

    alike = " ".join(learning._workloads(rows_of({learning.PAIRS: 0.8, learning.AROUND: 0.8})))
    assert "No workload is clearly better" in alike
    assert "one and the same release" in alike
    apart = " ".join(learning._workloads(rows_of({learning.PAIRS: 0.8, learning.AROUND: 0.9})))
    assert "marginals:3:income over marginals:2 at ε = 1 (logistic regression)" in apart
    assert "same release" not in apart
