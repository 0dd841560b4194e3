"""docs/learners.md, evidence.md (the rule) and service.md (questions one at a time).

What a page says of an order ("lower than") is worked out here from the runs, so that it changes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from experiments import choosing, cuts, disjunctions, distances, mirror, online, sparse
from experiments.harness import Rows, distinct, times, where
from experiments.page_parts.files import error, plain, rows_of, table
from experiments.special_cases import EPSILON
from experiments.spread import Sample, Samples, samples_by

# How numbers are told


def many(samples: Iterable[Sample]) -> str:
    """How many runs stand behind each of some numbers: from the fewest to the most."""
    counts = sorted({int(sample.runs) for sample in samples if sample.runs})
    return " to ".join(f"{count}" for count in dict.fromkeys((*counts[:1], *counts[-1:])))


def clear(one: Sample, other: Sample) -> bool:
    return one.clearly_below(other) or other.clearly_below(one)


def than(mine: Sample, others: Mapping[str, Sample]) -> str:
    """How many times lower or higher than each of the others, and whether the runs can tell."""
    told = []
    for name, other in others.items():
        doubt = "" if clear(mine, other) else " (within the noise)"
        if min(mine.runs, other.runs) < 2:
            doubt = " (one run: no spread is known)"
        told.append(f"{times(mine.mean / other.mean)} than that of {name}{doubt}")
    return ", ".join(told)


def scaled(sample: Sample, factor: float = 1, digits: int = 0) -> str:
    """Mean, least and most run, in another unit."""
    mean, low, high = (f"{factor * each:,.{digits}f}" for each in (sample.mean, sample.low, sample.high))
    return mean if low == high else f"{mean} ({low}–{high})"


def in_records(sample: Sample) -> str:
    """Errors of less than ten records with two digits that matter, larger ones whole."""
    return error(sample) if sample.mean < 10 else scaled(sample)


# Mirror descent


def mirror_maps() -> str:
    """Entropy beside Euclid on every table that can be held; all maps stand on the page of the experiment."""
    rows = [row for row in rows_of("mirror") if row["case"] != mirror.WIDE]
    mean = samples_by(rows, ("case", "method"), "mean_error")
    cases = [case for case in mirror.CASES if (case, "entropy") in mean]
    better, worse = (
        [case for case in cases if mean[case, one].clearly_below(mean[case, other])]
        for one, other in (("entropy", "euclidean"), ("euclidean", "entropy"))
    )
    left = len(cases) - len(better) - len(worse)
    return (
        f"By mean error (ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, {mirror.ROUNDS} rounds, {many(mean.values())} runs) "
        f"entropy is clearly better than Euclid on {_listed(better)}, and clearly worse on {_listed(worse)}; on the "
        f"other {left} tables the runs do not tell them apart.\n"
    )


def _listed(names: list[str]) -> str:
    return " and ".join(f"*{name}*" for name in names) or "none"


def mirror_wide() -> str:
    """The learner without a histogram beside what else answers; all ways stand on the page of the experiment."""
    rows = where(rows_of("mirror"), case=mirror.WIDE)
    mean = samples_by(rows, ("method",), "mean_error")
    others = {"factored MWEM": mean["mwem",], "projection": mean["projection",]}
    return (
        f"Of the 60 most popular items of Kosarak, {_queries(rows)} random 3-way queries, ε = {EPSILON:g}, the mean "
        f"error of the implicit learner is {error(mean['euclidean',])}: {than(mean['euclidean',], others)}.\n"
    )


def _queries(rows: Rows) -> str:
    return f"{rows[0]['queries']:,}" if rows else "no"


# Look-ups and lists


def look_ups() -> str:
    """Look-ups and lists in records, then the learner alone on a stream of lists."""
    rows = rows_of("sparse")
    mean = samples_by(rows, ("case", "method"), "mean")
    told = [_cells_beside_noise(mean)]
    for row in where(rows, case=sparse.STREAM):
        told.append(
            f"The learner alone, on {row['queries']:,} lists of 100 over 2⁶⁴, one by one: {row['seconds']:.1f} s of "
            f"the processor and {1000 * row['gigabytes']:.0f} MB (one run).\n"
        )
    return "".join(told)


def _cells_beside_noise(mean: Samples) -> str:
    mine = mean[sparse.LISTS, "noisy-cells"]
    looked, learned = (mean[sparse.LOOKUPS, name] for name in ("noisy-cells", "touched-weights"))
    noise = {
        "noise by incidence": mean[sparse.LISTS, sparse.INCIDENCE],
        "noise as 2c − n": mean[sparse.LISTS, sparse.SIZE],
        "the table as it came": mean[sparse.LISTS, sparse.BY_HAND],
    }
    return (
        f"ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, {sparse.RECORDS:,} records by Zipf's law. Of {sparse.LOOKUPS} the "
        f"mean error of noisy cells is {in_records(looked)} records, of touched weights {in_records(learned)}. Of "
        f"{sparse.LISTS} that of noisy cells is {in_records(mine)}: {than(mine, noise)}.\n"
    )


# Disjunctions


def disjunctions_measured() -> str:
    """Parities beside projection, and blocks beside monomials; all ways stand on the page of the experiment."""
    rows = rows_of("disjunctions")
    mean = samples_by(rows, ("case", "method"), "mean_error")
    told = []
    for case, words in DISJUNCTIONS.items():
        mine = mean[case, "parities"]
        asked = words.format(_queries(where(rows, case=case)))
        told.append(
            f"Of {asked} the mean error of parities is {error(mine)}: "
            f"{than(mine, {'projection': mean[case, 'projection']})}."
        )
    names = (disjunctions.LEARNER, disjunctions.BLOCKS, disjunctions.NOISE)
    learner, blocks, noise = (mean[disjunctions.NARROW, name] for name in names)
    told.append(
        f"Of the first, monomials have {error(learner)}, with 25 blocks {error(blocks)}, independent noise "
        f"{error(noise)}."
    )
    return " ".join(told) + "\n"


DISJUNCTIONS = {
    disjunctions.NARROW: "all {} disjunctions of 3 of 50 items",
    disjunctions.WIDE: "{} of 3 of 1,000 items, at random,",
}


# Distances


def distances_measured() -> str:
    """The curves beside the learner and noise, and how far single releases lie apart."""
    rows = rows_of("distances")
    mean = samples_by(rows, ("columns", "method"), "mean_error")
    widths = distinct(rows, "columns")
    curves, noise, learned = (
        [mean[width, name] for width in widths if mean[width, name].runs]
        for name in (distances.CURVES, distances.INDEPENDENT, distances.LEARNER)
    )
    worst = max(each.high / each.mean for each in curves)
    return (
        f"Errors in millionths of the diameter, {rows[0]['points']:,} points asked about, ε = 1, δ = 10⁻⁶, "
        f"add-remove, {widths[0]} to {widths[-1]} columns: {_from_to(curves)} by curves ({many(curves)} runs), "
        f"{_from_to(noise)} with noise on each point, {_from_to(learned)} by `coordinate-wise` ({many(learned)} "
        f"runs). All points of one release share its noise: the worst release had {worst:.1f} times the mean of its "
        f"width. {_other_metrics(rows)}\n"
    )


def _from_to(samples: Iterable[Sample]) -> str:
    means = [1e6 * each.mean for each in samples]
    low, high = f"{min(means):,.0f}", f"{max(means):,.0f}"
    return low if low == high else f"{low} to {high}"


def _other_metrics(rows: Rows) -> str:
    mean = samples_by(rows, ("method",), "mean_error")
    told = [f"{scaled(mean[name,], 1e6)} by {metric.value}" for name, metric in distances.BESIDE.items()]
    runs = many(mean[name,] for name in distances.BESIDE)
    return (
        f"Of {distances.PLACES:,} points with two columns, mean errors are {', '.join(told)} ({runs} runs)."
    )


# Cuts


def cuts_measured() -> str:
    """Cuts of the workload, in edges."""
    rows = [row for row in rows_of("cuts") if row["method"] in cuts.METHODS]
    mean = samples_by(rows, ("graph", "method"), "mean_error")
    names = distinct(rows, "graph")
    ways = (cuts.COARSENINGS, cuts.INDEPENDENT, cuts.LEARNER)
    lines = [[name, *(scaled(mean[name, way]) for way in ways)] for name in names]
    header = ("graph, mean error in edges", "`coarsenings`", "noise on each cut", "`frieze-kannan`")
    words = f"{rows[0]['cuts']:,} cuts, ε = 1, δ = 10⁻⁶, add-remove, {many(mean.values())} runs.\n"
    return f"{table(header, lines)}\n{words}"


# The rule that chooses


def evidence_of_the_rule() -> str:
    """What is behind each point of the rule, a line each."""
    rows = rows_of("choosing")
    gaussian, pure = ([row for row in rows if row["case"].endswith(", pure") is it] for it in (False, True))
    lines = [
        *_projection_beside(gaussian, "Gaussian noise can be paid for"),
        *_projection_beside(pure, "Pure ε"),
    ]
    return "".join(f"- {each}\n" for each in lines)


def _projection_beside(rows: Rows, title: str) -> Iterable[str]:
    """Projection's mean error as a share of each other mechanism's, over all points that both were measured at."""
    mean = samples_by(rows, ("case", "epsilon", "mechanism"), "mean_error")
    told = []
    for other, words in ((choosing.DUAL_QUERY, "DualQuery's"), (choosing.MWEM, "MWEM's")):
        pairs = [
            (sample, mean[case, epsilon, other])
            for (case, epsilon, mechanism), sample in mean.items()
            if mechanism == choosing.PROJECTION and (case, epsilon, other) in mean
        ]
        if pairs:
            shares = [mine.mean / its.mean for mine, its in pairs]
            lower = sum(mine.clearly_below(its) for mine, its in pairs)
            higher = sum(its.clearly_below(mine) for mine, its in pairs)
            told.append(
                f"{plain(min(shares))} to {plain(max(shares))} times {words} (clearly lower at {lower} of "
                f"{len(pairs)} points, clearly higher at {higher})"
            )
    if told:
        said = "; ".join(told)
        yield f"**{title}.** The mean error of projection is {said}. Runs of a point: {many(mean.values())}."


# Questions one at a time


def online_errors() -> str:
    """How far natural questions are off, and whether the bounds hold."""
    rows = where(rows_of("online"), stream="natural")
    least = min(distinct(rows, "questions"), default=0)
    lines = []
    for name in distinct(rows, "table"):
        mine = where(rows, table=name, questions=least)
        mean, most = (samples_by(mine, (), column)[()] for column in ("online_mean", "online_max"))
        verified, above = (sum(row[column] for row in mine) for column in ("verified", "above_bound"))
        lines.append([name, error(mean), error(most), f"{above:,} of {verified:,}", many([mean])])
    header = (
        f"{least:,} natural questions",
        "mean error",
        "max error",
        "not contradicted, above the bound",
        "runs",
    )
    planted = where(rows_of("online"), stream=online.PLANTED)
    tests, silent = (sum(row[column] for row in planted) for column in ("verified", "above_bound"))
    told = table(header, lines)
    if planted:
        told += (
            f"\nAn error planted exactly at the bound stayed unnoticed in {silent / tests:.1%} of {tests:,} "
            f"tests; by the law of the test it is {planted[0]['unnoticed']:.1%}.\n"
        )
    return told


def online_misfires() -> str:
    """What fires did to the longest natural streams, beside the release that these began with."""
    rows = where(rows_of("online"), stream="natural")
    rows = where(rows, questions=max(distinct(rows, "questions"), default=0))
    if not rows:
        return "Not measured.\n"
    ratios = Sample.of([row["online_mean"] / row["release_mean"] for row in rows])
    worst = max(rows, key=lambda row: row["online_mean"] / row["release_mean"])
    before, after = plain(worst["release_mean"]), plain(worst["online_mean"])
    tables = len(distinct(rows, "table"))
    return (
        f"Of {len(rows)} runs of {worst['questions']:,} natural questions on {tables} tables, the mean error is "
        f"{ratios:.2f} times that of the release alone. In the worst of them, on {worst['table']}, it is {after} "
        f"instead of {before}.\n"
    )


PARTS: dict[str, Callable[[], str]] = {
    "mirror maps": mirror_maps,
    "mirror without a histogram": mirror_wide,
    "look ups and lists": look_ups,
    "disjunctions": disjunctions_measured,
    "distances": distances_measured,
    "cuts": cuts_measured,
    "evidence of the rule": evidence_of_the_rule,
    "online errors": online_errors,
    "online misfires": online_misfires,
}
