"""What pages quote of benchmarks: small and wide tables, persons, rules, streams and the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments.page_parts.files import error, figures_of, plain, table, units_of
from experiments.spread import Sample

Figures = dict[tuple[str, str], Sample]


def _titles(figures: Figures) -> list[str]:
    return list(dict.fromkeys(title for title, _ in figures))


def _cells(figures: Figures, title: str, whats: Iterable[str]) -> list[str]:
    """What a benchmark found under a title, nothing where it did not look."""
    return [error(figures[title, what]) if (title, what) in figures else "" for what in whats]


def _means(figures: Figures, title: str, whats: Iterable[str]) -> list[str]:
    """The same without the least and the most of the runs."""
    return [plain(figures[title, what].mean) if (title, what) in figures else "" for what in whats]


def small_tables() -> str:
    figures = figures_of("small_tables")
    whats = ("worst table", "query mean")
    lines = [
        [title, *_cells(figures, title, ("one-way L1", "L1")), *_means(figures, title, whats)]
        for title in _titles(figures)
        if not title.endswith("beside one-way tables")
    ]
    header = ("", "one-way alone, L1", "L1", *whats)
    return table(header, lines)


def beside_one_way() -> str:
    """L1 over that of one-way tables alone, where there are so few records that pairs hardly pay."""
    figures = figures_of("small_tables")
    ratios: dict[str, dict[str, str]] = {}
    runs = 0
    for title in _titles(figures):
        if title.endswith("beside one-way tables"):
            name, rows = title.removesuffix(" rows, beside one-way tables").split(", ", 1)
            found, alone = figures[title, "L1"], figures[title, "one-way L1"]
            ratios.setdefault(name, {})[rows] = plain(found.mean / alone.mean)
            runs = int(found.runs)
    if not ratios:
        return "\n"
    numbers = list(next(iter(ratios.values())))
    header = (f"L1 over that of one-way tables alone, {runs} seeds", *(f"{rows} rows" for rows in numbers))
    return table(
        header, ([name, *(found.get(rows, "") for rows in numbers)] for name, found in ratios.items())
    )


def births() -> str:
    """The largest cell of all triples under pure ε."""
    figures = figures_of("pure")
    lines = [
        [title.partition(", all")[0], *_cells(figures, title, (f"ε = {e}: largest" for e in (1, 3, 10)))]
        for title in _titles(figures)
    ]
    return table(("largest error of a cell of all 3-way tables", "ε = 1", "ε = 3", "ε = 10"), lines)


def wide() -> str:
    figures = figures_of("wide")
    held_out = [f"held-out, {k}-way, over the workload's" for k in (1, 2, 3)]
    lines = []
    for title in _titles(figures):
        data, _, attributes = title.removesuffix(" attributes").rpartition(", ")
        ratios = ", ".join(f"{figures[title, what].mean:.2f}" for what in held_out)
        lines.append(
            [
                WIDE.get(data, data),
                attributes,
                *_cells(figures, title, ("mean error", "largest error")),
                ratios,
                f"{figures[title, 'truth within its bar'].mean:.0%}",
                f"{figures[title, 'processor seconds of all cores'].mean:.0f} s",
            ]
        )
    header = (
        "table",
        "attributes",
        "mean error",
        "largest",
        "held-out 1-, 2-, 3-way, over the workload's",
        "within their 95% bars",
        "processor time",
    )
    return table(header, lines)


WIDE = {
    "mixture of 8": "mixture of 8 products",
    "mixture of 64": "mixture of 64 products",
    "six factors": "six normal factors, logistic",
    "chain": "Markov chain",
    "kosarak by popularity": "Kosarak, 500,000 queries by popularity",
    "kosarak uniform": "Kosarak, 500,000 uniform queries",
}


def held_out_rare() -> str:
    """Questions about rare items beside releases that were made for them."""
    figures = figures_of("wide")
    lines = []
    for title in _titles(figures):
        made = [figures.get((title, f"held-out, {k}-way, over a release for them")) for k in (1, 2)]
        if all(made):
            data = title.rpartition(", ")[0]
            lines.append([WIDE.get(data, title), *(f"{each:.2f}" for each in made if each)])
    return table(("held-out error over that of a release made for them", "1-way", "2-way"), lines)


def persons() -> str:
    figures = figures_of("persons")
    lines = []
    for title in _titles(figures):
        for mechanism in ("projection", "dualquery"):
            for relation in ("replace", "add-remove"):
                name = f"{mechanism}, {relation}"
                found = _cells(figures, title, (f"{name}: persons at ε = 1", f"{name}: records at ε = 1/3"))
                lines.append([mechanism, relation, *found, f"{figures[title, f'{name}: ratio'].mean:.2f}"])
    return table(("mechanism", "neighbours", "a person, ε = 1", "a record, ε = 1/3", "ratio"), lines)


RULED = {
    "adult": "Adult, 8,000 records, 9 attributes, 4 rules",
    "clinic": "the clinic example, 4 rules",
}


def rules() -> str:
    """Change of the mean error by the rules."""
    figures = figures_of("rules")
    lines = []
    for title in _titles(figures):
        name, epsilon = title.split(", ε = ")
        found = [figures[title, f"{words}, percent more with rules"] for words in ("pairs", "triples")]
        lines.append(
            [
                RULED[name],
                epsilon,
                f"{int(found[0].runs)}",
                *(f"{each.mean:+.1f}% ({each.low:+.1f} to {each.high:+.1f})" for each in found),
            ]
        )
    return table(("table", "ε", "seeds", "pairs", "triples"), _once(lines))


def numbers() -> str:
    """Numbers of a release beside those of its table: with means inside bins, and after a bar without."""
    figures = figures_of("numbers")
    names = list(dict.fromkeys(title.rsplit(", ", 1)[0] for title in _titles(figures)))
    lines = [
        [
            name,
            *(
                " / ".join(
                    plain(figures[f"{name}, {way}", what].mean) for way in ("means inside bins", "without")
                )
                for what in NUMBERS
            ),
        ]
        for name in names
    ]
    return table(("table", *NUMBERS.values()), lines)


NUMBERS = {  # the spread of the seeds, and more figures, are in the file
    "mean, median over columns, in sd": "mean, in sd, median",
    "sd, log of the ratio, median": "sd, log of the ratio",
    "quantiles, over the range of nine in ten": "quantiles, over the range",
    "corr, slope against the table": "correlations, slope",
    "tv2": "tv2",
}


def drafts() -> str:
    """Releases with a schema found privately beside those with other schemas, everything within ε = 1."""
    figures = figures_of("drafts")
    ways = list(dict.fromkeys(what for _, what in figures if what.startswith("tv2, ")))
    header = ("total ε = 1, tv2", *(way.removeprefix("tv2, ") for way in ways))
    lines = [
        [title, *(error(figures[title, way]) if (title, way) in figures else _refused(way) for way in ways)]
        for title in _titles(figures)
    ]
    return table(header, lines)


def _refused(way: str) -> str:
    """What stands where there is no figure: a private draft was refused, and other tools may not have been there."""
    return "refused" if way.endswith("private") else ""


def predictions() -> str:
    """The least and the most of what plans say over what is true, and of what is true over what was wished."""
    figures = figures_of("planning")
    asked = ("predicted over true mean error", "true over wanted mean error")
    tables = dict.fromkeys(title.partition(": ")[0] for title in _titles(figures))

    def between(table: str, what: str, order: int) -> str:
        title = f"{table}: {what}"
        found = [each.mean for (said, of), each in figures.items() if said == title and of[6:7] == str(order)]
        return f"{plain(min(found))} to {plain(max(found))}" if found else ""

    lines = [[name, *(between(name, what, order) for what in asked for order in (2, 3))] for name in tables]
    header = ("", "predicted over true, pairs", "triples", "true over wished, pairs", "triples")
    return table(header, lines)


def limit() -> str:
    """From noise to rows, step by step, and rows where something is known."""
    figures = figures_of("limit")
    titles, whats = list(_titles(figures)), list(dict.fromkeys(what for _, what in figures))
    budgets = [title.rpartition(", ")[2] for title in titles]
    lines = []
    for name in [what.removesuffix(", L1") for what in whats if what.endswith(", L1")]:
        lines.append([name, *(cell for title in titles for cell in _cells(figures, title, (f"{name}, L1",)))])
    return table(("L1", *budgets), lines)


def streams() -> str:
    """Memory, rows a processor second, and how many times DuckDB's; docs/benchmarks has the others."""
    figures, units = figures_of("streaming"), units_of("streaming")
    lines = [
        [*key, f"{_amount(sample.mean)}{units[key]}"]
        for key, sample in figures.items()
        if any(words in key[1] for words in ("memory", "rows a processor second", "processor seconds"))
        and "alone" not in key[1]
    ]
    return table(("table", "what", "measured"), _once(lines))


def _amount(value: float) -> str:
    return f"{value / 1e6:.1f} million" if value >= 1e5 else f"{value:.2f}"


def _once(lines: Iterable[list[str]]) -> Iterable[list[str]]:
    """The first cell only where it changes."""
    before = ""
    for first, *others in lines:
        yield ["" if first == before else first, *others]
        before = first


def serving() -> str:
    figures, units = figures_of("serving"), units_of("serving")
    return table(
        ("", "measured"), ([key[1], f"{plain(each.mean)}{units[key]}"] for key, each in figures.items())
    )


PARTS: dict[str, Callable[[], str]] = {
    "small tables": small_tables,
    "beside one way tables": beside_one_way,
    "births": births,
    "wide binary tables": wide,
    "rare items": held_out_rare,
    "persons": persons,
    "rules": rules,
    "numbers": numbers,
    "private drafts": drafts,
    "predictions": predictions,
    "limit": limit,
    "streams": streams,
    "serving": serving,
}
