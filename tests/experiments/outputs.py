"""What every experiment must leave behind, and what it must not do twice."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.harness import Experiment, Kept, Rows, Setting, run


def rows_after_run(experiment: Experiment, setting: Setting, out: Path) -> Rows:
    """Run, check the files, run again and check that nothing was measured anew; the rows."""
    missed = run(experiment, setting, out)
    assert missed == [], missed
    points = experiment.points(setting)
    path = out / f"{experiment.name}.csv"
    with path.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(points)
    wanted = {*points[0].key, *experiment.by, "size", "date"}
    assert wanted <= set(written[0])
    assert set(experiment.shown) & set(written[0])
    assert (out / f"{experiment.name}.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (out / f"{experiment.name}.svg").read_text()
    page = (out / f"{experiment.name}.md").read_text()
    assert experiment.paper in page
    assert "nan" not in page
    before = path.read_bytes(), path.stat().st_mtime_ns
    missed = run(experiment, setting, out)
    assert missed == [], missed
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    return Kept(path, setting.size).rows(points)
