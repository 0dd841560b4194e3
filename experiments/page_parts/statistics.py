"""What the page on statistics quotes: how often intervals and bars of numbers hold, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable

from experiments.page_parts.files import figures_of, table

FILE = "inference"


def intervals() -> str:
    """One line a table and ε, of the benchmark's estimates."""
    figures = figures_of(FILE)
    lines: dict[str, dict[str, str]] = {}
    runs = {}
    for (_, what), sample in figures.items():
        said, found, name = what.partition(": ")
        if found and ", ε = " in said:
            lines.setdefault(said, {})[name] = f"{sample.mean:.2f}"
            runs[said] = f"{sample.runs:g}"
    names = ("table, held", "population, held", "table, width", "population, width", "nothing said")
    return table(
        ("tables", *names, "runs"),
        ([said, *(found.get(name, "") for name in names), runs[said]] for said, found in lines.items()),
    )


def sql_bars() -> str:
    """One line a table, and one a kind of question about pairs that were never measured."""
    figures = figures_of(FILE)
    lines = []
    for (title, what), sample in figures.items():
        said, _, name = what.partition(": ")
        if name == "bars that hold":
            null = figures.get((title, f"{said}: null"))
            lines.append(
                [said, f"{sample.mean:.2f}", "" if null is None else f"{null.mean:.2f}", f"{sample.runs:g}"]
            )
    return table(("", "bars that hold", "null", "runs"), lines)


PARTS: dict[str, Callable[[], str]] = {"intervals": intervals, "sql bars": sql_bars}
