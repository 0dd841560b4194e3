"""What pages quote of benchmarks of many cores and of a graphics card."""

from __future__ import annotations

from collections.abc import Callable

from experiments.page_parts.files import TABLES, kept_rows, plain, table

PARTS_OF_CARD = {
    "counts": "conjunctions",
    "made": "conjunctions over a table made on the card",
    "tables": "tables",
    "fits": "fits of two chains",
    "wide": "fit of a wide table",
    "game": "games",
    "releases": "whole releases",
}
AT_ONCE = "1 of 16"  # how many rows of a fit move at once, as the engine does it
LEFT_OUT = (
    "this part took",
    "what the engine said",
    "first call",
    "391 bit columns",
    "limit by ones",
    "of 20 counts looked at",
    "of which, offsets sent before",
    "what the card said",
    "squared residual of the rows",
)


def cores() -> str:
    """One line for each table and number of threads, and whether all of them wrote the same bytes."""
    rows = kept_rows("cores")
    lines = [
        [
            TABLES[str(row["data"])],
            f"{row['threads']}",
            f"{row['runs']}",
            f"{_spread(row['seconds'], row['slowest'])} s",
            f"{row['times']:.2f}",
            f"{row['wanted']:.1f}" if row["wanted"] != "" else "",
            f"{row['memory_times']:.2f}",
        ]
        for row in rows
        if row["threads"] != 8
    ]
    same = sum(row["same_bytes"] == "True" for row in rows)
    header = ("table", "threads", "runs", "seconds", "times as fast", "wanted", "memory")
    return f"{table(header, lines)}\nThe same bytes as with one thread: {same} of {len(rows)}.\n"


def gpu() -> str:
    """What a reader asks; times of parts and steps, limits, and other numbers of rows at once are in the file."""
    lines, before = [], ""
    for row in kept_rows("gpu"):
        part, what = str(row["part"]), str(row["what"])
        if (
            part not in PARTS_OF_CARD
            or what.startswith(LEFT_OUT)
            or row["rows_in_flight"] not in ("", AT_ONCE)
        ):
            continue
        timed = row["unit"] == "s"
        residual = "residual" in what or "L1" in what
        lines.append(
            [
                "" if part == before else PARTS_OF_CARD[part],
                what,
                f"{row['value']:.4g}"
                if residual
                else f"{_spread(row['value'], row['most'])}{' s' if timed else ''}",
                f"{row['runs']}",
                f"{plain(float(row['wanted']))}"
                if row["wanted"] != "" and (timed or row["wanted"] == 0)
                else "",
            ]
        )
        before = part
    return table(("part", "what", "measured", "runs", "wanted"), lines)


def _spread(least: object, most: object) -> str:
    """Two digits that matter, of the least and of the most."""
    low = plain(float(str(least)))
    high = low if most == "" else plain(float(str(most)))
    return low if low == high else f"{low}–{high}"


def gpu_versions() -> str:
    """What the figures were measured with."""
    found = {str(row["what"]): str(row["value"]) for row in kept_rows("gpu") if row["part"] == "versions"}
    return ", ".join(f"{what} {value}" for what, value in found.items()) + ".\n"


PARTS: dict[str, Callable[[], str]] = {"cores": cores, "gpu": gpu, "gpu versions": gpu_versions}
