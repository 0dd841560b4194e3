"""What the benchmarks share: data, a fresh process a measurement, and one table of figures that is shown and kept."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from dualquery.table.records import Records
from experiments.data import FILES, SCHEMAS, Data
from experiments.runs import in_fresh_process

__all__ = [
    "RESULTS",
    "Figure",
    "data_folder",
    "in_fresh_process",
    "records_of",
    "schema_path",
    "seconds_of",
    "show",
    "table_path",
]

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def data_folder() -> Path:
    """Where the public data sets are: DUALQUERY_DATA, or shared/data beside the checkout."""
    folder = Data.default_folder()
    if not folder.is_dir():
        sys.exit(
            "set DUALQUERY_DATA to the folder of the public data sets (experiments/README.md lists them)"
        )
    return folder


def table_path(name: str) -> Path:
    return data_folder() / FILES[name]


def schema_path(name: str) -> Path:
    return SCHEMAS / f"{name}.toml"


def records_of(name: str) -> Records:
    """A public data set, encoded by its schema."""
    return Data(data_folder()).records(name)


@dataclass(frozen=True)
class Figure:
    """One measured number next to what was asked for; where it is a mean of runs, with the least and the most."""

    what: str
    measured: float
    required: float | None = None
    unit: str = ""
    at_least: bool = False
    least: float | None = None
    most: float | None = None
    runs: int = 1

    @classmethod
    def mean(
        cls,
        what: str,
        runs: Sequence[float],
        required: float | None = None,
        unit: str = "",
        at_least: bool = False,
    ) -> Figure:
        return cls(what, fmean(runs), required, unit, at_least, min(runs), max(runs), len(runs))

    @property
    def verdict(self) -> str:
        if self.required is None:
            return ""
        good = self.measured >= self.required if self.at_least else self.measured <= self.required
        return "[green]met[/green]" if good else "[red]missed[/red]"


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print figures as a table, and keep them in results/NAME.csv, NAME being the benchmark that runs."""
    table = Table(title=title, title_justify="left")
    for heading in ("what", "measured", "required", ""):
        table.add_column(heading, justify="left" if heading in ("what", "") else "right")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        required = "" if figure.required is None else f"{sign} {figure.required:.4g}{figure.unit}"
        table.add_row(figure.what, f"{figure.measured:.4g}{figure.unit}", required, figure.verdict)
    Console(width=110 if not sys.stdout.isatty() else None).print(table)
    keep(RESULTS / f"{Path(sys.argv[0]).stem}.csv", title, figures)


def keep(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Write the figures of a title in the place of those that the file had under it; the others stay."""
    columns = ["title", *Figure.__dataclass_fields__, "date"]
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["title"] != title]
    today = date.today().isoformat()
    rows += [{"title": title, **asdict(figure), "date": today} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def seconds_of(function: Callable[[], Any], repeats: int = 3) -> float:
    """The least wall time of a few runs, after one that warms up."""
    function()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best
