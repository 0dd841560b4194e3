"""What the benchmarks share: the data, a fresh process a measurement, and one table of figures."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import read_schema

HERE = Path(__file__).parent
SCHEMAS = HERE.parent / "experiments" / "schemas"
RESULTS = HERE / "results"
FILES = {
    "adult": "adult.csv.gz",
    "kddcup99": "kddcup99_10percent.csv.gz",
    "nltcs": "nltcs.csv.gz",
    "kosarak": "kosarak_first100k.txt.gz",
}


def data_folder() -> Path:
    """Where the public data sets are: DUALQUERY_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("DUALQUERY_DATA", HERE.parent.parent / "shared" / "data"))
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
    return encode(str(table_path(name)), read_schema(schema_path(name)))


@dataclass(frozen=True)
class Figure:
    """One measured number next to what was asked for."""

    what: str
    measured: float
    required: float | None = None
    unit: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.required is None:
            return ""
        good = self.measured >= self.required if self.at_least else self.measured <= self.required
        return "[green]met[/green]" if good else "[red]missed[/red]"


def show(title: str, figures: list[Figure]) -> None:
    """Print figures as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("what", "measured", "required", ""):
        table.add_column(heading, justify="left" if heading in ("what", "") else "right")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        required = "" if figure.required is None else f"{sign} {figure.required:.4g}{figure.unit}"
        table.add_row(figure.what, f"{figure.measured:.4g}{figure.unit}", required, figure.verdict)
    Console(width=110 if not sys.stdout.isatty() else None).print(table)


def seconds_of(function: Callable[[], Any], repeats: int = 3) -> float:
    """The least wall time of a few runs, after one that warms up."""
    function()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """A function's result and the peak memory in GB of the process made for it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_peak, (function, arguments))


def _with_peak(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, float]:
    result = function(*arguments)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
