"""Pictures for the report, written as SVG straight into the page. They show synthetic records only.

A bar chart is a handful of rectangles and words. Writing them down takes microseconds, scales to a phone, and
makes the same bytes for the same numbers; a plotting library would take longer than many a release.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import ReleaseError, writing

INK, SOFT, ACCENT, WARM, LINE = "#1f2a37", "#5b6a7b", "#2f6f8f", "#b4530a", "#e3e8ee"
HEAT = ((244, 247, 249), (207, 227, 236), (111, 168, 192), (47, 111, 143), (18, 63, 86))  # light to dark
WIDTH = 340.0
FONT = 12.0
LONGEST_LABEL = 20
BAR = 20.0
MOST_COLUMNS = 60  # that a report shows a picture of
MOST_CELLS_A_SIDE = 24  # of a map in a report
CARD = (
    "background:#fff;color:#1f2a37;border:1px solid #e3e8ee;border-radius:8px;padding:12px 16px;"
    "max-width:46rem;font:14px/1.5 system-ui,sans-serif"
)


@dataclass(frozen=True)
class Figure:
    """A picture with its title. Notebooks show it, on a light ground of its own; `save` writes it to a file."""

    title: str
    svg: str
    caption: str = ""

    def __repr__(self) -> str:
        return f"<Figure: {self.title}>"

    def _repr_html_(self) -> str:
        drawn = f'<div style="max-width:30rem;margin-top:8px">{self.svg}</div>'
        return f'<div style="{CARD}"><b>{escape(self.title)}</b>{drawn}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an SVG file."""
        if Path(path).suffix.lower() != ".svg":
            raise ReleaseError(f"pictures are written as SVG; name the file '{Path(path).stem}.svg'")
        with writing(path):
            Path(path).write_text(self.svg, encoding="utf-8")


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def percentage(share: float) -> str:
    percent = 100 * share
    if percent <= 0:
        return "0%"
    digits = 1 if percent >= 1 else min(6, 1 - math.floor(math.log10(percent)))
    return f"{percent:.{digits}f}%"


def histogram(
    labels: Sequence[str],
    shares: NDArray[np.float64],
    *,
    name: str,
    bars: NDArray[np.float64] | None = None,
    written: Callable[[float], str] = percentage,
) -> str:
    """Horizontal bars, the first label on top, each with its share, and a whisker as far as it may be off."""
    texts = [shortened(label) for label in labels]
    left = _room(texts) + 6
    longest = WIDTH - left - 48
    reach = shares if bars is None else shares + bars
    most = max(float(reach.max(initial=0.0)), 1e-12)
    marks = []
    for i, (text, share) in enumerate(zip(texts, shares.tolist(), strict=True)):
        top, length = i * BAR, longest * share / most
        marks.append(_rectangle(left, top + 3, max(length, 0.6), BAR - 6, ACCENT))
        marks.append(_text(left - 6, top + BAR / 2, text, anchor="end"))
        end = length
        if bars is not None:
            off = longest * float(bars[i]) / most
            end, middle = length + off, top + BAR / 2
            marks.append(_line(left + max(length - off, 0), middle, left + end, middle, WARM, 1.5))
        marks.append(_text(left + end + 5, top + BAR / 2, written(share), colour=SOFT))
    return _svg(WIDTH, BAR * len(texts), f"Shares of {name}", marks)


def beside(
    labels: Sequence[str], above: NDArray[np.float64], below: NDArray[np.float64], *, name: str
) -> str:
    """Two thin horizontal bars for each label, the first in orange, with the share of the second."""
    texts = [shortened(label) for label in labels]
    left = _room(texts) + 6
    most = max(float(max(above.max(initial=0.0), below.max(initial=0.0))), 1e-12)
    longest, marks = WIDTH - left - 48, []
    for i, text in enumerate(texts):
        marks.append(_text(left - 6, (i + 0.5) * BAR, text, anchor="end"))
        for share, colour, down in ((above[i], WARM, 2), (below[i], ACCENT, 10)):
            marks.append(_rectangle(left, i * BAR + down, max(longest * float(share) / most, 0.6), 7, colour))
        end = left + longest * float(max(above[i], below[i])) / most
        marks.append(_text(end + 5, (i + 0.5) * BAR, percentage(float(below[i])), colour=SOFT))
    return _svg(WIDTH, BAR * len(texts), f"Shares of {name}, truth above and release below", marks)


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: NDArray[np.float64], *, names: tuple[str, str]
) -> str:
    """Joint shares of two attributes; a darker cell holds more records."""
    down, across = [shortened(label) for label in rows], [shortened(label) for label in columns]
    left = _room(down) + 6
    wide = (WIDTH - left) / len(across)
    lying = all(_width(text) < wide for text in across)
    below = 20.0 if lying else _room(across) + 8
    high = min(24.0, max(13.0, 300 / len(down)))
    most = max(float(shares.max(initial=0.0)), 1e-12)
    written = wide >= 20 and high >= 15
    marks = []
    for i, text in enumerate(down):
        marks.append(_text(left - 6, (i + 0.5) * high, text, anchor="end", size=min(FONT, high - 1)))
    for j, text in enumerate(across):
        x, y = left + (j + 0.5) * wide, len(down) * high
        if lying:
            marks.append(_text(x, y + 10, text, anchor="middle"))
        else:
            marks.append(_text(x, y + 6, text, anchor="end", size=min(FONT, wide), turn=-90))
    for (i, j), share in np.ndenumerate(shares):
        level = math.sqrt(float(share) / most)  # the eye should still see the small ones
        marks.append(_rectangle(left + j * wide, i * high, wide - 1, high - 1, heat(level)))
        if written and share >= 0.005:
            colour = "#fff" if level > 0.62 else INK
            middle = (left + (j + 0.5) * wide, (i + 0.5) * high)
            marks.append(_text(*middle, f"{100 * share:.0f}", anchor="middle", size=10.5, colour=colour))
    return _svg(WIDTH, len(down) * high + below, f"Joint shares of {names[0]} and {names[1]}", marks)


def heat(level: float) -> str:
    """The colour of a cell, from 0 (white) to 1 (dark)."""
    place = min(max(level, 0.0), 1.0) * (len(HEAT) - 1)
    i = min(int(place), len(HEAT) - 2)
    part = place - i
    mixed = (round(a + (b - a) * part) for a, b in zip(HEAT[i], HEAT[i + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


class _Frame:
    """A wide picture with a horizontal axis of errors and a vertical axis."""

    left, right, top, bottom = 62.0, 700.0, 14.0, 210.0
    size = (720.0, 252.0)

    def __init__(self, most_x: float, most_y: float) -> None:
        self.most_x, self.most_y = most_x, most_y
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * value / self.most_x

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.most_y

    def heights(self, written: Callable[[float], str]) -> None:
        for value in ticks(self.most_y, 4):
            self.marks.append(_line(self.left, self.y(value), self.right, self.y(value), LINE))
            self.marks.append(_text(self.left - 8, self.y(value), written(value), anchor="end", colour=SOFT))

    def axes(self, across: str, downwards: str, *, percent: bool) -> None:
        self.heights(lambda value: f"{100 * value:.0f}%" if percent else f"{value:,.0f}")
        for value in ticks(self.most_x, 7):
            label = f"{100 * value:.6g}%"
            self.marks.append(_text(self.x(value), self.bottom + 16, label, anchor="middle", colour=SOFT))
        middle = (self.left + self.right) / 2
        self.marks.append(_text(middle, self.bottom + 36, across, anchor="middle", colour=SOFT))
        turned = (12.0, (self.top + self.bottom) / 2)
        self.marks.append(_text(*turned, downwards, anchor="middle", colour=SOFT, turn=-90))

    def mark(self, value: float | None, word: str) -> None:
        """A vertical line with a word, where it lies within the picture."""
        if value is None or not 0 < value < self.most_x:
            return
        x = self.x(value)
        self.marks.append(_line(x, self.top - 8, x, self.bottom, WARM, 2))
        side, anchor = (5, "start") if x < 0.8 * self.right else (-5, "end")
        self.marks.append(
            _text(x + side, self.top, f"{word} {percentage(value)}", anchor=anchor, colour=WARM)
        )

    def svg(self, title: str) -> str:
        return _svg(*self.size, title, self.marks)


def error_histogram(edges: Sequence[float], counts: Sequence[int], mean: float | None) -> str:
    frame = _Frame(max(edges[-1], 1e-12), 1.08 * max(counts))
    frame.axes("error, as a share of the records", "questions", percent=False)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x, y = frame.x(low), frame.y(count)
        frame.marks.append(_rectangle(x, y, max(frame.x(high) - x - 1, 0.5), frame.bottom - y, ACCENT))
    frame.mark(mean, "predicted mean")
    return frame.svg("Distribution of the errors of replicas")


def error_curve(mean: float, maximum: float | None) -> str:
    """The errors to expect where only their mean is predicted: |normal| of that mean.

    |N(0, σ²)| has mean σ √(2/π), so σ = mean · √(π/2); the curve shows the share of queries off by more
    than x, erfc(x / (σ √2)).
    """
    spread = mean * math.sqrt(math.pi / 2)
    frame = _Frame(4 * spread, 1.0)
    frame.axes("error, as a share of the records", "questions off by more", percent=True)
    places = [4 * spread * i / 120 for i in range(121)]
    curve = [(frame.x(x), frame.y(math.erfc(x / (spread * math.sqrt(2))))) for x in places]
    outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve)
    closed = f"{outline} {frame.right:.1f},{frame.bottom:.1f} {frame.left:.1f},{frame.bottom:.1f}"
    frame.marks.append(f'<polygon points="{closed}" fill="{ACCENT}" fill-opacity=".16"/>')
    frame.marks.append(f'<polyline points="{outline}" fill="none" stroke="{ACCENT}" stroke-width="2.5"/>')
    frame.mark(mean, "mean")
    frame.mark(maximum, "largest")
    return frame.svg("Share of the questions predicted to be off by more than a given error")


def banded_curve(
    at: NDArray[np.float64], curve: NDArray[np.float64], band: NDArray[np.float64], title: str
) -> str:
    """A curve over places, with a band as far as it may be off."""
    left, height, bottom = 52.0, 180.0, 156.0
    most = float((curve + band).max()) * 1.05 or 1.0
    x = left + (WIDTH - left - 8) * (at - at[0]) / (at[-1] - at[0])

    def points(places: NDArray[np.float64], values: NDArray[np.float64]) -> str:
        y = bottom - (bottom - 8) * np.clip(values, 0, most) / most
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(places.tolist(), y.tolist(), strict=True))

    outline = points(np.append(x, x[::-1]), np.append(curve + band, (curve - band)[::-1]))
    across = {left + 10: at[0], (left + WIDTH) / 2: (at[0] + at[-1]) / 2, WIDTH - 24: at[-1]}
    upwards = {bottom: 0.0, bottom - (bottom - 8) / 2: most / 2, 8.0: most}
    marks = [
        _line(left, bottom, WIDTH - 8, bottom, LINE),
        f'<polygon points="{outline}" fill="{ACCENT}" fill-opacity=".2"/>',
        f'<polyline points="{points(x, curve)}" fill="none" stroke="{ACCENT}" stroke-width="2"/>',
    ]
    for place, value in across.items():
        marks.append(_text(place, height - 12, f"{value:.4g}", anchor="middle", colour=SOFT))
    for place, value in upwards.items():
        marks.append(_text(left - 6, place, f"{value:.3g}", anchor="end", colour=SOFT))
    return _svg(WIDTH, height, title, marks)


def lines(places: Sequence[str], curves: Mapping[str, Sequence[float]], title: str) -> str:
    """A line for each name over some places, from zero up, its name at its end."""
    names, most = list(curves), max(map(max, curves.values()))
    frame = _Frame(1.0, 1.1 * most)
    frame.right -= _room(names)
    across = [frame.x(0.03 + 0.94 * i / max(1, len(places) - 1)) for i in range(len(places))]
    frame.heights(lambda value: f"{value:.3g}")
    for x, place in zip(across, places, strict=True):
        frame.marks.append(_text(x, frame.bottom + 16, place, anchor="middle", colour=SOFT))
    low = frame.bottom
    for name in sorted(names, key=lambda each: curves[each][-1]):
        colour = (SOFT, ACCENT, WARM)[names.index(name) % 3]
        ends = [(x, frame.y(value)) for x, value in zip(across, curves[name], strict=True)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        frame.marks.append(f'<polyline points="{outline}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        low = min(low - FONT - 2, ends[-1][1])  # names do not lie on each other
        frame.marks.append(_text(frame.right - 8, low, name, colour=colour))
    return frame.svg(title)


def pair_matrix(names: Sequence[str], pairs: set[tuple[int, int]]) -> str:
    """A triangle of pairs: dark where both attributes were measured together; names stand on the diagonal.

    The cell of i and j < i lies in the row of i, under the name of j.
    """
    labels = [shortened(name) for name in names]
    side = 18.0 if len(labels) <= 30 else 10.0
    size = min(FONT, side - 1)
    width = max(700.0, side * len(labels) + _room(labels) * size / FONT + 6)  # few cells are not blown up
    marks = []
    for i, text in enumerate(labels):
        row = i * side
        marks.append(_rectangle(0, row, i * side, side, LINE))
        held = [j for j in range(i) if (j, i) in pairs]
        starts = [j for j in held if j - 1 not in held]
        ends = [j + 1 for j in held if j + 1 not in held]
        marks += [
            _rectangle(a * side, row, (b - a) * side, side, ACCENT) for a, b in zip(starts, ends, strict=True)
        ]
        marks.append(_text(i * side + 4, row + side / 2, text, size=size))
    for i in range(1, len(labels)):  # between the cells
        marks.append(_line(0, i * side, min(i + 1, len(labels)) * side, i * side, "#fff"))
        marks.append(_line(i * side, i * side, i * side, len(labels) * side, "#fff"))
    return _svg(width, side * len(labels), "Pairs of attributes that were measured", marks)


def ticks(most: float, number: int) -> list[float]:
    """About `number` round places from 0 to `most`: multiples of 1, 2 or 5 times a power of ten."""
    rough = most / number
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [i * step for i in range(int(most / step * (1 + 1e-9)) + 1)]


def _room(texts: Iterable[str]) -> float:
    return max(map(_width, texts), default=0.0) + 2


def _width(text: str) -> float:
    """An upper estimate of the width of a word, in the widest of the usual fonts."""
    return (
        sum(_LETTERS.get(letter, 0.66 if letter.isdigit() or letter.isupper() else 0.62) for letter in text)
        * FONT
    )


_LETTERS = dict.fromkeys("ijlI|.,:;'![]() tfr-", 0.41) | dict.fromkeys("mwMW@%<>=≤≥&…", 0.97)


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: float = FONT,
    colour: str = INK,
    turn: float = 0,
) -> str:
    """A word whose middle line is at y; with `turn` degrees around its anchor."""
    # Letters stand a third of their size below the middle; `dominant-baseline` is not known everywhere.
    place = f'x="{x:.1f}" y="{y + 0.35 * size:.1f}"'
    if turn:
        place = f'transform="translate({x + 0.35 * size:.1f} {y:.1f}) rotate({turn:g})"'
    anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
    sized = "" if size == FONT else f' font-size="{size:.1f}"'
    return f'<text {place}{anchored}{sized} fill="{colour}">{escape(text)}</text>'


def _svg(width: float, height: float, title: str, marks: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-size="{FONT:g}" '
        f'role="img"><title>{escape(title)}</title>{"".join(marks)}</svg>'
    )
