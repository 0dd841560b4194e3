"""What pages quote of mechanisms: DualQuery, and what the rule that chooses rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments import choosing
from experiments import dualquery_figure_4 as figure_4
from experiments.harness import Rows, distinct
from experiments.page_parts.files import plain, rows_of
from experiments.spread import Sample, samples_by

# DualQuery


def widths() -> str:
    """DualQuery as in its paper, whose free values are random, beside ours, whose values follow a density."""
    rows = rows_of("dualquery_figure_4")
    mean = samples_by(rows, ("attributes", "method"), "mean_error")
    every = distinct(rows, "attributes")
    ratios = [mean[width, figure_4.PAPERS].mean / mean[width, figure_4.PLANNED].mean for width in every]
    return (
        f"From {min(every):,} to {max(every):,} attributes of biased data the mean error is {plain(min(ratios))} to "
        f"{plain(max(ratios))} times lower than as in the paper, by all differences together.\n"
    )


def price() -> str:
    """What the paper's parameters on KDD99 cost."""
    row = rows_of("dualquery_figure_3")[0]
    return (
        f"The paper's run on KDD99 costs ε = {row['epsilon_theorem_4_3']:.2f} by Theorem 4.3 as printed and "
        f"{row['epsilon_rho']:.2f} by ρ, for a record added or removed.\n"
    )


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


def many(samples: Iterable[Sample]) -> str:
    """How many runs stand behind each of some numbers: from the fewest to the most."""
    counts = sorted({int(sample.runs) for sample in samples if sample.runs})
    return " to ".join(f"{count}" for count in dict.fromkeys((*counts[:1], *counts[-1:])))


PARTS: dict[str, Callable[[], str]] = {
    "evidence of the rule": evidence_of_the_rule,
    "free values in wide tables": widths,
    "the price of a run": price,
}
