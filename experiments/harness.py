"""What all experiments share: points that are measured once and kept, progress, and what is written in the end.

An experiment is a list of *points*. Each has a key (what is varied, and the run) and a function that measures
it; the two make a row of `NAME.csv`. The file is written after every point, so that a broken run goes on where
it stopped. From the rows alone come `NAME.png`, `NAME.svg` and the page `NAME.md`: no number of a picture or a
page is typed by hand.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias, TypeVar

import matplotlib
from matplotlib import rcsetup
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

import dualquery
from dualquery.errors import DualQueryError
from experiments.data import Data, Unavailable
from experiments.drawing import CYCLE, DPI

Value: TypeAlias = str | int | float
Row: TypeAlias = dict[str, Any]  # numbers are numbers again
Rows: TypeAlias = list[Row]
T = TypeVar("T")

AIM = "Aim"  # of an experiment that no paper has
SIZE, DATE = "size", "date"  # columns that every CSV file has, first and last
RUNS = "runs"  # a column of experiments whose rows are means already
LIBRARIES = ("numpy", "numba", "opendp", "dp-accounting", "matplotlib")
LONG = 60  # lines of a table
RESULTS = Path(__file__).parent / "results"

matplotlib.use("Agg")
# The same rows draw the same file, byte by byte.
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "dualquery",
        "font.size": 9,
        "axes.prop_cycle": rcsetup.cycler(color=CYCLE),
        "axes.grid": True,
        "grid.alpha": 0.25,
        "svg.fonttype": "none",  # letters as letters: a quarter of the size
        "axes.formatter.min_exponent": 4,  # 0.03 rather than 3 × 10⁻²
    }
)


class Size(Enum):
    """How much of an experiment is run: a moment for tests, minutes, or as much as the papers did."""

    TOY = "toy"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Setting:
    """What an experiment is given."""

    data: Data
    size: Size
    runs: int | None = None

    def choose(self, *, toy: T, quick: T, full: T) -> T:
        return {Size.TOY: toy, Size.QUICK: quick, Size.FULL: full}[self.size]

    def seeds(self, *, toy: int = 1, quick: int = 1, full: int = 3) -> range:
        """The runs of every point: as many as asked for, or as many as the size deserves."""
        return range(self.runs or self.choose(toy=toy, quick=quick, full=full))


@dataclass(frozen=True)
class Point:
    """One measurement. `cost` guesses its time beside the others', to tell the time left; `turn` is when it comes."""

    key: Mapping[str, Value]
    measure: Callable[[], Mapping[str, Value]]
    cost: float = 1.0
    turn: float = 0.0  # the least first; those of the same turn in the order of the points
    again: Callable[[Mapping[str, str]], bool] = lambda row: (
        False
    )  # whether a kept row is to be measured anew


@dataclass(frozen=True)
class Experiment:
    """A figure: what the paper found, what is measured, and how the rows are drawn and put in words."""

    name: str
    title: str
    paper: str  # a sentence or two: what the paper (or the user of a peer) found, or what we aim at
    points: Callable[[Setting], list[Point]]
    draw: Callable[[Rows], Figure]
    find: Callable[[Rows], str]  # what we find, in Markdown, with every number taken from the rows
    by: tuple[str, ...]  # columns of the page's table: what is varied ...
    shown: tuple[str, ...]  # ... and what is averaged over the runs
    before: str = "There"  # the word before `paper`: AIM where no paper says it


# Rows


class Means(dict[tuple[Any, ...], float]):
    """Means by what was varied; one that was not measured is not a number, so that a page says nan."""

    def __missing__(self, key: tuple[Any, ...]) -> float:
        return math.nan


def mean_by(rows: Rows, by: Sequence[str], value: str) -> Means:
    """The mean of a column for each combination of some others, in order of appearance; empty cells left out."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if isinstance(row.get(value), int | float):
            groups.setdefault(tuple(row[name] for name in by), []).append(row[value])
    return Means({key: fmean(values) for key, values in groups.items()})


def where(rows: Rows, **wanted: Value) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def line(rows: Rows, x: str, y: str) -> tuple[list[float], list[float]]:
    """The mean of y for each x, in order of x."""
    means = sorted((key[0], value) for key, value in mean_by(rows, (x,), y).items())
    return [a for a, _ in means], [b for _, b in means]


def distinct(rows: Rows, column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def times(ratio: float) -> str:
    """A ratio in words: 0.5 is '2.0 times lower', 3 is '3.0 times higher'."""
    if not ratio > 0:
        return "not comparably high"
    return f"{ratio:.1f} times higher" if ratio >= 1 else f"{1 / ratio:.1f} times lower"


def markdown_table(rows: Rows, by: Sequence[str], shown: Sequence[str]) -> str:
    """The rows as a Markdown table, mean ± standard deviation of the runs; columns of words show the first run's."""
    columns = [name for name in (*by, *shown) if any(name in row for row in rows)]
    lines = [_cells(name.replace("_", " ") for name in columns), _cells("---" for _ in columns)]
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    for group in groups.values():
        lines.append(_cells(_shown([row.get(name, "") for row in group]) for name in columns))
    return "\n".join(lines)


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(values: list[Any]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers:
        return str(values[0])
    mean = _number(fmean(numbers))
    return mean if min(numbers) == max(numbers) else f"{mean} ± {_number(stdev(numbers), digits=2)}"


def _number(value: float, digits: int = 3) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.{digits}g}"


def runs_words(experiment: Experiment, rows: Rows) -> str:
    """How many runs stand behind a point, and what the pictures show of them."""
    if all(RUNS in row for row in rows):
        counts = {int(row[RUNS]) for row in rows} - {0}  # where nothing is drawn
    else:
        by = [name for name in experiment.by if any(name in row for row in rows)]
        counts = set(Counter(tuple(row.get(name) for name in by) for row in rows).values())
    if counts == {1}:
        return "One run of every point: no spread is known."
    many = f"{max(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return (
        f"Runs of a point: {many}. Lines go through the means, bands and bars show the spread of the runs, tables "
        "have mean ± standard deviation."
    )


# Keeping


class Kept:
    """The rows of a CSV file: read once, written whole after each point, in place of the old file at once."""

    def __init__(self, path: Path, size: Size) -> None:
        self.path, self.size = path, size
        self._texts: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                self._texts = list(csv.DictReader(file))
        if any(row.get(SIZE) != size.value for row in self._texts):
            raise Unavailable(
                f"{path} holds points of another size than {size.value}; name another folder with --out"
            )

    def find(self, key: Mapping[str, Value]) -> dict[str, str] | None:
        wanted = {name: _text(value) for name, value in key.items()}
        for row in self._texts:
            if wanted.items() <= row.items():
                return row
        return None

    def add(self, key: Mapping[str, Value], measured: Mapping[str, Value]) -> None:
        row = {SIZE: self.size.value, **key, **measured, DATE: date.today().isoformat()}
        old = self.find(key)
        if old is not None:
            self._texts.remove(old)
        self._texts.append({name: _text(value) for name, value in row.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(name for row in self._texts for name in row if name != DATE)
        beside = self.path.with_suffix(".part")
        with beside.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=[*names, DATE], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._texts)
        os.replace(beside, self.path)

    def rows(self, points: Sequence[Point]) -> Rows:
        """The rows of these points, in their order."""
        found = (self.find(point.key) for point in points)
        return [{name: value_of(text) for name, text in row.items()} for row in found if row is not None]


def _text(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value_of(text: str | None) -> Value:
    """A cell of a CSV file, a number where it is one."""
    for kind in (int, float):
        try:
            return kind(text or "")
        except ValueError:
            continue
    return text or ""


# Running


def run(experiment: Experiment, setting: Setting, out: Path, *, only_draw: bool = False) -> list[str]:
    """Measure what is missing, write what there is; the sentences tell what could not be measured."""
    try:
        kept = Kept(out / f"{experiment.name}.csv", setting.size)
    except Unavailable as problem:
        return [str(problem)]
    points = experiment.points(setting)
    problems = [] if only_draw else _measure(experiment.name, points, kept)
    rows = kept.rows(points)
    if rows:
        write(experiment, rows, out, of=len(points))
    return problems


def _measure(name: str, points: Sequence[Point], kept: Kept) -> list[str]:
    rows = [(point, kept.find(point.key)) for point in points]
    missing = [point for point, row in rows if row is None or point.again(row)]
    missing.sort(key=lambda point: point.turn)
    problems: dict[str, None] = {}  # each sentence once, in order
    with _progress(name, missing) as tell:
        for point in missing:
            try:
                kept.add(point.key, point.measure())
            except Unavailable as problem:
                problems[str(problem)] = None
            except DualQueryError as problem:
                problems[f"{name}, {_words(point.key)}: {problem}"] = None
            tell(point)
    return list(problems)


def _words(key: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in key.items())


@contextmanager
def _progress(name: str, points: Sequence[Point]) -> Iterator[Callable[[Point], None]]:
    """A bar on a terminal, a line a point elsewhere; both with the time left."""
    console = Console(stderr=True)
    total, started = sum(point.cost for point in points), time.monotonic()
    done = [0, 0.0]

    def told(point: Point) -> str:
        done[0] += 1
        done[1] += point.cost
        left = (time.monotonic() - started) * (total - done[1]) / done[1]
        return f"{done[0]} of {len(points)}, {_clock(left)} left"

    if not console.is_terminal:
        yield lambda point: print(f"{name}: {told(point)} ({_words(point.key)})", file=sys.stderr, flush=True)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=total, left=f"0 of {len(points)}")
        yield lambda point: bar.update(task, advance=point.cost, left=told(point))


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# Writing


def write(experiment: Experiment, rows: Rows, out: Path, *, of: int) -> None:
    """The picture in both forms, and the page; `of` is the number of points that there should be."""
    out.mkdir(parents=True, exist_ok=True)
    picture = experiment.draw(rows)
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        picture.savefig(out / f"{experiment.name}.{ending}", dpi=DPI, metadata=metadata)
    (out / f"{experiment.name}.md").write_text(page_of(experiment, rows, of), encoding="utf-8")


def page_of(experiment: Experiment, rows: Rows, of: int) -> str:
    parts = [
        f"# {experiment.title}",
        f"**{experiment.before}.** {experiment.paper}",
        f"**Here.** {experiment.find(rows)}",
        runs_words(experiment, rows),
        f"![{experiment.title}]({experiment.name}.svg)",
        _folded(markdown_table(rows, experiment.by, experiment.shown)),
        f"Numbers of every run: [{experiment.name}.csv]({experiment.name}.csv). {made_by(experiment, rows, of)}",
    ]
    return "\n\n".join(parts) + "\n"


def _folded(table: str) -> str:
    """A long table behind a line that opens it."""
    length = table.count("\n") - 1
    if length <= LONG:
        return table
    return f"<details><summary>All {length} lines of the table</summary>\n\n{table}\n\n</details>"


def made_by(experiment: Experiment, rows: Rows, of: int) -> str:
    """How to repeat the rows, when they were measured, and whether any are missing."""
    size = rows[0][SIZE]
    flag = " --full" if size == Size.FULL.value else ""
    days = sorted({str(row[DATE]) for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    left = missing(rows, of)
    return f"Repeat: `python -m experiments.{experiment.name}{flag}`. Measured {when} ({size} size).{left}"


def missing(rows: Rows, of: int) -> str:
    """Said of an experiment of which not all was measured."""
    return "" if len(rows) == of else f" **Only {len(rows)} of {of} points are measured so far.**"


def indexed(experiment: Experiment, rows: Rows, of: int) -> str:
    """The line of an experiment in the index; its page says when it was measured."""
    return f"- [{experiment.title}]({experiment.name}.md){missing(rows, of)}"


def environment() -> str:
    """Versions and machine, in a sentence each."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"Measured with dualquery {dualquery.__version__}, Python {platform.python_version()}, {libraries}. "
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, {platform.system()}."
    )


def _processor() -> str:
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def gather(experiments: Sequence[Experiment], setting: Setting, out: Path, problems: Sequence[str]) -> Path:
    """An index of all pages of the folder."""
    out.mkdir(parents=True, exist_ok=True)
    page = out / "index.md"
    parts = [
        "# The papers' experiments, and peers side by side",
        f"Written by `python -m experiments` ({setting.size.value} size). Each page has what the paper found (or "
        "what we set ourselves), what we find, the picture, the table, the numbers of every run, and the command "
        "that repeats it. "
        f"[Benchmarks](benchmarks.md) has what `python -m benchmarks.NAME` measured.",
        environment(),
        "\n".join(_index(experiments, setting, out)),
    ]
    if problems:
        parts += ["## Not measured", "\n".join(f"- {problem}" for problem in problems)]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page


def _index(experiments: Sequence[Experiment], setting: Setting, out: Path) -> Iterator[str]:
    """One line per experiment that was measured: its page, and whether anything is missing."""
    for experiment in experiments:
        path = out / f"{experiment.name}.csv"
        points = experiment.points(setting) if path.exists() else []
        rows = Kept(path, setting.size).rows(points)
        if rows:
            yield indexed(experiment, rows, len(points))


# The command line


def parser(about: str, *, name: str | None = None) -> argparse.ArgumentParser:
    """The flags of every experiment, or of all of them together."""
    made = argparse.ArgumentParser(
        prog="python -m experiments" + (f".{name}" if name else ""),
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--data",
        type=Path,
        default=Data.default_folder(),
        metavar="DIR",
        help="folder of the public data sets (default: DUALQUERY_DATA)",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where pictures, numbers and pages go (default: experiments/results/quick or .../full)",
    )
    made.add_argument("--runs", type=_at_least_one, metavar="N", help="runs of every point")
    made.add_argument(
        "--full", action="store_true", help="the papers' sizes; goes on where a broken run stopped"
    )
    made.add_argument("--draw", action="store_true", help="measure nothing; draw what was measured before")
    return made


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs; give 1 or more")
    return int(text)


def setting_of(arguments: argparse.Namespace) -> tuple[Setting, Path]:
    """What the flags say, and the folder to write to."""
    size = Size.FULL if arguments.full else Size.QUICK
    out: Path = arguments.out or RESULTS / size.value
    if out.exists() and not out.is_dir():
        leave([f"{out} is no folder; name one with --out"])
    return Setting(Data(arguments.data), size, arguments.runs), out


def main(experiment: Experiment, arguments: argparse.Namespace | None = None) -> None:
    """The command of one experiment: exit code 1 and a list of sentences if something was not measured."""
    about = f"{experiment.title}.\n\n{experiment.paper}"
    arguments = arguments or parser(about, name=experiment.name).parse_args()
    setting, out = setting_of(arguments)
    problems = run(experiment, setting, out, only_draw=arguments.draw)
    if (out / f"{experiment.name}.md").exists():
        print(f"{out / experiment.name}.csv, .png, .svg and .md")
    leave(problems)


def leave(problems: Sequence[str]) -> None:
    if problems:
        print("Not measured:", *(f"- {problem}" for problem in problems), sep="\n", file=sys.stderr)
        sys.exit(1)
