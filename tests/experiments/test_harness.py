"""The harness: what is kept, what is said when something is missing, and what is written."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import __main__ as everything
from experiments.data import FOREIGN, WHERE, Data, Unavailable, like_netflix
from experiments.harness import (
    AIM,
    Experiment,
    Kept,
    Point,
    Rows,
    Setting,
    Size,
    Value,
    gather,
    line,
    markdown_table,
    mean_by,
    run,
    times,
)

ROOT = Path(__file__).resolve().parents[2]


class Meter:
    """Points that count how often they are measured, and break where told."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.measured: list[int] = []
        self.breaks_at = breaks_at

    def points(self, setting: Setting) -> list[Point]:
        def measure(x: int) -> Mapping[str, Value]:
            if x == self.breaks_at:
                raise KeyboardInterrupt
            self.measured.append(x)
            return {"error": 1 / x, "words": "a, b"}

        return [Point({"x": x, "run": 0}, lambda x=x: measure(x)) for x in (1, 2, 4)]


def experiment_of(meter: Meter) -> Experiment:
    def draw(rows: Rows) -> Figure:
        picture = Figure()
        picture.subplots().plot(*line(rows, "x", "error"))
        return picture

    return Experiment(
        name="meter",
        title="A meter",
        paper="It falls.",
        points=meter.points,
        draw=draw,
        find=lambda rows: f"The last is {rows[-1]['error']}.",
        by=("x",),
        shown=("error", "words"),
    )


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(Data(tmp_path), Size.QUICK)


def test_a_broken_run_goes_on_where_it_stopped(setting: Setting, tmp_path: Path) -> None:
    broken = Meter(breaks_at=4)
    with pytest.raises(KeyboardInterrupt):
        run(experiment_of(broken), setting, tmp_path / "out")
    assert broken.measured == [1, 2]
    later = Meter()
    assert run(experiment_of(later), setting, tmp_path / "out") == []
    assert later.measured == [4]
    page = (tmp_path / "out" / "meter.md").read_text()
    assert "The last is 0.25." in page
    assert "| 2 | 0.5 | a, b |" in page
    assert not list((tmp_path / "out").glob("*.part"))


def test_only_drawing_measures_nothing_and_says_what_is_missing(setting: Setting, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(experiment_of(Meter(breaks_at=4)), setting, tmp_path)
    idle = Meter()
    assert run(experiment_of(idle), setting, tmp_path, only_draw=True) == []
    assert idle.measured == []
    assert "Only 2 of 3 points" in (tmp_path / "meter.md").read_text()


def test_sizes_are_not_mixed(setting: Setting, tmp_path: Path) -> None:
    run(experiment_of(Meter()), setting, tmp_path)
    problems = run(experiment_of(Meter()), replace(setting, size=Size.FULL), tmp_path)
    assert len(problems) == 1
    assert "another folder with --out" in problems[0]


def test_what_is_missing_is_named_once_and_the_rest_goes_on(setting: Setting, tmp_path: Path) -> None:
    def missing() -> Mapping[str, Value]:
        setting.data.path("adult.csv.gz")
        raise AssertionError

    meter = Meter()
    partly = replace(
        experiment_of(meter),
        points=lambda s: [Point({"x": -1, "run": r}, missing) for r in (0, 1)] + meter.points(s),
    )
    problems = run(partly, setting, tmp_path)
    assert len(problems) == 1
    assert "adult.csv.gz is not in" in problems[0]
    assert "UCI" in problems[0]
    assert meter.measured == [1, 2, 4]


def test_the_same_rows_draw_the_same_files(setting: Setting, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        run(experiment_of(Meter()), setting, tmp_path / folder)
    for ending in ("svg", "png", "md"):
        first, second = ((tmp_path / folder / f"meter.{ending}").read_bytes() for folder in ("a", "b"))
        assert first == second, ending


def test_an_aim_of_our_own_is_not_told_as_what_a_paper_found(setting: Setting, tmp_path: Path) -> None:
    experiment = experiment_of(Meter())
    for made, word in ((experiment, "There"), (replace(experiment, before=AIM), "Aim")):
        assert run(made, setting, tmp_path / word) == []
        assert f"**{word}.** It falls." in (tmp_path / word / "meter.md").read_text(encoding="utf-8")


def test_gathering(setting: Setting, tmp_path: Path) -> None:
    out = tmp_path / "found"
    experiment = experiment_of(Meter())
    run(experiment, setting, out)
    page = gather([experiment], setting, out, ["a sentence"]).read_text()
    assert (out / "index.md").exists()
    assert "- [A meter](meter.md)\n" in page
    assert "- a sentence" in page
    assert "dualquery" in page
    assert "cores" in page


@pytest.mark.parametrize("file", sorted(WHERE.keys() - {"adult_test.csv.gz"}))  # only benchmarks read that
def test_corrupt_files_are_named(file: str, tmp_path: Path) -> None:
    data = Data(tmp_path)
    readers = {
        "adult.csv.gz": lambda: data.records("adult"),
        "kddcup99_10percent.csv.gz": lambda: data.records("kddcup99"),
        "nltcs.csv.gz": lambda: data.records("nltcs"),
        "kosarak_first100k.txt.gz": lambda: data.records("kosarak"),
        "adult_mwem_binary.csv.gz": lambda: data.binary_adult(17),
        "blood_transfusion.csv.gz": lambda: data.numbers(file, (("recency_months", 0, 74),)),
    }
    readers |= {path: partial(data.records, name) for name, path in FOREIGN.items()}
    read = readers.get(file, lambda: data.contingency(file))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    with pytest.raises(Unavailable, match="is not in"):
        read()
    cut = gzip.compress(b"a,b\n1,2\n" * 1000)[:40] if file.endswith("gz") else b"x,count\n1,y\n\xff\n"
    for content in (cut, b"no archive", b""):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(Unavailable, match="cannot be read") as caught:
            read()
        assert WHERE[file] in str(caught.value)


def test_a_wrong_folder_ends_with_exit_code_1_and_a_list(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.dualquery_figure_3", "--data", str(tmp_path / "nowhere")]
    ended = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("--data names the folder of the public data sets")
    assert "Traceback" not in ended.stderr


def test_all_experiments_have_a_file_and_the_list_knows_them() -> None:
    files = {path.stem for path in (ROOT / "experiments").glob("*.py")}
    own = {name for name in files if "EXPERIMENT = " in (ROOT / "experiments" / f"{name}.py").read_text()}
    assert own == set(everything.NAMES)
    for name in everything.NAMES:
        assert everything.experiment_of(name).name == name


def test_one_that_breaks_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = experiment_of(Meter())

    def crash(setting: Setting) -> list[Point]:
        raise ZeroDivisionError("no such thing")

    bad = replace(good, name="bad", points=crash)
    monkeypatch.setattr(everything, "NAMES", ("bad", "meter"))
    monkeypatch.setattr(everything, "experiment_of", {"bad": bad, "meter": good}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["experiments", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        everything.main()
    assert ended.value.code == 1
    assert "bad broke off: ZeroDivisionError: no such thing" in capsys.readouterr().err
    assert (tmp_path / "out" / "meter.svg").exists()
    assert "no such thing" in (tmp_path / "out" / "index.md").read_text()


def test_rows() -> None:
    rows: Rows = [{"a": "u", "x": 2, "y": 1.0}, {"a": "u", "x": 2, "y": 3.0}, {"a": "u", "x": 1, "y": ""}]
    assert mean_by(rows, ("a", "x"), "y") == {("u", 2): 2.0}
    assert mean_by(rows, ("a",), "y")["v",] != mean_by(rows, ("a",), "y")["v",]  # not a number
    assert line(rows, "x", "y") == ([2], [2.0])
    assert times(0.5) == "2.0 times lower"
    assert times(3) == "3.0 times higher"
    assert re.search(r"\| u \| 2 \| 2 ± 1.4 \|", markdown_table(rows, ("a", "x"), ("y",)))


def test_kept_values_come_back_as_what_they_were(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "k.csv", Size.TOY)
    point = Point({"name": "a, b", "epsilon": 0.25, "queries": 2_000_000, "big": 1e-12}, dict)
    kept.add(point.key, {"error": 0.123456789, "none": ""})
    again = Kept(tmp_path / "k.csv", Size.TOY)
    (row,) = again.rows([point])
    assert (row["name"], row["epsilon"], row["queries"], row["big"]) == ("a, b", 0.25, 2_000_000, 1e-12)
    assert row["error"] == pytest.approx(0.123456789, rel=1e-5)
    assert again.rows([Point({**point.key, "epsilon": 0.5}, dict)]) == []


def test_an_invented_table_has_the_published_shape() -> None:
    """Items by a power of their rank, so many a record on average, and some records far more active than others."""
    records = like_netflix(4000, 600, 20.0)
    held = records.to_rows()
    assert held.shape == (4000, 600)
    assert held.sum(axis=1).mean() == pytest.approx(20, rel=0.03)
    popular = held.mean(axis=0)
    assert 0.3 < popular[0] < 0.45
    ranks = np.array([50, 100, 200, 400])
    slope = np.polyfit(np.log(ranks), np.log([popular[r - 20 : r + 20].mean() for r in ranks]), 1)[0]
    assert -1.2 < slope < -0.7
    assert np.quantile(held.sum(axis=1), 0.9) > 3 * np.quantile(held.sum(axis=1), 0.3)
