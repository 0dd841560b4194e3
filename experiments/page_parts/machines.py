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
    "releases": "whole releases, file to folder",
}


def cores() -> str:
    lines = [
        [
            TABLES[str(row["data"])],
            f"{row['threads']}",
            f"{row['runs']}",
            f"{_spread(row['seconds'], row['slowest'])} s",
            f"{row['times']:.2f}",
            f"{row['wanted']:.1f}" if row["wanted"] != "" else "",
            "" if row["threads"] == 1 else f"{row['serial_share']:.0%}",
            f"{row['processor']:.1f} s",
            f"{row['memory_times']:.2f}",
            "yes" if row["same_bytes"] == "True" else "**no**",
        ]
        for row in kept_rows("cores")
    ]
    header = (
        "table", "threads", "runs", "seconds", "times as fast", "wanted", "serial", "processor", "memory",
        "same bytes",
    )  # fmt: skip
    return table(header, lines)


def gpu() -> str:
    """Every figure but versions and how long a part took; the limits of the card stand among them."""
    lines, before = [], ""
    for row in kept_rows("gpu"):
        part, what = str(row["part"]), str(row["what"])
        if part not in PARTS_OF_CARD or what in ("this part took", "what the engine said"):
            continue
        flight = f", {row['rows_in_flight']} rows" if row["rows_in_flight"] != "" else ""
        timed = row["unit"] == "s"
        residual = "residual" in what or "L1" in what
        lines.append(
            [
                "" if part == before else PARTS_OF_CARD[part],
                what + flight,
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
    return low if low == high else f"{low} to {high}"


def gpu_versions() -> str:
    """What the figures were measured with."""
    found = {str(row["what"]): str(row["value"]) for row in kept_rows("gpu") if row["part"] == "versions"}
    return ", ".join(f"{what} {value}" for what, value in found.items()) + ".\n"


PARTS: dict[str, Callable[[], str]] = {"cores": cores, "gpu": gpu, "gpu versions": gpu_versions}
