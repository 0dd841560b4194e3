"""README.md and docs/evidence.md: one figure for each claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments import choosing, foreign_page
from experiments import dualquery_figure_2 as figure_2
from experiments import dualquery_figure_4 as figure_4
from experiments.harness import Rows, distinct, listed, times, where
from experiments.page_parts.files import TABLES, error, figures_of, plain, rows_of, table
from experiments.spread import samples_by

# The README


def readme() -> str:
    """How good: ε = 1, δ = 10⁻³, a record added or removed. Two lines for each table: mean and largest error."""
    return table(("data", "error", *METHODS.values()), [*_figure_2(), *_figure_4()])


METHODS = {
    figure_2.ADVANCED: "DualQuery by its paper's theorem",
    figure_2.PLANNED: "DualQuery, our accounting",
    figure_2.PROJECTED: "projection",
    figure_2.NOISE: "independent noise",
}
SIZES = {
    "adult": f"Adult, {figure_2.RECORDS['adult']:,} rows",
    "kddcup99": f"KDD99, {figure_2.RECORDS['kddcup99']:,} rows",
    "kosarak": f"Kosarak, {figure_2.RECORDS['kosarak']:,} baskets of 23,496 items",
}


def _figure_2() -> Iterable[list[str]]:
    rows = where(rows_of("dualquery_figure_2"), epsilon=1)
    for name in distinct(rows, "data"):
        yield from _two_lines(SIZES[name], where(rows, data=name), tuple(METHODS))


def _figure_4() -> Iterable[list[str]]:
    rows = rows_of("dualquery_figure_4")
    widest = max(distinct(rows, "attributes"), default=0)
    ways = (figure_4.PAPERS, figure_4.PLANNED, "", figure_4.NOISE)
    yield from _two_lines(f"100,000 rows, **{widest:,} attributes**", where(rows, attributes=widest), ways)


def _two_lines(data: str, rows: Rows, ways: Iterable[str]) -> Iterable[list[str]]:
    """Mean and largest error of each way; an empty cell where a way was not run."""
    for first, words, column in ((data, "mean", "mean_error"), ("", "max", "max_error")):
        found = samples_by(rows, ("method",), column)
        yield [first, words, *(error(found[way,]) if (way,) in found else "" for way in ways)]


def with_counting(rows: Rows) -> Rows:
    """Rows whose seconds are those of counting and of the rounds together."""
    return [
        {**row, "seconds": row["seconds"] + row["counting_seconds"]} if row["seconds"] != "" else row
        for row in rows
    ]


# Evidence: one figure for each claim


def against_the_paper() -> str:
    """The ratio is to the stronger line: the theorem without a factor that these neighbours do not need."""
    rows = where(rows_of("dualquery_figure_2"), epsilon=1)
    most = samples_by(rows, ("data", "method"), "max_error")
    told, beaten = [], []
    for name in distinct(rows, "data"):
        paper, own = most[name, figure_2.ADVANCED], most[name, figure_2.PROJECTED]
        told.append(f"{times(own.mean / paper.mean)} on {figure_2.TITLES[name]}")
        if most[name, figure_2.NOISE].clearly_below(paper):
            beaten.append(figure_2.TITLES[name])
    return (
        f"At ε = 1 the largest error of projection is {', '.join(told)} than DualQuery's by its own theorem, taken "
        "without a factor that these neighbours do not need. Independent noise is clearly better than DualQuery by "
        f"that theorem on {', '.join(beaten) or 'none'}.\n"
    )


def wide() -> str:
    rows = rows_of("dualquery_figure_4")
    widths = distinct(rows, "attributes")
    mean = samples_by(rows, ("attributes", "method"), "mean_error")
    lower = [
        each for each in widths if mean[each, figure_4.NOISE].clearly_below(mean[each, figure_4.PLANNED])
    ]
    (widest,) = samples_by(
        with_counting(where(rows, attributes=widths[-1], method=figure_4.PLANNED)), (), "seconds"
    ).values()
    return (
        f"A run with {widths[-1]:,} attributes takes {widest.mean:.0f} s of the processor. By mean error independent "
        f"noise is clearly better than DualQuery at {len(lower)} of {len(widths)} widths.\n"
    )


def rule() -> str:
    rows = rows_of("choosing")
    return "\n\n".join(choosing.judged(rows, column) for column in choosing.COLUMNS) + "\n"


def bars() -> str:
    """The share of bars that hold the truth: a row per table, a column per ε; spread is on the experiment's page."""
    rows = rows_of("coverage")
    held, single = (samples_by(rows, ("data", "epsilon"), name) for name in ("coverage", "coverage_1"))
    names, budgets = distinct(rows, "data"), distinct(rows, "epsilon")
    lines = [[name, *(f"{held[name, epsilon].mean:.3f}" for epsilon in budgets)] for name in names]
    lowest = min(single, key=lambda key: single[key].mean)
    runs = min(int(sample.runs) for sample in held.values())
    told = (
        f"\nMeans of {runs} runs. Of questions about one attribute the least share is {single[lowest].mean:.3f} "
        f"({lowest[0]}, ε = {lowest[1]:g}).\n"
    )
    return table(("share of 95% bars", *(f"ε = {epsilon:g}" for epsilon in budgets)), lines) + told


WIDE = {  # tables of the benchmark, and what each is
    "mixture of 64, ε = 1": "mixture of 64 products, 500 attributes",
    "six factors, ε = 1": "six factors, 500 attributes",
    "chain, ε = 1": "Markov chain",
    "kosarak by popularity, ε = 1": "Kosarak by popularity",
}


def wide_bars() -> str:
    """The share of bars that hold the truth on wide tables and on baskets, by the number of attributes."""
    figures = figures_of("bars")
    lines = [
        [words, *(error(figures[title, f"held, {k} attributes"]) for k in (1, 2, 3))]
        for title, words in WIDE.items()
    ]
    runs = min(int(figures[title, "held, 1 attributes"].runs) for title in WIDE)
    header = ("share of 95% bars, ε = 1", *(f"{k} attribute{'s' * (k > 1)}" for k in (1, 2, 3)))
    return table(header, lines) + f"\nSeeds: {runs} at least.\n"


def other_tools() -> str:
    """The mean L1 of a table at ε = 1: ours, and the best other that answered, whoever it is."""
    rows = where(rows_of("peers"), outcome="done")
    keys = {(row["data"], row["tables"], row["epsilon"]) for row in rows}
    lines, lowest = [], 0
    ratios: dict[float, list[float]] = {}
    for data, tables, epsilon in sorted(keys, key=lambda key: (list(TABLES).index(key[0]), key[1:])):
        found = samples_by(where(rows, data=data, tables=tables, epsilon=epsilon), ("peer", "method"), "l1")
        ours = found.pop(("dualquery", "release"))
        noise = next(each for (peer, _), each in found.items() if peer == "independent noise")
        best = min(found, key=lambda key: found[key].mean)
        lowest += ours.mean < found[best].mean
        ratios.setdefault(epsilon, []).append(ours.mean / found[best].mean)
        if epsilon == 1:
            name = best[0] if best[0] == "independent noise" else " ".join(best)
            lines.append(
                [f"{TABLES[data]}, {tables}", error(ours), f"{error(found[best])}, {name}", error(noise)]
            )
    header = ("mean L1 of a table, ε = 1", "ours", "the best other that answered", "independent noise")
    budgets = listed(sorted({epsilon for _, _, epsilon in keys}))
    told = f"\nOf {len(keys)} points (ε = {budgets}) ours has the lowest mean at {lowest}. "
    each = "; ".join(
        f"at ε = {epsilon:g} {plain(min(found))} to {plain(max(found))}"
        for epsilon, found in sorted(ratios.items())
    )
    told += f"Ours over the best other: {each}. {unheard()}\n"
    return table(header, lines) + told


def unheard() -> str:
    """The strongest peers, where nothing of them was heard: their silence is no victory."""
    rows = [row for row in rows_of("peers") if row["peer"] == "dpsynth"]
    told = []
    for method in ("SWIFT", "SWIFT 1e5", "AIM-GDP"):
        mine = where(rows, method=method)
        answered = {(row["data"], row["tables"]) for row in where(mine, outcome="done")}
        asked = {(row["data"], row["tables"]) for row in mine}
        if asked - answered:
            told.append(f"{method} at {len(asked - answered)} of {len(asked)} tables")
    cards = distinct(where(rows, outcome="done", method="SWIFT"), "card")
    here = f"SWIFT answered on a graphics card ({', '.join(cards)}). " if any(cards) else ""
    return here + (f"Of dpsynth no answer is here from {', '.join(told)}." if told else "")


def strongest_peer() -> str:
    """One line for each ε: Adult's pairs, ours and the best that answered."""
    rows = where(rows_of("peers"), outcome="done", data="adult", tables="all 2-way")
    told = []
    for epsilon in sorted(distinct(rows, "epsilon")):
        found = samples_by(where(rows, epsilon=epsilon), ("peer", "method"), "l1")
        ours = found["dualquery", "release"]
        best = min((key for key in found if key[0] != "dualquery"), key=lambda key: found[key].mean)
        name = best[0] if best[0] == "independent noise" else " ".join(best)
        told.append(f"ε = {epsilon:g}: {plain(ours.mean)}, {name} {plain(found[best].mean)}")
    return (
        f"Adult's pairs, mean L1 of a table, ours and the best of the other tools that answered: {'; '.join(told)}. "
        f"{swift_on_adult(rows)}\n"
    )


def swift_on_adult(answered: Rows) -> str:
    """The strongest peer, and where it answered."""
    theirs = where(answered, peer="dpsynth", method="SWIFT")
    if not theirs:
        return (
            "SWIFT of dpsynth, the strongest that we know of, is not among them: it wants a graphics card. On "
            f"[small tables](docs/experiments/foreign.md) it answered: {beside_swift()}"
        )
    found, ours = (
        samples_by(rows, ("epsilon",), "l1") for rows in (theirs, where(answered, peer="dualquery"))
    )
    ratios = (f"{plain(ours[key].mean / each.mean)} at ε = {key[0]:g}" for key, each in sorted(found.items()))
    return (
        "Of the error of SWIFT (dpsynth, on a graphics card), the strongest that we know of, ours has "
        f"{', '.join(ratios)}. "
        f"On [other people's tables](docs/experiments/foreign.md): {beside_swift()}"
    )


def beside_swift() -> str:
    """Our error over SWIFT's where it gave an answer, whatever the size of its cliques."""
    rows = where(rows_of("foreign"), outcome="done")
    ours = samples_by(where(rows, method=foreign_page.OURS), ("data", "epsilon"), "l1")
    theirs = samples_by([row for row in rows if "SWIFT" in row["method"]], ("data", "epsilon"), "l1")
    ratios = [ours[key].mean / sample.mean for key, sample in theirs.items()]
    return (
        f"at {len(ratios)} tables and ε the L1 of ours is {plain(min(ratios))} to {plain(max(ratios))} times "
        f"SWIFT's, and lower at {sum(ratio < 1 for ratio in ratios)}."
    )


def foreign_tables() -> str:
    """How often ours has the lowest mean on tables that other people keep, and who has it elsewhere."""
    rows = where(rows_of("foreign"), outcome="done")
    lines = []
    for column, words in foreign_page.COLUMNS.items():
        points, elsewhere = foreign_page.lowest(rows, column)
        told = ", ".join(f"{method} at {count}" for method, count in elsewhere.items())
        lines.append([words, f"{points}", f"{points - sum(elsewhere.values())}", told or "nobody"])
    held = samples_by(where(rows, method=foreign_page.OURS), ("data", "epsilon"), "coverage")
    low = min(held, key=lambda key: held[key].mean)
    shares = [sample.mean for sample in held.values()]
    bars = (
        f"\nBars of 95% held {sum(shares) / len(shares):.3f} of the answers in the mean, at the least "
        f"{held[low].mean:.3f} ({low[0]}, ε = {low[1]:g}).\n"
    )
    swift = f"\nBeside SWIFT: {beside_swift()}\n"
    return table(("", "tables and ε", "ours is lowest at", "lower than ours"), lines) + swift + bars


def times_taken() -> str:
    """At quick size, one after the other, as `make experiments` runs them."""
    rows = rows_of("quick_times")
    clock, processor = (sum(row[column] for row in rows) / 60 for column in ("seconds", "processor_seconds"))
    longest = max(rows, key=lambda row: row["seconds"])
    return (
        f"On two cores all {len(rows)} quick ones together took {clock:.0f} minutes by the clock and {processor:.0f} "
        f"minutes of the processor; the longest, `{longest['name']}`, {longest['seconds']:.0f} seconds.\n"
    )


PARTS: dict[str, Callable[[], str]] = {
    "how good": readme,
    "against the paper": against_the_paper,
    "wide tables": wide,
    "the rule": rule,
    "bars": bars,
    "wide bars": wide_bars,
    "other tools": other_tools,
    "the strongest peer": strongest_peer,
    "foreign tables": foreign_tables,
    "times": times_taken,
}
