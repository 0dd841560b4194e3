"""The files that numbers of pages come from, and how a number is written."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from math import floor, log10
from pathlib import Path

from experiments.harness import Rows, value_of
from experiments.spread import Sample

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs" / "experiments"
KEPT = ROOT / "docs" / "benchmarks"  # what benchmarks wrote, once it was looked at
TABLES = {
    "adult": "Adult",
    "adult (3,000 rows)": "Adult, 3,000 rows",
    "adult (1,000 rows)": "Adult, 1,000 rows",
    "nltcs": "NLTCS",
    "kddcup99": "KDD99",
}  # as the peers' files call them


def rows_of(name: str) -> Rows:
    """The rows of an experiment, numbers as numbers; none where it was not measured."""
    return _read(RESULTS / f"{name}.csv")


def figures_of(name: str) -> dict[tuple[str, str], Sample]:
    """The figures of a benchmark by title and what is measured, with the least and the most of their runs."""
    return {
        (str(row["title"]), str(row["what"])): Sample(
            row["measured"], float("nan"), row["runs"], _or(row["least"], row), _or(row["most"], row)
        )
        for row in _read(KEPT / f"{name}.csv")
    }


def units_of(name: str) -> dict[tuple[str, str], str]:
    """What each figure of a benchmark is counted in."""
    return {(str(row["title"]), str(row["what"])): str(row["unit"]) for row in _read(KEPT / f"{name}.csv")}


def _or(value: float | str, row: dict[str, float]) -> float:
    return row["measured"] if value == "" else float(value)


def _read(path: Path) -> Rows:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: value_of(text) for key, text in row.items()} for row in csv.DictReader(file)]


def kept_rows(name: str) -> Rows:
    """The rows of a benchmark whose file has columns of its own."""
    return _read(KEPT / f"{name}.csv")


def table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    header = list(header)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)) + "\n"


def error(sample: Sample) -> str:
    """Two digits that matter, and from which run to which where these differ in them."""
    mean, low, high = (plain(value) for value in (sample.mean, sample.low, sample.high))
    return mean if low == high else f"{mean} ({low}–{high})"


def plain(value: float) -> str:
    """Two digits that matter, in decimals."""
    return f"{value:.{max(0, 1 - floor(log10(value)))}f}" if value > 0 else f"{value:g}"
