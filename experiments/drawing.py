"""How every picture is drawn: colours, marks and dashes that all can tell apart, and lines with their spread.

The colours are those of Okabe and Ito (2008), which people with any common kind of colour blindness can tell
apart. Nothing is told by colour alone: every line of a picture has a mark or a dash of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.spread import samples_by

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#777777"
CYCLE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY)  # matplotlib's C0, C1, …
DPI = 200

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Look:
    """What a line looks like."""

    colour: str
    marker: str = ""
    dash: Any = "-"

    @property
    def style(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "ls": self.dash, "ms": 4.5, "lw": 1.4}


# One look for one method, on every page.
PAPERS_DUAL_QUERY, RHO_DUAL_QUERY, OWN_DUAL_QUERY = (
    Look(GREEN, "v", ":"),
    Look(GREEN, "^", "--"),
    Look(GREEN, "o"),
)
ADVANCED_DUAL_QUERY = Look(GREEN, "<", "-.")
PROJECTION = Look(BLUE, "s")
MWEM, MWEM_AGAIN, MWEM_LETTER = Look(VERMILION, "P"), Look(VERMILION, "X", "--"), Look(VERMILION, "x", ":")
NOISE = Look(ORANGE, "d", "-.")
SEQUENCE = (  # for methods that stand on one page alone
    Look(BLUE, "o"),
    Look(ORANGE, "s", "--"),
    Look(GREEN, "^", "-."),
    Look(VERMILION, "D", ":"),
    Look(PURPLE, "v", (0, (5, 1))),
    Look(SKY, "P", (0, (1, 1))),
)
ZEROS, UNIFORM = Look(BLACK, "", ":"), Look(GREY, "", "--")


def curve(panel: Axes, rows: Rows, x: str, y: str, look: Look, label: str | None = None) -> None:
    """A line through the means of the runs, in a band from the lowest run to the highest."""
    samples = sorted((key[0], sample) for key, sample in samples_by(rows, (x,), y).items())
    if not samples:
        return
    across = [place for place, _ in samples]
    panel.plot(across, [sample.mean for _, sample in samples], label=label, **look.style)
    low, high = [sample.low for _, sample in samples], [sample.high for _, sample in samples]
    band(panel, across, low, high, look)


def upright(panel: Axes, rows: Rows, x: str, y: str, look: Look, label: str | None = None) -> None:
    """A mark at the mean of the runs and a line from the lowest to the highest, at each place across."""
    for (place,), sample in sorted(samples_by(rows, (x,), y).items()):
        panel.vlines(place, sample.low, sample.high, color=look.colour, lw=1.4)
        panel.plot(place, sample.mean, label=label, **(look.style | {"ls": "", "ms": 6}))
        label = None  # one entry of the legend for all of them


def band(
    panel: Axes, across: Sequence[float], low: Sequence[float], high: Sequence[float], look: Look
) -> None:
    """The spread behind a line: a band where there is a line, and a bar where there is but one point."""
    if len(across) > 1:
        panel.fill_between(across, low, high, color=look.colour, alpha=0.18, lw=0)
    else:
        panel.vlines(across, low, high, color=look.colour, lw=1.4)


def dots(
    panel: Axes,
    places: Iterable[float],
    rows_of: Iterable[Rows],
    column: str,
    look: Look,
    label: str | None = None,
) -> None:
    """A dot at the mean of the runs on each line of a panel, and a thin line from the lowest run to the highest.

    A dot has no length: unlike a bar it says the same on a logarithmic axis, which begins nowhere.
    """
    for place, rows in zip(places, rows_of, strict=True):
        for sample in samples_by(rows, (), column).values():
            panel.hlines(place, sample.low, sample.high, color=look.colour, lw=1.4)
            panel.plot(sample.mean, place, label=label, **(look.style | {"ls": "", "ms": 6}))
            label = None  # one entry of the legend for all of them


def name_lines(panel: Axes, names: Sequence[str]) -> None:
    """What the lines of a panel stand for, the first on top."""
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(True, axis="y", lw=0.5, alpha=0.5)


def stopped(panel: Axes, places: Sequence[float], look: Look, label: str | None = None) -> None:
    """Marks at the upper edge for what ran out of time, and so has no height."""
    if len(places):
        panel.scatter(
            places,
            [0.97] * len(places),
            transform=panel.get_xaxis_transform(),
            marker="X",
            facecolors="none",
            edgecolors=look.colour,
            s=45,
            label=label,
            clip_on=False,
        )


def plain_ticks(panel: Axes, values: Iterable[float]) -> None:
    """The values that were tried as the only ticks across, in plain digits."""
    ticks = sorted(set(values))
    panel.set_xticks(ticks, [f"{value:g}" for value in ticks])
    panel.set_xticks([], minor=True)


def legend_below(picture: Figure, panel: Axes, columns: int) -> None:
    """One legend for all panels, outside of them."""
    picture.legend(
        *panel.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False
    )


def mean_and_max_dots(panel: Axes, rows: Rows, words: Mapping[str, str], columns: tuple[str, str]) -> None:
    """Two dots for each method, its mean and its max error, the first method on top."""
    rows = list(rows)
    runs = {method: [row for row in rows if row["method"] == method] for method in words}
    shown = [method for method, mine in runs.items() if mine]
    for column, label, look in zip(
        columns, ("mean", "max"), (Look(BLUE, "o"), Look(VERMILION, "D")), strict=True
    ):
        dots(panel, range(len(shown)), [runs[method] for method in shown], column, look, label)
    name_lines(panel, [words[method] for method in shown])
    panel.set_xscale("log")
