"""The picture and the words of the page of foreign tables: where others are better stands first."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from matplotlib.figure import Figure

from experiments.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Look, legend_below
from experiments.harness import Row, Rows, distinct, where
from experiments.processes import DONE

OURS, INDEPENDENCE, NOISE = "dualquery", "independence", "independent noise"
LOOKS = {
    OURS: Look(BLUE, "o"),
    INDEPENDENCE: Look(ORANGE, "s"),
    NOISE: Look(GREY, "x"),
    "SWIFT": Look(GREEN, "D"),
    "SWIFT 1e5": Look(VERMILION, "P"),
    "AIM-GDP": Look(PURPLE, "^"),
    "MST": Look(SKY, "v"),
}
COLUMNS = {
    "l1": "mean L1 of a table",
    "worst_table": "L1 of the worst table",
    "max_cell": "largest cell error",
    "questions": "mean error of natural questions",
}
LEAST, MOST = 0.93, 0.99  # of a coverage, as in `experiments.coverage`


def draw(rows: Rows) -> Figure:
    """A panel for each ε: the mean L1 of every method by that of ours, table by table."""
    done = where(rows, outcome=DONE)
    epsilons, names = sorted(distinct(done, "epsilon")), distinct(done, "data")
    picture = Figure(figsize=(9.5, 1 + 2.3 * len(epsilons)), layout="constrained")
    panels = picture.subplots(len(epsilons), 1, squeeze=False, sharex=True)[:, 0]
    for panel, epsilon in zip(panels, epsilons, strict=True):
        panel.set(yscale="log", ylabel="L1 / ours", title=f"ε = {epsilon:g}")
        panel.axhline(1, color=LOOKS[OURS].colour, lw=1)
        for method in (each for each in LOOKS if each != OURS):
            here = [
                (place, mean_of(done, name, epsilon, method, "l1") / mean_of(done, name, epsilon, OURS, "l1"))
                for place, name in enumerate(names)
            ]
            look = LOOKS[method]
            panel.plot(*zip(*here, strict=True), look.marker, color=look.colour, label=method)
    panels[-1].set_xticks(range(len(names)), names, rotation=30)
    legend_below(picture, panels[0], 5)
    return picture


def mean_of(rows: Rows, name: str, epsilon: float, method: str, column: str) -> float:
    values = values_of(where(rows, data=name, epsilon=epsilon, method=method), column)
    return fmean(values) if values else float("nan")


def values_of(rows: Rows, column: str) -> list[float]:
    return [row[column] for row in rows if isinstance(row.get(column), int | float)]


# The words


def find(rows: Rows) -> str:
    """Who is better than ours and where, what bars miss, then all figures; every number from the rows."""
    done = where(rows, outcome=DONE)
    return "\n\n".join(
        [
            terms(),
            "## Where another is better",
            "\n".join(f"- {each}" for each in losses(done)) or "Nowhere.",
            f"## Bars of 95% outside of {LEAST} to {MOST}",
            "\n".join(f"- {each}" for each in misses(done)) or "Nowhere.",
            "## Who gave no answer",
            "\n".join(f"- {each}" for each in silent(rows)) or "Nobody.",
            "## All means",
            "In brackets the number of runs.",
            *(figures(done, column, words) for column, words in COLUMNS.items()),
        ]
    )


def terms() -> str:
    return (
        "Ours ran on one core of a machine with other work, so its times are processor seconds; peers there or on "
        "another machine, most of those side by side, and then without a time. (ε, 10⁻⁶), a record added or "
        "removed; everybody has exact Gaussian ρ, which is "
        "more than any theorem grants to MST. Schemas of the foreign tables are drafts, read off each table"
        " and taken as public for the comparison; every tool gets the same codes. Our constants were tuned "
        "on Adult and NLTCS, and the rule for few records was tried on small tables of this kind. SWIFT, "
        'AIM-GDP and MST are dpsynth\'s with their defaults, by its wrapper for discrete tables; "SWIFT 1e5"'
        " has cliques of at most 100,000 cells instead of ten million. Independence is the product of one-"
        "way tables that had the whole budget; independent noise is on every cell, each table then replaced"
        " by the nearest distribution, and cannot answer questions about more attributes than its tables "
        "have. The rows of ours are judged, and its answers where questions are asked."
    )


def workloads(rows: Rows) -> list[tuple[str, str, float]]:
    return list(dict.fromkeys((row["data"], row["tables"], row["epsilon"]) for row in rows))


def losses(done: Rows) -> Iterable[str]:
    """For each table and ε whoever has a lower mean than ours, the widest gap first."""
    found: list[tuple[float, str]] = []
    for name, tables, epsilon in workloads(done):
        for column, words in COLUMNS.items():
            mine = values_of(where(done, data=name, epsilon=epsilon, method=OURS), column)
            for method in (each for each in LOOKS if each != OURS):
                theirs = values_of(where(done, data=name, epsilon=epsilon, method=method), column)
                if mine and theirs and fmean(theirs) < fmean(mine):
                    ratio = fmean(mine) / fmean(theirs)
                    told = (
                        f"{name}, {tables}, ε = {epsilon:g}, {words}: {method} {shown(theirs)}, "
                        f"ours {shown(mine)}: {ratio:.2f} times as much."
                    )
                    found.append((ratio, told))
    return (told for _, told in sorted(found, key=lambda each: -each[0]))


def lowest(done: Rows, column: str) -> tuple[int, dict[str, int]]:
    """At how many tables and ε ours has a figure, and at how many another method has a lower one, by the lowest."""
    points, elsewhere = 0, dict[str, int]()
    for name, tables, epsilon in workloads(done):
        here = where(done, data=name, tables=tables, epsilon=epsilon)
        means = {
            method: fmean(found)
            for method in LOOKS
            if (found := values_of(where(here, method=method), column))
        }
        if OURS in means:
            points += 1
            best = min(means, key=lambda method: means[method])
            if best != OURS:
                elsewhere[best] = elsewhere.get(best, 0) + 1
    return points, elsewhere


def shown(values: list[float]) -> str:
    """A mean and the number of its runs."""
    return f"{fmean(values):.3g} ({len(values)})" if values else ""


def misses(done: Rows) -> Iterable[str]:
    for name, _, epsilon in workloads(done):
        held = values_of(where(done, data=name, epsilon=epsilon, method=OURS), "coverage")
        if held and not LEAST <= fmean(held) <= MOST:
            yield f"{name}, ε = {epsilon:g}: {fmean(held):.3f} ({len(held)})."


def silent(rows: Rows) -> Iterable[str]:
    """Methods and what became of them where no run gave an answer."""
    found: dict[tuple[str, str], list[str]] = {}
    answered = {(row["method"], place_of(row)) for row in where(rows, outcome=DONE)}
    for row in rows:
        if row["outcome"] != DONE and (row["method"], place_of(row)) not in answered:
            found.setdefault((row["method"], row["outcome"]), []).append(place_of(row))
    return (f"{method} {outcome} ({'; '.join(places)})." for (method, outcome), places in found.items())


def place_of(row: Row) -> str:
    return f"{row['data']}, {row['tables']}, ε = {row['epsilon']:g}"


def figures(done: Rows, column: str, words: str) -> str:
    """A line for each table and ε, a column for each method."""
    lines = [
        [f"{name}, {tables}", f"{epsilon:g}"]
        + [
            shown(values_of(where(done, data=name, epsilon=epsilon, method=method), column))
            for method in LOOKS
        ]
        for name, tables, epsilon in sorted(workloads(done), key=lambda each: each[2])
    ]
    header = [words, "ε", *LOOKS]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines))
