"""What the page on statistics quotes: how often intervals and bars of numbers hold, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable

from experiments.page_parts.files import figures_of, table

FILE = "inference"
SLOPE = "correlations of rows, slope"


def intervals() -> str:
    """One line a table and ε, of the benchmark's estimates."""
    figures = figures_of(FILE)
    lines: dict[str, dict[str, str]] = {}
    runs = set()
    for (_, what), sample in figures.items():
        said, found, name = what.partition(": ")
        if found and ", ε = " in said:
            lines.setdefault(said, {})[name] = f"{sample.mean:.2f}"
            runs.add(int(sample.runs))
    names = ("table, held", "population, held", "table, width", "population, width", "nothing said", SLOPE)
    rows = ([said, *(found.get(name, "") for name in names)] for said, found in sorted(lines.items()))
    return f"{table(('tables', *names), rows)}\n{min(runs)} to {max(runs)} runs.\n"


def sql_bars() -> str:
    """From the least share to the most, of tables and of pairs that were never measured."""
    shares: dict[bool, list[float]] = {}
    for (_, what), sample in figures_of(FILE).items():
        said, _, name = what.partition(": ")
        if name == "bars that hold":
            shares.setdefault(said.startswith("unmeasured"), []).append(sample.mean)
    told = {said: f"{min(found):.2f} to {max(found):.2f}" for said, found in shares.items()}
    return (
        f"On {len(shares[False])} tables {told[False]} of the bars held the number of the raw table; of questions "
        f"about pairs that were never measured {told[True]}.\n"
    )


PARTS: dict[str, Callable[[], str]] = {"intervals": intervals, "sql bars": sql_bars}
