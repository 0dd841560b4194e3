"""The numbers of README.md and docs: written from the CSV files of docs/experiments, between markers.

python -m experiments.pages            # writes every part that stands between markers
python -m experiments.pages --check    # writes nothing; exit code 1 where a page disagrees with the files

A part begins with `<!-- from the files: NAME -->` and ends with `<!-- end -->`. NAME is one of `PARTS`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Iterable
from math import floor, log10
from pathlib import Path

from experiments import choosing
from experiments import dualquery_figure_2 as figure_2
from experiments import dualquery_figure_4 as figure_4
from experiments import dualquery_figure_5 as figure_5
from experiments.harness import Rows, distinct, times, value_of, where
from experiments.spread import Sample, Samples, samples_by

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "experiments"
PAGES = ("README.md", "docs/evidence.md")
MARKED = re.compile(r"(<!-- from the files: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TIMES = "quick_times.csv"


def rows_of(name: str) -> Rows:
    """The rows of a CSV file, numbers as numbers; none where it was not measured."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{key: value_of(text) for key, text in row.items()} for row in csv.DictReader(file)]


def table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    header = list(header)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)) + "\n"


def error(sample: Sample) -> str:
    """Two digits that matter, and from which run to which where these differ in them."""
    mean, low, high = (_plain(value) for value in (sample.mean, sample.low, sample.high))
    return mean if low == high else f"{mean} ({low} to {high})"


def _plain(value: float) -> str:
    """Two digits that matter, in decimals."""
    return f"{value:.{max(0, 1 - floor(log10(value)))}f}" if value > 0 else f"{value:g}"


# The README


def readme() -> str:
    """How good, how fast: ε = 1, δ = 10⁻³, a record added or removed, in all lines."""
    return table(
        ("data", "mechanism", "mean error", "max error", "processor time"), [*_figure_2(), *_figure_4()]
    )


METHODS = {
    figure_2.THEOREM: "DualQuery as in its paper",
    figure_2.PLANNED: "DualQuery, our accounting and parameters",
    figure_2.PROJECTED: "projection",
    figure_2.NOISE: "independent noise (answers only)",
}
SIZES = {
    "adult": "Adult, 30,162 rows",
    "kddcup99": "KDD99, 494,021 rows",
    "kosarak": "Kosarak, 100,000 baskets of 23,496 items",
}


def _figure_2() -> Iterable[list[str]]:
    rows = where(rows_of("dualquery_figure_2"), epsilon=1)
    for name in distinct(rows, "data"):
        mine = where(rows, data=name)
        first = f"{SIZES[name]}, {mine[0]['queries']:,} random 3-way queries"
        mean, most, seconds = (
            samples_by(mine, ("method",), column) for column in ("mean_error", "max_error", "seconds")
        )
        for method, words in METHODS.items():
            yield [first, words, error(mean[method,]), error(most[method,]), _seconds(seconds, method)]
            first = ""


def _figure_4() -> Iterable[list[str]]:
    rows = rows_of("dualquery_figure_4")
    widest = max(distinct(rows, "attributes"), default=0)
    mine = where(rows, attributes=widest)
    if not mine:
        return
    first = (
        f"biased data, 100,000 rows, **{widest:,} attributes**, {mine[0]['queries']:,} random 3-way queries"
    )
    columns = ("mean_error", "max_error", "seconds", "peak_gb")
    mean, most, seconds, peak = (samples_by(mine, ("method",), column) for column in columns)
    for method in (figure_4.PAPERS, figure_4.PLANNED, figure_4.NOISE):
        took = _seconds(seconds, method)
        if (method,) in peak:
            took += f", {peak[method,].mean:.1f} GB"
        words = {figure_4.PLANNED: METHODS[figure_2.PLANNED], figure_4.NOISE: METHODS[figure_2.NOISE]}
        yield [first, words.get(method, method), error(mean[method,]), error(most[method,]), took]
        first = ""


def _seconds(seconds: Samples, method: str) -> str:
    return f"{seconds[method,].mean:.0f} s" if (method,) in seconds else ""


# Evidence: one figure for each claim


def against_the_paper() -> str:
    rows = where(rows_of("dualquery_figure_2"), epsilon=1)
    most = samples_by(rows, ("data", "method"), "max_error")
    lines = []
    for name in distinct(rows, "data"):
        paper, own = most[name, figure_2.THEOREM], most[name, figure_2.PROJECTED]
        noise = most[name, figure_2.NOISE]
        lines.append([SIZES[name], error(paper), error(own), times(own.mean / paper.mean), error(noise)])
    return table(
        ("max error, ε = 1", "DualQuery as in its paper", "projection", "that is", "independent noise"), lines
    )


def papers_numbers() -> str:
    zeros_3 = samples_by(rows_of("dualquery_figure_3"), (), "zeros_mean_error")[()]
    mean_3 = samples_by(rows_of("dualquery_figure_3"), (), "mean_error")[()]
    fourth = rows_of("dualquery_figure_4")
    papers_4 = samples_by(where(fourth, method=figure_4.PAPERS), (), "mean_error")[()]
    zeros_4 = samples_by(where(fourth, method=figure_4.ZEROS), (), "mean_error")[()]
    uniform_4 = samples_by(where(fourth, method=figure_4.UNIFORM), (), "mean_error")[()]
    fifth = samples_by(rows_of("dualquery_figure_5"), ("line", "epsilon"), "mean_error")
    ratio = fifth[figure_5.OURS, 1].mean / fifth[figure_5.MWEM_OURS, 1].mean
    lines = [
        ["Figure 3, mean error, zeros table", "0.11", f"{zeros_3.mean:.3f}"],
        ["Figure 3, mean error, DualQuery", "below 0.01", error(mean_3)],
        ["Figure 4, mean error, DualQuery", "about 0.08", error(papers_4)],
        ["Figure 4, mean error, zeros table", "0.21875", f"{zeros_4.mean:.5f}"],
        ["Figure 4, mean error, uniform table", "about 0.11", f"{uniform_4.mean:.3f}"],
        ["Figure 5, DualQuery beside MWEM, ε = 1", "worse", times(ratio)],
    ]
    return table(("figure", "the paper", "here"), lines)


def wide() -> str:
    rows = rows_of("dualquery_figure_4")
    lines = []
    for width in distinct(rows, "attributes"):
        mine = where(rows, attributes=width)
        mean, seconds, peak = (
            samples_by(mine, ("method",), column) for column in ("mean_error", "seconds", "peak_gb")
        )
        own = figure_4.PLANNED
        lines.append(
            [
                f"{width:,}",
                error(mean[own,]),
                error(mean[figure_4.NOISE,]),
                _seconds(seconds, own),
                f"{peak[own,].mean:.1f} GB" if (own,) in peak else "",
            ]
        )
    return table(("attributes", "DualQuery, mean error", "independent noise", "processor", "memory"), lines)


def rule() -> str:
    rows = rows_of("choosing")
    return "\n\n".join(choosing.judged(rows, column) for column in choosing.COLUMNS) + "\n"


def bars() -> str:
    rows = rows_of("coverage")
    held = samples_by(rows, ("data", "epsilon"), "coverage")
    lines = [[name, f"{epsilon:g}", f"{sample:.3f}"] for (name, epsilon), sample in held.items()]
    return table(("table", "ε", "share of 95% bars that hold the truth"), lines)


def questions() -> str:
    rows = [row for row in rows_of("online") if row["stream"] in ("natural", "random", "drill", "broad")]
    lines = []
    for key in dict.fromkeys((row["table"], row["stream"], row["questions"]) for row in rows):
        mine = where(rows, table=key[0], stream=key[1], questions=key[2])
        own, noise = (samples_by(mine, (), column)[()] for column in ("online_mean", "gaussian_mean"))
        lines.append([f"{key[0]}, {key[1]}", f"{key[2]:,}", error(own), error(noise)])
    return table(("stream", "questions", "mean error", "independent noise"), lines)


def times_taken() -> str:
    lines = [
        [f"`python -m experiments.{row['name']}`", f"{row['processor_seconds']:,.0f} s"]
        for row in rows_of(TIMES.removesuffix(".csv"))
    ]
    return table(("command, quick size", "processor time"), lines)


PARTS: dict[str, Callable[[], str]] = {
    "how good": readme,
    "against the paper": against_the_paper,
    "the papers numbers": papers_numbers,
    "wide tables": wide,
    "the rule": rule,
    "bars": bars,
    "questions": questions,
    "times": times_taken,
}


def written(text: str) -> str:
    """A page with all its parts written anew."""
    return MARKED.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[4]}", text)


def main() -> None:
    made = argparse.ArgumentParser(prog="python -m experiments.pages", description=__doc__)
    made.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page disagrees"
    )
    check = made.parse_args().check
    wrong = []
    for page in PAGES:
        before = (ROOT / page).read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            wrong.append(page)
            if not check:
                (ROOT / page).write_text(after, encoding="utf-8")
    print(f"{'disagree with the files' if check else 'written anew'}: {', '.join(wrong) or 'none'}")
    if check and wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
