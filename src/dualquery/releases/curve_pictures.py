"""The curves of a release of points, drawn column by column with their 95% bands."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.distances.artefact import DistanceCurves
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.filed import Filed
from dualquery.releases.pictures import MOST_COLUMNS, Picture
from dualquery.releases.plots import ACCENT, FONT, LINE, SOFT, WIDTH

HEIGHT, LEFT, BOTTOM = 180.0, 52.0, 24.0


def curve_pictures(artefact: Filed) -> list[Picture]:
    """One picture a column, of the first columns."""
    assert isinstance(artefact, DistanceCurves)
    measured = np.flatnonzero(~np.isnan(artefact.distance[:, 0]))
    return [_picture(artefact, j) for j in measured[:MOST_COLUMNS].tolist()]


def _picture(artefact: DistanceCurves, j: int) -> Picture:
    column = artefact.domain.coordinates[j]
    curve = column.width * artefact.distance[j]
    band = NormalDist().inv_cdf((1 + LEVEL) / 2) * column.width * artefact.deviation[j]
    at = column.low + np.linspace(0, column.width, len(curve))
    lowest = int(np.argmin(curve))
    caption = f"least at about {at[lowest]:.4g}, where it is {curve[lowest]:.4g}"
    return Picture(column.name, caption, _svg(column.name, at, curve, band))


def _svg(name: str, at: NDArray[np.float64], curve: NDArray[np.float64], band: NDArray[np.float64]) -> str:
    from html import escape

    most = float((curve + band).max()) * 1.05 or 1.0
    x = LEFT + (WIDTH - LEFT - 8) * (at - at[0]) / (at[-1] - at[0])

    def heights(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 8) * np.clip(values, 0, most) / most

    upper, lower = heights(curve + band), heights(curve - band)
    outline = [*zip(x, upper, strict=True), *zip(x[::-1], lower[::-1], strict=True)]
    marks = [
        f'<line x1="{LEFT:g}" y1="{HEIGHT - BOTTOM:g}" x2="{WIDTH - 8:g}" y2="{HEIGHT - BOTTOM:g}" stroke="{LINE}"/>',
        f'<polygon points="{_path(outline)}" fill="{ACCENT}" fill-opacity=".2"/>',
        f'<polyline points="{_path(list(zip(x, heights(curve), strict=True)))}" fill="none" stroke="{ACCENT}" '
        'stroke-width="2"/>',
        *(
            _label(place, HEIGHT - 8, f"{value:.4g}", "middle")
            for place, value in [
                (LEFT + 10, at[0]),
                ((LEFT + WIDTH) / 2, (at[0] + at[-1]) / 2),
                (WIDTH - 24, at[-1]),
            ]
        ),
        *(
            _label(LEFT - 6, float(heights(np.array([value]))[0]) + 4, f"{value:.3g}", "end")
            for value in (0.0, most / 2, most)
        ),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" font-size="{FONT:g}" role="img">'
        f"<title>Mean distance to each place of {escape(name)}</title>{''.join(marks)}</svg>"
    )


def _path(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{SOFT}">{text}</text>'
