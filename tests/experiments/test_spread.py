"""Spread: what is clear, what is noise, and that a picture shows it."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import drawing
from experiments.drawing import Look, curve
from experiments.spread import CLEAR, UNKNOWN, Sample, samples_by

WITH_LOOKS = (
    "accounting",
    "choosing",
    "coverage",
    "dualquery_figure_2",
    "dualquery_figure_4",
    "dualquery_figure_5",
    "dualquery_projection",
    "dualquery_theory",
    "learning",
    "mwem_figure_3",
    "mwem_figure_4",
    "parities",
    "without_floor",
)


def test_a_difference_is_clear_beyond_three_standard_errors() -> None:
    low, high = Sample.of([1.0, 1.2, 0.8]), Sample.of([2.0, 2.2, 1.8])
    assert low.clearly_below(high)
    assert not high.clearly_below(low)
    error = math.sqrt(2 * 0.2**2 / 3)
    near = Sample.of([1 + 0.99 * CLEAR * error + shift for shift in (0, 0.2, -0.2)])
    assert not low.clearly_below(near)


def test_one_run_is_never_clear_and_an_exact_number_has_no_spread() -> None:
    assert not Sample.of([1.0]).clearly_below(Sample.of([100.0, 101.0]))
    assert Sample.exact(1.0).clearly_below(Sample.of([2.0, 2.1]))
    assert Sample.exact(1.0).clearly_below(Sample.exact(1.1))
    assert not UNKNOWN.clearly_below(Sample.exact(1.0))
    assert not Sample.exact(1.0).clearly_below(UNKNOWN)


def test_a_sample_tells_its_runs() -> None:
    assert f"{Sample.of([0.5, 0.25]):.2f}" == "0.38 (0.25 to 0.50)"
    assert f"{Sample.exact(2.0):.1f}" == "2.0"
    rows = [{"x": 1, "y": 2.0}, {"x": 1, "y": 4.0}, {"x": 2, "y": ""}]
    found = samples_by(rows, ("x",), "y")
    assert (found[1,].mean, found[1,].runs, found[2,].runs) == (3.0, 2, 0)


def test_a_curve_has_its_band() -> None:
    rows = [{"x": x, "y": y} for x in (1, 2) for y in (x, 3 * x)]
    panel = Figure().subplots()
    curve(panel, rows, "x", "y", Look(drawing.BLUE, "o"), "label")
    (drawn,), (band,) = panel.lines, panel.collections
    assert list(drawn.get_ydata()) == [2, 4]
    heights = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
    assert (heights.min(), heights.max()) == (1, 6)


@pytest.mark.parametrize("name", WITH_LOOKS)
def test_no_line_is_told_by_its_colour_alone(name: str) -> None:
    looks = list(import_module(f"experiments.{name}").LOOKS.values())
    told = {(look.marker, look.dash) for look in looks}
    if name == "accounting":  # where the dash tells the parameters
        told = {look.marker for look in looks}
    assert len(told) == len(looks)
    assert {look.colour for look in looks} <= {*drawing.CYCLE}
