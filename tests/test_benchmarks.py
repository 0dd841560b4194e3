"""What benchmarks keep: every figure with its runs, the last time of a title in the place of the one before."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.harness import Figure, keep
from experiments.page_parts import files


def test_a_mean_has_its_runs_beside_it() -> None:
    figure = Figure.mean("error", [0.25, 0.5, 0.75], required=0.6)
    assert (figure.measured, figure.least, figure.most, figure.runs) == (0.5, 0.25, 0.75, 3)
    assert "met" in figure.verdict
    assert "missed" in Figure.mean("error", [1.0, 2.0], required=1.4).verdict
    assert "met" in Figure("rate", 3.0, required=2.0, at_least=True).verdict


def test_a_title_is_kept_once_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "results" / "some.csv"
    keep(path, "small", [Figure("error", 0.1), Figure("seconds", 1.0)])
    keep(path, "large", [Figure("error", 0.2)])
    keep(path, "small", [Figure.mean("error", [0.3, 0.5])])
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["title"], row["what"], float(row["measured"])) for row in csv.DictReader(file)]
    assert rows == [("large", "error", 0.2), ("small", "error", 0.4)]


def test_pages_read_what_benchmarks_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KEPT", tmp_path)
    keep(tmp_path / "some.csv", "small", [Figure.mean("error", [0.3, 0.5]), Figure("seconds", 2.0)])
    found = files.figures_of("some")
    assert files.error(found["small", "error"]) == "0.40 (0.30–0.50)"
    assert files.error(found["small", "seconds"]) == "2.0"
    assert files.figures_of("none") == {}
