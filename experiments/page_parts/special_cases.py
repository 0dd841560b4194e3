"""docs/learners.md, evidence.md (the rule) and service.md (questions one at a time).

What a page says of an order ("lower than") is worked out here from the runs, so that it changes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from experiments import choosing, cuts, disjunctions, distances, mirror, online, sparse
from experiments import dualquery_figure_2 as figure_2
from experiments import dualquery_figure_5 as figure_5
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


LEARNERS = {
    "euclidean": f"implicit Euclidean learner, {mirror.WIDE_ROUNDS} rounds",
    "mwem": f"factored MWEM, {mirror.WIDE_ROUNDS} rounds",
    mirror.NOISE: "independent noise, as 2c − n",
    mirror.BY_HAND: "product of one-way counts, by hand",
    "projection": "projection (what `choose` takes)",
}


def mirror_wide() -> str:
    """The learner without a histogram beside all others."""
    rows = where(rows_of("mirror"), case=mirror.WIDE)
    mean, most = (samples_by(rows, ("method",), column) for column in ("mean_error", "max_error"))
    lines = []
    for name, words in LEARNERS.items():
        if (name,) in mean:
            lines.append([words, error(mean[name,]), plain(most[name,].mean), many([mean[name,]])])
    others = {"factored MWEM": mean["mwem",], "projection": mean["projection",]}
    return (
        table(("the 60 most popular items of Kosarak", "mean error", "max error", "runs"), lines)
        + f"\n{_queries(rows)} random 3-way queries, ε = {EPSILON:g}, δ = 10⁻⁶, add-remove. The mean "
        f"error of the implicit learner is {than(mean['euclidean',], others)}.\n"
    )


def _queries(rows: Rows) -> str:
    return f"{rows[0]['queries']:,}" if rows else "no"


# Look-ups and lists


CELLS = {
    "noisy-cells": "noisy cells (what `choose` takes)",
    sparse.INCIDENCE: "noise on every list, by incidence",
    sparse.SIZE: "noise on every list, as 2c − n",
    "touched-weights": "touched weights",
    sparse.BY_HAND: "a noisy table of all codes, as it came",
}


def look_ups() -> str:
    """Look-ups and lists in records, then the learner alone on a stream of lists."""
    rows = rows_of("sparse")
    mean, most = (samples_by(rows, ("case", "method"), column) for column in ("mean", "max"))
    lines = []
    for case in (sparse.LOOKUPS, sparse.LISTS):
        lines.append([f"**{case}**", "", "", ""])
        for name, words in CELLS.items():
            if (case, name) in mean:
                largest = f"{most[case, name].mean:,.0f}"
                lines.append([words, in_records(mean[case, name]), largest, many([mean[case, name]])])
    header = ("error, in records", "mean", "max", "runs")
    told = [table(header, lines), _cells_beside_noise(mean)]
    for row in where(rows, case=sparse.STREAM):
        told.append(
            f"The learner alone, on {row['queries']:,} lists of 100 over 2⁶⁴, one by one: {row['seconds']:.1f} s of "
            f"the processor and {1000 * row['gigabytes']:.0f} MB (one run).\n"
        )
    return "\n".join(told)


def _cells_beside_noise(mean: Samples) -> str:
    mine = mean[sparse.LISTS, "noisy-cells"]
    noise = {
        "noise by incidence": mean[sparse.LISTS, sparse.INCIDENCE],
        "noise as 2c − n": mean[sparse.LISTS, sparse.SIZE],
        "the table as it came": mean[sparse.LISTS, sparse.BY_HAND],
    }
    return (
        f"ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, {sparse.RECORDS:,} records by Zipf's law. On lists the "
        f"mean error of noisy cells is {than(mine, noise)}.\n"
    )


# Disjunctions


DISJUNCTIONS = {
    disjunctions.NARROW: "all {} disjunctions of 3 of 50 items",
    disjunctions.WIDE: "{} of 3 of 1,000 items, at random",
}
TAKEN = {disjunctions.NARROW: "projection", disjunctions.WIDE: "parities"}  # what `choose` takes
WAYS = {
    "parities": "parities",
    "projection": "projection",
    disjunctions.NOISE: "independent noise, as 2c − n",
    disjunctions.LEARNER: "weights over monomials",
    disjunctions.BLOCKS: "weights over monomials, 25 blocks",
    disjunctions.BY_HAND: "one-way counts, as if independent",
}


def disjunctions_measured() -> str:
    """Errors and times of every way, then parities beside projection and blocks beside monomials."""
    rows = rows_of("disjunctions")
    mean, most, seconds = (
        samples_by(rows, ("case", "method"), column) for column in ("mean_error", "max_error", "seconds")
    )
    lines = []
    for case, words in DISJUNCTIONS.items():
        asked = words.format(_queries(where(rows, case=case)))
        lines.append([f"**{asked}**", "", "", "", ""])
        for name, way in WAYS.items():
            key = case, name
            if key in mean:
                way += " (what `choose` takes)" if name == TAKEN[case] else ""
                took = f"{plain(seconds[key].mean)} s" if key in seconds else ""
                lines.append([way, error(mean[key]), plain(most[key].mean), took, many([mean[key]])])
    header = ("ε = 1, δ = 10⁻⁶, add-remove, n = 100,000", "mean error", "max error", "processor", "runs")
    sentences = []
    for case, items in ((disjunctions.NARROW, "50"), (disjunctions.WIDE, "1,000")):
        beside = than(mean[case, "parities"], {"projection": mean[case, "projection"]})
        sentences.append(f"Of {items} items, the mean error of parities is {beside}.")
    blocks, single = (mean[disjunctions.NARROW, name] for name in (disjunctions.BLOCKS, disjunctions.LEARNER))
    rounds = {row["method"]: row["rounds"] for row in where(rows, case=disjunctions.NARROW)}
    sentences.append(
        f"That of 25 blocks is {than(blocks, {'monomials alone': single})}, in {rounds[disjunctions.BLOCKS]:,} "
        f"rounds instead of {rounds[disjunctions.LEARNER]:,}."
    )
    return f"{table(header, lines)}\n{' '.join(sentences)}\n"


# Distances


def distances_measured() -> str:
    """Mean errors by the number of columns, and how far single releases lie apart."""
    rows = rows_of("distances")
    mean, most = (samples_by(rows, ("columns", "method"), column) for column in ("mean_error", "max_error"))
    widths = distinct(rows, "columns")
    others = (distances.INDEPENDENT, distances.HISTOGRAMS, distances.LEARNER)
    lines = []
    for width in widths:
        mine = [scaled(each[width, distances.CURVES], 1e6) for each in (mean, most)]
        rest = (mean[width, name] for name in others)
        lines.append([f"{width}", *mine, *(f"{1e6 * each.mean:,.0f}" if each.runs else "" for each in rest)])
    header = (
        "columns",
        "`distance-curves`, mean",
        "max",
        "noise on each point, mean",
        f"histograms of {distances.BINS} bins, mean",
        "`coordinate-wise`, mean",
    )
    curves = [mean[width, distances.CURVES] for width in widths]
    beside = [mean[width, name] for width in widths for name in others]
    apart = [100 * each.deviation / each.mean for each in curves]
    worst = max(each.high / each.mean for each in curves)
    return (
        f"{table(header, lines)}\nErrors in millionths of the diameter, {rows[0]['points']:,} points asked about, "
        "ε = 1, δ = 10⁻⁶, add-remove; means, and from the least run to the most, of "
        f"{many(curves)} runs of the curves and {many(beside)} of the others. All points of one release share its "
        f"noise, so that single releases lie apart: the standard deviation is {min(apart):.0f} to {max(apart):.0f} "
        f"percent of the mean, and the worst release had {worst:.1f} times the mean of its width. "
        f"{_other_metrics(rows)}\n"
    )


def _other_metrics(rows: Rows) -> str:
    mean = samples_by(rows, ("method",), "mean_error")
    told = [f"{scaled(mean[name,], 1e6)} by {metric.value}" for name, metric in distances.BESIDE.items()]
    runs = many(mean[name,] for name in distances.BESIDE)
    return (
        f"Of {distances.PLACES:,} points with two columns, mean errors are {', '.join(told)} ({runs} runs)."
    )


# Cuts


def cuts_measured() -> str:
    """Cuts of the workload in edges, and cuts between random halves as a share of all edges."""
    rows = [row for row in rows_of("cuts") if row["method"] in cuts.METHODS]
    mean, most, half = (
        samples_by(rows, ("graph", "method"), column) for column in ("mean_error", "max_error", "half_error")
    )
    names = distinct(rows, "graph")
    others = (cuts.INDEPENDENT, cuts.LEARNER, cuts.MATRIX)
    lines = []
    for name in names:
        own = name, cuts.COARSENINGS
        rest = [most[own], *(mean[name, other] for other in others)]
        lines.append(
            [name, scaled(mean[own]), *(f"{each.mean:,.0f}" for each in rest), scaled(half[own], 100, 2)]
        )
    header = (
        "graph",
        "`coarsenings`, mean",
        "max",
        "noise on each cut, mean",
        "`frieze-kannan`, mean",
        "noise on every pair, mean",
        "a random half, `coarsenings`, percent",
    )
    noise, learner = ([mean[name, way] for name in names] for way in (cuts.INDEPENDENT, cuts.LEARNER))
    better, worse = (
        [name for name, one, other in zip(names, *pair, strict=True) if one.clearly_below(other)]
        for pair in ((learner, noise), (noise, learner))
    )
    return (
        f"{table(header, lines)}\nErrors in edges, {rows[0]['cuts']:,} cuts, ε = 1, δ = 10⁻⁶, add-remove; means of "
        f"{many(mean.values())} runs, and from the least run to the most. A random half is what goes from a random "
        "half of the vertices to the other half, in percent of all edges. `frieze-kannan` is clearly better than "
        f"noise on each cut on {_listed(better)}, and clearly worse on {_listed(worse)}.\n"
    )


# The rule that chooses


def evidence_of_the_rule() -> str:
    """What is behind each point of the rule, a line each."""
    rows = rows_of("choosing")
    gaussian, pure = ([row for row in rows if row["case"].endswith(", pure") is it] for it in (False, True))
    lines = [
        *_projection_beside(gaussian, "Gaussian noise can be paid for"),
        *_projection_beside(pure, "Pure ε"),
        *_few_records(pure),
        *_baskets(),
        *_mwem_beside_dual_query(),
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


def _few_records(rows: Rows) -> Iterable[str]:
    """The table that is small enough for the rule to take MWEM, at every ε."""
    mine = [row for row in rows if row["case"].startswith("Czech workers")]
    mean = samples_by(mine, ("epsilon", "mechanism"), "mean_error")
    picks = {row["epsilon"]: row["chosen"] for row in mine}
    told = [
        f"at ε = {epsilon:g} MWEM {error(mean[epsilon, choosing.MWEM])}, projection "
        f"{error(mean[epsilon, choosing.PROJECTION])}, and the rule picks {picked}"
        for epsilon, picked in sorted(picks.items())
        if all((epsilon, mechanism) in mean for mechanism in (choosing.MWEM, choosing.PROJECTION))
    ]
    if told:
        said, runs = "; ".join(told), many(mean.values())
        yield f"**Pure ε, few records.** On the Czech workers the mean errors are: {said}. Runs of a point: {runs}."


def _baskets() -> Iterable[str]:
    """Kosarak's random queries, of which most are about items that hardly anybody has."""
    rows = where(rows_of("dualquery_figure_2"), data="kosarak", epsilon=1)
    mean = samples_by(rows, ("method",), "mean_error")
    if (figure_2.PROJECTED,) in mean:
        projected, own, zeros = (
            mean[name,] for name in (figure_2.PROJECTED, figure_2.PLANNED, figure_2.ZEROS)
        )
        yield (
            f"**Wide baskets.** Kosarak, {_queries(rows)} random 3-way queries, ε = 1, δ = 10⁻³: the mean error of "
            f"projection is {error(projected)}, of DualQuery by our accounting and parameters {error(own)}, of a "
            f"table of zeros {error(zeros)}. Runs: {many([projected, own])}."
        )


def _mwem_beside_dual_query() -> Iterable[str]:
    """Nobody measured the two under Theorem 4.3: Figure 5 has them under pure ε."""
    mean = samples_by(rows_of("dualquery_figure_5"), ("line", "epsilon"), "mean_error")
    both = [
        (mean[figure_5.MWEM_OURS, epsilon], sample)
        for (line, epsilon), sample in mean.items()
        if line == figure_5.OURS and (figure_5.MWEM_OURS, epsilon) in mean
    ]
    if both:
        ratios = [other.mean / mine.mean for mine, other in both]
        lower = sum(mine.clearly_below(other) for mine, other in both)
        runs = many(sample for pair in both for sample in pair)
        yield (
            f"**MWEM beside DualQuery.** {figure_5.WIDTH} binary attributes of Adult, 10,000 queries, *pure ε* from "
            f"1 to 5 (not Theorem 4.3): DualQuery has {min(ratios):.1f} to {max(ratios):.1f} times the mean error of "
            f"MWEM, which is clearly lower at {lower} of {len(both)} points. Runs of a point: {runs}."
        )


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
