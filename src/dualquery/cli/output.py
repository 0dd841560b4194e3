"""What commands print for people."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Step


def print_json(data: object) -> None:
    print(json.dumps(_finite(data), indent=2, ensure_ascii=False))


def _finite(data: object) -> object:
    """JSON has no word for infinite or undefined numbers: null."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def print_facts(facts: Mapping[str, str]) -> None:
    """A name and a value a line; long values are folded under themselves."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(value))
    _console().print(table)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"Warning: {warning[:1].upper()}{warning[1:]}", file=sys.stderr)


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    # Into a pipe or a file nothing should be folded at an invented width.
    return console if console.is_terminal else Console(highlight=False, width=200)


def seconds(value: float) -> str:
    """A predicted time, with no more precision than a prediction has."""
    if value < 1:
        return "under a second"
    if value < 90:
        return f"about {value:.0f} s"
    return f"about {value / 60:.0f} minutes"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def fraction(value: float | None) -> str:
    """An error, as a fraction of the table."""
    return (
        "unknown" if value is None or value != value else f"{value:.2g}" if value < 0.001 else f"{value:.4f}"
    )


def errors(mean: float | None, maximum: float | None) -> str:
    return f"mean {fraction(mean)}, max {fraction(maximum)} (fractions of the table)"


def parameter(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def steps(planned: Iterable[Step]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table of steps: those of one kind together, with the price of all of them."""
    together: dict[str, list[Step]] = {}
    for step in planned:
        together.setdefault(step.words, []).append(step)
    rows = []
    for words, alike in together.items():
        times = sum(step.times for step in alike)
        pure = [step.times * step.event.pure for step in alike if hasattr(step.event, "pure")]
        rho = [step.times * step.event.rho for step in alike if hasattr(step.event, "rho")]
        rows.append(
            [
                words,
                f"{times:,}",
                f"{float(sum(pure)):.4g}" if len(pure) == len(alike) else "none",
                f"{float(sum(rho)):.4g}" if len(rho) == len(alike) else "none",
            ]
        )
    return ["step", "times", "pure ε", "ρ"], rows
